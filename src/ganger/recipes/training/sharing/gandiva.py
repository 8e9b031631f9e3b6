"""What belongs to Gandiva alone: pairs that are tried and kept if they pay, and placement by
affinity (Xiao et al., OSDI 2018, sections 3.1 and 3.2)."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from heapq import heappop, heappush, merge
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
from ganger.mechanisms.sharing.crowds import Group, Groups

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

    def follow(self, view: View, memory: Tried | None, lost: Groups, stirred: Groups) -> None:
        """Keep the groups of one or two that may have another beside them."""
        view.cached(_Watched).follow(view, memory.alone if memory else {}, lost, stirred)

    def learn(self, view: View, memory: Tried | None) -> Tried:
        """The speeds that jobs that compute now have alone, or in pairs."""
        known, before = view.cached(_Watched), memory or Tried()
        phase, rate = view.at.phase, view.at.rate
        alone, pairs = before.alone, before.pairs
        changed: Iterable[int] = alone if known.anew else view.changed
        over = {job for job in changed if job in alone and phase[job] >= Phase.FINISHED}
        now: dict[int, float] = {}
        for group in known.to_measure(view.now):
            if any(phase[job] != _RUNNING for job in group):
                continue
            if not self._is_measured(view, group):
                known.later(max(view.at.began[job] for job in group) + self.trial, group)
                continue
            if len(group) == 1:
                now[group[0]] = rate[group[0]]
            elif known.pairs[group] not in pairs:
                spoken = {**alone, **now} if now else alone
                parts = [rate[job] / spoken[job] for job in group if spoken.get(job)]
                did = sum(parts) if len(parts) == 2 else 0.0
                pairs = {**pairs, known.pairs[group]: did}
        if over or any(alone.get(job) != speed for job, speed in now.items()):
            alone = {job: speed for job, speed in {**alone, **now}.items() if job not in over}
        known.learnt = pairs is not before.pairs
        for job in now:
            known.list_single(view, job)
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

    def apart(self, view: View, memory: Tried) -> list[int]:
        """Of each pair that does too little, the one that came last."""
        known = view.cached(_Watched)
        pairs: Iterable[Group] = known.pairs if known.learnt or known.anew else known.stirred
        return sorted(
            {
                max(group, key=lambda job: (view.at.began[job], job))
                for group in pairs
                if group in known.pairs
                and memory.pairs.get(known.pairs[group], self.least) < self.least
            }
        )

    def partners(self, view: View, memory: Tried, job: int) -> Iterable[int]:
        """Those of kinds beside which a job like this may be."""
        kinds = view.cached(_Watched).singles.get(view.at.gpus[job], {})
        able = [jobs for jobs in kinds.values() if self.beside(view, memory, job, jobs[:1])]
        return merge(*able)

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

    def wake(self, view: View, memory: Tried) -> int:
        """When the next pair has been tried for long enough."""
        ends, at, known = NEVER, view.at, view.cached(_Watched)
        for group in list(known.untried):
            if known.pairs[group] in memory.pairs:
                del known.untried[group]
                continue
            began = [at.began[job] if at.phase[job] == _RUNNING else view.now for job in group]
            ends = min(ends, max(began) + self.trial)
        return ends


class _Watched:
    """The groups of one or two jobs that may have another beside them, of those the pairs that are
    tried, and who is alone: a cache. What it heard of at one revision it tells again, however often
    one decides on that."""

    def __init__(self) -> None:
        self.anew, self.learnt = True, False
        self._revision = -1
        self.stirred: dict[Group, None] = {}
        """Groups to look at: they are new, one of their jobs changed, or they ran long enough."""
        self._groups: set[Group] = set()
        self._later: list[tuple[int, Group]] = []
        self.pairs: dict[Group, str] = {}
        """The groups of two, and what they are called in `Tried.pairs`."""
        self.untried: dict[Group, None] = {}
        """Those of them whose key may be unknown."""
        self.singles: dict[int, dict[tuple[str, str, float], list[int]]] = {}
        """By number of GPUs and kind (model, type of GPU, memory) the jobs that are alone and whose
        speed alone is known, ascending."""
        self._kind: dict[int, tuple[int, tuple[str, str, float]]] = {}

    def follow(self, view: View, alone: Mapping[int, float], lost: Groups, stirred: Groups) -> None:
        """Groups that are no more, and those that are new or of which a job changed."""
        if self._revision != view.revision:
            self.anew, self._revision, self.stirred = self._revision < 0, view.revision, {}
        for group in lost:
            self._forget(group)
        kept = set(_paired(view, stirred))
        for group in stirred:
            if group not in kept:
                self._forget(group)
                continue
            self._groups.add(group)
            self.stirred[group] = None
            if len(group) == 2 and group not in self.pairs:
                self.pairs[group] = _key(view, *group)
                self.untried[group] = None
            elif group[0] in alone and len(group) == 1:
                self.list_single(view, group[0])

    def _forget(self, group: Group) -> None:
        self._groups.discard(group)
        self.pairs.pop(group, None)
        self.untried.pop(group, None)
        if len(group) == 1:
            self._forget_single(group[0])

    def _forget_single(self, job: int) -> None:
        if job in self._kind:
            size, kind = self._kind.pop(job)
            jobs = self.singles[size][kind]
            del jobs[bisect_left(jobs, job)]
            if not jobs:
                del self.singles[size][kind]

    def to_measure(self, now: int) -> list[Group]:
        """The groups to look at."""
        while self._later and self._later[0][0] <= now:
            self.stirred[heappop(self._later)[1]] = None
        return sorted(group for group in self.stirred if group in self._groups)

    def later(self, at: int, group: Group) -> None:
        """The group has to be looked at then."""
        heappush(self._later, (at, group))

    def list_single(self, view: View, job: int) -> None:
        """The speed alone is known of a job that is alone."""
        at, held = view.at, view.ledger.holds[job][1]
        name = view.jobs.models[at.model[job]] or f"job {job}"
        kind = name, view.ledger.cell_of[held[0].node].gpu_type, _memory(view, job)
        if self._kind.get(job) != (at.size[job], kind):
            self._forget_single(job)
            self._kind[job] = at.size[job], kind
            insort(self.singles.setdefault(at.size[job], {}).setdefault(kind, []), job)


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
