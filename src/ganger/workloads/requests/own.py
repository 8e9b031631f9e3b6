"""Ganger's own format of requests, `ganger.requests/1`: CSV, plain or gzip, read and written.

docs/requests.md describes it. A row a request, in order of arrival; the header names the columns:

- `arrival`: seconds, or dates (UTC unless they say otherwise), which count from the first row;
- `model`: its name; without the column all ask for a model called `model`;
- `deadline`: on the same clock as `arrival`; or `slo`: the time it may take, such as `100ms`;
- `tenant`; `items` (1); `prompt_tokens` and `output_tokens`;
- `input`: which input it is, a whole number; `label`: the true class of it.

An empty cell stands for "not stated". Columns that start with `x_` are passed over.
"""

from __future__ import annotations

import csv
import gzip
import io
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, suppress
from difflib import get_close_matches
from pathlib import Path
from typing import Any, BinaryIO, Final

import numpy as np
from numpy.typing import NDArray

from ganger.core.errors import BadInput
from ganger.core.units import NEVER, SECOND
from ganger.workloads.files import STDOUT
from ganger.workloads.requests.columns import CHUNK, Chunk, Requests
from ganger.workloads.requests.reading import SIZE, Reading, log, names
from ganger.workloads.requests.stream import delimited
from ganger.workloads.rows import Clock, Count, Kind, Moment, Span

FORMAT: Final = "ganger.requests/1"
_FAMILY = "ganger.requests/"
REQUIRED: Final = ("arrival",)
COLUMNS: Final = (
    "arrival",
    "model",
    "deadline",
    "slo",
    "tenant",
    "items",
    "prompt_tokens",
    "output_tokens",
    "input",
    "label",
)
_PLAIN = ("items", "prompt_tokens", "output_tokens", "input", "label")
_KEY = Count(0, 1 << 52, -1)
Cells = tuple[NDArray[np.uint8], NDArray[np.bool_]]
"""Characters, a row for each cell, and which of them are there."""


def read(path: Path, *, skip_bad: bool = False, ordered: bool = True) -> Requests:
    """The requests of a file in our own format. Raises BadInput, when they are read."""
    return log(path, _rows, skip_bad=skip_bad, ordered=ordered)


def _rows(reading: Reading) -> Iterator[Chunk]:
    clock, requests = Clock(), reading.requests
    optional: dict[str, Kind] = {
        "model": names(requests.models),
        "deadline": Moment(SECOND, NEVER, clock),
        "slo": Span(SECOND, NEVER),
        "tenant": names(requests.tenants, required=False),
        "items": Count(1, SIZE.most, 1),
        "prompt_tokens": Count(0, SIZE.most, 0),
        "output_tokens": Count(0, SIZE.most, 0),
        "input": _KEY,
        "label": Count(0, SIZE.most, -1),
    }
    where = str(reading.path)
    for table in delimited(
        reading.path,
        reading.complaints,
        {"arrival": Moment(SECOND, None, clock)},
        optional,
        see=lambda comments, header: _check(comments, header, where),
    ):
        columns = {name: table[name] for name in ("tenant", *_PLAIN) if name in table}
        if "model" in table:
            columns["model"] = table["model"]
        else:
            columns["model"] = np.full(len(table), requests.models.code("model"), np.int32)
        yield reading.chunk(
            table, "arrival", columns, from_first=bool(clock.dated), deadline="deadline", slo="slo"
        )


def _check(comments: Sequence[str], header: Sequence[str], where: str) -> None:
    for comment in comments:
        found = comment.lstrip("# ").removeprefix("format:").strip()
        if found.startswith(_FAMILY) and found != FORMAT:
            raise BadInput(
                f"format {found!r} is newer than this Ganger reads ({FORMAT})",
                where=where,
                mend="upgrade Ganger",
            )
    for name in header:
        if name not in COLUMNS and not name.startswith("x_"):
            near = get_close_matches(name, COLUMNS, 1)
            mend = f"did you mean {near[0]!r}?" if near else "prefix it with x_ to have it ignored"
            raise BadInput(f"unknown column {name!r}", where=f"{where}: line 1", mend=mend)


def write(requests: Requests, path: Path) -> int:
    """Write a file in constant memory, gzip where its name ends in `.gz`; `-` is standard output.

    The file is there when it is whole, and not before. The same requests are the same bytes. Says
    how many there were. Raises BadInput.
    """
    chunks = requests.chunks(CHUNK)
    first = next(chunks, None)  # what is wrong at once leaves no file behind
    if path == STDOUT:
        return _write(requests, first, chunks, sys.stdout.buffer)
    whole = path.is_file() or not path.exists()
    part = path.with_name(f"{path.name}.part") if whole else path
    try:
        with ExitStack() as stack:
            stream: Any = stack.enter_context(part.open("wb"))
            if path.name.lower().endswith(".gz"):
                stream = stack.enter_context(
                    gzip.GzipFile("", "wb", compresslevel=6, fileobj=stream, mtime=0)
                )
            written = _write(requests, first, chunks, stream)
        if whole:
            part.replace(path)
        return written
    except OSError as error:
        raise BadInput(
            f"cannot be written: {error.strerror or error}", where=str(path), mend="check the path"
        ) from None
    finally:
        if whole:
            with suppress(OSError):
                part.unlink(missing_ok=True)


def _write(
    requests: Requests, first: Chunk | None, chunks: Iterator[Chunk], stream: BinaryIO
) -> int:
    stream.write(f"# format: {FORMAT}\n".encode())
    if first is None:
        stream.write(b"arrival,model\n")
        return 0
    header = list(first.columns)
    stream.write((",".join(header) + "\n").encode())
    written, chunk = 0, first
    tables: dict[str, Cells] = {}
    while True:
        if set(chunk.columns) - set(header):
            raise BadInput(
                f"requests from number {written} on have columns that the first do not",
                where=requests.file,
                mend="give all rows the same columns",
            )
        for name, known in (("model", requests.models), ("tenant", requests.tenants)):
            if name not in tables or len(tables[name][0]) < len(known):
                tables[name] = _words(known)
        stream.write(_lines(chunk, header, tables))
        written += len(chunk)
        following = next(chunks, None)
        if following is None:
            stream.flush()
            return written
        chunk = following


_ROWS = 1 << 13
"""Rows whose text is made at a time."""


def _lines(chunk: Chunk, header: Sequence[str], tables: dict[str, Cells]) -> bytes:
    made = []
    for begin in range(0, len(chunk), _ROWS):
        part = chunk.take(slice(begin, begin + _ROWS))
        made.append(_joined([_cells(part, name, tables) for name in header], len(part)))
    return b"".join(made)


def _cells(chunk: Chunk, name: str, tables: dict[str, Cells]) -> Cells:
    column = getattr(chunk, name)
    if column is None:
        return np.zeros((len(chunk), 0), np.uint8), np.zeros((len(chunk), 0), bool)
    if name in tables:
        letters, there = tables[name]
        return letters[column], there[column]
    if name in ("arrival", "deadline"):
        known = column < NEVER
        values = np.where(known, column, 0)
        whole, known_whole = _digits(values // SECOND)
        parts, known_parts = _fraction(values % SECOND)
        letters = np.concatenate((whole, parts), axis=1)
        there = np.concatenate((known_whole, known_parts), axis=1)
        return letters, there & known[:, None]
    blank = -1 if name in ("input", "label") else None
    letters, there = _digits(np.maximum(column, 0))
    return letters, there if blank is None else there & (column != blank)[:, None]


def _digits(values: NDArray[Any]) -> Cells:
    """Whole numbers from 0 on, without leading zeros."""
    width = len(str(int(values.max(initial=0))))
    powers = 10 ** np.arange(width - 1, -1, -1, dtype=np.int64)
    letters = (values[:, None] // powers % 10 + ord("0")).astype(np.uint8)
    there = values[:, None] >= powers
    there[:, -1] = True
    return letters, there


def _fraction(micros: NDArray[np.int64]) -> Cells:
    """A point and six digits, without trailing zeros."""
    powers = 10 ** np.arange(5, -1, -1, dtype=np.int64)
    letters = np.full((len(micros), 7), ord("."), np.uint8)
    letters[:, 1:] = micros[:, None] // powers % 10 + ord("0")
    there = np.empty((len(micros), 7), bool)
    there[:, 0] = micros > 0
    there[:, 1:] = micros[:, None] % (powers * 10) > 0
    return letters, there


def _words(table: Any) -> Cells:
    """Names as CSV writes them, a row for each."""
    encoded = [_quoted(name).encode() for name in table]
    width = max(map(len, encoded), default=0)
    lengths = np.array([len(each) for each in encoded], np.int64)
    padded = b"".join(each.ljust(width) for each in encoded)
    letters = np.frombuffer(padded, np.uint8).reshape(len(encoded), width)
    return letters, np.arange(width) < lengths[:, None]


def _quoted(name: str) -> str:
    stream = io.StringIO()
    csv.writer(stream, lineterminator="").writerow([name, ""])
    return stream.getvalue()[:-1]


def _joined(columns: Sequence[Cells], rows: int) -> bytes:
    comma, newline = (np.full((rows, 1), ord(sign), np.uint8) for sign in ",\n")
    always = np.ones((rows, 1), bool)
    letters, there = [], []
    for at, (cells, known) in enumerate(columns):
        letters += [cells, newline if at == len(columns) - 1 else comma]
        there += [known, always]
    found: bytes = np.concatenate(letters, axis=1)[np.concatenate(there, axis=1)].tobytes()
    return found
