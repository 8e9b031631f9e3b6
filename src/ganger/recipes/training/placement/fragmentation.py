"""Fragmentation gradient descent: a task goes where it leaves the least of what is free unusable
for the tasks that come (Weng et al., USENIX ATC 2023)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final, NamedTuple, TypeAlias

import numpy as np

from ganger.core.books.bits import members
from ganger.core.books.ledger import Cell, Ledger, pick_devices
from ganger.core.books.stock import Ints
from ganger.core.errors import BadInput
from ganger.core.plan import Placement, Slot
from ganger.core.spec import Locality, Shape
from ganger.core.state.jobs import Phase
from ganger.core.units import WHOLE
from ganger.core.view import View
from ganger.mechanisms.placement.place import Place

_DECLARED: Final = int(Phase.DECLARED)
_NOWHERE: Final = 1 << 62
"""More than any growth of fragmentation."""


class Ties(Enum):
    """Which of the nodes gets a task on which fragmentation grows alike."""

    FULLEST = "fullest"
    """The one with the least free, then the lowest number."""
    LOWEST = "lowest"
    """The lowest number."""


class Task(NamedTuple):
    """What one task takes of one node: CPUs (thousandths), whole GPUs, or a share of one
    (thousandths; `WHOLE`: none) with so many MiB of its memory."""

    cpus: int
    gpus: int
    share: int
    gpu_memory: int = 0


class TaskClass(NamedTuple):
    """Tasks that are alike: CPUs of all workers (thousandths), GPUs, the share of a GPU (`WHOLE`:
    whole ones), the GPU types allowed (sorted; none: any) and the pool (empty: any)."""

    cpus: int
    gpus: int
    share: int = WHOLE
    gpu_types: tuple[str, ...] = ()
    pool: str = ""


CLASSES_MAX: Final = 1000
"""So many classes of a workload count, the most frequent: a cell takes 8 kB for each."""
Workload: TypeAlias = tuple[tuple[TaskClass, int], ...]
"""Classes of tasks, and how many tasks each has."""


@dataclass(frozen=True, kw_only=True)
class LeastFragmentation(Place):
    """The node, and the device on it, where the fragmentation of free GPUs grows least.

    Fragmentation of a node for a class of tasks: all of its free GPU if such a task cannot run
    there; else what is free on devices that have less left than its share, or, for a class of whole
    GPUs, on partly used devices. For the workload: the mean over its classes by how many tasks they
    have. A class is what tells tasks apart in CPUs, GPUs, share, GPU types and pool; host memory
    and the memory of GPUs decide where a job fits, not what is a fragment.

    `workload`: its tasks; empty: the jobs submitted so far, of which the first 1, 2, 4, 8 and so on
    count. `covers`: only the most frequent classes count that together have this part of all
    tasks. A gang is one task, of as much of it as the widest node holds; workers that take parts of
    a GPU are tasks each for itself; of several kinds of workers the first with GPUs counts.

    A gang that finds no room on one node, and a job of several roles, of several parts of GPUs, of
    whole GPUs and so much of their memory, or that must lie within an island, is placed by best
    fit.
    """

    workload: Workload = ()
    ties: Ties = Ties.FULLEST
    covers: float = 1.0

    def find(
        self, view: View, ledger: Ledger, job: int, cells: list[Cell] | None = None, gpus: int = 0
    ) -> Placement | None:
        """On the node of all `cells` where fragmentation grows least."""
        shape = view.draft.shape(job)
        task = _task(shape, gpus)
        cells = ledger.cells_for(shape) if cells is None else cells
        placement = None
        if task is not None and min(shape.locality, self.within) > Locality.ISLAND:
            placement = self._on_one_node(view, ledger, shape, task, cells)
        return placement or super().find(view, ledger, job, cells, gpus)

    def _on_one_node(
        self, view: View, ledger: Ledger, shape: Shape, task: Task, cells: list[Cell]
    ) -> Placement | None:
        known, best, chosen = self.known(view), (_NOWHERE, 0, 0), -1
        needs, size = shape.roles[0].needs, max(task.gpus, 1) // max(shape.roles[0].needs.gpus, 1)
        for cell in cells:
            if task.gpus and task.gpus > cell.free:
                continue
            columns = ledger.columns(cell)
            growth, devices = known.of(ledger, cell).growth(task)
            able = (growth < _NOWHERE) & (columns.cpus >= task.cpus)
            if needs.memory:
                able &= columns.memory >= needs.memory * size
            if shape.labels:
                able &= ledger.labelled(cell, shape)
            locals_ = np.flatnonzero(able)
            if not len(locals_):
                continue
            grown = growth[locals_]
            least = int(grown.min())
            locals_ = locals_[grown == least]
            free = 0
            if self.ties is Ties.FULLEST:
                empty = columns.empty[locals_]
                free = int(empty.min())
                locals_ = locals_[empty == free]
            local = int(locals_[0])
            key = least, free, cell.nodes[local]
            if key < best:
                best, chosen = key, int(devices[local])
        if chosen < 0:
            return None
        node = best[2]
        if task.share < WHOLE:
            return (Slot(node, 1 << chosen, 1),)
        mask = pick_devices(ledger.free_mask[node], task.gpus, ledger.island[node])
        return (Slot(node, mask, size),)

    def known(self, view: View) -> WorkloadFragments:
        """What is known of this workload, as of the jobs seen so far."""
        known, seen = view.cached(WorkloadFragments), 0
        if not self.workload:
            jobs = view.jobs
            seen = int(np.count_nonzero(jobs.phase[: jobs.n] != _DECLARED))
            seen = 1 << seen.bit_length() - 1
        key = self.workload, self.covers, seen
        if known.key != key:
            known.key, known.classes = key, covering(self._classes(view, seen), self.covers)
            known.cells.clear()
        return known

    def _classes(self, view: View, seen: int) -> dict[TaskClass, int]:
        """How many tasks of the workload each class has."""
        if self.workload:
            return counted_classes(self.workload)
        jobs = view.jobs
        rows = np.flatnonzero(jobs.phase[: jobs.n] != _DECLARED)[:seen]
        codes, counts = np.unique(jobs.shape[rows], return_counts=True)
        pairs = zip(codes.tolist(), counts.tolist(), strict=True)
        return counted_classes(class_of(jobs.shapes[code], count) for code, count in pairs)


def counted_classes(tasks: Iterable[tuple[TaskClass, int]]) -> dict[TaskClass, int]:
    """The same, each class once."""
    counts: dict[TaskClass, int] = {}
    for kind, count in tasks:
        counts[kind] = counts.get(kind, 0) + count
    return counts


def class_of(shape: Shape, jobs: int) -> tuple[TaskClass, int]:
    """The class of so many jobs of `shape`, and how many tasks they are."""
    role = next((role for role in shape.roles if role.needs.gpus), shape.roles[0])
    needs, types = role.needs, tuple(sorted(shape.gpu_types))
    if needs.share < WHOLE or not needs.gpus:
        kind = TaskClass(needs.cpus, needs.gpus, needs.share, types, shape.pool)
        return kind, jobs * role.size
    gpus, cpus = role.size * needs.gpus, role.size * needs.cpus
    return TaskClass(cpus, gpus, WHOLE, types, shape.pool), jobs


_CLASS: Final = re.compile(
    r"(\d{1,9})\*(\d{1,5})(?:x(\d{1,3}))?(?:@(\d{1,9}(?:\.\d{1,3})?))?(?:/([^#]+))?(?:#(.+))?",
    re.ASCII,
)


def read_class(text: str) -> tuple[TaskClass, int]:
    """A class of tasks and how many it has, from `25*1x300@4/V100|T4#POOL`. Raises BadInput."""
    fields = _CLASS.fullmatch(text)
    count, gpus, share = (int(fields[at] or 0) for at in (1, 2, 3)) if fields else (0, 0, 0)
    if fields is None or not count or (fields[3] and (gpus != 1 or not share)):
        wrong = f"{text!r} is not a valid class of tasks"
        if text.startswith("@"):
            wrong += ": files are read for simulations only"
        mend = "write count*GPUs of each class, like 25*1x300@4;3*8@96/V100|T4"
        raise BadInput(wrong, where="fgd(workload)", mend=mend)
    types = tuple(sorted(fields[5].split("|"))) if fields[5] else ()
    cpus = round(float(fields[4] or 0) * 1000)
    return TaskClass(cpus, gpus, share or WHOLE, types, fields[6] or ""), count


def written(kind: TaskClass, count: int) -> str:
    """The text of which `read_class` makes the same."""
    share = f"x{kind.share}" if kind.share < WHOLE else ""
    cpus = f"@{kind.cpus / 1000:.3f}" if kind.cpus else ""
    types = f"/{'|'.join(kind.gpu_types)}" if kind.gpu_types else ""
    return f"{count}*{kind.gpus}{share}{cpus}{types}" + (f"#{kind.pool}" if kind.pool else "")


def covering(classes: Mapping[TaskClass, int], part: float) -> dict[TaskClass, int]:
    """The most frequent of `classes` that together have `part` of all tasks, but no more than
    `CLASSES_MAX`; of equals the first. There is at least one."""
    wanted, covered = part * sum(classes.values()), dict[TaskClass, int]()
    for kind, count in sorted(classes.items(), key=lambda each: -each[1])[:CLASSES_MAX]:
        if covered and sum(covered.values()) >= wanted:
            break
        covered[kind] = count
    return covered


def _task(shape: Shape, gpus: int) -> Task | None:
    """What a job takes of one node, at `gpus` GPUs if that is not 0; None: not one task."""
    if len(shape.roles) > 1:
        return None
    (size,), needs = shape.sizes(gpus or shape.gpus), shape.roles[0].needs
    if needs.share < WHOLE:
        alone = size == needs.gpus == 1
        return Task(needs.cpus, 0, needs.share, needs.gpu_memory) if alone else None
    if needs.gpu_memory or (not needs.gpus and size > 1):
        return None  # it may lie over who is asleep; workers without GPUs need not be side by side
    return Task(size * needs.cpus, size * needs.gpus, WHOLE)


class WorkloadFragments:
    """The classes of a workload, and what they make of each cell. A cache."""

    __slots__ = ("cells", "classes", "key")

    def __init__(self) -> None:
        self.key: tuple[Workload, float, int] | None = None
        self.classes: dict[TaskClass, int] = {}
        self.cells: dict[Cell, CellFragments] = {}

    def of(self, ledger: Ledger, cell: Cell) -> CellFragments:
        """Of one cell of `ledger`."""
        fragments = self.cells.get(cell)
        if fragments is None:
            if len(self.cells) > 4 * len(ledger.cells):  # of books that were drawn up and are gone
                self.cells.clear()
            fragments = self.cells[cell] = CellFragments(ledger, cell, self.classes)
        return fragments


class CellFragments:
    """Fragmentation of the nodes of a cell, and how much it would grow by a task on each of them.

    What is free counts in thousandths of a GPU, times the tasks of the workload: all sums are
    exact. Of what is free on a node with c CPUs a class uses: all wholly free GPUs, if it takes
    whole ones, at most so many, and at most c CPUs; or all on devices that have its share left, if
    it takes at most c CPUs. All else is fragment.
    """

    def __init__(self, ledger: Ledger, cell: Cell, classes: Mapping[TaskClass, int]) -> None:
        self._ledger, self._cell = ledger, cell
        nodes = len(cell.nodes)
        width = max(int(ledger.nodes.gpus[node]) for node in cell.nodes)
        self._free = np.zeros((nodes, width), np.int64)
        """Thousandths free, by node and device; `_room`: MiB; `_whole`: whether by nobody held."""
        self._room = np.zeros((nodes, width), np.int64)
        self._whole = np.zeros((nodes, width), np.bool_)
        self._seen = 0
        self._grown: dict[Task, tuple[int, Ints, Ints]] = {}
        self.tasks = sum(classes.values())
        self._tabulate(classes, width)

    def _tabulate(self, classes: Mapping[TaskClass, int], width: int) -> None:
        """What of a device with so much left, and of so many whole ones, classes use."""
        able = list[tuple[Task, int]]()
        gpu_type, pool = self._cell.gpu_type, self._cell.pool
        for kind, count in classes.items():
            gpus = min(kind.gpus, width)
            if not gpus or gpu_type not in (kind.gpu_types or (gpu_type,)):
                continue
            if kind.pool in ("", pool):
                cpus = kind.cpus * gpus // kind.gpus
                able.append((Task(cpus, gpus, kind.share), count))
        self._levels = np.unique(np.array([task.cpus for task, _ in able], np.int64))
        parts = np.zeros((len(self._levels) + 1, WHOLE + 1), np.int64)
        wholes = np.zeros((len(self._levels) + 1, width + 1), np.int64)
        for task, count in able:
            level = int(np.searchsorted(self._levels, task.cpus)) + 1
            if task.share < WHOLE:
                parts[level, task.share] += count
            else:
                wholes[level, task.gpus] += count
        self._parts = parts.cumsum(0).cumsum(1) * np.arange(WHOLE + 1)
        self._wholes = wholes.cumsum(0).cumsum(1) * (WHOLE * np.arange(width + 1))

    def fragmentation(self) -> Ints:
        """Of each node now, in the order of the cell's."""
        self._follow()
        every = np.arange(len(self._cell.nodes))
        total: Ints = self._free.sum(1) * self.tasks
        return total - self._used(every, self._level(every, 0))

    def growth(self, task: Task) -> tuple[Ints, Ints]:
        """By node: by how much fragmentation grows if `task` comes, `_NOWHERE` where no device has
        room for it; and the device where it grows least, the fullest of equals (0: whole ones)."""
        self._follow()
        columns = self._ledger.columns(self._cell)
        seen, growth, devices = self._grown.get(task) or (
            -1,
            np.empty(len(self._cell.nodes), np.int64),
            np.zeros(len(self._cell.nodes), np.int64),
        )
        if seen < columns.revision:
            rows = np.flatnonzero(columns.revised > seen)
            of = self._by_share if task.share < WHOLE else self._by_wholes
            growth[rows], devices[rows] = of(rows, task)
            self._grown[task] = columns.revision, growth, devices
        return growth, devices

    def _follow(self) -> None:
        """Look at the devices of the nodes that changed."""
        ledger, cell = self._ledger, self._cell
        columns = ledger.columns(cell)
        if self._seen == columns.revision:
            return
        for local in np.flatnonzero(columns.revised > self._seen).tolist():
            node = cell.nodes[local]
            self._free[local], self._room[local], self._whole[local] = 0, 0, False
            size = ledger.device_memory(node)
            for device in members(ledger.free_mask[node]):
                self._free[local, device], self._room[local, device] = WHOLE, size
                self._whole[local, device] = True
            for device, (used, filled) in ledger.shared[node].items():
                self._free[local, device] = WHOLE - used
                self._room[local, device] = size - filled
        self._seen = columns.revision

    def _level(self, rows: Ints, cpus: int) -> Ints:
        """By row, the line of the tables that holds once `cpus` are taken."""
        rest = self._ledger.columns(self._cell).cpus[rows] - cpus
        return np.asarray(np.searchsorted(self._levels, rest, side="right"), np.int64)

    def _used(self, rows: Ints, level: Ints) -> Ints:
        """What classes use of the nodes in `rows`, if CPUs are left as of `level`."""
        wholes = self._wholes[level, self._whole[rows].sum(1)]
        used: Ints = self._parts[level[:, None], self._free[rows]].sum(1)
        used += wholes
        return used

    def _by_wholes(self, rows: Ints, task: Task) -> tuple[Ints, Ints]:
        """The growth by a task of whole GPUs, or of none."""
        level, whole = self._level(rows, task.cpus), self._whole[rows].sum(1)
        rest = np.maximum(whole - task.gpus, 0)
        used = self._parts[level[:, None], self._free[rows]].sum(1) + self._wholes[level, rest]
        used -= task.gpus * self._parts[level, WHOLE]
        growth = self._used(rows, self._level(rows, 0)) - used - self.tasks * WHOLE * task.gpus
        return np.where(whole >= task.gpus, growth, _NOWHERE), np.zeros(len(rows), np.int64)

    def _by_share(self, rows: Ints, task: Task) -> tuple[Ints, Ints]:
        """The growth by a task that takes a share of one GPU."""
        free, whole = self._free[rows], self._whole[rows]
        level, count = self._level(rows, task.cpus)[:, None], whole.sum(1)[:, None]
        by_part = self._parts[level, free]
        used = self._wholes[level, count - whole] + by_part.sum(1)[:, None] - by_part
        used += self._parts[level, np.maximum(free - task.share, 0)]
        growth = self._used(rows, self._level(rows, 0))[:, None] - used - self.tasks * task.share
        able = (free >= task.share) & (self._room[rows] >= task.gpu_memory)
        growth = np.where(able, growth, _NOWHERE)
        least = growth.min(1, initial=_NOWHERE)
        if not free.shape[1]:
            return least, np.zeros(len(rows), np.int64)
        return least, np.where(growth == least[:, None], free, WHOLE + 1).argmin(1)
