"""Switching idle nodes off, and on again when they are needed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Any, ClassVar, TypeAlias

import msgspec
import numpy as np

from ganger.core.events import CAPACITY_FREED, CAPACITY_LOST, QUEUED
from ganger.core.plan import Plan, Provision
from ganger.core.protocols import Policy, revived
from ganger.core.view import View

Forecast: TypeAlias = Callable[[Sequence[float], int], Any]
"""The next so many values of a series."""


class Use(msgspec.Struct, frozen=True):
    """Nodes in use, bin by bin, the latest last; `active`: nodes that should be on; `hold`: bins
    for which none may be switched off."""

    used: tuple[float, ...]
    active: int
    hold: int = 0


@dataclass(frozen=True)
class EnergySaving:
    """Helios' Cluster Energy Saving (SC 2021), bin by bin.

    More nodes used than active: `active` becomes used + `buffer`, and none is switched off for
    `hold` bins. Otherwise `active` falls to used + `buffer` if use has fallen by `falls` below its
    mean over the `recent` last bins, and the mean of the next `ahead` is forecast as much lower
    again and no higher after that, and at least `least` nodes would go.
    """

    buffer: int
    hold: int
    falls: float
    recent: ClassVar[int] = 6
    ahead: ClassVar[int] = 18
    least: ClassVar[int] = 1
    season: ClassVar[int] = 144

    def step(self, use: Use, used: int, nodes: int, predicted: Forecast) -> Use:
        """After one more bin with `used` of `nodes` in use; `predicted(series, n)` forecasts n."""
        series = (*use.used, float(used))[-2 * self.season :]
        if used > use.active:
            return Use(series, min(used + self.buffer, nodes), self.hold)
        if use.hold:
            return Use(series, use.active, use.hold - 1)
        coming = predicted(series, 2 * self.ahead)
        soon = float(np.mean(coming[: self.ahead]))
        target = used + self.buffer
        if (
            np.mean(series[-self.recent :]) - used >= self.falls
            and used - soon >= self.falls
            and soon >= np.mean(coming) - 1e-9
            and use.active - target >= self.least
        ):
            return Use(series, target, 0)
        return Use(series, use.active, 0)


class PowerMemory(msgspec.Struct):
    """What the inner policy keeps, the use of nodes, when the next bin ends, and the nodes that are
    off or coming up."""

    inner: Any
    use: Use
    due: int
    off: list[int]


@dataclass(frozen=True)
class PowerSaver:
    """Another policy, and beside it the power of the nodes that it uses.

    At the end of each `bin` (microseconds) `saving` says how many nodes should be on; idle ones
    with the highest numbers are switched off. If jobs wait, nodes are woken at once: as many as
    these jobs ask for, and the buffer. `predicted(series, ahead)` forecasts nodes in use.
    """

    orders: ClassVar[tuple[type, ...]] = (Provision,)
    inner: Policy
    predicted: Forecast
    saving: EnergySaving
    bin: int

    @property
    def name(self) -> str:
        """The inner policy's."""
        return self.inner.name

    def decide(self, view: View, memory: PowerMemory | None) -> tuple[Plan, PowerMemory]:
        """The inner plan, and what is to be switched."""
        nodes = view.nodes.n
        if memory is None:
            off = view.nodes.rentable
            memory = PowerMemory(None, Use((), nodes - len(off)), view.now + self.bin, off)
        plan, inner = self.inner.decide(view, revived(memory.inner, self.inner.decide))
        off = [node for node in memory.off if not view.ledger.up[node]]
        use, due, wanted, busy = memory.use, memory.due, self._wanted(view), self._busy(view)
        while due <= view.now:  # it is asked at every bin but those in which nothing ran
            used = len(busy) + wanted if due == view.now else 0
            use = self.saving.step(use, used, nodes, self.predicted)
            due += self.bin
        if wanted and off:
            active = min(sum(view.ledger.up) + wanted + self.saving.buffer, nodes)
            use = Use(use.used, max(active, use.active), self.saving.hold)
        off = self._switch(view, plan, use, off, busy)
        if len(view.active) or len(view.pending) or any(use.used[-self.saving.recent :]):
            plan.wake = min(plan.wake, due)
        plan.until |= CAPACITY_FREED | CAPACITY_LOST | QUEUED
        return plan, PowerMemory(inner, use, due, off)

    def _wanted(self, view: View) -> int:
        """Nodes' worth of GPUs that those who still wait ask for."""
        waiting = [job for job in view.pending.tolist() if view.draft.holds(job) is None]
        if not waiting:
            return 0
        widest = max(int(view.nodes.gpus[: view.nodes.n].max()), 1)
        return max(ceil(int(view.jobs.gpus[waiting].sum()) / widest), 1)

    def _busy(self, view: View) -> set[int]:
        """Nodes on which somebody holds something in this draft, or has not let go of it yet."""
        holds = view.ledger.holds.values()
        return {slot.node for _, held in holds for slot in held} | set(view.ledger.leaving)

    def _switch(
        self, view: View, plan: Plan, use: Use, off: list[int], busy: set[int]
    ) -> list[int]:
        """Add to `plan` what brings the nodes that are on to `use.active`; the nodes then off."""
        spare = view.nodes.n - len(off) - use.active
        if spare < 0:
            plan.actions += [Provision(node, "on") for node in off[:-spare]]
            return off[-spare:]
        idle = [node for node in range(view.nodes.n) if view.ledger.up[node] and node not in busy]
        leaving = idle[::-1][:spare]
        plan.actions += [Provision(node, "off") for node in leaving]
        return off + leaving
