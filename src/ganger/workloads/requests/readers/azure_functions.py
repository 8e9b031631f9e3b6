"""Azure Functions (2019) invocations: a row a function, a column a minute.

Columns: `HashOwner, HashApp, HashFunction, Trigger, 1, 2, ..., 1440`, or, in InVitro's samples,
`HashFunction, HashOwner, HashApp, 1_minute, ...`. A function becomes a model, its owner a tenant.
The counts of a day are held in memory, the requests are not.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from ganger.core.errors import BadInput
from ganger.core.units import MINUTE
from ganger.workloads.requests.columns import Requests
from ganger.workloads.requests.counts import MOST, Spread, Windows
from ganger.workloads.requests.reading import Reading, log, names
from ganger.workloads.requests.stream import delimited, header_of
from ganger.workloads.rows import Kind

HEADER = ("HashOwner", "HashApp", "HashFunction")
_MINUTE = re.compile(r"(\d+)(?:_minute)?")


def minutes(header: list[str]) -> dict[str, int]:
    """The columns that are minutes, and which, from 0 on."""
    found = {name: _MINUTE.fullmatch(name) for name in header}
    return {name: int(match[1]) - 1 for name, match in found.items() if match and int(match[1])}


def read(
    path: Path,
    *,
    skip_bad: bool = False,
    ordered: bool = True,
    seed: object = 0,
    arrivals: object = "uniform",
    scale: object = 1.0,
) -> Requests:
    """Requests as the counts say, at seeded times in each minute. Raises BadInput."""
    spread = Spread.of(seed, arrivals, scale)

    def counted(reading: Reading) -> Iterator[Windows]:
        columns = minutes(header_of(path))
        if not columns:
            raise BadInput(
                "no column is a minute",
                where=f"{path}: line 1",
                mend="name the counts 1, 2, ... or 1_minute, 2_minute, ...",
            )
        requests = reading.requests
        kinds: dict[str, Kind] = {
            "HashFunction": names(requests.models),
            "HashOwner": names(requests.tenants),
            **dict.fromkeys(columns, MOST),
        }
        parts: list[Windows] = []
        for table in delimited(path, reading.complaints, kinds):
            counts = np.stack([table[name] for name in columns], axis=1)[table.good]
            row, column = np.nonzero(counts)
            parts.append(
                Windows(
                    np.array(list(columns.values()))[column],
                    counts[row, column],
                    table["HashFunction"][table.good][row],
                    table["HashOwner"][table.good][row],
                )
            )
        if parts:
            yield _by_window(parts)

    return log(
        path,
        lambda reading: spread.arrivals(counted(reading), MINUTE),
        skip_bad=skip_bad,
        ordered=True,
    )


def _by_window(parts: list[Windows]) -> Windows:
    """All counts, by minute."""
    window = np.concatenate([part.window for part in parts])
    order = np.argsort(window, kind="stable")
    tenant = np.concatenate(
        [np.zeros(0, np.int32) if part.tenant is None else part.tenant for part in parts]
    )
    return Windows(
        window[order],
        np.concatenate([part.count for part in parts])[order],
        np.concatenate([part.model for part in parts])[order],
        tenant[order],
    )
