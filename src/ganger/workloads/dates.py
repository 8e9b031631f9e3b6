"""Dates as text: microseconds since 1970, by numpy where all are spelt alike."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Final

import numpy as np
from numpy.typing import NDArray

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_PLAIN: Final = re.compile(r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(?:\.\d{1,9})?", re.ASCII)
_UTC = ("Z", "+00:00")


class DateError(ValueError):
    """Not a date and time: `cell`."""

    def __init__(self, cell: object) -> None:
        super().__init__(f"{cell!r} is not a valid date and time")
        self.cell = cell


def microseconds(cells: Sequence[object]) -> NDArray[np.int64]:
    """ISO dates and times, UTC unless they say otherwise. Raises DateError."""
    found = _alike([cell if isinstance(cell, str) else "" for cell in cells])
    if found is not None:
        return found
    times = np.empty(len(cells), np.int64)
    for i, cell in enumerate(cells):
        try:
            moment = datetime.fromisoformat(cell.strip() if isinstance(cell, str) else "")
        except ValueError:
            raise DateError(cell) from None
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=UTC)
        times[i] = (moment - _EPOCH) // _MICROSECOND
    return times


def _alike(cells: list[str]) -> NDArray[np.int64] | None:
    """Dates that numpy reads as Python does; None where one may be of another kind."""
    zone = next((zone for zone in _UTC if cells[0].endswith(zone)), "")
    if zone:
        if not all(cell.endswith(zone) for cell in cells):
            return None
        cells = [cell[: -len(zone)] for cell in cells]
    if not all(map(_PLAIN.fullmatch, cells)):
        return None
    try:
        return np.array(cells, "datetime64[us]").astype(np.int64)
    except ValueError:
        return None
