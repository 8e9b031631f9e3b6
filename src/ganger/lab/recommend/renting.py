"""Which machines to rent for a job, how long it takes on them and what they cost.

The rentals are those that a recipe chooses among (Cynthia's or FC2's). Each is followed through
many draws: of the moment at which it begins within the history of prices, of how far predicted
speeds are off, and of how far the predicted epochs are. All rentals see the same draws.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ganger.client.request import JobRequest
from ganger.core.errors import BadInput
from ganger.core.profiles import Profile, Profiles
from ganger.core.spec import ClusterSpec, Locality
from ganger.core.state.cluster import Nodes
from ganger.core.units import NEVER, SECOND, parse_duration
from ganger.lab.billing.power import figure
from ganger.mechanisms.provisioning.instances import Catalogue, Instance
from ganger.mechanisms.provisioning.outcome import FREE_OF_CHARGE, Upkeep, follow
from ganger.mechanisms.provisioning.rentals import (
    Chooser,
    Demand,
    Goal,
    Rental,
    Valued,
    decide,
)
from ganger.mechanisms.provisioning.servers import Sync
from ganger.recipes.training.renting.cynthia import ByModel, fit_loss_model
from ganger.recipes.training.renting.fc2 import ByMeasurement

RECIPES: Final = ("cynthia", "fc2")
"""Those that choose machines for one job."""
_FIRST_DRAWS: Final = 16
"""All rentals are followed through so many draws, and the best of them through all."""
_FINALISTS: Final = 12
_SHOWN: Final = 8
_LONGEST: Final = 1e9
"""Seconds: 31 years. What takes longer on some machines is not done there."""
Floats = NDArray[np.float64]


class Assumptions(NamedTuple):
    """`error`: the spread of predicted speeds, as that of a lognormal factor; `chance`: a rental
    meets the goal if so large a part of the draws does; `sync`, `per_core`: of jobs with parameter
    servers, as `Serving` has them."""

    error: float = 0.1
    chance: float = 0.9
    draws: int = 400
    seed: int = 0
    sync: Sync = Sync.BSP
    per_core: float = 0.0
    upkeep: Upkeep = FREE_OF_CHARGE


_ASSUMED = Assumptions()


@dataclass(frozen=True)
class Forecast:
    """A rental in all draws: seconds until the job is done (inf: it never is), USD, and how often
    machines were taken away in the mean."""

    recipe: str
    rental: Rental
    seconds: Floats = field(repr=False)
    dollars: Floats = field(repr=False)
    revoked: float

    def timely(self, goal: Goal) -> float:
        """The part of the draws that is in time."""
        return float(np.mean(self.seconds <= goal.seconds))

    def paid(self, goal: Goal) -> float:
        """The part of the draws that is within the budget."""
        return float(np.mean(self.dollars <= goal.dollars))

    def met(self, goal: Goal) -> float:
        """The part of the draws that is both, of those that are done at all."""
        good = (self.seconds <= goal.seconds) & (self.dollars <= goal.dollars)
        return float(np.mean(good & (self.seconds < inf)))

    def to_json(self, goal: Goal) -> dict[str, Any]:
        """As plain data: times in seconds, money in USD; null for a time that never comes."""
        rental = self.rental
        return {
            "recipe": self.recipe,
            "machines": str(rental),
            "parts": [
                {"instance": each.name, "zone": each.offer.zone, "market": each.offer.market,
                 "count": many}
                for each, many in rental.parts
            ],
            "gpus": rental.gpus,
            "gpu_type": rental.instance.gpu_type,
            "servers": rental.servers,
            "seconds": _summary(self.seconds),
            "usd": _summary(self.dollars),
            "in_time": self.timely(goal),
            "within_budget": self.paid(goal),
            "met": self.met(goal),
            "times_revoked": self.revoked,
        }  # fmt: skip


def _summary(values: Floats) -> dict[str, float | None]:
    low, high = interval(values)
    mean = float(np.mean(values))
    return {
        name: value if np.isfinite(value) else None
        for name, value in (("mean", mean), ("low", low), ("high", high))
    }


def interval(values: Floats) -> tuple[float, float]:
    """What 95 % of the draws lie between."""
    ordered = np.sort(values)
    last = len(ordered) - 1
    return float(ordered[int(0.025 * last)]), float(ordered[-(-975 * last // 1000)])


@dataclass(frozen=True)
class RentalAdvice:
    """What to rent. `pick` is None where nothing meets the goal; then `fastest` is what takes the
    least time within the budget, and `cheapest` costs the least of what is in time, if there is
    such, else they are the fastest and the cheapest of all."""

    goal: Goal
    assumed: Assumptions
    pick: Forecast | None
    fastest: Forecast | None
    cheapest: Forecast | None
    others: tuple[Forecast, ...]
    looked_at: int
    history: float
    """Seconds of the history of prices and numbers in which jobs begin; 0: nothing changes."""

    @property
    def nearest(self) -> Forecast | None:
        """The pick, or what comes nearest."""
        return self.pick or self.cheapest or self.fastest

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        named = {"pick": self.pick, "fastest": self.fastest, "cheapest": self.cheapest}
        return {
            **{name: each and each.to_json(self.goal) for name, each in named.items()},
            "others": [each.to_json(self.goal) for each in self.others],
            "goal": {
                "seconds": _finite(self.goal.seconds),
                "usd": _finite(self.goal.dollars),
                "chance": self.assumed.chance,
            },
            "speed_error": self.assumed.error,
            "draws": self.assumed.draws,
            "history_seconds": self.history,
            "looked_at": self.looked_at,
        }


def _finite(value: float) -> float | None:
    return value if value < inf else None


def recommend_machines(
    job: JobRequest,
    rent: ClusterSpec,
    profiles: Profiles,
    goal: Goal,
    *,
    loss: float | None = None,
    recipes: Sequence[str] = RECIPES,
    assumed: Assumptions = _ASSUMED,
) -> RentalAdvice:
    """The machines for `job` among those of `rent` that are for rent. `loss`: the job is done where
    its model's curve reaches it, else at its own end. Raises BadInput."""
    profile = profiles.of(job.model)
    kinds = _kinds(job, rent, profile)
    demand, spread = _demand(job, profile, loss)
    draws = _Draws(kinds, assumed, spread)
    rentals = dict[Rental, str]()
    for name in recipes:
        for rental in _chooser(name, goal, assumed)([(each, each.count) for each in kinds], demand):
            if rental.seconds < _LONGEST:
                rentals.setdefault(rental, name)
    forecasts = [draws.follow(name, rental, _FIRST_DRAWS) for rental, name in rentals.items()]
    if not forecasts:
        mend = "see that a machine has its GPU type, and enough GPUs"
        raise BadInput("the job runs on none of the machines", where="--rent", mend=mend)
    finalists = _best(forecasts, goal, assumed.chance)
    final = [draws.follow(each.recipe, each.rental, assumed.draws) for each in finalists]
    answer = decide([_valued(each, assumed.chance) for each in final], goal)
    by_rental = {id(each.rental): each for each in final}

    def back(valued: Valued | None) -> Forecast | None:
        return by_rental[id(valued.rental)] if valued is not None else None

    pick, fastest, cheapest = map(back, (answer.pick, answer.fastest, answer.cheapest))
    named = [each for each in (pick, fastest, cheapest) if each is not None]
    others = tuple(_worth_showing(final, named)[:_SHOWN])
    span = draws.span / SECOND
    return RentalAdvice(goal, assumed, pick, fastest, cheapest, others, len(forecasts), span)


def _worth_showing(final: Sequence[Forecast], named: Sequence[Forecast]) -> list[Forecast]:
    """Each rental once, but for those that are named and those that another of their market beats
    both in time and in money."""
    seen, kept = {_key(each) for each in named}, list[Forecast]()
    for each in sorted(final, key=lambda each: float(each.dollars.mean())):
        if _key(each) not in seen and not any(_beats(other, each) for other in final):
            seen.add(_key(each))
            kept.append(each)
    return kept


def _key(each: Forecast) -> str:
    return f"{each.rental}, {each.rental.gpus}"


def _beats(mine: Forecast, other: Forecast) -> bool:
    """Whether the first is faster and cheaper in the mean."""
    alike = mine.rental.instance.offer.market == other.rental.instance.offer.market
    faster = float(mine.seconds.mean()) < float(other.seconds.mean())
    return alike and faster and float(mine.dollars.mean()) < float(other.dollars.mean())


def _valued(forecast: Forecast, chance: float) -> Valued:
    """By what so large a part of the draws does not exceed."""
    seconds, dollars = (
        float(np.quantile(values, chance, method="inverted_cdf"))
        for values in (forecast.seconds, forecast.dollars)
    )
    return Valued(forecast.rental, seconds, dollars)


def _best(forecasts: Sequence[Forecast], goal: Goal, chance: float) -> list[Forecast]:
    """Those that may be the answer by the first draws, the likeliest first: by what is chosen when
    the choice before it is taken away, then by money and by time alone."""
    candidates = {id(each.rental): (each, _valued(each, chance)) for each in forecasts}
    kept = list[Forecast]()
    for sought in (goal, Goal(), Goal(dollars=1e300)):
        for _ in range(_FINALISTS):
            answer = decide([valued for _, valued in candidates.values()], sought)
            for valued in answer:
                if valued is not None and id(valued.rental) in candidates:
                    kept.append(candidates.pop(id(valued.rental))[0])
    return kept or list(forecasts[:_FINALISTS])


def _chooser(name: str, goal: Goal, assumed: Assumptions) -> Chooser:
    if name == "cynthia":
        return ByModel(assumed.sync, assumed.per_core, goal.seconds)
    if name == "fc2":
        hours = goal.seconds / 3600 if goal.seconds < inf else 1.0
        return ByMeasurement(
            sync=assumed.sync, per_core=assumed.per_core, hourly=goal.dollars / hours
        )
    mend = f"there are {' and '.join(RECIPES)}"
    raise BadInput(f"{name!r} does not choose machines", where="--recipes", mend=mend)


class _Draws:
    """The same draws for all rentals."""

    def __init__(self, kinds: Sequence[Instance], assumed: Assumptions, spread: float) -> None:
        rng = np.random.default_rng(assumed.seed)
        offers = [kind.offer for kind in kinds]
        ends = [each[-1][0] for offer in offers for each in (offer.prices, offer.available) if each]
        self.span = max(ends, default=0)
        self.starts = np.floor(rng.random(assumed.draws) * self.span).astype(np.int64).tolist()
        off = rng.standard_normal((2, assumed.draws))
        self.factors = np.exp(assumed.error * off[0] + spread * off[1])
        self.upkeep = assumed.upkeep

    def follow(self, recipe: str, rental: Rental, draws: int) -> Forecast:
        """What becomes of a rental in the first so many draws."""
        seconds, dollars, revoked = np.empty(draws), np.empty(draws), 0
        for at in range(draws):
            since = self.starts[at]
            work = max(round(rental.seconds * float(self.factors[at]) * SECOND), 1)
            outcome = follow(rental.parts, since, work, self.upkeep)
            never = outcome.done == NEVER
            seconds[at] = inf if never else (outcome.done - since) / SECOND
            dollars[at] = outcome.dollars
            revoked += outcome.revoked
        return Forecast(recipe, rental, seconds, dollars, revoked / draws)


# ---------------------------------------------------------------------- the job


def _kinds(job: JobRequest, rent: ClusterSpec, profile: Profile) -> list[Instance]:
    """The machines that the job may run on, or its servers. Raises BadInput."""
    nodes = Nodes(rent)
    memory = {each.name: each.memory for each in nodes.type_specs}
    priced = {each.name for each in nodes.type_specs if each.price > 0}
    kinds = Catalogue(nodes).instances
    if not kinds:
        raise BadInput("nothing is for rent", where="--rent", mend="write rentable = true")
    kept = list[Instance]()
    for kind in kinds:
        if kind.offer.price < 0 and not kind.offer.prices and kind.gpu_type not in priced:
            mend = "give it a price, or a file of prices"
            raise BadInput(f"{kind} has no price", where="--rent", mend=mend)
        if kind.offer.market == "spot" and job.on_preempt != "checkpoint":
            continue
        if kind.gpus and job.gpu_types and kind.gpu_type not in job.gpu_types:
            continue
        if kind.gpus and profile.memory and memory[kind.gpu_type] < profile.peak:
            continue
        kept.append(kind)
    return kept


def _demand(job: JobRequest, profile: Profile, loss: float | None) -> tuple[Demand, float]:
    """The job, and the spread of how long it is."""
    seconds, spread = _length(job, profile), 0.0
    if not 0 < seconds < _LONGEST:
        what = f"the job takes {figure(seconds)} s"
        raise BadInput(what, where=job.name or "job", mend="see its `estimate` or `steps`")
    if loss is not None:
        part, spread = _part_to(loss, profile, job.model)
        seconds *= part
    asked = max(job.gpus, 1)
    least = job.min_gpus or min(asked, job.max_gpus or asked)

    def speed(instance: Instance, gpus: int, machines: int) -> float:
        if not profile.runs_on(instance.gpu_type, gpus):
            return 0.0
        tier = Locality.ISLAND if machines == 1 else Locality.ANY
        return profile.rate(instance.gpu_type, instance.speed, gpus, asked, tier)

    return Demand(asked, least, max(job.max_gpus, asked), seconds, profile, speed), spread


def _length(job: JobRequest, profile: Profile) -> float:
    """Seconds on the GPUs asked for, of the reference type. Raises BadInput."""
    asked = max(job.gpus, 1)
    if job.steps > 0 and profile.measured is not None:
        rate = profile.measured.at(profile.measured.reference, asked)
        if rate > 0:
            return job.steps / rate
    if job.steps > 0 and profile.steps is not None:
        return job.steps / float(profile.steps.throughput(asked, Locality.ISLAND))
    if job.estimate is not None:
        return parse_duration(job.estimate, where="estimate") / SECOND
    if profile.convergence is not None and profile.convergence.seconds > 0:
        return profile.convergence.seconds * profile.convergence.length()
    mend = "give it an `estimate`, or `steps` and a model of --profiles"
    raise BadInput("nothing says how long the job is", where=job.name or "job", mend=mend)


def _part_to(loss: float, profile: Profile, model: str) -> tuple[float, float]:
    """Which part of its length the job needs to reach a loss, and the spread of that. Raises
    BadInput."""
    curve = profile.convergence
    if curve is None or curve.metric != "loss":
        mend = "give its profile a `convergence` of the loss"
        raise BadInput(f"no losses are known of model {model!r}", where="--loss", mend=mend)
    fitted = fit_loss_model(curve.epochs, curve.values)
    if loss >= curve.values[0]:  # its first report already
        return curve.epochs[0] / curve.length(), 0.0
    epochs = fitted.epochs(loss)
    if epochs == inf:
        what = f"by the curve fitted to its losses it never falls to {loss:g}"
        raise BadInput(what, where="--loss", mend=f"the nearest is above {figure(fitted.b1)}")
    return epochs / curve.length(), fitted.spread
