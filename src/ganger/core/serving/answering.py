"""What answering requests with a model takes, as recipes for services know it: as files state it or
`ganger profile` measured it."""

from __future__ import annotations

from math import exp, log, sqrt
from typing import Final

import msgspec

_Z95: Final = 1.6448536269514722
_Z99: Final = 2.3263478740408408
"""Of which 95 and 99 in 100 standard normal numbers are smaller."""
_THOUSANDTH: Final = 1e-3


def sigma_of(ratio: float) -> float:
    """Of the lognormal whose 99th percentile is so many times its mean. (The ratio cannot be more
    than exp(z^2 / 2), about 15.)"""
    limit = exp(_Z99 * _Z99 / 2)
    return _Z99 - sqrt(_Z99 * _Z99 - 2 * log(min(max(ratio, 1.0), limit)))


class BatchTimes(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Seconds of batches of 1, 2, 3, ... inputs on a `share` of a device: the mean, and the 99th
    percentile."""

    mean: tuple[float, ...]
    p99: tuple[float, ...]
    share: float = 1.0

    @property
    def rates(self) -> list[float]:
        """Inputs a second in batches of 1, 2, 3, ... inputs, one batch after another."""
        return [size / took for size, took in enumerate(self.mean, 1)]

    @property
    def p95_alone(self) -> float:
        """Seconds that 95 in 100 batches of one input take at most: of the lognormal distribution
        that has the mean and the 99th percentile."""
        sigma = sigma_of(self.p99[0] / self.mean[0])
        return self.mean[0] * exp(_Z95 * sigma - sigma * sigma / 2)


class Step(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A stage of a pipeline: the `model` that runs, and the stages that it `feeds`, by number, with
    how many items it hands them for each of its own, on average. A stage comes after those that
    feed it."""

    model: str
    feeds: tuple[tuple[int, float], ...] = ()


class Answering(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`times`: by GPU type, of each share on which the model was measured; `load`: seconds until a
    replica that has started answers; `accuracy`: None where not known; `stages`: of a pipeline,
    which has none of these of its own."""

    times: dict[str, tuple[BatchTimes, ...]] = {}
    load: float = 0.0
    accuracy: float | None = None
    stages: tuple[Step, ...] = ()

    def on(self, gpu_type: str, share: float = 1.0) -> BatchTimes | None:
        """Of a share of that type (to a thousandth); None where nobody measured it."""
        near = (
            each
            for each in self.times.get(gpu_type, ())
            if abs(each.share - share) < _THOUSANDTH / 2
        )
        return next(near, None)
