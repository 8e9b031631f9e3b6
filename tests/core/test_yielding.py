"""Policies that suspend jobs in turns: each keeps its memory, and one of them computes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench import Bench
from ganger.core.books.draft import Draft
from ganger.core.books.ledger import Ledger
from ganger.core.errors import InvariantError
from ganger.core.events import Command, Failed, Finished, NodeDown, Released, Started, Submitted
from ganger.core.plan import Placement, Plan, Resize, Resume, Slot, Start, Stop, Suspend
from ganger.core.spec import ClusterSpec, GpuType, Kind, Needs, NodeSpec, Role, Shape
from ganger.core.state.jobs import Phase
from ganger.core.state.snapshot import Snapshot, capture, forget, restore
from ganger.core.units import SECOND, WHOLE
from ganger.core.view import View
from worlds import job

TYPES = (GpuType("A", memory=16_000),)
ONE: Placement = (Slot(0, 1, 1),)
OTHER: Placement = (Slot(0, 2, 1),)


class Drawing:
    """A policy that draws what it is told to next."""

    name = "drawing"

    def __init__(self) -> None:
        self.next: Callable[[Draft], Any] = lambda draft: None
        self.said: list[Any] = []

    def decide(self, view: View, memory: None) -> tuple[Plan, None]:
        """What was drawn; what the drawing returned is in `said`."""
        self.said.append(self.next(view.draft))
        return view.draft.plan(), None


def needing(mib: int) -> Shape:
    """A worker of one GPU that says how much of its memory it needs."""
    return Shape((Role(needs=Needs(gpu_memory=mib)),))


def turns(each: int = 2) -> tuple[Bench, Drawing]:
    """Jobs a and b want the one GPU, or one of `each`; a runs from 0 s on."""
    policy = Drawing()
    nodes = (NodeSpec(gpus=each, gpu_type="A"),)
    works = [job(name, shape=needing(6000)) for name in "abc"]
    bench = Bench(*works, on=ClusterSpec(nodes, TYPES), policy=policy)
    policy.next = lambda draft: draft.start(0, ONE)
    bench.feed(0, *map(Submitted, range(3)))
    policy.next = lambda draft: None
    bench.feed(0, Started(0, 1))
    return bench, policy


def drawn(bench: Bench, policy: Drawing, at: float, draw: Callable[[Draft], Any]) -> list[Any]:
    """The actions of what the policy draws at `at` seconds."""
    policy.next = draw
    plan = bench.feed(at, Command(2, "priority", at))
    policy.next = lambda draft: None
    assert plan is not None
    return plan.actions


def one_after_the_other(out: int, into: int) -> Callable[[Draft], None]:
    """The one sleeps, and the other computes there: it resumes if it can, or starts."""

    def draw(draft: Draft) -> None:
        draft.suspend(out)
        if not draft.resume(into):
            draft.start(into, ONE)

    return draw


def swapped() -> tuple[Bench, Drawing]:
    """At 10 s b has the GPU of a, which sleeps."""
    bench, policy = turns()
    actions = drawn(bench, policy, 10, one_after_the_other(0, 1))
    assert actions == [Suspend(0, 1, yields=True), Start(1, 1, ONE)]
    bench.feed(10, Started(1, 1))
    return bench, policy


def test_two_jobs_take_turns_on_one_gpu_without_a_restart() -> None:
    bench, policy = swapped()
    assert (bench.phase(0), bench.phase(1)) == (Phase.SUSPENDED, Phase.RUNNING)
    assert bench.kernel.view.resumable == {0}
    actions = drawn(bench, policy, 15, one_after_the_other(1, 0))
    assert actions == [Suspend(1, 1, yields=True), Resume(0, 1)]
    assert (bench.phase(0), bench.phase(1)) == (Phase.RUNNING, Phase.SUSPENDED)
    assert (bench.kernel.view.resumable, bench.kernel.ledger.asleep) == ({1}, {1})
    bench.feed(20, Finished(0, 1))
    assert bench.jobs.held[:2].tolist() == [15 * SECOND, 5 * SECOND]
    assert bench.jobs.attempt[:2].tolist() == [1, 1]


def test_nobody_resumes_where_another_computes_or_has_yet_to_let_go() -> None:
    bench, policy = swapped()
    assert drawn(bench, policy, 11, lambda draft: draft.resume(0)) == []
    assert drawn(bench, policy, 12, lambda draft: (draft.stop(1), draft.resume(0))) == [
        Stop(1, 1, "preempted")
    ]
    assert [policy.said[-2], policy.said[-1]] == [(ONE, False)] * 2  # decided twice, to compare
    bench.feed(13, Released(1, 1))
    assert drawn(bench, policy, 14, lambda draft: draft.resume(0)) == [Resume(0, 1)]


def test_nobody_resumes_on_a_node_that_is_down() -> None:
    bench, policy = swapped()
    bench.feed(11, Finished(1, 1), NodeDown(0))
    assert drawn(bench, policy, 12, lambda draft: draft.resume(0)) == []


def test_whom_people_suspended_no_policy_resumes() -> None:
    bench, policy = turns()
    bench.feed(5, Command(0, "suspend"))
    assert bench.kernel.view.resumable == set()
    assert drawn(bench, policy, 6, lambda draft: draft.resume(0)) == []
    bench.feed(7, Command(0, "resume"))
    assert bench.phase(0) == Phase.RUNNING


def test_whom_people_suspend_once_more_stays_suspended() -> None:
    """What they said before counts no more."""
    bench, _ = turns()
    for at in (5, 7):
        bench.feed(at, Command(0, "suspend"))
        assert bench.phase(0) == Phase.SUSPENDED
        bench.feed(at + 1, Command(0, "resume"))
        assert bench.phase(0) == Phase.RUNNING


def test_people_have_the_last_word_on_whom_a_policy_suspended() -> None:
    """They say nothing new with `resume`: a is in its turn already. After `suspend` it is in
    none, until they lift that."""
    bench, policy = swapped()
    bench.feed(11, Command(0, "resume"))
    bench.feed(12, Finished(1, 1))
    assert bench.phase(0) == Phase.SUSPENDED
    bench.feed(13, Command(0, "suspend"))
    assert drawn(bench, policy, 14, lambda draft: draft.resume(0)) == []
    plan = bench.feed(15, Command(0, "resume"))
    assert plan is not None
    assert plan.actions == [Resume(0, 1)]


def test_a_policy_may_resume_whom_people_want_to_go_on() -> None:
    bench, policy = turns()
    bench.feed(5, Command(0, "suspend"))
    drawn(bench, policy, 6, lambda draft: draft.start(1, ONE))
    bench.feed(6, Started(1, 1))
    bench.feed(7, Command(0, "resume"))
    assert bench.kernel.view.resumable == {0}
    actions = drawn(bench, policy, 8, one_after_the_other(1, 0))
    assert actions == [Suspend(1, 1, yields=True), Resume(0, 1)]
    assert bench.kernel.view.resumable == {1}


def _stop_and_let_it_go_on(draft: Draft) -> None:
    draft.suspend(0)
    draft.restore(0, draft.stop(0))


def _undone(draft: Draft) -> None:
    mark = draft.mark()
    draft.suspend(0)
    draft.start(1, ONE)
    draft.rollback(mark)


@pytest.mark.parametrize(
    ("draw", "actions"),
    [
        (lambda draft: (draft.suspend(0), draft.resume(0)), []),
        (_undone, []),
        (_stop_and_let_it_go_on, [Suspend(0, 1, yields=True)]),
        (lambda draft: (draft.suspend(0), draft.stop(0)), [Stop(0, 1, "preempted")]),
        (lambda draft: (draft.stop(0), draft.start(0, ONE)), []),
        (
            lambda draft: (draft.suspend(0), draft.resize(0, OTHER)),
            [Resize(0, 2, OTHER)],
        ),
        (
            lambda draft: (draft.stop(0), draft.start(0, ONE), draft.suspend(0)),
            [Suspend(0, 1, yields=True)],
        ),
    ],
)
def test_of_all_that_is_drawn_of_a_running_job_the_net_effect_counts(
    draw: Callable[[Draft], Any], actions: list[Any]
) -> None:
    bench, policy = turns()
    assert drawn(bench, policy, 10, draw) == actions


def _stop_asleep_then(draft: Draft, *, resume: bool) -> None:
    draft.restore(0, draft.stop(0))
    if resume:
        draft.resume(0)


@pytest.mark.parametrize(
    ("draw", "actions"),
    [
        (lambda draft: draft.resume(0), [Resume(0, 1)]),
        (lambda draft: _stop_asleep_then(draft, resume=False), []),
        (lambda draft: _stop_asleep_then(draft, resume=True), [Resume(0, 1)]),
        (lambda draft: (draft.resume(0), draft.stop(0)), [Stop(0, 1, "preempted")]),
        (
            lambda draft: (draft.resume(0), draft.restore(0, draft.stop(0))),
            [Resume(0, 1)],
        ),
        (lambda draft: (draft.stop(0), draft.start(0, ONE)), [Resize(0, 2, ONE, (0,))]),
    ],
)
def test_of_all_that_is_drawn_of_a_sleeping_job_the_net_effect_counts(
    draw: Callable[[Draft], Any], actions: list[Any]
) -> None:
    bench, policy = swapped()
    bench.feed(12, Finished(1, 1))
    assert drawn(bench, policy, 14, draw) == actions


@pytest.mark.parametrize(
    ("draw", "error"),
    [
        (lambda draft: draft.suspend(1), "job 1 cannot be suspended"),
        (lambda draft: (draft.suspend(0), draft.suspend(0)), "job 0 yields no compute"),
        (lambda draft: (draft.resize(0, OTHER), draft.suspend(0)), "job 0 begins anew"),
    ],
)
def test_only_who_runs_is_suspended(draw: Callable[[Draft], Any], error: str) -> None:
    bench, policy = turns()
    with pytest.raises(InvariantError, match=error):
        drawn(bench, policy, 10, draw)


def test_no_policy_suspends_a_search_under_its_trials() -> None:
    policy = Drawing()
    policy.next = lambda draft: draft.start(0, ONE)
    bench = Bench(
        job("search", shape=needing(8000), kind=Kind.TUNE),
        on=ClusterSpec((NodeSpec(gpus=1, gpu_type="A"),), TYPES),
        policy=policy,
    )
    bench.feed(0, Submitted(0))
    policy.next = lambda draft: draft.suspend(0)
    with pytest.raises(InvariantError, match="cannot be suspended"):
        bench.feed(1, Started(0, 1))


def test_a_restored_kernel_knows_whom_the_policy_may_resume() -> None:
    bench, policy = swapped()
    kept = msgspec.msgpack.decode(msgspec.msgpack.encode(capture(bench.kernel)), type=Snapshot)
    assert kept.resumable == [0]
    again = restore(kept, bench.kernel.nodes, policy)
    assert (again.view.resumable, capture(again)) == ({0}, capture(bench.kernel))


def test_under_another_policy_whoever_sleeps_goes_on_once_nobody_computes_there() -> None:
    bench, _ = swapped()
    bench.kernel = restore(
        forget(capture(bench.kernel)), bench.kernel.nodes, Drawing(), validate=True
    )
    bench.feed(11, Command(2, "priority", 1.0))
    assert bench.kernel.jobs.phase[0] == Phase.SUSPENDED
    plan = bench.feed(12, Finished(1, 1))
    assert plan is not None
    assert plan.actions == [Resume(0, 1)]


@pytest.mark.parametrize("ends", [Failed(0, 1, 0.0, "NodeFail"), Released(0, 1)])
def test_who_breaks_in_its_sleep_is_no_more_to_be_resumed(ends: Failed | Released) -> None:
    bench, _ = swapped()
    bench.feed(11, ends)
    assert (bench.phase(0), bench.kernel.view.resumable) == (Phase.PENDING, set())
    assert bench.kernel.ledger.asleep == set()


# ---------------------------------------------------------------------- any drawing

STEPS = st.lists(
    st.tuples(
        st.sampled_from(["suspend", "resume", "stop", "start", "restore", "mark", "undo"]),
        st.integers(0, 3),
        st.sampled_from([ONE, OTHER]),
    ),
    max_size=14,
)


def _books(ledger: Ledger) -> tuple[Any, ...]:
    held = {job: placement for job, (_, placement) in ledger.holds.items()}
    shared = [
        {device: part for device, part in sorted(node.items()) if part[0] < WHOLE}
        for node in ledger.shared
    ]  # a whole device is the same however it was taken
    return held, set(ledger.asleep), list(ledger.free_mask), shared


def _any(draft: Draft, steps: list[tuple[str, int, Placement]], ledger: Ledger) -> None:
    """Draw what can be drawn of `steps`; what was undone leaves nothing behind."""
    marks: list[tuple[int, tuple[Any, ...], dict[int, Placement]]] = []
    stopped: dict[int, Placement] = {}
    for verb, number, placement in steps:
        at = draft.mark()
        before = _books(ledger)
        if verb == "mark":
            marks.append((at, before, dict(stopped)))
            continue
        if verb == "undo":
            if marks:
                mark, there, stopped = marks.pop()
                draft.rollback(mark)
                assert _books(ledger) == there
            continue
        try:
            if verb == "suspend":
                draft.suspend(number)
            elif verb == "resume":
                draft.resume(number)
            elif verb == "stop":
                stopped[number] = draft.stop(number)
            elif verb == "restore" and number in stopped:
                draft.restore(number, stopped[number])
                del stopped[number]
            elif verb == "start":
                draft.start(number, placement)
                stopped.pop(number, None)
        except (InvariantError, KeyError):
            draft.rollback(at)
            assert _books(ledger) == before
        ledger.check()


@given(STEPS, STEPS)
@settings(max_examples=150, deadline=None)
def test_any_drawing_is_booked_as_it_was_drawn_and_undone_without_a_trace(
    first: list[tuple[str, int, Placement]], then: list[tuple[str, int, Placement]]
) -> None:
    """Two GPUs, four jobs. In `validate` mode the plan's actions alone are booked anew; that gives
    the books that were drawn."""
    policy = Drawing()
    works = [job(name, shape=needing(mib)) for name, mib in zip("abcd", (4000,) * 4, strict=True)]
    bench = Bench(*works, on=ClusterSpec((NodeSpec(gpus=2, gpu_type="A"),), TYPES), policy=policy)
    ledger = bench.kernel.ledger

    def both(draft: Draft) -> None:
        draft.start(0, ONE)
        draft.start(1, OTHER)

    policy.next = both
    bench.feed(0, *map(Submitted, range(4)))
    policy.next = lambda draft: None
    bench.feed(1, Started(0, 1), Started(1, 1))
    now = 1.0
    for steps in (first, then):
        found: list[tuple[Any, ...]] = []

        def draw(draft: Draft, steps: Any = steps, found: Any = found) -> None:
            clean = _books(ledger)
            _any(draft, steps, ledger)
            found.append(_books(ledger))
            draft.rollback()
            assert _books(ledger) == clean
            draft.clear()
            _any(draft, steps, ledger)

        policy.next = draw
        now += 1.0
        try:
            plan = bench.feed(now, Command(3, "priority", now))
        except InvariantError:  # it began anew, and was suspended
            return
        assert plan is not None
        assert _books(ledger) == found[-1]
        policy.next = lambda draft: None
        stops = [Released(a.job, a.attempt) for a in plan.actions if isinstance(a, Stop)]
        stops += [Released(a.job, a.attempt - 1) for a in plan.actions if isinstance(a, Resize)]
        if stops:
            bench.feed(now, *stops)
        starts = [Started(a.job, a.attempt) for a in plan.actions if isinstance(a, Start | Resize)]
        if starts:
            bench.feed(now, *starts)
