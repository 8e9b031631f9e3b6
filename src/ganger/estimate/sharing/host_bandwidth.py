"""How jobs on one node divide the bandwidth of its memory, where each has to wait for it.

A memory controller serves accesses as they come. So where all together want more than there is,
every access takes the same factor longer, the `stretch`. A job that waits for memory in the part b
of its time is then 1 - b + b x stretch times as slow. Slower jobs move less, and the stretch is the
one at which what they move is what there is. A throttle (as Intel's memory bandwidth allocation)
holds a job to a limit of its own. The simulator takes what is true from here, and recipes what they
believe.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Final, NamedTuple

_STEPS: Final = 60
"""Halvings of the interval in which the stretch lies: to the last digits of a double."""


class HostUser(NamedTuple):
    """A job on a node: GB/s that it moves there if nothing holds it back, the part of its time in
    which it waits for them, and the most GB/s that it may move."""

    demand: float
    bound: float
    limit: float = math.inf

    def speed(self, stretch: float) -> float:
        """What is left of its speed where accesses take `stretch` times as long."""
        waiting = 1.0 / (1.0 - self.bound + self.bound * stretch)
        return min(waiting, self.limit / self.demand) if self.demand > self.limit else waiting


@lru_cache(maxsize=4096)
def stretch(users: tuple[HostUser, ...], capacity: float) -> float:
    """How many times as long accesses take where `users` share `capacity` GB/s; at least 1."""
    if _moved(users, 1.0) <= capacity:
        return 1.0
    low, high = 1.0, 2.0
    while _moved(users, high) > capacity:
        low, high = high, 2.0 * high
    for _ in range(_STEPS):
        middle = (low + high) / 2.0
        low, high = (middle, high) if _moved(users, middle) > capacity else (low, middle)
    return high


def _moved(users: Sequence[HostUser], stretched: float) -> float:
    """GB/s that all move together."""
    return sum(user.demand * user.speed(stretched) for user in users)
