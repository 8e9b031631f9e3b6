"""What people order of a job, and what the kernel does about it.

An order that concerns a job with devices becomes an action of this very step, before all that the
policy plans; its outcome comes back as any other does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ganger.core.events import CAPACITY_FREED, COMMANDED, Command
from ganger.core.plan import RETIRED, Resume, Stop, Suspend
from ganger.core.spec import Kind
from ganger.core.state.jobs import Phase

if TYPE_CHECKING:
    from ganger.core.state.reducer import Reducer

_BLOCKED, _PENDING, _STARTING, _RUNNING, _SUSPENDED, _STOPPING, _CANCELLED = (
    int(phase)
    for phase in (
        Phase.BLOCKED, Phase.PENDING, Phase.STARTING, Phase.RUNNING, Phase.SUSPENDED,
        Phase.STOPPING, Phase.CANCELLED,
    )
)  # fmt: skip

PARENTS = (int(Kind.TUNE), int(Kind.SERVE))
"""Kinds of jobs that end with all their children."""

DECLARES = {"priority": int, "weight": float, "limit": int, "deadline": int, "estimate": int}
"""Verbs that change what was declared: the column of that name becomes the command's value."""

ORDERED = ("requeued", "cancelled")
"""Why a job is stopped that people wanted stopped; such a stop is no preemption."""


def obey(state: Reducer, command: Command) -> int:
    """Do what a person said; the kinds of change that it made (bits of `events`).

    `cancel` ends a job for good, `hold` keeps one that waits from starting (and one that runs, if
    it ever waits again), `release` lifts that, `requeue` stops a job and puts it back in line,
    `suspend` and `resume` freeze and thaw it, `finish` ends a parent whose children are all over,
    as one that finished. An order that does not fit the job's phase does
    nothing.
    """
    job, verb = command.job, command.verb
    phase = state._phase[job]
    if verb in DECLARES:
        getattr(state.jobs, verb)[job] = DECLARES[verb](command.value)
        state._scope_of(job).changed.append(job)
    elif verb == "cancel":
        return _cancel(state, job) | COMMANDED
    elif verb == "finish":
        return _finish(state, job) | COMMANDED
    elif verb == "requeue":
        return stop(state, job, ORDERED[0]) | COMMANDED
    elif verb == "hold" and phase < Phase.FINISHED:
        state._on_hold.add(job)
        if phase == _PENDING:
            leave_the_line(state, job)
            state._phase[job] = _BLOCKED
            state._pending_since[job] = state.now
        state._scope_of(job).paused.discard(job)
    elif verb == "release" and job in state._on_hold:
        state._on_hold.remove(job)
        if job in state._paused:
            state._scope_of(job).paused.add(job)
            state._scope_of(job).changed.append(job)
        elif phase == _BLOCKED and job not in state._blockers:
            state._queue(job)
    elif verb == "suspend" and phase == _RUNNING:
        _at_once(state, Suspend(job, state._attempt[job]))
    elif verb == "resume" and phase == _SUSPENDED:
        _at_once(state, Resume(job, state._attempt[job]))
    return COMMANDED


def leave_the_line(state: Reducer, job: int) -> None:
    """The job, which is pending or blocked, waits for nothing any more."""
    scope = state._scope_of(job)
    state._blockers.pop(job, None)
    state._paused.discard(job)
    scope.paused.discard(job)
    if state._phase[job] == _PENDING:
        scope.pending.remove(job)
        scope.changed.append(job)
        state._pended[job] += state.now - state._pending_since[job]


def _cancel(state: Reducer, job: int) -> int:
    phase = state._phase[job]
    if phase in (_PENDING, _BLOCKED):
        leave_the_line(state, job)
        return state._end(job, _CANCELLED)
    if _STARTING <= phase <= _STOPPING:
        state._cancelling.add(job)
        return cancel_children(state, job) | stop(state, job, ORDERED[1])
    return 0


def _finish(state: Reducer, job: int) -> int:
    if state._phase[job] in (_PENDING, _BLOCKED):
        leave_the_line(state, job)
        return state._end(job, int(Phase.FINISHED))
    if state._phase[job] == _STOPPING:
        state._retiring.add(job)
    return stop(state, job, RETIRED)


def cancel_children(state: Reducer, parent: int) -> int:
    """Cancel all that a parent has started; 0 if it is none."""
    changes = 0
    if state._kind[parent] in PARENTS:
        jobs = state.jobs
        for child in np.flatnonzero(jobs.parent[: jobs.n] == parent).tolist():
            changes |= _cancel(state, child)
    return changes


def stop(state: Reducer, job: int, why: str) -> int:
    """Tell a job with devices to go; they can be planned with in this very step."""
    if not _STARTING <= state._phase[job] < _STOPPING:
        return 0
    ledger = state._scope_of(job).ledger
    state._freed = {job: ledger.give(job, leaving=True)}
    ledger.settle()
    _at_once(state, Stop(job, state._attempt[job], why))
    return CAPACITY_FREED


def _at_once(state: Reducer, action: Stop | Suspend | Resume) -> None:
    state._do[type(action)](action)
    state._orders.append(action)
    state._scope_of(action.job).changed.append(action.job)
