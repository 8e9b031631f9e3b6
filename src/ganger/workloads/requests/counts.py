"""Counts per window become arrivals: as many as counted, at seeded times inside the window.

Given how many arrivals a Poisson process has in a window, their times are independent and uniform
in it (Cinlar, Introduction to Stochastic Processes, 1975, section 4.1). `even` spreads them evenly
instead, from a random phase. The same seed gives the same arrivals, however the counts come.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ganger.core.errors import BadInput
from ganger.workloads.requests.columns import I32, I64, Chunk
from ganger.workloads.requests.processes import stream
from ganger.workloads.rows import Count

MOST: Final = Count(0, 10_000_000)
"""Requests of one model in one window."""
_REQUESTS = 1 << 16
SPREADS: Final = ("uniform", "even")


@dataclass(frozen=True)
class Windows:
    """Counts of some windows, sorted by window: `window` its number, `count` how many requests to
    `model` of `tenant` came in it."""

    window: I64
    count: I64
    model: I32
    tenant: I32 | None = None

    def take(self, rows: slice | NDArray[Any]) -> Windows:
        """Some of the rows."""
        tenant = None if self.tenant is None else self.tenant[rows]
        return Windows(self.window[rows], self.count[rows], self.model[rows], tenant)


@dataclass(frozen=True)
class Spread:
    """How counts become arrivals: `seed`, `how` (one of SPREADS), and `scale`, by which counts are
    multiplied; parts of a request come or not at random."""

    seed: int = 0
    how: str = "uniform"
    scale: float = 1.0

    @classmethod
    def of(cls, seed: object, arrivals: object, scale: object) -> Spread:
        """From options as users type them. Raises BadInput."""
        if arrivals not in SPREADS:
            raise BadInput(
                f"{arrivals!r}", where="option arrivals", mend="use " + " or ".join(SPREADS)
            )
        return cls(whole(seed, "seed"), str(arrivals), positive(scale, "scale"))

    def arrivals(self, counted: Iterable[Windows], width: int) -> Iterator[Chunk]:
        """The requests, in order; `width`: of a window, in microseconds."""
        times, parts = stream(self.seed, "times"), stream(self.seed, "parts")
        for windows in counted:
            if self.scale != 1.0:
                wanted = windows.count * self.scale
                rounded = np.floor(wanted + parts.random(len(wanted))).astype(np.int64)
                windows = Windows(windows.window, rounded, windows.model, windows.tenant)
            for some in _portions(windows.take(windows.count > 0)):
                yield self._placed(some, width, times)

    def _placed(self, some: Windows, width: int, times: np.random.Generator) -> Chunk:
        count = some.count
        if self.how == "uniform":
            inside = times.random(int(count.sum()))
        else:
            nth = np.arange(int(count.sum())) - np.repeat(np.cumsum(count) - count, count)
            inside = (nth + np.repeat(times.random(len(count)), count)) / np.repeat(count, count)
        at = np.repeat(some.window, count) * width + (inside * width).astype(np.int64)
        order = np.argsort(at, kind="stable")
        tenant = None if some.tenant is None else np.repeat(some.tenant, count)[order]
        return Chunk(at[order], np.repeat(some.model, count)[order], tenant=tenant)


def _portions(windows: Windows) -> Iterator[Windows]:
    """Whole windows, some 65,536 requests at a time."""
    total = np.cumsum(windows.count)
    begin = 0
    while begin < len(total):
        before = int(total[begin - 1]) if begin else 0
        end = int(np.searchsorted(total, before + _REQUESTS)) + 1
        if end < len(total):  # a window is not cut
            end = int(np.searchsorted(windows.window, windows.window[end - 1], side="right"))
        yield windows.take(slice(begin, end))
        begin = end


def whole(value: object, name: str) -> int:
    """An option that is a whole number from 0 on. Raises BadInput."""
    if isinstance(value, int | float) and value % 1 == 0 and 0 <= value < 1 << 53:
        return int(value)
    raise BadInput(f"{value!r}", where=f"option {name}", mend="give a whole number from 0 on")


def positive(value: object, name: str, least: float = 1e-9) -> float:
    """An option that is a number above 0. Raises BadInput."""
    if isinstance(value, int | float) and least <= value <= 1e9:
        return float(value)
    raise BadInput(f"{value!r}", where=f"option {name}", mend=f"give {least:g} to 1e9")
