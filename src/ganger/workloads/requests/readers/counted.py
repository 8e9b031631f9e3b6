"""Counts of requests per second, minute or hour: `second,requests`, as the counts of archived
tweets that IPA and InfAdapter replay; also `minute,requests` and `hour,requests`, and a
column `model`.

Windows that are missing had no requests. The first column counts windows from 0 on.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from ganger.core.units import HOUR, MINUTE, SECOND
from ganger.workloads.requests.columns import Requests
from ganger.workloads.requests.counts import MOST, Spread, Windows
from ganger.workloads.requests.reading import Reading, log, names
from ganger.workloads.requests.stream import delimited, header_of
from ganger.workloads.rows import Count

WIDTHS = {"second": SECOND, "minute": MINUTE, "hour": HOUR}


def read(
    path: Path,
    *,
    skip_bad: bool = False,
    ordered: bool = True,
    seed: object = 0,
    arrivals: object = "uniform",
    scale: object = 1.0,
) -> Requests:
    """Requests as the counts say, at seeded times in each window. Raises BadInput."""
    spread = Spread.of(seed, arrivals, scale)
    unit = next((name for name in header_of(path) if name in WIDTHS), "second")
    width = WIDTHS[unit]

    def counted(reading: Reading) -> Iterator[Windows]:
        kinds = {unit: Count(0, 10**17 // width), "requests": MOST}
        optional = {"model": names(reading.requests.models)}
        for table in delimited(path, reading.complaints, kinds, optional):
            reading.in_order(table, unit)
            good = table.good
            model = table.get("model", None)
            if model is None:
                model = np.full(len(table), reading.requests.models.code("model"), np.int32)
            yield Windows(table[unit][good], table["requests"][good], model[good])

    return log(
        path,
        lambda reading: spread.arrivals(_whole(counted(reading)), width),
        skip_bad=skip_bad,
        ordered=True,
    )


def _whole(parts: Iterator[Windows]) -> Iterator[Windows]:
    """The same rows, cut where a window ends, so that the rows of a window stay together."""
    rest: Windows | None = None
    for part in parts:
        if rest is not None:
            part = Windows(
                np.concatenate((rest.window, part.window)),
                np.concatenate((rest.count, part.count)),
                np.concatenate((rest.model, part.model)),
            )
        if len(part.window):
            end = int(np.searchsorted(part.window, part.window[-1]))
            yield part.take(slice(0, end))
            rest = part.take(slice(end, None))
    if rest is not None:
        yield rest
