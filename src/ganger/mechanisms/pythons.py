"""Random numbers as Python's own generator gives them (a Mersenne Twister), counted.

For the public simulators whose figures hang on them. A count, not a state, goes into a policy's
memory.
"""

from __future__ import annotations

import numpy as np


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
