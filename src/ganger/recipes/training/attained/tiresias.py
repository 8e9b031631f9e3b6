"""What a multi-level feedback queue remembers: when it last looked, and what starved jobs are
forgiven (Tiresias' PROMOTEKNOB)."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from ganger.core.plan import Plan
from ganger.core.view import View
from ganger.mechanisms.ordering.order import Levels, Promotions
from ganger.mechanisms.ordering.queue import QueuePolicy
from ganger.mechanisms.ordering.queue_index import StandingIndex


class Forgiven(msgspec.Struct):
    """`jobs`: by job, executed time and service (microseconds, x GPUs) that no longer count.
    `looked`: when the queue was last walked, microseconds."""

    jobs: dict[int, tuple[int, int]] = {}
    looked: int = -1


@dataclass(frozen=True)
class Promoting:
    """An ordered queue by `levels` (with `Lines` also in the line of each level).

    A job's attained quantity is reset to nothing whenever it has waited `levels.starvation` times
    what it counts as executed (NSDI 2019); None: never.
    """

    queue: QueuePolicy
    levels: Levels

    @property
    def name(self) -> str:
        """The queue's."""
        return self.queue.name

    def decide(self, view: View, memory: Forgiven | None) -> tuple[Plan, Forgiven]:
        """Forgive, then walk the queue."""
        memory = memory or Forgiven()
        known = view.cached(Promotions)
        known.forgiven, known.looked = memory.jobs, memory.looked
        if self.levels.starvation is not None:
            known.forgiven = self._forgive(view, memory.jobs)
        plan, _ = self.queue.decide(view, None)
        known.looked = view.now
        index = view.cached(StandingIndex).index
        if known.fallen and index is not None:
            fallen, known.fallen = known.fallen, []
            index.settle(view, fallen)
        return plan, Forgiven(known.forgiven, view.now)

    def _forgive(self, view: View, old: dict[int, tuple[int, int]]) -> dict[int, tuple[int, int]]:
        """What is forgiven from now on."""
        at, pending = view.at, view.pending.tolist()
        new = {
            job: (at.ran[job], at.served[job])
            for job in pending
            if at.ran[job] and self.levels.starved_at(view, job) <= view.now
        }
        if not new:
            return old
        live = {*pending, *view.active.tolist()}
        return {**{job: past for job, past in old.items() if job in live}, **new}
