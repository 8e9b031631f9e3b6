"""Another policy, and on what terms the jobs that it runs share the links between nodes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from ganger.core.events import CAPACITY_FREED
from ganger.core.plan import Placement, Plan, Resize, Start, Tune
from ganger.core.protocols import Policy
from ganger.core.view import View

Knobs = Mapping[str, float | bool | str]
Rule = Callable[[View, Sequence[int]], list[Knobs]]
"""The knobs of each of these jobs, which are on several nodes each."""


@dataclass(frozen=True)
class LinkTerms:
    """`inner` decides; jobs on several nodes have the terms of `rule`, at whole multiples of
    `every` (microseconds) and whenever such a job starts or ends."""

    orders: ClassVar[tuple[type, ...]] = (Tune,)
    inner: Policy
    rule: Rule
    every: int

    @property
    def name(self) -> str:
        """The inner policy's."""
        return self.inner.name

    def decide(self, view: View, memory: Any) -> tuple[Plan, Any]:
        """The inner plan, and the terms that are others from now on."""
        plan, memory = self.inner.decide(view, memory)
        begins = {a.job: a for a in plan.actions if isinstance(a, Start | Resize)}
        where: dict[int, Placement] = {
            job: view.ledger.holds[job][1]
            for job in view.active.tolist()
            if job in view.ledger.holds
        }
        where |= {job: action.placement for job, action in begins.items()}
        spread = [job for job in sorted(where) if len({slot.node for slot in where[job]}) > 1]
        attempts = view.at.attempt
        for job, knobs in zip(spread, self.rule(view, spread), strict=True):
            if view.knobs.get(job, {}) != knobs:
                attempt = begins[job].attempt if job in begins else attempts[job]
                plan.actions.append(Tune(job, attempt, knobs))
        if len(spread) > 1:
            plan.wake = min(plan.wake, (view.now // self.every + 1) * self.every)
            plan.until |= CAPACITY_FREED
        return plan, memory
