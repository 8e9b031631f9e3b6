"""A table of what actions are worth in states, learned from what came of them: Q-learning.

Values follow rewards by Bellman's equation. Time passes between a decision and the next one, so a
later value counts less the later it comes (a semi-Markov process: Bradtke and Duff, NIPS 1994).
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np


class QTable(msgspec.Struct):
    """Values by state and action. `start`: of an action that was never taken; `trials`: how often
    which action was taken in which state."""

    start: list[float]
    values: dict[str, list[float]] = {}
    trials: dict[str, list[int]] = {}

    def value(self, state: str, action: int) -> float:
        """What the action is worth there."""
        return self.values.get(state, self.start)[action]

    def best(self, state: str, actions: Sequence[int]) -> int:
        """The action with the highest value of those that are possible; of equals the first."""
        return max(actions, key=lambda action: self.value(state, action))

    def choose(
        self, state: str, actions: Sequence[int], epsilon: float, rng: np.random.Generator
    ) -> int:
        """The best action, or with a chance of `epsilon` any of those that are possible. The chance
        falls with the square root of how often the state was met."""
        met = sum(self.trials.get(state, ()))
        if len(actions) > 1 and rng.random() < epsilon / (1.0 + met) ** 0.5:
            return actions[int(rng.integers(len(actions)))]
        return self.best(state, actions)

    def learn(self, state: str, action: int, outcome: float, rate: float) -> None:
        """Move the value towards `outcome`: by all at first, then by less, at least by `rate`."""
        values = self.values.setdefault(state, list(self.start))
        trials = self.trials.setdefault(state, [0] * len(self.start))
        trials[action] += 1
        step = max(rate, 1.0 / trials[action])
        values[action] += step * (outcome - values[action])


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
