"""What the requests of a window are like, and whether two windows are alike."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import log, sqrt
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ganger.core.units import NEVER, SECOND
from ganger.workloads.requests.columns import Chunk

F64 = NDArray[np.float64]
_PIECES: Final = 256
"""Pieces of a window in which requests are counted, to see how unevenly they come."""
_SIZES: Final = ("items", "prompt_tokens", "output_tokens")
_RATE: Final = 0.03
_PARTS: Final = 0.05
_SIZE: Final = 0.05
_GAPS: Final = 0.15
_COUNTS: Final = 0.4
"""How far alike windows are apart at most, besides chance: logarithms of rates, sizes, the
variation of gaps and the dispersion of counts; of what is asked for, the part that would change."""


@dataclass(frozen=True)
class Look:
    """Figures of a window.

    `count`: requests; `rate`: of them a second; `work`: by what is asked for (its code among the
    names), the part of all devices that it needs at least; `gap_cv`: coefficient of variation of
    the gaps;
    `dispersion`: variance over mean of the counts in equal pieces; both 1 for a Poisson process.
    `sizes`: by name the means of items, tokens, and seconds until the deadline. `lanes`: the types
    of those that answer, where they come and go.
    """

    count: int
    rate: float
    work: F64
    gap_cv: float
    dispersion: float
    sizes: Mapping[str, float]
    lanes: tuple[str, ...] = ()

    @property
    def load(self) -> float:
        """The part of all devices that is needed at least."""
        return float(self.work.sum())

    def distance(self, other: Look) -> float:
        """At most 1 for windows that are alike."""
        if self.sizes.keys() != other.sizes.keys() or self.lanes != other.lanes:
            return float("inf")
        chance = 2 / sqrt(min(self.count, other.count))
        parts = changed(self.work / max(self.load, 1e-12), other.work / max(other.load, 1e-12))
        return max(
            abs(log(self.rate / other.rate)) / (_RATE + max(self.gap_cv, other.gap_cv) * chance),
            parts / 2 / (_PARTS + chance),
            abs(log((self.gap_cv + 0.1) / (other.gap_cv + 0.1))) / (_GAPS + 1.5 * chance),
            abs(log((self.dispersion + 0.1) / (other.dispersion + 0.1))) / _COUNTS,
            *(
                abs(log(self.sizes[name] / other.sizes[name])) / (_SIZE + chance)
                for name in self.sizes
            ),
        )


def changed(work: F64, other: F64) -> float:
    """How much of the work differs, added up; what only one of them asks for, too."""
    longest = max(len(work), len(other))
    both = (np.pad(each, (0, longest - len(each))) for each in (work, other))
    return float(np.abs(np.subtract(*both)).sum())


def look_at(
    rows: Chunk, length: int, cost: F64, faster: float, lanes: tuple[str, ...] = ()
) -> Look:
    """What requests of a window of so many microseconds are like, where they come `faster` times as
    fast. `cost`: by code of a name, the microseconds that an item needs of all devices together."""
    count = len(rows)
    items = np.ones(count) if rows.items is None else rows.items.astype(np.float64)
    work = np.bincount(rows.model, items * cost[rows.model], minlength=len(cost)) * faster / length
    gaps = np.diff(rows.arrival)
    mean = float(gaps.mean()) if len(gaps) else 0.0
    begin = int(rows.arrival[0]) // length * length
    pieces = (rows.arrival - begin) * _PIECES // length
    counts = np.bincount(pieces, minlength=_PIECES)
    sizes: dict[str, float] = {}
    for name in _SIZES:
        column = getattr(rows, name)
        if column is not None:
            sizes[name] = max(float(column.mean()), 1e-9)
    if rows.deadline is not None:
        slack = (rows.deadline - rows.arrival)[rows.deadline < NEVER]
        sizes["dated"] = max(len(slack) / count, 1e-9)
        if len(slack):
            sizes["slack"] = max(float(slack.mean()) / SECOND, 1e-9)
    return Look(
        count,
        count * SECOND * faster / length,
        work,
        float(gaps.std()) / mean if mean else 0.0,
        float(counts.var() / counts.mean()),
        sizes,
        lanes,
    )
