"""Jobs that come late in a simulation: what they truly are, and what they change."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import pytest

from ganger.core.errors import BadInput
from ganger.core.events import Accepted, Finished
from ganger.core.plan import Plan, Slot, Spawn
from ganger.core.profiles import Convergence, Profile, Profiles
from ganger.core.spec import JobSpec, Kind, Role, Shape
from ganger.core.state.jobs import Phase
from ganger.core.units import NEVER, SECOND
from ganger.core.view import View
from ganger.lab.simulation import Setup
from ganger.sim.children import AsStated, FromCurves
from ganger.sim.physics import Physics
from ganger.sim.truth import Noisy, Truth
from worlds import cluster, job, play, trace_of

SEARCH = job("search", lasts=None, kind=Kind.TUNE, shape=Shape((Role(size=2),)))
TRIAL = JobSpec(name="more", parent="search", estimate=5 * SECOND)


def curves(*seconds: float) -> Profiles:
    """Configurations c0, c1, ... of two epochs, of which each takes so many seconds."""
    return Profiles(
        {
            f"c{at}": Profile(
                convergence=Convergence((1.0, 2.0), (0.5, 0.25), change=0, seconds=each)
            )
            for at, each in enumerate(seconds)
        }
    )


class Asks:
    """Starts the search, and once it runs asks for children; starts what fits, both levels."""

    name = "asks"
    orders = (Spawn,)

    def __init__(self, *spawns: Spawn, then: dict[int, Any] | None = None) -> None:
        self.spawns, self.then = spawns, then or {}

    def decide(self, view: View, memory: int | None) -> tuple[Plan, int]:
        """Ask once; `then` says by time in seconds what else is done."""
        for row in view.pending.tolist():
            view.draft.start(row, (Slot(0, 0b11, 2),))
        inside = view.inside(0)
        if inside is not None and memory is None:
            memory = 1
            for spawn in self.spawns:
                view.draft.act(spawn)
        for row in inside.pending.tolist() if inside is not None else ():
            placement = inside.ledger.find(view.draft.shape(row)) if inside is not None else None
            if placement is not None:
                view.draft.start(row, placement)
        do = self.then.get(view.now // SECOND)
        if do is not None:
            do(view)
        wake = min((at * SECOND for at in self.then if at * SECOND > view.now), default=NEVER)
        return view.draft.plan(wake=wake), memory  # type: ignore[return-value]


def test_children_run_as_long_as_the_policy_states_and_the_trace_knows_nothing_of_them() -> None:
    trace = trace_of([SEARCH])
    for _ in range(2):  # the second run finds the trace as the first did
        played = play(Asks(Spawn(0, TRIAL, 3)), trace, cluster(1, 4), Setup(until=60 * SECOND))
        jobs = played.kernel.jobs
        assert [jobs.name(row) for row in range(4)] == ["search", "more-1", "more-2", "more-3"]
        assert (jobs.finished[1:4] // SECOND).tolist() == [5, 5, 10]
        assert jobs.submitted[:4].tolist() == [0, 0, 0, 0]
        assert (trace.declared.n, trace.declared.names) == (1, ["search"])
        assert len(trace.declared.shapes) == 1


def test_a_search_whose_policy_asks_for_more_does_not_end_with_its_last_child() -> None:
    works = [SEARCH, job("t0", lasts=3, parent="search")]
    alone = play(Asks(), works, cluster(1, 4), Setup(until=60 * SECOND)).kernel.jobs
    assert (alone.phase[0], alone.finished[0]) == (Phase.FINISHED, 3 * SECOND)
    more = play(Asks(Spawn(0, TRIAL)), works, cluster(1, 4), Setup(until=60 * SECOND)).kernel.jobs
    assert more.finished[:3].tolist() == [-1, 3 * SECOND, 5 * SECOND]
    assert more.phase[0] == Phase.RUNNING


def retire(*rows: int) -> Any:
    """Retire these jobs, whatever they do, unless they go already."""
    going = (Phase.STOPPING, Phase.FINISHED)
    return lambda view: [view.draft.retire(row) for row in rows if view.at.phase[row] not in going]


@pytest.mark.parametrize("rows", [(1, 2, 3), (3, 2, 1), (3, 1, 2)])
def test_a_search_ends_when_its_last_child_is_retired(rows: tuple[int, ...]) -> None:
    """Two of them run, one waits."""
    works = [SEARCH, *(job(f"t{row}", lasts=50, parent="search") for row in range(3))]
    early = play(Asks(then={2: retire(*rows[:2]), 4: retire(*rows[2:])}), works, cluster(1, 4))
    jobs = early.kernel.jobs
    assert jobs.phase[:4].tolist() == [Phase.FINISHED] * 4
    assert (jobs.finished[:4] // SECOND).max() == jobs.finished[0] // SECOND == 4
    slow = [SEARCH, *(job(f"t{row}", lasts=50, parent="search", checkpoint=3) for row in range(3))]
    jobs = play(Asks(then={2: retire(*rows)}), slow, cluster(1, 4)).kernel.jobs
    assert jobs.finished[0] == 5 * SECOND, "when all have let go"


def test_a_search_ends_also_when_its_last_child_fails_for_good() -> None:
    works = [
        SEARCH,
        job("t0", lasts=3, parent="search"),
        job("t1", lasts=50, limit=7, parent="search"),
    ]
    jobs = play(Asks(), works, cluster(1, 4)).kernel.jobs
    assert jobs.phase[:3].tolist() == [Phase.FINISHED, Phase.FINISHED, Phase.FAILED]
    assert jobs.finished[0] == 7 * SECOND


def test_the_limit_of_a_late_child_counts_though_no_other_job_has_one() -> None:
    late = msgspec.structs.replace(TRIAL, estimate=50 * SECOND, limit=4 * SECOND)
    jobs = play(Asks(Spawn(0, late)), [SEARCH], cluster(1, 4), Setup(until=60 * SECOND)).kernel.jobs
    assert (jobs.phase[1], jobs.finished[1]) == (Phase.FAILED, 4 * SECOND)


def test_what_saving_costs_is_the_late_childs_own() -> None:
    late = msgspec.structs.replace(TRIAL, estimate=50 * SECOND, checkpoint=3 * SECOND)
    stop = {2: lambda view: view.draft.stop(1)}
    played = play(
        Asks(Spawn(0, late), then=stop), [SEARCH], cluster(1, 4), Setup(until=60 * SECOND)
    )
    jobs = played.kernel.jobs
    assert jobs.preemptions[1] == 1
    assert jobs.finished[1] == 53 * SECOND, "stopped at 2 s, let go at 5 s, 48 s were left"


# ---------------------------------------------------------------------- configurations


def drawn(searcher: FromCurves, number: int, parent: str = "search") -> list[tuple[str, float]]:
    """The configurations of so many trials, and the seconds that each takes."""
    spec = JobSpec(name="t", parent=parent)
    found = [searcher.child(Spawn(0, spec), Kind.TUNE, f"t-{at}") for at in range(number)]
    assert [child.name for child, _ in found] == [f"t-{at}" for at in range(number)]
    return [(child.model, lasts / SECOND) for child, lasts in found]


def test_each_configuration_is_drawn_once_before_any_is_drawn_again() -> None:
    pool = {(f"c{at}", 2.0 * (at + 1)) for at in range(6)}
    searcher = FromCurves(curves(1, 2, 3, 4, 5, 6), seed=0)
    first, again = drawn(searcher, 6), drawn(searcher, 6)
    assert set(first) == pool
    assert again == first
    assert drawn(searcher, 6, "another") == first, "each search draws by itself"
    orders = {tuple(drawn(FromCurves(curves(1, 2, 3, 4, 5, 6), seed), 6)) for seed in range(5)}
    assert len(orders) > 1


def test_a_child_that_says_what_it_is_and_a_replica_draw_nothing() -> None:
    searcher = FromCurves(curves(1, 2), seed=0)
    own = JobSpec(name="t", parent="search", model="mine", estimate=7)
    assert searcher.child(Spawn(0, own), Kind.TUNE, "x")[1] == 7
    replica = JobSpec(name="r", parent="web", kind=Kind.SERVE)
    assert searcher.child(Spawn(0, replica), Kind.SERVE, "x")[1] == NEVER
    assert drawn(searcher, 1) == drawn(FromCurves(curves(1, 2), seed=0), 1)


@pytest.mark.parametrize("searcher", [AsStated(), FromCurves(Profiles(), 0)])
def test_a_trial_of_which_nothing_is_known_is_refused(searcher: Any) -> None:
    with pytest.raises(BadInput, match="nothing says what a trial of 'search' is"):
        searcher.child(Spawn(0, JobSpec(name="t", parent="search")), Kind.TUNE, "t-1")


def test_a_curve_without_seconds_is_no_configuration() -> None:
    told = Convergence((1.0,), (0.5,), change=0)
    searcher = FromCurves(Profiles({"a": Profile(convergence=told), **curves(2).models}), 0)
    assert set(drawn(searcher, 3)) == {("c0", 4.0)}


# ---------------------------------------------------------------------- what is known of them


def test_the_truth_knows_late_jobs_and_errors_of_the_others_stay() -> None:
    played = play(Asks(Spawn(0, TRIAL, 40)), [SEARCH], cluster(1, 4), Setup(until=SECOND))
    view, physics = played.kernel.view, Physics(played.kernel.nodes)
    truth = Truth(np.array([9 * SECOND], np.int64), physics)
    for late in range(40):
        truth.add((late + 1) * SECOND)
    assert truth.late == [(late + 1) * SECOND for late in range(40)]
    assert truth.duration(view, 0) == 9 * SECOND
    assert truth.duration(view, 40) == 40 * SECOND
    ids = np.arange(41)
    assert (truth.duration(view, ids) / SECOND).tolist() == [9, *range(1, 41)]
    noisy = Noisy(truth, 0.5, 3, 1, 0.5)
    factor = noisy.duration(view, ids) / truth.duration(view, ids)
    first = Noisy(truth, 0.5, 3, 1, 0.5).duration(view, ids[:1]) / (9 * SECOND)
    assert factor[0] == first[0]
    assert len(set(factor.tolist())) == 41
    ones = np.ones(41, np.int64)
    speeds = noisy.throughput(view, ids, "V100", ones, ones)
    again = Noisy(truth, 0.5, 3, 41, 0.5).throughput(view, ids[:1], "V100", ones[:1], ones[:1])
    assert speeds[0] == again[0]
    assert len(set(speeds.tolist())) == 41


def test_children_are_answered_in_the_instant_in_which_they_are_asked_for() -> None:
    played = play(
        Asks(Spawn(0, TRIAL, 2), Spawn(0, TRIAL)), [SEARCH], cluster(1, 4), Setup(until=60 * SECOND)
    )
    came = [
        (batch.at, event.job, event.spawned)
        for batch, _ in played.diary.steps
        for event in batch.events
        if isinstance(event, Accepted)
    ]
    assert came == [(0, 1, True), (0, 2, True), (0, 3, True)]
    ends = [
        event.job
        for batch, _ in played.diary.steps
        for event in batch.events
        if isinstance(event, Finished)
    ]
    assert ends == [1, 2, 3]
    assert played.kernel.view.spawning == {}
