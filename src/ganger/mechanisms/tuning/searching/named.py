"""Searchers by name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from ganger.core.errors import BadInput
from ganger.core.tuning.searcher import Searcher
from ganger.core.tuning.space import Point, Space
from ganger.mechanisms.tuning.searching.kde import Densities
from ganger.mechanisms.tuning.searching.model_free import Listed, QuasiRandom, Uniform
from ganger.mechanisms.tuning.searching.samplers import SAMPLERS, Sampled

_ENDLESS: Final[dict[str, Callable[[Space, int], Searcher]]] = {
    "random": Uniform,
    "quasi-random": QuasiRandom,
    "kde": Densities,
    **{name: partial(Sampled, name) for name in SAMPLERS},
}
LEARNING: Final = ("kde", *SAMPLERS)
"""The searchers that learn from what trials report."""
SEARCHERS: Final = (*_ENDLESS, "grid", "points")
"""The names that `searcher_of` knows."""


def searcher_of(name: str, space: Space, points: Sequence[Point], seed: int) -> Searcher:
    """The searcher of that name. All others than `points` propose the points given first. Raises
    BadInput."""
    if name == "points":
        return Listed(points)
    if name == "grid":
        return Listed([*points, *(each for each in space.grid() if each not in points)])
    if name not in _ENDLESS:
        raise BadInput(
            f"there is no searcher {name!r}", where="searcher", mend=f"use {', '.join(SEARCHERS)}"
        )
    searcher = _ENDLESS[name](space, seed)
    return Listed(points, searcher) if points else searcher


def count_of(name: str, space: Space, points: Sequence[Point]) -> int | None:
    """How many points the searcher has; None for as many as are wanted. Raises BadInput."""
    if name == "points":
        return len(points)
    if name == "grid":
        grid = space.grid()
        return len(grid) + sum(point not in grid for point in points)
    return None
