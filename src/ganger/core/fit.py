"""Where a shape fits in what is free.

Nodes of one GPU type in one pool form a *cell*. A cell keeps, for every number k, the set of its
nodes with exactly k wholly free GPUs as one Python integer used as a bit set, so that best fit,
worst fit and first fit each take a handful of operations however many nodes there are, and the
lowest node always wins a tie. Shapes that need more than whole GPUs (shares of a GPU, CPUs, host
memory, labels, several roles) take the long path in `Capacity._find_roles`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from enum import IntEnum
from heapq import merge
from typing import NamedTuple

from ganger.core.bits import lowest, members, pick_devices
from ganger.core.cluster import Nodes
from ganger.core.plan import Placement, Slot
from ganger.core.spec import Locality, Needs, Role, Shape
from ganger.core.units import WHOLE


class Fit(IntEnum):
    """Which of the nodes that could take a job gets it."""

    BEST = 0
    """The fullest that still fits: packs."""
    WORST = 1
    """The emptiest: spreads."""
    FIRST = 2
    """The lowest number."""
    RANDOM = 3
    """Any, by the draw that the caller supplies."""


# Looking an enum's member up costs more than finding a node.
_BEST, _WORST, _RANDOM = Fit.BEST, Fit.WORST, Fit.RANDOM
_ISLAND, _NODE, _RACK = Locality.ISLAND, Locality.NODE, Locality.RACK


class Cell:
    """The nodes of one GPU type in one pool."""

    __slots__ = (
        "by_free",
        "free",
        "gpu_type",
        "index",
        "nodes",
        "pool",
        "racks",
        "returned",
        "sharing",
        "total",
        "widest",
    )

    def __init__(self, index: int, gpu_type: str, pool: str) -> None:
        self.index, self.gpu_type, self.pool = index, gpu_type, pool
        self.nodes: list[int] = []
        self.racks: dict[int, int] = {}
        self.by_free: list[int] = [0]
        self.free = 0
        self.returned = 0
        """GPUs given back so far, all in all, but for those that the same draft took again: what
        could not be placed waits for this to grow."""
        self.sharing = 0
        """Those of which GPUs are held in shares."""
        self.total = 0
        self.widest = 0


class _Known(NamedTuple):
    """What never changes about a shape on one set of nodes."""

    shape: Shape
    cells: list[Cell]
    plain: bool
    sizes: tuple[int, ...]
    locality: Locality


class Capacity:
    """What is free on a set of nodes. Only its ledger changes it.

    `within` limits it to some devices of some nodes (node to mask): so a parent's grant becomes a
    cluster of its own for its children.
    """

    def __init__(self, nodes: Nodes, within: dict[int, int] | None = None) -> None:
        self.nodes = nodes
        count = nodes.n
        full: list[int] = [(1 << gpus) - 1 for gpus in nodes.gpus[:count].tolist()]
        if within is not None:
            full = [mask & within.get(node, 0) for node, mask in enumerate(full)]
        self.full = full
        self.free_mask = list(full)
        self.free_count: list[int] = [mask.bit_count() for mask in full]
        self.free_cpus: list[int] = nodes.cpus[:count].tolist()
        self.free_memory: list[int] = nodes.memory[:count].tolist()
        self.island: list[int] = [
            island if island < gpus else 0
            for island, gpus in zip(
                nodes.island[:count].tolist(), nodes.gpus[:count].tolist(), strict=True
            )
        ]
        self.rack: list[int] = nodes.rack[:count].tolist()
        self.up = [within is None or node in within for node in range(count)]
        self.shared: list[dict[int, tuple[int, int]]] = [{} for _ in range(count)]
        """Per node: device to (thousandths in use, MiB in use), for devices held in shares."""
        self._known: dict[int, _Known] = {}
        self.cells: list[Cell] = []
        self._make_cells()

    def _make_cells(self) -> None:
        nodes, found = self.nodes, dict[tuple[int, int], Cell]()
        self.cell_of: list[Cell] = []
        self.bit: list[int] = []
        for node in range(nodes.n):
            key = int(nodes.gpu_type[node]), int(nodes.pool[node])
            cell = found.get(key)
            if cell is None:
                cell = Cell(len(found), nodes.types[key[0]], nodes.pools[key[1]])
                found[key] = cell
            bit = 1 << len(cell.nodes)
            cell.nodes.append(node)
            cell.racks[self.rack[node]] = cell.racks.get(self.rack[node], 0) | bit
            self.cell_of.append(cell)
            self.bit.append(bit)
            room = self.free_count[node]
            while len(cell.by_free) <= room:
                cell.by_free.append(0)
            if self.up[node]:
                cell.by_free[room] |= bit
                cell.free += room
                cell.total += room
                cell.widest = max(cell.widest, room)
        self.cells = list(found.values())

    # ------------------------------------------------------------------ what is free

    @property
    def free(self) -> int:
        """Wholly free GPUs on nodes that are up."""
        return sum(cell.free for cell in self.cells)

    @property
    def total(self) -> int:
        """GPUs on nodes that are up."""
        return sum(cell.total for cell in self.cells)

    def cells_for(self, shape: Shape) -> list[Cell]:
        """The cells that may take `shape`, the most preferred GPU type first."""
        return (self._known.get(id(shape)) or self._learn(shape)).cells

    def is_plain(self, shape: Shape) -> bool:
        """Whether it is one role of whole GPUs and nothing else."""
        return (self._known.get(id(shape)) or self._learn(shape)).plain

    def lacks(self, shape: Shape) -> bool:
        """Whether no cell has as many GPUs free as `shape` asks for: a cheap no before `find`."""
        _, cells, plain, sizes, _ = self._known.get(id(shape)) or self._learn(shape)
        if plain:
            for cell in cells:
                if sizes[0] <= cell.free:
                    return False
        return plain

    def _learn(self, shape: Shape) -> _Known:
        """Work out what never changes about a shape here.

        Keyed by identity, since hashing a shape costs more than finding a place for it; `_Known`
        keeps the shape alive, so that its identity stays its own.
        """
        cells = [
            cell
            for cell in self.cells
            if (not shape.pool or cell.pool == shape.pool)
            and (not shape.gpu_types or cell.gpu_type in shape.gpu_types)
            and (cell.gpu_type or not shape.gpus)
            and (shape.is_plain or self._could_take(cell, shape))
        ]
        if shape.gpu_types:
            cells.sort(key=lambda cell: shape.gpu_types.index(cell.gpu_type))
        sizes = tuple(role.size for role in shape.roles)
        known = self._known[id(shape)] = _Known(shape, cells, shape.is_plain, sizes, shape.locality)
        return known

    def _could_take(self, cell: Cell, shape: Shape) -> bool:
        """Whether a worker of each role would fit on some node of `cell`, were that empty."""
        all_of, nodes = self.nodes, list(self._labelled(cell.nodes, shape))
        memory = all_of.type_specs[all_of.gpu_type[cell.nodes[0]]].memory
        return all(
            (needs.share == WHOLE or needs.gpu_memory <= memory)
            and any(
                needs.gpus <= self.full[node].bit_count()
                and needs.cpus <= all_of.cpus[node]
                and needs.memory <= all_of.memory[node]
                for node in nodes
            )
            for needs in (role.needs for role in shape.roles if role.size)
        )

    def _labelled(self, among: Iterable[int], shape: Shape) -> Iterator[int]:
        """The nodes of `among` that have all labels."""
        wanted, named, labels = set(shape.labels), self.nodes.label_sets, self.nodes.labels
        return (node for node in among if not wanted or wanted <= set(named[labels[node]]))

    # ------------------------------------------------------------------ where a shape fits

    def find(
        self,
        shape: Shape,
        sizes: tuple[int, ...] = (),
        fit: Fit = Fit.BEST,
        locality: Locality | None = None,
        draw: Callable[[int], int] | None = None,
        cells: list[Cell] | None = None,
    ) -> Placement | None:
        """Where `shape` fits now (its roles at `sizes`, or as asked), or None.

        `locality` narrows what the shape itself accepts; `draw(n)` gives a number below n for
        Fit.RANDOM; `cells` limits and orders the cells tried. Nothing changes.
        """
        _, allowed, plain, usual, within = self._known.get(id(shape)) or self._learn(shape)
        if locality is not None and locality < within:
            within = locality
        sizes = sizes or usual
        need = sizes[0]
        for cell in allowed if cells is None else cells:
            if not plain:
                found = self._find_roles(cell, shape, sizes, fit, within, draw)
            elif need <= cell.free:
                found = self._find_plain(cell, need, fit, within, draw)
            else:
                continue
            if found is not None:
                return found
        return None

    def _find_plain(
        self, cell: Cell, need: int, fit: Fit, within: Locality, draw: Callable[[int], int] | None
    ) -> Placement | None:
        if need <= cell.widest:
            node = -1
            if fit is _BEST and within is not _ISLAND:
                by_free, k, widest = cell.by_free, need, cell.widest
                while k < widest and not by_free[k]:
                    k += 1
                bits = by_free[k]
                if bits:
                    node = cell.nodes[(bits & -bits).bit_length() - 1]
            else:
                node = self._one_node(cell, need, fit, within, draw)
            if node >= 0:
                mask = self.free_mask[node]
                if need != self.free_count[node]:
                    mask = pick_devices(mask, need, self.island[node])
                return (Slot(node, mask, need),)
        if within is _ISLAND or within is _NODE:
            return None
        if within is _RACK:
            rack = self._fullest_rack_with(cell, need)
            return None if rack is None else self._gather(cell, need, fit, cell.racks[rack], draw)
        return self._gather(cell, need, fit, -1, draw)

    def _one_node(
        self, cell: Cell, need: int, fit: Fit, within: Locality, draw: Callable[[int], int] | None
    ) -> int:
        """The node of `cell` that takes `need` whole GPUs, or -1; best fit has its short path."""
        by_free = cell.by_free
        if within is _ISLAND:
            for k in range(need, cell.widest + 1):
                for local in members(by_free[k]):
                    node = cell.nodes[local]
                    if self._in_one_island(node, need):
                        return node
            return -1
        if fit is _WORST:
            for k in range(cell.widest, need - 1, -1):
                if by_free[k]:
                    return cell.nodes[lowest(by_free[k])]
            return -1
        able = 0
        for k in range(need, cell.widest + 1):
            able |= by_free[k]
        if not able:
            return -1
        if fit is _RANDOM and draw is not None:
            choices = list(members(able))
            return cell.nodes[choices[draw(len(choices))]]
        return cell.nodes[lowest(able)]

    def _in_one_island(self, node: int, need: int) -> bool:
        island = self.island[node] or self.full[node].bit_length()
        window = (1 << island) - 1
        free = self.free_mask[node]
        return any(
            (free >> shift & window).bit_count() >= need
            for shift in range(0, free.bit_length(), island)
        )

    def _fullest_rack_with(self, cell: Cell, need: int) -> int | None:
        """The rack with the least free GPUs that still has `need`, or None."""
        best, best_free = None, 1 << 60
        for rack, bits in cell.racks.items():
            free = sum(k * (cell.by_free[k] & bits).bit_count() for k in range(1, cell.widest + 1))
            if need <= free < best_free:
                best, best_free = rack, free
        return best

    def _gather(
        self, cell: Cell, need: int, fit: Fit, among: int, draw: Callable[[int], int] | None
    ) -> Placement | None:
        """`need` GPUs over several nodes: the fewest nodes, or under FIRST and RANDOM any."""
        slots: list[Slot] = []
        if fit is not _BEST and fit is not _WORST:
            able = 0
            for k in range(1, cell.widest + 1):
                able |= cell.by_free[k]
            order: Iterable[int] = members(able & among)
            if fit is _RANDOM and draw is not None:
                order = list(order)
                for i in range(len(order) - 1, 0, -1):
                    j = draw(i + 1)
                    order[i], order[j] = order[j], order[i]
        else:
            order = self._fewest_nodes(cell, need, among)
        for local in order:
            node = cell.nodes[local]
            take = min(need, self.free_count[node])
            slots.append(
                Slot(node, pick_devices(self.free_mask[node], take, self.island[node]), take)
            )
            need -= take
            if not need:
                return tuple(slots)
        return None

    def _fewest_nodes(self, cell: Cell, need: int, among: int) -> list[int]:
        """Locals in the order that uses the emptiest nodes first, and best fit for the rest."""
        order: list[int] = []
        for k in range(cell.widest, 0, -1):
            bits = cell.by_free[k] & among
            while bits and need >= k:
                low = bits & -bits
                order.append(low.bit_length() - 1)
                bits ^= low
                need -= k
            if bits and 0 < need < k:
                for j in range(need, k + 1):
                    fitting = bits if j == k else cell.by_free[j] & among
                    if fitting:
                        order.append(lowest(fitting))
                        return order
        return order

    # ------------------------------------------------------------------ the long path

    def _room(self, node: int, needs: Needs, taken: tuple[int, int, int]) -> int:
        """How many workers of `needs` fit on `node` beside what this search has `taken` there:
        (devices mask, cpus, memory)."""
        room = 1 << 30
        if needs.gpus:
            if needs.share < WHOLE:
                room = len(self._shareable(node, needs, taken[0]))
            else:
                room = (self.free_mask[node] & ~taken[0]).bit_count() // needs.gpus
        if needs.cpus:
            room = min(room, (self.free_cpus[node] - taken[1]) // needs.cpus)
        if needs.memory:
            room = min(room, (self.free_memory[node] - taken[2]) // needs.memory)
        return max(room, 0)

    def _shareable(self, node: int, needs: Needs, taken: int) -> list[int]:
        """Devices of `node` that can take one share of `needs`, the fullest first."""
        memory = self.nodes.type_specs[self.nodes.gpu_type[node]].memory
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

    def _find_roles(
        self, cell: Cell, shape: Shape, sizes: tuple[int, ...], fit: Fit, within: Locality,
        draw: Callable[[int], int] | None,
    ) -> Placement | None:  # fmt: skip
        """A place for every role, role by role, in one node if one has room for all."""
        everywhere = fit is not _BEST or not any(role.needs.gpus for role in shape.roles)
        nodes = self._in_order(cell, shape, fit, draw) if everywhere else []
        first = nodes if everywhere else self._by_level(cell, shape, sizes)
        for node in first:
            found = self._roles_on([node], shape.roles, sizes)
            if found is not None:
                return found
        if within <= Locality.NODE or sum(sizes) == 1:
            return None
        nodes = nodes or self._in_order(cell, shape, fit, draw)
        if within == Locality.RACK:
            for rack in sorted({self.rack[node] for node in nodes}):
                here = [node for node in nodes if self.rack[node] == rack]
                found = self._roles_on(here, shape.roles, sizes)
                if found is not None:
                    return found
            return None
        return self._roles_on(nodes, shape.roles, sizes)

    def _by_level(self, cell: Cell, shape: Shape, sizes: tuple[int, ...]) -> Iterator[int]:
        """The nodes of `cell` on which roles with GPUs may find room, the fullest first, as
        `_in_order` has them: in steps of whole GPUs free, those with shared GPUs in between."""
        least = sum(role.needs.gpus * size for role, size in zip(shape.roles, sizes, strict=True)
                    if role.needs.share == WHOLE)  # fmt: skip
        partly = sorted(
            (self._emptiness(node), node)
            for node in (cell.nodes[local] for local in members(cell.sharing))
            if self.up[node] and self.free_count[node] >= least
        )
        whole = (
            (WHOLE * free, cell.nodes[local])
            for free in range(max(least, 1), len(cell.by_free))
            for local in members(cell.by_free[free] & ~cell.sharing)
        )
        return self._labelled((node for _, node in merge(partly, whole)), shape)

    def _in_order(
        self, cell: Cell, shape: Shape, fit: Fit, draw: Callable[[int], int] | None
    ) -> list[int]:
        nodes = [node for node in self._labelled(cell.nodes, shape) if self.up[node]]
        if fit == Fit.FIRST:
            return nodes
        if fit == Fit.RANDOM and draw is not None:
            nodes = list(nodes)
            for i in range(len(nodes) - 1, 0, -1):
                j = draw(i + 1)
                nodes[i], nodes[j] = nodes[j], nodes[i]
            return nodes
        sign = -1 if fit == Fit.WORST else 1
        return sorted(nodes, key=lambda node: (sign * self._emptiness(node), node))

    def _emptiness(self, node: int) -> int:
        """Thousandths of GPUs free on `node`; its CPUs where it has none."""
        if not self.full[node]:
            return self.free_cpus[node]
        in_shares: int = sum(WHOLE - used for used, _ in self.shared[node].values())
        return WHOLE * self.free_count[node] + in_shares

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
        return pick_devices(self.free_mask[node] & ~taken, workers * needs.gpus, self.island[node])
