"""The loop: events in, state reduced, a plan out.

`Kernel.step` is the same in the simulator and live. It knows no recipe, no engine and no clock.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ganger.core.books.draft import Draft
from ganger.core.errors import InvariantError
from ganger.core.events import ANYTHING, Batch
from ganger.core.plan import WITHDRAWN, Plan, Tune
from ganger.core.protocols import Engine, Ignorant, Journal, Oracle, Policy
from ganger.core.spec import JobSpec
from ganger.core.state.cluster import Nodes
from ganger.core.state.families import Families
from ganger.core.state.invariants import check_state
from ganger.core.state.jobs import HOLDS_DEVICES, Declared, Phase
from ganger.core.units import NEVER
from ganger.core.view import View

RESTLESS = 100_000
"""More steps than this at one instant, and a policy is chasing its own tail."""


class Kernel(Families):
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
        super().__init__(nodes, declared)
        self.policy = policy
        self.oracle: Oracle = oracle if oracle is not None else Ignorant()
        self.journal = journal
        self.validate = validate
        self.revision = 0
        self.decisions = 0
        self.events = 0
        self.memory: Any = None
        self.wake = NEVER
        self.moved_on = 0
        """The revision at which time last went on."""
        self.until = ANYTHING
        """Kinds of change that the plan in force would not survive."""
        self._learns = self.oracle.learns
        self._draft = Draft(self.jobs, self.ledger, self._inner, self._resumable)
        self.view = View(
            nodes, self._scopes, self._draft, self.oracle, seed, self.facts, self.settings
        )
        self.view.resumable = self._resumable
        self._bind()

    def _bind(self) -> None:
        super()._bind()
        self.view.bind(self.jobs.frozen() if self.validate else self.jobs)
        self._draft.bind(self.jobs)

    def declare(self, specs: Iterable[JobSpec]) -> None:
        """Know of more jobs, which will be Submitted. Raises BadInput."""
        super().declare(specs)
        if self.view.jobs is not self.jobs:  # a twin, which has to count its rows anew
            self.view.bind(self.jobs.frozen())

    # ------------------------------------------------------------------ the loop

    def run(self, engine: Engine, until: int = NEVER) -> None:
        """Drive `engine` until it has nothing more to tell, or `until`."""
        poll, apply, step = engine.poll, engine.apply, self.step
        while True:
            wake = self.wake
            batch = poll(wake if wake < until else until)  # noqa: FURB136 - min() is slow
            if batch is None:
                return
            at = batch.at
            if at > until:
                return
            if at > self.now:
                self.moved_on = self.revision
            elif self.revision - self.moved_on > RESTLESS:
                raise InvariantError(
                    f"policy {self.policy.name} keeps changing its plan and time stands still"
                    f" at {self.now / 1e6} s"
                )
            plan = step(batch)
            if plan is not None and plan.actions:
                apply(plan, at)
            if at >= until:
                return

    def step(self, batch: Batch) -> Plan | None:
        """Reduce one batch; ask the policy if it could care. None where it was not asked."""
        now = batch.at
        if now < self.now:
            raise InvariantError(f"time ran backwards, from {self.now} to {now}")
        self.now = now
        self.revision += 1
        on, changes = self._on, self.changes
        for event in batch.events:
            changes |= on[type(event)](event)
        if self._owing:
            self.usable.settle()
        if self._resuming:
            self._resume_who_can()
        self.events += len(batch.events)
        if self._learns:
            view = self.view
            view.now, view.revision, view.events = now, self.revision, batch.events
            self.oracle.observe(view)
        plan = None
        if changes & self.until or now >= self.wake:
            self.changes = 0
            plan = self._decide(batch)
        else:
            self.changes = changes
        if self._orders or self.validate or self.journal is not None:
            return self._close(batch, plan)
        return plan

    def finish(self, batch: Batch, plan: Plan) -> Plan | None:
        """The rest of a step that ended in an exception of the policy, with the plan that a program
        outside has made since."""
        return self._close(batch, self._decide(batch, plan))

    def _close(self, batch: Batch, plan: Plan | None) -> Plan | None:
        if self._orders:
            plan = self._with_orders(plan)
        if self.validate:
            check_state(self)
        if self.journal is not None:
            self.journal.append(self.revision, batch, plan, self.memory)
        return plan

    def _decide(self, batch: Batch, plan: Plan | None = None) -> Plan:
        """Make true in the books and tables what the policy says, or `plan`."""
        view = self.view
        view.now, view.revision, view.events = batch.at, self.revision, batch.events
        if plan is None:
            plan, memory = self._ask()
            if self.validate:
                self._check_pure(plan)
            self.memory = memory
        plan.basis = self.revision
        self.decisions += 1
        wake = plan.wake
        self.wake, self.until = wake, plan.until
        if wake <= batch.at:
            raise InvariantError(f"policy {self.policy.name} asks to be woken in the past")
        if self.validate:
            self._draft.made = None  # so that the books are written from the actions alone
        self._freed, do = self._draft.book(plan), self._do
        for action in plan.actions:
            do[type(action)](action)
        if self.settings.inherited:
            self._withdraw_terms(plan)
        top = self._top
        top.changed.clear()
        if top.reported:
            top.reported.clear()
        if len(self._scopes) > 1:
            for scope in self._scopes.values():
                scope.forget_changes()
        return plan

    def _ask(self) -> tuple[Plan, Any]:
        """What the policy says, which has changed nothing but the draft."""
        ledger, inner = self.ledger, self._inner
        ledger.deciding = True
        if inner:
            self.grants.are_read(True)
        try:
            plan, memory = self.policy.decide(self.view, self.memory)
        finally:
            ledger.deciding = False
            if inner:
                self.grants.are_read(False)
        if inner or len(ledger.trail) != len(self._draft.steps):
            self._draft.refuse_other_changes()
        return plan, memory

    def _with_orders(self, plan: Plan | None) -> Plan:
        """The plan, and before it what people ordered."""
        orders, self._orders = self._orders, []
        if plan is None:
            return Plan(orders, [], self.wake, self.until, self.revision)
        plan.actions = orders + plan.actions
        return plan

    def _withdraw_terms(self, plan: Plan) -> None:
        """Withdraw the terms of a policy before this one that it has not given anew."""
        for job in sorted(self.settings.inherited):
            if self._phase[job] in HOLDS_DEVICES and self._phase[job] != Phase.STOPPING:
                withdrawn = Tune(job, int(self.jobs.attempt[job]), {"request": WITHDRAWN})
                plan.actions.append(withdrawn)
                self._tune(withdrawn)
        self.settings.inherited.clear()

    def _check_pure(self, plan: Plan) -> None:
        """Decide again from the same view with empty caches: the plan must be the same."""
        self._draft.rollback()
        self._draft.clear()
        for scope in self._scopes.values():
            scope.drop_caches()
        again, _ = self._ask()
        again.basis = plan.basis
        if again != plan:
            raise InvariantError(
                f"policy {self.policy.name} decided twice on revision {self.revision} and"
                f" differed: {plan} then {again}"
            )
