"""The simulator's stories: when things happen, how fast jobs run, what stopping them costs."""

from __future__ import annotations

from typing import Any

import pytest

from ganger.core.events import Failed, NodeDown, NodeUp, Released, Submitted, Woke
from ganger.core.plan import Plan, Resize, Resume, Slot, Suspend
from ganger.core.profiles import Profile, Profiles
from ganger.core.spec import ClusterSpec, GpuType, NodeSpec, OnPreempt, Role, Shape
from ganger.core.units import NEVER, SECOND
from ganger.core.view import View
from ganger.mechanisms.ordering.order import FIRST_COME
from ganger.mechanisms.ordering.queue import QueuePolicy
from ganger.sim.physics import Costs
from ganger.sim.rows import Outage
from worlds import Work, cluster, gpus, job, play

ONE = cluster(1, 1)
HOUR = 3600


def costs(**in_seconds: float) -> Costs:
    """Costs given in seconds."""
    times: dict[str, Any] = {name: round(value * SECOND) for name, value in in_seconds.items()}
    return Costs(**times)


# ---------------------------------------------------------------------- speed

FAST_AND_SLOW = ClusterSpec(
    (NodeSpec(gpus=1, gpu_type="fast"), NodeSpec(gpus=1, gpu_type="slow")),
    (GpuType("fast", speed=2.0), GpuType("slow", speed=0.5)),
)
PROFILES = Profiles({"bert": Profile({"fast": 4.0})})


@pytest.mark.parametrize(
    ("gpu_type", "model", "takes"),
    [("fast", "", 5), ("slow", "", 20), ("fast", "bert", 2.5), ("slow", "bert", 20)],
)
def test_a_job_runs_at_the_speed_of_its_gpu_type(gpu_type: str, model: str, takes: float) -> None:
    work = job("a", lasts=10, shape=gpus(1, gpu_types=(gpu_type,)), model=model)
    run = play("fifo", [work], FAST_AND_SLOW, profiles=PROFILES)
    assert run.ended("a") == takes
    assert run.jobs.ran[0] == takes * SECOND
    assert run.jobs.work[0] == pytest.approx(10 * SECOND)


@pytest.mark.parametrize(
    ("size", "slow_down"),
    [(2, 1.0), (4, 1.5), (8, 2.0), (16, 3.0)],
    ids=["in one island", "in one node", "in one rack", "over two racks"],
)
def test_a_gang_spread_wide_runs_slower(size: int, slow_down: float) -> None:
    racks = cluster(4, 4, island=2, nodes_per_rack=2)
    profile = Profiles({"vgg": Profile(locality=(1.0, 1.5, 2.0, 3.0))})
    run = play("fifo", [job("a", lasts=10, size=size, model="vgg")], racks, profiles=profile)
    assert run.ended("a") == 10 * slow_down


# ---------------------------------------------------------------------- the cost of preemption


def test_starting_checkpointing_and_restoring_take_their_time() -> None:
    """Start 1 s; at 10 s a checkpoint of 2 s; 5 s of the urgent job; restore in 3 s; 11 s left."""
    works = [job("a", 0, 20), job("urgent", 10, 4, priority=1)]
    run = play("priority", works, ONE, costs=costs(start=1, checkpoint=2, restore=3))
    assert run.started("a") == 1
    assert run.started("urgent") == 10 + 2 + 1
    assert run.ended("urgent") == 17
    assert run.ended("a") == 17 + 3 + 11
    assert run.jobs.ran[0] == 20 * SECOND
    assert run.jobs.lost[0] == 0


def test_gpus_are_held_until_a_job_has_finished_in_order() -> None:
    """2 s after its work is done, however often it was interrupted before."""
    works = [job("a", 0, 20), job("urgent", 10, 4, priority=1)]
    run = play("priority", works, ONE, costs=costs(restore=3, finish=2))
    assert run.ended("urgent") == 10 + 4 + 2
    assert run.ended("a") == 16 + 3 + 10 + 2


def test_a_job_that_is_stopped_when_its_work_is_done_has_only_to_finish() -> None:
    works = [job("a", 0, 10), job("urgent", 11, 4, priority=1)]
    run = play("priority", works, ONE, costs=costs(restore=3, finish=2))
    assert run.ended("a") == 11 + 4 + 2 + 3 + 2


def test_a_job_counts_as_running_from_its_launch_and_computes_when_it_has_loaded() -> None:
    """5 s from the decision, of which 3 s after the launch; so the service attained is 13 s."""
    run = play("fifo", [job("a", 0, 10)], ONE, costs=costs(start=5, load=3))
    assert (run.started("a"), run.ended("a")) == (2, 15)
    assert run.jobs.ran[0] == 13 * SECOND


def test_a_job_that_is_stopped_while_it_loads_has_done_nothing() -> None:
    works = [job("a", 0, 10), job("urgent", 3, 4, priority=1)]
    run = play("priority", works, ONE, costs=costs(start=5, restore=4, load=3))
    assert run.ended("urgent") == 3 + 5 + 4
    assert run.ended("a") == 12 + 4 + 10


def test_a_jobs_own_costs_go_before_the_clusters() -> None:
    works = [job("a", 0, 20, checkpoint=0, restore=7), job("urgent", 10, 4, priority=1)]
    run = play("priority", works, ONE, costs=costs(checkpoint=2, restore=3))
    assert (run.started("urgent"), run.ended("a")) == (10, 14 + 7 + 10)


def test_a_job_that_cannot_checkpoint_loses_all_its_work_when_preempted() -> None:
    works = [job("a", 0, 20, on_preempt=OnPreempt.KILL), job("urgent", 10, 4, priority=1)]
    run = play("priority", works, ONE, costs=costs(checkpoint=2))
    assert run.started("urgent") == 10, "there is no checkpoint to wait for"
    assert run.ended("a") == 14 + 20
    assert (run.jobs.lost[0], run.jobs.ran[0]) == (10 * SECOND, 30 * SECOND)


class MoveOnce:
    """First come first served; job 0 moves to node 1 at 4 s."""

    name = "move once"

    def __init__(self) -> None:
        self._queue = QueuePolicy("fifo", FIRST_COME)

    def decide(self, view: View, memory: None) -> tuple[Plan, None]:
        """Through the draft."""
        if view.now == 4 * SECOND:
            place = view.ledger.find(gpus(1))
            assert place is not None
            view.draft.resize(0, place)
        plan = self._queue.decide(view, None)[0]
        plan.wake = 4 * SECOND if view.now < 4 * SECOND else NEVER
        return plan, None


def test_a_moved_job_computes_again_only_after_its_own_checkpoint() -> None:
    """The new GPU is free at once; the state to restore there is written at 4 + 3 s."""
    run = play(MoveOnce(), [job("a", 0, 10)], cluster(2, 1), costs=costs(checkpoint=3, restore=2))
    at, what = run.actions[1]
    assert at == 4
    assert what == "resize a on 1:0"
    assert run.ended("a") == 4 + 3 + 2 + 6


# ---------------------------------------------------------------------- failure


@pytest.mark.parametrize(("every", "kept"), [(0, 0), (4, 8), (10, 10), (11, 0)])
def test_a_failure_falls_back_to_the_last_periodic_checkpoint(every: float, kept: float) -> None:
    """The node is gone from 10 to 15 s."""
    run = play(
        "fifo",
        [job("a", 0, 20)],
        ONE,
        costs=costs(checkpoint_every=every),
        outages=(Outage(0, 10 * SECOND, 15 * SECOND),),
    )
    assert run.ended("a") == 15 + 20 - kept
    assert run.jobs.lost[0] == (10 - kept) * SECOND


def test_work_kept_at_a_preemption_survives_a_later_failure() -> None:
    works = [job("a", 0, 20), job("urgent", 6, 1, priority=1)]
    run = play("priority", works, ONE, outages=(Outage(0, 10 * SECOND, 11 * SECOND),))
    assert run.ended("a") == 11 + 14


def test_a_lost_node_takes_its_gangs_with_it_and_the_batch_is_in_order() -> None:
    works = [job("wide", 0, 9, size=4), job("late", 5, 1)]
    run = play("fifo", works, cluster(2, 2), outages=(Outage(1, 5 * SECOND, 8 * SECOND),))
    batch = next(batch for batch, _ in run.diary.steps if batch.at == 5 * SECOND)
    assert [type(event) for event in batch.events] == [Failed, NodeDown, Submitted]
    assert run.started("late") == 17, "strictly in order"
    back = next(batch for batch, _ in run.diary.steps if batch.at == 8 * SECOND)
    assert [type(event) for event in back.events] == [NodeUp]


# ---------------------------------------------------------------------- time limits


@pytest.mark.parametrize(
    ("lasts", "ended", "phase"), [(9, 9, "finished"), (10, 10, "finished"), (11, 10, "failed")]
)
def test_a_time_limit_stops_only_what_runs_longer(lasts: float, ended: float, phase: str) -> None:
    run = play("fifo", [job("a", 0, lasts, limit=10)], ONE)
    assert (run.ended("a"), run.phase("a")) == (ended, phase)


DETAILED = Profiles({"loud": Profile(disturbed={"x": 2.0})})


@pytest.mark.parametrize("profiles", [Profiles(), DETAILED], ids=["plain", "detailed"])
@pytest.mark.parametrize("restore", [0, 3])
def test_a_limit_counts_the_run_time_of_all_attempts_whose_work_is_kept(
    profiles: Profiles, restore: float
) -> None:
    """12 s of work, 10 s of limit: it fails after 10 s of computing, interrupted or not."""
    urgent = job("urgent", 5, 4, priority=1)
    run = play(
        "priority",
        [job("a", 0, 12, limit=10), urgent],
        ONE,
        profiles=profiles,
        costs=costs(restore=restore),
    )
    assert (run.phase("a"), run.jobs.ran[0]) == ("failed", 10 * SECOND)
    assert run.ended("a") == 5 + 4 + restore + 5


def test_a_job_ends_alike_under_a_recipe_that_interrupts_it_and_one_that_does_not() -> None:
    works = [job("a", 0, 20, limit=15), *(job(f"b{i}", 4 * i + 1, 2) for i in range(4))]
    for recipe in ("fifo", "srtf", "las(quantum=2s)"):
        run = play(recipe, works, ONE)
        assert (run.phase("a"), run.jobs.ran[0]) == ("failed", 15 * SECOND), recipe


def test_an_attempt_that_begins_from_nothing_begins_its_limit_anew() -> None:
    works = [job("a", 0, 9, limit=10, on_preempt=OnPreempt.KILL), job("urgent", 5, 4, priority=1)]
    run = play("priority", works, ONE)
    assert (run.phase("a"), run.ended("a"), run.jobs.ran[0]) == ("finished", 18, 14 * SECOND)


@pytest.mark.parametrize(
    ("every", "phase", "ended"),
    [(0, "finished", 7 + 9), (4, "failed", 7 + 4)],
    ids=["all is lost", "4 s are kept"],
)
def test_a_limit_after_a_node_failed(every: float, phase: str, ended: float) -> None:
    """It computed 6 s of 9 s, with a limit of 10 s: what is kept has used up 6 s of the limit."""
    run = play(
        "fifo",
        [job("a", 0, 9 if not every else 20, limit=10)],
        ONE,
        outages=(Outage(0, 6 * SECOND, 7 * SECOND),),
        costs=costs(checkpoint_every=every),
    )
    assert (run.phase("a"), run.ended("a")) == (phase, ended)


def test_an_attempt_that_adds_nothing_to_what_was_kept_uses_up_no_limit() -> None:
    """5 s kept at a preemption, 4 s lost with a node: 5 s of the limit of 12 s are used up."""
    works = [job("a", 0, 12, limit=12), job("urgent", 5, 1, priority=1)]
    run = play("priority", works, ONE, outages=(Outage(0, 10 * SECOND, 20 * SECOND),))
    assert (run.phase("a"), run.ended("a")) == ("finished", 20 + 7)


def test_a_suspended_job_uses_up_no_limit() -> None:
    class Freeze:
        """Suspends it at 4 s, resumes it at 14 s."""

        name = "freeze"

        def decide(self, view: View, memory: Any) -> tuple[Plan, Any]:
            """One job, three decisions."""
            if view.pending.size:
                view.draft.start(0, (Slot(0, 1),))
                return view.draft.plan(wake=4 * SECOND), memory
            if view.now == 4 * SECOND:
                return Plan([Suspend(0, 1)], wake=14 * SECOND), memory
            if view.now == 14 * SECOND:
                return Plan([Resume(0, 1)]), memory
            return Plan(wake=4 * SECOND if view.now < 4 * SECOND else NEVER), memory

    run = play(Freeze(), [job("a", 0, 20, limit=10)], ONE)
    assert (run.phase("a"), run.ended("a")) == ("failed", 20)


def test_the_limit_of_a_job_that_is_over_no_longer_makes_anything_happen() -> None:
    run = play("fifo", [job("a", 0, 5, limit=HOUR)], ONE)
    assert run.kernel.now == 5 * SECOND
    assert all(batch.events for batch, _ in run.diary.steps)


# ---------------------------------------------------------------------- instants


@pytest.mark.parametrize("recipe", ["fifo", "srtf", "las", "backfill", "priority"])
def test_a_job_of_no_length_starts_and_finishes_in_one_instant(recipe: str) -> None:
    run = play(recipe, [job("none", 3, 0), job("some", 3, 1)], ONE)
    assert (run.started("none"), run.ended("none")) == (3, 3)
    assert run.ended("some") == 4


def test_a_wake_at_the_instant_of_a_finish_is_one_batch() -> None:
    run = play("las(quantum=5s)", [job("a", 0, 5), job("b", 0, 5)], ONE)
    at_five = [batch for batch, _ in run.diary.steps if batch.at == 5 * SECOND]
    assert [type(event).__name__ for event in at_five[0].events] == ["Finished", "Woke"]


def test_stopping_what_is_still_starting_loses_nothing_and_restarts_from_the_beginning() -> None:
    class Hasty(MoveOnce):
        """Moves it while it is still starting."""

    run = play(Hasty(), [job("a", 0, 10)], cluster(2, 1), costs=costs(start=6, restore=2))
    assert run.started("a") == 4 + 2
    assert run.ended("a") == 16
    assert run.jobs.lost[0] == 0


def test_a_policy_that_only_ever_wakes_does_not_keep_the_simulation_alive() -> None:
    class Insomniac:
        """Waits for a job that can never run."""

        name = "insomniac"

        def decide(self, view: View, memory: None) -> tuple[Plan, None]:
            """Again in a second."""
            return Plan(wake=view.now + SECOND), None

    run = play(Insomniac(), [job("a", 0, 1)], ONE, validate=False)
    assert run.phase("a") == "pending"
    assert isinstance(run.diary.steps[-1][0].events[0], Woke)


def test_a_run_ends_where_it_is_told_to_and_the_rest_is_still_there() -> None:
    works: list[Work] = [job("a", 0, 10), job("b", 0, 10), job("c", 99, 1)]
    run = play("fifo", works, ONE, until=5 * SECOND)
    assert [run.phase(name) for name in "abc"] == ["running", "pending", "declared"]


def test_released_comes_before_started_when_several_jobs_change_places() -> None:
    works = [
        *(job(f"old {i}", 0, 20) for i in range(3)),
        *(job(f"new {i}", 5, 20, priority=1) for i in range(3)),
    ]
    run = play("priority", works, cluster(3, 1))
    swap = [batch for batch, _ in run.diary.steps if batch.at == 5 * SECOND][1]
    assert [type(event).__name__ for event in swap.events] == ["Released"] * 3 + ["Started"] * 3
    assert isinstance(swap.events[0], Released)


def test_an_elastic_job_runs_in_proportion_to_its_gpus() -> None:
    """Two GPUs asked for; after 4 s it holds four and does the other 6 s of work in three."""

    class Grow(MoveOnce):
        """Grows at 4 s."""

        def decide(self, view: View, memory: None) -> tuple[Plan, None]:
            """Onto the whole node."""
            if view.now == 4 * SECOND:
                view.draft.stop(0)
                place = view.ledger.find(view.draft.shape(0), (4,))
                view.draft.rollback()
                assert place is not None
                view.draft.resize(0, place)
            plan = self._queue.decide(view, None)[0]
            plan.wake = NEVER if view.now >= 4 * SECOND else 4 * SECOND
            return plan, None

    shape = Shape((Role(size=2, least=1, most=4),))
    run = play(Grow(), [job("a", 0, 10, shape=shape)], cluster(1, 4))
    resized = [plan for _, plan in run.diary.steps if plan and plan.actions][1].actions[0]
    assert isinstance(resized, Resize)
    assert run.ended("a") == 7
    assert run.jobs.served[0] == (4 * 2 + 3 * 4) * SECOND
