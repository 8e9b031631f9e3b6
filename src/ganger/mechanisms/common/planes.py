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
        each = (getattr(policy, "orders", ()) for policy in (self.serving, self.training))
        return tuple(dict.fromkeys(kind for kinds in each for kind in kinds))

    def decide(self, view: View, memory: PlanesMemory | None) -> tuple[Plan, PlanesMemory]:
        """The plan of both: asked again by the earliest time, and after what either names."""
        memory = memory or PlanesMemory(None, None)
        plans, after = list[Plan](), list[Any]()
        for policy, kinds, before in (
            (self.serving, SERVICES, memory.serving),
            (self.training, OTHERS, memory.training),
        ):
            part = view.part(kinds)
            plan, remembered = policy.decide(part, revived(before, policy.decide))
            draw(part, plan)
            plans.append(plan)
            after.append(remembered)
        first, second = plans
        reasons = changed_by(first.reasons, second.until) + changed_by(second.reasons, first.until)
        wake = min(plan.wake for plan in plans)
        return view.draft.plan(reasons, wake, first.until | second.until), PlanesMemory(*after)
