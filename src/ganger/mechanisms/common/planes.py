"""One policy for services and another for all other jobs, on the same cluster.

On the command line: `ganger simulate --serving RECIPE`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec

from ganger.core.plan import Plan
from ganger.core.protocols import Policy, revived
from ganger.core.spec import Kind
from ganger.core.units import NEVER
from ganger.core.view import View
from ganger.mechanisms.common.reasons import changed_by
from ganger.mechanisms.common.two_level import draw

SERVICES = (Kind.SERVE,)
OTHERS = (Kind.TRAIN, Kind.TUNE, Kind.TASK)


class PlanesMemory(msgspec.Struct):
    """What each of the two keeps."""

    serving: Any
    training: Any


@dataclass(frozen=True)
class Planes:
    """`serving` decides over services and their replicas, and before `training`, which decides over
    all other jobs with what is left; both in one draft. Neither sees or preempts the other's jobs.
    """

    serving: Policy
    training: Policy

    @property
    def name(self) -> str:
        """That of the policy for training."""
        return self.training.name

    @property
    def orders(self) -> tuple[type, ...]:
        """The actions beside starts and stops that the two use."""
        return tuple(dict.fromkeys((*orders_of(self.serving), *orders_of(self.training))))

    def decide(self, view: View, memory: PlanesMemory | None) -> tuple[Plan, PlanesMemory]:
        """The plan of both: asked again by the earliest time, and after what either names."""
        memory = memory or PlanesMemory(None, None)
        first, serving = ask(view.part(SERVICES), self.serving, memory.serving)
        second, training = ask(view.part(OTHERS), self.training, memory.training)
        return joined(view, first, second), PlanesMemory(serving, training)


def joined(view: View, first: Plan, second: Plan, wake: int = NEVER) -> Plan:
    """The plan of two policies that drew into one draft: asked again by the earliest time, `wake`
    among them, and after what either names."""
    reasons = changed_by(first.reasons, second.until) + changed_by(second.reasons, first.until)
    wake = min(wake, first.wake, second.wake)
    return view.draft.plan(reasons, wake, first.until | second.until)


def orders_of(policy: Policy) -> tuple[type, ...]:
    """The actions beside starts and stops that a policy uses."""
    return tuple(getattr(policy, "orders", ()))


def ask(part: View, policy: Policy, before: Any) -> tuple[Plan, Any]:
    """What a policy decides over a part, drawn, and what it remembers."""
    plan, after = policy.decide(part, revived(before, policy.decide))
    draw(part, plan)
    return plan, after
