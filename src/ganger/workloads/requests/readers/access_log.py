"""A web server's access log, in the common or the combined format of Apache and nginx: a line each,
`HOST - USER [24/Nov/2026:07:00:00 +0000] "POST /v1/models/NAME/infer HTTP/1.1" 200 512 ...`.

The model is what stands behind `/models/` in the path (as the Open Inference Protocol, KServe and
TensorFlow Serving have it); with the option `model` every line asks for that one. Lines that ask
for no model are left out, and counted. Times count from the first request. They are to the second:
the requests of a second are spread over it at random, by the option `seed`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, timezone
from functools import lru_cache
from pathlib import Path
from typing import Final

import numpy as np

from ganger.core.units import SECOND
from ganger.workloads.files import TextFile
from ganger.workloads.requests.columns import Chunk, Requests
from ganger.workloads.requests.reading import Reading, log, word
from ganger.workloads.requests.stream import pieces
from ganger.workloads.rows import Moment, read_records

LINE: Final = re.compile(r'\S+ \S+ .{0,200}?\[([^\]]{20,40})\] "((?:[^"\\]|\\.)*)" ')
"""The time and the request of a line."""
_TIME = re.compile(r"(\d\d)/(\w{3})/(\d{4}):(\d\d):(\d\d):(\d\d) ([+-])(\d\d)(\d\d)")
_MODEL = re.compile(r"[^?]*?/models/([^/:?\s]+)")
_MONTHS: Final = (
    "Jan",
    "Feb",
    "Mar",
    "Apr",
    "May",
    "Jun",
    "Jul",
    "Aug",
    "Sep",
    "Oct",
    "Nov",
    "Dec",
)
_NO_MODEL: Final = "they ask for no model (/models/NAME)"
_NAME_ONE: Final = "no line names a model: say which one is meant, like --option model=resnet50"
Row = tuple[int, int, str]
"""Number of the line, second, model."""


def read(
    path: Path, *, skip_bad: bool = False, ordered: bool = True, model: object = "", seed: float = 0
) -> Requests:
    """The requests of such a log. Raises BadInput, when they are read."""
    only = word(model)

    def rows(reading: Reading) -> Iterator[Chunk]:
        rng = np.random.default_rng(int(seed))
        waiting: list[Row] = []
        for file in pieces(path, reading.complaints):
            waiting += _rows(file, reading, only)
            whole = len(waiting)
            while whole and waiting[whole - 1][1] == waiting[-1][1]:
                whole -= 1  # the last second may go on in the next piece
            if whole:
                yield _chunk(waiting[:whole], reading, rng)
                waiting = waiting[whole:]
        if waiting:
            yield _chunk(waiting, reading, rng)
        reading.complaints.flush()
        reading.requests.remarks.note("times are to the second: requests are spread over each")
        if not len(reading.requests.models):
            reading.requests.remarks.note(_NAME_ONE)

    return log(path, rows, skip_bad=skip_bad, ordered=ordered)


def _rows(file: TextFile, reading: Reading, only: str) -> list[Row]:
    """The lines of a part of the log that ask for a model."""
    found: list[Row] = []
    passed = 0
    for at, text in enumerate(file.text.split("\n"), file.first):
        if not text.strip():
            continue
        match = LINE.match(text)
        second = None if match is None else _second(match[1])
        if match is None or second is None:
            file.complaints.add(
                "no line of an access log",
                place=f"line {at}",
                mend="give the common or the combined format",
            )
            continue
        asked = _MODEL.match(match[2])
        named = only or (asked[1] if asked is not None else "")
        if named and named.isprintable():
            found.append((at, second, named))
        else:
            passed += 1
    if passed:
        reading.requests.remarks.leave_out(passed, _NO_MODEL)
    return found


@lru_cache(maxsize=256)
def _second(text: str) -> int | None:
    """Seconds since 1970; None where it is no time."""
    match = _TIME.fullmatch(text)
    if match is None or match[2] not in _MONTHS:
        return None
    day, month, year, hour, minute, second, sign, hours, minutes = match.groups()
    zone = timedelta(hours=int(hours), minutes=int(minutes))
    try:
        return int(
            datetime(
                int(year),
                _MONTHS.index(month) + 1,
                int(day),
                int(hour),
                int(minute),
                int(second),
                tzinfo=timezone(zone if sign == "+" else -zone),
            )
            .astimezone(UTC)
            .timestamp()
        )
    except (ValueError, OverflowError):
        return None


def _chunk(rows: list[Row], reading: Reading, rng: np.random.Generator) -> Chunk:
    """Spread over their seconds."""
    second = np.array([row[1] for row in rows], np.int64)
    run = np.concatenate(([0], np.cumsum(np.diff(second) != 0)))
    part = rng.integers(0, SECOND, len(rows))
    part = part[np.lexsort((part, run))]
    cells = {"time": ((second * SECOND + part) / SECOND).tolist()}
    numbers = np.array([row[0] for row in rows])
    table = read_records(reading.complaints, {"time": Moment(SECOND)}, [(numbers, cells)])
    models = np.array([reading.requests.models.code(row[2]) for row in rows], np.int32)
    return reading.chunk(table, "time", {"model": models}, from_first=True)
