"""Every way in which the state of a kernel changes: the one module that writes its tables.

What events mean for it is in `reducer`, which asks for these changes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

import numpy as np

from ganger.core.books.occupancy import may_doze
from ganger.core.errors import InvariantError
from ganger.core.events import CAPACITY_FREED, QUEUED
from ganger.core.plan import (
    PAUSED,
    RETIRED,
    Placement,
    Provision,
    Resize,
    Resume,
    Start,
    Stop,
    Suspend,
)
from ganger.core.spec import JobSpec, Kind, rescaled
from ganger.core.state.cluster import Nodes
from ganger.core.state.jobs import Declared, Phase
from ganger.core.state.state import State
from ganger.core.units import NEVER

BLOCKED, PENDING, STARTING, RUNNING, SUSPENDED, STOPPING, FINISHED, FAILED, CANCELLED = (
    int(phase) for phase in list(Phase)[1:]
)
_TUNE, _SERVE = int(Kind.TUNE), int(Kind.SERVE)
_PARENTS: Final = (_TUNE, _SERVE)
"""Kinds of jobs that end with all their children."""
REQUEUED: Final = "requeued"
_ORDERED: Final = (REQUEUED, "cancelled")
"""Why a job is stopped that people wanted stopped; such a stop is no preemption."""


def gpus(placement: Placement) -> int:
    """How many GPUs, whole or shared, a placement has."""
    size = 0
    for slot in placement:
        size += slot.devices.bit_count()
    return size


class Transitions(State):
    """What each action makes of the tables and the books, and what queues, stops or ends a job."""

    def __init__(self, nodes: Nodes, declared: Declared) -> None:
        super().__init__(nodes, declared)
        self._do: dict[type, Callable[[Any], None]] = {
            Start: self._start,
            Stop: self._stop,
            Resize: self._resize,
            Suspend: self._suspend,
            Resume: self._resume,
            Provision: self._pass_on,
        }

    # ------------------------------------------------------------------ a job goes on, or is over

    def declare(self, specs: Iterable[JobSpec]) -> None:
        """Know of more jobs, which will be Submitted. Raises BadInput."""
        self.row_named("")
        jobs, rows = self.jobs, self._rows
        before = jobs.phase
        for spec in specs:
            rows[spec.name] = jobs.append(spec, rows)
        if jobs.phase is not before:  # the columns moved
            self._bind()

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
            self._scope_of(job).changed.append(job)
            return 0
        scope = self._top if self._within[job] < 0 else self._scope_of(job)
        self._phase[job] = PENDING
        self._pending_since[job] = self.now
        scope.pending.add(job)
        scope.changed.append(job)
        return QUEUED

    def _accrue(self, job: int) -> None:
        if self._phase[job] == RUNNING:
            now, since = self.now, self._since
            lasting = now - since[job]
            if lasting:
                self._ran[job] += lasting
                self._served[job] += lasting * self._size[job]
                self._work[job] += lasting * self._rate[job]
                since[job] = now

    def _let_go(self, job: int) -> None:
        """The present attempt's devices are free."""
        if self._resumable:
            self._resumable.discard(job)
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
        if self._kind[job] in _PARENTS:
            changes |= self._cancel_children(job)
            self._forget_family(job)
        elif self.settings.knobs:
            self.settings.forget(job)
        if self.facts.trials and self._within[job] < 0:
            self.facts.trials.pop(job, None)
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

    # ------------------------------------------------------------------ what people order

    def _hold(self, job: int) -> None:
        """Keep a job that waits from starting, and one that runs if it ever waits again."""
        self._on_hold.add(job)
        if self._phase[job] == PENDING:
            self._leave_the_line(job)
            self._phase[job] = BLOCKED
            self._pending_since[job] = self.now
        self._scope_of(job).paused.discard(job)

    def _release(self, job: int) -> None:
        """Lift a hold."""
        self._on_hold.remove(job)
        if job in self._paused:
            scope = self._scope_of(job)
            scope.paused.add(job)
            scope.changed.append(job)
        elif self._phase[job] == BLOCKED and job not in self._blockers:
            self._queue(job)

    def _cancel(self, job: int) -> int:
        """End a job for good: at once, or as soon as its attempt has let go."""
        phase = self._phase[job]
        if phase in (PENDING, BLOCKED):
            self._leave_the_line(job)
            return self._end(job, CANCELLED)
        if STARTING <= phase <= STOPPING:
            self._cancelling.add(job)
            return self._cancel_children(job) | self._stop_now(job, _ORDERED[1])
        return 0

    def _finish(self, job: int) -> int:
        """End a job as one that finished: at once, or as soon as its attempt has let go."""
        if self._phase[job] in (PENDING, BLOCKED):
            self._leave_the_line(job)
            return self._end(job, FINISHED)
        if self._phase[job] == STOPPING:
            self._retiring.add(job)
        return self._stop_now(job, RETIRED)

    def _cancel_children(self, parent: int) -> int:
        """Cancel all that a parent has started; 0 if it is none."""
        changes = 0
        if self._kind[parent] in _PARENTS:
            jobs = self.jobs
            for child in np.flatnonzero(jobs.parent[: jobs.n] == parent).tolist():
                changes |= self._cancel(child)
        return changes

    def _rescale(self, service: int, end: str, replicas: int) -> None:
        """Another `size`, `least` or `most` of replicas for a service that holds nothing: its
        recipe makes that true."""
        held = self.ledger.holds.get(service)
        if self._kind[service] != _SERVE or held is None or held[1]:
            return
        jobs = self.jobs
        shape = rescaled(jobs.shapes[jobs.shape[service]], {end: replicas})
        jobs.shape[service], jobs.gpus[service] = jobs.shapes.code(shape), shape.gpus
        self._top.changed.append(service)

    def _leave_the_line(self, job: int) -> None:
        """The job, which is pending or blocked, waits for nothing any more."""
        scope = self._scope_of(job)
        self._blockers.pop(job, None)
        self._paused.discard(job)
        scope.paused.discard(job)
        if self._phase[job] == PENDING:
            scope.pending.remove(job)
            scope.changed.append(job)
            self._pended[job] += self.now - self._pending_since[job]

    def _stop_now(self, job: int, why: str) -> int:
        """Tell a job with devices to go; they can be planned with in this very step."""
        if not STARTING <= self._phase[job] < STOPPING:
            return 0
        ledger = self._scope_of(job).ledger
        self._freed = {job: ledger.give(job, leaving=True)}
        ledger.settle()
        self._at_once(Stop(job, self._attempt[job], why))
        return CAPACITY_FREED

    def _suspend_now(self, job: int) -> int:
        """Freeze a running job. One that says how much memory it keeps yields its compute, but for
        a search: its trials compute there."""
        ledger = self._scope_of(job).ledger
        yields = self._kind[job] != _TUNE and may_doze(ledger.holds[job][0])
        if yields:
            ledger.doze(job)
            ledger.settle()
        self._at_once(Suspend(job, self._attempt[job], yields))
        self._resumable.discard(job)
        return CAPACITY_FREED if yields else 0

    def _resume_soon(self, job: int) -> None:
        """A person wants a suspended job to go on: now, or as soon as its compute is free. One
        that the policy has suspended goes on when the policy says so."""
        ledger = self._scope_of(job).ledger
        if job not in ledger.asleep:
            self._at_once(Resume(job, self._attempt[job]))
        elif job not in self._resumable:
            self._resuming.add(job)
            self._resumable.add(job)

    def _resume_who_can(self) -> None:
        """Jobs that people want to go on get their compute as soon as nobody computes there, the
        earliest row first, and are resumed when those who leave it have let go."""
        for job in sorted(self._resuming):
            if self._phase[job] != SUSPENDED:
                self._resuming.discard(job)
                continue
            ledger = self._scope_of(job).ledger
            shape, placement = ledger.holds[job]
            if any(slot.node in self.usable.down for slot in placement):
                continue
            if job in ledger.asleep and not ledger.wake(job):
                continue
            ledger.settle()
            if not ledger.waits(placement, shape):
                self._resuming.discard(job)
                self._at_once(Resume(job, self._attempt[job]))

    def _stay_suspended(self, job: int) -> int:
        """A person wants a suspended job to stay so, whatever the policy says; if it was to be
        resumed, it yields again what it was given."""
        ledger = self._scope_of(job).ledger
        self._resumable.discard(job)
        if job not in self._resuming:
            return 0
        self._resuming.discard(job)
        if job in ledger.asleep:
            return 0
        ledger.doze(job)
        ledger.settle()
        return CAPACITY_FREED

    def _at_once(self, action: Stop | Suspend | Resume) -> None:
        """An action of this very step, before all that the policy plans."""
        self._do[type(action)](action)
        self._orders.append(action)
        self._scope_of(action.job).changed.append(action.job)

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
        for slot in action.placement:  # as `gpus`, without the call, which every start would pay
            size += slot.devices.bit_count()
        self._size[job] = size
        if not action.placement and self._kind[job] != _SERVE:
            raise InvariantError(f"{action}: only a service holds nothing itself")
        if self._kind[job] == _TUNE:
            shape = self.jobs.shapes[self.jobs.shape[job]]
            self.grants.open(job, shape, action.placement)

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
        elif action.why not in _ORDERED:
            self._preempted[job] += 1

    def _leave(self, job: int) -> None:
        """The present attempt is told to go: its devices can be planned with."""
        if self._resumable:
            self._resumable.discard(job)
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
        if action.yields and job not in self._scope_of(job).ledger.asleep:
            raise InvariantError(f"{action}, and the books say that it computes")
        self._accrue(job)
        self._phase[job] = SUSPENDED
        if action.yields:
            self._resumable.add(job)
            self._held[job] += (self.now - self._held_since[job]) * self._size[job]
            self._size[job] = 0

    def _resume(self, action: Resume) -> None:
        job = action.job
        if self._phase[job] != SUSPENDED or action.attempt != self._attempt[job]:
            raise InvariantError(f"{action} on a job that is {Phase(self._phase[job]).name}")
        ledger = self._scope_of(job).ledger
        if job in ledger.asleep:
            raise InvariantError(f"{action} on a job whose compute is taken")
        self._phase[job] = RUNNING
        self._began[job] = self._since[job] = self.now
        if self._resumable:
            self._resumable.discard(job)
        if not self._size[job]:  # it had yielded
            self._size[job] = gpus(ledger.holds[job][1])
            self._held_since[job] = self.now

    def _pass_on(self, action: Provision) -> None:
        """Moves no devices and no phase: the engine's affair."""

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
            self._stop_now(child, "parent")
        self.grants.close(parent)
