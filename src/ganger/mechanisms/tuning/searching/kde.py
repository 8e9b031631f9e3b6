"""The searcher of BOHB (Falkner et al., ICML 2018): two densities, of good and of bad points."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from ganger.core.tuning.space import Point, Space

GOOD: Final = 0.15
"""The part of the points that is good."""
RANDOM: Final = 1 / 3
"""The part of proposals that are random."""
CANDIDATES: Final = 64
WIDER: Final = 3.0
"""Candidates are drawn from the density of good points with bandwidths so much wider."""
NARROWEST: Final = 1e-3


class Densities:
    """Proposes, of some candidates that resemble good points, the one for which the density of good
    points is highest in relation to that of bad ones. It looks at what trials reported at the
    highest epoch at which enough did; before any has, and for one proposal in three, it draws at
    random. The constants are the paper's; a parameter that does not matter in a point lies in the
    middle of its scale."""

    def __init__(self, space: Space, seed: int) -> None:
        self._space = space
        self._rng = np.random.default_rng([seed, 0xB0B])
        self._width = len(space.parameters)
        self._choices = np.array(
            [
                len(parameter.values) if parameter.type == "choice" else 0
                for parameter in space.parameters.values()
            ]
        )
        self._heard: dict[float, tuple[list[list[float]], list[float]]] = {}
        """By epoch: the points of which something was reported then, and how bad they were."""

    def ask(self) -> Point:
        """The next point."""
        heard = self._enough()
        if heard is None or self._rng.random() < RANDOM:
            return self._space.point(self._rng.random(self._width).tolist())
        points, bad = heard
        order = np.argsort(bad, kind="stable")
        least = self._width + 1
        good = points[order[: max(least, int(GOOD * len(bad)))]]
        rest = points[order[-max(least, len(bad) - int(GOOD * len(bad))) :]]
        drawn = self._draw(good)
        ratio = self._log_density(drawn, good) - self._log_density(drawn, rest)
        return self._space.point(drawn[int(np.argmax(ratio))].tolist())

    def took(self, point: Point) -> None:
        """Reports say it."""

    def tell(self, point: Point, epoch: float, badness: float) -> None:
        """A trial reported."""
        points, bad = self._heard.setdefault(epoch, ([], []))
        points.append(self._space.units(point))
        bad.append(np.inf if np.isnan(badness) else badness)

    def _enough(self) -> tuple[NDArray[np.float64], NDArray[np.float64]] | None:
        """What was reported at the highest epoch at which two points more than one per dimension
        and one were."""
        for epoch in sorted(self._heard, reverse=True):
            points, bad = self._heard[epoch]
            if len(bad) >= self._width + 3:
                return np.array(points), np.array(bad)
        return None

    def _bandwidths(self, points: NDArray[np.float64]) -> NDArray[np.float64]:
        """The normal reference rule, per dimension."""
        scale = 1.06 * points.std(axis=0) * len(points) ** (-1.0 / (4 + self._width))
        return np.asarray(np.maximum(scale, NARROWEST))

    def _draw(self, good: NDArray[np.float64]) -> NDArray[np.float64]:
        """Candidates around good points, inside the unit cube; a choice is another one at times."""
        rng, widths = self._rng, self._bandwidths(good) * WIDER
        centres = good[rng.integers(len(good), size=CANDIDATES)]
        drawn = rng.normal(centres, widths)
        outside = (drawn < 0) | (drawn >= 1)
        drawn = np.where(outside, rng.random(drawn.shape), drawn)
        other = rng.random(drawn.shape) < np.minimum(widths, 1.0)
        chosen = np.where(other, rng.random(drawn.shape), centres)
        return np.where(self._choices > 0, chosen, drawn)

    def _log_density(
        self, at: NDArray[np.float64], points: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        """The logarithm of the density of `points` at some places: a product kernel, normal for
        numbers and Aitchison-Aitken for choices."""
        widths = self._bandwidths(points)
        apart = at[:, None, :] - points[None, :, :]
        normal = -0.5 * (apart / widths) ** 2 - np.log(widths)
        counts = np.maximum(self._choices, 2)
        stays = 1.0 - np.minimum(widths, (counts - 1) / counts)
        same = np.floor(at[:, None, :] * counts) == np.floor(points[None, :, :] * counts)
        choice = np.log(np.where(same, stays, (1.0 - stays) / (counts - 1)))
        each = np.where(self._choices > 0, choice, normal).sum(axis=2)
        highest = each.max(axis=1, keepdims=True)
        return np.asarray(highest[:, 0] + np.log(np.exp(each - highest).sum(axis=1)))
