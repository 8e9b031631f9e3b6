"""Refused starts: reported at once the first time, then later and later, so that an owner that asks
again and again does not spin."""

from __future__ import annotations

import time
from heapq import heapify, heappop, heappush
from math import inf
from typing import Final

from ganger.core.events import Refused

_SECONDS_MAX: Final = 60


class Refusals:
    """The refusals that are not reported yet."""

    def __init__(self) -> None:
        self._waiting: list[tuple[float, int, Refused]] = []
        self._times: dict[int, int] = {}

    @property
    def due(self) -> float:
        """When the next one is to be reported (monotonic seconds)."""
        return self._waiting[0][0] if self._waiting else inf

    def add(self, job: int, attempt: int, why: str) -> None:
        """Refuse a start."""
        times = self._times[job] = self._times.get(job, 0) + 1
        wait = min(2.0 ** (times - 2), _SECONDS_MAX) if times > 1 else 0.0
        heappush(self._waiting, (time.monotonic() + wait, job, Refused(job, attempt, why)))

    def told(self) -> list[Refused]:
        """Those that are due: they are reported now."""
        found, now = [], time.monotonic()
        while self.due <= now:
            found.append(heappop(self._waiting)[2])
        return found

    def withdraw(self, key: tuple[int, int]) -> bool:
        """Do not tell that one; whether there was one."""
        kept = [one for one in self._waiting if (one[2].job, one[2].attempt) != key]
        found = len(kept) < len(self._waiting)
        heapify(kept)
        self._waiting = kept
        return found

    def keys(self) -> set[tuple[int, int]]:
        """The attempts that are to be refused."""
        return {(one.job, one.attempt) for _, _, one in self._waiting}

    def forgive(self, job: int) -> None:
        """It started: its next refusal is a first one."""
        self._times.pop(job, None)
