"""How many servers answer in time: requests that any free one of n takes, which runs one at a time.

The times of service are lognormal, the time of waiting is that of M/G/n: what Erlang's C says of
M/M/n, stretched by the spread of service (Lee and Longton: Queueing processes associated with
airline passenger check-in, Operational Research Quarterly 1959).
"""

from __future__ import annotations

from collections.abc import Sequence
from math import exp, inf
from statistics import NormalDist
from typing import NamedTuple

from ganger.core.serving.answering import sigma_of

_PIECES = 64
_NORMALS = [NormalDist().inv_cdf((at + 0.5) / _PIECES) for at in range(_PIECES)]


class Requests(NamedTuple):
    """A kind of requests: its weight among all, mean and 99th percentile of what one takes, and how
    long it may take to be answered; all in seconds."""

    weight: float
    mean: float
    p99: float
    slack: float = inf

    @property
    def sigma(self) -> float:
        """Of the lognormal: it cannot be that of a larger ratio than about 15."""
        return sigma_of(self.p99 / self.mean)


class Service:
    """What serving these kinds of requests is like."""

    def __init__(self, kinds: Sequence[Requests]) -> None:
        whole = sum(kind.weight for kind in kinds)
        self.mean = sum(kind.weight * kind.mean for kind in kinds) / whole
        square = sum(kind.weight * kind.mean**2 * exp(kind.sigma**2) for kind in kinds) / whole
        self.stretch = square / self.mean**2 / 2
        """(1 + squared coefficient of variation) / 2."""
        self._left: list[tuple[float, float]] = []
        """What is left for waiting, and how often."""
        for kind in kinds:
            for normal in _NORMALS:
                took = kind.mean * exp(kind.sigma * normal - kind.sigma**2 / 2)
                if took <= kind.slack:
                    self._left.append((kind.slack - took, kind.weight / whole / _PIECES))

    def in_time(self, rate: float, servers: int) -> float:
        """The part of requests that are in time where `rate` come a second; 0 if they are more than
        can be served."""
        load = rate * self.mean
        if load >= servers:
            return 0.0
        lost = 1.0
        for count in range(1, servers + 1):
            lost = load * lost / (count + load * lost)
        waits = lost / (1 - load / servers * (1 - lost))
        fast = (servers - load) / self.mean / self.stretch
        return sum(often * (1 - waits * exp(-fast * left)) for left, often in self._left)

    def servers(self, rate: float, part: float, most: int) -> int:
        """The fewest, 1 to `most`, with which the part `part` is in time; where service alone takes
        too long for that, of those that could be."""
        best = sum(often for _, often in self._left)
        goal = (part if part < best else part * best) - 1e-9
        low, high = 1, most
        while low < high:
            middle = (low + high) // 2
            low, high = (low, middle) if self.in_time(rate, middle) >= goal else (middle + 1, high)
        return low
