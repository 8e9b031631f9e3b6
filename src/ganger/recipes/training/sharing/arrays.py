"""CODA's arrays: where small gangs, large gangs and jobs without GPUs go, and which cores of a node
are whose."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ganger.core.books.ledger import Cell, Ledger
from ganger.core.plan import Placement, Slot
from ganger.core.spec import Kind, Locality, Shape
from ganger.core.units import WHOLE
from ganger.core.view import View
from ganger.mechanisms.common.holdings_delta import HoldingsDelta
from ganger.mechanisms.common.reconcile import STAYS
from ganger.mechanisms.placement.place import Place

_TRAINS = (int(Kind.TRAIN), int(Kind.TASK))


def on_cores(shape: Shape) -> bool:
    """Whether a job of this shape asks for cores and no GPU."""
    needs = shape.roles[0].needs
    return len(shape.roles) == 1 and not needs.gpus and needs.cpus > 0


class Company:
    """Which jobs are on which node: a cache that follows the books, so that a decision touches what
    changed. What it found at one revision it tells again, however often one decides on that."""

    def __init__(self) -> None:
        self._delta = HoldingsDelta()
        self.trainers: dict[int, dict[int, int]] = {}
        """By node, of the jobs with GPUs that ask for no cores, how many GPUs each has there."""
        self.others: dict[int, dict[int, int]] = {}
        """By node, of the jobs without GPUs, how many workers each has there."""
        self.nodes: dict[int, tuple[int, ...]] = {}
        self._revision = -1
        self.touched: set[int] = set()
        self.come: dict[int, None] = {}
        self.gone: dict[int, None] = {}
        self.anew = True
        """Whether it began at this revision, so that nothing is known of who has gone."""

    def look(self, view: View) -> None:
        """Catch up with the books."""
        if self._revision != view.revision:
            self.anew = self._revision < 0
            self._revision = view.revision
            self.touched, self.come, self.gone = set(), {}, {}
        gone, come = self._delta.changes(view.ledger)
        for job in gone:
            for node in self.nodes.pop(job, ()):
                self.touched.add(node)
                self.trainers.get(node, {}).pop(job, None)
                self.others.get(node, {}).pop(job, None)
            self.come.pop(job, None)
            self.gone[job] = None
        for job, placement in come:
            self._add(view, job, placement)

    def _add(self, view: View, job: int, placement: Placement) -> None:
        shape = view.draft.shape(job)
        trains = any(slot.devices for slot in placement)
        trains &= not any(shape.roles[slot.role].needs.cpus for slot in placement)
        by_node = self.trainers if trains else self.others if on_cores(shape) else None
        self.nodes[job] = tuple(sorted({slot.node for slot in placement}))
        self.touched |= set(self.nodes[job])
        self.gone.pop(job, None)
        if by_node is None:
            return
        self.come[job] = None
        for slot in placement:
            here = by_node.setdefault(slot.node, {})
            many = slot.devices.bit_count() if trains else slot.workers
            if many:
                here[job] = here.get(job, 0) + many


def adapts(view: View, job: int) -> bool:
    """Whether the job's cores are found by trial: it trains on whole GPUs."""
    return view.at.kind[job] in _TRAINS and view.draft.shape(job).roles[0].needs.share == WHOLE


@dataclass(frozen=True, kw_only=True)
class Arrays(Place):
    """Of the nodes with GPUs the last `part` are for gangs of `large` GPUs and more, the others for
    smaller ones; each goes elsewhere where its own have no room. Of the cores of such a node the
    part `reserved` is for jobs with GPUs. Jobs without GPUs take the other cores and nodes without
    GPUs first; those that may be preempted then take reserved cores, too, that nobody uses."""

    by_room: ClassVar[bool] = False

    reserved: float
    large: int
    part: float

    def find(
        self, view: View, ledger: Ledger, job: int, cells: list[Cell] | None = None, gpus: int = 0
    ) -> Placement | None:
        """In its own array by the fit rule, else anywhere."""
        shape = view.draft.shape(job)
        if on_cores(shape):
            return self._on_cores(view, ledger, job, shape)
        if not shape.gpus:
            return super().find(view, ledger, job, cells, gpus)
        small, large = self._arrays(view)
        others = small if (gpus or view.at.gpus[job]) >= self.large else large
        with ledger.hidden(others):
            place = super().find(view, ledger, job, cells, gpus)
        return place or super().find(view, ledger, job, cells, gpus)

    def _arrays(self, view: View) -> tuple[list[int], list[int]]:
        """The nodes of the small gangs, and those of the large ones."""
        nodes = [node for node, gpus in enumerate(view.nodes.gpus[: view.nodes.n]) if gpus]
        first = len(nodes) - round(self.part * len(nodes))
        return nodes[:first], nodes[first:]

    def kept(self, view: View, node: int) -> float:
        """Thousandths of a core of the node that are reserved for jobs with GPUs."""
        return self.reserved * int(view.nodes.cpus[node]) if view.nodes.gpus[node] else 0.0

    def granted(self, view: View, node: int) -> float:
        """Thousandths of a core that jobs with GPUs have on the node; those that were given none
        yet count with their GPUs' part of what is reserved."""
        each = self.kept(view, node) / max(int(view.nodes.gpus[node]), 1)
        here = view.cached(Company).trainers.get(node, {})
        return sum(
            gpus * float(view.knobs.get(job, {}).get("cpus_per_gpu", each))
            for job, gpus in here.items()
        )

    def _on_cores(self, view: View, ledger: Ledger, job: int, shape: Shape) -> Placement | None:
        """Cores for all workers: without borrowing if that can be, on as few nodes as can be."""
        view.cached(Company).look(view)
        for borrows in (False, True) if view.at.on_preempt[job] not in STAYS else (False,):
            for cell in ledger.cells_for(shape):
                rooms = {
                    node: self._room(view, ledger, node, shape, borrows)
                    for node in cell.nodes
                    if ledger.up[node] and self._labelled(view, node, shape)
                }
                place = _fewest(view, rooms, shape)
                if place is not None:
                    return place
        return None

    def _room(self, view: View, ledger: Ledger, node: int, shape: Shape, borrows: bool) -> int:
        """Workers that the node has room for."""
        needs, kept = shape.roles[0].needs, self.kept(view, node)
        taken = min(self.granted(view, node), kept) if borrows else kept
        room = int((ledger.free_cpus[node] - taken) // needs.cpus)
        if needs.memory:
            room = min(room, ledger.free_memory[node] // needs.memory)
        return min(max(room, 0), shape.roles[0].size)

    @staticmethod
    def _labelled(view: View, node: int, shape: Shape) -> bool:
        nodes = view.nodes
        return not shape.labels or set(shape.labels) <= set(nodes.label_sets[nodes.labels[node]])


def _fewest(view: View, rooms: dict[int, int], shape: Shape) -> Placement | None:
    """The first node with room for all workers; else those with the most, in one rack if the job
    must be."""
    size = shape.roles[0].size
    enough = [node for node, room in rooms.items() if room >= size]
    if enough or shape.locality <= Locality.NODE:
        return (Slot(enough[0], 0, size),) if enough else None
    nodes = view.nodes
    racks: list[int] = [0] * nodes.n
    if shape.locality == Locality.RACK:
        racks = nodes.rack[: nodes.n].tolist()
    for rack in sorted({racks[node] for node in rooms}):
        slots, rest = list[Slot](), size
        here = [(room, node) for node, room in rooms.items() if racks[node] == rack and room]
        for room, node in sorted(here, key=lambda each: (-each[0], each[1])):
            if rest:
                slots.append(Slot(node, 0, min(room, rest)))
                rest -= slots[-1].workers
        if not rest:
            return tuple(sorted(slots, key=lambda slot: slot.node))
    return None
