"""The searcher proposes the configurations of trials. The recipe judges them and divides GPUs."""

from __future__ import annotations

from typing import Protocol

from ganger.core.tuning.space import Point


class Searcher(Protocol):
    """Proposes points of a space. Outside of decisions: what it proposes comes as Accepted trials,
    so that a log replays without it."""

    def ask(self) -> Point:
        """The next point."""
        ...

    def took(self, point: Point) -> None:
        """The trial of what was proposed last has this point: a curve table has only some points,
        and texts have six digits."""
        ...

    def tell(self, point: Point, epoch: float, badness: float) -> None:
        """A trial of `point` reported after `epoch` epochs; the less bad the better, NaN: it broke
        down."""
        ...
