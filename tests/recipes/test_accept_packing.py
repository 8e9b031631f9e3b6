"""Hand checks of recipes that pack jobs by a prediction: Co-scheML, Yeung, Horus, Lucid."""

from __future__ import annotations

from itertools import permutations, product
from typing import Any

import numpy as np
import pytest

from ganger.core.plan import Start
from ganger.core.profiles import Graph, Measured, Profile, Profiles, Stages
from ganger.core.spec import ClusterSpec, GpuType, Needs, NodeSpec, OnPreempt, Role, Shape
from ganger.core.units import SECOND, WHOLE
from ganger.estimate.sharing import gpu_use, slowdown
from ganger.estimate.sharing.gpu_use import predicted_memory, predicted_use, roofline
from ganger.estimate.sharing.slowdown import trained
from ganger.lab.simulation import Setup
from ganger.sim.rows import Outage
from worlds import Played, Work, cluster, job, play


def beside(**parts: float) -> Measured:
    """Ten steps a second alone, and such parts of that beside others, on one GPU or two."""
    others = {name: {"V100": dict.fromkeys((1, 2), 10 * part)} for name, part in parts.items()}
    return Measured({"V100": {1: 10.0, 2: 10.0}}, "V100", {}, others)


def uses(**gpu: float) -> Profiles:
    """Models by what they use of a GPU."""
    return Profiles({name: Profile(utilisation={"gpu": used}) for name, used in gpu.items()})


def of(model: str, at: float = 0, lasts: float = 100, **more: Any) -> Work:
    return job(model, at, lasts, model=model, **more)


def places(run: Played) -> dict[str, tuple[float, int, int]]:
    """When and where each job first started: seconds, node, devices."""
    found: dict[str, tuple[float, int, int]] = {}
    for batch, plan in run.diary.steps:
        for action in plan.actions if plan is not None else ():
            if isinstance(action, Start):
                slot = action.placement[0]
                name = run.jobs.name(action.job)
                found.setdefault(name, (batch.at / 1e6, slot.node, slot.devices))
    return found


def together(run: Played) -> list[str]:
    """The names of the jobs on each set of devices, in order of their first start."""
    by_place: dict[tuple[int, int], str] = {}
    for name, (_, *where) in places(run).items():
        key = where[0], where[1]
        by_place[key] = by_place.get(key, "") + name
    return sorted(by_place.values())


# ---------------------------------------------------------------------- Co-scheML


def test_a_forest_recovers_the_ranking_of_all_pairs_of_an_additive_model() -> None:
    """The card's check. Five applications; a pair is slowed by what both use, weighted, and was
    seen fifty times."""
    alone = {"a": (0.1, 0.1), "b": (0.3, 0.1), "c": (0.3, 0.5), "d": (0.7, 0.5), "e": (0.9, 0.9)}
    pairs = list(permutations(alone, 2))

    def longer(own: str, other: str) -> float:
        return 1 + sum(0.3 * u + 0.5 * v for u, v in zip(alone[own], alone[other], strict=True))

    rows = [(alone[own], alone[other], longer(own, other)) for own, other in pairs]
    trees = trained(tuple(rows * 50), 2)
    told = [trees.at(slowdown.features(alone[own], alone[other])) for own, other in pairs]
    for i, j in product(range(len(pairs)), repeat=2):
        if longer(*pairs[i]) < longer(*pairs[j]) - 1e-9:
            assert told[i] < told[j]


def test_the_forest_is_told_by_enough_measured_pairs_alone_and_else_by_the_generator_too() -> None:
    """All measured pairs say 3; the generator says at most 2 of one resource."""
    row = ((0.5,), (0.5,), 3.0)
    enough = trained((row,) * slowdown.ENOUGH, 1)
    assert enough.at(slowdown.features((0.1,), (0.1,))) == 3.0
    few = trained((row,) * (slowdown.ENOUGH - 1), 1)
    assert few.at(slowdown.features((0.1,), (0.1,))) == pytest.approx(1.01, abs=0.05)


def test_the_generator_says_what_its_formula_says() -> None:
    own, other, longer = slowdown.product(2)[7]
    assert longer == pytest.approx(1 + own[0] * other[0] + own[1] * other[1])
    assert len(slowdown.product(2)) == 1000
    trees = trained((), 2)
    rows = slowdown.product(2, samples=500, seed=1)
    missed = [abs(trees.at(slowdown.features(a, b)) - c) for a, b, c in rows]
    assert np.mean(missed) < 0.05


@pytest.mark.parametrize(("bound", "shared"), [("1.2", []), ("1.25", ["ab"])])
def test_no_pair_is_formed_above_the_bound(bound: str, shared: list[str]) -> None:
    """a keeps 0.9 beside b, but b only 0.8 beside a: 1.25 times as long."""
    known = Profiles({"a": Profile(measured=beside(b=0.9)), "b": Profile(measured=beside(a=0.8))})
    run = play(f"co-scheml(bound={bound})", [of("a"), of("b")], cluster(1, 2), profiles=known)
    assert [each for each in together(run) if len(each) > 1] == shared


def test_the_head_goes_beside_whom_it_suffers_least_from_then_on_empty_gpus_then_waits() -> None:
    """c suits b better than a; d suits nobody, and waits where no GPU is empty; e waits behind it,
    and then goes beside d."""
    known = Profiles(
        {
            "a": Profile(measured=beside(c=0.7, e=0.9)),
            "b": Profile(measured=beside(c=0.9)),
            "c": Profile(measured=beside(a=0.9, b=0.9)),
            "d": Profile(measured=beside(e=0.9)),
            "e": Profile(measured=beside(a=0.9, d=0.9)),
        }
    )
    works = [of("a"), of("b", 1), of("c", 2), of("d", 3), of("e", 4)]
    three = play("co-scheml", works, cluster(1, 3), profiles=known)
    assert together(three) == ["ae", "bc", "d"]
    two = play("co-scheml", works, cluster(1, 2), profiles=known)
    assert places(two)["c"] == (2, *places(two)["b"][1:])
    assert two.started("d") == two.started("e") == pytest.approx(100)
    skip = play("co-scheml(skip=yes)", works, cluster(1, 2), profiles=known)
    assert skip.started("e") == 4


def test_of_equals_the_first_gpus_are_joined_and_a_gang_goes_beside_a_gang_of_its_size() -> None:
    known = uses(a=0.1, b=0.1)
    works = [of("a", size=2), job("one", 1, 50, model="a"), job("two", 2, 50, model="b", size=2)]
    run = play("co-scheml", works, cluster(1, 4), profiles=known)
    assert places(run)["two"] == (2, 0, 0b11) == (2, *places(run)["a"][1:])
    many = [job(f"a{i}", i, 100, model="a") for i in range(3)]
    # a1 goes beside a0, a2 on the empty GPU, and b beside that.
    run = play("co-scheml", [*many, of("b", 9)], cluster(1, 3), profiles=known)
    assert [places(run)[f"a{i}"][2] for i in range(3)] == [0b1, 0b1, 0b10]
    assert places(run)["b"][2] == 0b10


def test_at_most_so_many_share_and_each_holds_its_part_from_the_beginning() -> None:
    works = [job(f"a{i}", i, 100, model="a") for i in range(5)]
    run = play("co-scheml(share=3,bound=9)", works, cluster(1, 2), profiles=uses(a=0.1))
    assert [places(run)[f"a{i}"][2] for i in range(5)] == [1, 1, 1, 2, 2]
    shares = {
        a.placement[0].share
        for _, p in run.diary.steps
        if p
        for a in p.actions
        if isinstance(a, Start)
    }
    assert shares == {WHOLE // 3}


def test_beside_several_the_slowdowns_multiply() -> None:
    """Each keeps 0.8 beside each: 1.25 in pairs, 1.5625 in three."""
    known = Profiles({"a": Profile(measured=beside(a=0.8))})
    works = [job(f"a{i}", i, 100, model="a") for i in range(3)]
    three = play("co-scheml(share=3,bound=1.57)", works, cluster(1, 2), profiles=known)
    assert [places(three)[f"a{i}"][2] for i in range(3)] == [1, 1, 1]
    two = play("co-scheml(share=3,bound=1.56)", works, cluster(1, 2), profiles=known)
    assert [places(two)[f"a{i}"][2] for i in range(3)] == [1, 1, 2]


def stating(mib: int, size: int = 1) -> Shape:
    return Shape((Role(size=size, needs=Needs(gpu_memory=mib)),))


BOX = ClusterSpec((NodeSpec(count=1, gpus=1, gpu_type="A"),), (GpuType("A", memory=16_000),))


@pytest.mark.parametrize(("mib", "starts"), [(8000, 1), (8001, 100)])
def test_memory_that_is_stated_must_fit(mib: int, starts: int) -> None:
    works = [of("a", shape=stating(8000)), of("b", 1, shape=stating(mib))]
    run = play("co-scheml(bound=9)", works, BOX, profiles=uses(a=0.1, b=0.1))
    assert run.started("b") == pytest.approx(starts, rel=0.15)
    assert (run.started("b") == 1) is (starts == 1)


def test_memory_that_only_the_graph_tells_must_fit_too() -> None:
    """500 MiB of runtime, 4 x 4 bytes of each parameter, and activations of the batch."""
    graph = Graph(gflops=1.0, operators=100, parameters=1.048576, activations=10.0, batch=748)
    assert predicted_memory(graph) == 500 + 16 + 7480 == 7996
    for mib, starts in ((8004, 1), (8005, 100)):
        known = Profiles(
            {"a": Profile(utilisation={"gpu": 0.1}, graph=graph), "b": uses(b=0.1).of("b")}
        )
        works = [of("a"), of("b", 1, shape=stating(mib))]
        run = play("co-scheml(bound=9)", works, BOX, profiles=known)
        assert run.started("b") == starts


def test_who_asks_for_part_of_a_gpu_or_is_unknown_shares_with_nobody() -> None:
    part = Shape((Role(needs=Needs(share=500)),))
    works = [of("a"), of("b", 1, shape=part), job("c", 2, 100)]
    run = play("co-scheml(bound=9)", works, cluster(1, 3), profiles=uses(a=0.1, b=0.1))
    assert places(run)["c"][2] not in (places(run)["a"][2], places(run)["b"][2])
    starts = [
        a.placement[0] for _, p in run.diary.steps if p for a in p.actions if isinstance(a, Start)
    ]
    assert [slot.share for slot in starts] == [WHOLE // 2, 0, 0]


def test_stages_are_a_use_too_and_nothing_is_said_of_those_beside_utilisation() -> None:
    stages = Profile(stages=(Stages((1.0, 3.0, 0.0)),))
    assert slowdown.uses(stages, 1) == {
        "stage 0 of 3": 0.25,
        "stage 1 of 3": 0.75,
        "stage 2 of 3": 0.0,
    }
    assert slowdown.uses(Profile(), 1) == {}
    known = Profiles({"a": stages, "b": Profile(utilisation={"gpu": 0.1}), "c": stages})
    works = [of("a"), of("b", 1), of("c", 2)]
    run = play("co-scheml(bound=2)", works, cluster(1, 3), profiles=known)
    assert together(run) == ["ac", "b"]


# ---------------------------------------------------------------------- Yeung


def test_forty_and_fifty_share_and_seventy_is_alone() -> None:
    known = uses(p=0.4, q=0.5, r=0.7)
    run = play("yeung", [of("p"), of("q", 1), of("r", 2)], cluster(1, 3), profiles=known)
    assert together(run) == ["pq", "r"]
    fit = play("yeung(limit=0.89)", [of("p"), of("q", 1)], cluster(1, 2), profiles=known)
    assert together(fit) == ["p", "q"]


def test_three_that_use_all_of_a_gpu_share_it_and_a_fourth_does_not() -> None:
    known = uses(a=0.5, b=0.3, c=0.2, d=0.01)
    works = [of("a"), of("b", 1), of("c", 2), of("d", 3)]
    assert together(play("yeung", works, cluster(1, 2), profiles=known)) == ["abc", "d"]


def test_use_comes_from_the_graph_then_as_stated_then_from_the_stage_of_the_gpu() -> None:
    graph = Graph(gflops=4.1, operators=160, parameters=25.6, activations=90.0, batch=32)
    both = Profile(utilisation={"gpu": 0.01}, graph=graph)
    assert gpu_use.gpu_use(both, 1) == predicted_use(graph)
    assert gpu_use.gpu_use(Profile(utilisation={"gpu": 0.3, "x": 1.0}), 1) == 0.3
    assert gpu_use.gpu_use(Profile(stages=(Stages((1.0, 3.0, 0.0)),)), 1) == 0.75
    assert gpu_use.gpu_use(Profile(stages=(Stages((1.0, 2.0, 5.0, 0.0)),)), 1) == 0.625
    assert gpu_use.gpu_use(Profile(stages=(Stages((1.0, 2.0), iteration=0.5),)), 1) == 1.0
    for nothing in (Profile(), Profile(stages=(Stages((1.0,)),)), Profile(utilisation={"x": 1.0})):
        assert np.isnan(gpu_use.gpu_use(nothing, 1))


def test_the_generator_is_a_roofline_and_the_trees_follow_it() -> None:
    """3 x 15.7 GFLOP of 1 example are 3 ms on a V100; 100 operators thrice are 3 ms of launches."""
    computes = Graph(gflops=15.7, operators=100, parameters=1.0, activations=1.0, batch=1)
    assert roofline(computes) == pytest.approx(0.5)
    # 900 MB of activations thrice: 3 ms, which is more than 0.3 ms of computing.
    streams = Graph(1.57, 100, 0.0, 900e6 / (1 << 20), 1)
    assert roofline(streams) == pytest.approx(0.5)
    weights = Graph(1.57, 100, 225.0, 0.0, 1)
    assert roofline(weights) == pytest.approx(0.5)
    others = gpu_use.drawn(400, seed=1)
    missed = [abs(predicted_use(graph) - roofline(graph)) for graph in others]
    assert np.mean(missed) < 0.05
    assert all(0 <= predicted_use(graph) <= 1 for graph in others)


# ---------------------------------------------------------------------- Horus

TWO_IN_USE = uses(x=0.5, y=0.9, small=0.45, large=0.6)


def on_two(recipe: str, model: str, more: int = 0) -> Played:
    """x and y run on a GPU each, y first, when the job comes."""
    works = [of("y", lasts=500), of("x", 1, lasts=600), of(model, 2)]
    return play(recipe, works, cluster(1, 2 + more), profiles=TWO_IN_USE)


def test_a_job_goes_where_the_sum_of_use_stays_below_the_limit() -> None:
    """The card's check."""
    assert places(on_two("horus", "small"))["small"] == (2, 0, 0b10)


def test_a_job_that_exceeds_the_limit_goes_to_an_empty_gpu_else_to_the_lesser_excess_or_waits() -> (
    None
):
    assert places(on_two("horus", "large"))["large"] == (2, 0, 0b10)
    assert places(on_two("horus", "large", more=1))["large"] == (2, 0, 0b100)
    assert on_two("horus(exceed=no)", "large").started("large") == 500
    assert on_two("yeung", "large").started("large") == 500


@pytest.mark.parametrize(("distance", "goes"), [(0.04, "far"), (0.06, "near")])
def test_a_gang_over_two_nodes_counts_as_so_much_more_use(distance: float, goes: str) -> None:
    """far (0.5) is spread over the two nodes that fillers leave a GPU of, near (0.55) is not."""
    works = [
        job("fill", 0, 500, size=3), job("fill too", 0, 500, size=3), job("full", 0, 20, size=4),
        of("far", 1, 400, size=2), of("near", 21, 400, size=2), job("rest", 22, 400, size=2),
        of("new", 23, size=2),
    ]  # fmt: skip
    known = uses(far=0.5, near=0.55, new=0.1)
    run = play(f"horus(distance={distance},exceed=no)", works, cluster(3, 4), profiles=known)
    assert (run.started("near"), run.started("rest")) == (21, 22)
    assert places(run)["new"] == (23, *places(run)[goes][1:])


def test_the_shortest_expected_job_goes_first_if_asked_for() -> None:
    works = [of("y", lasts=50), job("long", 1, 30), job("short", 2, 10)]
    setup = Setup(profiles=TWO_IN_USE)
    assert play("horus", works, cluster(1, 1), setup).started("long") == 50
    run = play("horus(shortest=yes)", works, cluster(1, 1), setup)
    assert (run.started("short"), run.started("long")) == (50, 60)


# ---------------------------------------------------------------------- Lucid


def sizes() -> Profiles:
    """Three models whose mean speeds in pairs make them tiny, medium and jumbo."""
    parts = {
        "t": {"t": 1.0, "m": 1.0, "j": 0.85},
        "m": {"t": 1.0, "m": 0.9, "j": 0.7},
        "j": {"t": 0.85, "m": 0.7, "j": 0.5},
    }
    return Profiles({name: Profile(measured=beside(**row)) for name, row in parts.items()})


def lucid(works: list[Work], on: ClusterSpec, more: str = "busy=0", **setup: Any) -> Played:
    return play(f"lucid({more})", works, on, profiles=sizes(), **setup)


def test_a_job_shorter_than_the_limit_never_reaches_the_main_queue() -> None:
    """The card's check: the partition is node 0."""
    works = [job("short", 0, 100), job("long", 0, 300), job("last", 0, 200)]
    run = lucid(works, cluster(2, 1), "limit=200s")
    assert run.actions == [
        (0, "start short on 0:0"),
        (100, "start long on 0:0"),
        (300, "stop long"),
        (300, "start last on 0:0 after long"),
        (300, "start long on 1:0"),
    ]
    assert [run.ended(name) for name in ("short", "long", "last")] == [100, 400, 500]


def test_who_must_not_be_stopped_or_is_too_large_is_not_profiled() -> None:
    works = [
        job("never", 0, 300, on_preempt=OnPreempt.NEVER),
        job("kill", 0, 300, on_preempt=OnPreempt.KILL),
        job("two", 0, 300, size=2), job("new", 0, 300),
    ]  # fmt: skip
    run = lucid(works, cluster(5, 1), "limit=200s")
    assert [said for at, said in run.actions if at == 0] == [
        "start never on 1:0",
        "start kill on 2:0",
        "start two on 3:0 4:0",
        "start new on 0:0",
    ]
    assert run.jobs.preemptions[:4].tolist() == [0, 0, 0, 1]


def test_nine_gpus_are_neither_profiled_nor_shared_and_eight_are() -> None:
    works = [job("eight", 0, 300, size=8), job("nine", 0, 300, size=9)]
    run = lucid(works, cluster(2, 10), "limit=200s")
    assert [said for at, said in run.actions if at == 0] == [
        "start nine on 1:0,1,2,3,4,5,6,7,8",
        "start eight on 0:0,1,2,3,4,5,6,7",
    ]


@pytest.mark.parametrize(
    ("nodes", "partition", "profiled"),
    [(1, 0.05, 0), (2, 0.05, 1), (10, 0.1, 1), (10, 0.11, 2), (2, 0.5, 1), (2, 0.51, 0), (5, 0, 0)],
)
def test_the_partition_is_a_part_of_the_nodes_rounded_up_and_never_all_of_them(
    nodes: int, partition: float, profiled: int
) -> None:
    """Of three new jobs as many are stopped after the limit as came into it at once."""
    works = [job(name, 0, 300) for name in "abc"]
    run = lucid(works, cluster(nodes, 1), f"partition={partition},limit=200s")
    stopped = [at for at, said in run.actions if said.startswith("stop")]
    assert stopped.count(200) == profiled


def test_who_fits_only_with_the_partition_gets_it_once_those_there_are_done() -> None:
    """No new job is taken into the partition while the gang waits, and it is not stopped."""
    works = [job("new", 0, 50), job("gang", 10, 300, size=3), job("late", 20, 50)]
    run = lucid(works, cluster(3, 1))
    assert run.actions == [
        (0, "start new on 0:0"),
        (50, "start gang on 0:0 1:0 2:0"),
        (350, "start late on 0:0"),
    ]


def test_while_the_partition_is_down_new_jobs_run_elsewhere_and_are_not_stopped() -> None:
    down = [Outage(0, 0, 50 * SECOND)]
    works = [job("a", 10, 300), job("b", 60, 300)]
    run = lucid(works, cluster(2, 1), "limit=200s", outages=down)
    assert run.actions[:3] == [(10, "start a on 1:0"), (60, "start b on 0:0"), (260, "stop b")]


def test_the_least_gpus_times_run_time_goes_first_among_those_that_were_profiled() -> None:
    """Both were profiled when the GPU becomes free: 2 x 300 s and 1 x 400 s."""
    works = [
        job("first", 0, 2000, size=2, on_preempt=OnPreempt.NEVER),
        job("two", 1, 300, size=2), job("one", 2, 400),
    ]  # fmt: skip
    run = lucid(works, cluster(2, 2), "limit=60s")
    assert [said for _, said in run.actions[-2:]] == ["start one on 1:0", "start two on 1:0,1"]


def main_only(*works: tuple[str, float, float], on: int = 2, more: str = "busy=0") -> Played:
    """Jobs of these models, submitted then, that last so long; there is no partition."""
    jobs = [
        job(f"{model}{i}", at, lasts, model=model) for i, (model, at, lasts) in enumerate(works)
    ]
    return lucid(jobs, cluster(1, on), more)


@pytest.mark.parametrize(
    ("first", "second", "share"),
    [("j", "t", True), ("t", "j", True), ("m", "m", True), ("j", "m", False), ("m", "j", False),
     ("j", "j", False), ("t", "m", True), ("t", "t", True)],
)  # fmt: skip
def test_jumbo_goes_with_tiny_only_and_medium_with_medium(
    first: str, second: str, share: bool
) -> None:
    """The card's check. The third model is named by jobs that run on other GPUs, wide ones."""
    wide = [job(f"wide {model}", 0, 1000, size=3, model=model) for model in "tmj"]
    pair = [job(f"{model}{i}", 1 + i, 100, model=model) for i, model in enumerate((first, second))]
    run = lucid([*wide, *pair], cluster(1, 10))
    assert (run.started(f"{second}1") == 2) is share


def test_nothing_is_packed_while_gpus_are_empty_or_the_load_is_not_forecast_to_be_high() -> None:
    """Two jobs of two GPUs ask for two: all of them, which is 1."""
    both = (("t", 0, 100), ("t", 1, 100), ("t", 2, 100))
    run = main_only(*both, more="busy=0")
    assert together(run) == ["t0t2", "t1"]
    # At the first decision one of two GPUs is asked for, and no bin has ended since.
    assert main_only(*both, more="busy=0.5").started("t2") == 2
    assert main_only(*both, more="busy=0.51").started("t2") == 100


def test_the_load_is_that_of_the_last_hour_bin_by_bin() -> None:
    """Bins of 10 min: 1 GPU was asked for at 0, and 3 of 2 at each end since. Their mean is 2 of 2
    after one bin, and 2.33 after two."""
    works = (("t", 0, 9000), ("t", 1, 9000), ("t", 2, 9000))
    assert main_only(*works, more="busy=1").started("t2") == 600
    four = (*works, ("t", 3, 9000))  # 1, 4, 4: 2.5 after one bin of 3, 3 after two
    assert main_only(*four, on=3, more="busy=1").started("t3") == 1200


@pytest.mark.parametrize(("lasts", "starts"), [(200, 1), (201, 100)])
def test_a_job_goes_beside_one_of_half_its_own_estimated_service_or_more(
    lasts: int, starts: int
) -> None:
    assert main_only(("t", 0, 100), ("t", 1, lasts), on=1).started("t1") == starts


def test_of_crowds_alike_the_job_with_the_largest_service_is_joined() -> None:
    run = main_only(("t", 0, 100), ("t", 0, 300), ("t", 1, 150))
    assert places(run)["t2"] == (1, *places(run)["t1"][1:])


# ---------------------------------------------------------------------- why a job waits


def evidence(recipe: str, works: list[Work], known: Profiles, each: int = 1) -> dict[str, float]:
    """The numbers that the first plan gives in which a job waits."""
    run = play(recipe, works, cluster(1, each), profiles=known)
    return next(plan.reasons[0].evidence for _, plan in run.diary.steps if plan and plan.reasons)


def test_a_job_that_waits_is_told_the_least_that_was_predicted_and_the_bound() -> None:
    known = uses(x=0.5, y=0.9, large=0.6)
    works = [of("x"), of("y"), of("large")]
    told = evidence("yeung", works, known, each=2)
    use = "predicted_use_of_a_GPU"
    bound = {"may_pass": 0, f"{use}_at_most_part": 1.0}
    assert told == {"asked_gpus": 1, **bound, f"{use}_beside_others_at_least_part": 1.1}
    # With a gang of two nobody of its size runs; and who cannot be packed is told nothing more.
    wide = evidence("yeung", [of("x"), of("y"), of("large", size=2)], known, each=2)
    assert wide == {"asked_gpus": 2, **bound}
    alone = evidence("yeung(skip=yes)", [of("x"), job("plain", 0, 100)], known)
    assert alone == {"asked_gpus": 1, "may_pass": 1}
