"""How a service, or a version of it, does: what is counted, and the latest latencies."""

from __future__ import annotations

from collections import deque
from typing import Final

import numpy as np

_LATEST: Final = 10_000
"""Latencies that are kept."""


class Counts:
    """Counts since the front began. Latencies are in seconds, from the first byte of a request on;
    errors have none."""

    def __init__(self) -> None:
        self.arrivals = self.answers = self.errors = self.dropped = 0
        self._latest: deque[float] = deque(maxlen=_LATEST)
        self._recent: deque[float] = deque(maxlen=_LATEST)
        """Those since they were told last."""

    def arrived(self) -> None:
        """A request has come."""
        self.arrivals += 1

    def answered(self, seconds: float, *, bad: bool) -> None:
        """One is over."""
        self.answers += 1
        if bad:
            self.errors += 1
        else:
            self._latest.append(seconds)
            self._recent.append(seconds)

    def quantile(self, part: float) -> float:
        """A quantile of the latest latencies, 0 where there is none."""
        return float(np.quantile(self._latest, part)) if self._latest else 0.0

    def since_told(self) -> tuple[float, float]:
        """The median and the 99th percentile of what came since this was asked last; 0: nothing."""
        some, self._recent = self._recent, deque(maxlen=_LATEST)
        if not some:
            return 0.0, 0.0
        p50, p99 = np.quantile(some, (0.5, 0.99))
        return float(p50), float(p99)
