"""Distributions of times in constant memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ganger.lab.serving.windows.stored import Times

I64 = NDArray[np.int64]
EXACT: Final = 1 << 22
"""Up to so many latencies are kept one by one."""
_FINE: Final = 1000.0
"""Bins for each factor of e, once there are more: a quantile is then true to 0.1 %."""
_BINS: Final = 45_000


class Latencies:
    """A distribution of microseconds in constant memory; exact up to so many."""

    def __init__(self, exact: int = EXACT) -> None:
        self._exact = exact
        self.count, self.total = 0, 0.0
        self._kept: list[I64] = []
        self._bins: NDArray[np.float64] | None = None

    def add(self, values: I64) -> None:
        """Add some; none is negative."""
        self.count += len(values)
        self.total += int(values.sum())
        self._kept.append(values)
        if self._bins is not None or self.count > self._exact:
            self._fold()

    def join(self, other: Latencies) -> None:
        """Add all of another distribution."""
        self.count += other.count
        self.total += other.total
        self._kept += other._kept
        if other._bins is not None:
            bins = self._folded()
            bins += other._bins
        elif self._bins is not None or self.count > self._exact:
            self._fold()

    def add_like(self, other: Latencies, count: int) -> None:
        """Add so many that are distributed as those of another, which has some."""
        self.count += count
        self.total += other.mean * count
        bins = self._folded()
        bins += other._folded() * (count / other.count)

    def stored(self) -> Times:
        """As plain data, in bins."""
        bins = self._folded() if self.count else np.zeros(0)
        used = np.flatnonzero(bins)
        return Times(self.count, self.total, used.tolist(), bins[used].tolist())

    def restore(self, stored: Times) -> None:
        """Become what was stored. Raises ValueError where that is none."""
        at, counts = np.array(stored.bins, np.int64), np.array(stored.counts, np.float64)
        if len(at) != len(counts) or (at < 0).any() or (at >= _BINS).any():
            raise ValueError("bins")
        self.count, self.total = stored.count, stored.total
        if stored.count:
            self._bins = np.zeros(_BINS)
            self._bins[at] = counts

    def _folded(self) -> NDArray[np.float64]:
        self._fold()
        assert self._bins is not None, "it was just made"
        return self._bins

    def _fold(self) -> None:
        if self._bins is None:
            self._bins = np.zeros(_BINS)
        for values in self._kept:
            at = (np.log(np.maximum(values, 1)) * _FINE).astype(np.int64)
            self._bins += np.bincount(at, minlength=len(self._bins))
        self._kept.clear()

    @property
    def mean(self) -> float:
        """Microseconds; nan if there are none."""
        return self.total / self.count if self.count else float("nan")

    def quantiles(self, shares: Sequence[float]) -> list[float]:
        """The smallest latency that so great a share does not exceed; nan if there are none."""
        if not self.count:
            return [float("nan")] * len(shares)
        ranks = [max(int(np.ceil(share * self.count - 1e-9)), 1) for share in shares]
        if self._bins is None:
            every = np.sort(np.concatenate(self._kept))
            return [float(every[rank - 1]) for rank in ranks]
        upto = self._bins.cumsum()
        at = np.searchsorted(upto, np.minimum(ranks, upto[-1]))
        return [float(np.exp((int(each) + 0.5) / _FINE)) for each in at]
