"""From tables of a log to chunks of requests: order, the first instant, deadlines, names."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ganger.core.state.names import Names
from ganger.core.units import NEVER
from ganger.workloads.requests.columns import I64, Chunk, Requests
from ganger.workloads.requests.stream import Counted
from ganger.workloads.rows import Category, Count, Table

SIZE = Count(0, (1 << 31) - 1)
"""Tokens or items of a request."""


def names(into: Any, *, required: bool = True) -> Category:
    """Cells that are names, coded into `into`."""
    return Category(into, required)


def word(option: object) -> str:
    """An option that is a name; one that looks like a number came as one."""
    return f"{option:g}" if isinstance(option, float) else str(option)


@dataclass
class Reading:
    """One reading of a log, table by table. `ordered`: rows that come before the row above are
    complaints; else they stay, to be sorted later. `dated`: asks whether arrivals are dates, which
    count from the first of them."""

    path: Path
    requests: Requests
    skip_bad: bool = False
    ordered: bool = True
    complaints: Counted = field(init=False)
    _last: int = field(default=-1, init=False)
    _origin: int | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self.complaints = Counted(str(self.path), self.skip_bad, remarks=self.requests.remarks)

    def chunk(
        self,
        table: Table,
        arrival: str,
        columns: Mapping[str, NDArray[Any]],
        *,
        from_first: bool,
        deadline: str = "",
        slo: str = "",
    ) -> Chunk:
        """The good rows of a table: `arrival`, `deadline` (on the same clock) and `slo` (a length
        of time) name columns of the table, `columns` holds those of the chunk."""
        at: I64 = table[arrival]
        if self.ordered:
            self._refuse_disorder(table, at, arrival)
        if from_first and self._origin is None and len(at):
            self._origin = int(at[0])
        origin = self._origin or 0
        due = self._due(table, at, deadline, slo)
        self.complaints.flush()
        good = table.good
        chunk = Chunk(
            at - origin,
            deadline=None if due is None else np.where(due < NEVER, due - origin, NEVER),
            **{name: _narrow(name, column) for name, column in columns.items()},
        )
        return chunk if good.all() else chunk.take(good)

    def in_order(self, table: Table, name: str) -> None:
        """Complain about rows whose window is before that of the row above; count the others."""
        at: I64 = table[name]
        before = np.maximum.accumulate(np.concatenate(([self._last], np.where(table.good, at, -1))))
        table.refuse(at < before[:-1], name, "it is before the window above", "sort the file")
        self._last = int(before[-1])
        self.complaints.flush()

    def _refuse_disorder(self, table: Table, at: I64, arrival: str) -> None:
        before = np.maximum.accumulate(np.concatenate(([self._last], np.where(table.good, at, -1))))
        table.refuse(
            at < before[:-1],
            arrival,
            "it arrives before the request above",
            "sort the file: ganger requests convert --sort",
        )
        self._last = int(before[-1])

    def _due(self, table: Table, at: I64, deadline: str, slo: str) -> I64 | None:
        due: I64 | None = None
        if deadline in table:
            due = table[deadline]
            table.refuse(due < at, deadline, "it is before the arrival", "give a later time")
        if slo in table:
            span = table[slo]
            table.refuse(span == 0, slo, "it is 0", "give a time above 0, or leave it empty")
            if due is not None:
                table.refuse(
                    (span < NEVER) & (due < NEVER),
                    slo,
                    "there is a deadline, too",
                    "give one of them",
                )
            after = np.where(span < NEVER, at + np.minimum(span, NEVER - 1 - at), NEVER)
            due = after if due is None else np.minimum(due, after)
        return due


_WIDE = ("input",)


def _narrow(name: str, column: NDArray[Any]) -> NDArray[Any]:
    return column.astype(np.int64 if name in _WIDE else np.int32, copy=False)


Rows = Callable[[Reading], Iterable[Chunk]]


def log(path: Path, rows: Rows, *, skip_bad: bool, ordered: bool, models: Any = ()) -> Requests:
    """The requests that `rows` reads of a file, anew each time."""

    def produce(requests: Requests) -> Iterator[Chunk]:
        return iter(rows(Reading(path, requests, skip_bad, ordered)))

    return Requests(produce, name=path.name.split(".")[0], source=str(path), models=Names(models))
