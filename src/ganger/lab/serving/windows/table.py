"""A table of windows: by what their requests are like, how those fared, with intervals.

Windows that are alike share an entry. It is measured on as many of them as its own intervals need
(means of batches that follow each other), and then stands for the others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import isfinite
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ganger.core.units import SECOND
from ganger.lab.metrics import confidence
from ganger.lab.serving.tally import Tally
from ganger.lab.serving.windows.look import Look
from ganger.lab.serving.windows.stored import StoredEntry, StoredLook

I64 = NDArray[np.int64]
Flags = NDArray[np.bool_]
LEAST: Final = 20_000
"""Requests on which an entry is measured at least; with 2,000, attainment is often off by more
than a point."""
MOST: Final = 1_000_000
"""After so many an entry that has not converged never will."""
POINT, P50, P99 = 0.005, 0.025, 0.075
"""Half of the 95 % interval of an entry that has converged, at most: of attainment, and of the
quantiles as a part of themselves. A half of what a run by windows may be off."""
_BLOCK: Final = 1000
"""Requests that follow each other, of which the quantiles are taken."""
_BATCHES: Final = 20
"""Means of so many parts of the blocks give the intervals."""


@dataclass
class Entry:
    """Windows that are like `look`. `tally`: of those that were run for it; `read`: how many
    windows, and requests, it stands for."""

    look: Look
    tally: Tally
    run: int = 0
    read: int = 0
    known: int = 0
    """Requests that were run for it in runs before, where the table was stored."""
    requests_read: int = 0
    _blocks: list[tuple[float, float, float]] = field(default_factory=list)
    _waiting: list[tuple[I64, Flags, Flags]] = field(default_factory=list)
    _have: int = 0

    @property
    def spent(self) -> bool:
        """It was run for as long as an entry is."""
        return self.tally.requests >= MOST

    def add(self, latency: I64, answered: Flags, in_time: Flags) -> None:
        """What became of some requests that follow each other."""
        self._waiting.append((latency, answered, in_time))
        self._have += len(latency)
        if self._have < _BLOCK:
            return
        columns = [np.concatenate(each) for each in zip(*self._waiting, strict=True)]
        whole = self._have // _BLOCK * _BLOCK
        for begin in range(0, whole, _BLOCK):
            took, answers, good = (each[begin : begin + _BLOCK] for each in columns)
            took = np.sort(took[answers])
            p50, p99 = (
                float(took[int(np.ceil(share * len(took))) - 1]) if len(took) else np.nan
                for share in (0.5, 0.99)
            )
            self._blocks.append((float(good.mean()), p50, p99))
        self._waiting = [(columns[0][whole:], columns[1][whole:], columns[2][whole:])]
        self._have -= whole

    def intervals(self) -> dict[str, tuple[float, float]]:
        """Means of the blocks and half of their 95 % intervals: of attainment and of the quantiles
        in seconds. Infinitely wide where there are too few; no quantiles where nothing was
        answered."""
        values: dict[str, tuple[float, float]] = {}
        names = ("attainment", "latency_p50_seconds", "latency_p99_seconds")
        for name, column in zip(names, np.array(self._blocks).reshape(-1, 3).T, strict=True):
            known = column[np.isfinite(column)] / (1 if name == "attainment" else SECOND)
            if not len(known) and name != "attainment":
                continue
            if len(known) < _BATCHES:
                values[name] = float("nan"), float("inf")
                continue
            means = np.array([part.mean() for part in np.array_split(known, _BATCHES)])
            values[name] = float(known.mean()), confidence(means).half_width
        return values

    @property
    def converged(self) -> bool:
        """Whether its intervals are narrow enough to stand for other windows."""
        if self.tally.requests < LEAST:
            return False
        intervals = self.intervals()
        if intervals["attainment"][1] > POINT:
            return False
        limits = {"latency_p50_seconds": P50, "latency_p99_seconds": P99}
        return all(
            intervals[name][1] <= limit * intervals[name][0]
            for name, limit in limits.items()
            if name in intervals
        )

    def stored(self, names: Sequence[str]) -> StoredEntry:
        """As plain data, for a file; `names` by the code of what is asked for."""
        look = self.look
        work = {names[code]: part for code, part in enumerate(look.work.tolist()) if part}
        plain = StoredLook(
            look.count, look.rate, work, look.gap_cv, look.dispersion, dict(look.sizes)
        )
        return StoredEntry(plain, self.tally.stored(), self._blocks)

    @classmethod
    def restored(
        cls,
        stored: StoredEntry,
        tally: Tally,
        model: Callable[[str], int],
        tenant: Callable[[str], int],
    ) -> Entry:
        """The entry of a file, over an empty tally; `model` and `tenant` give codes. Raises
        ValueError where it cannot be one of this run."""
        codes = {model(name): part for name, part in stored.look.work.items()}
        work = np.zeros(max(codes, default=-1) + 1)
        work[list(codes)] = list(codes.values())
        tally.restore(stored.counts, tenant)
        plain = stored.look
        look = Look(plain.count, plain.rate, work, plain.gap_cv, plain.dispersion, plain.sizes)
        return cls(look, tally, known=tally.requests, _blocks=stored.blocks)

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        intervals = {
            each: value if isfinite(value) else None
            for name, (mean, half) in self.intervals().items()
            for each, value in ((name, mean), (f"{name}_half_width", half))
        }
        return {
            "requests_per_second": self.look.rate,
            "gap_cv": self.look.gap_cv,
            "dispersion": self.look.dispersion,
            "windows_run": self.run,
            "windows_read": self.read,
            "requests_run": self.tally.requests - self.known,
            "requests_known": self.known,
            "converged": self.converged,
            **intervals,
        }


class Table:
    """Entries, the most alike first found."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []

    def find(self, look: Look) -> Entry | None:
        """The entry that a window is most like; None where it is like none."""
        near = [(entry.look.distance(look), at) for at, entry in enumerate(self.entries)]
        distance, at = min(near, default=(2.0, -1))
        return self.entries[at] if distance <= 1 else None
