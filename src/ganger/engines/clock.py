"""The live clock: microseconds that never run back, whatever happens to the wall clock."""

from __future__ import annotations

import time

from ganger.core.units import SECOND


class Clock:
    """Microseconds since the Unix epoch as the wall clock showed when this was made, or since
    `last` if that is later (the time of the last batch of the owner's journal); monotonic from then
    on."""

    def __init__(self, last: int = 0) -> None:
        self._offset = max(last, time.time_ns() // 1000) - time.monotonic_ns() // 1000

    def now(self) -> int:
        """The time."""
        return time.monotonic_ns() // 1000 + self._offset

    @property
    def ahead(self) -> int:
        """By how much the wall clock is ahead, microseconds: somebody may have set it."""
        return time.time_ns() // 1000 - self.now()

    def seconds_until(self, at: int) -> float:
        """Seconds from now until `at`, 0 if that is past."""
        return max(at - self.now(), 0) / SECOND
