"""What a recommended fleet is measured by: the smallest on which any recipe could keep the SLO, and
what a router does on it that knows the future."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ganger.core.errors import BadInput
from ganger.lab.serving.fleet import Fleet
from ganger.lab.serving.hosting import ORACLE
from ganger.lab.serving.run import Setup
from ganger.lab.serving.sizing import Advice, Search, Sizes, Tried, tried_on
from ganger.lab.serving.sweep import Task, compare_tasks, widest_bound
from ganger.recipes.registry import make_router
from ganger.workloads.models.profiles import Models
from ganger.workloads.requests.columns import Requests


@dataclass(frozen=True)
class Least:
    """Of one range of fleets the cheapest on which the bound allows the SLO (None: on none), and
    the most that any recipe can have in time on one that is cheaper (or, where there is none, on
    the one with most)."""

    sizes: Sizes
    fleet: Fleet | None
    short: Tried | None

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        short = self.short
        return {
            "range": str(self.sizes),
            "fleet": self.fleet and str(self.fleet),
            "short": short and {"fleet": str(short.fleet), "attainment_bound": short.attainment},
        }


@dataclass
class Measured:
    """The yardsticks of an advice: `least` by range; on the `fleet` that is recommended (or is the
    nearest miss) the `bound` on what is in time, and the `clairvoyant` row; `missing`: sentences
    that say why one of them is."""

    least: list[Least] = field(default_factory=list)
    fleet: Fleet | None = None
    bound: float | None = None
    clairvoyant: Tried | None = None
    missing: list[str] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        return {
            "least": [each.to_json() for each in self.least],
            "fleet": self.fleet and str(self.fleet),
            "attainment_bound": self.bound,
            "clairvoyant": self.clairvoyant and {**self.clairvoyant.to_json(), "needs": "future"},
            "missing": self.missing,
        }


def part_of_search(recipes: int, seeds: int) -> float:
    """Which part of an advice with its yardsticks is the search, in runs: for each run of it the
    yardsticks take a bound, for each recipe and seed once."""
    return recipes * seeds / (recipes * seeds + 1)


def measured(
    advice: Advice,
    load: Callable[[], Requests],
    models: Models,
    setup: Setup,
    *,
    seeds: Sequence[int],
    prices: Mapping[str, float],
    workers: int = 1,
    progress: Callable[[float], None] = lambda share: None,
) -> Measured:
    """The yardsticks of what was advised. Bounds are on what any of the recipes could do: no fleet
    that is cheaper than the least keeps the SLO under any of them, without luck. `progress` hears
    which part of them is made."""
    yardsticks = Measured()
    ran = [each for each in advice.found if each.refused is None]
    can = [make_router(each.recipe).can for each in ran]
    streams, divides = max(each.streams for each in can), any(each.divides for each in can)
    ranges = list(dict.fromkeys(each.sizes for each in ran))
    bounds = len(ranges) / (len(ranges) + 1)
    for done, sizes in enumerate(ranges):
        search = Search("", sizes, advice.target, prices)
        best = min((each for each in ran if each.sizes == sizes), key=lambda each: each.cost)
        search.found.cost = best.cost
        try:
            while search.fleet is not None:
                bound, _ = widest_bound(
                    load,
                    models,
                    search.fleet,
                    setup,
                    streams,
                    advice.requests,
                    divides=divides,
                    seeds=seeds if models.pipelines else (0,),
                )
                share = bound.attainment
                search.hear(Tried("", search.fleet, share, share, share, None))
                progress(bounds * (done + search.share) / len(ranges))
        except BadInput as error:
            yardsticks.missing.append(f"There is no bound on {sizes}: {error.what}.")
            continue
        own = search.found
        kept = own.best or best.best
        short = own.below if own.best is not None else own.nearest
        yardsticks.least.append(Least(sizes, kept.fleet if kept is not None else None, short))
    first = advice.found[0]
    pick = first.best or first.nearest
    if pick is not None:
        tasks = [Task(first.recipe, pick.fleet, replace(setup, seed=seed)) for seed in seeds]
        beside = compare_tasks(
            load,
            models,
            tasks,
            workers=workers,
            progress=lambda share: progress(bounds + (1 - bounds) * share),
        )
        yardsticks.fleet, yardsticks.missing = pick.fleet, [*yardsticks.missing, *beside.missing]
        (bound,) = beside.bounds.values()
        yardsticks.bound = bound.attainment
        if beside.oracle:
            yardsticks.clairvoyant = tried_on(ORACLE, pick.fleet, beside.oracle)
    progress(1.0)
    return yardsticks
