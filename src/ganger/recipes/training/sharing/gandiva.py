"""What belongs to Gandiva alone: pairs that are tried and kept if they pay, and placement by
affinity (Xiao et al., OSDI 2018, sections 3.1 and 3.2)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import msgspec

from ganger.core.books.ledger import Cell, Fit, Ledger, pick_devices
from ganger.core.books.occupancy import may_doze
from ganger.core.plan import Placement, Slot
from ganger.core.spec import Locality, Shape
from ganger.core.state.jobs import Phase
from ganger.core.units import NEVER, WHOLE
from ganger.core.view import View
from ganger.mechanisms.common.holdings_delta import HoldingsDelta
from ganger.mechanisms.common.reconcile import STAYS, with_share
from ganger.mechanisms.placement.place import Place
from ganger.mechanisms.sharing.time_slices import Groups

_RUNNING: Final = int(Phase.RUNNING)
_HALF: Final = WHOLE // 2


class Tried(msgspec.Struct):
    """`alone`: by job, its speed when nobody was beside it. `pairs`: by the two models, GPUs and
    GPU type, what the two did together, each as a part of its speed alone."""

    alone: dict[int, float] = {}
    pairs: dict[str, float] = {}


@dataclass(frozen=True)
class PairsThatPay:
    """Two jobs on the same GPUs for as long as they do `least` of what one does alone, or more.

    Only jobs that have run alone for `trial` (microseconds) are paired, so that both speeds are
    known. What a pair of models does together is measured after as long, and holds for the next of
    its kind.
    """

    trial: int
    least: float = 1.0

    def learn(self, view: View, memory: Tried | None, groups: Groups) -> Tried:
        """The speeds that jobs that compute now have alone, or in pairs."""
        before = memory or Tried()
        phase, rate = view.at.phase, view.at.rate
        alone = {job: speed for job, speed in before.alone.items() if phase[job] < Phase.FINISHED}
        pairs = before.pairs
        for group in _paired(view, groups):
            if any(phase[job] != _RUNNING for job in group):
                continue
            if not self._is_measured(view, group):
                continue
            if len(group) == 1:
                alone[group[0]] = rate[group[0]]
            else:
                key = _key(view, *group)
                if key not in pairs:
                    parts = [rate[job] / alone[job] for job in group if alone.get(job)]
                    pairs = {**pairs, key: sum(parts) if len(parts) == 2 else 0.0}
        return Tried(alone, pairs)

    def _is_measured(self, view: View, group: tuple[int, ...]) -> bool:
        """Whether all have computed for long enough since they were started or resumed."""
        began: int = max(view.at.began[job] for job in group)
        return began + self.trial <= view.now

    def placement(self, view: View, job: int, placement: Placement) -> Placement:
        """Half of each GPU for a job that another may come beside; it has the whole while it is
        alone."""
        return with_share(placement, _HALF) if self._pairs_up(view, job) else placement

    def _pairs_up(self, view: View, job: int) -> bool:
        """Whether it is known how fast the job's model runs beside some other, and it asks for GPUs
        alone, whole ones."""
        shape = view.draft.shape(job)
        return (
            view.oracle.profile(view.jobs.models[view.at.model[job]]).shares
            and view.at.on_preempt[job] not in STAYS
            and (shape.is_plain or (may_doze(shape) and _takes_whole_gpus(shape)))
        )

    def apart(self, view: View, memory: Tried, groups: Groups) -> list[int]:
        """Of each pair that does too little, the one that came last."""
        return sorted(
            {  # under a recipe before, a job may have come beside several others
                max(group, key=lambda job: (view.at.began[job], job))
                for group in _paired(view, groups)
                if len(group) == 2 and memory.pairs.get(_key(view, *group), self.least) < self.least
            }
        )

    def may_pair(self, view: View, memory: Tried, job: int) -> bool:
        """Whether the job has run alone, and it is known how fast its model runs beside others."""
        return job in memory.alone and self._pairs_up(view, job)

    def beside(self, view: View, memory: Tried, job: int, others: list[int]) -> bool:
        """Whether the two may be tried, or have paid before."""
        if len(others) != 1 or others[0] not in memory.alone:
            return False
        held = view.ledger.holds[others[0]][1]
        mine = view.ledger.holds.get(job)
        if held[0].share != _HALF or not self.may_pair(view, memory, job):
            return False
        if mine is not None and mine[1] != held:
            return False
        needed = sum(_memory(view, each) for each in (job, others[0]))
        if needed > view.ledger.device_memory(held[0].node):
            return False
        return memory.pairs.get(_key(view, job, others[0]), self.least) >= self.least

    def why_beside(
        self, view: View, memory: Tried | None, job: int, other: int
    ) -> tuple[tuple[str, float], ...]:
        """What they must do together, in jobs at a time, and what they did when it was measured."""
        known = memory.pairs.get(_key(view, job, other)) if memory is not None else None
        numbers = (("together_must_do_jobs", self.least),)
        return numbers if known is None else (*numbers, ("together_did_jobs", round(known, 6)))

    def wake(self, view: View, memory: Tried, groups: Groups) -> int:
        """When the next pair has been tried for long enough."""
        ends, at = NEVER, view.at
        for group in _paired(view, groups):
            if len(group) == 2 and _key(view, *group) not in memory.pairs:
                began = [at.began[job] if at.phase[job] == _RUNNING else view.now for job in group]
                ends = min(ends, max(began) + self.trial)
        return ends


def _memory(view: View, job: int) -> float:
    """MiB that the job needs of each of its GPUs: as it states, else at its model's peak."""
    stated = view.draft.shape(job).roles[0].needs.gpu_memory
    return stated or view.oracle.profile(view.jobs.models[view.at.model[job]]).peak


def _takes_whole_gpus(shape: Shape) -> bool:
    """Whether all slots of a job are of whole GPUs, so that it can have half of each."""
    return len(shape.roles) == 1 and shape.roles[0].needs.share == WHOLE


def _paired(view: View, groups: Groups) -> Groups:
    """Of the groups those of one or two that may have another beside them."""
    holds = view.ledger.holds
    return [
        group
        for group in groups
        if 0 < len(group) <= 2 and all(holds[job][1][0].share == _HALF for job in group)
    ]


def _key(view: View, job: int, other: int) -> str:
    """The two models (a job without one is a model of its own), their GPUs and the type of these;
    the same whichever job comes first."""
    jobs, at = view.jobs, view.at
    names = sorted(jobs.models[at.model[each]] or f"job {each}" for each in (job, other))
    kind = view.ledger.cell_of[view.ledger.holds[other][1][0].node].gpu_type
    return "/".join([*names, str(at.gpus[job]), kind])


@dataclass(frozen=True, kw_only=True)
class ByAffinity(Place):
    """On a node that serves jobs of as many GPUs, else on one that serves nobody, else anywhere; by
    the fit rule among these."""

    def find(
        self, view: View, ledger: Ledger, job: int, cells: list[Cell] | None = None, gpus: int = 0
    ) -> Placement | None:
        """The first of the three that has room."""
        first = super().find(view, ledger, job, cells, gpus)
        if first is None:
            return None
        served = view.cached(_Served)
        served.look(view, ledger)
        size = gpus or view.at.gpus[job]
        for among in (served.alike(size), served.unused(ledger)):
            nodes = [slot.node for slot in first]
            if all(among[ledger.cell_of[node].index] & ledger.bit[node] for node in nodes):
                return first
            better = self._among(view, ledger, job, cells, gpus, among)
            if better is not None:
                return better
        return first

    def _among(
        self,
        view: View,
        ledger: Ledger,
        job: int,
        cells: list[Cell] | None,
        gpus: int,
        among: Mapping[int, int],
    ) -> Placement | None:
        """By the fit rule on the nodes whose bits are in `among`, by the index of their cell."""
        shape = view.draft.shape(job)
        need = gpus or shape.gpus
        if shape.is_plain and self.fit is Fit.BEST and shape.locality > Locality.ISLAND:
            for cell in ledger.cells_for(shape) if cells is None else cells:
                node = ledger.fullest(cell, need, among[cell.index])
                if node >= 0:
                    mask = pick_devices(ledger.free_mask[node], need, ledger.island[node])
                    return (Slot(node, mask, need),)
                if ledger.free_among(cell, among[cell.index]) >= need:
                    break  # over several nodes
            else:
                return None
        cell_of, bit = ledger.cell_of, ledger.bit
        others = [
            node for node in range(view.nodes.n) if not among[cell_of[node].index] & bit[node]
        ]
        with ledger.hidden(others):
            return super().find(view, ledger, job, cells, gpus)


class _Served:
    """Which nodes serve jobs of which number of GPUs, as bits by the index of their cell."""

    __slots__ = ("_alike", "_busy", "_counts", "_delta", "_placed", "_used")

    def __init__(self) -> None:
        self._delta = HoldingsDelta()
        self._placed: dict[int, tuple[int, Placement]] = {}
        self._counts: dict[tuple[int, int], int] = {}
        """By number of GPUs and node: how many such jobs are there."""
        self._alike: dict[int, defaultdict[int, int]] = {}
        self._used: dict[int, int] = {}
        """By node: of how many sizes jobs are there."""
        self._busy: defaultdict[int, int] = defaultdict(int)
        """The nodes of `_used`, as bits by the index of their cell."""

    def alike(self, size: int) -> Mapping[int, int]:
        """The nodes where jobs of as many GPUs are."""
        return self._alike.get(size) or defaultdict(int)

    def unused(self, ledger: Ledger) -> Mapping[int, int]:
        """The nodes where nobody is."""
        every = {cell.index: (1 << len(cell.nodes)) - 1 for cell in ledger.cells}
        return {index: nodes ^ self._busy[index] for index, nodes in every.items()}

    def look(self, view: View, ledger: Ledger) -> None:
        """Follow what has changed since the last look."""
        gone, come = self._delta.changes(ledger)
        for job in gone:
            self._count(ledger, *self._placed.pop(job), -1)
        for job, placement in come:
            self._placed[job] = view.at.gpus[job], placement
            self._count(ledger, *self._placed[job], 1)

    def _count(self, ledger: Ledger, size: int, placement: Placement, jobs: int) -> None:
        alike = self._alike.setdefault(size, defaultdict(int))
        for slot in placement:
            before = self._counts.get((size, slot.node), 0)
            self._counts[size, slot.node] = before + jobs
            if before and before + jobs:
                continue
            cell, used = ledger.cell_of[slot.node].index, self._used.get(slot.node, 0)
            alike[cell] ^= ledger.bit[slot.node]
            self._used[slot.node] = used + jobs
            if not before + jobs:
                del self._counts[size, slot.node]
            if not self._used[slot.node]:
                del self._used[slot.node]
            if not used or not used + jobs:
                self._busy[cell] ^= ledger.bit[slot.node]
