"""Hand checks of placement by utility, buddy cells, planned waiting, and skipped opportunities."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ganger.core.errors import BadInput
from ganger.core.profiles import Profile, Profiles
from ganger.core.spec import ClusterSpec, Locality, Needs, NodeSpec, Role, Shape, TenantSpec
from ganger.core.units import HOUR, SECOND
from ganger.recipes import registry
from ganger.recipes.training.placement.hived_buddies import owned_by_quota, possible, sizes_of
from worlds import Played, Work, cluster, gpus, job, play

SOCKETS = cluster(1, 4, island=2)


def devices(run: Played, name: str) -> str:
    """Where `name` was started, as the diary says it."""
    return next(
        said.split(" on ")[1].split(" after")[0]
        for _, said in run.actions
        if said.startswith(f"start {name} ")
    )


# ---------------------------------------------------------------------- topology-aware


def test_a_pair_takes_a_whole_socket_where_best_fit_would_split_it() -> None:
    """After 1 s one GPU of each socket of node 0 is free; node 1 is empty."""
    works = [job("a", 0, 1), job("b", 0, 9), job("c", 0, 1), job("d", 0, 9),
             job("pair", 2, 9, size=2)]  # fmt: skip
    on = cluster(2, 4, island=2)
    assert devices(play("fifo", works, on), "pair") == "0:0,2"
    assert devices(play("topology-aware", works, on), "pair") == "1:0,1"


def test_utility_of_the_card() -> None:
    """A whole socket: all costs are 1. Split over sockets: distance 20, half of each left."""
    from ganger.core.plan import Slot
    from ganger.core.state.cluster import Nodes
    from ganger.recipes.training.placement.topology import ByUtility

    run = play("topology-aware", [job("pair", 0, 1, size=2)], SOCKETS, until=0)
    view, rule = run.kernel.view, ByUtility(threshold=0.0)
    ledger = type(run.kernel.ledger)(Nodes(SOCKETS))
    together, apart = (Slot(0, 0b0011, 2),), (Slot(0, 0b0101, 2),)
    assert rule.utility(view, ledger, 0, together, 1.0) == 1.0
    assert rule.utility(view, ledger, 0, apart, 1.0) == pytest.approx(3 / (20 + 1 + 1.5))


def test_a_threshold_postpones_what_first_fit_would_split() -> None:
    works = [
        job("a", 0, 9),
        job("b", 0, 4, shape=gpus(1)),
        job("c", 0, 9),
        job("pair", 1, 2, size=2),
    ]
    on = cluster(2, 2)
    # best fit packs a, b on node 0 and c on node 1: the pair would need both nodes.
    two = [*works[:3], job("pair", 1, 2, size=2)]
    assert play("topology-aware(threshold=0.5)", two, on).started("pair") == 9
    split = [job("x", 0, 9), job("y", 0, 3, size=2), job("pair", 1, 2, size=2)]
    on = cluster(2, 2, nodes_per_rack=2)
    late = play("topology-aware(threshold=0.5)", [*split[:2], job("z", 3, 9), *split[2:]], on)
    assert late.started("pair") == 3
    with pytest.raises(BadInput, match=r"0 to 0\.75"):
        registry.make("topology-aware(threshold=0.9)")


def test_it_stays_away_from_whom_it_disturbs() -> None:
    noisy = Profiles({"net": Profile(disturbed={"loud": 3.0}), "loud": Profile()})
    works = [job("loud", 0, 9, model="loud"), job("net", 1, 9, model="net")]
    assert devices(play("topology-aware", works, cluster(2, 4), profiles=noisy), "net") == "1:0"
    assert devices(play("topology-aware", works, cluster(2, 4)), "net") == "0:1"
    assert devices(play("fifo", works, cluster(2, 4), profiles=noisy), "net") == "0:1"
    other = [works[1]._replace(spec=job("net", 0, model="net").spec), job("loud", 1, model="loud")]
    assert devices(play("topology-aware", other, cluster(2, 4), profiles=noisy), "loud") == "1:0"
    assert devices(play("topology-aware", other, cluster(2, 4)), "loud") == "0:1"


# ---------------------------------------------------------------------- hived


def test_the_largest_cells_are_cut_first_where_nodes_differ() -> None:
    """The 1 must come out of the node of 6, of which no cell of 4 can be cut."""
    assert possible([{1: 1}, {4: 1}], [4, 6])
    assert not possible([{1: 1}, {4: 2}], [4, 6])


def test_cells_are_buddies() -> None:
    cut = [(8, 4, 2, 1), (6, 3, 1), (3, 1), (1,), ()]
    assert [sizes_of(n) for n in (8, 6, 3, 1, 0)] == cut
    assert owned_by_quota(13, [8, 8]) == {8: 1, 4: 1, 1: 1}


def two_tenants(nodes: int, each: int, a: int, b: int) -> ClusterSpec:
    return ClusterSpec(
        (NodeSpec(count=nodes, gpus=each, gpu_type="V100"),),
        tenants=(TenantSpec("A", quota=a), TenantSpec("B", quota=b)),
    )


def test_two_single_jobs_share_a_cell_and_the_other_tenants_pair_starts_at_once() -> None:
    works = [
        job("a1", 0, 9, tenant="A"),
        job("a2", 0, 9, tenant="A"),
        job("b", 1, 5, tenant="B", shape=gpus(2, locality=Locality.NODE)),
    ]
    one = play("hived(cells=A:1x2;B:1x2)", works, two_tenants(1, 4, 2, 2))
    assert [devices(one, name) for name in ("a1", "a2", "b")] == ["0:0", "0:1", "0:2,3"]
    on = two_tenants(2, 2, 2, 2)
    assert play("hived", works, on).started("b") == 1
    # With plain quotas of 2 GPUs each, A may sit on both nodes, and B waits with two GPUs free.
    assert play("placement(fit=worst,walk=skip)", works, on).started("b") == 9


def test_opportunistic_jobs_use_what_is_free_and_go_when_it_is_needed() -> None:
    works = [
        job("guest", 0, 20, size=4),
        job("low", 0, 20, size=2, tenant="A", priority=-1),
        job("b", 5, 5, size=2, tenant="B"),
    ]
    run = play("hived", works, two_tenants(2, 4, 4, 4))
    assert [run.started(name) for name in ("guest", "low", "b")] == [0, 0, 5]
    assert [run.jobs.preemptions[run.row(name)] for name in ("guest", "low")] == [0, 0]
    full = play("hived", [*works[:2], job("b", 5, 5, size=4, tenant="B")], two_tenants(2, 4, 4, 4))
    assert full.started("b") == 5
    assert full.jobs.preemptions[full.row("low")] == 1, "fewer GPUs are lost with it"


def test_opportunistic_jobs_keep_away_from_bound_cells_where_there_is_a_choice() -> None:
    works = [job("a1", 0, 20, tenant="A"), job("guest", 1, 20), job("a2", 2, 20, tenant="A")]
    run = play("hived(cells=A:1x2)", works, cluster(1, 4))
    assert [devices(run, name) for name in ("a1", "guest", "a2")] == ["0:0", "0:2", "0:1"]
    full = play("hived(cells=A:1x2)", [job("others", 0, 9, size=2), *works], cluster(1, 4))
    assert full.started("guest") == 1, "the free half of A's cell is all that there is"
    assert full.jobs.preemptions[full.row("guest")] == 1


def test_opportunistic_jobs_keep_away_from_nodes_with_bound_cells_if_that_spreads_no_gang() -> None:
    works = [
        job("a1", 0, 20, size=2, tenant="A"),
        job("guest", 1, 20, size=2),
        job("a2", 2, 20, size=2, tenant="A"),
    ]
    run = play("hived(cells=A:2x2)", works, cluster(2, 4))
    assert [devices(run, name) for name in ("a1", "guest", "a2")] == ["0:0,1", "1:0,1", "0:2,3"]
    on = [job("left", 0, 30, size=3), job("right", 0, 30, size=3)]
    run = play("hived(cells=A:1x2)", [*works[:1], *on, works[1]], cluster(3, 4))
    assert devices(run, "guest") == "0:2,3", "on one node, not on two"


@pytest.mark.parametrize("needs", [Needs(cpus=1000), Needs(share=500)], ids=str)
def test_jobs_that_state_more_than_gpus_keep_away_from_bound_cells(needs: Needs) -> None:
    on = ClusterSpec((NodeSpec(count=1, gpus=4, gpu_type="V100", cpus=16000, memory=4000),))
    works = [job("a1", 0, 20, tenant="A"), job("guest", 1, 20, shape=Shape((Role(needs=needs),)))]
    assert devices(play("hived(cells=A:1x2)", works, on), "guest") == "0:2"


@pytest.mark.parametrize("needs", [Needs(cpus=4001), Needs(memory=1001)], ids=str)
def test_the_page_names_the_owners_jobs_that_run_opportunistically(needs: Needs) -> None:
    """A label, or more than its GPU's part of the node's CPUs or memory."""
    node = NodeSpec(count=1, gpus=4, gpu_type="V100", cpus=16000, memory=4000, labels=("fast",))
    on = ClusterSpec((node,))
    more = Shape((Role(needs=needs),)), Shape((Role(),), labels=("fast",))
    works = [job("guest", 0, 50, size=4)]
    for shape in more:
        run = play("hived(cells=A:1x2)", [*works, job("a", 5, 9, tenant="A", shape=shape)], on)
        assert run.started("a") == 50
    told = registry.find("hived").make.__doc__ or ""
    assert "labels" in told
    assert "more than" in told


def test_a_cell_is_taken_before_a_larger_one_is_split() -> None:
    """A's two cells of 2 and B's 4: A's second job takes the buddy of its first."""
    works = [
        job("a1", 0, 9, size=2, tenant="A"),
        job("a2", 0, 9, size=2, tenant="A"),
        job("b", 0, 9, size=4, tenant="B"),
    ]
    run = play("hived(cells=A:2x2;B:1x4)", works, two_tenants(2, 4, 4, 4))
    assert [run.started(name) for name in ("a1", "a2", "b")] == [0, 0, 0]


def test_gangs_larger_than_a_cell_take_several_and_what_never_fits_is_opportunistic() -> None:
    on = two_tenants(3, 4, 8, 4)
    works = [
        job("wide", 0, 9, size=8, tenant="A"),
        job("b", 1, 5, size=4, tenant="B"),
        job("wider", 2, 3, size=12, tenant="A"),
    ]
    run = play("hived", works, on)
    assert [run.started(name) for name in ("wide", "b", "wider")] == [0, 1, 9]


def test_cells_that_are_no_cells_are_refused() -> None:
    with pytest.raises(BadInput, match="'A2x2' is not a valid cell"):
        registry.make("hived(cells=A2x2)")


@pytest.mark.parametrize("cells", ["A:1x3", "A:9x4;B:9x4", "A:3x4", "A:1x4;B:5x1"])
def test_cells_that_the_cluster_has_not_are_refused(cells: str) -> None:
    with pytest.raises(BadInput, match="this cluster has not the cells"):
        play(f"hived(cells={cells})", [job("a", tenant="A"), job("b", tenant="B")], cluster(2, 4))


@pytest.mark.parametrize(
    "needs", [Needs(cpus=4000), Needs(memory=1000), Needs(gpus=2, cpus=8000, memory=2000)], ids=str
)
def test_an_owner_who_states_cpus_or_memory_keeps_its_guarantee(needs: Needs) -> None:
    """Guests hold all GPUs, and CPUs beside those that the owner's GPUs need."""
    on = ClusterSpec((NodeSpec(count=2, gpus=4, gpu_type="V100", cpus=16000, memory=4000),))
    asks = Shape((Role(size=2 // needs.gpus, needs=needs),))
    works = [
        job("guest", 0, 50, shape=Shape((Role(size=8, needs=Needs(cpus=4000)),))),
        job("owner", 5, 9, tenant="A", shape=asks),
    ]
    run = play("hived(cells=A:1x2)", works, on)
    assert run.started("owner") == 5
    greedy = Shape((Role(size=1, needs=Needs(cpus=5000)),))
    works[1] = job("owner", 5, 9, tenant="A", shape=greedy)
    assert play("hived(cells=A:1x2)", works, on).started("owner") == 50, "more than its part"


cell_sizes = st.sampled_from([1, 2, 4])
requests = st.tuples(
    st.integers(0, 40),
    st.integers(1, 15),
    st.integers(1, 6),
    st.sampled_from(["A", "B", "C", "guest"]),
)


@settings(max_examples=60)
@given(
    st.lists(st.tuples(st.sampled_from("ABC"), cell_sizes), min_size=1, max_size=8),
    st.lists(requests, min_size=1, max_size=25),
)
def test_sharing_is_safe(
    owned: list[tuple[str, int]], asked: list[tuple[int, int, int, str]]
) -> None:
    """On nodes of 4 that hold all cells, every tenant's guaranteed jobs start when they would on a
    private cluster of its cells: not one of them later, whatever the others do."""
    total = sum(size for _, size in owned)
    counts = {(t, s): owned.count((t, s)) for t, s in product("ABC", (1, 2, 4))}
    text = ";".join(f"{t}:{n}x{s}" for (t, s), n in counts.items() if n)
    asked = sorted(asked)
    works = [
        job(f"job {i}", at, lasts, size=min(size, total), tenant=tenant)
        for i, (at, lasts, size, tenant) in enumerate(asked)
    ]
    shared = play(f"hived(cells={text})", works, cluster(-(-total // 4), 4))
    for tenant in "ABC":
        mine = {s: n for (t, s), n in counts.items() if t == tenant and n}
        quota = sum(s * n for s, n in mine.items())
        own = [
            work for work in works if work.spec.tenant == tenant and work.spec.shape.gpus <= quota
        ]
        if not own:
            continue
        private = ClusterSpec(
            tuple(NodeSpec(count=n, gpus=s, gpu_type="V100") for s, n in sorted(mine.items()))
        )
        alone = play(
            f"hived(cells={';'.join(f'{tenant}:{n}x{s}' for s, n in mine.items())})", own, private
        )
        for work in own:
            name = work.spec.name
            assert shared.started(name) == alone.started(name)
            assert not shared.jobs.preemptions[shared.row(name)]


# ---------------------------------------------------------------------- spin, skipped opportunities


def split_pair(**more: Any) -> list[Work]:
    """Two nodes of 3, one GPU free on each; a second after the gang comes one frees a pair."""
    return [
        job("short", lasts=2, size=2),
        job("long", lasts=100, size=2),
        job("gang", at=1, lasts=10, size=2, model="net", **more),
    ]


@pytest.mark.parametrize(("slower", "jct"), [(2.0, 11), (1.05, 10.5)])
def test_spin_waits_for_a_node_exactly_where_that_pays(slower: float, jct: float) -> None:
    slow = Profiles({"net": Profile(locality=(1.0, 1.0, slower, slower))})
    run = play("spin(slot=1s)", split_pair(), cluster(2, 3), profiles=slow)
    assert run.jct()[2] == jct
    auto = play("spin", split_pair(), cluster(2, 3), profiles=slow)
    assert auto.jct()[2] == jct


def test_spin_differs_from_always_waiting_and_from_never() -> None:
    for slower, fifo, wait, planned in ((2.0, 20, 11, 11), (1.05, 10.5, 11, 10.5)):
        slow = Profiles({"net": Profile(locality=(1.0, 1.0, slower, slower))})
        ends = [
            play(recipe, split_pair(), cluster(2, 3), profiles=slow).jct()[2]
            for recipe in ("fifo", "placement(within=node)", "spin(slot=1s)")
        ]
        assert ends == [fifo, wait, planned]


@pytest.mark.parametrize(
    ("weights", "starts"), [((1, 9), [15, 5]), ((9, 1), [5, 15]), ((1, 1), [5, 15])]
)
def test_spin_lets_the_heavier_job_go_first_and_of_equals_the_earlier(
    weights: tuple[float, float], starts: list[float]
) -> None:
    works = [
        job("busy", 0, 5),
        *(job(name, 1, 10, weight=weight) for name, weight in zip("ab", weights, strict=True)),
    ]
    run = play("spin(slot=1s)", works, cluster(1, 1))
    assert [run.started(name) for name in "ab"] == starts


def test_spin_goes_on_when_durations_are_wrong_or_unknown() -> None:
    works = [job(f"j{i}", i, 30 + i, size=1 + i % 3) for i in range(12)]
    for knows in ("noisy", "nothing", "history"):
        run = play("spin", works, cluster(2, 3), knows=knows, until=HOUR)
        assert run.jobs.finished[:12].min() > 0


@pytest.mark.parametrize(("skips", "starts"), [(0, 0), (1, 3), (2, 4), (3, 5), (9, 6)])
def test_a_job_takes_a_worse_place_after_so_many_skipped_opportunities(
    skips: int, starts: float
) -> None:
    """Opportunities pass at 0, 3, 4 and 5 s, when others arrive; a pair is free at 6 s."""
    works = [
        job("short", lasts=6, size=2),
        job("long", lasts=100, size=2),
        job("gang", lasts=10, size=2, model="net"),
        *(job(f"cpu {at}", at, 1, size=4) for at in (3, 4, 5)),
    ]
    slow = Profiles({"net": Profile(locality=(1.0, 1.0, 2.0, 2.0))})
    recipe = f"delay-scheduling(node_skips={skips})"
    run = play(recipe, works, cluster(2, 3), profiles=slow, until=50 * SECOND)
    assert run.started("gang") == starts
    patient = play(
        "delay-scheduling(node_wait=1h)", works, cluster(2, 3), profiles=slow, until=50 * SECOND
    )
    assert patient.started("gang") == 6


def test_a_tier_that_no_node_has_is_not_waited_for() -> None:
    run = play(
        "delay-scheduling(node_skips=9,rack_skips=9)",
        [job("wide", 0, 5, size=4)],
        cluster(2, 2, nodes_per_rack=2),
    )
    assert run.started("wide") == 0
