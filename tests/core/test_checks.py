"""What `validate` finds out, and what is of no consequence and so asks nobody."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from bench import Bench, on, running
from ganger.core.errors import InvariantError
from ganger.core.events import (
    AnyEvent,
    Command,
    Failed,
    Finished,
    Refused,
    Released,
    Started,
    Submitted,
    Woke,
)
from ganger.core.kernel import Kernel
from ganger.core.plan import Plan, Resize, Slot, Start, Stop
from ganger.core.spec import ClusterSpec, Kind, Needs, NodeSpec, Role, Shape
from ganger.core.state.invariants import check_state
from ganger.core.state.jobs import Phase
from ganger.core.units import SECOND
from ganger.core.view import View
from ganger.recipes import registry
from worlds import job, play

PART = Shape((Role(needs=Needs(share=600)),))
CORES = Shape((Role(needs=Needs(cpus=1000)),))
NODE = ClusterSpec((NodeSpec(gpus=6, gpu_type="V100", cpus=8000),))


def busy() -> Kernel:
    """A search on GPUs 0 and 1 with one trial on GPU 0; a part of GPU 2; GPU 3 with a core; one
    more trial, one more part and one more gang wait."""
    bench = Bench(
        job("search", size=2, kind=Kind.TUNE),
        job("trial", parent="search"),
        job("part", shape=PART),
        job("core", shape=CORES),
        job("other trial", parent="search"),
        job("other part", shape=PART),
        job("gang", size=2),
        on=NODE,
    )
    part = (Slot(0, 0b100, 1, share=600),)
    starts = [Start(0, 1, on(0b11)), Start(2, 1, part), Start(3, 1, on(0b1000))]
    bench.feed(0, *map(Submitted, range(7)), then=starts)
    bench.feed(0, Started(0, 1), Started(2, 1), Started(3, 1), then=[Start(1, 1, on(0b01))])
    bench.feed(0, Started(1, 1))
    kernel = bench.kernel
    kernel.ledger.columns(kernel.ledger.cells[0])
    check_state(kernel)
    return kernel


def hold(inner: bool, job: int, mask: int, share: int = 0) -> Callable[[Kernel], None]:
    """A job holds devices beside the books."""

    def cook(kernel: Kernel) -> None:
        ledger = kernel.grants.inner[0] if inner else kernel.ledger
        shape = kernel.jobs.shapes[kernel.jobs.shape[job]]
        ledger.holds[job] = (shape, (Slot(0, mask, mask.bit_count(), share=share),))

    return cook


def put(column: str, job: int, value: float) -> Callable[[Kernel], None]:
    """Another value in the table."""

    def cook(kernel: Kernel) -> None:
        getattr(kernel.jobs, column)[job] = value

    return cook


def _free(kernel: Kernel) -> None:
    kernel.ledger.free_mask[0] ^= 0b1000


def _inner_free(kernel: Kernel) -> None:
    kernel.grants.inner[0].free_mask[0] ^= 0b10


def _misfiled(kernel: Kernel) -> None:
    by_free = kernel.ledger.cells[0].by_free
    by_free[1], by_free[2] = by_free[2], by_free[1]


def _miscounted(kernel: Kernel) -> None:
    kernel.ledger.cells[0].free += 1


def _column(name: str) -> Callable[[Kernel], None]:
    def cook(kernel: Kernel) -> None:
        columns = kernel.ledger.cells[0].columns
        assert columns is not None
        getattr(columns, name)[0] += 1

    return cook


def _cpus(kernel: Kernel) -> None:
    """A core that nobody holds and that is not free."""
    kernel.ledger.free_cpus[0] -= 1000


def _memory(kernel: Kernel) -> None:
    kernel.ledger.free_memory[0] += 1


def _dozing(kernel: Kernel) -> None:
    kernel.ledger.cells[0].dozing += 1


def _pending(kernel: Kernel) -> None:
    kernel.grants.top.pending.remove(6)


def _active(kernel: Kernel) -> None:
    kernel.grants.top.active.add(6)


def _outside(kernel: Kernel) -> None:
    """The trial's GPU is its parent's no longer."""
    shape, _ = kernel.ledger.holds[0]
    kernel.ledger.holds[0] = (shape, on(0b11_0000))
    kernel.ledger.free_mask[0] ^= 0b11_0011


@pytest.mark.parametrize(
    ("cook", "error"),
    [
        (_free, "free 0b11"),
        (_inner_free, "node 0: free"),
        (_misfiled, "is filed under"),
        (_miscounted, "counts 3 free GPUs, has 2"),
        *((_column(name), f"column {name}") for name in ("gpus", "cpus", "share", "empty")),
        (hold(False, 6, 0b1001), "shares whole devices"),
        (hold(False, 5, 0b100, 600), "over its capacity"),
        (hold(False, 5, 0b1000, 600), "over its capacity"),
        (_cpus, "CPUs or host memory"),
        (_memory, "CPUs or host memory"),
        (_dozing, "idle GPUs"),
        (_outside, "the grant of job 0 is not what it holds"),
        (put("phase", 3, Phase.STOPPING), "job 3 holds devices while STOPPING"),
        (put("phase", 3, Phase.FINISHED), "job 3 holds devices while FINISHED"),
        (put("phase", 6, Phase.BLOCKED), "the pending set"),
        (_pending, "the pending set"),
        (_active, "the active set"),
        (put("size", 6, 2), "is not running counts GPUs"),
        *(
            (put(name, 6, -1), f"{name} is negative")
            for name in ("ran", "held", "pended", "lost", "work")
        ),
        (put("work", 6, float("inf")), "work is negative or not finite"),
        (put("served", 6, 1), "job 6 executed more than it held"),
        (put("submitted", 3, 1), "job 3 started before it was submitted"),
    ],
)
def test_whatever_does_not_agree_is_found(cook: Callable[[Kernel], None], error: str) -> None:
    kernel = busy()
    cook(kernel)
    with pytest.raises(InvariantError, match=error):
        check_state(kernel)


def test_a_gang_that_is_torn_is_found() -> None:
    kernel = running().kernel
    kernel.ledger.give(0)
    kernel.ledger.take(0, kernel.jobs.shapes[0], on(0b01))
    with pytest.raises(InvariantError, match="runs 1 workers; it needs 2 to 2"):
        check_state(kernel)


def test_state_is_checked_after_every_step_where_that_is_wanted_and_nowhere_else() -> None:
    for validate in (False, True):
        kernel = running().kernel
        kernel.validate = validate
        kernel.jobs.ran[1] = -5
        bench = Bench(job("a"))
        bench.kernel = kernel
        if validate:
            with pytest.raises(InvariantError, match="ran is negative"):
                bench.feed(1, Woke())
        else:
            assert bench.feed(1, Woke()) is not None


class Twice:
    """Decides anew whenever it is asked."""

    name = "twice"
    asked = 0

    def decide(self, view: View, memory: None) -> tuple[Plan, None]:
        """Nothing."""
        self.asked += 1
        return Plan(), None


@pytest.mark.parametrize(("validate", "asked"), [(True, 2), (False, 1)])
def test_a_decision_is_made_twice_only_to_compare(validate: bool, asked: int) -> None:
    policy = Twice()
    bench = Bench(job("a"), policy=policy)
    bench.kernel.validate = validate
    bench.feed(0, Submitted(0))
    assert policy.asked == asked


@pytest.mark.parametrize(("validate", "made"), [(True, 2), (False, 1)])
def test_a_plan_is_booked_from_its_actions_alone_only_to_compare(
    validate: bool, made: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    starts: list[int] = []
    from ganger.core.books.draft import Draft

    take = Draft._take

    def count(draft: Draft, job: int, placement: tuple[Slot, ...]) -> None:
        starts.append(job)
        take(draft, job, placement)

    monkeypatch.setattr(Draft, "_take", count)
    play("fifo", [job("a")], validate=validate)
    # Once for the decision, again for the second decision, again from the plan.
    assert len(starts) == (3 if validate else 1), made


# ---------------------------------------------------------------------- of no consequence


@pytest.mark.parametrize(
    "news",
    [
        Started(0, 2),
        Started(0, 1),
        Finished(0, 2),
        Finished(1, 0),
        Failed(0, 2),
        Failed(1, 0),
        Released(0, 2),
        Released(1, 0),
        Refused(0, 1),
        Refused(0, 2),
        Refused(1, 0),
    ],
    ids=str,
)
def test_late_and_odd_news_asks_nobody(news: AnyEvent) -> None:
    bench = running()
    asked = bench.policy.asked
    assert bench.feed(3, news) is None
    assert bench.policy.asked == asked


def test_who_has_to_wait_for_others_asks_nobody() -> None:
    bench = Bench(job("a"), job("b", after=("a",)))
    assert bench.feed(0, Submitted(1)) is None
    assert bench.phase(1) == Phase.BLOCKED


def test_a_stop_of_what_holds_nothing_changes_nothing() -> None:
    kernel = running().kernel
    assert kernel._stop_now(1, "parent") == 0
    assert kernel._orders == []
    assert kernel._cancel_children(0) == 0


def test_a_parent_whose_trials_are_all_over_ends_without_asking_for_them() -> None:
    bench = Bench(job("search", size=2, kind=Kind.TUNE), job("t", parent="search"))
    bench.feed(0, Submitted(0), Submitted(1), then=[Start(0, 1, on(0b11))])
    bench.feed(0, Started(0, 1), then=[Start(1, 1, on(0b01))])
    bench.feed(0, Started(1, 1))
    bench.feed(1, Finished(1, 1))
    assert bench.kernel._cancel_children(0) == 0


def test_who_was_cancelled_while_it_waited_for_another_does_not_come_when_that_is_done() -> None:
    bench = running(job("a", size=2), job("b", size=2, after=("a",)))
    bench.feed(1, Command(1, "cancel"))
    assert bench.phase(1) == Phase.CANCELLED
    assert bench.kernel.blockers == {}
    bench.feed(2, Finished(0, 1))
    assert bench.phase(1) == Phase.CANCELLED


@pytest.mark.parametrize(
    "news",
    [
        [Released(0, 1)],
        [Failed(0, 1)],
        [Finished(0, 1)],
        [Command(0, "requeue")],
        [Command(0, "cancel"), Released(0, 1)],
    ],
    ids=str,
)
def test_who_does_not_run_makes_no_headway(news: list[AnyEvent]) -> None:
    bench = running()
    assert bench.jobs.rate[0] == 1
    for at, each in enumerate(news, 2):
        bench.feed(at, each)
    assert bench.jobs.rate[0] == 0


def test_who_changes_its_size_makes_no_headway_before_it_has_started_again() -> None:
    elastic = Shape((Role(size=2, least=1, most=4),))
    bench = running(job("a", shape=elastic))
    bench.feed(1, Woke(), then=[Resize(0, 2, on(0b0100), (0,))])
    assert bench.jobs.rate[0] == 0
    bench = running(job("a", shape=elastic))
    bench.feed(1, Woke(), then=[Stop(0, 1)])
    assert bench.jobs.rate[0] == 0


# ---------------------------------------------------------------------- since when who waits


def test_a_job_on_hold_waits_since_it_was_held_and_again_since_it_was_released() -> None:
    """An account of it can be asked for meanwhile; only time in the queue counts as waited."""
    bench = Bench(job("a"))
    bench.feed(0, Submitted(0))
    bench.feed(4, Command(0, "hold"))
    assert (bench.jobs.pending_since[0], bench.jobs.pended[0]) == (4 * SECOND, 4 * SECOND)
    bench.feed(7, Command(0, "release"))
    assert bench.jobs.pending_since[0] == 7 * SECOND
    bench.feed(9, Woke(), then=[Start(0, 1, on(1))])
    assert bench.jobs.pended[0] == 6 * SECOND


def test_who_waits_for_another_waits_since_it_was_submitted_and_then_since_it_may_run() -> None:
    bench = Bench(job("a"), job("b", after=("a",)))
    bench.feed(0, Submitted(0), then=[Start(0, 1, on(1))])
    bench.feed(1, Started(0, 1), Submitted(1))
    assert bench.jobs.pending_since[1] == SECOND
    bench.feed(5, Finished(0, 1))
    assert bench.jobs.pending_since[1] == 5 * SECOND


def test_who_is_requeued_on_hold_waits_since_then() -> None:
    bench = running()
    bench.feed(2, Command(0, "hold"))
    bench.feed(3, Command(0, "requeue"))
    bench.feed(5, Released(0, 1))
    assert bench.phase(0) == Phase.BLOCKED
    assert bench.jobs.pending_since[0] == 5 * SECOND


class Listener:
    """Notes which changes it was told of, in the cluster and inside the first parent."""

    name = "listener"

    def __init__(self) -> None:
        self.next = Plan()
        self.heard: list[tuple[list[int], list[int]]] = []

    def decide(self, view: View, memory: None) -> tuple[Plan, None]:
        """The next plan."""
        inside = view.inside(0)
        self.heard.append((list(view.changed), list(inside.changed) if inside else []))
        return self.next, None


def test_a_change_is_told_to_those_who_compete_with_the_job() -> None:
    policy = Listener()
    bench = Bench(
        job("search", size=2, kind=Kind.TUNE), job("t", parent="search"), job("b"), policy=policy
    )
    bench.kernel.validate = False

    def told(at: float, *events: AnyEvent, then: list[Start | Stop] | None = None) -> object:
        policy.next = Plan(list(then or []))
        assert bench.feed(at, *events) is not None
        return policy.heard[-1]

    assert told(0, Submitted(0), then=[Start(0, 1, on(0b11))]) == ([0], [])
    assert told(1, Started(0, 1)) == ([0], [])
    assert told(2, Submitted(1), then=[Start(1, 1, on(0b01))]) == ([], [1])
    assert told(3, Started(1, 1)) == ([], [1])
    assert told(4, Submitted(2), then=[Start(2, 1, on(0b100))]) == ([2], [])
    assert told(5, Started(2, 1)) == ([2], [])
    assert told(6, Released(1, 1)) == ([], [1])
    assert told(7, Command(1, "hold")) == ([], [1])
    assert told(8, Command(1, "cancel")) == ([], [1])
    assert told(9, Finished(2, 1)) == ([2], [])


def test_the_next_in_line_is_asked_for_when_a_head_is_cancelled() -> None:
    bench = Bench(
        job("a", size=4), job("wide", size=4), job("b", size=4), policy=registry.make("fifo")
    )
    bench.feed(0, Submitted(0), Submitted(1), Submitted(2))
    bench.feed(0, Started(0, 1))
    plan = bench.feed(1, Command(1, "cancel"))
    assert plan is not None
    plan = bench.feed(2, Finished(0, 1))
    assert plan is not None
    assert plan.actions == [Start(2, 1, on(0b1111))]


def test_who_was_held_before_it_came_asks_nobody_when_it_comes() -> None:
    bench = Bench(job("a"))
    bench.feed(0, Command(0, "hold"))
    assert bench.feed(1, Submitted(0)) is None
    assert bench.phase(0) == Phase.BLOCKED
