"""State, and how it changes: facts come as events, decisions as actions; nothing else writes it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Set
from typing import Any

import numpy as np

from ganger.core.books.ledger import Ledger
from ganger.core.errors import InvariantError
from ganger.core.events import (
    CAPACITY_FREED,
    PROGRESSED,
    QUEUED,
    STARTED,
    WOKE,
    Accepted,
    Command,
    Failed,
    Finished,
    Measured,
    NodeCommand,
    NodeDown,
    NodeUp,
    Progressed,
    Refused,
    Released,
    Started,
    Submitted,
    Withheld,
    Woke,
)
from ganger.core.plan import (
    PAUSED,
    RETIRED,
    AnyAction,
    Placement,
    Provision,
    Resize,
    Resume,
    Start,
    Stop,
    Suspend,
)
from ganger.core.spec import JobSpec, Kind
from ganger.core.state.cluster import Nodes
from ganger.core.state.commands import (
    ORDERED,
    PARENTS,
    cancel_children,
    obey,
    stop,
)
from ganger.core.state.facts import Facts
from ganger.core.state.grants import Grants
from ganger.core.state.jobs import Declared, Jobs, Phase
from ganger.core.state.settings import Settings
from ganger.core.state.usable import Usable
from ganger.core.units import NEVER
from ganger.core.view import Scope

BLOCKED, PENDING, STARTING, RUNNING, SUSPENDED, STOPPING, FINISHED, FAILED, CANCELLED = (
    int(phase) for phase in list(Phase)[1:]
)
_TUNE, _SERVE = int(Kind.TUNE), int(Kind.SERVE)


class Reducer:
    """The tables, the books, and a handler for every event and every action."""

    def __init__(self, nodes: Nodes, declared: Declared) -> None:
        self.nodes = nodes
        self.jobs = Jobs.of(declared)
        self.now = 0
        self.ledger = Ledger(nodes)
        self._grants = Grants(nodes, self.ledger)
        self._inner, self._scopes = self._grants.inner, self._grants.scopes
        self._top = self._grants.top
        self._freed: dict[int, Placement] = {}
        """What each job held that is being stopped or resized."""
        self._letting_go: dict[tuple[int, int], Placement] = {}
        self._blockers: dict[int, int] = {}
        self._on_hold: set[int] = set()
        self._cancelling: set[int] = set()
        self._retiring: set[int] = set()
        """Jobs that are over as soon as their attempt has let go."""
        self._pausing: set[int] = set()
        """Jobs that are set aside as soon as their attempt has let go."""
        self._paused: set[int] = set()
        self.facts = Facts()
        self.settings = Settings()
        self.usable = Usable(self.ledger)
        self._owing = self.usable.owing
        self._changes = 0
        """Kinds of change since the policy was last asked."""
        self._orders: list[AnyAction] = []
        """What people ordered in this step and the engine has to do, whatever the policy says."""
        self._rows: dict[str, int] = {}
        self._after = self.jobs.after
        self._followers: dict[int, list[int]] = {}
        for job, befores in self._after.items():
            for before in befores:
                self._followers.setdefault(before, []).append(job)
        self._on: dict[type, Callable[[Any], int]] = {
            Submitted: self._submitted, Started: self._started, Progressed: self._progressed,
            Measured: self._measured,
            Finished: self._finished, Failed: self._failed, Released: self._released,
            Refused: self._refused,
            NodeDown: self.usable.node_down, NodeUp: self.usable.node_up,
            Withheld: self.usable.withhold, NodeCommand: self.usable.node_command,
            Accepted: self._accepted, Command: self._command, Woke: self._woke,
        }  # fmt: skip
        self._do: dict[type, Callable[[Any], None]] = {
            Start: self._start, Stop: self._stop, Resize: self._resize,
            Suspend: self._suspend, Resume: self._resume,
            Provision: self._pass_on,
        }  # fmt: skip

    def _bind(self) -> None:
        """Take hold of the columns' cells; again whenever the table grew."""
        cells = self.jobs.cells
        self._phase, self._attempt, self._size = cells("phase"), cells("attempt"), cells("size")
        self._rate, self._since, self._ran = cells("rate"), cells("since"), cells("ran")
        self._began = cells("began")
        self._served, self._work, self._held = cells("served"), cells("work"), cells("held")
        self._held_since, self._first = cells("held_since"), cells("first_start")
        self._pending_since, self._pended = cells("pending_since"), cells("pended")
        self._done_at, self._preempted = cells("finished"), cells("preemptions")
        self._restarts, self._lost = cells("restarts"), cells("lost")
        self._within, self._kind = cells("within"), cells("kind")
        self._parent, self._asks_at = cells("parent"), cells("asks_at")

    # ------------------------------------------------------------------ for whom it may concern

    @property
    def on_hold(self) -> Set[int]:
        """Jobs that were told to hold."""
        return self._on_hold

    @property
    def blockers(self) -> Mapping[int, int]:
        """How many jobs each blocked job still waits for."""
        return self._blockers

    @property
    def letting_go(self) -> Mapping[tuple[int, int], Placement]:
        """What the attempts (job, attempt) hold that were told to go."""
        return self._letting_go

    def placements(self) -> dict[int, Placement]:
        """What each job holds."""
        return {
            job: placement
            for scope in self._scopes.values()
            for job, (_, placement) in scope.ledger.holds.items()
        }

    @property
    def paused(self) -> Set[int]:
        """Jobs that a policy has set aside; they keep their work and hold nothing."""
        return self._paused

    def barred(self, node: int) -> str:
        """Why nothing starts on a node: `down`, `drained`, or ""."""
        return self.usable.barred(node)

    def withheld(self, node: int) -> int:
        """How many GPUs of a node are used outside Ganger."""
        return self.usable.withheld.get(node, 0)

    # ------------------------------------------------------------------ events

    def _scope_of(self, job: int) -> Scope:
        within = self._within[job]
        return self._top if within < 0 else self._grants.scope(within)

    # Each handler returns the kinds of change it made (bits of `events`).

    def _submitted(self, event: Submitted) -> int:
        job = event.job
        if self._phase[job]:
            raise InvariantError(f"job {job} was submitted twice")
        parent = self._parent[job]
        if parent >= 0 and self._phase[parent] >= FINISHED:
            return self._end(job, CANCELLED)
        befores = self._after.get(job) if self._after else None
        if befores:
            if any(self._phase[before] in (FAILED, CANCELLED) for before in befores):
                return self._end(job, CANCELLED)
            blockers = sum(self._phase[before] != FINISHED for before in befores)
            if blockers:
                self._blockers[job] = blockers
                self._phase[job] = BLOCKED
                self._pending_since[job] = self.now
                return 0
        return self._queue(job)

    def row_named(self, name: str) -> int:
        """The row of the job of that name, -1 if there is none."""
        jobs, rows = self.jobs, self._rows
        for row in range(len(rows), jobs.n):
            rows[jobs.name(row)] = row
        return rows.get(name, -1)

    def declare(self, specs: Iterable[JobSpec]) -> None:
        """Know of more jobs, which will be Submitted. Raises BadInput."""
        self.row_named("")
        jobs, rows = self.jobs, self._rows
        for spec in specs:
            rows[spec.name] = jobs.append(spec, rows)
        self._bind()  # of another table if it moved; a twin that cannot be written to counts anew

    def _accepted(self, event: Accepted) -> int:
        job = self.jobs.n
        if job != event.job:
            raise InvariantError(f"job {event.job} was accepted as row {job}")
        self.declare((event.spec,))
        for before in self._after.get(job, ()):
            self._followers.setdefault(before, []).append(job)
        if event.spawned:
            self.settings.came(self._parent[job])
        return self._submitted(Submitted(job))

    def _queue(self, job: int) -> int:
        """The job waits for devices from now on, unless people want something else."""
        if self._retiring and job in self._retiring:
            return self._end(job, FINISHED) | CAPACITY_FREED
        if self._cancelling and job in self._cancelling:
            return self._end(job, CANCELLED)
        if self._pausing and job in self._pausing:
            self._pausing.discard(job)
            self._paused.add(job)
            self._phase[job] = BLOCKED
            scope = self._scope_of(job)
            if job not in self._on_hold:
                scope.paused.add(job)
            scope.changed.append(job)
            return QUEUED
        if self._on_hold and job in self._on_hold:
            self._phase[job] = BLOCKED
            self._pending_since[job] = self.now
            return 0
        scope = self._top if self._within[job] < 0 else self._scope_of(job)
        self._phase[job] = PENDING
        self._pending_since[job] = self.now
        scope.pending.add(job)
        scope.changed.append(job)
        return QUEUED

    def _started(self, event: Started) -> int:
        job = event.job
        if event.attempt != self._attempt[job] or self._phase[job] != STARTING:
            return 0
        self._phase[job] = RUNNING
        self._began[job] = self._since[job] = self.now
        self._rate[job] = event.rate
        if self._first[job] < 0:
            self._first[job] = self.now
        else:
            self._restarts[job] += 1
        scope = self._top if self._within[job] < 0 else self._scope_of(job)
        scope.changed.append(job)
        return STARTED

    def _progressed(self, event: Progressed) -> int:
        job = event.job
        if event.attempt == self._attempt[job] and self._phase[job] == RUNNING:
            self._accrue(job)
            self._work[job] = event.work
            self._rate[job] = event.rate
            self._scope_of(job).heard_of(job)
        return PROGRESSED

    def _measured(self, event: Measured) -> int:
        """Changes nothing here; an oracle may learn from it."""
        return PROGRESSED

    def _accrue(self, job: int) -> None:
        if self._phase[job] == RUNNING:
            now, since = self.now, self._since
            lasting = now - since[job]
            if lasting:
                self._ran[job] += lasting
                self._served[job] += lasting * self._size[job]
                self._work[job] += lasting * self._rate[job]
                since[job] = now

    def _finished(self, event: Finished) -> int:
        job = event.job
        if event.attempt != self._attempt[job] or not STARTING <= self._phase[job] <= STOPPING:
            return 0
        self._accrue(job)
        self._let_go(job)
        return self._end(job, FINISHED) | CAPACITY_FREED

    def _failed(self, event: Failed) -> int:
        job = event.job
        if event.attempt != self._attempt[job]:
            return self._old_attempt_gone(job, event.attempt)
        if not STARTING <= self._phase[job] <= STOPPING:
            return 0
        self._accrue(job)
        self._let_go(job)
        self._keep(job, event.kept)
        if event.final:
            return self._end(job, FAILED) | CAPACITY_FREED
        return self._queue(job) | CAPACITY_FREED

    def _released(self, event: Released) -> int:
        job = event.job
        if event.attempt != self._attempt[job]:
            if (job, event.attempt) in self._letting_go:  # else it was told before
                self._keep(job, event.kept)
            return self._old_attempt_gone(job, event.attempt)
        phase = self._phase[job]
        if not RUNNING <= phase <= STOPPING:
            return 0
        if phase != STOPPING:  # whoever told it to leave
            self._preempted[job] += 1
        self._accrue(job)
        self._let_go(job)
        self._keep(job, event.kept)
        # A stopping job's devices could be planned with since it was told to stop.
        return self._queue(job) | (CAPACITY_FREED if phase != STOPPING else 0)

    def _refused(self, event: Refused) -> int:
        job = event.job
        if event.attempt != self._attempt[job] or self._phase[job] != STARTING:
            return 0
        self._pended[job] += self.now - self._held_since[job]  # for what never came
        self._let_go(job)
        return self._queue(job) | CAPACITY_FREED

    def _old_attempt_gone(self, job: int, attempt: int) -> int:
        placement = self._letting_go.pop((job, attempt), None)
        if placement is not None:
            self._gone(job, placement)
        return 0

    def _gone(self, job: int, placement: Placement) -> None:
        """An attempt has let go of what it was told to leave, of which others may wait."""
        scope = self._scope_of(job)
        scope.ledger.gone(job, placement)
        if scope is not self._top:  # its grant may have been closed before it went
            self.ledger.gone(job, placement)

    def _keep(self, job: int, kept: float) -> None:
        """Set the surviving work, and count what was lost."""
        lost = self._work[job] - kept
        if lost > 1.0:  # less than a microsecond is rounding
            self._lost[job] += lost
        if kept < NEVER:
            self._work[job] = kept

    def _let_go(self, job: int) -> None:
        """The present attempt's devices are free."""
        scope = self._top if self._within[job] < 0 else self._scope_of(job)
        if self._letting_go and self._phase[job] == STOPPING:
            self._gone(job, self._letting_go.pop((job, self._attempt[job])))
        else:
            scope.ledger.free_up(job)
        self._held[job] += (self.now - self._held_since[job]) * self._size[job]
        self._size[job] = 0
        self._rate[job] = 0.0
        scope.active.remove(job)
        if self._inner and job in self._inner:
            self._close_grant(job)

    def _end(self, job: int, phase: int) -> int:
        """The job is over; whoever waits for it goes on or is cancelled."""
        self._phase[job] = phase
        self._done_at[job] = self.now
        if self._cancelling:
            self._cancelling.discard(job)
        if self._retiring or self._pausing:
            self._retiring.discard(job)
            self._pausing.discard(job)
        scope = self._top if self._within[job] < 0 else self._scope_of(job)
        scope.changed.append(job)
        changes = 0
        if self._kind[job] in PARENTS:
            changes |= cancel_children(self, job)
            self._forget_family(job)
        elif self.settings.knobs:
            self.settings.forget(job)
        if not self._followers:
            return changes
        for follower in self._followers.pop(job, ()):
            if follower not in self._blockers:
                continue
            if phase != FINISHED:
                del self._blockers[follower]
                changes |= self._end(follower, CANCELLED)
                continue
            self._blockers[follower] -= 1
            if not self._blockers[follower]:
                del self._blockers[follower]
                changes |= self._queue(follower)
        return changes

    def _woke(self, event: Woke) -> int:
        return WOKE

    def _command(self, event: Command) -> int:
        return obey(self, event)

    # ------------------------------------------------------------------ actions

    def _start(self, action: Start) -> None:
        job = action.job
        scope = self._top if self._within[job] < 0 else self._scope_of(job)
        if self._phase[job] == PENDING and action.attempt == self._attempt[job] + 1:
            scope.pending.remove(job)
            self._pended[job] += self.now - self._pending_since[job]
        elif job in scope.paused.rows and action.attempt == self._attempt[job] + 1:
            scope.paused.remove(job)
            self._paused.remove(job)
        else:
            raise InvariantError(f"{action} on a job that is {Phase(self._phase[job]).name}")
        scope.active.add(job)
        self._begin_attempt(job, action)

    def _begin_attempt(self, job: int, action: Start | Resize) -> None:
        self._phase[job] = STARTING
        self._attempt[job] = action.attempt
        self._held_since[job] = self.now
        size = 0
        for slot in action.placement:
            size += slot.devices.bit_count()
        self._size[job] = size
        if not size and not action.placement and self._kind[job] != _SERVE:
            raise InvariantError(f"{action}: only a service holds nothing itself")
        if self._kind[job] == _TUNE:
            self._grants.open(job, action.placement)

    def _stop(self, action: Stop) -> None:
        job, phase = action.job, self._phase[action.job]
        if phase not in (STARTING, RUNNING, SUSPENDED) or action.attempt != self._attempt[job]:
            raise InvariantError(f"{action} on a job that is {Phase(phase).name}")
        self._accrue(job)
        self._leave(job)
        if self._inner and job in self._inner:
            self._close_grant(job)
        self._phase[job] = STOPPING
        self._rate[job] = 0.0
        if action.why == RETIRED:
            self._retiring.add(job)
        elif action.why == PAUSED:
            self._pausing.add(job)
        elif action.why not in ORDERED:
            self._preempted[job] += 1

    def _leave(self, job: int) -> None:
        """The present attempt is told to go: its devices can be planned with."""
        self._letting_go[job, self._attempt[job]] = self._freed[job]

    def _resize(self, action: Resize) -> None:
        job, phase = action.job, self._phase[action.job]
        if phase not in (STARTING, RUNNING, SUSPENDED) or action.attempt != self._attempt[job] + 1:
            raise InvariantError(f"{action} on a job that is {Phase(phase).name}")
        self._accrue(job)
        self._leave(job)
        self._held[job] += (self.now - self._held_since[job]) * self._size[job]
        self._rate[job] = 0.0
        self._begin_attempt(job, action)

    def _suspend(self, action: Suspend) -> None:
        job = action.job
        if self._phase[job] != RUNNING or action.attempt != self._attempt[job]:
            raise InvariantError(f"{action} on a job that is {Phase(self._phase[job]).name}")
        self._accrue(job)
        self._phase[job] = SUSPENDED

    def _resume(self, action: Resume) -> None:
        job = action.job
        if self._phase[job] != SUSPENDED or action.attempt != self._attempt[job]:
            raise InvariantError(f"{action} on a job that is {Phase(self._phase[job]).name}")
        self._phase[job] = RUNNING
        self._began[job] = self._since[job] = self.now

    def _pass_on(self, action: Provision) -> None:
        """Moves no devices and no phase: the engine's affair."""

    # ------------------------------------------------------------------ grants of parents

    def _forget_family(self, parent: int) -> None:
        """The parent is over: nobody asks about its children any more."""
        self.settings.forget(parent)
        if self.facts.trials:
            jobs = self.jobs
            self.facts.forget(np.flatnonzero(jobs.parent[: jobs.n] == parent).tolist())
        self.facts.forget((parent,))

    def _close_grant(self, parent: int) -> None:
        """The parent holds nothing more: those of its children that still run are told to go."""
        for child in sorted(self._inner[parent].holds):
            stop(self, child, "parent")
        self._grants.close(parent)
