"""Starvation (Tiresias' PROMOTEKNOB): who has waited long enough starts over at the top."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from ganger.core.plan import Plan
from ganger.core.view import View
from ganger.mechanisms.order import Levels
from ganger.mechanisms.queue import QueuePolicy


class Forgiven(msgspec.Struct):
    """By job: executed time and service (microseconds, x GPUs) that no longer count."""

    jobs: dict[int, tuple[int, int]] = {}


@dataclass(frozen=True)
class Promoting:
    """An ordered queue by `levels`, in which a job's attained quantity is reset to nothing
    whenever it has waited `levels.starvation` times what it counts as executed (NSDI 2019)."""

    queue: QueuePolicy
    levels: Levels

    @property
    def name(self) -> str:
        """The queue's."""
        return self.queue.name

    def decide(self, view: View, memory: Forgiven | None) -> tuple[Plan, Forgiven]:
        """Forgive, then walk the queue."""
        old = memory.jobs if memory is not None else {}
        at = view.at
        view.scratch["forgiven"] = old
        new = {
            job: (at.ran[job], at.served[job])
            for job in view.pending.tolist()
            if at.ran[job] and self.levels.starved_at(view, job) <= view.now
        }
        if new:
            live = {*view.pending.tolist(), *view.active.tolist()}
            kept = {job: past for job, past in old.items() if job in live}
            memory = Forgiven({**kept, **new})
        view.scratch["forgiven"] = memory.jobs if memory is not None else {}
        plan, _ = self.queue.decide(view, None)
        return plan, memory or Forgiven()
