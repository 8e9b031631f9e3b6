"""How far a simulation is, by the work that it has simulated."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Final

import numpy as np

from ganger.core.kernel import Kernel
from ganger.core.state.jobs import Phase
from ganger.core.units import NEVER
from ganger.workloads.trace import Trace

EVERY_SECONDS: Final = 0.1
COST_MAX: Final = 0.02
"""The part of a run's CPU time that may go into looking how far it is."""

BY_SERVICE: Final = 0.1


class Ticker:
    """A journal that reports now and then which share of a run is done: the mean over its jobs of
    the part of each job's work that is done. Jobs count nearly alike, whatever their size, since a
    simulation takes most steps per job; the part `BY_SERVICE` of the weight goes by GPU-time, for
    the steps that recipes take by the clock while GPUs are held. A run that ends at `until` is as
    far as the simulated time, if that is further. The share never falls."""

    def __init__(
        self, kernel: Kernel, trace: Trace, until: int, tell: Callable[[float], None]
    ) -> None:
        self._kernel, self._until, self._tell = kernel, until, tell
        self._rows = np.flatnonzero(trace.duration[: trace.jobs] < NEVER)
        self._takes = np.maximum(trace.duration[self._rows], 1).astype(np.float64)
        service = self._takes * np.maximum(trace.declared.gpus[self._rows], 1)
        alike = (1 - BY_SERVICE) / max(len(self._rows), 1)
        self._weight = alike + BY_SERVICE * service / max(service.sum(), 1.0)
        self._last, self._due = 0.0, 0.0

    def append(self, *step: Any) -> None:
        """After a step: report, if it is time."""
        now = time.monotonic()
        if now < self._due:
            return
        began = time.thread_time()
        self._last = max(self._last, self.share())
        self._tell(self._last)
        spent = time.thread_time() - began  # a thread that had to wait has spent nothing
        self._due = time.monotonic() + max(EVERY_SECONDS, spent / COST_MAX)

    def share(self) -> float:
        """Which share is done."""
        jobs, rows, now = self._kernel.jobs, self._rows, self._kernel.now
        timed = now / self._until if self._until < NEVER else 0.0
        if not len(rows):
            return timed
        phase = jobs.phase[rows]
        lasting = (now - jobs.since[rows]) * (phase == Phase.RUNNING)
        done = np.minimum((jobs.work[rows] + lasting * jobs.rate[rows]) / self._takes, 1.0)
        done[phase >= Phase.FINISHED] = 1.0
        return max(min(float(done @ self._weight), 1.0), timed)
