"""BARISTA's provisioning: forecast one set-up time ahead, and take the one type that is cheapest.

Bhattacharjee et al.: BARISTA: Efficient and Scalable Serverless Serving System for Deep Learning
Prediction Services, IC2E 2019.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil, floor

from ganger.core.units import SECOND
from ganger.estimate.forecast import Forecaster
from ganger.mechanisms.scaling.fleets import Course, Instance, Outlook


def cheapest(requests: float, slo: float, instances: Sequence[Instance]) -> tuple[str, int] | None:
    """The type of which the replicas that serve so many requests within one SLO (seconds) cost
    least together, and how many: each serves as many as it can one after another within an SLO.
    None where none can."""
    options = []
    for each in instances:
        serves = floor(slo / each.times.p95_alone + _NOTHING)
        if serves:
            count = max(ceil(requests / serves - _NOTHING), 1)
            options.append((count > each.places, count * each.price, each.gpu_type, count))
    if not options:
        return None
    _, _, gpu_type, count = min(options)
    return gpu_type, count


_NOTHING = 1e-9
_FARTHEST = 10_000
"""Intervals; no forecast reaches further."""


@dataclass(frozen=True)
class Barista:
    """See the module. The forecast is corrected by the mean of how far the last `errors` were off,
    as parts of what had been forecast. A replica is asked for the longer of `ahead` microseconds
    and the time that it loads before it is needed."""

    forecaster: Forecaster
    interval: int
    ahead: int
    errors: int
    piece: float = 0.0
    staged: bool = False

    def plan(self, outlook: Outlook, course: Course) -> Mapping[str, int]:
        """Replicas of one type."""
        steps = self._steps(outlook)
        expected = self.forecaster.ahead(outlook.rates, steps)
        factor = self._factor(outlook.rates, course.guesses)
        course.guesses = [*course.guesses, float(expected[0])][-self.errors - 1 :]
        rate = factor * float(expected.max())
        options = cheapest(rate * outlook.slo, outlook.slo, outlook.instances)
        return course.wanted if options is None else dict((options,))

    def _steps(self, outlook: Outlook) -> int:
        """Intervals that end before replicas that are asked for next time could answer."""
        ready = max(self.ahead, round(outlook.load * SECOND))
        return min(1 + ceil(ready / self.interval), _FARTHEST)

    def _factor(self, rates: Sequence[float], guesses: Sequence[float]) -> float:
        """By how much what came was above what had been forecast for it one interval before."""
        count = min(len(guesses), len(rates), self.errors)
        pairs = zip(rates[len(rates) - count :], guesses[len(guesses) - count :], strict=True)
        off = [came / guess for came, guess in pairs if guess > 0]
        return min(max(sum(off) / len(off), 0.5), 2.0) if off else 1.0
