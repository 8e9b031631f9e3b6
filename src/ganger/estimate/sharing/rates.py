"""How a GPU's time is divided where each job on it has a request and a limit, and what rate
controllers make of that. Parts are of the device's time: 1 is all of it.

The simulator takes what is true from here, and recipes what they believe.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Final, NamedTuple

STEP_TIME: Final = "step-time"
ARRIVAL_RATE: Final = "arrival-rate"
"""What cuts the rate of a job without a request: as in AntMan, as in TGS."""
HOST_MIB_PER_SECOND: Final = 15_750 * 1e6 / 2**20
"""Between the memory of a device and that of the host: PCIe 3.0 x16, by its standard."""
FIRST: Final = 0.01
"""The part at which a launch rate begins that is not known yet."""
KEPT: Final = 0.03
FAR: Final = 0.09
"""TGS (NSDI 2023): by so much the production job may be slower; by so much is it far too slow."""
GROWTH: Final = 1.5
STEP: Final = 0.00025
CUT: Final = 0.92
RESET: Final = 10.0
"""TGS: the factor of the slow start; what is added later, in parts of the device; the factor of a
cut; what the rate is divided by where the production job is far too slow."""
PERIODS_MAX: Final = 10_000
"""So many periods of a controller are followed; it is taken to stay as it was on average."""


class Tenant(NamedTuple):
    """A job on a device: the part of its time that the job uses alone, what it is guaranteed of
    that, and the most that it may have."""

    demand: float
    request: float = 0.0
    limit: float = 1.0

    @property
    def cap(self) -> float:
        """What it takes where there is enough."""
        return min(self.demand, self.limit)


def divide(tenants: Sequence[Tenant]) -> tuple[float, ...]:
    """The part of each: what it requests and can use, and of the rest as much as brings those
    with the least to one level. Requests of more than the whole device count in proportion."""
    floors = [min(each.request, each.cap) for each in tenants]
    asked = sum(floors)
    if asked >= 1.0:
        return tuple(floor / asked for floor in floors)
    if sum(each.cap for each in tenants) <= 1.0:
        return tuple(each.cap for each in tenants)
    tops = [each.cap for each in tenants]

    def at(level: float) -> list[float]:
        return [min(max(level, f), t) for f, t in zip(floors, tops, strict=True)]

    below, above = next(
        pair for pair in pairwise(sorted({*floors, *tops})) if sum(at(pair[1])) >= 1.0
    )
    rising = sum(floor <= below and top >= above for floor, top in zip(floors, tops, strict=True))
    return tuple(at(below + (1.0 - sum(at(below))) / rising))


class Launches(NamedTuple):
    """How TGS' controller stands: the part of a device's time for which the opportunistic job may
    launch, whether it is in its slow start, and whether the rate has just grown by a step."""

    rate: float
    slow: bool = True
    grew: bool = False

    def after(self, deviation: float, ceiling: float = 1.0) -> Launches:
        """After a period in which the production job lost the part `deviation` of its speed, where
        the opportunistic one asks for `ceiling`."""
        if deviation <= KEPT:
            grown = self.rate * GROWTH if self.slow else self.rate + STEP
            return Launches(min(grown, ceiling), self.slow, not self.slow)
        if deviation >= FAR:
            return Launches(self.rate / RESET)
        return Launches(self.rate / GROWTH if self.slow else self.rate * CUT, False)


class Settling(NamedTuple):
    """What a production job and the one beside it have: (the parts of both) on average over the
    first `periods` of the controller, and from then on."""

    periods: int
    before: tuple[float, float]
    after: tuple[float, float]


@lru_cache(maxsize=100_000)
def settling(production: float, demand: float, begin: float) -> Settling:
    """TGS' controller where a production job uses the part `production` alone, an opportunistic one
    `demand`, and the latter's rate begins at `begin`.

    A period in which the production job has at least 97 % of its speed lets the rate grow: by the
    slow start, later by a step. Else the rate is what it was before it last grew so and the slow
    start is over, or it is cut; where the production job is far too slow, it is divided and starts
    slowly again. A device that is asked for more than it has serves in proportion to the rates.
    In the end the rate goes up and down for ever, or it is all that the job asks for. Where it
    starts slowly again and again, it has no time to settle, and has what it has on average.
    """
    now = Launches(min(begin, demand))
    served: list[tuple[float, float]] = []
    cuts: list[int] = []
    while len(cuts) < 2 and len(served) < PERIODS_MAX:
        asked = max(production + now.rate, 1.0)
        deviation, parts = 1.0 - 1.0 / asked, (production / asked, now.rate / asked)
        if deviation <= KEPT and now.rate >= demand:
            return Settling(len(served), _mean(served) if served else parts, parts)
        served.append(parts)
        if KEPT < deviation < FAR and now.grew:
            cuts.append(len(served))
        now = now.after(deviation, demand)
    first = cuts[0] if cuts else 0
    return Settling(first, _mean(served[:first] or served), _mean(served[first:] or served))


def _mean(served: Sequence[tuple[float, float]]) -> tuple[float, float]:
    return sum(each[0] for each in served) / len(served), sum(e[1] for e in served) / len(served)
