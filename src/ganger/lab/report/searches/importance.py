"""How much of the differences between trials goes with each parameter alone.

Trials are ranked by the best value that they reported, broken ones last. The values of a parameter
fall into bins: a choice has one for each value, a number up to five with equally many trials. The
part of the variance of ranks that lies between bins is corrected for what chance would put there
(epsilon squared, Kelley 1935), so that a parameter that does nothing has about 0. Ranks make the
scale of the metric irrelevant. What parameters do only together is not in it, and trials that ended
early count with what they had by then.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

import numpy as np

from ganger.core.tuning.space import Point, Value

LEAST: Final = 10
"""With fewer trials nothing is said."""
_BINS: Final = 5
_PER_BIN: Final = 4
"""Trials in each bin of numbers, at least."""


def importance(points: Sequence[Point], badness: Sequence[float]) -> dict[str, float]:
    """By parameter its part of the variance, from 0 to 1, the largest first. `badness` of each
    trial: the less the better, infinite for one that broke down. Empty where there are fewer than
    `LEAST` trials, or where all are alike."""
    if len(points) < LEAST:
        return {}
    ranks = _ranks(badness)
    total = float(((ranks - ranks.mean()) ** 2).sum())
    if not total:
        return {}
    parts = {}
    for name in dict.fromkeys(name for point in points for name in point):
        bins = _bins([point.get(name) for point in points])
        many = int(bins.max()) + 1
        if many < 2 or many >= len(points):
            continue
        counts = np.bincount(bins, minlength=many)
        means = np.bincount(bins, ranks, many) / counts
        within = float(((ranks - means[bins]) ** 2).sum())
        free = len(points) - many
        parts[name] = max(1.0 - within / free * (len(points) - 1) / total, 0.0)
    return dict(sorted(parts.items(), key=lambda item: -item[1]))


def _ranks(values: Sequence[float]) -> np.ndarray:
    """From 0; equal ones have their mean rank."""
    _, place, counts = np.unique(np.array(values, float), return_inverse=True, return_counts=True)
    first = np.cumsum(counts) - counts
    return np.asarray((first + (counts - 1) / 2)[place], np.float64)


def _bins(values: Sequence[Value | None]) -> np.ndarray:
    """The bin of each trial; those without the parameter share one."""
    numbers = number_of(values)
    if numbers is None:
        words = {word: at for at, word in enumerate(dict.fromkeys(map(str, values)))}
        return np.array([words[str(value)] for value in values])
    known = np.array([number for number in numbers if number is not None])
    distinct = np.unique(known)
    many = max(min(_BINS, len(known) // _PER_BIN), 1)
    if len(distinct) <= many:
        edges = distinct[1:]
    else:
        edges = np.unique(np.quantile(known, np.arange(1, many) / many))
    place = np.searchsorted(edges, [math.nan if n is None else n for n in numbers], side="right")
    none = np.array([number is None for number in numbers])
    _, place = np.unique(np.where(none, -1, place), return_inverse=True)
    return np.asarray(place)


def number_of(values: Sequence[Value | None]) -> list[float | None] | None:
    """The values as numbers, None for trials without; None where some are words."""
    numbers = list[float | None]()
    for value in values:
        if isinstance(value, bool):
            return None
        try:
            number = None if value is None else float(value)
        except ValueError:
            return None
        if number is not None and not math.isfinite(number):
            return None
        numbers.append(number)
    return numbers
