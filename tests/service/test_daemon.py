"""The loop over a scripted engine: what is accepted, held, refused, recovered."""

from __future__ import annotations

import asyncio
import random
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ganger.core.errors import BadInput
from ganger.core.events import Accepted, Batch, Finished, Started
from ganger.core.plan import Plan, Slot, Start
from ganger.core.state.jobs import Phase
from ganger.core.state.snapshot import capture
from ganger.core.units import HOUR, NEVER, SECOND
from ganger.core.view import View
from ganger.engines.reconciliation import Believed, Reconciliation
from ganger.engines.testing.fake import Script
from ganger.lab.log import Divergence
from ganger.service.commands import NodeOrder, Order, SetPolicy, Submit
from ganger.service.durable.recovery import check_history, guard_of, make_kernel
from ganger.service.errors import FullDisk
from ganger.service.http.app_context import AppContext
from ganger.service.reports.rows import NoSuch, job_detail, label, reason_of, rows_of
from ganger.service.serve import Settings, header_for
from service.desk import START, Desk, box, header


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    made = Desk(tmp_path, script=lambda job, attempt: Script(runs=HOUR))
    yield made
    made.close()


def test_a_job_runs_and_finishes(desk: Desk) -> None:
    (row,) = desk.submit(gpus=2)
    assert desk.phase(row) == Phase.STARTING
    desk.steps(1)
    assert desk.phase(row) == Phase.RUNNING
    desk.until_quiet()
    assert desk.phase(row) == Phase.FINISHED
    (attempt,) = desk.journal.attempts(row)
    assert attempt.outcome == ""
    assert attempt.ended - attempt.started == HOUR


def test_what_a_job_has_had_counts_up_to_now(desk: Desk) -> None:
    """Its GPU-seconds grow while it runs, and not while it is suspended."""
    (row,) = desk.submit(gpus=2)
    desk.steps(1)
    began = int(desk.daemon.kernel.jobs.began[row])

    def had() -> float:
        return job_detail(desk.daemon, row).attained_gpu_seconds

    desk.engine.now = began + 90 * SECOND
    assert had() == 180.0
    desk.order("suspend", row)
    assert desk.phase(row) == Phase.SUSPENDED
    before = had()
    desk.engine.now += 60 * SECOND
    assert had() == before


def test_an_end_that_was_missed_is_heard_of_when_the_engine_is_asked_again(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    (row,) = desk.submit(gpus=2)
    desk.steps(1)
    standing = Reconciliation()
    standing.ordered([Start(row, 1, (Slot(0, 3, 1),))])
    standing.told([Started(row, 1), Finished(row, 1)])  # and the daemon heard nothing of it

    def reconcile(owner: Believed) -> bool:
        events, actions = standing.differences(owner)
        assert not actions
        desk.engine.post(*events)
        return not events

    monkeypatch.setattr(desk.engine, "reconcile", reconcile)
    desk.daemon.look()
    desk.steps(1)
    assert desk.phase(row) == Phase.FINISHED
    desk.daemon.look()
    assert check_history(desk.journal) == desk.daemon.kernel.revision


def test_the_kernel_steps_on_when_the_server_has_ended(desk: Desk) -> None:
    """The server goes first, and jobs end until the kernel goes too."""
    world, loop = AppContext(desk.daemon, desk.root), asyncio.new_event_loop()
    world.listen_for_steps(loop)
    (row,) = desk.submit(gpus=2)
    loop.close()
    desk.until_quiet()
    assert desk.phase(row) == Phase.FINISHED


def test_what_is_asked_meanwhile_goes_into_one_batch(desk: Desk) -> None:
    asks = [desk.jobs() for _ in range(50)]
    for ask in asks:
        desk.daemon.ask(ask)
    desk.steps(1)
    assert [ask.done.result(0) for ask in asks] == [[row] for row in range(50)]
    assert desk.daemon.kernel.revision == 1


def test_an_array_is_named_by_its_first_task(desk: Desk) -> None:
    desk.submit()
    rows = desk.submit(array="0-6:2")
    assert [label(desk.daemon, row) for row in rows] == ["2_0", "2_2", "2_4", "2_6"]
    assert rows_of(desk.daemon, "2") == rows
    assert rows_of(desk.daemon, "2_4") == [rows[2]]
    assert rows_of(desk.daemon, 3) == [rows[1]]
    for wrong in ("2_1", "9", "1_0"):
        with pytest.raises(NoSuch):
            rows_of(desk.daemon, wrong)
    launch = desk.daemon.launch(rows[3])
    assert (launch.env["GANGER_ARRAY_INDEX"], launch.env["GANGER_ARRAY_ID"]) == ("6", "2")


def test_a_held_job_waits_for_its_release(desk: Desk) -> None:
    (row,) = desk.submit(hold=True)
    assert (desk.phase(row), reason_of(desk.daemon, row)) == (Phase.BLOCKED, "JobHeldUser")
    desk.order("release", row)
    desk.steps(1)
    assert desk.phase(row) == Phase.STARTING
    with pytest.raises(BadInput, match="not held"):
        desk.order("release", row)


def test_a_job_begins_when_its_time_has_come(desk: Desk) -> None:
    (row,) = desk.submit(begin="+2h")
    assert (desk.phase(row), reason_of(desk.daemon, row)) == (Phase.BLOCKED, "BeginTime")
    begin = desk.daemon.now() + 2 * HOUR
    desk.steps(1)
    assert desk.phase(row) == Phase.STARTING
    assert abs(desk.daemon.kernel.now - begin) < SECOND


@pytest.mark.parametrize("hours", [1, -1])
def test_a_begin_time_is_the_wall_clocks_also_when_it_is_set(desk: Desk, hours: int) -> None:
    (row,) = desk.submit(begin="+2h")
    desk.engine.wall.set_ahead = hours * HOUR
    (later,) = desk.submit(begin="+4h")
    jobs = desk.daemon.kernel.jobs
    desk.until_quiet()
    assert jobs.first_start[row] - START == pytest.approx((2 - hours) * HOUR, abs=SECOND)
    assert jobs.first_start[later] - START == pytest.approx(4 * HOUR, abs=SECOND)


def test_a_hold_outlasts_the_begin_time(desk: Desk) -> None:
    (row,) = desk.submit(begin="+1h", hold=True)
    desk.until_quiet()
    assert (desk.phase(row), reason_of(desk.daemon, row)) == (Phase.BLOCKED, "JobHeldUser")
    desk.order("release", row)
    desk.steps(1)
    assert desk.phase(row) == Phase.STARTING


def test_after_and_after_any(tmp_path: Path) -> None:
    fails = Script(runs=SECOND, fails="exit code 1")
    desk = Desk(tmp_path, script=lambda job, attempt: fails if job == 0 else Script(runs=SECOND))
    desk.submit()
    (strict,) = desk.submit(after=[1])
    (lenient,) = desk.submit(after_any=["1"])
    assert reason_of(desk.daemon, strict) == reason_of(desk.daemon, lenient) == "Dependency"
    desk.until_quiet()
    assert desk.phase(0) == Phase.FAILED
    assert desk.phase(strict) == Phase.CANCELLED
    assert reason_of(desk.daemon, strict) == "DependencyNeverSatisfied"
    assert desk.phase(lenient) == Phase.FINISHED
    (late,) = desk.submit(after_any=[1])
    desk.until_quiet()
    assert desk.phase(late) == Phase.FINISHED
    desk.close()


def test_orders_that_make_no_sense_are_refused(desk: Desk) -> None:
    (row,) = desk.submit()
    desk.order("cancel", row)
    desk.until_quiet()
    assert desk.phase(row) == Phase.CANCELLED
    revision = desk.daemon.kernel.revision
    for verb in ("cancel", "hold", "requeue", "suspend", "priority"):
        with pytest.raises(BadInput, match="is cancelled"):
            desk.order(verb, row)
    assert desk.daemon.kernel.revision == revision
    (row,) = desk.submit(hold=True)
    with pytest.raises(BadInput, match="job 2 is pending: requeue does not apply to it"):
        desk.order("requeue", row)


def test_priority_and_limit_change(desk: Desk) -> None:
    desk.submit(gpus=4)
    (row,) = desk.submit(gpus=4)
    desk.ask(Order([row], {"priority": 7.0, "limit": float(HOUR)}))
    assert int(desk.daemon.kernel.jobs.priority[row]) == 7
    assert desk.daemon.launch(row).limit == HOUR


def test_the_same_key_submits_once(desk: Desk) -> None:
    def keyed(**fields: Any) -> Submit:
        ask = desk.jobs(**fields)
        ask._key, ask._body = "ann:k", msgspec.json.encode(sorted(fields))
        return ask

    first = desk.ask(keyed(gpus=1))
    assert desk.ask(keyed(gpus=1)) == first
    with pytest.raises(BadInput, match="another request"):
        desk.ask(keyed(gpus=1, name="x"))
    one, two = keyed(gpus=1), keyed(gpus=1)
    one._key = two._key = "ann:together"
    desk.daemon.ask(one)
    desk.daemon.ask(two)
    desk.steps(1)
    assert one.done.result(0) == two.done.result(0)
    assert desk.daemon.kernel.jobs.n == 2


def test_a_drained_node_takes_nothing(desk: Desk) -> None:
    desk.ask(NodeOrder([0], "drain"))
    (row,) = desk.submit()
    assert desk.phase(row) == Phase.PENDING
    desk.ask(NodeOrder([0], "resume"))
    assert desk.phase(row) == Phase.STARTING


class Broken:
    """A policy that fails."""

    name = "broken"

    def decide(self, view: View, memory: Any) -> tuple[Plan, Any]:
        """Fail, with half a plan drawn."""
        job = int(view.pending[0])
        placement = view.ledger.find(view.draft.shape(job), (1,))
        assert placement is not None
        view.draft.start(job, placement)
        raise ValueError("no idea")


def test_a_policy_that_fails_stops_nothing(desk: Desk) -> None:
    guard = guard_of(desk.daemon.kernel)
    good, guard.policy = guard.policy, Broken()
    (row,) = desk.submit()
    assert desk.phase(row) == Phase.PENDING
    assert "no idea" in guard.error
    guard.policy = good
    desk.steps(1)  # it is asked again by itself
    assert desk.phase(row) == Phase.STARTING
    assert guard.error == ""


class Absurd:
    """A policy that plans what cannot be."""

    name = "absurd"

    def __init__(self, what: str) -> None:
        self._what = what

    def decide(self, view: View, memory: Any) -> tuple[Plan, Any]:
        """Stop a job that does not run, or want to be woken in the past."""
        if self._what == "past":
            return Plan([], [], view.now), memory
        return Plan([Start(0, 7, (Slot(0, 1),)), Start(0, 7, (Slot(0, 1),))]), memory


@pytest.mark.parametrize("what", ["past", "twice"])
def test_a_policy_that_plans_the_impossible_stops_nothing(desk: Desk, what: str) -> None:
    runs = desk.submit()[0]
    desk.steps(1)
    guard_of(desk.daemon.kernel).policy = Absurd(what)
    (row,) = desk.submit()
    assert (desk.phase(runs), desk.phase(row)) == (Phase.RUNNING, Phase.PENDING)
    assert guard_of(desk.daemon.kernel).error
    desk.steps(2)  # its own policy is back: this kernel was made anew, or that policy put back
    guard_of(desk.daemon.kernel).policy = desk.good
    desk.order("priority", row, value=1.0)
    assert desk.phase(row) == Phase.STARTING
    before = bytes_of(desk)
    again = desk.again()
    assert bytes_of(again) == before
    again.close()


def test_a_restart_gets_over_a_plan_that_cannot_be(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk.submit()
    desk.steps(1)
    with desk.journal.writing() as cursor:  # a batch was kept, and then the policy broke the step
        spec = msgspec.structs.replace(desk.daemon.kernel.jobs.spec(0), name="2")
        batch = Batch(desk.daemon.kernel.now + 1, [Accepted(1, spec)])
        desk.journal.write_batch(cursor, desk.daemon.kernel.revision + 1, batch)
        desk.journal.write_jobs(cursor, [(1, desk.journal.facts(0))])
    monkeypatch.setattr(
        "ganger.service.durable.recovery.load_policy",
        lambda spec, recorded, bounded: Late(desk.good, desk.daemon.kernel.revision),
    )
    again = desk.again()
    assert (again.phase(0), again.phase(1)) == (Phase.RUNNING, Phase.PENDING)
    assert "InvariantError" in guard_of(again.daemon.kernel).error
    again.close()


def test_a_recipe_that_another_version_accepted_goes_on(tmp_path: Path) -> None:
    asked = Settings(home=str(tmp_path), gpus="4xV100", recipe="las(quantum=1us)")
    with pytest.raises(BadInput, match="give 1 s or more"):
        header_for(asked, None)
    before = header("las(quantum=1us)")
    assert guard_of(make_kernel(before, None)).policy.name == "las"


class Late(Absurd):
    """A policy that is good until a revision."""

    def __init__(self, good: Any, until: int) -> None:
        super().__init__("twice")
        self._good, self._until = good, until
        self.name = good.name

    def decide(self, view: View, memory: Any) -> tuple[Plan, Any]:
        """Decide well at first."""
        if view.revision <= self._until:
            return self._good.decide(view, memory)  # type: ignore[no-any-return]
        return super().decide(view, memory)


def test_a_policy_that_knew_nothing_may_learn_from_now_on(tmp_path: Path) -> None:
    desk = Desk(tmp_path, header(knows="nothing"))
    first = desk.submit()
    desk.ask(SetPolicy("srtf", "history"))
    second = desk.submit()
    desk.until_quiet()
    assert [desk.phase(row) for row in (*first, *second)] == [Phase.FINISHED] * 2
    desk.close()


def test_another_policy_takes_over_while_jobs_run(desk: Desk) -> None:
    rows = [desk.submit(gpus=2)[0] for _ in range(4)]
    desk.steps(1)
    desk.ask(SetPolicy("backfill", "nothing"))
    assert desk.daemon.header.policy == "backfill"
    assert [desk.phase(row) for row in rows[:2]] == [Phase.RUNNING] * 2
    with pytest.raises(BadInput, match="no recipe"):
        desk.ask(SetPolicy("nonsense", "nothing"))
    assert desk.daemon.header.policy == "backfill"
    desk.until_quiet()
    assert all(desk.phase(row) == Phase.FINISHED for row in rows)
    assert len(desk.journal.segments()) == 2
    assert check_history(desk.journal) == desk.daemon.kernel.revision


def test_the_cluster_grows_by_nodes_that_join(desk: Desk) -> None:
    desk.submit(gpus=4)
    (waits,) = desk.submit(gpus=4)
    assert desk.daemon.node_numbers([box(), box(8, "big")]) == [0, 1]
    assert desk.daemon.kernel.nodes.total_gpus == 12
    desk.ask(NodeOrder([1], "resume"))
    assert desk.phase(waits) == Phase.STARTING
    with pytest.raises(BadInput, match="it had 4 V100"):
        desk.daemon.node_numbers([box(2)])
    again = desk.again()
    assert again.daemon.kernel.nodes.names == ["box", "big"]
    again.until_quiet()
    assert again.phase(waits) == Phase.FINISHED
    assert check_history(again.journal) == again.daemon.kernel.revision
    again.close()


def test_a_full_disk_refuses_submissions_and_recovers(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    (row,) = desk.submit()
    pages = desk.journal.db.execute("PRAGMA page_count").fetchone()[0]
    desk.journal.db.execute(f"PRAGMA max_page_count = {pages}")
    kept = staticmethod(desk.journal.write_batch)
    slept: list[float] = []

    def wait(seconds: float) -> None:
        slept.append(seconds)
        assert desk.daemon.full
        if len(slept) == 4:
            monkeypatch.setattr("ganger.service.daemon.Journal.write_batch", kept)

    monkeypatch.setattr("ganger.service.daemon.time.sleep", wait)
    refused = [desk.jobs(env={"BIG": "x" * 9000}) for _ in range(3)]
    for ask in refused:
        desk.daemon.ask(ask)
    desk.daemon.once()
    for ask in refused:
        with pytest.raises(FullDisk, match="full"):
            ask.done.result(0)
    assert desk.daemon.kernel.jobs.n == 1
    desk.journal.db.execute("PRAGMA max_page_count = 1000000")

    def full(*given: Any) -> None:
        raise sqlite3.OperationalError("database or disk is full")

    monkeypatch.setattr("ganger.service.daemon.Journal.write_batch", full)
    desk.steps(1)  # that the first job started must not be lost
    assert len(slept) == 4
    assert desk.phase(row) == Phase.RUNNING
    assert desk.submit(env={"BIG": "x" * 9000}) == [1]
    assert desk.daemon.full == ""
    again = desk.again()
    assert again.daemon.kernel.jobs.n == 2
    again.close()


def test_a_plan_that_cannot_be_kept_is_not_acted_on(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = desk.journal.write_plan
    tries: list[int] = []

    def fail_twice(*given: Any) -> None:
        tries.append(len(desk.engine.orders))
        if len(tries) < 3:
            raise sqlite3.OperationalError("database or disk is full")
        kept(*given)

    monkeypatch.setattr("ganger.service.daemon.time.sleep", lambda seconds: None)
    monkeypatch.setattr("ganger.service.daemon.Journal.write_plan", staticmethod(fail_twice))
    desk.submit()
    assert tries == [0, 0, 0]
    assert len(desk.engine.orders) == 1


def bytes_of(desk: Desk) -> bytes:
    return msgspec.msgpack.encode(capture(desk.daemon.kernel))


def busy(desk: Desk, choose: random.Random) -> None:
    """Do something."""
    n = desk.daemon.kernel.jobs.n
    what = choose.choice(("submit", "submit", "submit", "step", "step", "order", "node", "policy"))
    if what == "submit":
        extra = choose.choice(
            (
                {},
                {},
                {"hold": True},
                {"begin": "+3s"},
                {"array": "0-2"},
                {"priority": 3},
                {"after": [n]} if n else {},
                {"after_any": [n]} if n else {},
                {"after_begin": [f"{n}+1s"]} if n else {},
                {"after": [n], "after_not_ok": [1], "after_one": True} if n else {},
            )
        )
        desk.submit(gpus=choose.choice((1, 1, 2, 4)), **extra)
    elif what == "order" and n:
        row = choose.randrange(n)
        verb = choose.choice(("cancel", "hold", "release", "requeue", "suspend", "resume"))
        try:
            desk.order(verb, row)
        except BadInput:
            return
    elif what == "node":
        desk.ask(NodeOrder([0], choose.choice(("drain", "resume", "resume"))))
    elif what == "policy" and choose.random() < 0.3:
        desk.ask(
            SetPolicy(
                choose.choice(("fifo", "priority", "srtf", "backfill", "tiresias")), "history"
            )
        )
    else:
        desk.daemon.once()


@pytest.mark.parametrize("seed", range(6))
def test_a_restart_goes_on_to_the_same_bytes(tmp_path: Path, seed: int) -> None:
    choose = random.Random(seed)

    def script(job: int, attempt: int) -> Script:
        runs = (job * 7919 + attempt * 104729) % 9 * SECOND // 2 + 1000
        return Script(runs=runs, fails="exit code 2" if job % 11 == 5 else "", stop=SECOND // 3)

    desk = Desk(tmp_path, header("fifo"), script)
    for _ in range(12):
        for _ in range(choose.randrange(1, 15)):
            busy(desk, choose)
        if choose.random() < 0.3:
            desk.daemon._keep_snapshot()
        before, names = bytes_of(desk), list(desk.daemon.names)
        held, ends = set(desk.daemon.gates.held), dict(desk.daemon.ends)
        desk = desk.again()
        assert bytes_of(desk) == before
        assert desk.daemon.names == names
        assert (
            desk.daemon.gates.held & desk.daemon.kernel.on_hold == held & desk.daemon.kernel.on_hold
        )
        assert desk.daemon.ends == ends
        assert guard_of(desk.daemon.kernel).differed == 0
    desk.ask(NodeOrder([0], "resume"))
    for row in sorted(desk.daemon.gates.held):
        if desk.phase(row) == Phase.BLOCKED:
            desk.order("release", row)
    suspended = [
        row for row in range(desk.daemon.kernel.jobs.n) if desk.phase(row) == Phase.SUSPENDED
    ]
    if suspended:
        desk.order("resume", *suspended)
    desk.until_quiet()
    phases = {desk.phase(row) for row in range(desk.daemon.kernel.jobs.n)}
    assert phases <= {Phase.FINISHED, Phase.FAILED, Phase.CANCELLED}
    assert check_history(desk.journal) == desk.daemon.kernel.revision
    desk.close()


def test_a_crash_between_the_batch_and_its_plan(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    def crash(*given: Any) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(desk.daemon, "_keep_plan", crash)
    desk.daemon.ask(desk.jobs())
    with pytest.raises(ZeroDivisionError):
        desk.daemon.once()
    assert desk.engine.orders == []
    again = desk.again()
    assert again.phase(0) == Phase.STARTING
    assert [one.attempt for one in again.journal.attempts(0)] == [1]
    again.until_quiet()
    assert again.phase(0) == Phase.FINISHED
    assert again.engine.started == {(0, 1)}
    assert check_history(again.journal) == again.daemon.kernel.revision
    again.close()


def test_history_that_was_tampered_with_is_found_out(desk: Desk) -> None:
    desk.submit(gpus=2)
    desk.submit(gpus=4)
    desk.until_quiet()
    assert check_history(desk.journal) == desk.daemon.kernel.revision
    with desk.journal.writing() as cursor:
        cursor.execute(
            "UPDATE batches SET events = (SELECT events FROM batches WHERE revision = 1)"
            " WHERE revision = 0"
        )
        found = cursor.execute("SELECT plan FROM plans WHERE revision = 1").fetchone()[0]
        plan = msgspec.msgpack.decode(found)
        plan[1] = 12345
        cursor.execute(
            "UPDATE plans SET plan = ? WHERE revision = 1", (msgspec.msgpack.encode(plan),)
        )
    with pytest.raises(Divergence, match="revision 1 at"):
        check_history(desk.journal)


def test_the_record_stands_where_a_policy_changed_its_mind(desk: Desk) -> None:
    desk.submit(gpus=4)
    desk.submit(gpus=1)
    desk.steps(1)
    before = desk.phase(0), desk.phase(1)
    with desk.journal.writing() as cursor:  # as if another version had been in force
        cursor.execute(
            "UPDATE segments SET header = ?",
            (msgspec.msgpack.encode(header("srtf", knows="history")),),
        )
    again = desk.again(header("srtf"))
    assert (again.phase(0), again.phase(1)) == before
    again.close()


def test_no_time_is_lost_and_none_runs_back(desk: Desk) -> None:
    (row,) = desk.submit(time_limit="3h")
    assert int(desk.daemon.kernel.jobs.limit[row]) == 3 * HOUR
    assert int(desk.daemon.kernel.jobs.deadline[row]) == NEVER
    last = desk.daemon.kernel.now
    desk.engine.now -= HOUR  # a clock that jumps back
    desk.order("priority", row, value=1.0)
    assert desk.daemon.kernel.now >= last
