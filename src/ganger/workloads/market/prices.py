"""Prices of instances over time, in the layouts in which they are published.

AWS' history of spot prices: `Timestamp, AvailabilityZone, InstanceType, ProductDescription,
SpotPrice`, one row a change, in any order; of products only `Linux/UNIX`. Azure's: `Date` (month/
day/year) and a column for each size, empty where it is not offered; the file is of one region. Our
own: `time` (seconds), `price`. Prices are of an instance for an hour. Time 0 is the first moment of
the file, so that series of one file stay beside each other.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Final, TypeAlias

from ganger.core.errors import BadInput
from ganger.core.units import SECOND
from ganger.workloads.careful import all_rows
from ganger.workloads.dates import DateError, microseconds
from ganger.workloads.files import TextFile, open_text

Series: TypeAlias = tuple[tuple[int, float], ...]
"""(Microseconds, price from then on), ascending."""
_AWS: Final = ("Timestamp", "AvailabilityZone", "InstanceType", "ProductDescription", "SpotPrice")
_MEND: Final = (
    "give AWS' history of spot prices, Azure's table of sizes by date, or a CSV with time, price"
)


def read_prices(path: Path, instance: str = "", zone: str = "") -> Series:
    """What `instance` costs in `zone`, where the file has several of them. Raises BadInput."""
    file = open_text(path)
    rows = all_rows(file)
    header = [cell.strip() for cell in rows[0]]
    if set(_AWS) <= set(header):
        prices = _aws(file, header, rows[1:], instance, zone)
    elif header[:1] == ["Date"]:
        prices = _azure(file, header, rows[1:], instance)
    elif header[:2] == ["time", "price"]:
        prices = [
            (round(_number(file, row, 0, line) * SECOND), _number(file, row, 1, line))
            for line, row in _numbered(rows[1:])
        ]
    else:
        raise file.refuse(f"its columns are {', '.join(header)[:80]}", _MEND)
    if not prices:
        raise file.refuse("no prices", "check instance and zone")
    return tuple(sorted(dict(prices).items()))


def _aws(
    file: TextFile, header: list[str], rows: list[list[str]], instance: str, zone: str
) -> list[tuple[int, float]]:
    at, where, size, product, price = (header.index(name) for name in _AWS)
    kept = [(line, row) for line, row in _numbered(rows) if len(row) == len(header)]
    if not kept:
        raise file.refuse("no prices", f"give rows of {len(header)} cells below the first")
    try:
        times = microseconds([row[at] for _, row in kept]).tolist()
    except DateError as error:
        raise file.refuse(str(error), "write like 2020-01-31T12:00:00.000Z") from None
    pairs = {(row[size], row[where]) for _, row in kept}
    if (instance, zone) not in pairs:
        sizes = sorted({pair[0] for pair in pairs})
        zones = sorted({pair[1] for pair in pairs if pair[0] == instance})
        what = f"no prices of {instance!r} in {zone!r}"
        mend = f"instance: one of {', '.join(sizes)[:200]}"
        raise file.refuse(what, f"zone: one of {', '.join(zones)[:200]}" if zones else mend)
    first = min(times)
    return [
        (time - first, _number(file, row, price, line))
        for time, (line, row) in zip(times, kept, strict=True)
        if row[size] == instance and row[where] == zone and row[product].startswith("Linux/UNIX")
    ]


def _azure(
    file: TextFile, header: list[str], rows: list[list[str]], instance: str
) -> list[tuple[int, float]]:
    if instance not in header[1:]:
        mend = f"instance: one of {', '.join(header[1:])[:200]}"
        raise file.refuse(f"no prices of {instance!r}", mend)
    column = header.index(instance)
    days = [(line, _day(file, row[0], line), row) for line, row in _numbered(rows)]
    first = min((day for _, day, _ in days), default=0)
    return [
        ((day - first) * SECOND, _number(file, row, column, line))
        for line, day, row in days
        if column < len(row) and row[column].strip()
    ]


def _day(file: TextFile, cell: str, line: int) -> int:
    """Seconds of a date like `2/24/2020`, from the first day that there is."""
    try:
        return datetime.strptime(cell.strip(), "%m/%d/%Y").toordinal() * 86400
    except ValueError:
        raise BadInput(
            f"{cell!r} is not a date", where=f"{file.where}:{line}", mend="write like 2/24/2020"
        ) from None


def _numbered(rows: list[list[str]]) -> Iterator[tuple[int, list[str]]]:
    """Rows that are not empty, each with its line."""
    return ((line, row) for line, row in enumerate(rows, 2) if any(cell.strip() for cell in row))


def _number(file: TextFile, row: list[str], column: int, line: int) -> float:
    """A price or a time: a number, 0 or more, with or without a dollar sign."""
    text = row[column].strip().removeprefix("$") if column < len(row) else ""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 <= value < 1e10:
        raise BadInput(
            f"{text!r} is not a valid number", where=f"{file.where}:{line}", mend="give 0 or more"
        )
    return value
