"""Ganger's own trace format, written. `ganger_trace`, beside this file, describes and reads it."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from ganger.core.errors import BadInput
from ganger.core.spec import Kind, Locality, OnPreempt, Role, Shape
from ganger.core.units import NEVER, SECOND, WHOLE
from ganger.workloads.files import suffix_of, write_bytes
from ganger.workloads.readers.ganger_trace import FORMAT, import_pyarrow
from ganger.workloads.rows import Cell
from ganger.workloads.trace import Trace


def write(trace: Trace, path: Path) -> None:
    """Write a CSV, JSON Lines or Parquet file by its extension. Raises BadInput.

    Columns that hold nothing but defaults are left out. What was read again is equal, except for
    the origin: the first submission is at 0.
    """
    columns = columns_of(trace, str(path))
    suffix = suffix_of(path)
    if suffix == ".parquet":
        _write_parquet(columns, path)
    elif suffix in (".jsonl", ".ndjson"):
        write_bytes(path, _as_lines(columns))
    else:
        write_bytes(path, _as_csv(columns))


def lines_of(trace: Trace, where: str = "the trace") -> bytes:
    """A trace as JSON Lines. Raises BadInput."""
    return _as_lines(columns_of(trace, where))


def _as_csv(columns: Mapping[str, Sequence[Cell]]) -> bytes:
    stream = io.StringIO(newline="")
    stream.write(f"# format: {FORMAT}\n")
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(zip(*columns.values(), strict=True))
    return stream.getvalue().encode()


def _as_lines(columns: Mapping[str, Sequence[Cell]]) -> bytes:
    encode = msgspec.json.Encoder().encode
    lines = [encode({"format": FORMAT})]
    for row in zip(*columns.values(), strict=True):
        filled = {name: cell for name, cell in zip(columns, row, strict=True) if cell != ""}
        lines.append(encode(filled))
    return b"\n".join(lines) + b"\n"


def _write_parquet(columns: Mapping[str, Sequence[Cell]], path: Path) -> None:
    arrow, parquet = import_pyarrow()
    arrays = {
        name: arrow.array([None if cell == "" else cell for cell in column])
        for name, column in columns.items()
    }
    table = arrow.table(arrays).replace_schema_metadata({"format": FORMAT})
    try:
        parquet.write_table(table, path)
    except OSError as error:
        raise BadInput(
            f"cannot be written: {error.strerror or error}", where=str(path), mend="check the path"
        ) from None


def columns_of(trace: Trace, where: str) -> dict[str, list[Cell]]:
    """The columns of our own format that hold anything, by name. Raises BadInput for what one row
    cannot hold (several roles, a control character in a name)."""
    declared, n = trace.declared, trace.jobs
    columns: dict[str, list[Cell]] = {
        "job": [_clean(declared.name(i), where) for i in range(n)],
        "submitted": _seconds(declared.submitted[:n]),
        "duration": _seconds(trace.duration[:n]),
        "gpus": declared.gpus[:n].tolist(),
    }
    codes = declared.shape[:n].tolist()
    shapes = {code: _shape_cells(declared.shapes[code], where) for code in dict.fromkeys(codes)}
    for name in shapes[codes[0]] if codes else ():
        _put(columns, name, [shapes[code][name] for code in codes])
    for name, names in (
        ("tenant", declared.tenants),
        ("user", declared.users),
        ("group", declared.groups),
        ("array", declared.arrays),
        ("model", declared.models),
    ):
        words = [_clean(word, where) for word in names]
        _put(columns, name, [words[code] for code in getattr(declared, name)[:n].tolist()])
    for name, enum in (("kind", Kind), ("on_preempt", OnPreempt)):
        labels = ["" if member == 0 else member.name.lower() for member in enum]
        _put(columns, name, [labels[code] for code in getattr(declared, name)[:n].tolist()])
    for name, default in (("priority", 0), ("weight", 1.0), ("steps", 0.0)):
        values = getattr(declared, name)[:n].tolist()
        _put(columns, name, ["" if value == default else value for value in values])
    for name in ("deadline", "limit", "estimate", "checkpoint", "restore"):
        _put(columns, name, _seconds(getattr(declared, name)[:n]))
    if declared.after:
        _put(columns, "after", [_after(trace, row, where) for row in range(n)])
    parents = declared.parent[:n].tolist()
    _put(columns, "parent", ["" if row < 0 else declared.name(row) for row in parents])
    return columns


def _put(columns: dict[str, list[Cell]], name: str, cells_: list[Any]) -> None:
    if any(cell != "" for cell in cells_):
        columns[name] = cells_


def _seconds(times: NDArray[np.int64]) -> list[Cell]:
    """Seconds: whole where they are whole, empty for NEVER and for -1 (not stated)."""
    return [
        "" if time < 0 or time >= NEVER else time // SECOND if time % SECOND == 0 else time / SECOND
        for time in times.tolist()
    ]


def _after(trace: Trace, row: int, where: str) -> str:
    names = [trace.declared.name(other) for other in trace.declared.after.get(row, ())]
    return _joined(names, ";", where)


def _joined(names: Sequence[str], separator: str, where: str) -> str:
    for name in names:
        if separator in name or name != name.strip() or not name:
            raise BadInput(
                f"the name {name!r} cannot stand in a list",
                where=where,
                mend=f"take out {separator!r} and surrounding blanks",
            )
        _clean(name, where)
    return separator.join(names)


def _clean(text: str, where: str) -> str:
    if not text.isprintable():
        raise BadInput(f"{text!r} holds control characters", where=where, mend="rename it")
    return text


def _shape_cells(shape: Shape, where: str) -> dict[str, Cell]:
    if len(shape.roles) != 1 or shape.gpus < 1:
        raise BadInput(
            "a job has several roles, or no GPU",
            where=where,
            mend="this format holds one role of GPUs per job",
        )
    role: Role = shape.roles[0]
    needs = role.needs
    return {
        "nodes": role.size if needs.gpus > 1 else "",
        "locality": "" if shape.locality == Locality.ANY else shape.locality.name.lower(),
        "gpu_type": _joined(shape.gpu_types, "|", where),
        "share": "" if needs.share == WHOLE else needs.share / WHOLE,
        "gpu_memory": needs.gpu_memory or "",
        "cpus": needs.cpus / WHOLE if needs.cpus else "",
        "memory": needs.memory or "",
        "pool": _clean(shape.pool, where),
        "labels": _joined(shape.labels, ";", where),
        "role": "" if role.name == "worker" else _clean(role.name, where),
        "min_gpus": max(role.least, 0) * needs.gpus or "",
        "max_gpus": max(role.most, 0) * needs.gpus or "",
    }
