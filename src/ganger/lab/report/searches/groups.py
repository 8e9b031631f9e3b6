"""Searches compared: means over seeds, the recipe that found the best, and that in plain words."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from ganger.lab import words
from ganger.lab.metrics import Estimate, confidence
from ganger.lab.tuning.result import TuningRun
from ganger.mechanisms.tuning.trials import Mode, badness

FIGURES: Final = (
    "trials", "trials_complete", "trials_stopped", "trials_diverged", "reports", "epochs", "best",
    "best_at_seconds", "seconds", "gpu_hours", "trial_gpu_hours", "cost",
)  # fmt: skip
"""Those that are numbers."""


@dataclass(frozen=True, eq=False)
class Group:
    """Searches that differ in their seed only."""

    recipe: str
    runs: tuple[TuningRun, ...]
    metrics: Mapping[str, Estimate]

    def mean(self, metric: str) -> float:
        """Over the seeds; NaN where there is no such figure."""
        return self.metrics[metric].mean if metric in self.metrics else math.nan

    def ends(self) -> str:
        """What ended them, in words."""
        return ", ".join(
            dict.fromkeys(str(run.metrics["ended_by"] or "itself") for run in self.runs)
        )

    def kept(self, name: str) -> str:
        """Whether a limit was kept, in words; "" where there is none."""
        said = [run.metrics[name] for run in self.runs if run.metrics[name] is not None]
        if not said:
            return ""
        if all(said):
            return "kept"
        return "exceeded" if not any(said) else f"kept in {sum(said)} of {len(said)}"


def grouped(runs: Sequence[TuningRun]) -> list[Group]:
    """In order of appearance."""
    by_recipe: dict[str, list[TuningRun]] = {}
    for run in runs:
        by_recipe.setdefault(run.recipe, []).append(run)
    return [Group(name, tuple(some), _estimates(some)) for name, some in by_recipe.items()]


def _estimates(runs: Sequence[TuningRun]) -> dict[str, Estimate]:
    """Means over the seeds that have the figure."""
    means = {}
    for name in FIGURES:
        known = [value for run in runs if (value := run.metrics[name]) is not None]
        if known:
            means[name] = confidence(map(float, known))
    return means


def leading(groups: Sequence[Group], metric: str, better: str) -> list[Group]:
    """The best of a column and all that are within noise of it; none where all are tied."""
    return words.in_front(groups, metric, better, _tied)


def _tied(group: Group, other: Group, metric: str) -> bool:
    mine, others = ({run.seed: run.metrics[metric] for run in each.runs} for each in (group, other))
    return words.alike_by_seed(mine, others, group.mean(metric), other.mean(metric))


def leader(groups: Sequence[Group]) -> Group:
    """That with the best value in the mean; the first of all where no trial reported."""
    mode = Mode(groups[0].runs[0].mode)
    return min(groups, key=lambda group: badness(group.mean("best"), mode))


def headline(groups: Sequence[Group]) -> str:
    """The one sentence that a reader takes home."""
    metric, mode = groups[0].runs[0].metric, Mode(groups[0].runs[0].mode)
    measured = [group for group in groups if math.isfinite(group.mean("best"))]
    if not measured:
        return f"No trial reported {metric}."
    measured.sort(key=lambda group: badness(group.mean("best"), mode))
    first = measured[0]
    value, after = _figure(first.mean("best")), words.duration(first.mean("best_at_seconds"))
    if len(groups) == 1:
        return f"{first.recipe} found {metric} {value} after {after}."
    like = [each for each in measured if each is first or _tied(first, each, "best")]
    if len(like) == len(groups):
        return f"No recipe is surely ahead; {first.recipe} has the best {metric}, {value}."
    if len(like) > 1:
        return f"{' and '.join(g.recipe for g in like)} found the best {metric}, about {value}."
    return f"{first.recipe} found the best {metric}, {value}, after {after}."


def _figure(value: float) -> str:
    return f"{value:.4g}"


def remarks(groups: Sequence[Group]) -> list[str]:
    """What goes with the headline."""
    said = []
    for group in groups:
        for end, many in Counter(run.metrics["ended_by"] for run in group.runs).items():
            seeds = "" if many == len(group.runs) else f" ({many} of {len(group.runs)} seeds)"
            if end:
                said.append(f"{group.recipe} was ended by {end}{seeds}.")
    if len(groups) > 1 and all(len(group.runs) == 1 for group in groups):
        said.append("One seed only: another may turn the order round.")
    return said
