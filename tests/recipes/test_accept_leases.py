"""Hand checks of what lends GPUs for a time: Themis, Gandiva_fair, Astraea; and knapsacks."""

from __future__ import annotations

from itertools import combinations
from math import log

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ganger.core.errors import BadInput
from ganger.core.events import AnyEvent, Batch, Released, Started, Submitted, Woke
from ganger.core.kernel import Kernel
from ganger.core.plan import Start, Stop
from ganger.core.profiles import Profile, Profiles
from ganger.core.spec import (
    ClusterSpec,
    GpuType,
    JobSpec,
    NodeSpec,
    OnPreempt,
    Role,
    Shape,
    TenantSpec,
)
from ganger.core.state.cluster import Nodes
from ganger.core.state.jobs import declare
from ganger.core.units import MINUTE
from ganger.recipes import registry
from ganger.recipes.training.fairness.astraea import Account
from ganger.recipes.training.fairness.gandiva_fair import trade
from ganger.recipes.training.fairness.themis import kept_share, winners
from ganger.solve.knapsack import knapsack, multi_knapsack
from worlds import Played, cluster, job, play

# ---------------------------------------------------------------------- knapsacks


def brute(values: list[float], sizes: list[int], capacity: int) -> float:
    return max(
        sum(values[i] for i in chosen)
        for n in range(len(values) + 1)
        for chosen in combinations(range(len(values)), n)
        if sum(sizes[i] for i in chosen) <= capacity
    )


items = st.lists(st.tuples(st.integers(0, 20), st.integers(0, 6)), max_size=8)


@given(items, st.integers(0, 15))
def test_the_knapsack_is_exact(items: list[tuple[int, int]], capacity: int) -> None:
    values, sizes = [float(v) for v, _ in items], [s for _, s in items]
    chosen = knapsack(values, sizes, capacity)
    assert sum(sizes[i] for i in chosen) <= capacity
    assert sum(values[i] for i in chosen) == brute(values, sizes, capacity)


def test_smds_knapsack_of_two_resources() -> None:
    """(2, 2) worth 5, (4, 1) worth 6, (2, 2) worth 4 into (4, 4): 1 + 3, not 2."""
    values, demands = np.array([5.0, 6, 4]), np.array([[2.0, 2], [4, 1], [2, 2]])
    assert multi_knapsack(values, demands, np.array([4.0, 4])) == [0, 2]


@given(
    st.lists(st.tuples(st.integers(1, 9), st.integers(0, 5), st.integers(0, 5)), max_size=6),
    st.integers(1, 9),
    st.integers(1, 9),
)
def test_the_knapsack_of_several_resources_is_feasible_and_near(
    items: list[tuple[int, int, int]], one: int, two: int
) -> None:
    values = np.array([float(v) for v, _, _ in items])
    demands = np.array([[float(a), float(b)] for _, a, b in items]).reshape(-1, 2)
    capacity = np.array([float(one), float(two)])
    chosen = multi_knapsack(values, demands, capacity, effort=2)
    assert (demands[chosen].sum(axis=0) <= capacity).all()
    best = max(
        values[list(c)].sum()
        for n in range(len(items) + 1)
        for c in combinations(range(len(items)), n)
        if (demands[list(c)].sum(axis=0) <= capacity).all()
    )
    assert values[chosen].sum() >= 0.5 * best


# ---------------------------------------------------------------------- themis


def rho(run: Played, name: str, alone: float) -> float:
    row = run.row(name)
    return float(run.jobs.finished[row] - run.jobs.submitted[row]) / 1e6 / alone


def test_leases_to_the_worst_rho_let_the_short_gang_finish_in_time() -> None:
    """Minutes: B 100, A 10, both gangs of 2 on 2 GPUs; alone on half of it, 200 and 20."""
    works = [job("B", 0, 6000, size=2), job("A", 0, 600, size=2)]
    fifo, run = play("fifo", works), play("themis(lease=5m)", works)
    assert rho(fifo, "A", 1200) == 5.5
    assert rho(run, "A", 1200) <= 1.5
    assert rho(run, "B", 12000) < 1
    assert run.text().startswith("0: start B on 0:0,1\n300: stop B; start A on 0:0,1 after B")


def test_the_auction_maximises_the_product_and_winners_pay() -> None:
    gains, gpus = [log(4.0), log(3.0), log(2.0)], [4, 2, 2]
    assert winners(gains, gpus, 4) == [1, 2]
    # Without job 1 the 4-GPU job would win: the others' product is 2 with it and 4 without.
    assert kept_share(gains, gpus, 4, 1, [1, 2]) == pytest.approx(2 / 4)
    assert kept_share(gains, gpus, 4, 2, [1, 2]) == pytest.approx(3 / 4)
    assert kept_share(gains, gpus, 8, 0, [0, 1, 2]) == pytest.approx(1), "room for all"


def test_a_winner_that_may_shrink_pays_with_gpus() -> None:
    """Two jobs of 4 GPUs that could do with 1: one wins the 4, and pays with some of them."""
    elastic = Shape((Role(size=4, least=1, most=4),))
    works = [job("x", 0, 600, shape=elastic), job("y", 0, 600, shape=elastic)]
    run = play("themis(lease=5m,fairness=0)", works, cluster(1, 4), until=MINUTE)
    assert sorted(run.jobs.size[:2].tolist()) != [0, 4]
    rigid = [job("x", 0, 600, size=4), job("y", 0, 600, size=4)]
    run = play("themis(lease=5m,fairness=0)", rigid, cluster(1, 4), until=MINUTE)
    assert sorted(run.jobs.size[:2].tolist()) == [0, 4]


def test_themis_differs_from_gavels_finish_time_fairness() -> None:
    """Only the latter shares a lease's time between a long and a short gang at once."""
    works = [job("B", 0, 6000, size=2), job("A", 0, 600, size=2)]
    assert play("themis", works).text() != play("ftf", works).text()
    with pytest.raises(BadInput, match="0 to below 1"):
        registry.make("themis(fairness=1)")


def test_a_lease_is_renewed_without_interruption_and_never_taken_from_the_unpreemptible() -> None:
    alone = play("themis(lease=1m)", [job("a", 0, 600, size=2)])
    assert alone.text() == "0: start a on 0:0,1"
    works = [job("a", 0, 600, size=2, on_preempt=OnPreempt.NEVER), job("b", 0, 60, size=2)]
    assert play("themis(lease=1m)", works).started("b") == 600


# ---------------------------------------------------------------------- gandiva-fair


def test_trading_at_the_second_highest_speedup() -> None:
    """10 V100 and 10 K80 each; speedups 1.2, 6 and 4: two V100 go for four K80 each."""
    old, new = trade([10.0, 10, 0], [10.0, 10, 0], [1.2, 6, 4], deals=2)
    assert (old[:2], new[:2]) == ([18, 2], [8, 12])
    worth = [old[i] + speedup * new[i] for i, speedup in enumerate([1.2, 6])]
    assert worth == pytest.approx([27.6, 74])


def test_trading_ends_after_a_thousand_deals_however_small_each_is() -> None:
    """Of ten GPUs the seller has sold a thousand times a thousandth, for twice that."""
    old, new = trade([30.0, 0], [0.0, 10], [4, 1], step=0.001)
    assert (old[0], new[0]) == (30, 0), "whoever is alone with the price buys nothing"
    old, new = trade([30.0, 30, 0], [0.0, 0, 10], [4, 2, 1], step=0.001)
    assert new == pytest.approx([1, 0, 9])
    assert old == pytest.approx([28, 30, 2])


speeds = st.lists(st.floats(1, 8), min_size=2, max_size=6)


@given(speeds, st.floats(0.1, 3))
def test_nobody_loses_by_trading_and_nothing_is_lost(speedups: list[float], step: float) -> None:
    n = len(speedups)
    old, new = trade([10.0] * n, [10.0] * n, speedups, step)
    assert sum(old) == pytest.approx(10 * n)
    assert sum(new) == pytest.approx(10 * n)
    assert min(*old, *new) >= -1e-6
    for o, w, speedup in zip(old, new, speedups, strict=True):
        assert o + speedup * w >= 10 + speedup * 10 - 1e-6


def gpu_time(run: Played, user: str) -> float:
    jobs = run.jobs
    mine = [row for row in range(jobs.n) if jobs.users[jobs.user[row]] == user]
    return float(run.kernel.view.attained(np.array(mine)).sum()) / 1e6


def test_users_get_equal_gpu_time_whatever_the_number_and_size_of_their_jobs() -> None:
    works = [
        *(job(f"a{i}", 0, 36000, user="ann") for i in range(9)),
        *(job(f"b{i}", 0, 36000, size=4, user="bob") for i in range(2)),
        job("c", 0, 36000, size=2, user="cyd"),
        job("c2", 0, 36000, size=2, user="cyd"),
    ]
    run = play("gandiva-fair", works, cluster(2, 4), until=120 * MINUTE)
    times = [gpu_time(run, user) for user in ("ann", "bob", "cyd")]
    assert sum(times) == pytest.approx(8 * 7200, rel=0.02), "no GPU is idle"
    assert max(times) < 1.1 * min(times)
    plain = play("las", works, cluster(2, 4), until=120 * MINUTE)
    by_job = [gpu_time(plain, user) for user in ("ann", "bob", "cyd")]
    assert max(by_job) > 1.5 * min(by_job), "per-job fairness favours whoever has many jobs"


THREE_TO_ONE = ClusterSpec(
    (NodeSpec(count=2, gpus=4, gpu_type="V100"),),
    tenants=(TenantSpec("heavy", weight=3.0), TenantSpec("light")),
)


@pytest.mark.parametrize(
    ("recipe", "tenants", "weight"),
    [
        ("gandiva-fair", ("heavy", "light"), 1.0),
        ("gandiva-fair", ("", ""), 3.0),
        ("gandiva-fair(owner=tenant)", ("heavy", "light"), 1.0),
    ],
)
def test_three_tickets_to_one_give_three_times_the_gpu_time(
    recipe: str, tenants: tuple[str, str], weight: float
) -> None:
    """Tickets by the tenant's weight, or by the weight of the user's jobs; bob has more jobs."""
    works = [
        *(
            job(f"a{i}", 0, 36000, size=1 + i % 2, user="ann", tenant=tenants[0], weight=weight)
            for i in range(8)
        ),
        *(job(f"b{i}", 0, 36000, user="bob", tenant=tenants[1]) for i in range(16)),
    ]
    run = play(recipe, works, THREE_TO_ONE, until=120 * MINUTE)
    times = [gpu_time(run, user) for user in ("ann", "bob")]
    assert sum(times) == pytest.approx(8 * 7200, rel=0.02), "no GPU is idle"
    assert times[0] / times[1] == pytest.approx(3, rel=0.05)


def test_tickets_of_a_tenant_are_the_tenants_however_many_users_it_has() -> None:
    works = [
        job(f"{user}{i}", 0, 36000, user=user, tenant="light" if user == "dan" else "heavy")
        for user in ("ann", "bob", "cyd", "dan")
        for i in range(8)
    ]
    run = play("gandiva-fair(owner=tenant)", works, THREE_TO_ONE, until=120 * MINUTE)
    times = [gpu_time(run, user) for user in ("ann", "bob", "cyd", "dan")]
    assert sum(times[:3]) / times[3] == pytest.approx(3, rel=0.05)


BOTH = ClusterSpec(
    (NodeSpec(count=1, gpus=4, gpu_type="V100"), NodeSpec(count=1, gpus=4, gpu_type="K80")),
    (GpuType("V100", speed=2.0), GpuType("K80")),
)
SPEEDUPS = Profiles(
    {
        "vae": Profile({"V100": 1.2, "K80": 1.0}),
        "resnet": Profile({"V100": 6.0, "K80": 1.0}),
        "lstm": Profile({"V100": 4.0, "K80": 1.0}),
    }
)


def test_with_trading_more_work_is_done_and_no_user_does_less() -> None:
    works = [
        job(f"{model} {i}", 0, 90000, user=model, model=model)
        for model in ("vae", "resnet", "lstm")
        for i in range(6)
    ]
    done = {}
    for trading in ("yes", "no"):
        run = play(
            f"gandiva-fair(trading={trading})", works, BOTH, profiles=SPEEDUPS, until=240 * MINUTE
        )
        view = run.kernel.view
        done[trading] = {
            model: float(view.work(np.array([run.row(f"{model} {i}") for i in range(6)])).sum())
            for model in ("vae", "resnet", "lstm")
        }
    assert sum(done["yes"].values()) > 1.05 * sum(done["no"].values())
    assert all(done["yes"][model] > 0.97 * done["no"][model] for model in done["no"])


# ---------------------------------------------------------------------- astraea


QUOTAS = ClusterSpec(
    (NodeSpec(count=2, gpus=4, gpu_type="V100"),),
    tenants=(TenantSpec("A", quota=4), TenantSpec("B", quota=4)),
)


def test_ltgf_is_used_over_deserved_within_the_window() -> None:
    assert Account(past=((8.0, 4.0),)).ltgf == 2.0
    assert Account(past=((0.0, 4.0), (6.0, 4.0))).ltgf == 0.75
    assert Account().ltgf == 0.0


def test_a_tenant_that_comes_gets_its_quota_at_the_next_lease_and_no_more() -> None:
    """A alone uses 8 of its 4 for an hour (LTGF 2.0); B comes wanting 8."""
    works = [
        *(job(f"a{i}", 0, 36000, size=2, tenant="A") for i in range(4)),
        *(job(f"b{i}", 3600, 36000, size=2, tenant="B") for i in range(4)),
    ]
    run = play("astraea(lease=30m)", works, QUOTAS, until=61 * MINUTE)
    notes = run.kernel.memory.notes
    assert notes.tenants[run.jobs.tenants.find("A")].past[0] == (8 * 1800e6, 4 * 1800e6)
    used = {t: sum(int(run.jobs.size[run.row(f"{t}{i}")]) for i in range(4)) for t in "ab"}
    assert used == {"a": 4, "b": 4}
    assert run.started("b0") == 3600


def test_a_tenant_never_gets_more_than_it_demands() -> None:
    works = [
        *(job(f"a{i}", 0, 36000, size=2, tenant="A") for i in range(4)),
        job("b", 3600, 36000, size=2, tenant="B"),
    ]
    run = play("astraea(lease=30m)", works, QUOTAS, until=61 * MINUTE)
    assert sum(run.jobs.size[:4].tolist()) == 6
    assert run.jobs.size[run.row("b")] == 2


def test_long_term_means_that_what_was_missed_is_made_up_for() -> None:
    """Both want all 8; B came an hour late to a pool without quotas, and is ahead for a while."""
    works = [job("a", 0, 36000, size=8, tenant="A"), job("b", 3600, 36000, size=8, tenant="B")]
    run = play("astraea(lease=30m)", works, cluster(2, 4), until=300 * MINUTE)
    shares = [float(run.kernel.view.attained(row)) / 8e6 / 3600 for row in (0, 1)]
    assert shares == pytest.approx([2.5, 2.5], abs=0.6)
    drf = play("drf(owner=tenant)", works, cluster(2, 4), until=300 * MINUTE)
    assert float(drf.kernel.view.attained(1)) == 0, "nothing is ever taken back there"


def test_a_starving_job_precedes_all() -> None:
    works = [
        *(job(f"a{i}", 600 * i, 36000, size=8, tenant="A") for i in range(2)),
        *(job(f"b{i}", 1000 * i, 2000, size=4, tenant="B") for i in range(20)),
    ]
    quick = play("astraea(lease=30m,starving=1h)", works, QUOTAS)
    slow = play("astraea(lease=30m,starving=1000h)", works, QUOTAS)
    assert quick.started("a1") is not None
    assert float(quick.started("a1") or 0) < float(slow.started("a1") or 0)


@pytest.mark.parametrize("recipe", ["astraea(lease=2s)", "gandiva-fair(quantum=2s)"])
@pytest.mark.parametrize("late", [0, 700, 150_000])
def test_leases_end_also_where_an_engine_wakes_late(recipe: str, late: int) -> None:
    """Two tenants' gangs take turns on an engine that wakes `late` microseconds late."""
    shape = Shape(roles=(Role(size=4, least=4, most=4),))
    specs = [JobSpec(name=name, tenant=name, user=name, shape=shape) for name in "ab"]
    nodes = Nodes(ClusterSpec((NodeSpec(gpus=4, gpu_type="V100"),)))
    kernel = Kernel(nodes, declare(specs), registry.make(recipe), validate=True)
    batch, turns = Batch(0, [Submitted(0), Submitted(1)]), list[int]()
    for _ in range(6):
        plan = kernel.step(batch)
        events: list[AnyEvent] = [Woke()]
        for action in plan.actions if plan is not None else ():
            if isinstance(action, Start):
                turns.append(action.job)
                events = [Started(action.job, action.attempt)]
            elif isinstance(action, Stop):
                kernel.step(Batch(batch.at + 1, [Released(action.job, action.attempt, 0.0)]))
        at = batch.at + 2 if isinstance(events[0], Started) else kernel.wake + late
        batch = Batch(at, events)
    assert turns == [0, 1, 0]
