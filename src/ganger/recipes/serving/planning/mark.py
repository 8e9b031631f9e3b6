"""MArk's controller: forecast, cover what is uncovered at the least cost a request, release what is
dearest.

Zhang et al.: MArk: Exploiting Cloud Services for Cost-Effective, SLO-Aware Machine Learning
Inference Serving, USENIX ATC 2019.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from ganger.core.serving.answering import BatchTimes
from ganger.core.units import SECOND
from ganger.estimate.forecast import Forecaster, Naive
from ganger.mechanisms.scaling.fleets import Course, Instance, Outlook


@lru_cache(1024)
def capacity(times: BatchTimes, slo: float) -> tuple[int, float]:
    """The batch of a replica that has all the requests that it can serve, and how many that is a
    second: the largest with which waiting for it to fill and 99 in 100 of its runs end within
    the SLO (seconds), and which beats one request at a time. (0, 0.0) where none does."""
    best, rate = 0, 0.0
    for size, (mean, p99) in enumerate(zip(times.mean, times.p99, strict=True), 1):
        fills = mean * (size - 1) / size
        if fills + p99 <= slo and size / mean > rate:
            best, rate = size, size / mean
    return best, rate


def covered(
    demand: float,
    rates: Mapping[str, float],
    prices: Mapping[str, float],
    places: Mapping[str, int],
    have: Mapping[str, int],
    launch: float,
    span: float,
) -> dict[str, int]:
    """Replicas by type that serve `demand` requests a second for `span` seconds: to those that
    there are, again and again that of which a request costs least is added, where a launch costs as
    much as `launch` seconds."""
    plan = dict(have)
    while (gap := demand - sum(rates[each] * n for each, n in plan.items())) > _NOTHING:
        able = [each for each in rates if rates[each] > 0 and plan.get(each, 0) < places[each]]
        if not able:
            break
        best = min(
            able,
            key=lambda each: (
                prices[each] * (span + launch) / (min(rates[each], gap) * span),
                each,
            ),
        )
        plan[best] = plan.get(best, 0) + 1
    return plan


_NOTHING = 1e-9


def released(
    demand: float, rates: Mapping[str, float], prices: Mapping[str, float], have: Mapping[str, int]
) -> dict[str, int]:
    """What is left of the replicas where those go, one after another, of which a request that they
    serve costs most, as long as the others serve `demand`; none serves more than that."""
    plan = dict(have)

    def dear(each: str) -> tuple[float, str]:
        return prices[each] / max(min(rates[each], demand), _NOTHING), each

    while True:
        spare = sum(rates[each] * n for each, n in plan.items()) - demand
        able = [each for each, n in plan.items() if n and rates[each] <= spare + _NOTHING]
        if not able:
            return {each: n for each, n in plan.items() if n}
        plan[max(able, key=dear)] -= 1


@dataclass(frozen=True)
class Mark:
    """See the module. `steps` intervals are forecast, and `room` times that is provided for; a
    launch costs as much as `launch` microseconds. Replicas go down to the most that the last
    `calm` plans wanted, and none is launched for `cool` intervals after those that were, unless
    what there is falls short now. The forecaster is believed after `warm` intervals."""

    forecaster: Forecaster
    interval: int
    steps: int
    room: float
    launch: int
    cool: int
    calm: int
    warm: int
    piece: float = 5.0
    staged: bool = False

    def plan(self, outlook: Outlook, course: Course) -> Mapping[str, int]:
        """Replicas by type."""
        rates = {each.gpu_type: capacity(each.times, outlook.slo)[1] for each in outlook.instances}
        prices = {each.gpu_type: each.price for each in outlook.instances}
        expected = self.room * self._forecast(outlook.rates)
        have = {each: n for each, n in course.wanted.items() if rates.get(each)}
        plan = self._add(outlook.instances, rates, prices, have, expected)
        spared = released(float(expected.max()), rates, prices, plan)
        course.plans = [*course.plans, spared][-self.calm :]
        kept = {each: max(old.get(each, 0) for old in course.plans) for each in plan}
        now = {each: min(plan[each], max(kept[each], spared.get(each, 0))) for each in plan}
        cooling = outlook.now - course.changed < self.cool * self.interval
        short = self.room * outlook.rates[-1] > sum(rates[each] * n for each, n in have.items())
        if cooling and not short:
            return {each: min(count, have.get(each, 0)) for each, count in now.items()}
        return now

    def _forecast(self, rates: Sequence[float]) -> NDArray[np.float64]:
        forecaster = self.forecaster if len(rates) >= self.warm else Naive()
        return forecaster.ahead(rates, self.steps)

    def _add(
        self,
        instances: Sequence[Instance],
        rates: Mapping[str, float],
        prices: Mapping[str, float],
        have: Mapping[str, int],
        expected: NDArray[np.float64],
    ) -> dict[str, int]:
        """Cover the forecast from its first step on that is not covered; `span` is how long it is
        above what there is from there on."""
        plan, places = dict(have), {each.gpu_type: each.places for each in instances}
        step = 0
        while True:
            supply = sum(rates[each] * n for each, n in plan.items())
            short = np.flatnonzero(expected[step:] > supply + _NOTHING)
            if not len(short):
                return plan
            step += int(short[0])
            above = np.flatnonzero(expected[step:] <= supply)
            long = int(above[0]) if len(above) else self.steps - step
            span = long * self.interval / SECOND
            plan = covered(
                float(expected[step]), rates, prices, places, plan, self.launch / SECOND, span
            )
            step += 1
