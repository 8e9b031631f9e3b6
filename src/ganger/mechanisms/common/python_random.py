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


def shuffle(view: View, number: int, count: int) -> list[int]:
    """The order of `count` things in their shuffle `number` (from 0), as Python's own generator
    gives them when it was seeded with 5 more than the run (Fisher-Yates over a Mersenne Twister).
    """
    kept: tuple[int, Draws] | None = view.scratch.get("shuffle")
    at, draws = kept or (0, Draws(view.seed + 5))
    if at > number:
        at, draws = 0, Draws(view.seed + 5)
    order = list(range(count))
    while at <= number:
        order = list(range(count))
        for last in range(count - 1, 0, -1):
            other = draws.below(last + 1)
            order[last], order[other] = order[other], order[last]
        at += 1
    view.scratch["shuffle"] = at, draws
    return order
