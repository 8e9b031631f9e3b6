"""Where a shape fits that needs more than whole GPUs: parts of a GPU, CPUs, host memory, labels,
several roles.

What is free on a cell's nodes stands in columns, so that a search costs a handful of array
operations whatever is asked for. A single node is tried first, then several nodes if the shape
accepts that. Gangs of one role of whole GPUs are spread over as few nodes as can hold them, as in
`core/books/fit.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from ganger.core.books.bits import members, pick_devices
from ganger.core.books.stock import Cell, Columns, Fit, Ints, Known, Stock
from ganger.core.plan import Placement, Slot
from ganger.core.spec import Locality, Needs, Role
from ganger.core.units import WHOLE

Draw = Callable[[int], int]


class RoleSearch(Stock):
    """Finds places for shapes of any roles and needs. Nothing changes."""

    def _find_roles(
        self,
        cell: Cell,
        known: Known,
        sizes: tuple[int, ...],
        fit: Fit,
        within: Locality,
        draw: Draw | None,
    ) -> Placement | None:
        """A place in `cell` for every role at these sizes, on one node if one has room for all."""
        columns, roles = self.columns(cell), known.shape.roles
        found = self._on_one_node(cell, columns, known, sizes, fit, within, draw)
        if found is not None or within <= Locality.NODE or sum(sizes) == 1:
            return found
        alike = len(roles) == 1 and roles[0].needs.share == WHOLE
        if known.beside and cell.dozing:
            each = [self._room(node, roles[0].needs, (0, 0, 0)) for node in cell.nodes]
            room = np.where(columns.cpus < 0, 0, np.minimum(each, sizes[0]))
        else:
            room = self._workers(columns, roles[0].needs, sizes[0]) if alike else columns.cpus + 1
        if known.labelled:
            room = np.where(known.labelled[cell], room, 0)
        if within != Locality.RACK:
            return self._spread(cell, columns, room, roles, sizes, fit, draw)
        for rack in self._racks(cell, columns, room, sizes[0] if alike else 0):
            here = np.where(columns.rack == rack, room, 0)
            found = self._spread(cell, columns, here, roles, sizes, fit, draw)
            if found is not None:
                return found
        return None

    # ------------------------------------------------------------------ on one node

    def _on_one_node(
        self,
        cell: Cell,
        columns: Columns,
        known: Known,
        sizes: tuple[int, ...],
        fit: Fit,
        within: Locality,
        draw: Draw | None,
    ) -> Placement | None:
        gpus = cpus = memory = share = 0
        exact, roles = True, known.shape.roles
        for role, size in zip(roles, sizes, strict=True):
            needs = role.needs
            cpus += size * needs.cpus
            memory += size * needs.memory
            if needs.share == WHOLE:
                gpus += size * needs.gpus
            elif size:
                share = max(share, needs.share)
                exact = exact and size == 1 == len(roles) and not needs.gpu_memory
        able = columns.cpus >= cpus  # on nodes that are down it is -1
        if memory:
            able &= columns.memory >= memory
        if gpus and known.beside and cell.dozing:
            exact = False
            able &= columns.gpus + columns.dozing >= gpus
        elif gpus:
            able &= columns.gpus >= gpus
        if share:
            able &= (columns.gpus > gpus) | (columns.share >= share)
        if known.labelled:
            able &= known.labelled[cell]
        locals_ = np.flatnonzero(able)
        if not len(locals_):
            return None
        in_island = within is Locality.ISLAND and len(roles) == 1 and gpus > 1
        if exact and not in_island:
            return self._roles_on([cell.nodes[_choose(locals_, columns, fit, draw)]], roles, sizes)
        for local in _in_order(locals_, columns, fit, draw):
            node = cell.nodes[local]
            if in_island and not self._in_one_island(node, gpus):
                continue
            found = self._roles_on([node], roles, sizes)
            if found is not None:
                return found
        return None

    # ------------------------------------------------------------------ over several nodes

    @staticmethod
    def _workers(columns: Columns, needs: Needs, most: int) -> Ints:
        """How many workers of `needs`, which take no part of a GPU, fit on each node."""
        room = np.where(columns.cpus < 0, 0, most)
        for have, each in (
            (columns.gpus, needs.gpus),
            (columns.cpus, needs.cpus),
            (columns.memory, needs.memory),
        ):
            if each:
                room = np.minimum(room, have // each)
        return np.maximum(room, 0)

    @staticmethod
    def _racks(cell: Cell, columns: Columns, room: Ints, need: int) -> Sequence[int]:
        """The racks to be tried: the one with the least room that has `need`; all of them where
        `need` is 0, for then the room of a rack is not a number of workers."""
        if not need:
            return list(cell.racks)
        totals = np.bincount(columns.rack, room, columns.rack.max() + 1).tolist()
        able = [rack for rack in cell.racks if totals[rack] >= need]
        return [min(able, key=totals.__getitem__)] if able else []

    def _spread(
        self,
        cell: Cell,
        columns: Columns,
        room: Ints,
        roles: tuple[Role, ...],
        sizes: tuple[int, ...],
        fit: Fit,
        draw: Draw | None,
    ) -> Placement | None:
        """A place on the nodes that have `room`: of workers, if one role of whole GPUs is all."""
        locals_ = np.flatnonzero(room > 0)
        alike = len(roles) == 1 and roles[0].needs.share == WHOLE
        if not alike or fit in (Fit.FIRST, Fit.RANDOM):
            order = _in_order(locals_, columns, fit, draw)
        elif room.sum() < sizes[0]:
            return None
        else:
            order = _fewest(locals_, room, sizes[0])
        return self._roles_on([cell.nodes[local] for local in order], roles, sizes)

    # ------------------------------------------------------------------ worker by worker

    def _room(self, node: int, needs: Needs, taken: tuple[int, int, int]) -> int:
        """How many workers of `needs` fit on `node` beside what this search has `taken` there:
        (devices mask, cpus, memory)."""
        room = 1 << 30
        if needs.gpus:
            if needs.share < WHOLE:
                room = len(self._shareable(node, needs, taken[0]))
            else:
                room = (self._whole(node, needs) & ~taken[0]).bit_count() // needs.gpus
        if needs.cpus:
            room = min(room, (self.free_cpus[node] - taken[1]) // needs.cpus)
        if needs.memory:
            room = min(room, (self.free_memory[node] - taken[2]) // needs.memory)
        return max(room, 0)

    def _whole(self, node: int, needs: Needs) -> int:
        """The devices of `node` that can be had whole: those that are free, and those on which
        nobody computes and where there is as much memory left as `needs` states."""
        mask = self.free_mask[node]
        if needs.gpu_memory and self.cell_of[node].dozing:
            size = self.device_memory(node)
            for device, (used, filled) in self.shared[node].items():
                if not used and filled + needs.gpu_memory <= size:
                    mask |= 1 << device
        return mask

    def _shareable(self, node: int, needs: Needs, taken: int) -> list[int]:
        """Devices of `node` that can take one share of `needs`, the fullest first."""
        memory = self.device_memory(node)
        partly = sorted(
            (WHOLE - used, device)
            for device, (used, used_memory) in self.shared[node].items()
            if used + needs.share <= WHOLE
            and used_memory + needs.gpu_memory <= memory
            and not taken >> device & 1
        )
        devices = [device for _, device in partly]
        if needs.gpu_memory <= memory:
            devices += members(self.free_mask[node] & ~taken)
        return devices

    def _roles_on(
        self, nodes: list[int], roles: tuple[Role, ...], sizes: tuple[int, ...]
    ) -> Placement | None:
        slots: list[Slot] = []
        taken: dict[int, tuple[int, int, int]] = {}
        for number, (role, size) in enumerate(zip(roles, sizes, strict=True)):
            needs, left = role.needs, size
            for node in nodes:
                if not left:
                    break
                before = taken.get(node, (0, 0, 0))
                workers = min(left, self._room(node, needs, before))
                if not workers:
                    continue
                devices = self._devices(node, needs, workers, before[0])
                slots.append(Slot(node, devices, workers, number))
                taken[node] = (
                    before[0] | devices,
                    before[1] + workers * needs.cpus,
                    before[2] + workers * needs.memory,
                )
                left -= workers
            if left:
                return None
        return tuple(slots)

    def _devices(self, node: int, needs: Needs, workers: int, taken: int) -> int:
        if not needs.gpus:
            return 0
        if needs.share < WHOLE:
            mask = 0
            for device in self._shareable(node, needs, taken)[:workers]:
                mask |= 1 << device
            return mask
        wanted, free = workers * needs.gpus, self.free_mask[node] & ~taken
        if free.bit_count() < wanted:
            free = self._whole(node, needs) & ~taken
        return pick_devices(free, wanted, self.island[node])


def _choose(locals_: Ints, columns: Columns, fit: Fit, draw: Draw | None) -> int:
    """The node of `locals_` that the fit takes; the lowest of equals."""
    if fit is Fit.BEST:
        return int(locals_[columns.empty[locals_].argmin()])
    if fit is Fit.WORST:
        return int(locals_[columns.empty[locals_].argmax()])
    if fit is Fit.RANDOM and draw is not None:
        return int(locals_[draw(len(locals_))])
    return int(locals_[0])


def _in_order(locals_: Ints, columns: Columns, fit: Fit, draw: Draw | None) -> list[int]:
    """All of `locals_` in the order in which the fit tries them."""
    if fit is Fit.RANDOM and draw is not None:
        order: list[int] = locals_.tolist()
        for i in range(len(order) - 1, 0, -1):
            j = draw(i + 1)
            order[i], order[j] = order[j], order[i]
        return order
    if fit in (Fit.BEST, Fit.WORST):
        empty = columns.empty[locals_]
        keys = empty if fit is Fit.BEST else -empty
        locals_ = locals_[keys.argsort(kind="stable")]
    ordered: list[int] = locals_.tolist()
    return ordered


def _fewest(locals_: Ints, room: Ints, need: int) -> list[int]:
    """The nodes with the most room first, and for the rest the one with the least that has it."""
    order = locals_[(-room[locals_]).argsort(kind="stable")].tolist()
    rooms, chosen = room.tolist(), list[int]()
    for at, local in enumerate(order):
        if not need:
            break
        if rooms[local] > need:
            fitting = [other for other in order[at:] if rooms[other] >= need]
            chosen.append(min(fitting, key=lambda other: (rooms[other], other)))
            break
        chosen.append(local)
        need -= rooms[local]
    return chosen
