"""Which machines to rent for a job: what can be rented, and the choice by time and by money."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from math import ceil, inf
from typing import NamedTuple, TypeAlias

from ganger.core.profiles import Profile
from ganger.core.units import HOUR, SECOND
from ganger.mechanisms.provisioning.instances import Instance
from ganger.mechanisms.provisioning.price_series import billed_until

Free: TypeAlias = tuple[Instance, int]
"""A kind of machine, and how many of it nobody holds."""


class Rental(NamedTuple):
    """`machines` of a kind for the `gpus` workers of a job, one on each GPU, and `servers` machines
    of another kind for its parameters; how long the job takes (seconds)."""

    instance: Instance
    machines: int
    gpus: int
    seconds: float
    server: Instance | None = None
    servers: int = 0

    def __str__(self) -> str:
        servers = f" and {self.servers} x {self.server} for parameters" if self.server else ""
        return f"{self.machines} x {self.instance}{servers}"

    @property
    def parts(self) -> list[tuple[Instance, int]]:
        """Its machines by kind, each kind once."""
        if self.server is None:
            return [(self.instance, self.machines)]
        if self.server.first == self.instance.first:
            return [(self.instance, self.machines + self.servers)]
        return [(self.instance, self.machines), (self.server, self.servers)]

    def hourly(self, at: int) -> float:
        """USD for an hour at the prices of a moment."""
        return sum(many * each.price(at) for each, many in self.parts)

    def expected(self, at: int) -> float:
        """USD for all of the job, if it begins now and prices stay as they are; inf where it cannot
        run."""
        if self.seconds == inf:
            return inf
        lasts = round(self.seconds * SECOND)
        paid = (
            many * each.price(at) * billed_until(0, lasts, each.offer.per)
            for each, many in self.parts
        )
        return sum(paid) / HOUR


class Goal(NamedTuple):
    """In how many seconds a job is to be done, and how many USD it may cost."""

    seconds: float = inf
    dollars: float = inf

    def met(self, seconds: float, dollars: float) -> bool:
        """Whether both are kept, but for rounding."""
        return seconds <= self.seconds * (1 + 1e-9) and dollars <= self.dollars * (1 + 1e-9)


class Valued(NamedTuple):
    """A rental, and what it takes and costs by somebody's reckoning."""

    rental: Rental
    seconds: float
    dollars: float


class Answer(NamedTuple):
    """The rental to take, None where none meets the goal. Then `fastest` takes the least time of
    those within the budget, and `cheapest` costs the least of those that are done in time; None
    where there is no such."""

    pick: Valued | None
    fastest: Valued | None
    cheapest: Valued | None

    @property
    def nearest(self) -> Valued | None:
        """What to take, or what comes nearest: what costs too much if it is done in time, and else
        what is within the budget."""
        return self.pick or self.cheapest or self.fastest


def decide(valued: Iterable[Valued], goal: Goal) -> Answer:
    """The cheapest that meets the goal, or where only money is limited the fastest; of equals the
    one on fewer machines, then the first."""
    every = [each for each in valued if each.seconds < inf and each.dollars < inf]
    hurried = goal.seconds == inf and goal.dollars < inf
    good = [each for each in every if goal.met(each.seconds, each.dollars)]
    if good:
        return Answer(min(good, key=_by_time if hurried else _by_money), None, None)
    paid = [each for each in every if goal.met(0.0, each.dollars)]
    timely = [each for each in every if goal.met(each.seconds, 0.0)]
    if not paid and not timely:  # neither can be kept: the fastest and the cheapest of all
        paid = timely = every
    fastest = min(paid, key=_by_time, default=None)
    return Answer(None, fastest, min(timely, key=_by_money, default=None))


def _by_money(each: Valued) -> tuple[float, int, float]:
    return _rounded(each.dollars), each.rental.machines + each.rental.servers, each.seconds


def _by_time(each: Valued) -> tuple[float, float, int]:
    return _rounded(each.seconds), each.dollars, each.rental.machines + each.rental.servers


def _rounded(value: float) -> float:
    """Sums that differ by rounding alone are equal."""
    return float(f"{value:.8g}")


def widths(least: int, limit: int, per_machine: int, machines: int) -> list[int]:
    """Numbers of GPUs from `least` to `limit` on at most so many machines: within one machine each,
    beyond that whole machines, or all that the job can use; of many some, in about equal ratios."""
    widest = min(limit, machines * per_machine)
    if widest < least or least < 1:
        return []
    within = range(least, min(widest, per_machine) + 1)
    beyond = range(max(ceil(least / per_machine), 2) * per_machine, widest + 1, per_machine)
    every = sorted({*within, *beyond, least, widest})
    if len(every) <= SIZES:
        return every
    ratio = len(every) ** (1.0 / (SIZES - 1))
    return sorted({every[min(round(ratio**at), len(every)) - 1] for at in range(SIZES)})


SIZES = 32
"""So many sizes of a job are looked at on one kind of machine."""

Speed: TypeAlias = Callable[[Instance, int, int], float]
"""The speed of a job on so many GPUs of so many machines of a kind, 1 as asked for on the reference
type; 0 where it cannot run."""


class Demand(NamedTuple):
    """A job for which machines are to be rented. `seconds`: what it takes on the GPUs `asked` for,
    of the reference type; `least` and `limit`: how many GPUs it can use."""

    asked: int
    least: int
    limit: int
    seconds: float
    profile: Profile
    speed: Speed

    def takes(self, instance: Instance, gpus: int, machines: int) -> float:
        """Seconds on so many GPUs of a kind of machine; inf where it cannot run."""
        speed = self.speed(instance, gpus, machines)
        return self.seconds / speed if speed > 0 else inf

    @property
    def served(self) -> bool:
        """Whether its parameters lie on servers."""
        return self.profile.steps is not None and self.profile.steps.servers > 0


def rentals(free: Iterable[Free], demand: Demand) -> Iterator[Rental]:
    """All that a job could rent, on machines of one kind; its parameters lie where its workers
    are."""
    for instance, machines in free:
        if not demand.limit:
            yield Rental(instance, 1, 0, demand.seconds)
        elif instance.gpus:
            for gpus in widths(demand.least, demand.limit, instance.gpus, machines):
                many = ceil(gpus / instance.gpus)
                yield Rental(instance, many, gpus, demand.takes(instance, gpus, many))


Chooser: TypeAlias = Callable[[Sequence[Free], Demand], Iterable[Rental]]
"""The rentals among which one system chooses."""
