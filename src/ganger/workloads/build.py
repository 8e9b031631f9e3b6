"""From typed columns to a Trace: shapes interned, names resolved, sorted by submission."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ganger.core.errors import BadInput
from ganger.core.spec import Kind, Locality, Needs, OnPreempt, Role, Shape
from ganger.core.state.jobs import Declared, refuse_cycles, refuse_unfit_families
from ganger.core.state.names import Names
from ganger.core.units import LONGEST_SECONDS, NEVER, SECOND, WHOLE
from ganger.workloads.rows import Category, Table
from ganger.workloads.trace import Trace

Numbers: TypeAlias = NDArray[Any] | int | float
"""A column, or one value for all rows."""


class Coded(NamedTuple):
    """A column of repeating text: codes and what they stand for."""

    codes: NDArray[np.int32]
    names: Names[str]


def coded(table: Table, name: str, kind: Category) -> Coded | None:
    """The column that `kind` has read, or None where the file has none."""
    return Coded(table[name], kind.names) if name in table else None


def recoded(column: Coded, meaning: Callable[[str], str]) -> Coded:
    """The column with every name replaced by what `meaning` makes of it."""
    names: Names[str] = Names([""])
    new = np.array([names.code(meaning(name)) for name in column.names], np.int32)
    return Coded(new[column.codes], names)


def mapped(column: Coded, meaning: Callable[[str], float]) -> NDArray[np.float64]:
    """A number per row: what `meaning` makes of the name there, worked out once per name."""
    return np.array([meaning(name) for name in column.names], np.float64)[column.codes]


@dataclass
class Rows:
    """The columns of a workload in file order. Times in microseconds, absolute or not; capacities
    in the core's units (thousandths of a GPU and of a core, MiB) and per worker.

    `workers` 0 means one worker per GPU; `least` and `most` are GPUs, 0 for not elastic. `after`
    and `parents` name other jobs. Text columns that are None are empty.
    """

    submitted: NDArray[np.int64]
    duration: NDArray[np.int64]
    gpus: NDArray[np.int64]
    names: NDArray[np.object_] | None = None
    workers: Numbers = 0
    share: Numbers = WHOLE
    gpu_memory: Numbers = 0
    cpus: Numbers = 0
    memory: Numbers = 0
    least: Numbers = 0
    most: Numbers = 0
    locality: Numbers = Locality.ANY
    gpu_type: Coded | None = None
    pool: Coded | None = None
    labels: Coded | None = None
    role: Coded | None = None
    tenant: Coded | None = None
    user: Coded | None = None
    group: Coded | None = None
    model: Coded | None = None
    array: Coded | None = None
    kind: Numbers = Kind.TRAIN
    priority: Numbers = 0
    weight: Numbers = 1.0
    deadline: Numbers = NEVER
    limit: Numbers = NEVER
    estimate: Numbers = NEVER
    steps: Numbers = 0.0
    on_preempt: Numbers = OnPreempt.CHECKPOINT
    checkpoint: Numbers = -1
    restore: Numbers = -1
    after: dict[int, tuple[str, ...]] = field(default_factory=dict)
    parents: NDArray[np.object_] | None = None

    def take(self, rows: NDArray[Any]) -> Rows:
        """Only `rows`, in that order; `after` is renumbered."""
        taken: dict[str, Any] = {}
        for item in fields(self):
            value = getattr(self, item.name)
            if isinstance(value, Coded):
                taken[item.name] = Coded(value.codes[rows], value.names)
            elif isinstance(value, np.ndarray):
                taken[item.name] = value[rows]
            else:
                taken[item.name] = value
        if self.after:
            new = {old: i for i, old in enumerate(rows.tolist())}
            taken["after"] = {new[row]: names for row, names in self.after.items() if row in new}
        return Rows(**taken)


_PER_JOB = (
    "kind",
    "priority",
    "weight",
    "limit",
    "estimate",
    "steps",
    "on_preempt",
    "checkpoint",
    "restore",
)
_SHAPE_NUMBERS = (
    "gpus",
    "workers",
    "share",
    "gpu_memory",
    "cpus",
    "memory",
    "least",
    "most",
    "locality",
)
_SHAPE_NAMES = ("gpu_type", "pool", "labels", "role")


def build(
    table: Table,
    rows: Rows,
    *,
    name: str,
    source: str = "",
    fields: Mapping[str, str] | None = None,
    zone: str = "Z",
) -> Trace:
    """The Trace of the good rows of `table`, whose columns are `rows`.

    `fields` says what the file calls a column, for messages; `zone` what follows a time of its
    clock. Raises BadInput, naming file and line, for duplicate names, unknown or circular
    dependencies and impossible shapes.
    """
    called = fields or {}
    _check_shapes(table, rows, called)
    table.refuse(
        np.asarray(rows.deadline) < rows.submitted,
        called.get("deadline", "deadline"),
        "it is before the submission",
        "give a time on the clock of the submissions",
    )
    _check_names(table, rows, called)
    _check_references(table, rows, called)
    kept = np.flatnonzero(table.good)
    if not len(kept):
        raise BadInput(
            "no job is left",
            where=table.complaints.where,
            mend="; ".join(table.complaints.messages[:2]) or "give jobs",
        )
    order = kept[np.argsort(rows.submitted[kept], kind="stable")]
    in_order = len(order) == len(table) and bool((np.diff(order) == 1).all())
    trace = assemble(
        rows if in_order else rows.take(order),
        name=name,
        source=source or table.complaints.where,
        zone=zone,
    )
    trace.skipped, trace.left_out = table.complaints.messages, table.complaints.left_out
    trace.rows = trace.jobs + sum(trace.left_out.values())
    return trace


def assemble(rows: Rows, *, name: str, source: str, zone: str = "Z") -> Trace:
    """The Trace of `rows`, which are sorted by submission and known to be sound."""
    origin = int(rows.submitted[0])
    where = source or name
    span = int(rows.submitted[-1]) - origin
    if span > LONGEST_SECONDS * SECOND:
        raise BadInput("the submissions span more than 1e11 seconds", where=where)
    declared = Declared(len(rows.submitted))
    codes, declared.shapes = _intern_shapes(rows)
    columns = {item: getattr(rows, item) for item in _PER_JOB}
    for item in ("tenant", "user", "group", "model", "array"):
        value: Coded | None = getattr(rows, item)
        columns[item] = 0 if value is None else value.codes
        if value is not None:
            setattr(declared, item + "s", value.names)
    deadline = np.asarray(rows.deadline)
    declared.extend(
        len(rows.submitted),
        submitted=rows.submitted - origin,
        shape=codes,
        gpus=rows.gpus,
        deadline=np.where(deadline >= NEVER, NEVER, deadline - origin),
        parent=-1,
        inner=0,
        **columns,
    )
    declared.names = _names(rows)
    _resolve(declared, rows, where)
    if origin:
        source = f"{source}; the first submission was at {_spoken(origin, zone)}".removeprefix("; ")
    return Trace(declared, rows.duration, name=name, source=source)


def _names(rows: Rows) -> list[str] | None:
    """The jobs' names, or None where each is called after its number anyway."""
    if rows.names is None:
        return None
    names: list[str] = rows.names.tolist()
    if all(name == f"job-{i}" for i, name in enumerate(names)):
        return None
    return names


def _spoken(origin: int, zone: str) -> str:
    if origin > 30 * 365 * 86400 * SECOND:  # too late to be seconds since a trace began
        return datetime.fromtimestamp(origin // SECOND, UTC).isoformat().replace("+00:00", zone)
    return f"{origin / SECOND:g} s"


def _check_shapes(table: Table, rows: Rows, called: Mapping[str, str]) -> None:
    gpus = rows.gpus
    workers = np.where(np.asarray(rows.workers) == 0, gpus, rows.workers)
    per_worker = gpus // np.maximum(workers, 1)
    least, most = np.asarray(rows.least), np.asarray(rows.most)
    table.refuse(
        per_worker * workers != gpus,
        called.get("workers", "nodes"),
        "the GPUs do not divide evenly",
        "give nodes that divide gpus",
    )
    table.refuse(
        (np.asarray(rows.share) < WHOLE) & (per_worker != 1),
        called.get("share", "share"),
        "a worker with a share of a GPU holds more than one",
        "leave nodes out",
    )
    elastic = (least > 0) | (most > 0)
    outside = (least > gpus) | ((most > 0) & (most < gpus))
    table.refuse(
        elastic & outside,
        called.get("least", "min_gpus"),
        "gpus is not between min_gpus and max_gpus",
        "widen the range",
    )
    whole = np.maximum(per_worker, 1)
    table.refuse(
        elastic & ((least % whole != 0) | (most % whole != 0)),
        called.get("least", "min_gpus"),
        "the range is not a whole number of workers",
        "use multiples of gpus / nodes",
    )


def _check_names(table: Table, rows: Rows, called: Mapping[str, str]) -> None:
    if rows.names is None:
        return
    good = rows.names[table.good].tolist()
    if len(set(good)) == len(good):
        return
    seen: dict[str, int] = {}
    again = np.zeros(len(table), bool)
    for row in np.flatnonzero(table.good).tolist():
        again[row] = seen.setdefault(rows.names[row], row) != row
    names = rows.names

    def said(row: int) -> str:
        return f"the job {names[row]!r} is already in line {table.lines[seen[names[row]]]}"

    table.refuse(again, called.get("names", "job"), said, "give each job its own name")


def _check_references(table: Table, rows: Rows, called: Mapping[str, str]) -> None:
    """Refuse rows that name unknown jobs, and, when skipping, the rows that then name those."""
    if not rows.after and rows.parents is None:
        return
    while True:
        missing = _missing(table, rows)
        if not missing:
            return
        wrong = np.zeros(len(table), bool)
        wrong[list(missing)] = True
        said = {row: f"there is no job {name!r}" for row, name in missing.items()}
        table.refuse(wrong, called.get("after", "after"), said.__getitem__, "name a job of it")


def _missing(table: Table, rows: Rows) -> dict[int, str]:
    """The good rows that refer to a job that is not there, and its name."""
    known = _name_set(table, rows)
    found: dict[int, str] = {}
    for row, others in rows.after.items():
        unknown = [other for other in others if other not in known]
        if unknown:
            found[row] = unknown[0]
    if rows.parents is not None:
        for row in np.flatnonzero(rows.parents != "").tolist():
            if rows.parents[row] not in known:
                found[row] = rows.parents[row]
    return {row: found[row] for row in sorted(found) if table.good[row]}


def _name_set(table: Table, rows: Rows) -> set[str]:
    if rows.names is None:
        return {f"job-{row}" for row in np.flatnonzero(table.good).tolist()}
    return set(rows.names[table.good].tolist())


def _resolve(declared: Declared, rows: Rows, where: str) -> None:
    """Turn the names in `after` and `parents` into rows."""
    if not rows.after and rows.parents is None:
        return
    names = declared.names or [f"job-{i}" for i in range(declared.n)]
    row_of = {name: row for row, name in enumerate(names)}
    for row, others in rows.after.items():
        declared.after[row] = tuple(row_of[other] for other in others)
    if rows.parents is not None:
        for row, parent in enumerate(rows.parents.tolist()):
            if parent:
                declared.parent[row] = row_of[parent]
    for column, refuse in (("after", refuse_cycles), ("parent", refuse_unfit_families)):
        try:
            refuse(declared)
        except BadInput as error:
            told = f"{error.where}: {error.what}" if column == "parent" else error.what
            raise BadInput(told, where=f"{where}: {column}", mend=error.mend) from None


def _intern_shapes(rows: Rows) -> tuple[NDArray[np.int64], Names[Shape]]:
    """A code per row, and the distinct shapes in the order in which they first come."""
    numbers = {name: getattr(rows, name) for name in _SHAPE_NUMBERS}
    texts = {name: getattr(rows, name) for name in _SHAPE_NAMES}
    arrays = [column for column in numbers.values() if isinstance(column, np.ndarray)]
    arrays += [column.codes for column in texts.values() if column is not None]
    first, codes = distinct_rows(arrays)
    shapes: Names[Shape] = Names()
    order = []
    for row in first.tolist():
        cells = {
            name: int(column[row]) if isinstance(column, np.ndarray) else int(column)
            for name, column in numbers.items()
        }
        words = {
            name: "" if column is None else column.names[column.codes[row]]
            for name, column in texts.items()
        }
        order.append(shapes.code(_shape(cells, words)))
    return np.array(order, np.int64)[codes], shapes


def distinct_rows(arrays: list[NDArray[Any]]) -> tuple[NDArray[Any], NDArray[Any]]:
    """The first row of each distinct combination, in order of appearance, and a code per row."""
    key = np.zeros(len(arrays[0]), np.int64)
    for array in arrays:
        if (array == array[0]).all():
            continue
        values, inverse = np.unique(array, return_inverse=True)
        _, key = np.unique(key * len(values) + inverse, return_inverse=True)
    _, first, codes = np.unique(key, return_index=True, return_inverse=True)
    appearance = np.argsort(first)
    rank = np.empty(len(first), np.int64)
    rank[appearance] = np.arange(len(first))
    return first[appearance], rank[codes]


def _shape(cells: Mapping[str, int], words: Mapping[str, str]) -> Shape:
    size = cells["workers"] or cells["gpus"]
    per_worker = cells["gpus"] // size
    needs = Needs(per_worker, cells["share"], cells["gpu_memory"], cells["cpus"], cells["memory"])
    role = Role(
        words["role"] or "worker",
        size,
        cells["least"] // per_worker,
        cells["most"] // per_worker,
        needs,
    )
    return Shape(
        (role,),
        split(words["gpu_type"], "|"),
        words["pool"],
        Locality(cells["locality"]),
        split(words["labels"], ";"),
    )


def split(text: str, separator: str) -> tuple[str, ...]:
    """The non-empty parts of a list in one cell, without surrounding blanks."""
    return tuple(part.strip() for part in text.split(separator) if part.strip())
