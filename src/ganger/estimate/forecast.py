"""Forecasts of a series: by a day's rhythm, or by its trend."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

RECENT = 6
"""Values that say where the series stands now."""
_REMEMBERED = 200
"""Values; what was before them counts for nothing in a mean that forgets."""


def forecast(series: Sequence[float], ahead: int, season: int = 144) -> NDArray[np.float64]:
    """The next `ahead` values: those of one `season` ago, moved by how much higher the series
    stands now than then; before a whole season is known, where it stands now."""
    past = np.asarray(series, np.float64)
    now = past[-RECENT:].mean()
    if len(past) < season + RECENT:
        return np.full(ahead, now)
    then = past[-season - RECENT : -season].mean()
    cycle = past[-season:]
    moved: NDArray[np.float64] = np.maximum(np.resize(cycle, ahead) + now - then, 0.0)
    return moved


def trend(series: Sequence[float], ahead: float = 1.0) -> float:
    """Where the straight line through the series, by least squares, stands `ahead` places after its
    last value; not below 0. Of a single value nothing but the value is known."""
    count = len(series)
    centre = (count - 1) / 2
    mean = sum(series) / count
    spread = sum((at - centre) ** 2 for at in range(count))
    slope = sum((at - centre) * each for at, each in enumerate(series)) / (spread or 1.0)
    return max(mean + slope * (centre + ahead), 0.0)


class Forecaster(Protocol):
    """Goes on with a series of values that are not below 0."""

    def ahead(self, series: Sequence[float], steps: int) -> NDArray[np.float64]:
        """The next `steps` values, from a series that has one at least."""


@dataclass(frozen=True)
class Naive:
    """As it is now."""

    def ahead(self, series: Sequence[float], steps: int) -> NDArray[np.float64]:
        """The last value."""
        return np.full(steps, series[-1], np.float64)


@dataclass(frozen=True)
class Linear:
    """Along the straight line through the last values, `of` of them."""

    of: int = 4

    def ahead(self, series: Sequence[float], steps: int) -> NDArray[np.float64]:
        """The line, by least squares."""
        return np.array([trend(series[-self.of :], step) for step in range(1, steps + 1)])


@dataclass(frozen=True)
class Seasonal:
    """As a `season` (in values) ago, moved by how much higher the series stands now; see
    `forecast`."""

    season: int

    def ahead(self, series: Sequence[float], steps: int) -> NDArray[np.float64]:
        """The cycle, moved."""
        return forecast(series[-self.season - RECENT :], steps, self.season)


@dataclass(frozen=True)
class Holt:
    """By a level and a trend that are smoothed by `level` and `slope` and of which the trend fades
    by `damped` each step. (Gardner and McKenzie: Forecasting trends in time series, Management
    Science 1985.)"""

    level: float = 0.5
    slope: float = 0.2
    damped: float = 0.9

    def ahead(self, series: Sequence[float], steps: int) -> NDArray[np.float64]:
        """The level and what is left of the trend, added up."""
        series = series[-_REMEMBERED:]
        level, slope = float(series[0]), 0.0
        new, damped, steep = self.level, self.damped, self.slope
        old, flat = 1 - new, (1 - steep) * damped
        for value in series[1:]:
            before = level
            level = new * value + old * (level + damped * slope)
            slope = steep * (level - before) + flat * slope
        gone: NDArray[np.float64] = np.maximum(level + slope * _fades(self.damped, steps), 0.0)
        return gone


@lru_cache(64)
def _fades(damped: float, steps: int) -> NDArray[np.float64]:
    """Of a trend that fades, what it has added up to after each of the next steps."""
    fades = np.cumsum(damped ** np.arange(1, steps + 1))
    fades.flags.writeable = False
    return fades
