"""Placing parts of GPUs, by the rules of how a device is shared."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, TypeAlias

from ganger.core.books.empty import EmptyCluster
from ganger.core.books.ledger import Cell, Ledger, members
from ganger.core.books.share import Part, Sharing, may_share
from ganger.core.plan import Placement, Slot
from ganger.core.spec import Needs, Shape
from ganger.core.units import WHOLE
from ganger.core.view import View
from ganger.mechanisms.placement.place import Place, refuse_absent

OnDevices: TypeAlias = dict[tuple[int, int], list[Part]]
"""By (node, device): what is in use there."""


@dataclass(frozen=True, kw_only=True)
class Parts(Place):
    """Jobs that ask for a share of a GPU go where `mode` lets them sit, on the fullest device
    first; jobs that ask for whole GPUs are placed as ever."""

    by_room: ClassVar[bool] = False

    mode: Sharing

    def find(
        self, view: View, ledger: Ledger, job: int, cells: list[Cell] | None = None, gpus: int = 0
    ) -> Placement | None:
        """Devices on which the rule holds with one more part."""
        shape = view.draft.shape(job)
        if len(shape.roles) > 1 or not 0 < shape.roles[0].needs.share < WHOLE:
            return super().find(view, ledger, job, cells, gpus)
        in_use = _parts(ledger, self.mode)
        for cell in ledger.cells_for(shape) if cells is None else cells:
            ranked = self.ranked(view, ledger, job, cell, in_use)
            placement = self._in_cell(view, ledger, cell, shape, ranked)
            if placement is not None:
                return placement
        return None

    def ranked(
        self, view: View, ledger: Ledger, job: int, cell: Cell, in_use: OnDevices
    ) -> list[tuple[tuple[int, int], list[Part]]]:
        """The devices of the cell that the job may use, the one to try first first, each with what
        is in use there: shared ones, the fullest first, then free ones."""
        shared, free = devices_of(ledger, cell, view.draft.shape(job), in_use)
        shared.sort(key=lambda key: (-sum(part.compute for part in in_use[key]), key))
        return [(key, in_use.get(key, [])) for key in shared + free]

    def admits(
        self, view: View, ledger: Ledger, device: tuple[int, int], used: list[Part], part: Part
    ) -> bool:
        """Whether `part` may be on the device beside what is `used` there."""
        nodes = ledger.nodes
        memory = nodes.type_specs[nodes.gpu_type[device[0]]].memory
        return may_share(self.mode, [*used, part], memory)

    def _in_cell(
        self,
        view: View,
        ledger: Ledger,
        cell: Cell,
        shape: Shape,
        ranked: list[tuple[tuple[int, int], list[Part]]],
    ) -> Placement | None:
        needs, left = shape.roles[0].needs, shape.roles[0].size
        part = Part(needs.share, needs.gpu_memory)
        memory = ledger.nodes.type_specs[ledger.nodes.gpu_type[cell.nodes[0]]].memory
        masks: dict[int, int] = {}
        for (node, device), used in ranked:
            room = _host_room(ledger, node, needs) - masks.get(node, 0).bit_count()
            if not _has_room(ledger, node, device, part, memory):
                continue
            if room > 0 and self.admits(view, ledger, (node, device), used, part):
                masks[node] = masks.get(node, 0) | 1 << device
                left -= 1
            if not left:
                return tuple(Slot(at, mask, mask.bit_count()) for at, mask in masks.items())
        return None


@dataclass(frozen=True, kw_only=True)
class ReserveAndPack(Parts):
    """GPUs of the types `high` are kept for jobs that demand such a type, or that could run on no
    others; all the rest are packed on the other types (Weng et al., NSDI 2022). `stated`: a
    cluster that lacks one of them is refused."""

    high: tuple[str, ...]
    stated: bool

    def find(
        self, view: View, ledger: Ledger, job: int, cells: list[Cell] | None = None, gpus: int = 0
    ) -> Placement | None:
        """As parts or whole GPUs, in the cells that are not reserved for others. Raises BadInput
        where a stated type is not there."""
        if self.stated:
            refuse_absent("GPUs of type", self.high, view.nodes.types, "ali-mlaas(reserved)")
        shape = view.draft.shape(job)
        cells = ledger.cells_for(shape) if cells is None else cells
        common = [cell for cell in cells if cell.gpu_type not in self.high]
        if common and not set(shape.gpu_types) & set(self.high) and self._could(view, job, common):
            cells = common
        return super().find(view, ledger, job, cells, gpus)

    def _could(self, view: View, job: int, cells: list[Cell]) -> bool:
        """Whether the job would fit into `cells` if they were empty."""
        there = tuple([cell.index for cell in cells])
        return view.cached(EmptyCluster, view.nodes).fits(view.draft.shape(job), cells=there)


def _parts(ledger: Ledger, mode: Sharing) -> OnDevices:
    """What is in use, by (node, device), of the devices that are shared. A sleeping job keeps its
    memory, and under MIG its partition."""
    found: dict[tuple[int, int], list[Part]] = {}
    for job, (shape, placement) in ledger.holds.items():
        for slot in placement:
            shared = ledger.shared[slot.node]
            if not shared:
                continue
            needs = shape.roles[slot.role].needs
            for device in members(slot.devices):
                if device in shared:
                    idle = job in ledger.asleep and mode is not Sharing.MIG
                    part = Part(0 if idle else needs.share, needs.gpu_memory)
                    found.setdefault((slot.node, device), []).append(part)
    return found


def devices_of(
    ledger: Ledger, cell: Cell, shape: Shape, in_use: OnDevices
) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    """The devices of the cell that a job of `shape` may use: those that are shared, and, in order
    of number, those that are free."""
    nodes = ledger.nodes
    able = {
        node
        for node in cell.nodes
        if ledger.up[node] and set(shape.labels) <= set(nodes.label_sets[nodes.labels[node]])
    }
    shared = [key for key in in_use if key[0] in able]
    free = [(node, device) for node in sorted(able) for device in members(ledger.free_mask[node])]
    return shared, free


def _has_room(ledger: Ledger, node: int, device: int, part: Part, memory: int) -> bool:
    """Whether the books have room on the device: under another recipe its jobs may hold more of it
    than they ask for, or sleep there."""
    if ledger.free_mask[node] >> device & 1:
        return True
    used, filled = ledger.shared[node].get(device, (WHOLE, 0))
    return used + part.compute <= WHOLE and filled + part.memory <= memory


def _host_room(ledger: Ledger, node: int, needs: Needs) -> int:
    """Workers whose CPUs and host memory fit on the node."""
    room = 1 << 30
    if needs.cpus:
        room = ledger.free_cpus[node] // needs.cpus
    if needs.memory:
        room = min(room, ledger.free_memory[node] // needs.memory)
    return room
