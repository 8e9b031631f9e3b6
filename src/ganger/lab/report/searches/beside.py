"""The experiments of a run beside training, for the report of jobs: a table."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean
from typing import Any, Final

from ganger.lab.metrics import Group
from ganger.lab.report.page import table
from ganger.lab.tables import limits_kept
from ganger.lab.tuning.result import TuningRun
from ganger.lab.words import duration

_HEAD: Final = ["Recipe", "Experiment", "Trials by", "Trials", "Best", "After", "Took", "GPU-hours"]


def experiments(groups: Sequence[Group], colours: dict[str, int]) -> dict[str, Any] | None:
    """What became of each experiment under each recipe, as means over the seeds; whether limits
    were kept counts for all of them. None without experiments."""
    every = [run for group in groups for search in group.runs for run in search.searches]
    priced = any(run.metrics["cost"] is not None for run in every)
    head = [*_HEAD, *["Cost"] * priced, "Limits kept"]
    body = [
        {
            "label": group.label,
            "colour": colours[group.label],
            "first": not place,
            "cells": _cells(same, priced=priced),
        }
        for group in groups
        for place, same in enumerate(_by_experiment(group))
    ]
    return table(head, 3, body)


def _by_experiment(group: Group) -> list[list[TuningRun]]:
    """The runs of each experiment, by seed: the k-th of every run is the same one."""
    return [list(same) for same in zip(*(run.searches for run in group.runs), strict=True)]


def _cells(same: Sequence[TuningRun], *, priced: bool) -> list[str]:
    def mean(name: str) -> float | None:
        values = [run.metrics[name] for run in same]
        return None if None in values else fmean(values)

    best, after, cost = mean("best"), mean("best_at_seconds"), mean("cost")
    kept = {limits_kept(run.metrics) for run in same}
    return [
        same[0].experiment,
        same[0].recipe,
        f"{mean('trials'):,.0f}",
        "\u2013" if best is None else f"{best:.4g}",
        "\u2013" if after is None else duration(after),
        duration(mean("seconds") or 0.0),
        f"{mean('gpu_hours'):,.2f}",
        *["\u2013" if cost is None else f"{cost:,.2f}"] * priced,
        "no" if "no" in kept else max(kept) or "\u2013",
    ]
