"""Random numbers as Python's own generator gives them (a Mersenne Twister), counted.

For the public simulators whose figures hang on them. A count, not a state, goes into a policy's
memory.
"""

from __future__ import annotations

import numpy as np

from ganger.core.view import View


class Draws:
    """The numbers of `random.Random(seed)` from number `count` on."""

    def __init__(self, seed: int, count: int = 0) -> None:
        self._words = np.random.RandomState([seed])
        self.count = count
        self._words.randint(0, 1 << 32, size=count, dtype=np.uint32)

    def below(self, limit: int) -> int:
        """A number from 0 to less than `limit`, as `randrange` and `shuffle` draw it."""
        shift = 32 - limit.bit_length()
        while True:
            self.count += 1
            found = int(self._words.randint(0, 1 << 32, dtype=np.uint32)) >> shift
            if found < limit:
                return found


class _Shuffles:
    """The numbers after so many shuffles that are `done`."""

    __slots__ = ("done", "draws")

    def __init__(self, seed: int) -> None:
        self.begin(seed)

    def begin(self, seed: int) -> None:
        """Before the first shuffle of a run with that seed."""
        self.done, self.draws = 0, Draws(seed + 5)


def shuffle(view: View, number: int, count: int) -> list[int]:
    """The order of `count` things in their shuffle `number` (from 0), as Python's own generator
    gives them when it was seeded with 5 more than the run (Fisher-Yates over a Mersenne Twister).
    """
    kept = view.cached(_Shuffles, view.seed)
    if kept.done > number:
        kept.begin(view.seed)
    order, draws = list(range(count)), kept.draws
    while kept.done <= number:
        order = list(range(count))
        for last in range(count - 1, 0, -1):
            other = draws.below(last + 1)
            order[last], order[other] = order[other], order[last]
        kept.done += 1
    return order
