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
from functools import partial
from pathlib import Path
from typing import Final

import msgspec

from ganger.core.errors import GangerError
from ganger.core.events import AnyEvent, Batch, Command, Woke, kinds_of_change
from ganger.core.plan import Plan
from ganger.core.spec import NodeSpec, TenantSpec
from ganger.core.state.bounds import refuse_unfit
from ganger.core.state.snapshot import capture, forget
from ganger.core.units import NEVER, SECOND
from ganger.engines.launch import Launch
from ganger.engines.local import Hold
from ganger.engines.reconciliation import believed
from ganger.mechanisms.common.budgets import carried
from ganger.service.commands import Ask, Turn, answer, skipped_numbers
from ganger.service.durable.journal import Decided, FullError, Header, Journal, SetAside
from ganger.service.durable.record import (
    fit,
    in_order,
    keep_aside,
    plain,
    refuse_unwritable,
    write_attempts,
    write_turn,
)
from ganger.service.durable.recovery import decided, guard_of, make_kernel, recover
from ganger.service.durable.reported import reports_of
from ganger.service.engine import LiveEngine
from ganger.service.errors import FullDisk, reason
from ganger.service.families import Later, answers, ended, unanswered
from ganger.service.http.feed import Feed
from ganger.service.jobs.beside import follow, read_beside
from ganger.service.jobs.holds import Holds
from ganger.service.jobs.launches import launch_of
from ganger.service.nodes import refuse_others
from ganger.service.reports.counters import Counters
from ganger.service.searches.proposing import Proposing
from ganger.service.windows import Windows

log = logging.getLogger("ganger.service")
RETRY_SECONDS: Final = 0.5
"""How often a full disk is tried again."""
LOOK: Final = 60 * SECOND
"""Between two questions to the engine for what truly runs, microseconds."""
REPLAY_SECONDS: Final = 2.0
"""A restart should not have to decide again what took longer than this."""


class Daemon:
    """Owns a kernel, an engine and a journal. `run` is its loop; all else may be called from any
    thread. Reading `kernel` and what lies beside it wants `lock`. `scripts`: see `launch_of`."""

    def __init__(self, journal: Journal, scripts: Path | None = None) -> None:
        self.journal = journal
        self.scripts, self.own_srun = scripts, True  # own: no attempt is a Slurm job
        self.lock = threading.RLock()
        self.gates = Holds()
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
        self.set_aside: list[SetAside] = []
        """The last records that the kernel could not reduce."""
        self.window = 10 * SECOND
        """How long the windows are in which services report, microseconds."""
        self.later = Later()
        self.proposing = Proposing(journal.path, self.ask)
        self.tally = Counters()
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
                    write_attempts(cursor, record)
            if before != header:
                same = before.recipes == header.recipes and before.knows == header.knows
                self._begin_segment(header, keep_memory=same)
        read_beside(self)
        self.windows = Windows(self.window)
        self._inbox += skipped_numbers(self.journal, self.kernel) + unanswered(self)
        return self.journal.last_time()

    def array_of(self, row: int) -> int:
        """The first row of the job's array, -1 if it is in none."""
        part = self.tasks.get(row)
        return part[0] if part is not None else -1

    def change_tenants(self, tenants: tuple[TenantSpec, ...]) -> None:
        """Other tenants from now on; the recipe is asked at once. Raises BadInput. On the loop's
        thread only."""
        cluster = msgspec.structs.replace(self.header.cluster, tenants=tenants).check("tenants")
        self._begin_segment(msgspec.structs.replace(self.header, cluster=cluster), keep_memory=True)

    def _begin_segment(self, header: Header, *, keep_memory: bool) -> None:
        """Go on under another header, from what is known now."""
        self._flush()
        snapshot = plain(capture(self.kernel))
        if not keep_memory:
            snapshot = forget(snapshot)
        memory = carried(
            self.kernel.memory,
            limited=any(tenant.budget >= 0 for tenant in header.cluster.tenants),
            keeps=keep_memory,
            now=self.kernel.now,
        )
        snapshot = msgspec.structs.replace(snapshot, memory=msgspec.msgpack.encode(memory))
        if header.cluster.tenants != self.header.cluster.tenants:
            snapshot = msgspec.structs.replace(snapshot, changes=-1)
        if header.knows != self.header.knows:
            snapshot = msgspec.structs.replace(snapshot, learnt=msgspec.msgpack.encode(None))
        kernel = make_kernel(header, snapshot)
        self.journal.begin_segment(header, kernel.revision, snapshot)
        with self.lock:
            self.header, self.kernel = header, kernel
        self._spent = 0.0

    def change_policy(self, policy: str, knows: str, **planes: str) -> None:
        """Decide by another recipe from now on, and by those of `planes` (`inner`, `serving`).
        Raises BadInput. On the loop's thread only."""
        header = msgspec.structs.replace(self.header, policy=policy, knows=knows, **planes)
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
        return found.figures() if found is not None else {}

    # ------------------------------------------------------------------ asking

    def ask(self, ask: Ask) -> None:
        """Have `ask` go into the next batch; `ask.done` gets the answer."""
        with self._mail:
            if self._stopping:
                ask.done.set_exception(GangerError("the daemon is stopping"))
                return
            self._inbox.append(ask)
            if len(self._inbox) == 1:
                self.engine.post()

    def _ask_self(self, asks: list[Ask]) -> None:
        with self._mail:
            self._inbox += asks
            if asks:
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
        if self._inbox:
            self.engine.post()
        look_at = self.now() + LOOK
        while not self._stopping:
            self.once(look_at)
            if self.now() >= look_at:
                self.look()
                look_at = self.now() + LOOK
        with self._mail:
            late, self._inbox = self._inbox, []
        for ask in late:
            ask.done.set_exception(GangerError("the daemon is stopping"))
        self._keep_snapshot()
        with self._mail:  # nobody posts any more
            self.engine.close()

    def once(self, look_at: int = NEVER) -> None:
        """Wait for what happens next, at most until `look_at`, and deal with it."""
        due = min(self.kernel.wake, self.gates.next(self.engine.clock.ahead))
        ends = self.windows.next(self.header.serving, self.now())
        batch = self.engine.poll(min(due, look_at, ends, self.later.next))
        if batch is None:
            return
        self._ask_self(self.later.due(batch.at))
        if batch.at < due:  # nobody but us wanted to be woken
            batch.events[:] = [event for event in batch.events if not isinstance(event, Woke)]
        if batch.at >= ends:
            batch.events.extend(self.windows.ended(batch.at, self.kernel, self.engine.progress))
        self._turn(batch)

    def look(self) -> None:
        """Settle with the engine what truly runs: events may be missing, or orders."""
        if not self.engine.reconcile(believed(self.kernel)):
            log.warning("kernel and engine did not agree on what runs")

    def holds(self) -> list[Hold]:
        """What the kernel believes to run, for an engine that comes back."""
        told = partial(reports_of, self.journal)
        return [one._replace(reports=told(*one[:2])) for one in believed(self.kernel).holds]

    def _turn(self, batch: Batch) -> None:
        """One step, from what happened to who is answered."""
        with self._mail:
            asks, self._inbox = self._inbox, []
        turn = Turn(max(batch.at, self.kernel.now), self.kernel)
        entered = [ask for ask in asks if self._enter(ask, turn)]
        opened = self.gates.opened(turn.at)
        happened = self._fit(batch.events) + [Command(row, verb) for row, verb in opened]
        kernel = self.kernel
        if not happened and not turn.events and turn.at < kernel.wake and not asks:
            return
        entered = self._keep_batch(turn, happened, entered)
        if not happened and not turn.events and turn.at < kernel.wake and not entered:
            return
        started, revision = time.perf_counter(), kernel.revision + 1
        refused: list[SetAside] = []
        with self.lock:
            try:
                plan = kernel.step(Batch(turn.at, in_order(happened + turn.events)))
                self._after(turn, happened, plan)
            except Exception as error:  # what the policy planned could not be booked, or a bug
                plan, refused = self._back_to_the_journal(revision, error)
                kernel = self.kernel
            self.feed.step(kernel, happened + turn.events, plan, self.ends)
        self._spent += (lasted := time.perf_counter() - started)
        self.tally.step(lasted)
        self.tally.notice([*happened, *turn.events])
        self._keep_plan(kernel.revision, plan)
        if plan is not None and plan.actions:
            self.engine.apply(plan, turn.at)
            self._ask_self(self.later.spread(answers(plan), kernel.jobs, turn.at))
        answer(entered, refused)
        self.on_step()
        if self._spent > max(REPLAY_SECONDS, 10 * self._snapshot_cost):
            self._keep_snapshot()

    def _back_to_the_journal(
        self, revision: int, error: Exception
    ) -> tuple[Plan | None, list[SetAside]]:
        """The step was impossible, and its batch is in the journal: do what a restart does. The
        policy decides nothing in it, and what cannot be reduced without it is set aside."""
        log.warning("revision %d is made again: %s: %s", revision, type(error).__name__, error)
        self._flush()
        found = recover(self.journal, mute=revision, why=f"{type(error).__name__} {error}")
        assert found is not None
        _, self.kernel, missing = found
        read_beside(self)
        refused = [one for one in self.set_aside if one.revision == revision]
        if not missing:
            return None, refused
        record = missing[-1][1]
        guard_of(self.kernel).own = record.own
        return Plan(list(record.actions), [], record.wake, kinds_of_change(record.until)), refused

    def _fit(self, events: list[AnyEvent]) -> list[AnyEvent]:
        """What an engine reports, without what no kernel can reduce: that is set aside."""
        found, records = fit(events, self.kernel)
        if records:
            self.set_aside = keep_aside(self.journal, self.set_aside, records)
        return found

    def _enter(self, ask: Ask, turn: Turn) -> bool:
        mark = turn.mark()
        try:
            ask.enter(turn, self)
            ask.events = turn.events[mark[0] :]
            refuse_unfit(ask.events, turn.kernel, mark[1])
            refuse_unwritable(turn, mark[1])
        except Exception as error:
            turn.undo(mark)
            ask.done.set_exception(reason(error))
            return False
        return True

    def _keep_batch(self, turn: Turn, happened: list[AnyEvent], entered: list[Ask]) -> list[Ask]:
        """Make the batch durable, whatever it takes; whose asks are in it.

        While nothing can be written, those who ask are told so, and what happened waits.
        """
        while True:
            events = in_order(happened + turn.events)
            if not events and not entered and turn.at < self.kernel.wake:
                return entered
            try:
                with self.journal.writing() as cursor:
                    self._write_deferred(cursor)
                    revision = self.kernel.revision + 1
                    Journal.write_batch(cursor, revision, Batch(turn.at, events))
                    most, lost = self.gates.ceilings.most, self.engine.lost_output
                    write_turn(cursor, turn, happened, most, self.kernel.jobs, lost)
            except Exception as error:
                full = isinstance(error, FullError)
                if not full and not entered:
                    raise
                self._refuse(entered, reason(error))
                entered = []
                turn.forget()
                if full:
                    self.full = str(error)
                    time.sleep(RETRY_SECONDS)
                    self._refuse_mail()
                continue
            self.full = ""
            self._deferred.clear()
            return entered

    def _refuse_mail(self) -> None:
        with self._mail:
            asks, self._inbox = self._inbox, []
        self._refuse(asks, FullDisk(f"nothing can be written: {self.full}"))

    def _refuse(self, asks: list[Ask], error: Exception) -> None:
        """Tell people that it cannot be; what the daemon itself wants it asks again."""
        for ask in asks:
            if not ask.own:
                ask.done.set_exception(error)
        self._ask_self([ask for ask in asks if ask.own])

    def _write_deferred(self, cursor: sqlite3.Cursor) -> None:
        for revision, record in self._deferred:
            Journal.write_plan(cursor, revision, record)

    def _after(self, turn: Turn, happened: Sequence[AnyEvent], plan: Plan | None) -> None:
        """Bring what lies beside the kernel up to this step."""
        touched = follow(self, turn, happened)
        self._ask_self(ended(self, touched))
        last = guard_of(self.kernel).last
        if last is not None:
            self.plan = last

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
                    write_attempts(cursor, record)
            except FullError as error:
                self.full = str(error)
                self._refuse_mail()
                time.sleep(RETRY_SECONDS)
                continue
            self.full = ""
            self._deferred.clear()
            return

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
