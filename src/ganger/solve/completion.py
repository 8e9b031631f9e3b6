"""The cheapest way to have a job done by each slot of time, by dynamic programming."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


class Plans(NamedTuple):
    """The cheapest plan by completion slot. `cost[t]`: of having all work done at the end of slot t
    (infinite where that cannot be); `choice[t, w]`: what is done in slot t in the cheapest plan
    that has w units or more done at its end; -1: nothing."""

    cost: Floats
    choice: Ints
    gains: Ints

    def until(self, slot: int) -> list[int]:
        """What is done in each slot of the cheapest plan that is done at the end of `slot`."""
        units, done = self.choice.shape[1] - 1, list[int]()
        for at in range(slot, -1, -1):
            chosen = int(self.choice[at, units])
            done.append(chosen)
            units = max(units - int(self.gains[chosen]), 0) if chosen >= 0 else units
        return done[::-1]


def cheapest(costs: Floats, gains: Ints, work: int) -> Plans:
    """The cheapest plans for so many units of `work`, at most one choice a slot.

    Shapes: `costs` slots x choices, infinite where a choice is not possible; `gains`: units that a
    choice does in a slot, above 0.
    """
    slots, choices = costs.shape
    best = np.full(work + 1, np.inf)
    best[0] = 0.0
    done, choice = np.empty(slots), np.full((slots, work + 1), -1, np.int64)
    for slot in range(slots):
        after = best.copy()
        for each in range(choices):
            cost = float(costs[slot, each])
            if cost == np.inf:
                continue
            gain = min(int(gains[each]), work)
            moved = np.concatenate([np.full(gain, best[0]), best[: work + 1 - gain]]) + cost
            better = moved < after
            after[better] = moved[better]
            choice[slot, better] = each
        best = after
        done[slot] = best[work]
    return Plans(done, choice, gains)
