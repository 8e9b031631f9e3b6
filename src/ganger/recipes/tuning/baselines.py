"""How the trials of a search share what it holds: baselines."""

from __future__ import annotations

from typing import Annotated, TypeAlias

from ganger.core.protocols import Policy
from ganger.mechanisms.tuning.halving import Mode, SuccessiveHalving
from ganger.recipes.parameters import Within
from ganger.recipes.registry import Count, Paper, Positive, recipe

Eta: TypeAlias = Annotated[int, Within(2, 100)]
"""One in so many goes on."""

HALVING = Paper(
    "Non-stochastic Best Arm Identification and Hyperparameter Optimization",
    "Jamieson and Talwalkar",
    "AISTATS",
    2016,
    "best metric",
)


@recipe(HALVING, name="tune.sha")
def sha(
    trials: Count = 27, eta: Eta = 3, first: Positive = 1.0, mode: Mode = Mode.MIN, gpus: Count = 1
) -> Policy:
    """Successive halving: all trials train for `first` epochs, the best one in `eta` goes on to
    `eta` times as many, and so on; the last one trains to its end.

    A search with fewer children than `trials` gets as many more, each on `gpus` GPUs. `mode`:
    whether a reported loss should be small, or an accuracy large.
    """
    return SuccessiveHalving("tune.sha", trials, eta, first, mode, gpus)
