"""The loop: events in, state reduced, a plan out. The only writer of state.

`Kernel.step` is the same in the simulator and live. It knows no recipe, no engine and no clock.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ganger.core.cluster import Nodes
from ganger.core.draft import Draft
from ganger.core.errors import InvariantError
from ganger.core.events import (
    ANYTHING,
    CAPACITY_FREED,
    CAPACITY_LOST,
    COMMANDED,
    PROGRESSED,
    QUEUED,
    STARTED,
    WOKE,
    Batch,
    Command,
    Failed,
    Finished,
    NodeDown,
    NodeUp,
    Progressed,
    Refused,
    Released,
    Started,
    Submitted,
    Woke,
)
from ganger.core.invariants import check_state
from ganger.core.jobs import Declared, Jobs, Phase
from ganger.core.ledger import Ledger
from ganger.core.plan import Placement, Plan, Provision, Resize, Resume, Start, Stop, Suspend, Tune
from ganger.core.protocols import Engine, Ignorant, Journal, Oracle, Policy
from ganger.core.spec import Kind
from ganger.core.units import NEVER
from ganger.core.view import Scope, View

BLOCKED, PENDING, STARTING, RUNNING, SUSPENDED, STOPPING, FINISHED, FAILED, CANCELLED = (
    int(phase) for phase in list(Phase)[1:]
)
_TUNE = int(Kind.TUNE)


class Kernel:
    """State, and the policy that decides over it.

    `validate`: check every invariant after every step, give the policy read-only columns, and
    build each plan a second time from its actions alone. Slow; for tests and for doubt.
    """

    def __init__(
        self,
        nodes: Nodes,
        declared: Declared,
        policy: Policy,
        *,
        oracle: Oracle | None = None,
        journal: Journal | None = None,
        seed: int = 0,
        validate: bool = False,
    ) -> None:
        self.nodes = nodes
        self.jobs = Jobs.of(declared)
        self.policy = policy
        self.oracle: Oracle = oracle if oracle is not None else Ignorant()
        self.journal = journal
        self.validate = validate
        self.now = 0
        self.revision = 0
        self.decisions = 0
        self.events = 0
        self.memory: Any = None
        self.wake = NEVER
        self.ledger = Ledger(nodes)
        self._inner: dict[int, Ledger] = {}
        self._scopes: dict[int, Scope] = {-1: Scope(self.ledger)}
        self._until = ANYTHING
        self._changes = 0
        self._letting_go: dict[tuple[int, int], Placement] = {}
        self._blockers: dict[int, int] = {}
        self._followers: dict[int, list[int]] = {}
        for job, befores in declared.after.items():
            for before in befores:
                self._followers.setdefault(before, []).append(job)
        self._draft = Draft(self.jobs, self.ledger, self._inner)
        self._top = self._scopes[-1]
        self._learns = self.oracle.learns
        seen = self.jobs.frozen() if validate else self.jobs
        self.view = View(seen, nodes, self._scopes, self._draft, self.oracle, seed)
        self._bind()
        self._on: dict[type, Callable[[Any], int]] = {
            Submitted: self._submitted, Started: self._started, Progressed: self._progressed,
            Finished: self._finished, Failed: self._failed, Released: self._released,
            Refused: self._refused, NodeDown: self._node_down, NodeUp: self._node_up,
            Command: self._command, Woke: self._woke,
        }  # fmt: skip
        self._do: dict[type, Callable[[Any], None]] = {
            Start: self._start, Stop: self._stop, Resize: self._resize,
            Suspend: self._suspend, Resume: self._resume,
            Tune: self._pass_on, Provision: self._pass_on,
        }  # fmt: skip

    def _bind(self) -> None:
        """Take hold of the columns' cells; again whenever the table grew."""
        cells = self.jobs.cells
        self._phase, self._attempt, self._size = cells("phase"), cells("attempt"), cells("size")
        self._rate, self._since, self._ran = cells("rate"), cells("since"), cells("ran")
        self._served, self._work, self._held = cells("served"), cells("work"), cells("held")
        self._held_since, self._first = cells("held_since"), cells("first_start")
        self._pending_since, self._pended = cells("pending_since"), cells("pended")
        self._done_at, self._preempted = cells("finished"), cells("preemptions")
        self._restarts, self._lost = cells("restarts"), cells("lost")
        self._parent, self._kind = cells("parent"), cells("kind")

    # ------------------------------------------------------------------ the loop

    def run(self, engine: Engine, until: int = NEVER) -> None:
        """Drive `engine` until it has nothing more to tell, or `until`."""
        poll, apply, step = engine.poll, engine.apply, self.step
        while True:
            batch = poll(min(self.wake, until))
            if batch is None or batch.at > until:
                return
            plan = step(batch)
            if plan is not None and plan.actions:
                apply(plan, batch.at)
            if batch.at >= until:
                return

    def step(self, batch: Batch) -> Plan | None:
        """Reduce one batch; ask the policy if it could care. None where it was not asked."""
        now = batch.at
        if now < self.now:
            raise InvariantError(f"time ran backwards, from {self.now} to {now}")
        self.now = now
        self.revision += 1
        on, changes = self._on, self._changes
        for event in batch.events:
            changes |= on[type(event)](event)
        self.events += len(batch.events)
        if self._learns:
            self._look(batch)
            self.oracle.observe(self.view)
        plan = None
        if changes & self._until or now >= self.wake:
            self._changes = 0
            plan = self._decide(batch)
        else:
            self._changes = changes
        if self.validate:
            check_state(self)
        if self.journal is not None:
            self.journal.append(self.revision, batch, plan, self.memory)
        return plan

    def _decide(self, batch: Batch) -> Plan:
        self._look(batch)
        plan, memory = self.policy.decide(self.view, self.memory)
        if self.validate:
            self._check_pure(plan)
        plan.basis = self.revision
        self.decisions += 1
        self.memory = memory
        self.wake, self._until = plan.wake, plan.until
        if self.wake <= self.now:
            raise InvariantError(f"policy {self.policy.name} wants to be woken in the past")
        self._adopt(plan)
        self._top.changed.clear()
        if len(self._scopes) > 1:
            for scope in self._scopes.values():
                scope.changed.clear()
        return plan

    def _look(self, batch: Batch) -> None:
        """Bring the view up to this step."""
        view = self.view
        view.now, view.revision, view.events = batch.at, self.revision, batch.events

    def _adopt(self, plan: Plan) -> None:
        """Make the plan's actions true in the books and the table."""
        if self.validate:
            self._draft.made = None
        self._freed = self._draft.book(plan)
        do = self._do
        for action in plan.actions:
            do[type(action)](action)

    def _check_pure(self, plan: Plan) -> None:
        """Decide again from the same view with empty caches: the plan must be the same."""
        self._draft.rollback()
        self._draft.clear()
        for scope in self._scopes.values():
            scope.scratch.clear()
        again, _ = self.policy.decide(self.view, self.memory)
        if again.actions != plan.actions or again.wake != plan.wake:
            raise InvariantError(
                f"policy {self.policy.name} decided twice on revision {self.revision} and"
                f" differed: {plan.actions} then {again.actions}"
            )

    # ------------------------------------------------------------------ events

    def _scope_of(self, job: int) -> Scope:
        parent = self._parent[job]
        if parent < 0:
            return self._top
        scope = self._scopes.get(parent)
        if scope is None:
            scope = self._scopes[parent] = Scope(Ledger(self.nodes, {}))
        return scope

    # Each handler returns the kinds of change it made (bits of `events`).

    def _submitted(self, event: Submitted) -> int:
        job = event.job
        if self._phase[job]:
            raise InvariantError(f"job {job} was submitted twice")
        befores = self.jobs.after.get(job)
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

    def _queue(self, job: int) -> int:
        """The job waits for devices from now on."""
        scope = self._top if self._parent[job] < 0 else self._scope_of(job)
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
        self._since[job] = self.now
        self._rate[job] = event.rate
        if self._first[job] < 0:
            self._first[job] = self.now
        else:
            self._restarts[job] += 1
        scope = self._top if self._parent[job] < 0 else self._scope_of(job)
        scope.changed.append(job)
        return STARTED

    def _progressed(self, event: Progressed) -> int:
        job = event.job
        if event.attempt == self._attempt[job] and self._phase[job] == RUNNING:
            self._accrue(job)
            self._work[job] = event.work
            self._rate[job] = event.rate
        return PROGRESSED

    def _accrue(self, job: int) -> None:
        if self._phase[job] == RUNNING:
            now = self.now
            lasting = now - self._since[job]
            self._ran[job] += lasting
            self._served[job] += lasting * self._size[job]
            self._work[job] += lasting * self._rate[job]
            self._since[job] = now

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
            self._keep(job, event.kept)
            return self._old_attempt_gone(job, event.attempt)
        if self._phase[job] != STOPPING:
            return 0
        self._let_go(job)
        self._keep(job, event.kept)
        return self._queue(job) | CAPACITY_FREED

    def _refused(self, event: Refused) -> int:
        job = event.job
        if event.attempt != self._attempt[job] or self._phase[job] != STARTING:
            return 0
        self._let_go(job)
        return self._queue(job) | CAPACITY_FREED

    def _old_attempt_gone(self, job: int, attempt: int) -> int:
        placement = self._letting_go.pop((job, attempt), None)
        if placement is not None:
            self._scope_of(job).ledger.gone(job, placement)
        return CAPACITY_FREED

    def _keep(self, job: int, kept: float) -> None:
        """Set the surviving work, and count what was lost."""
        lost = self._work[job] - kept
        if lost > 1.0:  # less than a microsecond is rounding
            self._lost[job] += lost
        if kept < NEVER:
            self._work[job] = kept

    def _let_go(self, job: int) -> None:
        """The present attempt's devices are free."""
        scope = self._top if self._parent[job] < 0 else self._scope_of(job)
        if self._phase[job] == STOPPING:
            scope.ledger.gone(job, self._letting_go.pop((job, self._attempt[job])))
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
        scope = self._top if self._parent[job] < 0 else self._scope_of(job)
        scope.changed.append(job)
        changes = 0
        for follower in self._followers.pop(job, ()) if self._followers else ():
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

    def _node_down(self, event: NodeDown) -> int:
        self.ledger.switch(event.node, up=False)
        return CAPACITY_LOST

    def _node_up(self, event: NodeUp) -> int:
        self.ledger.switch(event.node, up=True)
        return CAPACITY_FREED

    def _woke(self, event: Woke) -> int:
        return WOKE

    def _command(self, event: Command) -> int:
        job, phase = event.job, self._phase[event.job]
        if event.verb == "priority":
            self.jobs.priority[job] = int(event.value)
            self._scope_of(job).changed.append(job)
        elif event.verb in ("cancel", "hold") and phase in (PENDING, BLOCKED):
            if phase == PENDING:
                self._scope_of(job).pending.remove(job)
                self._pended[job] += self.now - self._pending_since[job]
            if event.verb == "cancel":
                self._blockers.pop(job, None)
                self._end(job, CANCELLED)
            else:
                self._phase[job] = BLOCKED
                self._scope_of(job).changed.append(job)
        elif event.verb == "release" and phase == BLOCKED and job not in self._blockers:
            self._queue(job)
        return COMMANDED

    # ------------------------------------------------------------------ actions

    def _start(self, action: Start) -> None:
        job = action.job
        if self._phase[job] != PENDING or action.attempt != self._attempt[job] + 1:
            raise InvariantError(f"{action} on a job that is {Phase(self._phase[job]).name}")
        scope = self._top if self._parent[job] < 0 else self._scope_of(job)
        scope.pending.remove(job)
        scope.active.add(job)
        self._pended[job] += self.now - self._pending_since[job]
        self._begin_attempt(job, action)

    def _begin_attempt(self, job: int, action: Start | Resize) -> None:
        self._phase[job] = STARTING
        self._attempt[job] = action.attempt
        self._held_since[job] = self.now
        size = 0
        for slot in action.placement:
            size += slot.devices.bit_count()
        self._size[job] = size
        if self._kind[job] == _TUNE:
            self._open_grant(job, action.placement)

    def _stop(self, action: Stop) -> None:
        job, phase = action.job, self._phase[action.job]
        if phase not in (STARTING, RUNNING, SUSPENDED) or action.attempt != self._attempt[job]:
            raise InvariantError(f"{action} on a job that is {Phase(phase).name}")
        self._accrue(job)
        self._leave(job)
        self._phase[job] = STOPPING
        self._rate[job] = 0.0
        self._preempted[job] += 1

    def _leave(self, job: int) -> None:
        """The present attempt is told to go: its devices can be planned with."""
        self._letting_go[job, self._attempt[job]] = self._freed[job]

    def _resize(self, action: Resize) -> None:
        job, phase = action.job, self._phase[action.job]
        if phase not in (STARTING, RUNNING) or action.attempt != self._attempt[job] + 1:
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
        self._since[job] = self.now

    def _pass_on(self, action: Tune | Provision) -> None:
        """Moves no devices and no phase: the engine's affair."""

    # ------------------------------------------------------------------ grants of parents

    def _open_grant(self, parent: int, placement: Placement) -> None:
        within: dict[int, int] = {}
        for slot in placement:
            within[slot.node] = within.get(slot.node, 0) | slot.devices
        self._inner[parent] = Ledger(self.nodes, within)
        scope = self._scopes.get(parent)
        if scope is None:
            self._scopes[parent] = Scope(self._inner[parent])
        else:
            scope.ledger = self._inner[parent]

    def _close_grant(self, parent: int) -> None:
        if self._inner[parent].holds:
            raise InvariantError(f"job {parent} ended while its children ran on its grant")
        self._scopes[parent].ledger = Ledger(self.nodes, {})
        del self._inner[parent]
