"""How wrong the predictors of slow-downs are on measured pairs that they were not trained on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ganger.core.profiles import Profile, Profiles
from ganger.estimate.sharing.interference import fitted
from ganger.estimate.sharing.slowdown import Pair, measured_pairs, predicted, rows_of

FITTED_FOREST: Final = "forest trained on the other pairs"
SYNTHETIC_FOREST: Final = "forest trained on the generator alone"
FITTED: Final = "regression fitted to the other pairs"
PLAIN: Final = "regression with weights of 1"
NOTHING: Final = "no slow-down at all"


class Errors(NamedTuple):
    """Of one predictor: relative errors of the time of a step, over all pairs. `mean`, `median` and
    `ninth`: the mean, the median and the ninth decile of their sizes; `bias`: the mean with sign,
    above 0 where it predicts too long."""

    pairs: int
    mean: float
    median: float
    ninth: float
    bias: float


def errors(profiles: Mapping[str, Profile]) -> dict[str, Errors]:
    """By predictor. Of each model in turn all pairs are held out that it is part of: predictors are
    trained on the others, and asked how long steps of this model take. Empty where there are no
    pairs of models whose use is stated."""
    off: dict[str, list[float]] = {}
    for model in profiles:
        for pair, answers in _answers(profiles, model):
            for name, times in answers.items():
                off.setdefault(name, []).append(times / pair.times - 1.0)
    return {name: summed_up(np.array(each)) for name, each in off.items()}


def summed_up(off: NDArray[np.float64]) -> Errors:
    """Of relative errors with sign, one or more."""
    size = np.abs(off)
    ninth, median = float(np.quantile(size, 0.9)), float(np.median(size))
    return Errors(len(off), float(size.mean()), median, ninth, float(off.mean()))


def _answers(
    profiles: Mapping[str, Profile], model: str
) -> Iterator[tuple[Pair, dict[str, float]]]:
    """The pairs of steps of `model`, and how many times as long each predictor says that they take
    which saw none of the pairs that it is part of."""
    pairs = measured_pairs(profiles)
    names = sorted({name for each in profiles.values() for name in each.utilisation})
    known = {name: each.utilisation for name, each in profiles.items()}
    rows = rows_of([pair for pair in pairs if model not in pair[:2]], known, names)
    others: dict[str, Any] = {name: each for name, each in profiles.items() if name != model}
    weights = fitted(Profiles(others))
    for pair in pairs:
        if pair.model == model:
            ((own, other, _),) = rows_of([pair], known, names)
            products = dict(zip(names, np.multiply(own, other).tolist(), strict=True))
            yield (
                pair,
                {
                    FITTED_FOREST: predicted(rows, own, other),
                    SYNTHETIC_FOREST: predicted((), own, other),
                    FITTED: 1.0 + sum(weights.get(name, 1.0) * products[name] for name in names),
                    PLAIN: 1.0 + sum(products.values()),
                    NOTHING: 1.0,
                },
            )
