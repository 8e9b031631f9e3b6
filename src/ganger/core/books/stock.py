"""What is free on a set of nodes, filed so that searches need not look at every node.

Nodes of one GPU type in one pool form a *cell*. A cell keeps, for every number k, the set of its
nodes with exactly k wholly free GPUs as one Python integer used as a bit set, and, once a search
needs more than GPUs, what is free on its nodes as columns (`Columns`).

Best, worst and first fit of whole GPUs therefore cost the same on ten nodes and on ten thousand.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ganger.core.books.bits import members
from ganger.core.plan import Placement, Slot
from ganger.core.spec import Locality, Needs, Shape
from ganger.core.state.cluster import Nodes
from ganger.core.units import NEVER, WHOLE


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


class Cell:
    """The nodes of one GPU type in one pool."""

    __slots__ = (
        "by_free",
        "columns",
        "dozing",
        "free",
        "gpu_type",
        "index",
        "nodes",
        "pool",
        "racks",
        "returned",
        "stale",
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
        """GPUs given back so far, all in all, but for those that the same draft took again, and 1
        for each slot without a GPU: what could not be placed waits for this to grow."""
        self.columns: Columns | None = None
        self.stale = 0
        """Nodes that changed since `columns` were last brought up to date."""
        self.total = 0
        self.widest = 0
        self.dozing = 0
        """Devices on which nobody computes, and some of whose memory is held by who is asleep."""


Ints = NDArray[np.int64]


class Columns:
    """What is free on each node of one cell, in the order of its nodes; -1 on nodes that are down.

    `gpus`: wholly free GPUs; `cpus`: thousandths of a core; `memory`: MiB of the host; `share`:
    the largest free part of a GPU held in shares, thousandths; `dozing`: GPUs on which nobody
    computes, and some of whose memory is held; `empty`: thousandths of GPUs free (of cores, on a
    node without GPUs), by which fits choose between nodes; `rack`: its rack. `revision` counts how
    often anything was brought up to date, `revised` says when each node last was.
    """

    __slots__ = (
        "cpus",
        "dozing",
        "empty",
        "gpus",
        "memory",
        "rack",
        "revised",
        "revision",
        "share",
    )

    def __init__(self, rack: Ints) -> None:
        self.rack = rack
        self.revision, self.revised = 0, np.zeros(len(rack), np.int64)
        self.gpus, self.cpus, self.memory, self.share, self.dozing, self.empty = (
            np.full(len(rack), -1, np.int64) for _ in range(6)
        )


@dataclass(slots=True, eq=False)  # a named tuple's fields take ten times as long to read
class Known:
    """What never changes about a shape on one set of nodes."""

    shape: Shape
    cells: list[Cell]
    plain: bool
    sizes: tuple[int, ...]
    locality: Locality
    whole: int
    """The GPUs that it takes at these sizes if it takes GPUs, and only whole ones; else 0."""
    labelled: dict[Cell, NDArray[np.bool_]]
    """By cell, which nodes have the labels that it asks for; empty if it asks for none."""
    beside: bool
    """Whether whole GPUs of it may hold memory of others: it says how much memory it needs."""


class Room(NamedTuple):
    """What a grant has on one node: whole devices (a mask), thousandths of a core, MiB of the host;
    `parts`: of devices that others use too, by device, (thousandths, MiB of its memory);
    `gpu_memory`: MiB that its holder stated for each whole device, the least of its roles; 0: none
    stated, so that all of the memory is the grant's."""

    devices: int = 0
    cpus: int = 0
    memory: int = 0
    parts: Mapping[int, tuple[int, int]] = MappingProxyType({})
    gpu_memory: int = 0


def share_of(needs: Needs, slot: Slot) -> int:
    """The thousandths of each device of `slot` that its workers take."""
    return slot.share or needs.share


def rooms(shape: Shape, placement: Placement) -> dict[int, Room]:
    """By node, what a job of `shape` holds as `placement`: what its children can be given."""
    by_node = dict[int, Room]()
    for slot in placement:
        needs, room = shape.roles[slot.role].needs, by_node.get(slot.node, Room())
        share, whole, parts = share_of(needs, slot), room.devices, dict(room.parts)
        stated = room.gpu_memory
        if share == WHOLE:
            whole |= slot.devices
            if slot.devices and needs.gpu_memory:
                stated = min(stated or needs.gpu_memory, needs.gpu_memory)
        else:
            for device in members(slot.devices):
                thousandths, memory = parts.get(device, (0, 0))
                parts[device] = thousandths + share, memory + needs.gpu_memory
        by_node[slot.node] = Room(
            whole,
            room.cpus + needs.cpus * slot.workers,
            room.memory + needs.memory * slot.workers,
            parts,
            stated,
        )
    return by_node


class Stock:
    """What is free on a set of nodes, or in a grant there (`within`, by node)."""

    def __init__(self, nodes: Nodes, within: Mapping[int, Room] | None = None) -> None:
        self.nodes, self.within = nodes, within
        count = nodes.n
        full: list[int] = [(1 << gpus) - 1 for gpus in nodes.gpus[:count].tolist()]
        if within is not None:
            full = [mask & within.get(node, Room()).devices for node, mask in enumerate(full)]
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
        self.gpu_memory_limit = NEVER
        """MiB of each device that jobs may use: fewer than it has in a grant whose holder stated
        how many, since the others may be those of a suspended job."""
        if within is not None:
            self._limit(within)
        self._known: dict[int, Known] = {}
        self.cells: list[Cell] = []
        self._make_cells()

    def _limit(self, within: Mapping[int, Room]) -> None:
        """CPUs, host memory and parts of devices are a grant's: what it lacks counts as in use."""
        none, nodes = Room(), self.nodes
        stated = [room.gpu_memory for room in within.values() if room.gpu_memory]
        self.gpu_memory_limit = min(stated, default=NEVER)
        for node in range(nodes.n):
            room = within.get(node, none)
            self.free_cpus[node], self.free_memory[node] = room.cpus, room.memory
            for device, (share, memory) in room.parts.items():
                self.shared[node][device] = WHOLE - share, self.device_memory(node) - memory

    def device_memory(self, node: int) -> int:
        """MiB of each device of `node` that jobs may use."""
        size: int = self.nodes.type_specs[self.nodes.gpu_type[node]].memory
        return min(size, self.gpu_memory_limit)

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

    def is_whole(self, shape: Shape) -> bool:
        """Whether it takes GPUs, and only such as are wholly free, whatever else it needs: a shape
        that states how much GPU memory it needs may be placed over a sleeping job."""
        known = self._known.get(id(shape)) or self._learn(shape)
        return known.whole > 0 and not known.beside

    def lacks(self, shape: Shape) -> bool:
        """Whether no cell has as many whole GPUs free as `shape` asks for: a cheap no before
        `find`. Of shapes without GPUs or with parts of one it cannot tell, and says False."""
        known = self._known.get(id(shape)) or self._learn(shape)
        need = known.whole
        for cell in known.cells:
            if need <= cell.free or (known.beside and need <= cell.free + cell.dozing):
                return False
        return need > 0

    def _learn(self, shape: Shape) -> Known:
        """Work out what never changes about a shape here.

        Keyed by identity, since hashing a shape costs more than finding a place for it; `Known`
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
        known = self._known[id(shape)] = Known(
            shape,
            cells,
            shape.is_plain,
            tuple(role.size for role in shape.roles),
            shape.locality,
            0 if any(role.needs.share < WHOLE for role in shape.roles) else shape.gpus,
            {cell: self._with_labels(cell, shape) for cell in cells} if shape.labels else {},
            any(role.needs.gpu_memory and role.needs.share == WHOLE for role in shape.roles),
        )
        return known

    def _could_take(self, cell: Cell, shape: Shape) -> bool:
        """Whether a worker of each role would fit on some node of `cell`, were that empty."""
        all_of, able = self.nodes, self._with_labels(cell, shape)
        nodes = [node for node, there in zip(cell.nodes, able.tolist(), strict=True) if there]
        memory, limit = self.device_memory(cell.nodes[0]), self.gpu_memory_limit
        return all(
            needs.gpu_memory <= (limit if needs.share == WHOLE else memory)
            and any(
                needs.gpus <= self.full[node].bit_count() + len(self._parts(node))
                and needs.cpus <= all_of.cpus[node]
                and needs.memory <= all_of.memory[node]
                for node in nodes
            )
            for needs in (role.needs for role in shape.roles if role.size)
        )

    def labelled(self, cell: Cell, shape: Shape) -> NDArray[np.bool_]:
        """Which nodes of `cell`, one of `cells_for(shape)`, have the labels that it asks for."""
        known = self._known.get(id(shape)) or self._learn(shape)
        return known.labelled.get(cell, np.ones(len(cell.nodes), np.bool_))

    def _parts(self, node: int) -> Mapping[int, tuple[int, int]]:
        """The devices of a node of which these books have a part."""
        return {} if self.within is None or node not in self.within else self.within[node].parts

    def _with_labels(self, cell: Cell, shape: Shape) -> NDArray[np.bool_]:
        """Which nodes of `cell` have all labels of `shape`."""
        wanted, sets = set(shape.labels), self.nodes.label_sets
        able = np.array([wanted <= set(each) for each in sets], np.bool_)
        return able[self.nodes.labels[cell.nodes]]

    # ------------------------------------------------------------------ columns

    def columns(self, cell: Cell) -> Columns:
        """What is free on the nodes of `cell` now, as columns."""
        found = cell.columns
        if found is None:
            racks = np.array([self.rack[node] for node in cell.nodes], np.int64)
            found = cell.columns = Columns(racks)
            cell.stale = (1 << len(cell.nodes)) - 1
        if cell.stale:
            found.revision += 1
            for local in members(cell.stale):
                self._refresh(cell, found, local)
                found.revised[local] = found.revision
            cell.stale = 0
        return found

    def _refresh(self, cell: Cell, columns: Columns, local: int) -> None:
        node = cell.nodes[local]
        if not self.up[node]:
            columns.gpus[local] = columns.cpus[local] = columns.memory[local] = -1
            columns.share[local] = columns.empty[local] = -1
            columns.dozing[local] = 0
            return
        whole, widest, parts, dozing = self.free_count[node], 0, 0, 0
        for used, _ in self.shared[node].values():
            parts += WHOLE - used
            widest = max(widest, WHOLE - used)
            dozing += not used
        columns.gpus[local], columns.share[local], columns.dozing[local] = whole, widest, dozing
        columns.cpus[local], columns.memory[local] = self.free_cpus[node], self.free_memory[node]
        columns.empty[local] = WHOLE * whole + parts if self.full[node] else self.free_cpus[node]

    def _in_one_island(self, node: int, need: int) -> bool:
        island = self.island[node] or self.full[node].bit_length()
        window = (1 << island) - 1
        free = self.free_mask[node]
        return any(
            (free >> shift & window).bit_count() >= need
            for shift in range(0, free.bit_length(), island)
        )
