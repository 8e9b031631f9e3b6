"""The daemon's loop: what happened and what is asked become a batch, the batch a plan.

    batch -> durable -> Kernel.step -> plan durable -> Engine.apply -> people are answered

Everything that is asked for while a step is made goes into the next batch together: one commit
makes them all durable.
"""

from __future__ import annotations

import logging
import sqlite3
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import msgspec
import numpy as np

from ganger.core.errors import GangerError
from ganger.core.events import (
    AnyEvent,
    Batch,
    Command,
    Failed,
    Finished,
    Refused,
    Released,
    Started,
    Woke,
)
from ganger.core.jobs import Phase
from ganger.core.plan import Plan, Resize, Start
from ganger.core.snapshot import Snapshot, capture, forget
from ganger.core.spec import NodeSpec, TenantSpec
from ganger.core.units import NEVER, SECOND
from ganger.engines.launch import Launch
from ganger.engines.local import Hold
from ganger.engines.standing import believed
from ganger.service.asks import Ask, Turn
from ganger.service.ceilings import CEILINGS, Group, begins, changed_ceilings, kept_ceilings
from ganger.service.engine import LiveEngine
from ganger.service.feed import Feed
from ganger.service.gates import Gates
from ganger.service.journal import Decided, FullError, Header, Journal
from ganger.service.launches import launch_of
from ganger.service.nodes import refuse_others
from ganger.service.recovery import decided, guard_of, make_kernel, recover
from ganger.service.tally import Tally

log = logging.getLogger("ganger.service")
RETRY_SECONDS: Final = 0.5
"""How often a full disk is tried again."""
LOOK: Final = 60 * SECOND
"""Between two questions to the engine for what truly runs, microseconds."""
REPLAY_SECONDS: Final = 2.0
"""A restart should not have to decide again what took longer than this."""


class FullDisk(GangerError):  # noqa: N818 - reads as a sentence
    """Nothing can be accepted: it could not be kept."""


class Daemon:
    """Owns a kernel, an engine and a journal. `run` is its loop; all else may be called from any
    thread. Reading `kernel` and what lies beside it wants `lock`. `scripts`: see `launch_of`."""

    def __init__(self, journal: Journal, scripts: Path | None = None) -> None:
        self.journal = journal
        self.scripts, self.own_srun = scripts, True  # own: no attempt is a Slurm job
        self.lock = threading.RLock()
        self.gates = Gates()
        self.names: list[str] = []
        self.tasks: dict[int, tuple[int, int]] = {}
        """Array and task of each job that is part of an array."""
        self.ends: dict[int, str] = {}
        """How each job's last attempt ended that did not end well."""
        self.plan: Plan | None = None
        """The last plan, for its reasons."""
        self.feed = Feed()
        self.warnings: dict[str, tuple[str, ...]] = {}
        """What each machine's agent cannot do."""
        self.full = ""
        """Why nothing can be written now."""
        self.tally = Tally()
        self.since = time.time()
        self.on_step: Callable[[], None] = lambda: None
        """Called after every step, from the loop's thread."""
        self.reader = Journal(journal.path, readonly=True)
        """For reading under `lock`, beside the loop's writing."""
        self.engine: LiveEngine
        self.header: Header
        self._inbox: list[Ask] = []
        self._mail = threading.Lock()
        self._deferred: list[tuple[int, Decided]] = []
        self._stopping = False
        self._spent = 0.0
        self._snapshot_cost = 0.0

    # ------------------------------------------------------------------ beginning

    def open(self, header: Header) -> int:
        """Recover, or begin under `header`; returns the time of the last batch, 0 for none.

        Where the journal's last segment had another header, a new one begins. Raises BadInput.
        """
        found = recover(self.journal)
        if found is None:
            self.header, self.kernel = header, make_kernel(header, None)
            self.journal.begin_segment(header, 0, None)
        else:
            before, self.kernel, missing = found
            self.header = before
            with self.journal.writing() as cursor:
                for revision, record in missing:
                    Journal.write_plan(cursor, revision, record)
                    self._write_attempts(cursor, record)
            if before != header:
                same = before.policy == header.policy and before.knows == header.knows
                self._begin_segment(header, keep_memory=same)
        for job, name, array, task, held in self.journal.names():
            self.names.append(name)
            if array >= 0:
                self.tasks[job] = array, task
            if held:
                self.gates.held.add(job)
        self.ends = self.journal.outcomes()
        self.gates.ceilings.most = kept_ceilings(self.journal)
        self._close_gates(self.kernel.now)
        return self.journal.last_time()

    def _close_gates(self, now: int) -> None:
        """Close all gates anew, and count what is let in below which ceiling."""
        kernel, gates = self.kernel, self.gates
        gates.again()
        phases = kernel.jobs.phase[: kernel.jobs.n]
        for row in np.flatnonzero(phases < Phase.FINISHED).tolist() if gates.ceilings.most else ():
            if phases[row] != Phase.BLOCKED or row not in kernel.on_hold:
                gates.ceilings.take(row, gates.ceilings.needs_of(row, self.array_of(row), kernel))
        for row in sorted(kernel.on_hold):
            gates.close(row, self.journal.facts(row), kernel, now)

    def array_of(self, row: int) -> int:
        """The first row of the job's array, -1 if it is in none."""
        part = self.tasks.get(row)
        return part[0] if part is not None else -1

    def change_tenants(self, tenants: tuple[TenantSpec, ...]) -> None:
        """Other tenants from now on. Raises BadInput. On the loop's thread only."""
        cluster = msgspec.structs.replace(self.header.cluster, tenants=tenants).check("tenants")
        self._begin_segment(msgspec.structs.replace(self.header, cluster=cluster), keep_memory=True)

    def _begin_segment(self, header: Header, *, keep_memory: bool) -> None:
        """Go on under another header, from what is known now."""
        self._flush()
        snapshot = plain(capture(self.kernel))
        if not keep_memory:
            snapshot = forget(snapshot)
        if header.knows != self.header.knows:
            snapshot = msgspec.structs.replace(snapshot, learnt=msgspec.msgpack.encode(None))
        kernel = make_kernel(header, snapshot)
        self.journal.begin_segment(header, kernel.revision, snapshot)
        with self.lock:
            self.header, self.kernel = header, kernel
        self._spent = 0.0

    def change_policy(self, policy: str, knows: str) -> None:
        """Decide by another recipe from now on. Raises BadInput. On the loop's thread only."""
        header = msgspec.structs.replace(self.header, policy=policy, knows=knows)
        self._begin_segment(header, keep_memory=False)

    def node_numbers(self, offered: Sequence[NodeSpec]) -> list[int]:
        """The nodes that an agent offers, as the kernel numbers them; the cluster grows by those
        that it does not know. Raises BadInput where one is not what it was."""
        known = {spec.name: spec for spec in self.header.cluster.nodes}
        new = [spec for spec in offered if spec.name not in known]
        refuse_others(self.header.cluster, offered)
        if new:
            cluster = self.header.cluster
            grown = msgspec.structs.replace(cluster, nodes=(*cluster.nodes, *new))
            header = msgspec.structs.replace(self.header, cluster=grown)
            self._begin_segment(header, keep_memory=True)
        names = self.kernel.nodes.names
        return [names.index(spec.name) for spec in offered]

    def launch(self, job: int) -> Launch:
        """How `job` is launched now. Raises BadInput."""
        return launch_of(self.journal, self.scripts, job, self.kernel.jobs, steps=self.own_srun)

    def now(self) -> int:
        """The engine's time, never before the last step's."""
        return max(self.engine.clock.now(), self.kernel.now)

    def progress(self, row: int) -> dict[str, float]:
        """What a running job last reported of itself."""
        found = self.engine.progress.get(row)
        if found is None:
            return {}
        return {"step": found.step, "total": found.total, **found.metrics}

    # ------------------------------------------------------------------ asking

    def ask(self, ask: Ask) -> None:
        """Have `ask` go into the next batch; `ask.done` gets the answer."""
        with self._mail:
            if self._stopping:
                ask.done.set_exception(GangerError("the daemon is going down"))
                return
            self._inbox.append(ask)
            if len(self._inbox) == 1:
                self.engine.post()

    def stop(self) -> None:
        """End the loop after the present step."""
        with self._mail:
            self._stopping = True
            self.engine.post()

    # ------------------------------------------------------------------ the loop

    def run(self) -> None:
        """Drive the engine until `stop`."""
        self.engine.adopt(self.holds())
        look_at = self.now() + LOOK
        while not self._stopping:
            self.once(look_at)
            if self.now() >= look_at:
                self.look()
                look_at = self.now() + LOOK
        with self._mail:
            late, self._inbox = self._inbox, []
        for ask in late:
            ask.done.set_exception(GangerError("the daemon is going down"))
        self._keep_snapshot()
        with self._mail:  # nobody posts any more
            self.engine.close()

    def once(self, look_at: int = NEVER) -> None:
        """Wait for what happens next, at most until `look_at`, and deal with it."""
        due = min(self.kernel.wake, self.gates.next(self.engine.clock.ahead))
        batch = self.engine.poll(min(due, look_at))
        if batch is None:
            return
        if batch.at < due:  # nobody but us wanted to be woken
            batch.events[:] = [event for event in batch.events if not isinstance(event, Woke)]
        self._turn(batch)

    def look(self) -> None:
        """Settle with the engine what truly runs: events may be missing, or orders."""
        if not self.engine.reconcile(believed(self.kernel)):
            log.warning("kernel and engine did not agree on what runs")

    def holds(self) -> list[Hold]:
        """What the kernel believes to run, for an engine that comes back."""
        return list(believed(self.kernel).holds)

    def _turn(self, batch: Batch) -> None:
        """One step, from what happened to who is answered."""
        with self._mail:
            asks, self._inbox = self._inbox, []
        turn = Turn(max(batch.at, self.kernel.now), self.kernel)
        entered = [ask for ask in asks if self._enter(ask, turn)]
        opened = self.gates.opened(turn.at)
        happened: list[AnyEvent] = [*batch.events, *(Command(row, verb) for row, verb in opened)]
        kernel = self.kernel
        if not happened and not turn.events and turn.at < kernel.wake and not asks:
            return
        entered = self._keep_batch(turn, happened, entered)
        if not happened and not turn.events and turn.at < kernel.wake and not entered:
            return
        started = time.perf_counter()
        with self.lock:
            try:
                plan = kernel.step(Batch(turn.at, self._sorted(happened + turn.events)))
            except Exception as error:  # what the policy planned could not be booked
                plan = self._without_policy(error)
                kernel = self.kernel
            self._after(turn, happened, plan)
            self.feed.step(kernel, happened + turn.events, plan, self.ends)
        self._spent += (lasted := time.perf_counter() - started)
        self.tally.step(lasted)
        self.tally.notice([*happened, *turn.events])
        self._keep_plan(kernel.revision, plan)
        if plan is not None and plan.actions:
            self.engine.apply(plan, turn.at)
        for ask in entered:
            ask.done.set_result(ask.answer())
        self.on_step()
        if self._spent > max(REPLAY_SECONDS, 10 * self._snapshot_cost):
            self._keep_snapshot()

    def _without_policy(self, error: Exception) -> Plan | None:
        """The step was impossible: back to before it, and make it with a policy that decides
        nothing. The batch is in the journal, so that is what a restart does, too."""
        self._flush()
        found = recover(
            self.journal, mute=self.kernel.revision, why=f"{type(error).__name__} {error}"
        )
        assert found is not None
        _, self.kernel, missing = found
        if not missing:
            return None
        record = missing[-1][1]
        guard_of(self.kernel).own = record.own
        return Plan(list(record.actions), [], record.wake, record.until)

    def _enter(self, ask: Ask, turn: Turn) -> bool:
        mark = len(turn.events), len(turn.jobs), len(turn.keys)
        before = dict(turn.ceilings), dict(turn.let_in)
        try:
            ask.enter(turn, self)
        except (GangerError, FullError) as error:
            del turn.events[mark[0] :], turn.jobs[mark[1] :], turn.keys[mark[2] :]
            turn.ceilings, turn.let_in = before
            full = isinstance(error, FullError)
            ask.done.set_exception(FullDisk(f"nothing can be kept: {error}") if full else error)
            return False
        return True

    @staticmethod
    def _sorted(events: list[AnyEvent]) -> list[AnyEvent]:
        return sorted(events, key=lambda event: event.rank)

    def _keep_batch(self, turn: Turn, happened: list[AnyEvent], entered: list[Ask]) -> list[Ask]:
        """Make the batch durable, whatever it takes; whose asks are in it.

        While nothing can be written, those who ask are told so, and what happened waits.
        """
        while True:
            events = self._sorted(happened + turn.events)
            if not events and not entered and turn.at < self.kernel.wake:
                return entered
            try:
                with self.journal.writing() as cursor:
                    self._write_deferred(cursor)
                    revision = self.kernel.revision + 1
                    Journal.write_batch(cursor, revision, Batch(turn.at, events))
                    self._write_turn(cursor, turn, happened)
            except FullError as error:
                self.full = str(error)
                for ask in entered:
                    ask.done.set_exception(FullDisk(f"nothing can be kept: {error}"))
                entered = []
                turn.events, turn.jobs, turn.keys = [], [], []
                turn.changed, turn.held, turn.ceilings, turn.settings = {}, {}, {}, {}
                time.sleep(RETRY_SECONDS)
                self._refuse_mail()
                continue
            self.full = ""
            self._deferred.clear()
            return entered

    def _refuse_mail(self) -> None:
        with self._mail:
            asks, self._inbox = self._inbox, []
        for ask in asks:
            ask.done.set_exception(FullDisk(f"nothing can be kept: {self.full}"))

    def _write_deferred(self, cursor: sqlite3.Cursor) -> None:
        for revision, record in self._deferred:
            Journal.write_plan(cursor, revision, record)

    def _write_turn(self, cursor: sqlite3.Cursor, turn: Turn, happened: Sequence[AnyEvent]) -> None:
        Journal.write_jobs(cursor, turn.jobs)
        for row, facts in turn.changed.items():
            Journal.write_launch(cursor, row, facts)
        for row, held in turn.held.items():
            Journal.write_held(cursor, row, held)
        for key, body, rows in turn.keys:
            Journal.write_key(cursor, key, body, rows)
        for name, value in turn.settings.items():
            Journal.write_setting(cursor, name, value)
        if turn.ceilings:
            most = changed_ceilings(self.gates.ceilings.most, turn.ceilings, self.kernel.jobs)
            Journal.write_setting(
                cursor, CEILINGS, msgspec.json.encode(list(most.items())).decode()
            )
        for event in happened:
            if isinstance(event, Started):
                cursor.execute(
                    "UPDATE attempts SET started = ? WHERE job = ? AND attempt = ?",
                    (turn.at, event.job, event.attempt),
                )
            elif isinstance(event, Finished | Failed | Released | Refused):
                cursor.execute(
                    "UPDATE attempts SET ended = ?, outcome = ? WHERE job = ? AND attempt = ?",
                    (turn.at, outcome(event), event.job, event.attempt),
                )

    def _after(self, turn: Turn, happened: Sequence[AnyEvent], plan: Plan | None) -> None:
        """Bring what lies beside the kernel up to this step."""
        gates = self.gates
        for row, facts in turn.jobs:
            self.names.append(facts.name)
            if facts.task >= 0:
                self.tasks[row] = facts.array, facts.task
            if facts.hold:
                gates.held.add(row)
        new = {group for group in turn.ceilings if group not in gates.ceilings.most}
        jobs = self.kernel.jobs
        gates.ceilings.most = changed_ceilings(gates.ceilings.most, turn.ceilings, jobs)
        first = turn.jobs[0][0] if turn.jobs else jobs.n
        if any(most is None or (group in new and not begins(group, first))
               for group, most in turn.ceilings.items()):  # fmt: skip
            self._close_gates(turn.at)
        else:
            self._close_new(turn, new)
        for row, held in turn.held.items():
            if held:
                gates.held.add(row)
            else:
                gates.let_go(row)
        for event in happened:
            if isinstance(event, Failed | Refused | Released):
                self.ends[event.job] = outcome(event)
            elif isinstance(event, Finished):
                self.ends.pop(event.job, None)
        for event in turn.events:
            if isinstance(event, Command) and event.verb == "priority":
                gates.rank(event.job, int(event.value))
        touched = {event.job for event in (*happened, *turn.events) if hasattr(event, "job")}
        gates.notice(self.kernel, touched)
        last = guard_of(self.kernel).last
        if last is not None:
            self.plan = last

    def _close_new(self, turn: Turn, new: set[Group]) -> None:
        """Close the gates of this turn's jobs, or count those that have none."""
        gates, kernel = self.gates, self.kernel
        for row, facts in turn.jobs:
            if row in kernel.on_hold:
                gates.close(row, facts, kernel, turn.at)
            elif gates.ceilings.most:
                gates.ceilings.take(row, gates.ceilings.needs_of(row, facts.array, kernel))
        for group, most in turn.ceilings.items():
            if most is not None and group not in new:
                gates.raised(group, most)

    def _keep_plan(self, revision: int, plan: Plan | None) -> None:
        """Make the plan durable before it is acted on; one without actions can wait."""
        record = decided(self.kernel, plan)
        if record is None:
            return
        self._deferred.append((revision, record))
        while record.actions:
            try:
                with self.journal.writing() as cursor:
                    self._write_deferred(cursor)
                    self._write_attempts(cursor, record)
            except FullError as error:
                self.full = str(error)
                self._refuse_mail()
                time.sleep(RETRY_SECONDS)
                continue
            self.full = ""
            self._deferred.clear()
            return

    def _write_attempts(self, cursor: sqlite3.Cursor, record: Decided) -> None:
        cursor.executemany(
            "INSERT OR IGNORE INTO attempts (job, attempt, placement) VALUES (?, ?, ?)",
            [
                (action.job, action.attempt, msgspec.msgpack.encode(action.placement))
                for action in record.actions
                if isinstance(action, Start | Resize)
            ],
        )

    def _flush(self) -> None:
        if self._deferred:
            with self.journal.writing() as cursor:
                self._write_deferred(cursor)
            self._deferred.clear()

    def _keep_snapshot(self) -> None:
        """Make the next restart short; no harm if it cannot be."""
        started = time.perf_counter()
        try:
            self._flush()
            self.journal.keep_snapshot(capture(self.kernel))
        except FullError as error:
            self.full = str(error)
        self._snapshot_cost = time.perf_counter() - started
        self._spent = 0.0


def plain(snapshot: Snapshot) -> Snapshot:
    """The same, sharing nothing with the kernel that it was taken of."""
    return msgspec.msgpack.decode(msgspec.msgpack.encode(snapshot), type=Snapshot)


def outcome(event: Finished | Failed | Released | Refused) -> str:
    """How an attempt ended, in a word or a sentence; "" if well."""
    if isinstance(event, Failed):
        return event.why or "Failed"
    if isinstance(event, Refused):
        return f"Refused: {event.why}"
    return "Preempted" if isinstance(event, Released) else ""
