"""Forecasts of a series: by a day's rhythm, or by its trend."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

RECENT = 6
"""Values that say where the series stands now."""


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
