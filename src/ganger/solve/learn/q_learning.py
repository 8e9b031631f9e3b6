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
