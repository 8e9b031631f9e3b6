"""Any policy, asked at fixed intervals only: what happens between them waits for the next."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ganger.core.errors import BadInput
from ganger.core.events import WOKE
from ganger.core.plan import Plan, Reason
from ganger.core.protocols import Policy, revived
from ganger.core.units import NEVER, SECOND
from ganger.core.view import View


@dataclass(frozen=True)
class Periodic:
    """`policy` decides at whole multiples of `every` (microseconds), as schedulers do that look at
    their queue once a minute. While nobody waits it is woken by the next event."""

    policy: Policy
    every: int

    def __post_init__(self) -> None:
        if self.every <= 0:
            raise BadInput(
                f"every {self.every} us", where=self.policy.name, mend="give a time above 0"
            )

    @property
    def name(self) -> str:
        """The policy's own."""
        return self.policy.name

    def decide(self, view: View, memory: Any) -> tuple[Plan, Any]:
        """Its plan, at the end of an interval; otherwise to be asked again then."""
        due = -(-view.now // self.every) * self.every
        if due > view.now:
            view.forget()  # it is told once what changed, and this is not passed on
            return Plan([], _until_then(view, due), due, 0), memory
        decide = self.policy.decide
        plan, memory = decide(view, revived(memory, decide))
        if len(view.pending) or plan.actions:
            plan.wake, plan.until = due + self.every, 0
            if all(one.shape >= 0 or one.tenant >= 0 for one in plan.reasons):  # of who comes yet
                plan.reasons = [*plan.reasons, _next(due + self.every)]
        elif plan.wake < NEVER:
            plan.wake = -(-plan.wake // self.every) * self.every
        return plan, memory


def _until_then(view: View, due: int) -> list[Reason]:
    """Nobody is looked at before `due`."""
    return [_next(due)] if len(view.pending) else []


def _next(due: int) -> Reason:
    """Jobs are looked at when `due`."""
    return Reason("Priority", "Periodic", evidence={"decides_at_s": due / SECOND}, until=WOKE)


def every(interval: int | None, policy: Policy) -> Policy:
    """`policy`, asked every `interval` only; None: whenever something changes."""
    return policy if interval is None else Periodic(policy, interval)
