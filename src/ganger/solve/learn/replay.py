"""Steps that were taken, kept to learn from again: those that surprised most the most often."""

from __future__ import annotations

from typing import Any

import numpy as np

from ganger.solve.learn.losses import Ints
from ganger.solve.learn.nets import Floats


class Replay:
    """The last `capacity` steps, in arrays that the first step gives their shapes. A step is drawn
    by the power `focus` of its surprise, 0: all alike (Schaul et al., ICLR 2016)."""

    def __init__(self, capacity: int, focus: float = 0.6) -> None:
        self.capacity, self.focus = capacity, focus
        self.steps = 0
        """How many were ever kept."""
        self._columns = list[Floats]()
        self._chance = np.zeros(capacity)

    def __len__(self) -> int:
        return min(self.steps, self.capacity)

    def keep(self, *step: Any) -> None:
        """Keep one step: a tuple of arrays or numbers of the same shapes each time. It counts as
        the greatest surprise so far, so that it is soon looked at."""
        if not self._columns:
            cells = [np.asarray(each) for each in step]
            self._columns = [np.zeros((self.capacity, *each.shape), each.dtype) for each in cells]
        at = self.steps % self.capacity
        for column, cell in zip(self._columns, step, strict=True):
            column[at] = cell
        self._chance[at] = float(self._chance[: len(self)].max(initial=0.0)) or 1.0
        self.steps += 1

    def draw(self, count: int, rng: np.random.Generator) -> tuple[Ints, Floats, list[Floats]]:
        """So many steps, some perhaps twice: where they are kept; how much each should count, so
        that all together count as if drawn alike, at most 1; and their columns."""
        chance = self._chance[: len(self)] / self._chance[: len(self)].sum()
        at = rng.choice(len(self), size=count, p=chance)
        counts = 1.0 / (len(self) * chance[at])
        return at, counts / counts.max(), [column[at] for column in self._columns]

    def surprise(self, at: Ints, by: Floats) -> None:
        """Steps were looked at, and were off by so much."""
        self._chance[at] = (np.abs(by) + 1e-3) ** self.focus
