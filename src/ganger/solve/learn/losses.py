"""What is made small when a policy is taught: each a loss, and its slope by the net's output.

Rows are steps. `mask` says which choices were possible; the slope of the others is 0.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ganger.solve.learn.nets import Floats, Mask, log_chances

Ints = NDArray[np.int64]


def imitation(scores: Floats, mask: Mask, chosen: Ints) -> tuple[float, Floats]:
    """How improbable the choices of a teacher are: their mean cross entropy."""
    return policy_gradient(scores, mask, chosen, np.ones(len(chosen)), 0.0)


def policy_gradient(
    scores: Floats, mask: Mask, chosen: Ints, advantage: Floats, entropy: float
) -> tuple[float, Floats]:
    """The loss of an actor: choices that did better than expected, by `advantage`, are to become
    likelier (Williams, Machine Learning 1992). `entropy`: how much it is worth to stay
    undecided."""
    rows = np.arange(len(chosen))
    logs = log_chances(scores, mask)
    chances = np.exp(logs)
    undecided = -(chances * np.where(mask, logs, 0.0)).sum(axis=1)
    loss = -(advantage * logs[rows, chosen]).mean() - entropy * undecided.mean()
    slope = chances * advantage[:, None]
    slope[rows, chosen] -= advantage
    slope += entropy * chances * (np.where(mask, logs, 0.0) + undecided[:, None])
    return float(loss), np.where(mask, slope, 0.0) / len(chosen)


def squares(values: Floats, wanted: Floats) -> tuple[float, Floats]:
    """The loss of a critic: half the mean square of what its `values` are off."""
    off = values - wanted
    return float(0.5 * (off * off).mean()), off / len(off)


def returns(rewards: Floats, gaps: Floats, after: float, discount: float) -> Floats:
    """What each step is worth: its reward and, less by `discount` for each unit of time of its
    `gaps` that passes until the next step, what follows; `after` follows the last one."""
    worths, worth = np.empty(len(rewards)), after
    for at in range(len(rewards) - 1, -1, -1):
        worth = rewards[at] + discount ** gaps[at] * worth
        worths[at] = worth
    return worths


def q_error(values: Floats, chosen: Ints, wanted: Floats) -> tuple[float, Floats]:
    """As `squares`, of the value of what was chosen only; errors above 1 count in proportion
    (Mnih et al., Nature 2015)."""
    rows = np.arange(len(chosen))
    off = values[rows, chosen] - wanted
    small = np.abs(off) <= 1.0
    loss = np.where(small, 0.5 * off * off, np.abs(off) - 0.5).mean()
    slope = np.zeros_like(values)
    slope[rows, chosen] = np.clip(off, -1.0, 1.0) / len(off)
    return float(loss), slope


def q_wanted(
    rewards: Floats, discounts: Floats, ahead: Floats, judged: Floats, mask: Mask
) -> Floats:
    """What values should be by Bellman's equation: the reward and, less by `discounts` (0 at the
    end), what the best choice of the next state is worth. The net that learns says which is best
    (`ahead`), an older copy what it is worth (`judged`) (van Hasselt et al., AAAI 2016)."""
    at = log_chances(ahead, mask).argmax(axis=1)
    wanted: Floats = rewards + discounts * judged[np.arange(len(at)), at]
    return wanted
