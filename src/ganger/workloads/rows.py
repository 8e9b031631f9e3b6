"""Rows of text become typed columns: whole chunks at once, cell by cell only where one is bad.

A `Kind` converts all cells of a column in one go and raises `CellError` when anything in them is
wrong. Only then is it asked again for fewer cells, until the line and the field are known.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ganger.core.errors import BadInput
from ganger.core.state.names import Names
from ganger.core.units import LONGEST_SECONDS, NEVER, SECOND, parse_duration
from ganger.workloads.careful import careful_rows, header_of, plain_rows, reader_of
from ganger.workloads.dates import DateError, microseconds
from ganger.workloads.files import Complaints, TextFile
from ganger.workloads.plain import Field

Cell: TypeAlias = str | float | int
Column: TypeAlias = NDArray[Any]
MOST_GPUS = 1_000_000


class CellError(ValueError):
    """A cell that does not hold what its column must hold."""

    def __init__(self, what: str, mend: str = "") -> None:
        super().__init__(what)
        self.what = what if len(what) <= 200 else f"{what[:80]}...{what[-80:]}"
        self.mend = mend


class Kind(Protocol):
    """What the cells of a column are."""

    def __call__(self, cells: Sequence[Cell]) -> Column:
        """The cells as an array. Raises CellError if one of them is wrong."""


@dataclass(frozen=True)
class Number:
    """A finite number in [least, most]; `blank` stands for an empty cell (None: not allowed)."""

    least: float = 0.0
    most: float = 1e15
    blank: float | None = None
    unknown: float | None = None
    """A value that some formats write for 'not known', allowed whatever the range is."""

    def __call__(self, cells: Sequence[Cell]) -> NDArray[np.float64]:
        if self.blank is not None and "" in cells:
            cells = [self.blank if cell == "" else cell for cell in cells]
        values = floats(cells)
        wrong = ~((values >= self.least) & (values <= self.most))  # catches NaN too
        if self.blank is not None:
            wrong &= values != self.blank
        if self.unknown is not None:
            wrong &= values != self.unknown
        if wrong.any():
            raise CellError(*self._range(cells))
        return values

    def _range(self, cells: Sequence[Cell]) -> tuple[str, str]:
        return f"{cells[0]!r} is out of range", f"give {self.least:g} to {self.most:g}"


@dataclass(frozen=True)
class Count:
    """A whole number in [least, most]; a trailing `.0` is forgiven."""

    least: int = 0
    most: int = 1 << 31
    blank: int | None = None

    def __call__(self, cells: Sequence[Cell]) -> NDArray[np.int64]:
        values = Number(self.least, self.most, self.blank)(cells)
        whole = values.astype(np.int64)
        if (whole != values).any():
            raise CellError(f"{cells[0]!r} is not a whole number", "give a whole number")
        return whole


GPUS = Count(1, MOST_GPUS)


@dataclass(frozen=True)
class Span:
    """A length of time, as microseconds: a number in `unit`s, or text like `1h30m`."""

    unit: float = SECOND
    blank: int | None = None
    unknown: float | None = None

    def __call__(self, cells: Sequence[Cell]) -> NDArray[np.int64]:
        missing = None
        if self.blank is not None and "" in cells:
            missing = np.fromiter((cell == "" for cell in cells), bool, len(cells))
            cells = [0 if cell == "" else cell for cell in cells]
        try:
            values = floats(cells)
        except CellError:
            values = self._spelt(cells)
        if self.unknown is not None:
            unknown = values == self.unknown
            missing = unknown if missing is None else missing | unknown
            values = np.where(unknown, 0.0, values)
        times = _micros(values, self.unit, cells)
        if missing is not None:
            times[missing] = NEVER if self.blank is None else self.blank
        return times

    def _spelt(self, cells: Sequence[Cell]) -> NDArray[np.float64]:
        if any(type(cell) is str and "_" in cell for cell in cells):
            raise CellError(f"{cells[0]!r} is not a valid duration", "write seconds, or like 1h30m")
        try:
            return np.array([parse_duration(cell) / self.unit for cell in cells])
        except BadInput as error:
            raise CellError(error.what, error.mend) from None


@dataclass
class Clock:
    """Whether a file's times are dates; None until the first is seen. Columns share it."""

    dated: bool | None = None


@dataclass(frozen=True)
class Moment:
    """A point in time as microseconds: a number of `unit`s, or an ISO date and time (UTC unless it
    says otherwise). All columns on one clock keep to one of the two."""

    unit: float = SECOND
    blank: int | None = None
    clock: Clock = field(default_factory=Clock)

    def __call__(self, cells: Sequence[Cell]) -> NDArray[np.int64]:
        if self.blank is not None and "" in cells:
            missing = np.fromiter((cell == "" for cell in cells), bool, len(cells))
            times = np.full(len(cells), self.blank, np.int64)
            kept = [cell for cell in cells if cell != ""]
            if kept:
                times[~missing] = self(kept)
            return times
        dated = self.clock.dated
        if dated is None:
            dated = isinstance(cells[0], str) and cells[0][4:5] == "-"
        try:
            times = microseconds(cells) if dated else _micros(floats(cells), self.unit, cells)
        except DateError as error:
            raise CellError(str(error), "write like 2024-05-01T12:00:00") from None
        self.clock.dated = dated
        return times


@dataclass
class Category:
    """Text that repeats, as codes into `names`; an empty cell is code 0, the empty name."""

    names: Names[str] = field(default_factory=lambda: Names([""]))
    required: bool = False

    def __call__(self, cells: Sequence[Cell]) -> NDArray[np.int32]:
        distinct = dict.fromkeys(cells)
        for cell in distinct:
            _check_text(cell, self.required)
        codes = {cell: self.names.code(str(cell)) for cell in distinct}
        return np.fromiter(map(codes.__getitem__, cells), np.int32, len(cells))


@dataclass(frozen=True)
class Text:
    """Text that tells rows apart, such as a job's name."""

    required: bool = True

    def __call__(self, cells: Sequence[Cell]) -> NDArray[np.object_]:
        column = np.empty(len(cells), object)
        if isinstance(cells, Field):
            cells = cells.texts
        elif not all(type(cell) is str and cell.isprintable() for cell in cells):
            for cell in cells:
                _check_text(cell, self.required)
            cells = [str(cell) for cell in cells]
        column[:] = cells
        if self.required and "" in cells:
            raise CellError("it is empty", "give a name")
        return column


@dataclass(frozen=True)
class Choice:
    """One of a few words, as the number that stands for it; `blank` for an empty cell."""

    words: Mapping[str, int]
    blank: int = 0

    def __call__(self, cells: Sequence[Cell]) -> NDArray[np.int64]:
        codes: dict[Cell, int] = {}
        for cell in dict.fromkeys(cells):
            word = str(cell).strip().lower()
            if word and word not in self.words:
                raise CellError(f"{cell!r} is not known", "use one of " + ", ".join(self.words))
            codes[cell] = self.words.get(word, self.blank)
        return np.fromiter(map(codes.__getitem__, cells), np.int64, len(cells))


def floats(cells: Sequence[Cell]) -> NDArray[np.float64]:
    """The cells as numbers; CellError for what Python would take and people would not."""
    plain = cells.numbers() if isinstance(cells, Field) else None
    if plain is not None:
        return plain
    try:
        values = np.fromiter(map(float, cells), np.float64, len(cells))
    except (ValueError, OverflowError, TypeError):
        if cells[0] == "":
            raise CellError("it is empty", "give a number") from None
        raise CellError(f"{cells[0]!r} is not a number", "give a number") from None
    if not np.isfinite(values).all():
        raise CellError(f"{cells[0]!r} is not a finite number", "give a finite number")
    if "_" in _joined(cells):
        raise CellError(f"{cells[0]!r} is not a number", "give a number without underscores")
    return values


def _joined(cells: Sequence[Cell]) -> str:
    """The cells that are text, end to end."""
    try:
        return "".join(cells)  # type: ignore[arg-type]  # mostly all are text: the fast way
    except TypeError:
        return "".join(cell for cell in cells if isinstance(cell, str))


def _micros(values: NDArray[np.float64], unit: float, cells: Sequence[Cell]) -> NDArray[np.int64]:
    if (values < 0).any():
        raise CellError(f"{cells[0]!r} is negative", "give a time of 0 or more")
    if (values * (unit / SECOND) > LONGEST_SECONDS).any():
        raise CellError(f"{cells[0]!r} is not a valid time", "give less than 1e11 seconds")
    return np.rint(values * unit).astype(np.int64)


def _check_text(cell: Cell, required: bool) -> None:
    text = str(cell)
    if required and not text:
        raise CellError("it is empty", "give a name")
    if not text.isprintable():
        raise CellError(f"{text[:40]!r} holds control characters", "remove them")
    if len(text) > 4096:
        raise CellError("it is longer than 4096 characters", "shorten it")


@dataclass
class Table:
    """Typed columns of one file. Rows that are bad or left out are marked, not removed."""

    complaints: Complaints
    columns: dict[str, Column]
    lines: NDArray[np.int64]
    good: NDArray[np.bool_]
    unit: str = "line"

    def __len__(self) -> int:
        return len(self.lines)

    def __contains__(self, name: str) -> bool:
        return name in self.columns

    def __getitem__(self, name: str) -> Column:
        return self.columns[name]

    def get(self, name: str, default: Any) -> Any:
        """The column, or `default` where the file has none."""
        return self.columns.get(name, default)

    def place(self, row: int, name: str = "") -> str:
        """Where a cell stands, for messages."""
        return f"{self.unit} {self.lines[row]}" + (f": {name}" if name else "")

    def refuse(
        self, wrong: NDArray[np.bool_], name: str, what: str | Callable[[int], str], mend: str
    ) -> None:
        """Complain about every good row that is `wrong`, in order."""
        for row in np.flatnonzero(wrong & self.good).tolist():
            said = what if isinstance(what, str) else what(row)
            self.complaints.add(said, place=self.place(row, name), mend=mend)
            self.good[row] = False

    def leave_out(self, rows: NDArray[np.bool_], why: str) -> None:
        """Drop rows that are not jobs, with one message that counts them."""
        rows = rows & self.good
        if rows.any():
            count, passed_over = int(rows.sum()), self.complaints.passed_over
            self.complaints.messages.append(f"{count:,} rows left out: {why}")
            passed_over[why] = passed_over.get(why, 0) + count
            self.good[rows] = False


class Collector:
    """Gathers converted chunks into a Table."""

    def __init__(self, complaints: Complaints, kinds: Mapping[str, Kind], unit: str) -> None:
        self.complaints, self.kinds, self.unit = complaints, kinds, unit
        self.pieces: dict[str, list[Column]] = {name: [] for name in kinds}
        self.lines: list[NDArray[np.int64]] = []
        self.good: list[NDArray[np.bool_]] = []

    def add(self, lines: NDArray[np.int64], cells: Mapping[str, Sequence[Cell]]) -> None:
        """Convert the cells of rows; what cannot be is a complaint."""
        good = np.ones(len(lines), bool)
        for name, kind in self.kinds.items():
            given = cells.get(name)
            try:  # None: no row of this chunk has the column
                column = np.repeat(kind([""]), len(lines)) if given is None else kind(given)
            except CellError:
                given = [""] * len(lines) if given is None else given
                column = self._by_halves(name, kind, given, lines, good)
            self.pieces[name].append(column)
        self.lines.append(lines)
        self.good.append(good)

    def _by_halves(
        self,
        name: str,
        kind: Kind,
        cells: Sequence[Cell],
        lines: NDArray[np.int64],
        good: NDArray[np.bool_],
    ) -> Column:
        """The cells, with a complaint for each bad one, found by halving what holds it."""
        found: list[Column | None] = []
        rest = [(0, len(cells))]
        while rest:
            begin, end = rest.pop()
            try:
                found.append(kind(cells[begin:end]))
            except CellError as error:
                if end - begin > 1:
                    middle = (begin + end) // 2
                    rest += [(middle, end), (begin, middle)]
                    continue
                place = f"{self.unit} {lines[begin]}: {name}"
                self.complaints.add(error.what, place=place, mend=error.mend)
                good[begin] = False
                found.append(None)
        filler = next((piece for piece in found if piece is not None), np.zeros(1, np.int64))[:1]
        return np.concatenate([filler if piece is None else piece for piece in found])

    def table(self) -> Table:
        """What was gathered. Raises BadInput where that is nothing."""
        if not self.lines:
            raise BadInput(
                "it holds no rows",
                where=self.complaints.where,
                mend="give a file with at least one row",
            )
        columns = {name: np.concatenate(pieces) for name, pieces in self.pieces.items()}
        lines, good = np.concatenate(self.lines), np.concatenate(self.good)
        return Table(self.complaints, columns, lines, good, self.unit)


def read_delimited(
    file: TextFile,
    required: Mapping[str, Kind],
    optional: Mapping[str, Kind] | None = None,
    *,
    delimiter: str = ",",
    header: Sequence[str] | None = None,
    comment: str = "#",
) -> Table:
    """The wanted columns of a delimited file; the first row names them unless `header` does.

    Lines that start with `comment` before the header are passed over. Raises BadInput.
    """
    return gather_delimited(file, required, optional, delimiter, header, comment).table()


def gather_delimited(
    file: TextFile,
    required: Mapping[str, Kind],
    optional: Mapping[str, Kind] | None = None,
    delimiter: str = ",",
    header: Sequence[str] | None = None,
    comment: str = "#",
) -> Collector:
    """As `read_delimited`, also of text that holds no rows, such as a part of a file."""
    reader = reader_of(file.text, delimiter)
    header = [cell.strip() for cell in header or header_of(file, reader, comment)]
    skipped = reader.line_num
    kinds = choose(file, header, required, optional or {})
    wanted = [(name, header.index(name)) for name in kinds]
    collector = Collector(file.complaints, kinds, "line")
    quoted = delimiter == "," and '"' in file.text
    found = careful_rows(file, reader, skipped + file.first, len(header))
    for lines, columns in found if quoted else plain_rows(file, delimiter, skipped, len(header)):
        collector.add(lines, {name: columns[at] for name, at in wanted})
    return collector


def read_records(
    complaints: Complaints,
    kinds: Mapping[str, Kind],
    chunks: Iterable[tuple[NDArray[np.int64], Mapping[str, Sequence[Cell]]]],
    unit: str = "line",
) -> Table:
    """A Table of columns that come from elsewhere than delimited text, chunk by chunk."""
    collector = Collector(complaints, kinds, unit)
    for lines, cells in chunks:
        if len(lines):
            collector.add(lines, cells)
    return collector.table()


def choose(
    file: TextFile,
    header: Sequence[str],
    required: Mapping[str, Kind],
    optional: Mapping[str, Kind],
) -> dict[str, Kind]:
    """The kinds of the columns that are there. Raises BadInput for missing or doubled ones."""
    missing = [name for name in required if name not in header]
    if missing:
        raise BadInput(
            f"column {missing[0]!r} is missing",
            where=f"{file.where}: line 1",
            mend=f"the header has {', '.join(header)[:300] or 'nothing'}",
        )
    kinds = {**required, **{name: kind for name, kind in optional.items() if name in header}}
    for name in kinds:
        if list(header).count(name) > 1:
            raise BadInput(
                f"column {name!r} is listed twice", where=f"{file.where}: line 1", mend="remove one"
            )
    return kinds
