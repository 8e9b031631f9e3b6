"""The jobs table: what was declared, and what has happened to each job so far."""

from __future__ import annotations

import math
from collections.abc import Sequence
from enum import IntEnum
from typing import TYPE_CHECKING, Final

import numpy as np

from ganger.core.errors import BadInput
from ganger.core.spec import JobSpec, Kind, OnPreempt, Shape
from ganger.core.state.names import Names
from ganger.core.state.table import F64, I8, I32, I64, Cells, Ids, Table
from ganger.core.units import WHOLE


class Phase(IntEnum):
    """Where a job is in its life. Exactly one at a time."""

    DECLARED = 0
    """Known to the tables, not submitted yet: no policy sees it."""
    BLOCKED = 1
    """Submitted, but waits for other jobs, or is held by a person."""
    PENDING = 2
    STARTING = 3
    RUNNING = 4
    SUSPENDED = 5
    STOPPING = 6
    FINISHED = 7
    FAILED = 8
    CANCELLED = 9


HOLDS_DEVICES = (Phase.STARTING, Phase.RUNNING, Phase.SUSPENDED, Phase.STOPPING)
OVER = (Phase.FINISHED, Phase.FAILED, Phase.CANCELLED)


class Declared(Table):
    """One row per job, in order of submission: the columns of `JobSpec`.

    Strings are codes into the `Names` beside the columns; `gpus` is the shape's GPU count.
    """

    submitted: I64
    shape: I32
    gpus: I32
    kind: I8
    tenant: I32
    user: I32
    group: I32
    model: I32
    priority: I32
    weight: F64
    deadline: I64
    limit: I64
    estimate: I64
    steps: F64
    on_preempt: I8
    checkpoint: I64
    restore: I64
    array: I32
    parent: I64
    inner: I32

    def __init__(self, capacity: int = 0) -> None:
        super().__init__(capacity)
        self.names: list[str] | None = None
        """A name per row, or None while every job is called after its number."""
        self.shapes: Names[Shape] = Names()
        self.tenants: Names[str] = Names([""])
        self.users: Names[str] = Names([""])
        self.groups: Names[str] = Names([""])
        self.models: Names[str] = Names([""])
        self.arrays: Names[str] = Names([""])
        self.inners: Names[str] = Names([""])
        self.after: dict[int, tuple[int, ...]] = {}
        """Rows that must finish before this row may run."""

    def twin(self) -> Declared:
        """The same rows in a table that grows by itself: cells are shared until it does."""
        twin = Declared()
        twin._share(self)
        return twin

    def _share(self, other: Declared) -> None:
        """Hold the rows of `other`: its cells, which are copied as soon as a row is appended, and
        copies of all that is no column."""
        other.reserve(1)
        self.__dict__.update(other.__dict__)
        self.capacity = self.n
        self.names = self.names and self.names.copy()
        self.after = self.after.copy()
        for name in ("shapes", "tenants", "users", "groups", "models", "arrays", "inners"):
            setattr(self, name, getattr(other, name).copy())

    def name(self, job: int) -> str:
        """The job's name."""
        return self.names[job] if self.names is not None else f"job-{job}"

    def find(self, name: str) -> int:
        """The row of the job of that name. Raises KeyError."""
        if self.names is None:
            number = name.removeprefix("job-")
            if number.isdecimal() and int(number) < self.n:
                return int(number)
            raise KeyError(name)
        try:
            return self.names.index(name)
        except ValueError:
            raise KeyError(name) from None

    def append(self, spec: JobSpec, rows_by_name: dict[str, int] | None = None) -> int:
        """Declare one job; returns its row. `rows_by_name` resolves `after` and `parent`."""

        def row_of(name: str) -> int:
            try:
                return self.find(name) if rows_by_name is None else rows_by_name[name]
            except KeyError:
                raise BadInput(f"no job {name!r}", where=f"job {spec.name!r}") from None

        job = self.n
        after = tuple(row_of(name) for name in spec.after)
        parent = row_of(spec.parent) if spec.parent else -1
        if self.names is None:
            self.names = [f"job-{i}" for i in range(self.n)]
        self.extend(
            1,
            submitted=spec.submitted,
            shape=self.shapes.code(spec.shape),
            gpus=spec.shape.gpus,
            kind=spec.kind,
            tenant=self.tenants.code(spec.tenant),
            user=self.users.code(spec.user),
            group=self.groups.code(spec.group),
            model=self.models.code(spec.model),
            priority=spec.priority,
            weight=spec.weight,
            deadline=spec.deadline,
            limit=spec.limit,
            estimate=spec.estimate,
            steps=spec.steps,
            on_preempt=spec.on_preempt,
            checkpoint=spec.checkpoint,
            restore=spec.restore,
            array=self.arrays.code(spec.array),
            parent=parent,
            inner=self.inners.code(spec.inner),
        )
        self.names.append(spec.name)
        if after:
            self.after[job] = after
        return job

    def spec(self, job: int) -> JobSpec:
        """The row as its user declared it."""
        parent = int(self.parent[job])
        return JobSpec(
            name=self.name(job),
            submitted=int(self.submitted[job]),
            shape=self.shapes[self.shape[job]],
            kind=Kind(self.kind[job]),
            tenant=self.tenants[self.tenant[job]],
            user=self.users[self.user[job]],
            group=self.groups[self.group[job]],
            priority=int(self.priority[job]),
            weight=float(self.weight[job]),
            deadline=int(self.deadline[job]),
            limit=int(self.limit[job]),
            estimate=int(self.estimate[job]),
            steps=float(self.steps[job]),
            model=self.models[self.model[job]],
            after=tuple(self.name(row) for row in self.after.get(job, ())),
            array=self.arrays[self.array[job]],
            parent=self.name(parent) if parent >= 0 else "",
            on_preempt=OnPreempt(self.on_preempt[job]),
            checkpoint=int(self.checkpoint[job]),
            restore=int(self.restore[job]),
            inner=self.inners[self.inner[job]],
        )


def declare(specs: Sequence[JobSpec]) -> Declared:
    """The table of `specs`, sorted by submission (stable), with references resolved by name."""
    ordered = sorted(specs, key=lambda spec: spec.submitted)
    rows: dict[str, int] = {}
    for row, spec in enumerate(ordered):
        if rows.setdefault(spec.name, row) != row:
            raise BadInput(f"two jobs are named {spec.name!r}", mend="give each its own name")
    table = Declared(len(ordered))
    for spec in ordered:
        table.append(spec, rows)
    refuse_cycles(table)
    refuse_unfit_families(table)
    return table


def refuse_unfit_child(child: JobSpec, parent: JobSpec) -> None:
    """Raise BadInput where `parent` cannot be the parent of `child`: families have one level, and
    what is placed in a grant must fit into the largest that its parent can get."""
    where = f"job {child.name!r}"
    if parent.parent:
        raise BadInput(
            f"its parent {parent.name!r} has a parent itself",
            where=where,
            mend="name a parent that has none: families have one level",
        )
    if parent.kind != Kind.TUNE:
        return
    for what, asked, held in _beyond(child.shape, parent.shape):
        raise BadInput(
            f"it asks for {asked:.15g} {what}, and its parent {parent.name!r} never holds"
            f" more than {held:.15g}",
            where=where,
            mend="let it ask for less, or the parent for more",
        )


_PARTS: Final = {
    "GPUs": WHOLE,
    "CPUs": 1000,
    "MiB of host memory": 1,
    "MiB of GPU memory": 1,
    "MiB of GPU memory on one GPU": 1,
}


def _beyond(child: Shape, parent: Shape) -> list[tuple[str, float, float]]:
    """What the smallest child asks for beyond what the largest parent holds: unit, asked, held."""
    asked, held = _total(child, 0), _total(parent, 1)
    return [
        (what, asked[what] / parts, held[what] / parts)
        for what, parts in _PARTS.items()
        if asked[what] > held[what]
    ]


def _total(shape: Shape, end: int) -> dict[str, float]:
    """All that a job of `shape` takes at the least (`end` 0) or the most (1) of its sizes, in
    `_PARTS` of the unit: thousandths add up without rounding. With a whole GPU comes as much of its
    memory as is stated, or else as there is."""
    total = dict.fromkeys(_PARTS, 0.0)
    all_of, of_one = "MiB of GPU memory", "MiB of GPU memory on one GPU"
    for role in shape.roles:
        size, needs = role.range[end], role.needs
        total["GPUs"] += size * needs.gpus * needs.share
        total["CPUs"] += size * needs.cpus
        total["MiB of host memory"] += size * needs.memory
        whole = needs.share == WHOLE
        memory = math.inf if end and whole and not needs.gpu_memory else float(needs.gpu_memory)
        if size and needs.gpus:
            total[all_of] += size * needs.gpus * memory
            at_once = math.inf if end and not whole else memory  # parts of several roles may meet
            total[of_one] = max(total[of_one], at_once)
    return total


def refuse_unfit_families(table: Declared) -> None:
    """Raise BadInput for the first job whose parent cannot be its parent."""
    parent = table.parent[: table.n]
    children = np.flatnonzero(parent >= 0)
    if not len(children):
        return
    grand = parent[parent[children]] >= 0
    least, most = (
        np.array([list(_total(shape, end).values()) for shape in table.shapes])[
            table.shape[: table.n]
        ]
        for end in (0, 1)
    )
    above = parent[children]
    wide = (table.kind[above] == Kind.TUNE) & (least[children] > most[above]).any(axis=1)
    for child in children[grand | wide].tolist():
        refuse_unfit_child(table.spec(child), table.spec(int(parent[child])))


def refuse_cycles(table: Declared) -> None:
    """Raise BadInput if some jobs wait for each other in a ring."""
    done: set[int] = set()
    for start in table.after:
        path: list[int] = [start]
        on_path: dict[int, int] = {start: 0}
        while path:
            job = path[-1]
            waits_for = table.after.get(job, ())
            if on_path[job] < len(waits_for) and job not in done:
                other = waits_for[on_path[job]]
                on_path[job] += 1
                if other in on_path and other not in done:
                    ring = " -> ".join(table.name(i) for i in [*path, other])
                    raise BadInput(f"jobs wait for each other: {ring}", mend="break the cycle")
                if other not in done:
                    path.append(other)
                    on_path[other] = 0
            else:
                done.add(job)
                del on_path[path.pop()]


class Jobs(Declared):
    """The declared columns, and beside them the state that only the kernel writes.

    Progress accrues lazily: while a job runs, `ran`, `served` and `work` hold what it had at
    `since`; `attained(...)` and its like on the View add the rest.
    """

    phase: I8
    attempt: I32
    size: I32
    """GPUs held now."""
    rate: F64
    """Reference work done per microsecond now; 0 unless running."""
    began: I64
    """When the present attempt began to execute, again after a suspension."""
    since: I64
    """Up to when `ran`, `served` and `work` are counted: `began`, or the last report since."""
    ran: I64
    """Executed time, summed over attempts."""
    served: I64
    """Executed time x GPUs."""
    work: F64
    """Work done that will not be lost, in microseconds at the requested size on the reference."""
    held: I64
    """Time x GPUs in which devices were held, executing or not."""
    held_since: I64
    first_start: I64
    pending_since: I64
    pended: I64
    """Time spent pending, first wait included."""
    finished: I64
    preemptions: I32
    restarts: I32
    lost: F64
    """Work that was done and then lost."""
    asks_at: F64
    """The epoch from which on a trial's evaluations need a decision (`AskAt`)."""
    within: I64
    """In whose grant the job is placed: its parent's if that is a search, which divides what it
    holds among its trials; else -1, the cluster's. A replica of a service has a parent, and is
    placed in the cluster."""

    @classmethod
    def of(cls, declared: Declared) -> Jobs:
        """A jobs table over the cells of `declared`, which are copied when a row comes late; all
        state is new."""
        jobs = cls()
        jobs._share(declared)
        for name, dtype in cls.columns().items():
            if name not in Declared.columns():
                setattr(jobs, name, np.zeros(max(jobs.n, 1), dtype))
        jobs.first_start[:] = -1
        jobs.finished[:] = -1
        jobs.within[: jobs.n] = jobs.granted_by(np.arange(jobs.n))
        return jobs

    def granted_by(self, ids: Ids) -> Ids:
        """What `within` is by kind and parent."""
        parent = self.parent[ids]
        return np.where((parent >= 0) & (self.kind[parent] == Kind.TUNE), parent, -1)

    def append(self, spec: JobSpec, rows_by_name: dict[str, int] | None = None) -> int:
        """Declare one job more while others run; returns its row."""
        job = super().append(spec, rows_by_name)
        self.first_start[job] = self.finished[job] = -1
        parent = self.parent[job]
        self.within[job] = parent if parent >= 0 and self.kind[parent] == Kind.TUNE else -1
        return job


class JobCells:
    """The columns of a jobs table one cell at a time: `at.size[job]` is a native number, with
    which Python counts three times as fast as with the numpy scalar `jobs.size[job]`."""

    __slots__ = tuple(Jobs.columns())

    def __init__(self, jobs: Jobs) -> None:
        for name in Jobs.columns():
            setattr(self, name, jobs.cells(name))

    if TYPE_CHECKING:

        def __getattr__(self, column: str) -> Cells: ...


class IdSet:
    """A set of rows that is also an array when asked for one."""

    __slots__ = ("_array", "rows")

    def __init__(self) -> None:
        self.rows: set[int] = set()
        self._array: Ids | None = None

    def add(self, row: int) -> None:
        """Put `row` in."""
        self.rows.add(row)
        self._array = None

    def discard(self, row: int) -> None:
        """Take `row` out if it is there."""
        if row in self.rows:
            self.remove(row)

    def remove(self, row: int) -> None:
        """Take `row` out; it must be there."""
        self.rows.remove(row)
        self._array = None

    @property
    def ids(self) -> Ids:
        """The members, ascending."""
        if self._array is None:
            self._array = np.fromiter(sorted(self.rows), np.int64, len(self.rows))
        return self._array
