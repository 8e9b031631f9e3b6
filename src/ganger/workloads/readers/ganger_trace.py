"""Ganger's own trace format, version 1: CSV, JSON Lines or Parquet, one row per job.

Columns (only `submitted`, `duration` and `gpus` must be there; an empty cell means the default;
columns whose name starts with `x_` are ignored, any other unknown column is refused):

============== =================================================================================
job            the name; by default `job-0`, `job-1`... in the order of submission
submitted      seconds, or an ISO date and time (UTC unless it says otherwise)
duration       what the job takes at its size on the reference GPU: seconds, or like `1h30m`;
               empty for a service (`kind` serve)
gpus           GPUs in all, a whole number from 1
nodes          workers that share the GPUs evenly, each in one node; default: a worker per GPU
locality       widest spread accepted: `island`, `node`, `rack` or `any` (default)
gpu_type       allowed types, the preferred first: `V100|P100`; default: any
share          part of each GPU used, above 0 up to 1 (default 1), in thousandths
gpu_memory     MiB of GPU memory per worker; default 0: not counted
cpus           CPU cores per worker, in thousandths; default 0: not counted
memory         MiB of host memory per worker; default 0: not counted
pool           the pool or virtual cluster that it is bound to
labels         node labels that must all be there, `;` between them
role           what its workers are called; default `worker`
tenant, user, group, array, model   names
priority       a whole number, higher is sooner; default 0
weight         above 0; default 1
deadline       on the clock of `submitted`; default: none
limit          the time after which it is stopped; default: none
estimate       the user's guess of the run time; default: none
steps          training steps in `duration`; default 0: unknown
min_gpus, max_gpus   an elastic job's range of `gpus`
kind           `train` (default), `serve`, `tune` or `task`
after          names of jobs that must finish first, `;` between them
parent         the name of the job that it belongs to
on_preempt     `checkpoint` (default), `kill`, `suspend` or `never`
checkpoint, restore  seconds that saving and resuming take; default: the cluster's
============== =================================================================================

The version stands in a first line `# format: ganger.trace/1` (CSV; may be left out when reading),
in a first line `{"format": "ganger.trace/1"}` (JSON Lines), or in the schema's metadata under
`format` (Parquet). Times are exact to the microsecond up to 35 years.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from ganger.core.errors import BadInput
from ganger.core.spec import Kind, Locality, OnPreempt
from ganger.core.units import NEVER, SECOND, WHOLE
from ganger.workloads import rows as cells
from ganger.workloads.build import Coded, Rows, build, split
from ganger.workloads.careful import CHUNK
from ganger.workloads.files import Complaints, TextFile, open_text, suffix_of
from ganger.workloads.rows import (
    Category,
    Cell,
    Choice,
    Clock,
    Count,
    Moment,
    Number,
    Span,
    Text,
)
from ganger.workloads.trace import Trace

FORMAT: Final = "ganger.trace/1"
_FAMILY = "ganger.trace/"
_CATEGORIES = ("gpu_type", "pool", "labels", "role", "tenant", "user", "group", "model", "array")
REQUIRED: Final = ("submitted", "duration", "gpus")


def kinds() -> dict[str, cells.Kind]:
    """What each column holds; new ones for each file, since some gather names."""
    span, clock = Span(blank=-1), Clock()
    return {
        "submitted": Moment(clock=clock),
        "duration": Span(blank=NEVER),
        "gpus": cells.GPUS,
        "job": Text(required=False),
        "nodes": Count(1, cells.MOST_GPUS, blank=0),
        "share": Number(0.001, 1.0, blank=1.0),
        "gpu_memory": Count(0, 1 << 30, blank=0),
        "cpus": Number(0.0, 1e6, blank=0.0),
        "memory": Count(0, 1 << 40, blank=0),
        "min_gpus": Count(1, cells.MOST_GPUS, blank=0),
        "max_gpus": Count(1, cells.MOST_GPUS, blank=0),
        "locality": Choice(_words(Locality), Locality.ANY),
        "kind": Choice(_words(Kind)),
        "on_preempt": Choice(_words(OnPreempt)),
        "priority": Count(-(1 << 31), (1 << 31) - 1, 0),
        "weight": Number(1e-9, 1e9, blank=1.0),
        "steps": Number(0.0, 1e18, blank=0.0),
        "deadline": Moment(blank=NEVER, clock=clock),
        "limit": Span(blank=NEVER),
        "estimate": Span(blank=NEVER),
        "checkpoint": span,
        "restore": span,
        "after": Text(required=False),
        "parent": Text(required=False),
        **{name: Category() for name in _CATEGORIES},
    }


def _words(enum: type[Locality] | type[Kind] | type[OnPreempt]) -> dict[str, int]:
    return {member.name.lower(): int(member) for member in enum}


COLUMNS: Final = tuple(kinds())
_LISTS = {"gpu_type": "|", "labels": ";", "after": ";"}


def read(path: Path, *, skip_bad: bool = False) -> Trace:
    """Read a CSV, JSON Lines or Parquet file by its extension. Raises BadInput."""
    suffix = suffix_of(path)
    if suffix == ".parquet":
        return _read_parquet(path, skip_bad)
    file = open_text(path, skip_bad=skip_bad)
    if suffix in (".jsonl", ".ndjson") or file.text.lstrip()[:1] == "{":
        return _read_lines(file)
    return _read_csv(file)


def _read_csv(file: TextFile) -> Trace:
    first = file.first_line
    if first.startswith("#") and "format:" in first:
        _check_version(first.partition("format:")[2].strip(), file.where)
    header = _header_of(file)
    _check_columns(header, f"{file.where}: line 1")
    wanted = kinds()
    required = {name: wanted.pop(name) for name in REQUIRED}
    table = cells.read_delimited(file, required, wanted)
    return _trace(table, {**required, **wanted}, file.path)


def _header_of(file: TextFile) -> list[str]:
    for line in io.StringIO(file.text):
        if line.strip() and not line.startswith("#"):
            return [cell.strip() for cell in next(csv.reader([line]))]
    raise file.refuse("it has no header", "name the columns in line 1")


def _check_version(found: str, where: str) -> None:
    if found == FORMAT:
        return
    if found.startswith(_FAMILY):
        raise BadInput(
            f"format {found!r} is newer than this Ganger reads ({FORMAT})",
            where=where,
            mend="upgrade Ganger",
        )
    raise BadInput(f"format {found!r} is not {FORMAT}", where=where, mend="name the right format")


def _check_columns(names: Sequence[str], where: str) -> None:
    for name in names:
        if name not in COLUMNS and not name.startswith("x_"):
            near = get_close_matches(name, COLUMNS, 1)
            mend = f"did you mean {near[0]!r}?" if near else "prefix it with x_ to have it ignored"
            raise BadInput(f"unknown column {name!r}", where=where, mend=mend)


_LINE = msgspec.json.Decoder(dict[str, str | int | float | list[str] | None])


def _read_lines(file: TextFile) -> Trace:
    lines = file.text.split("\n")
    start = 0
    if '"format"' in lines[0]:
        header = _line(file, lines[0], 1) or {}
        _check_version(str(header.get("format")), f"{file.where}: line 1")
        start = 1
    wanted = kinds()
    table = cells.read_records(file.complaints, wanted, _line_chunks(file, lines, start))
    return _trace(table, wanted, file.path)


def _line_chunks(
    file: TextFile, lines: list[str], start: int
) -> Iterator[tuple[NDArray[np.int64], dict[str, list[Cell]]]]:
    for begin in range(start, len(lines), CHUNK):
        rows: list[dict[str, Any]] = []
        numbers: list[int] = []
        for at, line in enumerate(lines[begin : begin + CHUNK], begin + 1):
            row = _line(file, line, at) if line.strip() else None
            if row is not None:
                rows.append(row)
                numbers.append(at)
        present: set[str] = set().union(*rows)
        if not present.issubset(COLUMNS):
            for at, row in zip(numbers, rows, strict=True):
                _check_columns(list(row), f"{file.where}: line {at}")
        yield (
            np.array(numbers, np.int64),
            {
                name: [_cell(name, row.get(name)) for row in rows]
                for name in COLUMNS
                if name in present
            },
        )


def _line(file: TextFile, line: str, at: int) -> dict[str, Any] | None:
    try:
        return _LINE.decode(line)
    except (msgspec.DecodeError, RecursionError) as error:
        file.complaints.add(
            f"no valid row: {error}", place=f"line {at}", mend="give one JSON object a line"
        )
        return None


def _cell(name: str, value: str | float | list[str] | None) -> Cell:
    if value is None:
        return ""
    if isinstance(value, list):
        return _LISTS.get(name, ";").join(value)
    return value


def _read_parquet(path: Path, skip_bad: bool) -> Trace:
    arrow, parquet = import_pyarrow()
    try:
        table = parquet.read_table(path)
    except (OSError, arrow.ArrowException) as error:
        raise BadInput(
            f"not readable as Parquet: {str(error).splitlines()[0]}",
            where=str(path),
            mend="check the path, or copy the file again",
        ) from None
    version = (table.schema.metadata or {}).get(b"format")
    if version is not None:
        _check_version(version.decode("utf-8", "replace"), str(path))
    _check_columns(table.column_names, f"{path}: schema")
    for name in REQUIRED:
        if name not in table.column_names:
            raise BadInput(
                f"column {name!r} is missing",
                where=f"{path}: schema",
                mend=f"the columns are {', '.join(table.column_names)}",
            )
    wanted = kinds()
    chunks = _parquet_chunks(arrow, table, path)
    complaints = Complaints(str(path), skip_bad)
    return _trace(cells.read_records(complaints, wanted, chunks, "row"), wanted, path)


def import_pyarrow() -> tuple[Any, Any]:
    """pyarrow and pyarrow.parquet, imported only when a Parquet file is met. Raises BadInput."""
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        mend = "pip install pyarrow, or name a .csv file"
        raise BadInput("Parquet needs pyarrow", mend=mend) from None
    return pyarrow, pyarrow.parquet


def _parquet_chunks(
    arrow: Any, table: Any, path: Path
) -> Iterator[tuple[NDArray[np.int64], dict[str, list[Cell]]]]:
    for begin in range(0, table.num_rows, CHUNK):
        piece = table.slice(begin, CHUNK)
        yield (
            np.arange(begin + 1, begin + piece.num_rows + 1),
            {
                name: _parquet_cells(arrow, piece.column(name), f"{path}: {name}")
                for name in table.column_names
                if not name.startswith("x_")
            },
        )


def _parquet_cells(arrow: Any, column: Any, where: str) -> list[Cell]:
    types = arrow.types
    if types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if types.is_timestamp(column.type):
        micros = column.cast(arrow.timestamp("us", column.type.tz), safe=False).cast(arrow.int64())
        return ["" if value is None else value / SECOND for value in micros.to_pylist()]
    if not (
        types.is_integer(column.type)
        or types.is_floating(column.type)
        or types.is_string(column.type)
        or types.is_large_string(column.type)
        or types.is_null(column.type)
    ):
        raise BadInput(f"the type is {column.type}", where=where, mend="use numbers or strings")
    return ["" if value is None else value for value in column.to_pylist()]


def _trace(table: cells.Table, wanted: Mapping[str, cells.Kind], path: Path) -> Trace:
    """The columns of our own format, in whatever file they came, as a Trace."""
    get = table.get
    duration = table["duration"]
    kind = get("kind", np.zeros(1, np.int64))
    table.refuse(
        (duration >= NEVER) & (kind != Kind.SERVE) & (kind != Kind.TUNE),
        "duration",
        "it is empty",
        "give seconds; only a service or a search (kind serve or tune) has none",
    )
    names = get("job", None)
    if names is not None:
        blank = names == ""
        if blank.all():
            names = None
        else:
            table.refuse(blank, "job", "it is empty", "name every job or none")
    after = {}
    if "after" in table:
        named = table["after"]
        after = {row: split(named[row], ";") for row in np.flatnonzero(named != "").tolist()}
    categories: dict[str, Any] = {}
    for name in _CATEGORIES:
        column = wanted[name]
        if name in table and isinstance(column, Category):
            categories[name] = Coded(table[name], column.names)
    return build(
        table,
        Rows(
            submitted=table["submitted"],
            duration=duration,
            gpus=table["gpus"],
            names=names,
            workers=get("nodes", 0),
            share=_thousandths(get("share", 1.0)),
            gpu_memory=get("gpu_memory", 0),
            cpus=_thousandths(get("cpus", 0.0)),
            memory=get("memory", 0),
            least=get("min_gpus", 0),
            most=get("max_gpus", 0),
            locality=get("locality", Locality.ANY),
            kind=get("kind", Kind.TRAIN),
            priority=get("priority", 0),
            weight=get("weight", 1.0),
            deadline=get("deadline", NEVER),
            limit=get("limit", NEVER),
            estimate=get("estimate", NEVER),
            steps=get("steps", 0.0),
            on_preempt=get("on_preempt", OnPreempt.CHECKPOINT),
            checkpoint=get("checkpoint", -1),
            restore=get("restore", -1),
            after=after,
            parents=get("parent", None),
            **categories,
        ),
        name=path.name.split(".")[0],
    )


def _thousandths(values: Any) -> Any:
    return np.rint(np.asarray(values) * WHOLE).astype(np.int64)
