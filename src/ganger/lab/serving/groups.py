"""Runs over requests compared: means over seeds, the recipe that leads, and what that says in plain
words."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from ganger.core.errors import BadInput
from ganger.core.units import SECOND, format_duration
from ganger.lab.metrics import Estimate, confidence
from ganger.lab.serving.run import Place, ServingRun
from ganger.lab.serving.yardsticks.bound import Bound
from ganger.lab.words import alike_by_seed, in_front
from ganger.recipes.registry import parse

Bounds: TypeAlias = Mapping[Place, Bound]
"""The most that can be in time, by place."""
IN_TIME: Final = "attainment"
P99: Final = "latency_p99_seconds"
ALL: Final = 0.9995
"""From here on, all are in time as far as anybody can see."""


@dataclass(frozen=True, eq=False)
class Group:
    """Runs that differ in their seed only. `needs`: what the recipe must know."""

    recipe: str
    place: Place
    needs: str
    runs: tuple[ServingRun, ...]
    metrics: Mapping[str, Estimate]

    def mean(self, metric: str) -> float:
        """Over the seeds; NaN where there is no such figure."""
        return self.metrics[metric].mean if metric in self.metrics else math.nan

    @property
    def deployable(self) -> bool:
        """Whether it can be deployed: it does not know requests before they come."""
        return self.needs != "future"


def needs_of(recipe: str) -> str:
    """What a recipe must know; "" for a router that is not registered."""
    try:
        return parse(recipe)[0].needs
    except BadInput:
        return ""


def grouped(runs: Sequence[ServingRun]) -> list[Group]:
    """In order of appearance."""
    found: dict[tuple[str, Place], list[ServingRun]] = {}
    for run in runs:
        found.setdefault((run.recipe, run.place), []).append(run)
    return [
        Group(*key, needs_of(key[0]), tuple(some), _estimates(some)) for key, some in found.items()
    ]


def _estimates(runs: Sequence[ServingRun]) -> dict[str, Estimate]:
    """Means over seeds; none where one of the runs has no such figure."""
    found = {}
    for name in runs[0].metrics:
        values = [run.metrics.get(name) for run in runs]
        known = [value for value in values if value is not None]
        whole = len(known) == len(values)
        found[name] = confidence(known) if whole else Estimate(math.nan, math.nan)
    return found


def tied(one: Group, two: Group, metric: str) -> bool:
    """Whether two groups cannot be distinguished by a metric: over several seeds the 95 % interval
    of the difference, seed by seed, holds 0; else the figures are alike to a thousandth."""
    mine, others = (
        {run.setup.seed: run.metrics[metric] for run in each.runs} for each in (one, two)
    )
    return alike_by_seed(mine, others, one.mean(metric), two.mean(metric))


def leading(groups: Sequence[Group], metric: str, better: str) -> list[Group]:
    """The best of a column and all that are within noise of it; none where all are tied."""
    return in_front(groups, metric, better, tied)


# ---------------------------------------------------------------------- in words


def per_cent(value: float) -> str:
    """A part of the requests."""
    return f"{100 * value:.1f}%"


def latency(seconds: float) -> str:
    """To a tenth of a millisecond."""
    if not math.isfinite(seconds):
        return "\u2013"
    return f"{1000 * seconds:.1f} ms" if seconds < 1 else format_duration(seconds * SECOND)


def best_of(groups: Sequence[Group]) -> tuple[list[Group], str]:
    """The best that can be deployed with those that are within noise of it, and by which metric:
    the most in time, or the shortest p99 where all have all in time."""
    field = [group for group in groups if group.deployable] or list(groups)
    metric, sign = IN_TIME, -1
    if all(group.mean(IN_TIME) >= ALL for group in field):
        metric, sign = P99, 1
    known = [group for group in field if math.isfinite(group.mean(metric))] or field
    known.sort(key=lambda group: sign * group.mean(metric))
    return [each for each in known if each is known[0] or tied(known[0], each, metric)], metric


def headline(groups: Sequence[Group]) -> str:
    """The one sentence that a reader takes home, about one fleet at one load."""
    best, metric = best_of(groups)
    first = best[0]
    share = per_cent(first.mean(IN_TIME))
    if len(groups) == 1:
        return f"Under {_named(first)} {share} of the requests are answered in time."
    names = " and ".join(map(_named, best)) if len(best) < 3 else f"{_named(first)} and its like"
    if metric == P99:
        return (
            f"Every recipe answers all in time; {names} {_is(best)} quickest, with a p99 of"
            f" {latency(first.mean(P99))}."
        )
    field = [group for group in groups if group.deployable] or list(groups)
    if len(best) == len(field) > 1:
        return f"Every recipe answers about {share} of the requests in time."
    answers = "answers" if len(best) == 1 else "answer"
    base = _baseline(groups, best)
    if base is None:
        return f"{names} {answers} {share} of the requests in time."
    return (
        f"{names} {answers} {share} of the requests in time, {base.recipe}"
        f" {per_cent(base.mean(IN_TIME))}."
    )


def _named(group: Group) -> str:
    if group.deployable:
        return group.recipe
    return f"{group.recipe}, which knows all requests before they come,"


def _is(groups: Sequence[Group]) -> str:
    return "is" if len(groups) == 1 else "are"


def _baseline(groups: Sequence[Group], best: Sequence[Group]) -> Group | None:
    """One request at a time if that was run, else the one with the fewest in time."""
    others = [group for group in groups if group not in best and group.deployable]
    plain = [group for group in others if group.recipe == "serve.no-batch"]
    return plain[0] if plain else min(others, key=lambda each: each.mean(IN_TIME), default=None)


def remarks(groups: Sequence[Group], bound: Bound | None) -> list[str]:
    """Sentences that qualify the headline."""
    best, metric = best_of(groups)
    found = [_sureness(groups, best, metric), _ties(best), _oracle(groups), bounded(bound)]
    return [sentence for sentence in found if sentence]


def _sureness(groups: Sequence[Group], best: Sequence[Group], metric: str) -> str:
    first = best[0]
    field = [group for group in groups if group not in best and group.deployable]
    if len(groups) < 2:
        return ""
    if len(first.runs) < 2:
        return "One seed only: how much of the differences is chance is not known."
    if not field or metric != IN_TIME:
        return ""
    other = max(field, key=lambda group: group.mean(IN_TIME))
    theirs = {run.setup.seed: run.metrics[IN_TIME] or 0.0 for run in other.runs}
    gap = confidence(
        (run.metrics[IN_TIME] or 0.0) - theirs[run.setup.seed]
        for run in first.runs
        if run.setup.seed in theirs
    )
    if not gap.half_width > 0:
        return ""
    low, high = (100 * (gap.mean + sign * gap.half_width) for sign in (-1, 1))
    return (
        f"Over {len(first.runs)} seeds it has {low:.1f} to {high:.1f} points more in time than"
        f" {other.recipe} (95% confidence)."
    )


def _ties(best: Sequence[Group]) -> str:
    others = ", ".join(group.recipe for group in best[1:])
    return f"Within noise of {best[0].recipe}: {others}." if others else ""


def _oracle(groups: Sequence[Group]) -> str:
    known = [group for group in groups if not group.deployable]
    if not known or len(known) == len(groups):
        return ""
    best = max(known, key=lambda group: group.mean(IN_TIME))
    return (
        f"{best.recipe} knows all requests before they come, which nobody can deploy: it has"
        f" {per_cent(best.mean(IN_TIME))} in time."
    )


def bounded(bound: Bound | None) -> str:
    """What no recipe can exceed, where that is news."""
    if bound is None or bound.attainment > ALL:
        return ""
    return f"No recipe can have more than {per_cent(bound.attainment)} in time, without luck."


def notes(groups: Sequence[Group]) -> list[str]:
    """What would mislead a reader who did not know it."""
    lines = (line for group in groups for run in group.runs for line in run.remarks)
    return [f"{line.rstrip('.')}." for line in dict.fromkeys(lines)]
