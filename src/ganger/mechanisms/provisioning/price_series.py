"""Prices that change with time: what something costs from one moment to another."""

from __future__ import annotations

from bisect import bisect_right

import numpy as np
from numpy.typing import NDArray

from ganger.core.units import HOUR

Floats = NDArray[np.float64]


class PriceSeries:
    """An hourly price by time: (microseconds, price) pairs, ascending, each until the next; the
    first holds before it."""

    def __init__(self, series: tuple[tuple[int, float], ...]) -> None:
        self._at = np.array([0, *(when for when, _ in series[1:])], np.float64)
        self._price = np.array([price for _, price in series])
        spent = np.cumsum(np.diff(self._at) * self._price[:-1])
        self._paid = np.concatenate(([0.0], spent))
        self._moments: list[int] = [0, *(when for when, _ in series[1:])]
        self._each: list[float] = self._price.tolist()
        self._sums: list[float] = self._paid.tolist()

    def until(self, time: NDArray[np.int64]) -> Floats:
        """What an hourly price sums up to from 0 to each time (microseconds)."""
        which = np.searchsorted(self._at, time, "right") - 1
        return np.asarray(
            (self._paid[which] + (time - self._at[which]) * self._price[which]) / HOUR, np.float64
        )

    def paid(self, since: int, until: int) -> float:
        """What an hourly price sums up to between two moments."""
        return (self._sum(until) - self._sum(since)) / HOUR

    def _sum(self, time: int) -> float:
        which = bisect_right(self._moments, time) - 1
        return self._sums[which] + (time - self._moments[which]) * self._each[which]

    def at(self, time: int) -> float:
        """The price of an hour at a moment."""
        return self._each[max(bisect_right(self._moments, time) - 1, 0)]


def billed_until(since: int, until: int, per: int) -> int:
    """Up to when something is paid for that was had from `since` to `until`, in whole multiples of
    `per` microseconds."""
    return since + -(-(until - since) // per) * per
