"""Jobs of the sizes that an elastic allocator wants, decided at events or at intervals."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol, TypeGuard

import msgspec
import numpy as np
from numpy.typing import NDArray

from ganger.core.events import CAPACITY_FREED, CAPACITY_LOST, COMMANDED, QUEUED, WOKE
from ganger.core.plan import Plan, Reason
from ganger.core.state.jobs import Phase
from ganger.core.state.table import Ids
from ganger.core.units import NEVER
from ganger.core.view import View
from ganger.mechanisms.common.reasons import decides_at
from ganger.mechanisms.common.reconcile import (
    Sizes,
    Want,
    above_sleepers,
    among,
    competitors,
    least_of,
    towards,
    towards_sizes,
)
from ganger.mechanisms.placement.place import PACK, Placer
from ganger.mechanisms.rounds.rounds import Allocator


class Sizing(Protocol):
    """Says how large every job should be."""

    def sizes(self, view: View, ids: Ids) -> Sizes:
        """The sizes of those of `ids` (ascending), all of which compete, that get GPUs."""
        ...


class Waking(Protocol):
    """An allocator that would decide otherwise at some time although nothing happens."""

    def wake(self, view: View) -> int:
        """That time, after now; NEVER if there is none."""
        ...


class Lasting(Protocol):
    """An allocator that may know that it would decide the same for some time."""

    def lasts(self, view: View, ids: Ids) -> int:
        """Until when, if nothing happens, the jobs of `ids` are to keep what they have, given that
        this is what it wants for them now; now if that is not known."""
        ...


def _lasting(allocator: Any) -> TypeGuard[Lasting]:
    return hasattr(allocator, "lasts")


def _wakes(allocator: Any) -> TypeGuard[Waking]:
    return hasattr(allocator, "wake")


class TargetMemory(msgspec.Struct):
    """When the next regular decision is due, microseconds."""

    due: int
    rests: bool = False
    """Whether it is asked later than that, since decisions until then would be this one."""


@dataclass(frozen=True)
class TargetPolicy:
    """Makes every job the size that `allocator` wants: every `every` microseconds, and (with
    `on_events`) whenever a job arrives or GPUs become free. Jobs without GPUs always run."""

    name: str
    allocator: Allocator | Sizing
    every: int = NEVER
    on_events: bool = True
    place: Placer = PACK

    def decide(self, view: View, memory: TargetMemory | None) -> tuple[Plan, TargetMemory]:
        """Allocate, then go towards it."""
        memory = memory or TargetMemory(view.now)
        jobs = competitors(view)
        if memory.rests:
            missed = max(-((memory.due - view.now) // self.every), 0)
            memory = TargetMemory(memory.due + missed * self.every)
        same, numbers = view.now, dict[str, float]()
        if self.on_events or view.now >= memory.due or not len(view.active):
            if view.now >= memory.due or memory.due == NEVER:
                memory = TargetMemory(min(view.now + self.every, NEVER))
            numbers = self._aim(view, jobs)
            same = self._same_until(view, jobs)
        wake = memory.due if len(jobs) else NEVER
        if same > memory.due:
            memory = TargetMemory(memory.due, rests=True)
            wake = min(memory.due - (memory.due - same) // self.every * self.every, NEVER)
        if _wakes(self.allocator):
            wake = min(wake, self.allocator.wake(view))
        until = CAPACITY_FREED | CAPACITY_LOST | QUEUED | COMMANDED | WOKE
        numbers |= decides_at(wake)
        reasons = [Reason("Resources", "TargetPolicy", evidence=numbers, until=until)]
        reasons = reasons if len(view.pending) else []
        return view.draft.plan(reasons, wake, until), memory

    def _same_until(self, view: View, jobs: Ids) -> int:
        """Until when regular decisions change nothing if nothing happens."""
        if self.every == NEVER or view.draft.mark() or len(view.pending) or not len(jobs):
            return view.now
        if not _lasting(self.allocator) or (view.jobs.phase[jobs] != Phase.RUNNING).any():
            return view.now
        return self.allocator.lasts(view, jobs)

    def _aim(self, view: View, jobs: Ids) -> dict[str, float]:
        """Allocate, and draw the way there; what was wanted, as evidence."""
        without = jobs[view.jobs.gpus[jobs] == 0]
        allocator: Any = self.allocator
        if hasattr(allocator, "sizes"):
            ids, gpus = allocator.sizes(view, jobs)
            if len(without):
                more = without[~among(without, np.sort(ids))]
                ids, gpus = np.append(ids, more), np.append(gpus, np.zeros_like(more))
            towards_sizes(view, Sizes(ids, gpus), self.place)
            return _evidence(len(jobs) - len(without), gpus)
        wants, least, shape = list[Want](), dict[tuple[int, int], int](), view.at.shape
        for (job, *_), gpu_type, gpus, *_ in allocator.allocate(view, jobs):
            kind = shape[job], gpus
            if kind not in least:
                least[kind] = least_of(view, job, gpus)
            wants.append(Want(job, gpus, gpu_type, least[kind]))
        named = {want.job for want in wants}
        wants += [Want(job, 0) for job in without.tolist() if job not in named]
        towards(view, wants, self.place, above_sleepers(view))
        return _evidence(len(jobs) - len(without), np.array([want.gpus for want in wants]))


def _evidence(competing: int, gpus: NDArray[Any]) -> dict[str, float]:
    """How many jobs compete, how many of them are to run, and on how many GPUs together."""
    return {
        "competing_jobs": float(competing),
        "chosen_jobs": float(len(gpus.nonzero()[0])),
        "wanted_gpus": float(np.add.reduce(gpus)),  # numpy's own `sum` and `count` are slow on few
    }
