"""Autoscaling by goodput: as many nodes as keep the utility of GPUs within a band (Pollux)."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from typing import ClassVar

import msgspec
import numpy as np

from ganger.core.events import CAPACITY_FREED, CAPACITY_LOST
from ganger.core.plan import Plan, Provision
from ganger.core.view import View
from ganger.mechanisms.common.believed import believed_speed
from ganger.mechanisms.placement.place import counted
from ganger.recipes.training.goodput.pollux import GoodputMemory, GoodputPolicy


class ScaleMemory(msgspec.Struct, frozen=True):
    """What the search keeps, how many nodes should be in use, and those that were switched off."""

    inner: GoodputMemory | None
    active: int
    off: tuple[int, ...] = ()


@dataclass(frozen=True)
class Autoscaling:
    """A goodput policy on the first nodes of the cluster, as many as it takes.

    Utility is the sum of speedups over one GPU, per GPU in use (OSDI 2021). After a
    decision that leaves it outside `low` to `high`, so many nodes are used that it would be in the
    middle if speedups stayed; one more where somebody waits. Nodes that are not used are vacated
    and switched off.
    """

    orders: ClassVar[tuple[type, ...]] = (Provision,)
    inner: GoodputPolicy
    low: float
    high: float

    @property
    def name(self) -> str:
        """The inner policy's."""
        return self.inner.name

    def decide(self, view: View, memory: ScaleMemory | None) -> tuple[Plan, ScaleMemory]:
        """Search on the nodes in use, then say how many should be."""
        nodes, up = view.nodes.n, view.ledger.up
        memory = memory or ScaleMemory(None, nodes, tuple(view.nodes.rentable))
        off = [node for node in memory.off if not up[node]]
        with view.ledger.hidden(list(range(memory.active, nodes))):
            plan, inner = self.inner.decide(view, memory.inner)
        active = memory.active
        if memory.inner is None or inner.due != memory.inner.due:
            active = self._nodes(view, active)
        busy = {slot.node for _, held in view.ledger.holds.values() for slot in held}
        busy |= set(view.ledger.leaving)
        on = [node for node in off if node < active]
        idle = [node for node in range(active, nodes) if up[node] and node not in busy]
        plan.actions += [Provision(node, "on") for node in on]
        plan.actions += [Provision(node, "off") for node in idle]
        plan.until |= CAPACITY_FREED | CAPACITY_LOST
        off = sorted({*off, *idle} - {*on})
        return plan, ScaleMemory(inner, active, tuple(off))

    def _nodes(self, view: View, active: int) -> int:
        """How many nodes should be in use from now on."""
        utility, most = self.utility(view, active), view.nodes.n
        if any(view.draft.holds(job) is None for job in view.pending.tolist()):
            return min(active + 1, most)
        if self.low <= utility <= self.high:
            return active
        wanted = ceil(active * utility / ((self.low + self.high) / 2) - 1e-9)
        return min(max(wanted, 1), most)

    def utility(self, view: View, active: int) -> float:
        """The sum of speedups over one GPU of all that hold GPUs in this draft, per GPU in use."""
        total = 0.0
        for job, (_, placement) in sorted(view.ledger.holds.items()):
            counts = counted(placement)
            gpus = sum(count for _, count in counts)
            if gpus:
                kind = view.ledger.cell_of[counts[0][0]].gpu_type
                sizes, spread = np.array([gpus, 1]), np.array([len(counts), 1])
                many, one = believed_speed(view, np.array([job, job]), kind, sizes, spread)
                total += many / one if one > 0 else gpus
        return total / max(int(view.nodes.gpus[:active].sum()), 1)
