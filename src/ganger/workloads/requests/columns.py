"""Requests as columns: a stream of chunks in order of arrival, and the names that they use."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, fields
from pathlib import PurePath
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ganger.core.errors import BadInput
from ganger.core.state.names import Names
from ganger.core.units import NEVER

I32 = NDArray[np.int32]
I64 = NDArray[np.int64]
CHUNK: Final = 1 << 16
"""Rows at a time, unless another number is asked for."""
_MOST_MESSAGES = 10


@dataclass(frozen=True, slots=True)
class Chunk:
    """Some requests in order of arrival, a row each; a column that nobody stated is None.

    `arrival`, `deadline`: microseconds (NEVER: no deadline); `model`, `tenant`: codes into the
    names of the `Requests`; `items`: how many inputs a request brings (1 unless stated);
    `prompt_tokens`, `output_tokens`: of a language model; `input`: which input it is, as a row of a
    prediction matrix or a key of a cache, and `label`: its true class; both -1 where not known.
    """

    arrival: I64
    model: I32
    deadline: I64 | None = None
    tenant: I32 | None = None
    items: I32 | None = None
    prompt_tokens: I32 | None = None
    output_tokens: I32 | None = None
    input: I64 | None = None
    label: I32 | None = None

    def __len__(self) -> int:
        return len(self.arrival)

    @property
    def columns(self) -> dict[str, NDArray[Any]]:
        """The columns that are there, by name."""
        found = {name: getattr(self, name) for name in COLUMNS}
        return {name: column for name, column in found.items() if column is not None}

    def take(self, rows: slice | NDArray[np.int64] | NDArray[np.bool_]) -> Chunk:
        """Some of the rows; a slice copies nothing."""
        return Chunk(**{name: column[rows] for name, column in self.columns.items()})

    def earlier(self, by: int) -> Chunk:
        """The same requests, so many microseconds earlier."""
        due = self.deadline
        moved = {"arrival": self.arrival - by}
        if due is not None:
            moved["deadline"] = np.where(due < NEVER, due - by, NEVER)
        return Chunk(**{**self.columns, **moved})


COLUMNS: Final = tuple(each.name for each in fields(Chunk))
_BLANK: Final = {
    "deadline": NEVER,
    "tenant": 0,
    "items": 1,
    "prompt_tokens": 0,
    "output_tokens": 0,
    "input": -1,
    "label": -1,
}


def joined(chunks: list[Chunk]) -> Chunk:
    """The rows of several chunks, one after the other; a column that only some have is filled up
    with what stands for 'not stated'."""
    if len(chunks) == 1:
        return chunks[0]
    names = [name for name in COLUMNS if any(getattr(chunk, name) is not None for chunk in chunks)]
    return Chunk(
        **{name: np.concatenate([_filled(chunk, name) for chunk in chunks]) for name in names}
    )


def _filled(chunk: Chunk, name: str) -> NDArray[Any]:
    column: NDArray[Any] | None = getattr(chunk, name)
    if column is not None:
        return column
    kind = np.int64 if name in ("deadline", "input") else np.int32
    return np.full(len(chunk), _BLANK[name], kind)


@dataclass
class Remarks:
    """What a reader has to say about its source: rows that became no request, as counts by reason
    and the first few in full, and what was made of the rest."""

    left_out: dict[str, int] = field(default_factory=dict)
    messages: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def leave_out(self, count: int, why: str) -> None:
        """So many rows became no request."""
        self.left_out[why] = self.left_out.get(why, 0) + count

    def say(self, message: str) -> None:
        """What is wrong with one row; the first few are kept."""
        if len(self.messages) < _MOST_MESSAGES:
            self.messages.append(message)

    def note(self, text: str) -> None:
        """Keep a remark about the requests, each once."""
        if text not in self.notes:
            self.notes.append(text)

    @property
    def lines(self) -> list[str]:
        """Everything, as sentences."""
        counted = [f"{count:,} rows left out: {why}" for why, count in self.left_out.items()]
        return [*self.messages, *counted, *self.notes]


@dataclass
class Requests:
    """A stream of requests in order of arrival, which may be longer than memory.

    `produce` begins the stream anew, in pieces of any length; `models` and `tenants` grow while it
    is read, and a code keeps its meaning. Tenant 0 is "", which stands for none. `remarks` are of
    the last reading. `source`: where they come from, for people.
    """

    produce: Callable[[Requests], Iterator[Chunk]]
    name: str = "requests"
    source: str = ""
    models: Names[str] = field(default_factory=Names)
    tenants: Names[str] = field(default_factory=lambda: Names([""]))
    remarks: Remarks = field(default_factory=Remarks)

    @property
    def file(self) -> str:
        """What errors call it: the name of the file, or of the stream where it has none."""
        last = PurePath(self.source).name
        return last if last.startswith(f"{self.name}.") else self.name

    def row(self, number: int) -> str:
        """What errors call a request; the first is number 0."""
        return f"{self.file}: request {number + 1}"

    def chunks(self, rows: int = CHUNK) -> Iterator[Chunk]:
        """All requests, `rows` at a time (the last chunk may be shorter), in constant memory.
        Raises BadInput where the source is wrong, which may be after the first chunks."""
        if rows < 1:
            raise BadInput(f"{rows} rows a chunk", where="chunks", mend="give at least 1")
        self.remarks = Remarks()
        waiting: list[Chunk] = []
        have = 0
        for piece in self.produce(self):
            waiting.append(piece)
            have += len(piece)
            if have >= rows:
                whole = joined(waiting)
                begin = 0
                while have - begin >= rows:
                    yield whole.take(slice(begin, begin + rows))
                    begin += rows
                have -= begin
                waiting = [whole.take(slice(begin, None))] if have else []
        if have:
            yield joined(waiting)

    def gather(self) -> Chunk:
        """All requests at once, in memory. Raises BadInput."""
        found = list(self.chunks(1 << 20))
        return joined(found) if found else Chunk(np.empty(0, np.int64), np.empty(0, np.int32))

    def between(self, begin: int, end: int) -> Requests:
        """Those that arrive from `begin` (which becomes 0) until before `end`, in microseconds;
        what comes later is not read. Raises BadInput where no time is left."""
        if not 0 <= begin < end:
            raise BadInput("no time is left", where="window", mend="end it after its beginning")

        def produce(cut: Requests) -> Iterator[Chunk]:
            for chunk in self.chunks():
                cut.remarks = self.remarks
                first, last = np.searchsorted(chunk.arrival, (begin, end)).tolist()
                if first < last:
                    yield chunk.take(slice(first, last)).earlier(begin)
                if last < len(chunk):
                    return

        return Requests(produce, self.name, self.source, self.models, self.tenants)

    @classmethod
    def of(
        cls,
        rows: Chunk,
        models: Names[str],
        tenants: Names[str] | None = None,
        *,
        name: str = "requests",
        source: str = "",
    ) -> Requests:
        """Requests that are in memory. Raises BadInput where they are out of order."""
        if (np.diff(rows.arrival) < 0).any():
            raise BadInput("requests are out of order", where=name, mend="sort them by arrival")
        return cls(
            lambda _: iter((rows,)),
            models=models,
            tenants=tenants or Names([""]),
            name=name,
            source=source,
        )

    def sorted(self) -> Requests:
        """The same requests by arrival; those of one instant keep their order. Needs memory for all
        of them. Raises BadInput."""
        rows = self.gather()
        before = int(min(rows.arrival.min(initial=0), 0))  # dates count from the first row
        rows = rows.take(np.argsort(rows.arrival, kind="stable")).earlier(before)
        remarks = self.remarks

        def produce(again: Requests) -> Iterator[Chunk]:
            again.remarks = remarks
            yield rows

        return Requests(produce, self.name, self.source, self.models, self.tenants)
