"""What events mean: a handler for each, which asks for the changes of `transitions`.

A command of people means changes, too. Commands that concern devices become actions of the same
step, before those of the policy.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from ganger.core.errors import InvariantError
from ganger.core.events import (
    CAPACITY_FREED,
    COMMANDED,
    PROGRESSED,
    STARTED,
    WOKE,
    Accepted,
    AnyEvent,
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
    Sampled,
    Started,
    Submitted,
    Withheld,
    Woke,
)
from ganger.core.state.cluster import Nodes
from ganger.core.state.jobs import Declared
from ganger.core.state.transitions import (
    BLOCKED,
    CANCELLED,
    FAILED,
    FINISHED,
    PENDING,
    REQUEUED,
    RUNNING,
    STARTING,
    STOPPING,
    SUSPENDED,
    Transitions,
)

DECLARES: Final = {"priority": int, "weight": float, "limit": int, "deadline": int, "estimate": int}
"""Verbs that change what was declared: the column of that name becomes the command's value."""

RESCALES: Final = ("size", "least", "most")
"""Verbs that change how many replicas a service begins with, and may have."""


class Reducer(Transitions):
    """State, and what each event makes of it.

    A handler returns the kinds of change that it made (bits of `events`).
    """

    def __init__(self, nodes: Nodes, declared: Declared) -> None:
        super().__init__(nodes, declared)
        self._on: dict[type, Callable[[Any], int]] = {
            Submitted: self._submitted,
            Started: self._started,
            Progressed: self._progressed,
            Measured: self._only_told,
            Sampled: self._only_told,
            Finished: self._finished,
            Failed: self._failed,
            Released: self._released,
            Refused: self._refused,
            NodeDown: self.usable.node_down,
            NodeUp: self.usable.node_up,
            Withheld: self.usable.withhold,
            NodeCommand: self.usable.node_command,
            Accepted: self._accepted,
            Command: self._command,
            Woke: self._woke,
        }

    def reduce(self, event: AnyEvent) -> int:
        """One event alone. Raises what its handler raises."""
        return self._on[type(event)](event)

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

    def _only_told(self, event: Measured | Sampled) -> int:
        """Changes nothing here; an oracle may learn from it."""
        return PROGRESSED

    def _finished(self, event: Finished) -> int:
        job, phase = event.job, self._phase[event.job]
        if event.attempt != self._attempt[job]:
            replaced = (job, event.attempt) in self._letting_go  # else it was told before
            self._old_attempt_gone(job, event.attempt)
            if not replaced or phase not in (PENDING, BLOCKED):
                return 0
            self._leave_the_line(job)  # what replaced it never ran
            return self._end(job, FINISHED)
        if not STARTING <= phase <= STOPPING:
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

    def _woke(self, event: Woke) -> int:
        return WOKE

    def _command(self, event: Command) -> int:
        """Do what a person said.

        `cancel` ends a job for good, `hold` keeps one that waits from starting (and one that runs,
        if it ever waits again), `release` lifts that, `requeue` stops a job and puts it back in
        line, `suspend` freezes it (one that says how much GPU memory it keeps yields its compute)
        and `resume` thaws it as soon as it can compute where it is. `finish` ends a parent whose
        children are all over, as one that finished. `size`, `least` and `most` are how many
        replicas a service has that a recipe scales, and may have. An order that concerns a job with
        devices becomes an action of this very step; its outcome comes back as any other does. An
        order that does not fit the job's phase does nothing.
        """
        job, verb = event.job, event.verb
        phase = self._phase[job]
        if verb in DECLARES:
            getattr(self.jobs, verb)[job] = DECLARES[verb](event.value)
            self._scope_of(job).changed.append(job)
        elif verb in RESCALES and phase < STOPPING:
            self._rescale(job, verb, int(event.value))
        elif verb == "cancel":
            return self._cancel(job) | COMMANDED
        elif verb == "finish":
            return self._finish(job) | COMMANDED
        elif verb == "requeue":
            return self._stop_now(job, REQUEUED) | COMMANDED
        elif verb == "hold" and phase < FINISHED:
            self._hold(job)
        elif verb == "release" and job in self._on_hold:
            self._release(job)
        elif verb == "suspend" and phase == RUNNING:
            return self._suspend_now(job) | COMMANDED
        elif verb == "suspend" and phase == SUSPENDED:
            return self._stay_suspended(job) | COMMANDED
        elif verb == "resume" and phase == SUSPENDED:
            self._resume_soon(job)
        return COMMANDED
