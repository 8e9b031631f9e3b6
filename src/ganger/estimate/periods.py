"""How long the iterations of a training job take, from a signal of its GPU that rises and falls
with them: power or utilisation (GPOEO, arXiv 2201.01684, section 4.3)."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

LEAST_CYCLES: Final = 4
"""So many periods have to be in a signal."""
LEAST_SAMPLES: Final = 16
TEETH: Final = 3
"""So many periods later a signal is compared with itself, and half a period before each."""
CLEAR: Final = 0.2
"""How much more a signal has to be like itself after whole periods than after halves, at least."""
ALMOST: Final = 0.85
"""Three periods are as good as one: of several that are almost as good as the best, the first."""
_STEP: Final = 1.01
"""From one period that is tried to the next."""
_MARGIN: Final = 1.1
"""Periods that are hardly longer than the shortest one that can be seen may be others, aliased."""


class Period(NamedTuple):
    """`seconds` of an iteration. `clearness`: how much more the signal is like itself after whole
    periods than after halves, up to 1. `shortest`: what is not longer cannot be seen, since the
    signal is renewed only twice in that time."""

    seconds: float
    clearness: float
    shortest: float


def period_of(seconds: Any, values: Any) -> Period | None:
    """The period of a signal that was sampled at these moments, ascending; None where it has none
    that can be seen.

    The signal is correlated with itself some time later. The time is taken after whole multiples of
    which that is most above what it is half a period before them: so neither two periods nor half
    of one are taken for one. Multiples further away, where the signal is still in step, make it
    more exact.
    """
    at, raw = np.asarray(seconds, np.float64), np.asarray(values, np.float64)
    if len(at) < LEAST_SAMPLES or not np.isfinite(raw).all() or np.ptp(raw) <= 0:
        return None
    apart = np.diff(at)
    gap = float(np.median(apart))
    if not apart.min() > 0 or (at[-1] - at[0]) / gap > MOST_SAMPLES:
        return None
    grid = np.arange(at[0], at[-1], gap)
    signal = np.interp(grid, at, raw)
    if np.ptp(signal) <= 0:
        return None
    alike = _alike(signal - np.polyval(np.polyfit(grid, signal, 1), grid))
    shortest, longest = 2.0 * _renewed(at, raw), len(grid) * gap / LEAST_CYCLES
    if _MARGIN * shortest >= longest:
        return None
    count = int(np.log(longest / (_MARGIN * shortest)) / np.log(_STEP)) + 2
    tried = np.geomspace(_MARGIN * shortest, longest, count)
    comb = _comb(alike, gap, tried, TEETH)
    peaks = [
        at
        for at in range(1, count - 1)
        if comb[at - 1] <= comb[at] > comb[at + 1] and comb[at] >= ALMOST * comb.max()
    ]
    if not peaks or comb.max() < CLEAR:
        return None
    best = peaks[0]
    period = float(tried[best])
    for teeth in (2 * TEETH, 4 * TEETH):
        near = period * np.linspace(1 - 0.3 / teeth, 1 + 0.3 / teeth, 61)
        finer = _comb(alike, gap, near, teeth)
        if teeth * period * 2 > len(grid) * gap or finer.max() < 0.7 * comb[best]:
            break  # the steps are too unlike each other to be in step for so long
        period = float(near[int(finer.argmax())])
    return Period(period, float(comb[best]), shortest)


MOST_SAMPLES: Final = 1 << 20
"""A signal that would have more at its own rate is not looked at."""


def _renewed(at: Floats, raw: Floats) -> float:
    """Seconds from one change of the signal to the next: drivers renew what they say less often
    than one may ask."""
    changes = at[1:][np.diff(raw) != 0]
    return float(np.median(np.diff(changes))) if len(changes) > 1 else np.inf


def _alike(signal: Floats) -> Floats:
    """The correlation of a signal with itself so many samples later, up to half its length."""
    n = len(signal)
    size = 1 << (2 * n - 1).bit_length()
    power = np.abs(np.fft.rfft(signal, size)) ** 2
    lagged = np.fft.irfft(power, size)[: n // 2 + 1] / (n - np.arange(n // 2 + 1))
    return np.asarray(lagged / lagged[0], np.float64)


def _comb(alike: Floats, gap: float, periods: Floats, teeth: int) -> Floats:
    """For each period, the mean over its first multiples of how much more the signal is like itself
    there than half a period before; those beyond what is known are left out."""
    lags = np.arange(len(alike)) * gap
    sums, counts = np.zeros(len(periods)), np.zeros(len(periods))
    for tooth in range(1, teeth + 1):
        known = tooth * periods <= lags[-1]
        higher = np.interp(tooth * periods, lags, alike)
        lower = np.interp((tooth - 0.5) * periods, lags, alike)
        sums += known * (higher - lower) / 2.0
        counts += known
    return np.asarray(sums / np.maximum(counts, 1.0), np.float64)
