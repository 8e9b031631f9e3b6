"""Forecasts of a series that has a day's rhythm."""

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
