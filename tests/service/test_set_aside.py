"""What the kernel cannot reduce: refused at the door, and where it is in the journal, set aside."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ganger.core.errors import BadInput, GangerError
from ganger.core.events import (
    ANYTHING,
    Accepted,
    AnyEvent,
    Batch,
    Command,
    Failed,
    Finished,
    Measured,
    NodeCommand,
)
from ganger.core.kernel import Kernel
from ganger.core.plan import Slot, Start
from ganger.core.spec import JobSpec, Role, Shape
from ganger.core.state.jobs import Phase
from ganger.core.units import NEVER
from ganger.service.commands import Ask, Turn
from ganger.service.daemon import Daemon
from ganger.service.durable.journal import ASIDE_BYTES_MAX, SET_ASIDE_MAX, Decided, Journal
from ganger.service.durable.recovery import check_history, guard_of, set_aside_record
from service.desk import Desk


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    made = Desk(tmp_path)
    yield made
    made.close()


class Raw(Ask):
    """Something that no endpoint asks for."""

    def __init__(self, *events: Any) -> None:
        super().__init__()
        self._events = events

    def enter(self, turn: Turn, daemon: Daemon) -> None:
        """The events as they are."""
        turn.events += self._events


HUGE = [1 << 62, (1 << 62) + 1, (1 << 63) - 1, 1 << 63, (1 << 64) - 1, 1 << 64, -1 << 63, 1 << 200]


@pytest.mark.parametrize("value", HUGE[1:])
@pytest.mark.parametrize("field", ["limit", "estimate", "deadline", "checkpoint", "submitted"])
def test_a_number_that_no_column_holds_is_never_kept(desk: Desk, field: str, value: int) -> None:
    (row,) = desk.submit()
    spec = msgspec.structs.replace(desk.daemon.kernel.jobs.spec(row), name="2", **{field: value})
    before = desk.daemon.kernel.revision
    with pytest.raises(BadInput, match=field):
        desk.ask(Raw(Accepted(1, spec)))
    assert desk.daemon.kernel.revision == before
    assert desk.submit() == [1]


@pytest.mark.parametrize(
    "event",
    [
        Accepted(7, JobSpec(name="8")),
        Accepted(1, JobSpec(name="2", shape=Shape((Role(size=1 << 31),)))),
        Accepted(1, JobSpec(name="2", priority=1 << 31)),
        Accepted(1, JobSpec(name="2", weight=float("nan"))),
        Accepted(1, JobSpec(name="2", after=("9",))),
        Accepted(1, JobSpec(name="2", user="\ud800")),
        Command(0, "limit", 2.0**63),
        Command(0, "priority", float("inf")),
        Command(0, "weight", float("nan")),
        Command(1, "cancel"),
        Command(-1, "cancel"),
        NodeCommand(1, "drain"),
        NodeCommand(-1, "drain"),
    ],
)
def test_an_event_that_cannot_be_reduced_is_refused_before_it_is_kept(
    desk: Desk, event: AnyEvent
) -> None:
    desk.submit()
    before = desk.daemon.kernel.revision, list(desk.journal.steps(0))
    with pytest.raises(BadInput):
        desk.ask(Raw(event))
    assert (desk.daemon.kernel.revision, list(desk.journal.steps(0))) == before
    assert desk.submit() == [1]


def test_who_asks_beside_it_is_served(desk: Desk) -> None:
    bad, good = Raw(Command(5, "cancel")), desk.jobs()
    desk.daemon.ask(bad)
    desk.daemon.ask(good)
    desk.daemon.once()
    assert good.done.result(0) == [0]
    with pytest.raises(BadInput):
        bad.done.result(0)


class Clumsy(Ask):
    """An order with a bug in it."""

    def enter(self, turn: Turn, daemon: Daemon) -> None:
        """Half of it, then an error that nobody foresaw."""
        turn.events.append(Command(0, "cancel"))
        raise ZeroDivisionError("nobody foresaw it")


def test_a_bug_in_an_order_is_its_own_affair(desk: Desk) -> None:
    (row,) = desk.submit(hold=True)
    with pytest.raises(GangerError, match="nobody foresaw it"):
        desk.ask(Clumsy())
    assert desk.phase(row) == Phase.BLOCKED


# ---------------------------------------------------------------------- a home from before


def brick(desk: Desk, *events: AnyEvent) -> None:
    """Write a batch as the versions did that did not look at it first."""
    facts = desk.journal.facts(0)
    with desk.journal.writing() as cursor:
        batch = Batch(desk.daemon.kernel.now + 1, list(events))
        desk.journal.write_batch(cursor, desk.daemon.kernel.revision + 1, batch)
        new = [(event.job, facts) for event in events if isinstance(event, Accepted)]
        desk.journal.write_jobs(cursor, new)


def test_a_home_that_a_number_bricked_opens(desk: Desk) -> None:
    desk.submit(gpus=4)
    desk.steps(1)
    good = msgspec.structs.replace(desk.daemon.kernel.jobs.spec(0), name="2")
    brick(
        desk,
        Accepted(1, good),
        Accepted(2, msgspec.structs.replace(good, name="3", limit=150_000_000 * 86_400_000_000)),
        Accepted(3, msgspec.structs.replace(good, name="4")),
    )
    again = desk.again()
    phases = [again.phase(row) for row in range(4)]
    assert phases == [Phase.RUNNING, Phase.PENDING, Phase.CANCELLED, Phase.PENDING]
    (record,) = again.journal.set_aside()
    assert record.revision == 3
    assert "job 3" in record.what
    assert "OverflowError" in record.why
    assert "set aside" in again.daemon.ends[2]
    assert again.submit() == [4]
    again.until_quiet()
    assert [again.phase(row) for row in (0, 1, 3, 4)] == [Phase.FINISHED] * 4
    assert check_history(again.journal) == again.daemon.kernel.revision
    last = again.again()
    assert last.phase(2) == Phase.CANCELLED
    assert len(last.journal.set_aside()) == 1
    last.close()


def test_an_order_that_bricked_a_home_is_set_aside(desk: Desk) -> None:
    desk.submit(hold=True)
    brick(desk, Command(0, "limit", 2.0**63), Command(0, "priority", 7.0))
    again = desk.again()
    assert int(again.daemon.kernel.jobs.priority[0]) == 7
    assert len(again.journal.set_aside()) == 1
    again.close()


def test_a_plan_that_cannot_be_booked_any_more_loses_no_job(desk: Desk) -> None:
    """The batch accepted a job, and what is recorded of the plan starts it where there is no node:
    the plan is set aside, not the job, and the policy decides anew."""
    (row,) = desk.submit()
    revision = desk.daemon.kernel.revision
    nowhere = Decided([Start(row, 1, (Slot(9, 1, 1),))], NEVER, ANYTHING, 1)
    desk.journal.db.execute("DELETE FROM plans WHERE revision = ?", (revision,))
    with desk.journal.writing() as cursor:
        Journal.write_plan(cursor, revision, nowhere)
    again = desk.again()
    again.steps(3)
    assert again.phase(row) == Phase.FINISHED
    (record,) = again.journal.set_aside()
    assert (record.what, record.job) == ("the plan", -1)
    assert check_history(again.journal) == again.daemon.kernel.revision
    again.close()


# ---------------------------------------------------------------------- an agent that floods


def test_reports_that_cannot_be_kept_do_not_fill_memory_and_disk(desk: Desk) -> None:
    """An agent reports as often as it likes: the last of what it said is kept, and how much it was.
    A job that was refused for a bug stays, since it has a number."""
    refused = set_aside_record(0, Accepted(0, JobSpec(name="1")), "a bug")
    with desk.journal.writing() as cursor:
        Journal.write_set_aside(cursor, [refused])
    for _ in range(3):
        bad = [Failed(0, 1, float("nan"), "x" * 100_000)] * 500
        assert desk.daemon._fit(list(bad)) == []
    kept = desk.journal.set_aside()
    assert len(desk.daemon.set_aside) == SET_ASIDE_MAX == len(kept) - 1
    assert kept[0].job == 0
    assert max(len(one.record) for one in kept) <= ASIDE_BYTES_MAX
    assert desk.journal.set_aside_ever() == 1501
    again = desk.again()
    assert len(again.daemon.set_aside) == SET_ASIDE_MAX + 1
    again.close()


# ---------------------------------------------------------------------- a bug at run time


def clumsy_kernel(monkeypatch: pytest.MonkeyPatch, bad: Any) -> None:
    """A kernel that changes half of its state and raises where `bad` says so of an event."""
    real = Kernel._command

    def command(self: Kernel, event: Command) -> int:
        changes = real(self, event)
        if bad(event):
            self.jobs.priority[0] = 99
            raise RuntimeError("a bug in the reducer")
        return changes

    monkeypatch.setattr(Kernel, "_command", command)


def test_a_bug_in_the_reducer_costs_only_who_met_it(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk.submit(hold=True)
    clumsy_kernel(monkeypatch, lambda event: event.verb == "weight")
    desk = desk.again()
    desk.daemon.ask(bad := Raw(Command(0, "weight", 3.0)))
    desk.daemon.ask(good := desk.jobs(gpus=2))
    desk.daemon.once()
    assert good.done.result(0) == [1]
    with pytest.raises(GangerError, match="set aside"):
        bad.done.result(0)
    jobs = desk.daemon.kernel.jobs
    assert (int(jobs.priority[0]), float(jobs.weight[0])) == (0, 1.0)
    assert desk.phase(1) == Phase.STARTING
    assert len(desk.journal.set_aside()) == 1
    desk.until_quiet()
    assert desk.phase(1) == Phase.FINISHED
    assert check_history(desk.journal) == desk.daemon.kernel.revision
    desk.close()


def test_a_job_that_the_reducer_cannot_take_is_refused_and_keeps_its_number(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = Kernel.declare

    def declare(self: Kernel, specs: Any) -> None:
        real(self, specs)
        if any(spec.model == "cursed" for spec in specs):
            raise RuntimeError("a bug in the tables")

    monkeypatch.setattr(Kernel, "declare", declare)
    with pytest.raises(GangerError, match="set aside"):
        desk.submit(model="cursed")
    assert desk.submit() == [1]
    assert [desk.phase(row) for row in (0, 1)] == [Phase.CANCELLED, Phase.STARTING]
    again = desk.again()
    assert [again.phase(row) for row in (0, 1)] == [Phase.CANCELLED, Phase.STARTING]
    assert again.daemon.names == ["true", "true"]
    again.close()


def test_an_oracle_that_chokes_on_what_happened_stops_nothing(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk.submit()
    desk.steps(1)
    oracle = type(desk.daemon.kernel.oracle)
    real = oracle.observe

    def observe(self: Any, view: Any) -> None:
        if any(isinstance(event, Measured) for event in view.events):
            raise ZeroDivisionError("a step of no time")
        real(self, view)

    monkeypatch.setattr(oracle, "observe", observe)
    desk.engine.post(Measured(0, 1, 0.0), Finished(0, 1))
    desk.until_quiet()
    assert desk.submit() == [1]
    assert len(desk.journal.set_aside()) >= 1
    desk.until_quiet()
    assert desk.phase(1) == Phase.FINISHED
    assert guard_of(desk.daemon.kernel).error == ""


def test_what_an_engine_says_of_nothing_that_is_there_is_dropped(desk: Desk) -> None:
    desk.submit()
    desk.steps(1)
    desk.engine.post(Finished(9, 1), Measured(0, 1, float("nan")))
    desk.steps(3)
    assert desk.phase(0) == Phase.FINISHED
    assert len(desk.journal.set_aside()) == 2
