"""Groups of jobs that are alike in one number: K-means on a line."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def groups_of(features: Sequence[float], groups: int) -> list[float]:
    """Centres of at most `groups` groups of numbers, ascending, by K-means; the first centres are
    spread evenly over the numbers."""
    numbers = np.unique(np.asarray(features, np.float64))
    if len(numbers) <= groups:
        return [float(each) for each in numbers]
    centres = numbers[np.linspace(0, len(numbers) - 1, groups).round().astype(np.int64)]
    while True:
        nearest = np.abs(numbers[:, None] - centres).argmin(axis=1)
        moved = np.array(
            [
                numbers[nearest == at].mean() if (nearest == at).any() else centres[at]
                for at in range(groups)
            ]
        )
        if np.array_equal(moved, centres):
            return [float(each) for each in centres]
        centres = moved


def group_of(feature: float, centres: Sequence[float]) -> int:
    """The number of the group with the nearest centre; 0 if there are no groups yet."""
    return min(range(len(centres)), key=lambda at: abs(centres[at] - feature), default=0)
