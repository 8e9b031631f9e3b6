"""How many requests come to services over time, from a CSV file.

One row per service and time: `service`, `time` (seconds after the service was submitted),
`requests_per_second` (from then on; those of the last row of a service do not count, its time is
the end), and `replica_per_second`: how many of its requests one replica answers a second.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from ganger.core.errors import BadInput
from ganger.core.profiles import Load
from ganger.workloads.files import open_text
from ganger.workloads.rows import Kind, Number, Text, read_delimited

_COLUMNS: Final[dict[str, Kind]] = {
    "service": Text(), "time": Number(0.0, 1e10), "requests_per_second": Number(0.0, 1e9),
    "replica_per_second": Number(1e-6, 1e9),
}  # fmt: skip


def read_loads(path: str | Path) -> dict[str, Load]:
    """The load of each service, by name. Raises BadInput."""
    table = read_delimited(open_text(Path(path)), _COLUMNS)
    rows: dict[str, list[tuple[float, float, float]]] = {}
    columns = (table[name].tolist() for name in _COLUMNS)
    for name, time, rate, each in zip(*columns, strict=True):
        before = rows.setdefault(name, [])
        if before and time <= before[-1][0]:
            raise BadInput(
                f"the times of {name!r} do not ascend: {time:g} after {before[-1][0]:g}",
                where=str(path),
                mend="sort its rows by time",
            )
        if before and each != before[-1][2]:
            raise BadInput(
                f"replica_per_second of {name!r} changes from {before[-1][2]:g} to {each:g}",
                where=str(path),
                mend="one replica answers equally many all the time",
            )
        before.append((time, rate, each))
    for name, told in rows.items():
        if len(told) < 2:
            raise BadInput(
                f"{name!r} has one row only",
                where=str(path),
                mend="add one for the time at which its requests end",
            )
    found = dict[str, Load]()
    for name, told in rows.items():
        times, rates, each = zip(*told, strict=True)
        found[name] = Load(times, rates, each[0])
    return found
