"""Buddy cells: virtual clusters made of GPUs that belong together (HiveD, OSDI 2020).

A node is a cell; a cell of even size is split into two buddies, one of odd size into single GPUs. A
virtual cluster owns so many cells of each size. When one of them is first used it is bound to a
physical cell, and stays so while anybody runs in it. Because the binding takes a free cell of that
very size before it splits a larger one, and split cells are whole again once both buddies are
free, a virtual cluster always finds the cells that it owns: sharing is safe.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache, lru_cache
from typing import Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from ganger.core.events import CAPACITY_FREED, CAPACITY_LOST, COMMANDED, QUEUED, WOKE
from ganger.core.plan import Placement, Plan, Reason, Slot
from ganger.core.spec import OnPreempt
from ganger.core.table import Ids
from ganger.core.view import View
from ganger.mechanisms.place import PACK, Placer

_CHANGES = CAPACITY_FREED | CAPACITY_LOST | COMMANDED | QUEUED | WOKE
_STAYS = int(OnPreempt.NEVER)


@cache
def sizes_of(gpus: int) -> tuple[int, ...]:
    """The sizes of the cells of a node, largest first: 8 gives 8, 4, 2, 1."""
    sizes = [gpus] if gpus else []
    while sizes and sizes[-1] > 1:
        sizes.append(sizes[-1] // 2 if sizes[-1] % 2 == 0 else 1)
    return tuple(sizes)


def owned_by_quota(quota: int, nodes: list[int]) -> Counter[int]:
    """Cells, largest first, that make up `quota` GPUs on nodes of so many GPUs each."""
    return Counter(_made_up(quota, frozenset(nodes)))


@cache
def _made_up(quota: int, nodes: frozenset[int]) -> Counter[int]:
    sizes = sorted({size for gpus in nodes for size in sizes_of(gpus)}, reverse=True)
    owned: Counter[int] = Counter()
    for size in sizes:
        owned[size], quota = divmod(quota, size)
    return +owned


@lru_cache(1 << 16)
def _cheapest(gpus: int, size: int, taken: int, free: int) -> tuple[int, int, int] | None:
    """Of a node with `gpus` GPUs the free window of `size` that is bound first: what free cell is
    split for it, how many opportunistic GPUs are in it, where it begins; None if there is none."""
    sizes = [each for each in sizes_of(gpus) if each >= size]
    found = []
    for start in range(0, gpus - size + 1, size):
        window = (1 << size) - 1 << start
        if not taken & window:
            busy = (window & ~free).bit_count()
            found.append((_whole(0, start, sizes, taken), busy, start))
    return min(found) if found and size in sizes else None


def _whole(begin: int, start: int, sizes: list[int], taken: int) -> int:
    """The size of the largest free cell around `start` that would have to be split, in a cell
    that begins at `begin`."""
    whole = sizes[-1]
    for size in reversed(sizes):
        first = begin + (start - begin) // size * size
        if taken & ((1 << size) - 1 << first):
            break
        whole = size
    return whole


class Bound(msgspec.Struct, frozen=True, array_like=True):
    """A cell of `size` GPUs that a tenant's virtual cluster owns, bound to those of `node` from
    `start` on."""

    tenant: int
    size: int
    node: int
    start: int

    @property
    def devices(self) -> int:
        """Its GPUs as a mask."""
        return (1 << self.size) - 1 << self.start


class CellMemory(msgspec.Struct, frozen=True):
    """The cells in use, and the jobs that run in them: all others are opportunistic."""

    bound: tuple[Bound, ...] = ()
    guaranteed: tuple[int, ...] = ()


class Spot(NamedTuple):
    """A place in a cell; the least is taken. Between places that are not alike the choice never
    looks at anything outside the tenant's own cells: that makes sharing safe.

    `splits`: the size of the free cell around it that is split for it; `number`: of the cell among
    its tenant's, in order of binding; `inside`: where that free cell begins; `busy`: opportunistic
    GPUs in it; `start`: its first GPU."""

    splits: int
    number: int
    inside: int
    busy: int
    start: int
    node: int


@dataclass(frozen=True)
class CellPolicy:
    """Virtual clusters of buddy cells, each a first-come-first-served queue whose head blocks.

    `owned`: cells by tenant name and size; tenants that are not named get theirs from the cluster's
    quotas. Jobs of tenants without cells, jobs that their own cells could never hold, and jobs of
    negative priority run opportunistically: on whatever is free, until a guaranteed job needs it.
    """

    name: str
    owned: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    place: Placer = PACK

    def decide(self, view: View, memory: CellMemory | None) -> tuple[Plan, CellMemory]:
        """Guaranteed jobs first, then opportunistic ones."""
        return _Binding(self, view, memory or CellMemory()).run()

    def cells(self, view: View) -> dict[int, Counter[int]]:
        """What each tenant (by code) owns: size to count."""
        nodes = view.nodes.gpus[: view.nodes.n].tolist()
        found = {
            tenant.name: owned_by_quota(tenant.quota, nodes)
            for tenant in view.nodes.spec.tenants
            if tenant.quota > 0
        }
        found.update({name: Counter(dict(sizes)) for name, sizes in self.owned.items()})
        codes = {view.jobs.tenants.find(name): sizes for name, sizes in found.items()}
        return {code: sizes for code, sizes in codes.items() if code >= 0}


def _one_by_one(ids: Ids, kinds: NDArray[Any], start: Callable[[int], bool]) -> list[int]:
    """`start` everybody in order, but nobody of a kind of which one could not be; those ones."""
    failed = list[int]()
    at = 0
    while at < len(ids):
        if start(int(ids[at])):
            at += 1
            continue
        failed.append(int(ids[at]))
        others = kinds[at:] != kinds[at]
        ids, kinds, at = ids[at:][others], kinds[at:][others], 0
    return failed


class _Binding:
    """One decision."""

    def __init__(self, policy: CellPolicy, view: View, memory: CellMemory) -> None:
        self.policy, self.view, self.ledger = policy, view, view.ledger
        names = len(view.jobs.tenants)
        if view.scratch.get("cells", (-1,))[0] != names:
            view.scratch["cells"] = names, policy.cells(view)
        self.owned: dict[int, Counter[int]] = view.scratch["cells"][1]
        holds = view.ledger.holds
        self.guaranteed = [job for job in memory.guaranteed if job in holds]
        self.taken = [0] * view.nodes.n
        """Devices that guaranteed jobs hold, and those that nobody can be evicted from."""
        for job in self.guaranteed:
            self._take(holds[job][1])
        self.bound: list[Bound] = []
        self.owned_there = [0] * view.nodes.n
        """Devices in bound cells, by node."""
        for cell in memory.bound:
            devices = cell.devices
            if self.taken[cell.node] & devices:
                self.bound.append(cell)
                self.owned_there[cell.node] |= devices
        stays = view.active[view.jobs.on_preempt[view.active] == _STAYS]
        for job in stays.tolist():
            if job in holds:
                self._take(holds[job][1])
        self._largest = {
            tenant: sum(size * count for size, count in owned.items())
            for tenant, owned in self.owned.items()
        }

    def _take(self, placement: Placement) -> None:
        for slot in placement:
            self.taken[slot.node] |= slot.devices

    def run(self) -> tuple[Plan, CellMemory]:
        """The plan, and what is bound after it."""
        view, at = self.view, self.view.at
        ids, jobs = view.pending, view.jobs
        entitled = self._entitled(ids)
        first, others = ids[entitled], ids[~entitled]
        reasons = [
            Reason("AssocGrpGRES", "cells", at.shape[job], at.tenant[job])
            for job in _one_by_one(first, jobs.tenant[first], self._start)
        ]
        reasons += [
            Reason("Resources", "cells", at.shape[job])
            for job in _one_by_one(others, jobs.shape[others], self._start_anywhere)
        ]
        plan = view.draft.plan(reasons, until=_CHANGES)
        return plan, CellMemory(tuple(self.bound), tuple(sorted(self.guaranteed)))

    def _entitled(self, ids: Ids) -> NDArray[np.bool_]:
        """Whose tenants' cells could hold them, and who may claim that."""
        jobs = self.view.jobs
        kinds = jobs.tenant[ids].astype(np.int64) * len(jobs.shapes.values) + jobs.shape[ids]
        may = np.zeros(int(kinds.max(initial=0)) + 1, np.bool_)
        for kind in np.flatnonzero(np.bincount(kinds)).tolist():
            tenant, code = divmod(kind, len(jobs.shapes.values))
            shape = jobs.shapes[code]
            may[kind] = shape.is_plain and 0 < shape.gpus <= self._largest.get(tenant, 0)
        found: NDArray[np.bool_] = may[kinds] & (jobs.priority[ids] >= 0)
        return found

    def _start_anywhere(self, job: int) -> bool:
        """Start an opportunistic job on what is free."""
        ledger = self.view.draft.ledger_of(job)
        if ledger is None:
            return True
        placement = self.policy.place.find(self.view, ledger, job)
        if placement is not None:
            self.view.draft.start(job, placement)
        return placement is not None

    # ------------------------------------------------------------------ guaranteed jobs

    def _start(self, job: int) -> bool:
        """Start `job` in cells that its tenant owns; whoever is there without a right goes."""
        placement = self._in_cells(job, self.view.at.gpus[job])
        if placement is None:
            return False
        for slot in placement:
            mine = self.ledger.full[slot.node] & slot.devices & ~self.ledger.free_mask[slot.node]
            for other, (_, held) in list(self.ledger.holds.items()) if mine else ():
                if any(part.node == slot.node and part.devices & mine for part in held):
                    self.view.draft.stop(other)
        self.view.draft.start(job, placement)
        self._take(placement)
        self.guaranteed.append(job)
        return True

    def _in_cells(self, job: int, gpus: int) -> Placement | None:
        """A place for `gpus` GPUs in cells of the job's tenant, bound already or from now on."""
        tenant = self.view.at.tenant[job]
        able = {node for cell in self.ledger.cells_for(self.view.draft.shape(job))
                for node in cell.nodes if self.ledger.up[node]}  # fmt: skip
        mine = [cell for cell in self.bound if cell.tenant == tenant and cell.node in able]
        spots = [spot for i, cell in enumerate(mine) for spot in self._spots(cell, gpus, i)]
        if spots:
            best = min(spots)
            return (self._slot(best.node, best.start, gpus),)
        free = self.owned[tenant] - Counter(
            cell.size for cell in self.bound if cell.tenant == tenant
        )
        sizes = sorted(size for size in free if size >= gpus)
        if sizes:
            cell = self._bind(tenant, sizes[0], able)
            if cell is None:
                return None
            first = min(self._spots(cell, gpus))
            return (self._slot(cell.node, first.start, gpus),)
        return self._in_many(tenant, gpus, free, able)

    def _in_many(
        self, tenant: int, gpus: int, free: Counter[int], able: set[int]
    ) -> Placement | None:
        """A gang larger than any cell of its tenant's: in several unused ones, largest first."""
        before, slots = len(self.bound), list[Slot]()
        for size in sorted(free.elements(), reverse=True):
            cell = self._bind(tenant, size, able)
            if cell is None:
                break
            slots.append(self._slot(cell.node, cell.start, min(gpus, size)))
            gpus -= min(gpus, size)
            if not gpus:
                return tuple(slots)
        for cell in self.bound[before:]:
            self.owned_there[cell.node] &= ~cell.devices
        del self.bound[before:]
        return None

    def _slot(self, node: int, start: int, gpus: int) -> Slot:
        return Slot(node, (1 << gpus) - 1 << start, gpus)

    def _spots(self, cell: Bound, gpus: int, number: int = 0) -> Iterator[Spot]:
        """Free places of the least size that holds `gpus`, inside a bound cell."""
        sizes = [size for size in sizes_of(cell.size) if size >= gpus]
        if not sizes:
            return
        for start in range(cell.start, cell.start + cell.size - sizes[-1] + 1, sizes[-1]):
            window = (1 << sizes[-1]) - 1 << start
            if not self.taken[cell.node] & window:
                splits = _whole(cell.start, start, sizes, self.taken[cell.node])
                busy = (window & ~self.ledger.free_mask[cell.node]).bit_count()
                inside = (start - cell.start) // splits * splits
                yield Spot(splits, number, inside, busy, start, cell.node)

    def _bind(self, tenant: int, size: int, able: set[int]) -> Bound | None:
        """Bind one more cell: of that size if one is free, else by splitting the lowest larger one;
        among equals the one with the fewest opportunistic GPUs in it."""
        ledger, best, there = self.ledger, (0, 0, 0), -1
        for node in sorted(able):
            taken = self.taken[node] | self.owned_there[node]
            gpus = ledger.full[node].bit_length()
            found = _cheapest(gpus, size, taken, ledger.free_mask[node])
            if found is not None and (there < 0 or found[:2] < best[:2]):
                best, there = found, node
                if best[:2] == (size, 0):
                    break
        if there < 0:
            return None
        self.bound.append(Bound(tenant, size, there, best[2]))
        self.owned_there[there] |= self.bound[-1].devices
        return self.bound[-1]
