"""People's orders, jobs that come while others run, and nodes that are drained."""

from __future__ import annotations

from typing import ClassVar

import msgspec
import pytest

from bench import Bench, Scripted, on, running
from ganger.core.events import (
    CAPACITY_FREED,
    CAPACITY_LOST,
    Accepted,
    Batch,
    Command,
    Failed,
    Finished,
    NodeCommand,
    NodeDown,
    NodeUp,
    Released,
    Started,
    Submitted,
    Withheld,
    Woke,
)
from ganger.core.kernel import Kernel
from ganger.core.plan import Plan, Resume, Slot, Start, Stop, Suspend
from ganger.core.spec import ClusterSpec, JobSpec, Kind, NodeSpec, Role, Shape
from ganger.core.state.cluster import Nodes
from ganger.core.state.jobs import Phase, declare
from ganger.core.state.snapshot import Snapshot, capture, forget, restore
from ganger.core.units import SECOND
from ganger.core.view import View
from ganger.recipes import registry
from worlds import cluster, job


def test_a_cancelled_running_job_is_told_to_stop_and_its_gpus_go_to_the_next_at_once() -> None:
    bench = Bench(job("a", size=4), job("b", size=4), policy=registry.make("fifo"))
    bench.feed(0, Submitted(0), Submitted(1))
    bench.feed(0, Started(0, 1))
    plan = bench.feed(3, Command(0, "cancel"))
    assert plan is not None
    assert plan.actions == [Stop(0, 1, "cancelled"), Start(1, 1, on(0b1111), (0,))]
    bench.feed(4, Released(0, 1, 0.0))
    assert bench.phase(0) == Phase.CANCELLED
    assert bench.jobs.preemptions[0] == 0


@pytest.mark.parametrize(
    ("end", "phase"),
    [
        (Finished(0, 1), Phase.FINISHED),
        (Failed(0, 1), Phase.CANCELLED),
        (Released(0, 1), Phase.CANCELLED),
    ],
)
def test_what_a_cancelled_job_ends_as(end: Finished | Failed | Released, phase: Phase) -> None:
    bench = running()
    bench.feed(3, Command(0, "cancel"))
    bench.feed(3, Command(0, "cancel"))
    bench.feed(4, end)
    assert bench.phase(0) == phase


def test_who_waits_for_a_cancelled_running_job_is_cancelled_with_it() -> None:
    bench = running(job("a", size=2), job("b", size=2, after=("a",)))
    bench.feed(3, Command(0, "cancel"))
    assert bench.phase(1) == Phase.BLOCKED
    bench.feed(4, Released(0, 1))
    assert bench.phase(1) == Phase.CANCELLED


def test_a_requeued_job_stands_in_line_again_with_its_work_and_no_preemption_counted() -> None:
    bench = running()
    bench.feed(3, Command(0, "requeue"))
    bench.feed(4, Released(0, 1, 3 * SECOND))
    assert bench.phase(0) == Phase.PENDING
    assert bench.jobs.work[0] == 3 * SECOND
    assert bench.jobs.preemptions[0] == 0


def test_a_running_job_on_hold_runs_on_and_is_held_once_it_is_requeued() -> None:
    bench = running()
    bench.feed(2, Command(0, "hold"))
    assert bench.phase(0) == Phase.RUNNING
    bench.feed(3, Command(0, "requeue"))
    bench.feed(4, Released(0, 1))
    assert bench.phase(0) == Phase.BLOCKED
    bench.feed(5, Command(0, "release"))
    assert bench.phase(0) == Phase.PENDING


def test_a_policy_hears_of_a_job_on_hold_that_its_attempt_has_ended() -> None:
    """Else what it keeps of those that run would go on naming it."""

    class Hearing(Scripted):
        heard: ClassVar[list[list[int]]] = []

        def decide(self, view: View, memory: None) -> tuple[Plan, None]:
            self.heard.append(list(view.changed))
            return super().decide(view, memory)

    bench = Bench(job("a", size=2), job("b", size=2), policy=Hearing())
    bench.feed(0, Submitted(0), then=[Start(0, 1, on(0b0011))])
    bench.feed(1, Started(0, 1))
    bench.feed(2, Command(0, "hold"))
    bench.feed(3, Failed(0, 1, 0.0, "NodeFail"))
    assert bench.phase(0) == Phase.BLOCKED
    assert Hearing.heard[-1] == [0]


def test_people_freeze_a_job_and_let_it_go_on() -> None:
    bench = running()
    plan = bench.feed(3, Command(0, "suspend"))
    assert plan is not None
    assert plan.actions == [Suspend(0, 1)]
    assert bench.phase(0) == Phase.SUSPENDED
    plan = bench.feed(8, Command(0, "resume"))
    assert plan is not None
    assert plan.actions == [Resume(0, 1)]
    bench.feed(9, Finished(0, 1))
    assert bench.jobs.ran[0] == 4 * SECOND


def test_a_cancelled_parent_takes_its_trials_with_it() -> None:
    bench = Bench(
        job("search", size=2, kind=Kind.TUNE),
        job("t0", parent="search"),
        job("t1", parent="search"),
        job("t2", parent="search"),
    )
    bench.feed(0, *(Submitted(row) for row in range(4)), then=[Start(0, 1, on(0b11))])
    bench.feed(0, Started(0, 1), then=[Start(1, 1, on(0b01)), Start(2, 1, on(0b10))])
    bench.feed(0, Started(1, 1), Started(2, 1))
    plan = bench.feed(5, Command(0, "cancel"))
    assert plan is not None
    assert [action.job for action in plan.actions if isinstance(action, Stop)] == [1, 2, 0]
    bench.feed(6, Released(1, 1), Released(2, 1), Released(0, 1))
    assert {bench.phase(row) for row in range(4)} == {Phase.CANCELLED}
    assert bench.kernel.ledger.free == 4


def test_a_drained_node_takes_nothing_new_and_a_repaired_one_only_once_it_is_resumed() -> None:
    bench = Bench(
        job("a", size=4), job("b", size=4), on=cluster(1, 4), policy=registry.make("fifo")
    )
    bench.feed(0, NodeCommand(0, "drain"), Submitted(0))
    assert bench.phase(0) == Phase.PENDING
    bench.feed(1, NodeDown(0))
    bench.feed(2, NodeUp(0))
    assert bench.phase(0) == Phase.PENDING
    bench.feed(3, NodeCommand(0, "resume"))
    assert bench.phase(0) == Phase.STARTING


def test_a_node_gives_back_its_gpus_when_it_comes_and_nothing_when_it_goes() -> None:
    """What a cell has given back tells who is looked at again: 4 GPUs, one at least."""
    bench = Bench(job("a"), on=cluster(1, 4))
    cell = bench.kernel.ledger.cells[0]
    seen: list[int] = []
    for event in (NodeDown(0), NodeUp(0), NodeCommand(0, "drain"), NodeCommand(0, "resume")):
        bench.feed(len(seen) + 1, event)
        seen.append(cell.returned)
    assert seen == [0, 4, 4, 8]


def test_gpus_that_others_hold_are_not_planned_with_until_they_are_given_back() -> None:
    bench = Bench(job("a", size=2), job("b", size=3), policy=registry.make("fifo"))
    bench.feed(0, Withheld(0, 2), Submitted(0))
    assert bench.kernel.placements()[0] == on(0b0011)
    bench.feed(1, Started(0, 1), Submitted(1))
    bench.feed(2, Finished(0, 1))
    assert bench.phase(1) == Phase.PENDING
    bench.feed(3, Withheld(0, 1))
    assert bench.kernel.placements()[1] == on(0b0111)


def test_whether_others_take_or_give_back_is_told_apart() -> None:
    bench = Bench(job("a"))
    step = bench.kernel.step
    for until, gpus, asked in (
        (CAPACITY_LOST, 1, True),
        (CAPACITY_FREED, 2, False),
        (CAPACITY_FREED, 1, True),
        (CAPACITY_LOST, 0, False),
    ):
        bench.policy.next = Plan(until=until)
        bench.kernel.wake = bench.kernel.now
        step(Batch(bench.kernel.now + 1, [Woke()]))
        plan = step(Batch(bench.kernel.now + 1, [Withheld(0, gpus)]))
        assert (plan is not None) == asked, (until, gpus)


def test_others_get_what_our_job_holds_of_them_once_it_has_gone() -> None:
    bench = Bench(job("a", size=3), job("b", size=3), policy=registry.make("fifo"))
    bench.feed(0, Submitted(0), Submitted(1))
    bench.feed(0, Started(0, 1))
    bench.feed(1, Withheld(0, 2))
    assert bench.kernel.ledger.withheld(0).bit_count() == 1
    again = restore(
        _wired(capture(bench.kernel)), bench.kernel.nodes, registry.make("fifo"), validate=True
    )
    for kernel in (bench.kernel, again):
        kernel.step(Batch(2 * SECOND, [Finished(0, 1)]))
        assert kernel.ledger.withheld(0).bit_count() == 2
        assert kernel.jobs.phase[1] == Phase.PENDING
    assert _wired(capture(again)) == _wired(capture(bench.kernel))


def test_gpus_that_a_plan_has_just_freed_are_withheld_at_the_next_step_also_after_a_restart() -> (
    None
):
    """Else a restarted daemon would plan with others than the one before it."""
    bench = running()
    bench.feed(1, Withheld(0, 4))
    bench.feed(2, Woke(), then=[Stop(0, 1)])
    kept = _wired(capture(bench.kernel))
    again = restore(kept, Nodes(cluster(1, 4)), Scripted(), validate=True)
    bench.policy.next = Plan()
    for kernel in (bench.kernel, again):
        assert kernel.ledger.withheld(0) == 0b1100
        assert _wired(capture(kernel)) == kept
        kernel.step(Batch(3 * SECOND, [Released(0, 1, 0.0)]))
        assert kernel.ledger.withheld(0) == 0b1111


def test_a_suspended_job_that_could_not_be_frozen_waits_with_what_it_has_saved() -> None:
    bench = Bench(job("a", size=4), job("b", size=4), policy=registry.make("fifo"))
    bench.feed(0, Submitted(0))
    bench.feed(0, Started(0, 1))
    bench.feed(3, Command(0, "suspend"))
    bench.feed(4, Released(0, 1, 2 * SECOND))
    assert bench.jobs.attempt[0] == 2, "its GPUs are free, so it was started again"
    assert bench.jobs.work[0] == 2 * SECOND


def _wired(snapshot: Snapshot) -> Snapshot:
    return msgspec.msgpack.decode(msgspec.msgpack.encode(snapshot), type=Snapshot)


def _live(jobs: int, recipe: str = "fifo") -> Bench:
    """A kernel that began with an empty table, and was handed `jobs` jobs of one GPU."""
    bench = Bench(policy=registry.make(recipe))
    for row in range(jobs):
        bench.feed(row, Accepted(row, JobSpec(name=str(row), submitted=row * SECOND)))
    return bench


def test_jobs_are_accepted_while_others_run_far_beyond_the_tables_first_size() -> None:
    bench = _live(100)
    assert [bench.phase(row) for row in range(5)] == [Phase.STARTING] * 4 + [Phase.PENDING]
    bench.feed(100, Started(0, 1))
    bench.feed(101, Finished(0, 1))
    assert bench.phase(4) == Phase.STARTING
    assert bench.jobs.n == 100


def test_an_accepted_job_waits_for_those_it_names() -> None:
    bench = _live(1)
    bench.feed(1, Accepted(1, JobSpec(name="1", submitted=SECOND, after=("0",))))
    assert bench.phase(1) == Phase.BLOCKED
    bench.feed(2, Started(0, 1))
    bench.feed(3, Finished(0, 1))
    assert bench.phase(1) == Phase.STARTING


def test_an_accepted_event_survives_the_log() -> None:
    shape = Shape((Role("worker", 2, least=1),))
    event = Accepted(3, JobSpec(name="3", shape=shape, tenant="vision"))
    assert msgspec.json.decode(msgspec.json.encode(event), type=Accepted) == event


def _restored(kernel: Kernel, on: ClusterSpec, recipe: str, *, anew: bool = False) -> Kernel:
    kept = msgspec.msgpack.decode(msgspec.msgpack.encode(capture(kernel)), type=Snapshot)
    return restore(forget(kept) if anew else kept, Nodes(on), registry.make(recipe), validate=True)


def test_a_snapshot_goes_on_with_more_nodes_and_another_policy() -> None:
    bench = _live(9)
    bigger = ClusterSpec((*cluster(1, 4).nodes, NodeSpec(gpus=4, gpu_type="A100")))
    bench.kernel = _restored(bench.kernel, bigger, "las", anew=True)
    bench.jobs = bench.kernel.jobs
    bench.feed(10, Started(0, 1))
    assert sum(bench.phase(row) >= Phase.STARTING for row in range(9)) == 8
    assert bench.kernel.ledger.holds[4][1] == (Slot(1, 1),)


def test_orders_in_flight_survive_a_snapshot() -> None:
    bench = _live(6)
    bench.feed(6, *(Started(row, 1) for row in range(4)))
    bench.feed(7, Command(0, "cancel"), Command(5, "hold"), NodeCommand(0, "drain"))
    bench.kernel = _restored(bench.kernel, cluster(1, 4), "fifo")
    bench.jobs = bench.kernel.jobs
    bench.feed(8, Released(0, 1))
    assert bench.phase(0) == Phase.CANCELLED
    bench.feed(9, Finished(1, 1), Finished(2, 1))
    assert bench.phase(4) == Phase.PENDING
    bench.feed(9, NodeCommand(0, "resume"))
    assert bench.phase(4) == Phase.STARTING
    assert bench.phase(5) == Phase.BLOCKED


def test_an_empty_table_is_a_kernel_too() -> None:
    kernel = Kernel(Nodes(cluster()), declare([]), registry.make("fifo"), validate=True)
    assert kernel.jobs.n == 0


@pytest.mark.parametrize("end", [Finished(0, 1), Failed(0, 1)], ids=["finished", "failed"])
def test_a_job_that_was_cancelled_while_it_waited_for_another_stays_cancelled(
    end: Finished | Failed,
) -> None:
    bench = running(job("a", size=2), job("b", size=2, after=("a",)))
    bench.feed(3, Command(1, "cancel"))
    assert (bench.phase(1), dict(bench.kernel.blockers)) == (Phase.CANCELLED, {})
    bench.feed(5, end)
    assert bench.phase(1) == Phase.CANCELLED
    assert 1 not in bench.kernel.view.pending.tolist()
    assert bench.jobs.finished[1] == 3 * SECOND


def test_a_node_that_is_down_or_drained_is_barred_for_that_reason() -> None:
    bench = Bench(job("a"), on=cluster(3, 2))
    bench.feed(0, NodeCommand(1, "drain"), NodeDown(2))
    barred = bench.kernel.usable.barred
    assert [barred(node) for node in range(3)] == ["", "drained", "down"]
    bench.feed(1, NodeCommand(2, "drain"), NodeCommand(1, "resume"))
    assert [barred(node) for node in range(3)] == ["", "", "down"]
    bench.feed(2, NodeUp(2))
    assert [barred(node) for node in range(3)] == ["", "", "drained"]
