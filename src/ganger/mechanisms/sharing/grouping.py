"""Groups of jobs that share all their GPUs, because they need different resources at different
times (Muri, SIGCOMM 2022)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, islice
from typing import Any, NamedTuple, TypeAlias

import msgspec
import numpy as np

from ganger.core.books.ledger import Cell
from ganger.core.events import CAPACITY_FREED, CAPACITY_LOST, COMMANDED, QUEUED, WOKE
from ganger.core.plan import Plan, Reason
from ganger.core.state.jobs import Phase
from ganger.core.state.table import Ids
from ganger.core.units import NEVER, SECOND, WHOLE
from ganger.core.view import View
from ganger.mechanisms.common.reasons import decides_at
from ganger.mechanisms.common.reconcile import (
    STAYS,
    Want,
    cells_of,
    competitors,
    placed,
    sharable,
    towards,
)
from ganger.mechanisms.ordering.order import Formula
from ganger.mechanisms.placement.place import PACK, Placer
from ganger.solve.division.programme import Floats
from ganger.solve.pairing import heaviest_pairs

WINDOW = 512
"""So many jobs of one shape are grouped at a time."""
GAIN = 1e-9
"""By so much more than one job alone a group must do to be one."""
MATCHINGS_MAX = 4096
"""So many matchings are remembered."""
Group: TypeAlias = tuple[int, ...]
"""Its jobs, ascending in order of precedence."""
Models: TypeAlias = tuple[int, ...]
"""The models of a group by number, ascending."""
_MOVABLE = (int(Phase.STARTING), int(Phase.RUNNING))


class Grouped(msgspec.Struct):
    """What the policy remembers: when it groups again, microseconds, and whether any jobs were put
    together the last time."""

    next_round: int
    shared: bool


class Pool(NamedTuple):
    """What the jobs of a window may use that can run on the same nodes: GPUs in all; their types;
    and, by shape, the groups that they are in so far."""

    gpus: int
    types: tuple[str, ...]
    groups: dict[int, list[Group]]


class Efficiencies:
    """By models, GPUs and types: what `efficiency` is."""

    __slots__ = ("known",)

    def __init__(self) -> None:
        self.known: dict[tuple[tuple[str, ...], int, tuple[str, ...]], float] = {}


class Matchings:
    """By kinds of groups, how many there are of each, GPUs and types: how many of each two kinds
    come together."""

    __slots__ = ("known",)

    def __init__(self) -> None:
        self.known: dict[
            tuple[tuple[Models, ...], tuple[int, ...], int, tuple[str, ...]],
            dict[tuple[Models, Models], int],
        ] = {}


def efficiency(view: View, models: tuple[str, ...], gpus: int, types: tuple[str, ...]) -> float:
    """The mean share of its resources that a group of jobs of these models uses, on the worst of
    `types`; 0 where together they do no more than in turns, or nobody knows what they do."""
    known = view.cached(Efficiencies).known
    key = models, gpus, types
    if key not in known:
        busy = np.array([view.oracle.profile(model).busy(gpus) for model in models])
        by_type = [view.oracle.interference(models, kind, gpus) for kind in types]
        gains = all(parts.sum() > 1.0 + GAIN for parts in by_type)  # a NaN is not above anything
        known[key] = min(float(parts @ busy) for parts in by_type) if gains and by_type else 0.0
    return known[key]


@dataclass(frozen=True)
class GroupPolicy:
    """Every `every` microseconds jobs are grouped, and run in order of `index`, smaller first.

    1. *Window.* In order, every job that would find GPUs alone brings the first `members` jobs of
       its shape that are not there yet into the window, at most `window` of a shape.
    2. *Groups.* Only while these ask for more GPUs than there are: of each shape the pairs of the
       largest total efficiency (exact), the most efficient first; then the same with pairs as
       nodes, and so on up to groups of `members`. Together a group must do more than one job at a
       time, each at its part of its speed alone.
    3. *Places.* Groups run in order of their first job, and then other jobs that find room. A job
       that runs as it should is not interrupted.

    A job that may have others beside it holds 1/`members` of its GPUs even when it is alone there,
    so that it is not interrupted when they come. Between rounds, waiting jobs start alone on GPUs
    that became free.
    """

    name: str
    index: Formula
    every: int
    members: int = 4
    window: int = WINDOW
    place: Placer = PACK

    def decide(self, view: View, memory: Grouped | None) -> tuple[Plan, Grouped]:
        """In a round group anew, in between only fill what is free."""
        if memory is None or view.now >= memory.next_round or not len(view.active):
            wants = self._wanted(view)
            towards(view, wants, self.place)
            memory = Grouped(view.now + self.every, any(want.beside for want in wants))
        self._fill(view)
        waits = any(view.draft.holds(job) is None for job in view.pending.tolist())
        wake = memory.next_round if waits or memory.shared else NEVER
        until = CAPACITY_FREED | CAPACITY_LOST | QUEUED | COMMANDED | WOKE
        reasons = []
        if waits:
            evidence = {"round_s": self.every / SECOND} | decides_at(memory.next_round)
            reasons.append(Reason("Priority", "GroupPolicy", evidence=evidence, until=until))
        return view.draft.plan(reasons, wake, until), memory

    def why_beside(
        self, view: View, memory: Any, job: int, others: Sequence[int]
    ) -> tuple[tuple[str, float], ...]:
        """What the group is believed to do, in jobs at a time, and of its resources."""
        names = tuple(sorted(view.jobs.models[view.at.model[each]] for each in (job, *others)))
        kind, gpus = view.ledger.cell_of[view.ledger.holds[job][1][0].node].gpu_type, view.at.gpus
        does = float(view.oracle.interference(names, kind, gpus[job]).sum())
        busy = efficiency(view, names, gpus[job], (kind,))
        return ("together_do_jobs", round(does, 6)), ("use_of_resources_part", round(busy, 6))

    # ------------------------------------------------------------------ who runs

    def _ranked(self, view: View, ids: Ids) -> Ids:
        """Jobs in order; whose index is not known come last, first come, first served."""
        keys = np.nan_to_num(np.asarray(self.index(view, ids), np.float64), nan=np.inf)
        return ids[np.lexsort((ids, keys))]

    def _wanted(self, view: View) -> list[Want]:
        """The jobs of the coming round and their company, larger gangs first so that they find
        whole nodes."""
        at, ledger = view.at, view.ledger
        free = {cell.index: cell.total for cell in ledger.cells}
        fixed = set[int]()
        for job in view.active.tolist():
            if at.phase[job] not in _MOVABLE or at.on_preempt[job] in STAYS:
                fixed.add(job)
                for slot in ledger.holds[job][1] if job in ledger.holds else ():
                    free[ledger.cell_of[slot.node].index] -= slot.devices.bit_count()
        jobs = competitors(view)
        ranked = self._ranked(view, jobs[view.jobs.gpus[jobs] > 0]).tolist()
        ranked = [job for job in ranked if job not in fixed]
        wants: list[Want] = []
        line = _Line(view, free)
        for group in self._groups(view, ranked, free):
            if line.seat(group[0]):
                wants += self._wants(view, group)
        wants.sort(key=lambda want: -want.gpus)
        return [*wants, *(Want(job, 0) for job in jobs.tolist() if not at.gpus[job])]

    def _groups(self, view: View, ranked: list[int], free: dict[int, int]) -> Iterator[Group]:
        """Everybody, in groups and alone, in order of the first of each."""
        pools = self._window(view, ranked, free)
        rank = {job: place for place, job in enumerate(ranked)}
        for pool in pools.values():
            for _ in range((self.members - 1).bit_length()):
                self._merge(view, pool, rank)
        grouped = [
            group for pool in pools.values() for each in pool.groups.values() for group in each
        ]
        first = {group[0]: group for group in grouped}
        later = {job for group in grouped for job in group[1:]}
        for job in ranked:
            if job not in later:
                yield first.get(job, (job,))

    def _window(
        self, view: View, ranked: list[int], free: dict[int, int]
    ) -> dict[tuple[int, ...], Pool]:
        """The jobs that are looked at, each alone, by the cells that they may use."""
        shape, line = view.at.shape, _Line(view, free)
        behind: dict[int, Iterator[int]] = {}
        pools: dict[tuple[int, ...], Pool] = {}
        looked_at = set[int]()
        for job in ranked:
            if not line.room:
                break
            if job in looked_at or not line.seat(job):
                continue
            kind, cells = shape[job], line.cells(job)
            if kind not in behind:
                behind[kind] = islice(_sharing(view, ranked, kind), self.window)
            key = tuple(cell.index for cell in cells)
            if key not in pools:
                types = tuple(dict.fromkeys(cell.gpu_type for cell in cells))
                pools[key] = Pool(sum(max(free[index], 0) for index in key), types, {})
            company = list(islice(behind[kind], self.members)) if sharable(view, job) else []
            groups = pools[key].groups.setdefault(kind, [])
            groups += [(each,) for each in company or [job]]
            looked_at.update(company)
        return pools

    def _merge(self, view: View, pool: Pool, rank: dict[int, int]) -> None:
        """Put groups together two and two, while they ask for more GPUs than there are."""
        gpus = view.at.gpus
        asked = sum(gpus[group[0]] for each in pool.groups.values() for group in each)
        if asked <= pool.gpus:
            return
        pairs = [
            (-value, rank[first[0]], kind, first, second)
            for kind, groups in pool.groups.items()
            for value, first, second in self._pairs(view, groups, pool.types)
        ]
        for _, _, kind, first, second in sorted(pairs):
            if asked <= pool.gpus:
                return
            asked -= gpus[first[0]]
            groups = pool.groups[kind]
            groups.remove(first)
            groups[groups.index(second)] = tuple(sorted(first + second, key=rank.__getitem__))

    def _pairs(
        self, view: View, groups: list[Group], types: tuple[str, ...]
    ) -> Iterator[tuple[float, Group, Group]]:
        """The pairs of groups of the largest total efficiency, each with its own. Groups of the
        same models are alike: those that share GPUs already stay together, the others go in order.
        """
        code, gpus = view.at.model, view.at.gpus[groups[0][0]]
        alike: dict[Models, list[Group]] = {}
        for group in groups:
            alike.setdefault(tuple(sorted(code[job] for job in group)), []).append(group)
        kinds = tuple(sorted(alike))
        matched = view.cached(Matchings).known
        key = kinds, tuple(len(alike[kind]) for kind in kinds), gpus, types
        if key not in matched:
            if len(matched) > MATCHINGS_MAX:
                matched.clear()
            matched[key] = self._match(view, *key)
        quota = dict(matched[key])
        partners = [*_in_company(view, alike, quota), *_in_order(alike, quota)]
        for first, second, kind, partner in partners:
            yield self._worth(view, kind, partner, gpus, types), first, second

    def _match(
        self,
        view: View,
        kinds: tuple[Models, ...],
        sizes: tuple[int, ...],
        gpus: int,
        types: tuple[str, ...],
    ) -> dict[tuple[Models, Models], int]:
        """How many groups of each two kinds come together."""
        worth = [
            [self._worth(view, first, second, gpus, types) for second in kinds] for first in kinds
        ]
        number = np.repeat(np.arange(len(kinds)), sizes)
        weight: Floats = np.array(worth)[number][:, number]
        count: dict[tuple[Models, Models], int] = {}
        for first, second in enumerate(heaviest_pairs(weight).partner.tolist()):
            if first < second:
                pair = kinds[number[first]], kinds[number[second]]
                count[pair] = count.get(pair, 0) + 1
        return count

    def _worth(
        self, view: View, first: Models, second: Models, gpus: int, types: tuple[str, ...]
    ) -> float:
        """The efficiency of two groups of these models together; 0 where they are too many."""
        if len(first) + len(second) > self.members:
            return 0.0
        names = view.jobs.models
        together = tuple(names[each] for each in sorted(first + second))
        return efficiency(view, together, gpus, types)

    # ------------------------------------------------------------------ what they ask for

    def _wants(self, view: View, group: Group) -> Iterator[Want]:
        """What the jobs of a group ask for."""
        gpus = view.at.gpus
        for at, job in enumerate(group):
            share = WHOLE // self.members if self.members > 1 and sharable(view, job) else 0
            yield Want(job, gpus[job], share=share, beside=group[:at] + group[at + 1 :])

    def _fill(self, view: View) -> None:
        """Start jobs that wait, alone, on what is free. One that finds no place answers for its
        like."""
        widest, ids = max((cell.free for cell in view.ledger.cells), default=0), view.pending
        able = ids[view.jobs.gpus[ids] <= widest]
        full = set[tuple[int, int]]()
        for job in self._ranked(view, able).tolist() if len(able) else ():
            kind = view.at.shape[job], self.place.kind(view, job)
            if kind in full or view.draft.holds(job) is not None:
                continue
            want = next(self._wants(view, (job,)))
            if placed(view, want, self.place) is None:
                full.add(kind)


class _Line:
    """Seats by numbers of GPUs: what each cell has left. `room`: the most of any."""

    def __init__(self, view: View, free: dict[int, int]) -> None:
        self._view, self._free = view, dict(free)
        self._cells: dict[int, list[Cell]] = {}
        self._full = set[int]()
        self.room = max(self._free.values(), default=0) > 0

    def cells(self, job: int) -> list[Cell]:
        """Where the job may run."""
        shape = self._view.at.shape[job]
        if shape not in self._cells:
            self._cells[shape] = cells_of(self._view.ledger, self._view, job, "")
        return self._cells[shape]

    def seat(self, job: int) -> bool:
        """Whether there is a seat for the job, which it then has."""
        shape, gpus = self._view.at.shape[job], self._view.at.gpus[job]
        if shape in self._full:
            return False
        for cell in self.cells(job):
            if self._free[cell.index] >= gpus:
                self._free[cell.index] -= gpus
                self.room = max(self._free.values()) > 0
                return True
        self._full.add(shape)
        return False


def _where(view: View, group: Group) -> tuple[tuple[int, int], ...]:
    """The devices (node, mask) that the first of a group holds in shares; none if it does not."""
    held = view.ledger.holds.get(group[0])
    if held is None or not held[1] or not held[1][0].share:
        return ()
    return tuple((slot.node, slot.devices) for slot in held[1])


def _in_company(
    view: View, alike: dict[Models, list[Group]], quota: dict[tuple[Models, Models], int]
) -> Iterator[tuple[Group, Group, Models, Models]]:
    """Groups that hold the same GPUs already, as far as their kinds come together at all; they
    leave `alike`, and their pairs `quota`."""
    seats: dict[tuple[tuple[int, int], ...], list[tuple[Models, Group]]] = {}
    for kind in sorted(alike):
        for group in alike[kind]:
            place = _where(view, group)
            if place:
                seats.setdefault(place, []).append((kind, group))
    for there in seats.values():
        for (kind, first), (partner, second) in combinations(there, 2):
            pair = kind, partner
            if quota.get(pair) and first in alike[kind] and second in alike[partner]:
                quota[pair] -= 1
                alike[kind].remove(first)
                alike[partner].remove(second)
                yield first, second, kind, partner


def _in_order(
    alike: dict[Models, list[Group]], quota: dict[tuple[Models, Models], int]
) -> Iterator[tuple[Group, Group, Models, Models]]:
    """The rest of the pairs, the first groups of each kind first."""
    for (kind, partner), many in sorted(quota.items()):
        for _ in range(many):
            yield alike[kind].pop(0), alike[partner].pop(0), kind, partner


def _sharing(view: View, ranked: list[int], shape: int) -> Iterator[int]:
    """The jobs of one shape that may have others beside them, in order."""
    return (job for job in ranked if view.at.shape[job] == shape and sharable(view, job))
