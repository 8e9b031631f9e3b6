"""Jobs that ask for parts of GPUs beside jobs that ask for whole ones, each under a recipe of its
own (DynamoML, CLOSER 2021)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec

from ganger.core.plan import Plan
from ganger.core.protocols import Policy, revived
from ganger.core.units import NEVER, WHOLE
from ganger.core.view import View
from ganger.mechanisms.common.two_level import draw
from ganger.mechanisms.sizing.resizing import Claims


class PartsMemory(msgspec.Struct):
    """What each of the two keeps."""

    parts: Any
    whole: Any


class _Codes:
    """The numbers of the shapes of either kind, among the first so many."""

    __slots__ = ("parts", "whole")

    def __init__(self) -> None:
        self.parts: list[int] = []
        self.whole: list[int] = []

    def follow(self, view: View) -> None:
        """Look at shapes that are new."""
        shapes = view.jobs.shapes.values
        for code in range(len(self.parts) + len(self.whole), len(shapes)):
            least = min(role.needs.share for role in shapes[code].roles)
            (self.parts if least < WHOLE else self.whole).append(code)


@dataclass(frozen=True)
class PartsFirst:
    """`parts` decides over the jobs that ask for parts of GPUs, and before `whole`, which decides
    over all others with what is left; both in one draft. A job that has waited for a part for
    `patience` microseconds claims as many GPUs as it has workers of those that `whole` divides."""

    parts: Policy
    whole: Policy
    patience: int

    @property
    def name(self) -> str:
        """Of both."""
        return f"{self.parts.name} + {self.whole.name}"

    @property
    def orders(self) -> tuple[type, ...]:
        """The actions beside starts and stops that the two use."""
        each = (getattr(policy, "orders", ()) for policy in (self.parts, self.whole))
        return tuple(dict.fromkeys(kind for kinds in each for kind in kinds))

    def decide(self, view: View, memory: PartsMemory | None) -> tuple[Plan, PartsMemory]:
        """The plan of both. What is given up for a claim is taken at once."""
        memory, codes = memory or PartsMemory(None, None), view.cached(_Codes)
        codes.follow(view)
        parts, whole = view.shaped(codes.parts), view.shaped(codes.whole)
        first, kept = self.parts.decide(parts, revived(memory.parts, self.parts.decide))
        draw(parts, first)
        claimed, ends = self._claimed(parts)
        whole.cached(Claims).gpus = claimed
        free = view.ledger.free
        then, keeps = self.whole.decide(whole, revived(memory.whole, self.whole.decide))
        draw(whole, then)
        wake = min(first.wake, then.wake, ends)
        if claimed and view.ledger.free > free:
            wake = view.now + 1
        reasons = [*first.reasons, *then.reasons]
        return view.draft.plan(reasons, wake, first.until | then.until), PartsMemory(kept, keeps)

    def _claimed(self, parts: View) -> tuple[int, int]:
        """GPUs that the first job which waits for parts claims, and when it will claim them."""
        waiting = [job for job in parts.pending.tolist() if parts.draft.holds(job) is None]
        if not waiting:
            return 0, NEVER
        ends = parts.at.pending_since[waiting[0]] + self.patience
        return (parts.at.gpus[waiting[0]], NEVER) if ends <= parts.now else (0, ends)
