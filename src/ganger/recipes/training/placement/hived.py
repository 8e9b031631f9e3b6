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
from dataclasses import dataclass
from typing import Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from ganger.core.errors import BadInput
from ganger.core.events import CAPACITY_FREED, CAPACITY_LOST, COMMANDED, QUEUED, WOKE
from ganger.core.plan import Placement, Plan, Reason, Slot
from ganger.core.spec import OnPreempt, Shape
from ganger.core.state.table import Ids
from ganger.core.units import WHOLE
from ganger.core.view import View
from ganger.mechanisms.placement.place import PACK, Placer
from ganger.recipes.training.placement.hived_buddies import (
    cheapest,
    owned_by_quota,
    possible,
    sizes_of,
    whole,
)

_CHANGES = CAPACITY_FREED | CAPACITY_LOST | COMMANDED | QUEUED | WOKE
_STAYS = int(OnPreempt.NEVER)


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
    quotas. A GPU comes with its part of its node's CPUs and host memory. Jobs of tenants without
    cells, jobs that their own cells could never hold, that state labels, parts of a GPU or several
    kinds of workers, that ask for more than those parts, and jobs of negative priority run
    opportunistically: on what is free, until a guaranteed job needs it. Among places on equally few
    nodes they keep away from nodes with bound cells, then from the bound cells themselves.
    """

    name: str
    owned: Mapping[str, Mapping[int, int]]
    place: Placer = PACK

    def decide(self, view: View, memory: CellMemory | None) -> tuple[Plan, CellMemory]:
        """Guaranteed jobs first, then opportunistic ones."""
        memory = memory or CellMemory()
        standing = view.cached(_StandingBinding)
        binding, standing.binding = standing.binding, None  # not kept if this decision fails
        if binding is None or binding.memory is not memory or not binding.catch_up(view):
            binding = _Binding(self, view, memory)
        plan = binding.run()
        standing.binding = binding
        return plan, binding.memory

    def cells(self, view: View) -> dict[int, Counter[int]]:
        """What each tenant (by code) owns: size to count."""
        nodes = view.nodes.gpus[: view.nodes.n].tolist()
        found = {
            tenant.name: owned_by_quota(tenant.quota, nodes)
            for tenant in view.nodes.spec.tenants
            if tenant.quota > 0
        }
        found.update({name: Counter(dict(sizes)) for name, sizes in self.owned.items()})
        if self.owned and not possible(found.values(), nodes):
            words = ", ".join(
                f"{name}:{n}x{size}" for name, sizes in found.items() for size, n in sizes.items()
            )
            raise BadInput(
                f"this cluster has not the cells {words}",
                where=self.name,
                mend=f"its nodes have {', '.join(map(str, sorted(set(nodes))))} GPUs, which divide"
                " into halves; give sizes of that kind, and no more cells than there is room for",
            )
        codes = {view.jobs.tenants.find(name): sizes for name, sizes in found.items()}
        return {code: sizes for code, sizes in codes.items() if code >= 0}


def _whole_gpus(shape: Shape) -> int:
    """The GPUs of a gang of one kind of workers with whole GPUs; 0 for any other."""
    only = shape.roles[0]
    plain = len(shape.roles) == 1 and only.needs.share == WHOLE and not shape.labels
    return shape.gpus if plain else 0


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


def _on(placement: Placement, node: int) -> int:
    """The devices of a placement that are on `node`."""
    devices = 0
    for slot in placement:
        if slot.node == node:
            devices |= slot.devices
    return devices


def _fabric(view: View) -> tuple[object, ...]:
    """All beside the jobs that a binding depends on: the nodes that are up, their devices, and how
    many tenants there are."""
    return list(view.ledger.up), list(view.ledger.full), len(view.jobs.tenants)


class _Binding:
    """Who holds and owns what, from one decision to the next; a cache of what `memory` and the
    books say."""

    def __init__(self, policy: CellPolicy, view: View, memory: CellMemory) -> None:
        self.policy, self.view, self.ledger = policy, view, view.ledger
        self.memory = memory
        self._fabric = _fabric(view)
        self.owned = policy.cells(view)
        self._largest = np.zeros(len(view.jobs.tenants), np.int64)
        """GPUs in all cells of each tenant."""
        for tenant, owned in self.owned.items():
            self._largest[tenant] = sum(size * count for size, count in owned.items())
        self.taken = [0] * view.nodes.n
        """Devices that guaranteed jobs hold, and those that nobody can be evicted from."""
        self._there: list[set[int]] = [set() for _ in self.taken]
        """Whose devices those are."""
        self._entry: dict[int, tuple[Shape, Placement]] = {}
        """What they hold."""
        holds = view.ledger.holds
        self.guaranteed = {job for job in memory.guaranteed if job in holds}
        for job in self.guaranteed:
            self._take(job)
        self.bound = [cell for cell in memory.bound if self._used(cell)]
        self.owned_there = [0] * view.nodes.n
        """Devices in bound cells, by node."""
        for cell in self.bound:
            self.owned_there[cell.node] |= cell.devices
        self._take_those_who_stay()
        self._heads: dict[int, int] = {}
        """By tenant the first job, where its cells had no place for it; till something is freed."""
        self._asks = np.zeros(0, np.int64)
        """By shape, what `_claims` says."""
        self._able: dict[int, set[int]] = {}
        """By shape the nodes that are up and could hold some of it."""

    def catch_up(self, view: View) -> bool:
        """Take note of what happened since the last decision; False: begin anew."""
        if self._fabric != _fabric(view):
            return False
        self.view, self.ledger = view, view.ledger
        holds = view.ledger.holds
        gone = [job for job, entry in self._entry.items() if holds.get(job) is not entry]
        nodes = {slot.node for job in gone for slot in self._entry.pop(job)[1]}
        for node in nodes:
            self._there[node].difference_update(gone)
            self.taken[node] = 0
            for job in self._there[node]:
                self.taken[node] |= _on(self._entry[job][1], node)
        for job in self.guaranteed.intersection(gone):
            if job in holds:
                self._take(job)
            else:
                self.guaranteed.discard(job)
        left = [cell for cell in self.bound if cell.node in nodes and not self._used(cell)]
        for cell in left:
            self.bound.remove(cell)
            self.owned_there[cell.node] &= ~cell.devices
        self._take_those_who_stay()
        if gone:
            self._heads.clear()
        return True

    def _take_those_who_stay(self) -> None:
        view = self.view
        for job in view.active[view.jobs.on_preempt[view.active] == _STAYS].tolist():
            if job in self.ledger.holds and job not in self._entry:
                self._take(job)

    def _take(self, job: int) -> None:
        entry = self._entry[job] = self.ledger.holds[job]
        for slot in entry[1]:
            self.taken[slot.node] |= slot.devices
            self._there[slot.node].add(job)

    def _used(self, cell: Bound) -> bool:
        """Whether a guaranteed job runs in it."""
        return any(
            job in self.guaranteed and _on(self._entry[job][1], cell.node) & cell.devices
            for job in self._there[cell.node]
        )

    def run(self) -> Plan:
        """The plan; `memory` is what is bound after it."""
        view, at = self.view, self.view.at
        ids, jobs = view.pending, view.jobs
        entitled = self._entitled(ids)
        first, others = ids[entitled], ids[~entitled]
        blocked = self._still_blocked(first)
        if blocked:
            new = first[~np.isin(jobs.tenant[first], list(blocked))]
        else:
            new = first
        failed = _one_by_one(new, jobs.tenant[new], self._start)
        self._heads = blocked | {at.tenant[job]: job for job in failed}
        reasons = [self._reason(job) for job in sorted(self._heads.values())]
        reasons += [
            Reason(
                "Resources",
                "CellPolicy",
                at.shape[job],
                evidence={"asked_gpus": float(at.gpus[job])},
                until=_CHANGES,
            )
            for job in _one_by_one(others, jobs.shape[others], self._start_anywhere)
        ]
        plan = view.draft.plan(reasons, until=_CHANGES)
        self.memory = CellMemory(tuple(self.bound), tuple(sorted(self.guaranteed)))
        return plan

    def _reason(self, job: int) -> Reason:
        """Why the first job of a tenant waits for one of its cells."""
        at = self.view.at
        tenant = at.tenant[job]
        evidence = {"asked_gpus": float(at.gpus[job]), "quota_gpus": float(self._largest[tenant])}
        return Reason("AssocGrpGRES", "CellPolicy", at.shape[job], tenant, evidence, _CHANGES)

    def _still_blocked(self, ids: Ids) -> dict[int, int]:
        """Of those whom there was no place for, who still is its tenant's first."""
        if not self._heads:
            return {}
        first = np.full(len(self._largest), -1)
        first[self.view.jobs.tenant[ids][::-1]] = ids[::-1]
        return {tenant: job for tenant, job in self._heads.items() if first[tenant] == job}

    def _entitled(self, ids: Ids) -> NDArray[np.bool_]:
        """Whose tenants' cells could hold them, and who may claim that."""
        jobs = self.view.jobs
        shapes = jobs.shapes.values
        if len(self._asks) < len(shapes):
            self._asks = np.array([self._claims(shape) for shape in shapes], np.int64)
        gpus = self._asks[jobs.shape[ids]]
        may = (gpus > 0) & (gpus <= self._largest[jobs.tenant[ids]])
        found: NDArray[np.bool_] = may & (jobs.priority[ids] >= 0)
        for at in np.flatnonzero(found).tolist():
            role = shapes[jobs.shape[ids[at]]].roles[0]
            if role.needs.gpus > 1:  # a worker is in one cell
                owned = self.owned[int(jobs.tenant[ids[at]])]
                room = sum(size // role.needs.gpus * count for size, count in owned.items())
                found[at] = room >= role.size
        return found

    def _claims(self, shape: Shape) -> int:
        """The GPUs for which the shape may claim a tenant's cells; 0 if it may not: it asks for
        more CPUs or host memory than come with its GPUs on every node that it may use."""
        gpus, needs, nodes = _whole_gpus(shape), shape.roles[0].needs, self.view.nodes
        if not gpus or not (needs.cpus or needs.memory):
            return gpus
        for cell in self.ledger.cells_for(shape):
            for node in cell.nodes:
                full = int(nodes.gpus[node])
                if (
                    needs.cpus * full > int(nodes.cpus[node]) * needs.gpus
                    or needs.memory * full > int(nodes.memory[node]) * needs.gpus
                ):
                    return 0
        return gpus

    def _start_anywhere(self, job: int) -> bool:
        """Start an opportunistic job on what is free."""
        placement = self.policy.place.find(self.view, self.ledger, job)
        if placement is not None:
            placement = self._kept_away(job, placement)
            self.view.draft.start(job, placement)
        return placement is not None

    def _kept_away(self, job: int, found: Placement) -> Placement:
        """A place on as few nodes as `found` without any bound cell, else one beside the bound
        cells, else `found`."""
        bound, find = self.owned_there, self.policy.place.find
        there = {slot.node for slot in found}
        if any(bound[node] for node in there):
            with self.ledger.hidden([node for node, devices in enumerate(bound) if devices]):
                away = find(self.view, self.ledger, job)
            if away is not None and len({slot.node for slot in away}) <= len(there):
                return away
        if any(bound[slot.node] & slot.devices for slot in found):
            cells = {node: devices for node, devices in enumerate(bound) if devices}
            with self.ledger.without(cells):
                away = find(self.view, self.ledger, job)
            if away is not None and len({slot.node for slot in away}) <= len(there):
                return away
        return found

    # ------------------------------------------------------------------ guaranteed jobs

    def _start(self, job: int) -> bool:
        """Start `job` in cells that its tenant owns; whoever is there without a right goes."""
        placement = self._in_cells(job, self.view.at.gpus[job])
        if placement is None:
            return False
        for slot in placement:
            mine = self.ledger.full[slot.node] & slot.devices & ~self.ledger.free_mask[slot.node]
            for other, (_, held) in sorted(self.ledger.holds.items()) if mine else ():
                if any(part.node == slot.node and part.devices & mine for part in held):
                    self.view.draft.stop(other)
            self._make_room(job, slot)
        self.view.draft.start(job, placement)
        self._take(job)
        self.guaranteed.add(job)
        return True

    def _make_room(self, job: int, slot: Slot) -> None:
        """Stop opportunistic jobs on the node, the last first, until CPUs and memory suffice."""
        needs = self.view.draft.shape(job).roles[0].needs
        cpus, memory, node = needs.cpus * slot.workers, needs.memory * slot.workers, slot.node
        for other in sorted(self.ledger.holds, reverse=True) if cpus or memory else ():
            if self.ledger.free_cpus[node] >= cpus and self.ledger.free_memory[node] >= memory:
                return
            if other not in self._entry and any(
                part.node == node for part in self.ledger.holds[other][1]
            ):
                self.view.draft.stop(other)

    def _hosts(self, job: int, nodes: set[int], gpus: int) -> set[int]:
        """Those of `nodes` on which CPUs and memory suffice once all opportunists have gone."""
        needs = self.view.draft.shape(job).roles[0].needs
        if not (needs.cpus or needs.memory):
            return nodes
        workers, found = gpus // needs.gpus, set[int]()
        for node in nodes:
            cpus, memory = int(self.view.nodes.cpus[node]), int(self.view.nodes.memory[node])
            for other in self._there[node]:
                shape, placement = self._entry[other]
                for slot in placement:
                    if slot.node == node:
                        held = shape.roles[slot.role].needs
                        cpus -= held.cpus * slot.workers
                        memory -= held.memory * slot.workers
            if needs.cpus * workers <= cpus and needs.memory * workers <= memory:
                found.add(node)
        return found

    def _in_cells(self, job: int, gpus: int) -> Placement | None:
        """A place for `gpus` GPUs in cells of the job's tenant, bound already or from now on."""
        tenant = self.view.at.tenant[job]
        shape = self.view.at.shape[job]
        if shape not in self._able:
            self._able[shape] = {
                node
                for cell in self.ledger.cells_for(self.view.draft.shape(job))
                for node in cell.nodes
                if self.ledger.up[node]
            }
        each = self.view.draft.shape(job).roles[0].needs.gpus
        most = max(size for size in self.owned[tenant] if self.owned[tenant][size])
        able = self._hosts(job, self._able[shape], min(gpus, most // each * each))
        mine = [cell for cell in self.bound if cell.tenant == tenant and cell.node in able]
        spots = [spot for i, cell in enumerate(mine) for spot in self._spots(cell, gpus, i)]
        if spots:
            best = min(spots)
            return (self._slot(best.node, best.start, gpus, each),)
        free = self.owned[tenant] - Counter(
            cell.size for cell in self.bound if cell.tenant == tenant
        )
        sizes = sorted(size for size in free if size >= gpus)
        if sizes:
            cell = self._bind(tenant, sizes[0], able)
            if cell is None:
                return None
            first = min(self._spots(cell, gpus))
            return (self._slot(cell.node, first.start, gpus, each),)
        return self._in_many(tenant, gpus, free, able, each)

    def _in_many(
        self, tenant: int, gpus: int, free: Counter[int], able: set[int], each: int
    ) -> Placement | None:
        """A gang larger than any cell of its tenant's: in several unused ones, largest first, each
        with whole workers of `each` GPUs."""
        before, slots = len(self.bound), list[Slot]()
        for size in sorted(free.elements(), reverse=True):
            some = min(gpus, size // each * each)
            cell = self._bind(tenant, size, able) if some else None
            if cell is None:
                break
            slots.append(self._slot(cell.node, cell.start, some, each))
            gpus -= some
            if not gpus:
                return tuple(slots)
        for cell in self.bound[before:]:
            self.owned_there[cell.node] &= ~cell.devices
        del self.bound[before:]
        return None

    def _slot(self, node: int, start: int, gpus: int, each: int) -> Slot:
        return Slot(node, (1 << gpus) - 1 << start, gpus // each)

    def _spots(self, cell: Bound, gpus: int, number: int = 0) -> Iterator[Spot]:
        """Free places of the least size that holds `gpus`, inside a bound cell."""
        sizes = [size for size in sizes_of(cell.size) if size >= gpus]
        if not sizes:
            return
        for start in range(cell.start, cell.start + cell.size - sizes[-1] + 1, sizes[-1]):
            window = (1 << sizes[-1]) - 1 << start
            if not self.taken[cell.node] & window:
                splits = whole(cell.start, start, sizes, self.taken[cell.node])
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
            found = cheapest(gpus, size, taken, ledger.free_mask[node])
            if found is not None and (there < 0 or found[:2] < best[:2]):
                best, there = found, node
                if best[:2] == (size, 0):
                    break
        if there < 0:
            return None
        self.bound.append(Bound(tenant, size, there, best[2]))
        self.owned_there[there] |= self.bound[-1].devices
        return self.bound[-1]


class _StandingBinding:
    """The binding as the last decision left it; None before the first."""

    __slots__ = ("binding",)

    def __init__(self) -> None:
        self.binding: _Binding | None = None
