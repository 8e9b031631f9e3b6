"""The kernel's stories: what each event and each action does to a job, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np
import pytest

from bench import Bench, on, running
from ganger.core.errors import BadInput, InvariantError
from ganger.core.events import (
    CAPACITY_FREED,
    QUEUED,
    AnyEvent,
    Batch,
    Command,
    Evaluated,
    Failed,
    Finished,
    NodeDown,
    NodeUp,
    Progressed,
    Refused,
    Released,
    Started,
    Submitted,
    Woke,
)
from ganger.core.plan import AnyAction, Plan, Resize, Resume, Start, Stop, Suspend
from ganger.core.spec import Kind, Role, Shape
from ganger.core.state.jobs import Phase
from ganger.core.state.snapshot import capture, restore
from ganger.core.units import NEVER, SECOND
from ganger.core.view import View
from ganger.recipes import registry
from worlds import Work, cluster, job, play, trace_of

# ---------------------------------------------------------------------- a life


def test_a_life_from_submission_to_the_end() -> None:
    bench = Bench(job("a", at=1, size=2))
    assert bench.phase() == Phase.DECLARED
    bench.feed(1, Submitted(0))
    assert bench.phase() == Phase.PENDING
    bench.feed(3, Woke(), then=[Start(0, 1, on(0b11))])
    assert (bench.phase(), bench.jobs.size[0], bench.jobs.pended[0]) == (3, 2, 2 * SECOND)
    bench.feed(4, Started(0, 1))
    bench.feed(9, Finished(0, 1))
    jobs = bench.jobs
    assert bench.phase() == Phase.FINISHED
    assert (jobs.first_start[0], jobs.finished[0]) == (4 * SECOND, 9 * SECOND)
    assert (jobs.ran[0], jobs.served[0], jobs.held[0]) == (5 * SECOND, 10 * SECOND, 12 * SECOND)
    assert bench.kernel.ledger.free == 4


def test_a_preempted_jobs_gpus_are_planned_with_at_once_but_given_after_its_release() -> None:
    bench = running()
    plan = bench.feed(5, Woke(), then=[Stop(0, 1), Start(1, 1, on(0b0011), (0,))])
    assert plan is not None
    assert (bench.phase(0), bench.phase(1)) == (Phase.STOPPING, Phase.STARTING)
    assert bench.kernel.ledger.waits(on(0b0001)) == (0,)
    bench.feed(8, Released(0, 1, 5.0 * SECOND))
    assert bench.phase(0) == Phase.PENDING
    assert bench.kernel.ledger.waits(on(0b0001)) == ()
    assert (bench.jobs.held[0], bench.jobs.ran[0]) == (16 * SECOND, 5 * SECOND)
    assert (bench.jobs.preemptions[0], bench.jobs.work[0]) == (1, 5.0 * SECOND)


def test_who_leaves_untold_was_preempted_by_its_machine() -> None:
    bench = running()
    bench.feed(5, Released(0, 1, 4.0 * SECOND))
    assert (bench.phase(0), bench.jobs.preemptions[0]) == (Phase.PENDING, 1)
    assert bench.jobs.work[0] == 4.0 * SECOND


def test_a_start_that_is_refused_was_time_in_the_queue() -> None:
    bench = Bench(job("a", size=2))
    bench.feed(0, Submitted(0))
    bench.feed(1, Woke(), then=[Start(0, 1, on(0b11))])
    bench.feed(61, Refused(0, 1, "others hold its GPUs"))
    bench.feed(63, Woke(), then=[Start(0, 2, on(0b11))])
    assert bench.jobs.pended[0] == 63 * SECOND


def test_a_draft_names_whom_a_start_waits_for() -> None:
    run = play("priority", [job("a", 0, 9, checkpoint=2), job("b", 1, 9, size=2, priority=1)])
    assert run.actions[1:] == [
        (1, "stop a"),
        (1, "start b on 0:0,1 after a"),
        (12, "start a on 0:0"),
    ]
    assert run.started("b") == 3, "after a's checkpoint of 2 s"


# ---------------------------------------------------------------------- late and odd news


@pytest.mark.parametrize(
    "news",
    [
        Started(0, 1),
        Started(0, 3),
        Finished(0, 1),
        Failed(0, 1),
        Released(0, 1),
        Refused(0, 1),
        Refused(0, 2),
        Progressed(0, 1, 99.0, 1.0),
    ],
    ids=str,
)
def test_news_of_another_attempt_changes_neither_phase_nor_books(news: AnyEvent) -> None:
    """Attempt 1 was stopped and is over; attempt 2 runs."""
    bench = running()
    bench.feed(1, Woke(), then=[Stop(0, 1)])
    bench.feed(1, Released(0, 1, 1.0 * SECOND), then=[Start(0, 2, on(0b1100))])
    bench.feed(2, Started(0, 2))
    assert bench.jobs.restarts[0] == 1
    plan = bench.feed(3, news)
    assert (plan is None) == (not isinstance(news, Progressed)), "there is nothing to decide"
    assert bench.phase() == Phase.RUNNING
    assert bench.kernel.ledger.holds[0][1] == on(0b1100)
    assert bench.kernel.ledger.free == 2


def test_late_news_of_a_finished_job_does_not_bring_it_back() -> None:
    bench = running(job("a", size=2))
    bench.feed(4, Finished(0, 1))
    for news in (Started(0, 1), Released(0, 1, 0.0), Refused(0, 1), Failed(0, 1, 0.0, "x")):
        assert bench.feed(5, news) is None, "nothing changed about which a policy could care"
        assert bench.phase() == Phase.FINISHED
    bench.feed(5, Progressed(0, 1, 1.0, 1.0))
    assert (bench.phase(), bench.jobs.finished[0]) == (Phase.FINISHED, 4 * SECOND)


def test_a_job_may_finish_in_the_instant_in_which_it_is_told_to_stop() -> None:
    bench = running()
    bench.feed(5, Woke(), then=[Stop(0, 1), Start(1, 1, on(0b0011), (0,))])
    bench.feed(6, Finished(0, 1))
    assert bench.phase() == Phase.FINISHED
    assert bench.kernel.ledger.leaving == {}
    bench.feed(6, Started(1, 1))
    assert bench.phase(1) == Phase.RUNNING


def test_a_refused_start_holds_nothing_and_is_tried_again_as_a_new_attempt() -> None:
    bench = Bench(job("a", size=2))
    bench.feed(0, Submitted(0), then=[Start(0, 1, on(0b11))])
    bench.feed(2, Refused(0, 1, "no such image"))
    assert (bench.phase(), bench.kernel.ledger.free) == (Phase.PENDING, 4)
    bench.feed(3, Woke(), then=[Start(0, 2, on(0b11))])
    bench.feed(3, Started(0, 2))
    assert (bench.phase(), bench.jobs.restarts[0]) == (Phase.RUNNING, 0)


@pytest.mark.parametrize(("final", "phase"), [(False, Phase.PENDING), (True, Phase.FAILED)])
def test_a_failed_attempt_keeps_what_was_checkpointed(final: bool, phase: Phase) -> None:
    bench = running()
    bench.feed(10, Failed(0, 1, kept=6.0 * SECOND, final=final))
    assert bench.phase() == phase
    assert (bench.jobs.work[0], bench.jobs.lost[0]) == (6.0 * SECOND, 4.0 * SECOND)
    assert bench.kernel.ledger.free == 4


def test_progress_reports_replace_what_was_reckoned() -> None:
    bench = running()
    bench.feed(10, Progressed(0, 1, 7.0 * SECOND, 0.5))
    assert bench.jobs.work[0] == 7.0 * SECOND
    assert bench.kernel.view.work(np.array([0]))[0] == 7.0 * SECOND
    bench.feed(14, Finished(0, 1))
    assert bench.jobs.ran[0] == 14 * SECOND
    assert bench.jobs.work[0] == 9.0 * SECOND


def test_a_report_of_progress_is_no_new_beginning() -> None:
    bench = running()
    bench.feed(10, Progressed(0, 1, 7.0 * SECOND, 0.5))
    assert (bench.jobs.began[0], bench.jobs.since[0]) == (0, 10 * SECOND)
    bench.feed(12, Woke(), then=[Suspend(0, 1)])
    bench.feed(15, Woke(), then=[Resume(0, 1)])
    assert bench.jobs.began[0] == 15 * SECOND


def test_a_snapshot_of_the_version_before_takes_the_last_report_for_the_beginning() -> None:
    bench = running()
    bench.feed(10, Progressed(0, 1, 7.0 * SECOND, 0.5))
    snapshot = capture(bench.kernel)
    columns = {name: data for name, data in snapshot.columns.items() if name != "began"}
    old = msgspec.structs.replace(snapshot, columns=columns)
    for each, began in ((snapshot, 0), (old, 10 * SECOND)):
        again = restore(each, bench.kernel.nodes, bench.policy)
        assert again.jobs.began[0] == began


def test_a_policy_hears_once_of_who_reported_progress() -> None:
    """Jobs may report as often as they like while nobody asks: the list does not grow with it."""
    bench = Bench(job("a", size=2), job("b", size=2), policy=registry.make("fifo"))
    bench.feed(0, Submitted(0), Submitted(1))
    bench.feed(0, Started(0, 1), Started(1, 1))
    before = list(bench.kernel.view.changed)
    for at in range(10, 30):
        bench.feed(at, Progressed(at % 2, 1, at * SECOND, 1.0))
    assert bench.kernel.view.changed == [*before, 0, 1]


def test_suspending_keeps_the_gpus_and_stops_the_clock() -> None:
    bench = running()
    bench.feed(4, Woke(), then=[Suspend(0, 1)])
    assert (bench.phase(), bench.kernel.ledger.free) == (Phase.SUSPENDED, 2)
    bench.feed(9, Woke(), then=[Resume(0, 1)])
    bench.feed(10, Finished(0, 1))
    assert (bench.jobs.ran[0], bench.jobs.held[0]) == (5 * SECOND, 20 * SECOND)
    assert bench.jobs.work[0] == 5.0 * SECOND


def test_resizing_moves_the_job_and_leaves_the_old_gpus_until_released() -> None:
    elastic = Shape((Role(size=2, least=1, most=4),))
    bench = running(job("a", shape=elastic))
    bench.feed(6, Woke(), then=[Resize(0, 2, on(0b1100))])
    assert (bench.phase(), bench.jobs.attempt[0]) == (Phase.STARTING, 2)
    assert bench.kernel.ledger.waits(on(0b0011)) == (0,)
    bench.feed(8, Released(0, 1, 6.0 * SECOND))
    assert bench.kernel.ledger.waits(on(0b0011)) == ()
    bench.feed(8, Started(0, 2))
    bench.feed(10, Finished(0, 2))
    assert (bench.jobs.ran[0], bench.jobs.preemptions[0], bench.jobs.restarts[0]) == (
        8 * SECOND,
        0,
        1,
    )


@pytest.mark.parametrize("held", [False, True])
def test_an_attempt_that_finishes_after_what_replaced_it_was_refused_finishes_the_job(
    held: bool,
) -> None:
    """The owner died in between: the engine was not told that it was replaced."""
    bench = running(job("a", size=2), job("b", size=2), job("c", size=4))
    bench.feed(1, Woke(), then=[Resize(0, 2, on(0b1100))])
    if held:
        bench.feed(2, Command(0, "hold"))
    bench.feed(2, Refused(0, 2))
    assert bench.phase(0) == (Phase.BLOCKED if held else Phase.PENDING)
    assert bench.kernel.letting_go
    bench.feed(3, Finished(0, 1))
    assert bench.phase(0) == Phase.FINISHED
    assert not bench.kernel.letting_go
    bench.feed(4, Finished(0, 1), Finished(0, 2))
    assert bench.jobs.finished[0] == 3 * SECOND


def test_an_attempt_that_finishes_while_what_replaced_it_runs_only_lets_go() -> None:
    bench = running(job("a", size=2))
    bench.feed(1, Woke(), then=[Resize(0, 2, on(0b1100))])
    bench.feed(2, Finished(0, 1), Started(0, 2))
    assert bench.phase(0) == Phase.RUNNING
    assert not bench.kernel.letting_go
    bench.feed(9, Finished(0, 2))
    assert bench.phase(0) == Phase.FINISHED


# ---------------------------------------------------------------------- plans that cannot be


@pytest.mark.parametrize(
    "actions",
    [
        pytest.param([Start(0, 2, on(0b1100))], id="start what runs"),
        pytest.param([Start(1, 2, on(0b1100))], id="skip an attempt"),
        pytest.param([Start(1, 1, on(0b0110))], id="take what another holds"),
        pytest.param([Start(1, 1, on(0b110000))], id="take what is not there"),
        pytest.param([Start(1, 1, on(0b0100))], id="start half a gang"),
        pytest.param([Stop(0, 2)], id="stop another attempt"),
        pytest.param([Resume(0, 1)], id="resume what runs"),
        pytest.param([Suspend(0, 2)], id="suspend another attempt"),
        pytest.param([Resize(0, 1, on(0b1100))], id="resize into the same attempt"),
    ],
)
def test_the_kernel_refuses_plans_that_cannot_be(actions: list[AnyAction]) -> None:
    bench = running()
    with pytest.raises((InvariantError, KeyError)):
        bench.feed(1, Woke(), then=actions)


def test_time_never_runs_backwards() -> None:
    bench = running()
    bench.feed(5, Woke())
    with pytest.raises(InvariantError, match="backwards"):
        bench.feed(4, Woke())


def test_a_policy_may_not_ask_to_be_woken_in_the_past() -> None:
    bench = Bench(job("a"))
    bench.policy.next = Plan(wake=1)
    with pytest.raises(InvariantError, match="woken in the past"):
        bench.kernel.step(Batch(SECOND, [Submitted(0)]))


class Fickle:
    """Decides otherwise every time."""

    name = "fickle"

    def __init__(self) -> None:
        self.calls = 0

    def decide(self, view: View, memory: None) -> tuple[Plan, None]:
        """Asks to be woken later and later."""
        self.calls += 1
        return Plan(wake=view.now + self.calls), None


class Meddling:
    """Writes into the tables."""

    name = "meddling"

    def decide(self, view: View, memory: None) -> tuple[Plan, None]:
        """Cheats."""
        view.jobs.priority[0] = 9
        return Plan(), None


@pytest.mark.parametrize(("policy", "error"), [(Fickle, InvariantError), (Meddling, ValueError)])
def test_validate_catches_impure_policies(policy: Callable[[], Any], error: type) -> None:
    bench = Bench(job("a"), policy=policy())
    with pytest.raises(error):
        bench.feed(0, Submitted(0))


def test_a_policy_is_asked_only_after_what_it_waits_for() -> None:
    bench = Bench(job("a"), job("b"))
    bench.policy.next = Plan(until=QUEUED, wake=9 * SECOND)
    step = bench.kernel.step
    assert step(Batch(0, [Submitted(0)])) is not None
    assert step(Batch(1, [Command(0, "priority", 3)])) is None
    assert step(Batch(2, [Submitted(1)])) is not None
    bench.policy.next = Plan()
    assert step(Batch(9 * SECOND, [NodeUp(0)])) is not None, "its alarm clock"


# ---------------------------------------------------------------------- who waits for whom

CHAIN = [job("a"), job("b", after=("a",)), job("c", after=("b",)), job("d", after=("a", "b"))]


def test_followers_become_pending_when_all_they_wait_for_is_finished() -> None:
    bench = Bench(*CHAIN)
    bench.feed(0, *(Submitted(i) for i in range(4)), then=[Start(0, 1, on(1))])
    assert [bench.phase(i) for i in range(4)] == [3, Phase.BLOCKED, Phase.BLOCKED, Phase.BLOCKED]
    bench.feed(0, Started(0, 1))
    bench.feed(2, Finished(0, 1), then=[Start(1, 1, on(1))])
    assert [bench.phase(i) for i in (1, 2, 3)] == [Phase.STARTING, Phase.BLOCKED, Phase.BLOCKED]
    bench.feed(2, Started(1, 1))
    bench.feed(3, Finished(1, 1))
    assert [bench.phase(i) for i in (2, 3)] == [Phase.PENDING, Phase.PENDING]


@pytest.mark.parametrize("how", ["failed", "cancelled"])
def test_followers_of_what_failed_or_was_cancelled_are_cancelled_all_down_the_line(
    how: str,
) -> None:
    bench = Bench(*CHAIN)
    bench.feed(
        0, *(Submitted(i) for i in range(4)), then=[Start(0, 1, on(1))] if how == "failed" else []
    )
    bench.feed(1, Failed(0, 1, final=True) if how == "failed" else Command(0, "cancel"))
    assert bench.phase(0) == (Phase.FAILED if how == "failed" else Phase.CANCELLED)
    assert [bench.phase(i) for i in (1, 2, 3)] == [Phase.CANCELLED] * 3


@pytest.mark.parametrize(
    ("end", "follower"),
    [(Finished(0, 1), Phase.PENDING), (Failed(0, 1, final=True), Phase.CANCELLED)],
    ids=["finished", "failed"],
)
def test_a_job_submitted_after_its_predecessor_ended(end: AnyEvent, follower: Phase) -> None:
    bench = Bench(job("a"), job("b", at=9, after=("a",)))
    bench.feed(0, Submitted(0), then=[Start(0, 1, on(1))])
    bench.feed(1, end)
    bench.feed(9, Submitted(1))
    assert bench.phase(1) == follower


def test_jobs_that_wait_for_each_other_are_refused() -> None:
    with pytest.raises(BadInput, match="a -> b -> c -> a"):
        trace_of([job("a", after=("b",)), job("b", after=("c",)), job("c", after=("a",))])
    with pytest.raises(BadInput, match="a -> a"):
        trace_of([job("a", after=("a",))])


def test_a_diamond_of_dependencies_is_no_cycle() -> None:
    diamond = [job("a"), job("b", after=("a",)), job("c", after=("a",)), job("d", after=("b", "c"))]
    assert play("fifo", diamond).jct() == [1, 2, 2, 3]


# ---------------------------------------------------------------------- a person's commands


def test_hold_and_release() -> None:
    bench = Bench(job("a"))
    bench.feed(0, Submitted(0))
    bench.feed(1, Command(0, "hold"))
    assert (bench.phase(), bench.kernel.view.pending.tolist()) == (Phase.BLOCKED, [])
    assert bench.jobs.pended[0] == 1 * SECOND
    bench.feed(2, Command(0, "release"))
    assert (bench.phase(), bench.kernel.view.pending.tolist()) == (Phase.PENDING, [0])


def test_a_release_does_not_let_a_job_run_before_its_predecessor_is_finished() -> None:
    bench = Bench(job("a"), job("b", after=("a",)))
    bench.feed(0, Submitted(0), Submitted(1))
    bench.feed(1, Command(1, "release"))
    assert bench.phase(1) == Phase.BLOCKED


def test_holding_a_job_that_waits_for_another_does_not_free_it_of_that() -> None:
    bench = Bench(job("a"), job("b", after=("a",)))
    bench.feed(0, Submitted(0), Submitted(1))
    bench.feed(1, Command(1, "hold"))
    bench.feed(2, Command(1, "release"))
    assert bench.phase(1) == Phase.BLOCKED, "a is not finished"
    bench.feed(3, Woke(), then=[Start(0, 1, on(1))])
    bench.feed(4, Finished(0, 1))
    assert bench.phase(1) == Phase.PENDING


def test_a_held_job_stays_held_when_its_predecessor_finishes() -> None:
    bench = Bench(job("a"), job("b", after=("a",)))
    bench.feed(0, Submitted(0), Submitted(1), then=[Start(0, 1, on(1))])
    bench.feed(1, Command(1, "hold"))
    bench.feed(2, Finished(0, 1))
    assert bench.phase(1) == Phase.BLOCKED
    bench.feed(3, Command(1, "release"))
    assert bench.phase(1) == Phase.PENDING


def test_a_new_priority_changes_who_is_preempted_at_once() -> None:
    works = [job("low", 0, 10, priority=1), job("high", 0, 10, priority=5)]
    bench = Bench(*works, on=cluster(1, 1), policy=registry.make("priority"))
    plan = bench.feed(0, Submitted(0), Submitted(1))
    assert plan is not None
    assert plan.actions == [Start(1, 1, on(1))]
    bench.feed(0, Started(1, 1))
    plan = bench.feed(2, Command(0, "priority", 9))
    assert plan is not None
    assert plan.actions == [Stop(1, 1), Start(0, 1, on(1), (1,))]


def test_a_cancelled_pending_job_is_never_started() -> None:
    bench = Bench(job("a", size=4), job("b", size=4), policy=registry.make("fifo"))
    bench.feed(0, Submitted(0), Submitted(1))
    bench.feed(0, Started(0, 1))
    bench.feed(1, Command(1, "cancel"))
    plan = bench.feed(5, Finished(0, 1))
    assert bench.phase(1) == Phase.CANCELLED
    assert plan is None or plan.actions == []


def test_a_running_job_can_be_cancelled() -> None:
    bench = running()
    bench.feed(3, Command(0, "cancel"))
    assert bench.phase() in (Phase.STOPPING, Phase.CANCELLED)


# ---------------------------------------------------------------------- nodes


def test_a_node_goes_and_its_job_waits_for_another() -> None:
    bench = Bench(job("a", size=4), on=cluster(2, 4), policy=registry.make("fifo"))
    bench.feed(0, Submitted(0))
    bench.feed(0, Started(0, 1))
    plan = bench.feed(5, Failed(0, 1, 0.0, "NodeFail"), NodeDown(0))
    assert plan is not None
    assert plan.actions == [Start(0, 2, on(0b1111, node=1))]


# ---------------------------------------------------------------------- parents and children


def family(trials: int = 8) -> list[Work]:
    """A tuning job with 4 GPUs, and its trials of one GPU and 5 s each."""
    children = [job(f"trial {i}", 0, 5, parent="sweep") for i in range(trials)]
    return [job("sweep", 0, None, size=4, kind=Kind.TUNE), *children]


class Nested:
    """The ordered queue outside, and inside every parent's grant."""

    name = "nested"

    def __init__(self, inner: str = "fifo", outer: str = "fifo") -> None:
        self._inner, self._outer = registry.make(inner), registry.make(outer)

    def decide(self, view: View, memory: None) -> tuple[Plan, None]:
        """Each grant's own queue first, then the cluster's."""
        wake = NEVER
        for parent in view.parents:
            inside = view.inside(parent)
            if inside is not None:
                wake = min(wake, self._inner.decide(inside, None)[0].wake)
        plan = self._outer.decide(view, None)[0]
        plan.wake, plan.until = min(plan.wake, wake), 127
        return plan, None


def test_eight_trials_share_their_parents_four_gpus_in_two_waves() -> None:
    other = job("other", 1, 30, size=4)
    run = play(Nested(), [*family(), other], cluster(1, 8))
    starts = [run.started(f"trial {i}") for i in range(8)]
    assert starts == [0, 0, 0, 0, 5, 5, 5, 5]
    assert run.phase("sweep") == "finished"
    assert run.ended("sweep") == 10, "when its last trial is over"
    assert run.started("other") == 1, "beside the grant, not inside it"


def test_what_happens_to_a_trial_is_heard_inside_its_grant_and_not_outside() -> None:
    bench = Bench(*(work for work in family(1)))
    bench.feed(0, Submitted(0), Submitted(1), then=[Start(0, 1, on(0b1111))])
    bench.feed(0, Started(0, 1), then=[Start(1, 1, on(0b0001))])
    bench.feed(0, Started(1, 1))
    bench.policy.next = Plan(until=QUEUED)
    bench.kernel.step(Batch(1, [Woke()]))
    bench.kernel.wake = NEVER
    bench.kernel.until = 0
    bench.kernel.step(Batch(2, [Finished(1, 1)]))
    inside = bench.kernel.view.inside(0)
    assert inside is not None
    assert (inside.changed, bench.kernel.view.changed) == ([1], [])


def test_trials_never_leave_their_parents_gpus() -> None:
    run = play(Nested(), family(6), cluster(1, 8))
    inside = [text for _, text in run.actions if text.startswith("start trial")]
    assert {text.split("0:")[1] for text in inside} == {"0", "1", "2", "3"}


# ---------------------------------------------------------------------- a service


class Serving:
    """Training in order of arrival; the service grows to 3 replicas at 4 s, shrinks at 8 s."""

    name = "serving"

    def __init__(self) -> None:
        self._queue = registry.make("fifo")

    def decide(self, view: View, memory: None) -> tuple[Plan, None]:
        """Resize through the draft, then let the queue fill what is left."""
        service = 0
        wanted = 3 if 4 * SECOND <= view.now < 8 * SECOND else 1
        held = view.draft.holds(service)
        if view.jobs.phase[service] == Phase.RUNNING and held is not None:
            have = sum(slot.workers for slot in held)
            if have != wanted:
                mark = view.draft.mark()
                view.draft.stop(service)
                place = view.ledger.find(view.draft.shape(service), (wanted,))
                view.draft.rollback(mark)
                if place is not None:
                    view.draft.resize(service, place)
        plan = self._queue.decide(view, None)[0]
        plan.wake = min([at for at in (4 * SECOND, 8 * SECOND) if at > view.now], default=NEVER)
        plan.until = 127
        return plan, None


def test_a_service_is_resized_beside_training_and_has_no_end() -> None:
    replicas = Shape((Role("replica", 1, least=1, most=3),))
    works = [
        job("web", 0, None, shape=replicas, kind=Kind.SERVE),
        job("train 1", 0, 6, size=2),
        job("train 2", 5, 4, size=2),
    ]
    run = play(Serving(), works, cluster(1, 5), until=60 * SECOND)
    assert run.phase("web") == "running"
    assert (
        run.text()
        == """\
0: start web on 0:0; start train 1 on 0:1,2
4: resize web on 0:0,3,4 after web
6: start train 2 on 0:1,2
8: resize web on 0:0 after web"""
    )
    assert [run.ended(name) for name in ("train 1", "train 2")] == [6, 10]
    assert run.kernel.jobs.restarts[0] == 2


def test_what_an_old_attempt_kept_counts_once_however_often_it_is_told() -> None:
    bench = running(job("a", lasts=100, size=2))
    bench.feed(4, Woke(), then=[Resize(0, 2, on(0b1100))])
    bench.feed(5, Released(0, 1, 3 * SECOND), Started(0, 2))
    bench.feed(9, Released(0, 1, 3 * SECOND))
    bench.feed(10, Progressed(0, 2, 8 * SECOND, 1.0))
    bench.feed(11, Released(0, 1, 3 * SECOND))
    assert bench.jobs.work[0] == 8 * SECOND


# ---------------------------------------------------------------------- one instant


def test_what_a_policy_did_not_wait_for_is_not_forgotten_when_it_is_handed_over() -> None:
    """A change that the old policy was not asked about is told to the one that takes its place."""
    bench = Bench(job("a"))
    bench.policy.next = Plan(until=QUEUED)
    bench.kernel.step(Batch(0, [NodeDown(0)]))
    assert bench.kernel.step(Batch(1, [NodeUp(0)])) is None
    kept = capture(bench.kernel)
    assert kept.changes == CAPACITY_FREED


def test_decisions_are_counted_and_leave_nothing_to_undo() -> None:
    bench = running()
    bench.feed(1, Woke(), then=[Stop(0, 1), Start(1, 1, on(0b0011), (0,))])
    assert bench.kernel.decisions == 3
    assert bench.kernel.ledger.mark() == 0, "what was decided stands"
    again = restore(capture(bench.kernel), bench.kernel.nodes, bench.policy)
    assert again.ledger.mark() == 0


def test_a_long_run_is_not_one_in_which_time_stands_still(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ganger.core.kernel.RESTLESS", 5)
    works = [job(f"j{i}", at=i, lasts=1) for i in range(30)]
    assert play("fifo", works).jct() == [1] * 30


def test_an_evaluation_of_an_attempt_that_is_over_is_not_heard() -> None:
    bench = running()
    bench.policy.next = Plan(until=QUEUED)
    bench.kernel.step(Batch(1 * SECOND, [Woke()]))
    bench.kernel.step(Batch(2 * SECOND, [Evaluated(0, 7, 1.0, 0.5)]))
    assert bench.kernel.view.changed == []
    bench.kernel.step(Batch(3 * SECOND, [Evaluated(0, 1, 1.0, 0.5)]))
    assert bench.kernel.view.changed == [0]


def test_books_that_do_not_add_up_are_found() -> None:
    bench = running()
    bench.kernel.ledger.free_mask[0] |= 0b0001
    with pytest.raises(InvariantError):
        bench.feed(1, Woke())


def test_a_ladder_of_diamonds_is_checked_once_through() -> None:
    """There are 2^40 ways down; each job is looked at once."""
    works = [job("top")]
    for level in range(40):
        above = ("top",) if not level else (f"l{level - 1}", f"r{level - 1}")
        works += [job(f"{side}{level}", after=above) for side in "lr"]
    assert len(trace_of(works).declared.after) == 80


# ---------------------------------------------------------------------- the books are read


def stop_and_roll_back(view: View) -> None:
    view.draft.stop(0)
    view.ledger.rollback(0)


FORBIDDEN: dict[str, Callable[[View], object]] = {
    "take": lambda view: view.ledger.take(1, view.draft.shape(1), on(0b1100)),
    "give": lambda view: view.ledger.give(0),
    "free up": lambda view: view.ledger.free_up(0),
    "gone": lambda view: view.ledger.gone(0, on(0b0011)),
    "switch": lambda view: view.ledger.switch(0, up=False),
    "withhold": lambda view: view.ledger.withhold(0, 1),
    "count out": lambda view: view.ledger.count_out(0, 0b1000),
    "count in": lambda view: view.ledger.count_in(0, 0b1000),
    "settle": lambda view: view.ledger.settle(),
    "roll back": stop_and_roll_back,
}


@pytest.mark.parametrize("how", FORBIDDEN)
def test_a_policy_cannot_write_the_books_and_they_are_as_they_were(how: str) -> None:
    bench = running()
    before = capture(bench.kernel)

    def decide(view: View, memory: None) -> tuple[Plan, None]:
        FORBIDDEN[how](view)
        return view.draft.plan(), None

    bench.kernel.policy.decide = decide  # type: ignore[method-assign]
    with pytest.raises(InvariantError, match="cannot write the books"):
        bench.kernel.step(Batch(bench.kernel.now, [Woke()]))
    after = capture(bench.kernel)
    assert (after.holds, after.letting_go) == (before.holds, before.letting_go)
    bench.kernel.ledger.check()
    assert bench.kernel.ledger.free == 2


def test_what_a_refused_policy_drew_is_not_in_the_next_plan() -> None:
    """It stops a job as it may, and books another as it may not."""
    bench = running()

    def wrong(view: View, memory: None) -> tuple[Plan, None]:
        view.draft.stop(0)
        view.ledger.take(1, view.draft.shape(1), on(0b1100))
        return view.draft.plan(), None

    def right(view: View, memory: None) -> tuple[Plan, None]:
        view.draft.start(1, on(0b1100))
        return view.draft.plan(), None

    bench.kernel.policy.decide = wrong  # type: ignore[method-assign]
    with pytest.raises(InvariantError, match="cannot write the books"):
        bench.kernel.step(Batch(bench.kernel.now, [Woke()]))
    bench.kernel.policy.decide = right  # type: ignore[method-assign]
    plan = bench.kernel.step(Batch(bench.kernel.now, [Woke()]))
    assert plan is not None
    assert plan.actions == [Start(1, 1, on(0b1100))]


def test_a_search_may_leave_nodes_and_devices_out_for_a_while() -> None:
    bench = running()
    ledger = bench.kernel.ledger
    ledger.deciding = True
    with ledger.hidden([0]):
        assert ledger.find(job("x").spec.shape) is None
    with ledger.without({0: 0b0100}):
        assert ledger.find(job("x").spec.shape) == on(0b1000)
        assert ledger.find(job("x", size=2).spec.shape) is None
    assert ledger.find(job("x", size=2).spec.shape) == on(0b1100)
