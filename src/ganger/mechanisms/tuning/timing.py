"""How long the trials of a search take to begin, as its recipe observes."""

from __future__ import annotations

from collections.abc import Container, Iterable

import msgspec
import numpy as np

from ganger.core.view import View

SAMPLES_MAX = 100
"""So many starts are remembered, the last ones."""


class Timing(msgspec.Struct, frozen=True):
    """When the present attempt of each trial was ordered, how often it has reported since, and how
    long it took (microseconds) until trials computed."""

    begun: dict[int, int] = {}
    reports: dict[int, int] = {}
    startups: tuple[int, ...] = ()

    def ordered(self, jobs: Iterable[int], now: int, *, anew: bool = False) -> Timing:
        """With the trials that begin now; `anew`: also those that have begun before."""
        new = [job for job in jobs if anew or job not in self.begun]
        if not new:
            return self
        begun, reports = {**self.begun, **dict.fromkeys(new, now)}, dict(self.reports)
        for job in new:
            reports.pop(job, None)
        return Timing(begun, reports, self.startups)

    def reported(self, view: View, job: int) -> Timing:
        """With one more report of a trial; the first one after a start says how long that took."""
        count, startups = self.reports.get(job, 0), self.startups
        if not count and job in self.begun:
            took = max(int(view.jobs.began[job]) - self.begun[job], 0)
            startups = (*startups, took)[-SAMPLES_MAX:]
        return Timing(self.begun, {**self.reports, job: count + 1}, startups)

    def among(self, jobs: Container[int]) -> Timing:
        """Without those that compute no more."""
        if all(job in jobs for job in self.begun):
            return self
        begun, reports = (
            {job: value for job, value in each.items() if job in jobs}
            for each in (self.begun, self.reports)
        )
        return Timing(begun, reports, self.startups)

    @property
    def startup(self) -> float:
        """How long nine of ten starts took at most, microseconds; 0 before the first."""
        return float(np.percentile(self.startups, 90)) if self.startups else 0.0
