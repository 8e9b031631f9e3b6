"""The ordered queue's own stories: walks, evictions, waits, quotas, patience."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bench import Bench
from ganger.core.books.ledger import Cell, Ledger
from ganger.core.events import Progressed, Started, Submitted, Woke
from ganger.core.plan import Placement, Stop
from ganger.core.profiles import Profile, Profiles
from ganger.core.spec import ClusterSpec, Needs, NodeSpec, OnPreempt, Role, Shape, TenantSpec
from ganger.core.units import SECOND
from ganger.core.view import View
from ganger.mechanisms.ordering.admit import Quotas, Walk
from ganger.mechanisms.ordering.order import FIRST_COME, By, Levels, priority_largest
from ganger.mechanisms.ordering.queue import QueuePolicy
from ganger.mechanisms.placement.delay_scheduling import Relaxing
from ganger.mechanisms.placement.place import SPREAD
from ganger.recipes import registry
from ganger.recipes.training.attained.tiresias import Promoting
from ganger.sim.physics import Costs
from ganger.sim.rows import Outage
from worlds import Work, cluster, job, play

ONE = cluster(1, 1)


def test_a_job_that_is_still_starting_is_evicted_as_soon_as_it_has_started() -> None:
    """Starting takes 10 s. The urgent job comes at 5 s, while nothing can be evicted yet."""
    works = [job("slow", 0, 100), job("urgent", 5, 10, priority=1)]
    run = play("priority", works, ONE, costs=Costs(start=10 * SECOND))
    assert run.actions[1:] == [
        (10, "stop slow"),
        (10, "start urgent on 0:0 after slow"),
        (30, "start slow on 0:0"),
    ]


def test_quanta_are_counted_from_the_start_even_if_nothing_else_happens() -> None:
    """All three arrive at once; the first two use up their quantum at 4 s and one makes way."""
    works = [job(name, 0, 6) for name in "abc"]
    run = play("las(quantum=4s)", works)
    assert run.started("c") == 4


@pytest.mark.parametrize("recipe", ["sjf", "srtf", "srsf", "helios"])
def test_a_queue_told_no_run_times_is_first_come_first_served(recipe: str) -> None:
    """What nobody knows puts nobody first: without a number, keys would have no order at all."""
    took = {"a": 60, "b": 10, "c": 50, "d": 20, "e": 40, "f": 30}
    works = [job(name, at, took[name]) for at, name in enumerate(took)]
    run = play(recipe, works, ONE, knows="nothing")
    assert sorted(took, key=lambda name: run.started(name) or 0) == list(took)


def test_evicting_frees_no_more_than_is_needed() -> None:
    """The last in order goes first; the earlier victim is put back where it was."""
    works = [
        job("a", 0, 50, size=1),
        job("b", 0, 60, size=3),
        job("c", 0, 70, size=2),
        job("new", 1, 10, size=2),
    ]
    run = play("srtf", works, cluster(1, 6))
    assert run.actions[3:5] == [(1, "stop c"), (1, "start new on 0:4,5 after c")]
    assert [int(run.jobs.preemptions[i]) for i in range(4)] == [0, 0, 1, 0]


def test_who_needs_the_cpus_of_one_that_still_saves_waits_for_it() -> None:
    """Neither has GPUs. The evicted one saves for 10 s, and until then 4 of 8 cores are its own."""
    spec = ClusterSpec((NodeSpec(gpus=1, gpu_type="V100", cpus=8000),))

    def cores(many: int, gpus: int = 0) -> Shape:
        return Shape((Role(needs=Needs(gpus=gpus, cpus=1000 * many)),))

    works = [job("old", 0, 50, shape=cores(4)), job("urgent", 5, 10, priority=1, shape=cores(8, 1))]
    run = play("priority", works, spec, costs=Costs(checkpoint=10 * SECOND))
    assert run.actions[1:3] == [(5, "stop old"), (5, "start urgent on 0:0 after old")]
    assert run.started("urgent") == 15


def test_who_shared_a_gpu_is_evicted_for_a_whole_one_once_alone_on_it() -> None:
    """At 1 s `whole` comes before `long`, but not before `short`, who leaves at 5 s."""
    half = Shape((Role(needs=Needs(share=500)),))
    works = [job("short", 0, 5, shape=half), job("long", 0, 90, shape=half), job("whole", 1, 10)]
    run = play("srtf", works, ONE, validate=False)
    assert run.actions[2:] == [
        (5, "stop long"),
        (5, "start whole on 0:0 after long"),
        (15, "start long on 0:0"),
    ]


def test_a_free_gpu_goes_to_the_next_who_fits_when_the_head_of_a_like_class_has_taken_it() -> None:
    """One GPU after the other comes free: each goes to the shortest who waits, none to the pair."""
    works = [job(f"run {i}", 0, 5 + i) for i in range(4)]
    works += [job("pair", 1, 20, size=2), *(job(f"one {i}", 1, 10 + i) for i in range(3))]
    run = play("sjf(walk=skip)", works, cluster(1, 4), validate=False)
    starts = [run.started(name) for name in ("one 0", "one 1", "one 2", "pair")]
    assert starts == [5, 6, 7, 15]


def test_a_gang_that_fits_even_after_eviction_nowhere_evicts_nobody() -> None:
    works = [
        job("rigid", 0, 50, size=2, on_preempt=OnPreempt.NEVER),
        job("soft", 0, 60),
        job("gang", 1, 10, size=3),
    ]
    run = play("srtf", works, cluster(1, 3))
    assert run.started("gang") == 60
    assert not run.jobs.preemptions[:3].any()


def test_a_job_is_not_preempted_before_its_minimum_run_is_over() -> None:
    works = [job("long", 0, 100), job("short", 5, 10)]
    run = play("srtf(min_run=30s)", works, ONE)
    assert run.started("short") == 30


def test_a_report_of_progress_makes_no_minimum_run_longer() -> None:
    """The long job reports its progress at 20 s, as jobs of a live engine do all the time."""
    queue = QueuePolicy("q", By((priority_largest,)), preempt=True, min_run=30 * SECOND)
    bench = Bench(job("long", 0), job("urgent", 5, priority=1), on=ONE, policy=queue)
    bench.feed(0, Submitted(0))
    bench.feed(0, Started(0, 1))
    bench.feed(5, Submitted(1))
    bench.feed(20, Progressed(0, 1, 20.0 * SECOND, 1.0))
    assert bench.kernel.wake == 30 * SECOND
    plan = bench.feed(30, Woke())
    assert plan is not None
    assert plan.actions[0] == Stop(0, 1)


def test_a_report_of_progress_changes_no_place_in_a_line() -> None:
    """Both run in the top queue. The first to start reports, and the last to start is evicted."""
    bench = Bench(
        job("first", size=2),
        job("second", 1, size=2),
        job("new", 100, size=2),
        policy=registry.make("mlfq(thresholds=50s)"),
    )
    for at in (0, 1):
        bench.feed(at, Submitted(at))
        bench.feed(at, Started(at, 1))
    bench.feed(60, Progressed(0, 1, 60.0 * SECOND, 1.0))
    plan = bench.feed(100, Submitted(2))
    assert plan is not None
    assert plan.actions[0] == Stop(1, 1)


def test_a_strict_preemptive_walk_stops_at_the_gang_and_a_skipping_one_does_not() -> None:
    works = [job("a", 0, 10, size=3), job("gang", 1, 20, size=4), job("small", 2, 30)]
    assert play("srtf(walk=strict)", works, cluster(1, 4)).started("small") == 30
    assert play("srtf(walk=skip)", works, cluster(1, 4)).started("small") == 2


TENANTS = ClusterSpec(
    (NodeSpec(gpus=4, gpu_type="V100"),),
    tenants=(TenantSpec("ann", quota=1), TenantSpec("bob", quota=3), TenantSpec("eve")),
)


def test_a_tenant_over_its_quota_waits_alone_even_in_a_strict_queue() -> None:
    policy = QueuePolicy("quota", FIRST_COME, Walk.STRICT, quotas=Quotas())
    works = [
        job("ann 1", 0, 10, tenant="ann"),
        job("ann 2", 0, 10, tenant="ann"),
        job("bob 1", 0, 10, tenant="bob"),
        job("eve 1", 0, 10, tenant="eve", size=2),
    ]
    run = play(policy, works, TENANTS)
    assert [run.started(name) for name in ("ann 1", "ann 2", "bob 1", "eve 1")] == [0, 10, 0, 0]


TWO_RACKS = ClusterSpec((NodeSpec(count=4, gpus=2, gpu_type="V100", nodes_per_rack=2),))


class SpreadSingles(Relaxing):
    """Single GPUs go to the emptiest node; gangs are patient."""

    def find(
        self, view: View, ledger: Ledger, job: int, cells: list[Cell] | None = None, gpus: int = 0
    ) -> Placement | None:
        """By size."""
        if view.draft.shape(job).gpus == 1:
            return SPREAD.find(view, ledger, job, cells, gpus)
        return super().find(view, ledger, job, cells, gpus)


@pytest.mark.parametrize(
    ("node_wait", "rack_wait", "starts"),
    [(0, 0, 0), (7, 0, 7), (0, 9, 9), (7, 9, 16), (100, 0, 40)],
)
def test_patience_with_locality_ends_exactly_on_time(
    node_wait: int, rack_wait: int, starts: float
) -> None:
    """One GPU is free in each rack; both of one node only when the fillers end at 40 s."""
    place = SpreadSingles(node_wait=node_wait * SECOND, rack_wait=rack_wait * SECOND)
    works = [
        job("fill 0", 0, 40, size=2),
        job("odd 0", 0, 60),
        job("fill 1", 0, 40, size=2),
        job("odd 1", 0, 60),
        job("two", 0, 5, size=2),
    ]
    run = play(QueuePolicy("patient", FIRST_COME, Walk.SKIP, place=place), works, TWO_RACKS)
    assert run.text().startswith("0: start fill 0 on 0:0,1; start odd 0 on 1:0; start fill 1 on 2")
    assert run.started("two") == starts


# ---------------------------------------------------------------------- starvation


def test_a_starved_job_goes_back_to_the_top_and_runs() -> None:
    """It ran 10 s, was demoted, and waits; after 2 x 10 s of waiting it may go again."""
    levels = Levels((10 * SECOND,), starvation=2.0)
    policy = QueuePolicy("mlfq", levels, Walk.SKIP, preempt=True)
    works = [job("old", 0, 20), *(job(f"new {i}", 10 * i, 10) for i in range(1, 8))]
    without = play(replace(policy, order=Levels((10 * SECOND,))), works, ONE)
    assert without.ended("old") == 90
    run = play(Promoting(policy, levels), works, ONE)
    assert run.ended("old") == 40


# ---------------------------------------------------------------------- consolidation


def test_a_skewed_job_that_no_single_node_can_feed_with_cpus_is_spread_after_all() -> None:
    """The node with three GPUs has no CPUs: insisting on one node would be waiting for ever."""
    hungry = Shape((Role(size=3, needs=Needs(cpus=1000)),))
    nodes = (
        NodeSpec(count=2, gpus=2, gpu_type="V100", cpus=2000),
        NodeSpec(gpus=4, gpu_type="V100"),
    )
    skewed = Profiles({"vgg": Profile(skewed=True)})
    run = play(
        "tiresias", [job("a", shape=hungry, model="vgg")], ClusterSpec(nodes), profiles=skewed
    )
    assert run.started("a") == 0


@pytest.mark.parametrize("recipe", ["fifo", "fifo(walk=skip)", "srtf", "tiresias", "backfill"])
def test_jobs_with_cpus_to_spare_run_when_and_where_they_would_without_stating_any(
    recipe: str,
) -> None:
    """Every GPU comes with twice the CPUs and memory that jobs state for it; gangs span nodes."""
    spec = cluster(4, 8, cpus=64_000, memory=512 * 1024)
    needs = Needs(cpus=4000, memory=16 * 1024)

    def works(stated: bool) -> list[Work]:
        return [
            job(f"{at}", at, 5 + at * 7 % 40, shape=Shape((Role(size=size, needs=each),)))
            for at in range(120)
            for size in ((1, 3, 8, 2, 16, 4, 12, 1)[at % 8],)
            for each in (needs if stated else Needs(),)
        ]

    assert play(recipe, works(True), spec).text() == play(recipe, works(False), spec).text()


def test_a_job_that_lacked_cpus_starts_when_a_neighbour_without_gpus_leaves() -> None:
    """One GPU is free all the time; the CPUs beside it are given back at 50 s."""
    spec = ClusterSpec((NodeSpec(gpus=2, gpu_type="V100", cpus=8000),))

    def cores(gpus: int) -> Shape:
        return Shape((Role(needs=Needs(gpus=gpus, cpus=6000)),))

    works = [job("cpus", 0, 50, shape=cores(0)), job("waits", 1, 10, shape=cores(1))]
    for recipe in ("fifo", "fifo(walk=skip)", "sjf"):
        assert play(recipe, works, spec).started("waits") == 50


def test_a_job_without_gpus_is_evicted_for_the_cpus_that_a_blocked_one_lacks() -> None:
    """Both start at 0 s; by 4 s the one without GPUs has used up its quantum and comes last."""
    spec = ClusterSpec((NodeSpec(gpus=1, gpu_type="V100", cpus=8000),))

    def cores(gpus: int) -> Shape:
        return Shape((Role(needs=Needs(gpus=gpus, cpus=6000)),))

    works = [job("cpus", 0, 50, shape=cores(0)), job("waits", 1, 10, shape=cores(1))]
    assert play("las(quantum=4s,attained=time)", works, spec).started("waits") == 4


def test_a_node_without_gpus_that_comes_back_is_used() -> None:
    """Its CPUs are all that the job waits for."""
    spec = ClusterSpec((NodeSpec(cpus=4000),))
    works = [job("cpus", 0, 10, shape=Shape((Role(needs=Needs(gpus=0, cpus=1000)),)))]
    outages = (Outage(0, 0, 5 * SECOND),)
    assert play("fifo(walk=skip)", works, spec, outages=outages).ended("cpus") == 15


def with_cores(name: str, at: float, lasts: float, cores: int, priority: int) -> Work:
    """A job on one GPU."""
    shape = Shape((Role(needs=Needs(cpus=1000 * cores)),))
    return job(name, at, lasts, priority=priority, shape=shape)


CROWDED = [
    with_cores("f", 0, 1, 0, 9), with_cores("w", 0, 60, 2, 1), with_cores("v", 0, 60, 1, 0),
    with_cores("h", 2, 30, 2, 5), with_cores("g", 2, 30, 1, 4),
]  # fmt: skip
"""On four cores: `v` goes for those that `h` needs, and finds one when `g` has evicted `w`, which
has two; the GPU of `v` was free all the time."""


def test_who_was_evicted_and_finds_its_own_place_again_goes_on_and_can_be_evicted_later() -> None:
    """One second after it was evicted and went on `x` takes its place."""
    works = [*CROWDED, with_cores("x", 3, 9, 1, 6)]
    run = play("priority", works, cluster(1, 3, cpus=4000), validate=False)
    stops = [each for each in run.actions if each[1].startswith("stop")]
    assert stops == [(2, "stop w"), (3, "stop v")]
    assert [run.started(name) for name in "hgx"] == [2, 2, 3]
    assert [run.ended(name) for name in "vw"] == [69, 90]


def test_nobody_waits_for_one_that_was_evicted_and_goes_on() -> None:
    """What it was leaving for a moment it holds on to; so nothing is left that could be waited for,
    and the pair waits for no more than it lacks."""
    works = [*CROWDED, job("pair", 0, 5, size=2, priority=-1)]
    run = play("priority", works, cluster(1, 3, cpus=4000), validate=False)
    assert [each for each in run.actions if each[0] == 2] == [
        (2, "stop w"),
        (2, "start h on 0:0 after w"),
        (2, "start g on 0:1 after w"),
    ]
    assert not run.kernel.ledger.leaving
    assert run.started("pair") == 60


def test_a_part_of_a_gpu_takes_no_whole_one_from_a_job_that_waits() -> None:
    """The gang lacks all three GPUs when the guest, whom the host's GPU has room for, goes before
    it. It starts when these three are given back."""
    half = Shape((Role(needs=Needs(share=500)),))
    works = [
        job("pair", 0, 50, size=2, priority=1),
        job("host", 0, 60, shape=half, priority=1),
        job("gang", 1, 9, size=3),
        job("guest", 2, 20, shape=half, priority=1),
    ]
    run = play("priority(preempt=no)", works, cluster(1, 3))
    assert (run.started("guest"), run.started("gang")) == (2, 60)
