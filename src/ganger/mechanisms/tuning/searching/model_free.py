"""Searchers that do not listen: random, a grid, and points that fill the space evenly."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from ganger.core.errors import BadInput
from ganger.core.tuning.searcher import Searcher
from ganger.core.tuning.space import Point, Space

_BLOCK = 256
"""Points of a sequence that are made at once."""


class Uniform:
    """Independent points, each parameter evenly on its scale."""

    def __init__(self, space: Space, seed: int) -> None:
        self._space, self._rng = space, np.random.default_rng([seed, 0x5EA2C4])

    def ask(self) -> Point:
        """The next point."""
        return self._space.point(self._rng.random(len(self._space.parameters)).tolist())

    def took(self, point: Point) -> None:
        """Nothing is learnt."""

    def tell(self, point: Point, epoch: float, badness: float) -> None:
        """Nothing is learnt."""


class Listed:
    """Points in the order given, and then those of another searcher."""

    def __init__(self, points: Sequence[Point], then: Searcher | None = None) -> None:
        self._points, self._then, self._next = points, then, 0
        self._listed = True

    def ask(self) -> Point:
        """The next point. Raises BadInput if there is none."""
        if self._next < len(self._points):
            self._next += 1
            return self._points[self._next - 1]
        if self._then is None:
            raise BadInput(
                f"it has only {len(self._points)} points",
                where="searcher",
                mend="set `trials` to that or lower",
            )
        self._listed = False
        return self._then.ask()

    def took(self, point: Point) -> None:
        """Of the other searcher's proposal."""
        if self._then is not None and not self._listed:
            self._then.took(point)

    def tell(self, point: Point, epoch: float, badness: float) -> None:
        """The searcher that comes afterwards may learn from it."""
        if self._then is not None:
            self._then.tell(point, epoch, badness)


class QuasiRandom:
    """A Halton sequence, scrambled by the seed (Owen, 2017; scipy's): any number of first points
    fills the space more evenly than random ones."""

    def __init__(self, space: Space, seed: int) -> None:
        self._space, self._units = space, _halton(len(space.parameters), seed)

    def ask(self) -> Point:
        """The next point."""
        return self._space.point(next(self._units))

    def took(self, point: Point) -> None:
        """Nothing is learnt."""

    def tell(self, point: Point, epoch: float, badness: float) -> None:
        """Nothing is learnt."""


def _halton(width: int, seed: int) -> Iterator[list[float]]:
    from scipy.stats.qmc import Halton  # takes a second to import

    sequence = Halton(width, seed=np.random.default_rng([seed, 0x4A170]))
    while True:
        yield from sequence.random(_BLOCK).tolist()
