"""How likely a model answers in time at a load: found before, by a queue with its latencies."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from heapq import heapreplace
from typing import Final

import numpy as np
from msgspec import Struct

from ganger.core.units import SECOND

_LOADS: Final = (0.05, 0.2, 0.35, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.1, 1.3, 1.6, 2.5)
"""Of what all lanes can do with full batches."""
_COUNT: Final = 3000
"""Requests for each load. They begin with an empty queue: past what the lanes can do, ever fewer
are in time the longer it lasts."""


class OnTime(Struct, frozen=True):
    """The part of requests that are answered in time, at some rates (requests a second)."""

    rates: tuple[float, ...]
    parts: tuple[float, ...]

    @classmethod
    def of(cls, lanes: Sequence[Sequence[int]], slack: int) -> OnTime:
        """For lanes that take whatever waits, with these microseconds by batch; requests have
        `slack` microseconds, and come as a Poisson process."""
        most = sum(
            max((n * SECOND / mean[n] for n in range(1, len(mean))), default=0.0) for mean in lanes
        )
        gaps = np.random.default_rng(0).exponential(1.0, _COUNT).cumsum()
        rates, parts = [], []
        for load in _LOADS:
            rate = load * most
            rates.append(rate)
            parts.append(_part(lanes, (gaps * (SECOND / rate)).tolist(), slack))
        parts = np.minimum.accumulate(parts).tolist()  # more load helps nobody
        return cls(tuple(rates), tuple(parts))

    def at(self, rate: float) -> float:
        """At any rate: between those that were tried; beyond the last, what the lanes can still
        do is shared by more."""
        rates, parts = self.rates, self.parts
        if rate >= rates[-1]:
            return parts[-1] * rates[-1] / rate
        above = bisect_left(rates, rate)
        if not above:
            return parts[0]
        low, high = rates[above - 1], rates[above]
        part = (rate - low) / (high - low)
        return parts[above - 1] * (1 - part) + parts[above] * part


def _part(lanes: Sequence[Sequence[int]], arrivals: Sequence[float], slack: int) -> float:
    """The part that is in time, if a lane that is free takes all that wait."""
    pairs = zip(ends_of(lanes, arrivals), arrivals, strict=True)
    return sum(end - came <= slack for end, came in pairs) / len(arrivals)


def ends_of(lanes: Sequence[Sequence[float]], arrivals: Sequence[float]) -> list[float]:
    """When requests that come at these times, which rise, are over, if a lane that is free takes
    all that wait up to the largest batch of which it has the time; by lane, that of batches of 0,
    1, 2, ..."""
    free = [(0.0, at) for at in range(len(lanes))]
    first, times = 0, list[float]()
    while first < len(arrivals):
        at, lane = free[0]
        mean = lanes[lane]
        begins = max(at, arrivals[first])
        last = first
        while last < len(arrivals) and arrivals[last] <= begins and last - first < len(mean) - 1:
            last += 1
        ends = begins + mean[last - first]
        times += [ends] * (last - first)
        heapreplace(free, (ends, lane))
        first = last
    return times
