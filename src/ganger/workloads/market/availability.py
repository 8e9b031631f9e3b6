"""How many instances can be had over time, in the layouts in which that is published.

SkyPilot's spot traces: JSON, `metadata.gap_seconds` and `data`, the instances of each tick.
Bamboo's (`*-trace.csv`): milliseconds, `add` or `remove`, node, one row each. Bamboo's of GCP
(`*.txt`): date, time, instances. Time 0 is the first tick or row.
"""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any, Final, TypeAlias

from ganger.core.errors import BadInput
from ganger.core.units import LONGEST_SECONDS, SECOND
from ganger.workloads.careful import all_rows
from ganger.workloads.dates import DateError, microseconds
from ganger.workloads.documents import figure, json_object
from ganger.workloads.files import TextFile, open_text

Counts: TypeAlias = tuple[tuple[int, int], ...]
"""(Microseconds, instances from then on), ascending, each another count than the one before."""
_MEND: Final = (
    "give a JSON of SkyPilot's spot traces, or Bamboo's `ms,add|remove,node` or `date, time, count`"
)
_MS: Final = SECOND // 1000
_DIGITS: Final = 14
"""No number of milliseconds is longer: those of the longest time."""


def read_available(path: Path) -> Counts:
    """How many instances there are. Raises BadInput."""
    file = open_text(path)
    document = json_object(file)
    if document is not None:
        counts = _ticks(document, file)
    else:
        rows = [[cell.strip() for cell in row] for row in all_rows(file) if row]
        if rows and len(rows[0]) == 3 and rows[0][1] in ("add", "remove"):
            counts = _changes(rows, file)
        elif rows and len(rows[0]) == 3 and "-" in rows[0][0]:
            counts = _samples(rows, file)
        else:
            raise file.refuse("it does not say how many instances can be had", _MEND)
    changed = [counts[0]]
    changed += [pair for before, pair in itertools.pairwise(counts) if pair[1] != before[1]]
    return tuple(changed)


def _ticks(document: dict[str, Any], file: TextFile) -> list[tuple[int, int]]:
    metadata, data = document.get("metadata"), document.get("data")
    if not isinstance(metadata, dict) or not isinstance(data, list) or not data:
        raise file.refuse("no `metadata` and `data`", _MEND)
    most = LONGEST_SECONDS / len(data)
    gap = figure(
        metadata.get("gap_seconds"),
        f"{file.where}: gap_seconds",
        f"give seconds, 0.001 to {most:g}",
        least=0.001,
        most=most,
    )
    mend = "give how many instances there are"
    return [
        (round(tick * gap * SECOND), int(figure(count, f"{file.where}: data[{tick}]", mend)))
        for tick, count in enumerate(data)
    ]


def _changes(rows: list[list[str]], file: TextFile) -> list[tuple[int, int]]:
    counts: dict[int, int] = {}
    instances = first = 0
    for line, row in enumerate(rows, 1):
        if len(row) != 3 or row[1] not in ("add", "remove") or not _is_count(row[0]):
            raise BadInput(f"{','.join(row)[:60]!r}", where=f"{file.where}:{line}", mend=_MEND)
        first = int(row[0]) if line == 1 else first
        if int(row[0]) < first:
            what = f"{row[0]} ms is before line 1"
            raise BadInput(what, where=f"{file.where}:{line}", mend="sort the rows by time")
        instances += 1 if row[1] == "add" else -1
        counts[(int(row[0]) - first) * _MS] = max(instances, 0)
    return sorted(counts.items())


def _is_count(cell: str) -> bool:
    """Whether it is a whole number, 0 or more, that no time and no count exceeds."""
    return cell.isdecimal() and len(cell) <= _DIGITS


def _samples(rows: list[list[str]], file: TextFile) -> list[tuple[int, int]]:
    for line, row in enumerate(rows, 1):
        if len(row) != 3 or not _is_count(row[2]):
            raise BadInput(f"{','.join(row)[:60]!r}", where=f"{file.where}:{line}", mend=_MEND)
    try:
        times = microseconds([f"{row[0]} {row[1]}" for row in rows]).tolist()
    except DateError as error:
        raise file.refuse(str(error), "write like 2021-12-11, 11:11:30") from None
    return sorted(
        {time - min(times): int(row[2]) for time, row in zip(times, rows, strict=True)}.items()
    )
