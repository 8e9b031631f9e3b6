"""What a trial will report later, from what it has reported: a weighted mean of many shapes that
learning curves have, each fitted by least squares.

After Domhan et al., IJCAI 2015, which HyperDrive uses; but the shapes are compared on a grid, and
by their errors, and not sampled by MCMC, so that an answer takes a millisecond and is the same
every time.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Any, Final

import msgspec
import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from ganger.core.errors import BadInput

Floats = NDArray[np.floating[Any]]

POINTS_LEAST: Final = 4
"""A shape has two coefficients, and its error must be seen."""
MEMORY: Final = 12.0
"""A report counts 1/e of one that comes so many reports later."""
NOISE: Final = 0.1
"""The least error of a shape, in terms of what the curve changes from a report to the next."""
DRIFT: Final = 0.9
"""The standard deviation by which a curve leaves every shape while the epochs double, in terms of
what the later half of its reports has changed. Chosen on nine of the tasks of LCBench
(`benchmarks/extrapolation.py`)."""


@cache
def _rates() -> tuple[tuple[str, float, float], ...]:
    """The shapes: family, exponent and scale (epochs)."""
    powers, scales = (0.25, 0.5, 1.0, 2.0), (1.0, 3.0, 10.0, 30.0, 100.0)
    return (
        *(("power", power, 0.0) for power in (0.1, 0.3, 0.5, 0.75, 1.0, 1.5, 2.0)),
        *(("hill", power, scale) for power in (1.0, 2.0, 4.0) for scale in scales),
        *(("weibull", power, scale) for power in (0.5, 1.0, 2.0) for scale in scales),
        *(("logarithm", power, scale) for power in powers for scale in (2.0, 10.0)),
        ("flat", 0.0, 0.0),
    )


def _shapes(epochs: Floats) -> Floats:
    """Each shape after so many epochs, a row each, from 1 towards 0."""
    rows = []
    for family, power, scale in _rates():
        if family == "power":
            rows.append(epochs**-power)
        elif family == "hill":
            rows.append(1.0 / (1.0 + (epochs / scale) ** power))
        elif family == "weibull":
            rows.append(np.exp(-((epochs / scale) ** power)))
        elif family == "logarithm":
            rows.append((1.0 + np.log1p(epochs / scale)) ** -power)
        else:
            rows.append(np.zeros_like(epochs))
    return np.array(rows)


class Extrapolation(msgspec.Struct, frozen=True):
    """What a trial may report later: by shape its weight, limit, height and error; `drift`: by how
    much a curve may leave its shape while the epochs double; `last`: epochs reported."""

    weights: list[float]
    limits: list[float]
    heights: list[float]
    errors: list[float]
    drift: float
    last: float

    def at(self, epoch: float) -> tuple[Floats, Floats]:
        """By shape what is expected after so many epochs, and its standard deviation."""
        shapes = _shapes(np.array([float(epoch)]))[:, 0]
        means = np.array(self.limits) + np.array(self.heights) * shapes
        drift = self.drift * math.log2(max(epoch / self.last, 1.0))
        return means, np.sqrt(np.array(self.errors) ** 2 + drift**2)

    def below(self, value: float, epoch: float) -> float:
        """The probability that it reports less than `value` after so many epochs."""
        means, deviations = self.at(epoch)
        return float(np.array(self.weights) @ ndtr((value - means) / deviations))

    def quantile(self, part: float, epoch: float) -> float:
        """The value below which it is with probability `part`."""
        means, deviations = self.at(epoch)
        low = float((means - 10 * deviations).min())
        high = float((means + 10 * deviations).max())
        for _ in range(60):
            middle = (low + high) / 2
            low, high = (middle, high) if self.below(middle, epoch) < part else (low, middle)
        return (low + high) / 2


def extrapolate(epochs: Any, values: Any) -> Extrapolation:
    """From reports after `epochs` (ascending, above 0). Raises BadInput below four."""
    x, y = np.asarray(epochs, np.float64), np.asarray(values, np.float64)
    count = len(x)
    if count < POINTS_LEAST:
        raise BadInput(f"{count} reports", mend="a curve needs four")
    recent = np.exp((np.arange(count) - count + 1.0) / MEMORY)
    total = float(recent.sum())
    shapes = _shapes(x)
    middle = shapes @ recent / total
    mean = float(y @ recent) / total
    apart = shapes - middle[:, None]
    spread = apart**2 @ recent
    heights = np.where(spread > 1e-12, apart @ (recent * (y - mean)) / np.maximum(spread, 1e-12), 0)
    limits = mean - heights * middle
    off = y - limits[:, None] - heights[:, None] * shapes
    steps = np.abs(np.diff(y))
    lately = float(steps @ recent[1:]) / float(recent[1:].sum())
    floor = 1e-9 * max(float(np.abs(y).max()), 1e-9) + NOISE * lately
    errors = np.sqrt(off**2 @ recent / max(total - 2.0, 1.0) + floor**2)
    logs = -total * np.log(errors)
    weights = np.exp(logs - logs.max())
    weights /= weights.sum()
    drift = DRIFT * abs(float(y[-1] - y[-1 - max(count // 2, 2)]))
    return Extrapolation(
        weights.tolist(), limits.tolist(), heights.tolist(), errors.tolist(), drift, float(x[-1])
    )
