"""The services of a run beside training, for the report of jobs: a table, and figures over time."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

from ganger.lab.metrics import Group
from ganger.lab.report.page import per_cent
from ganger.lab.report.series import shorts
from ganger.lab.result import Run
from ganger.lab.serving.groups import latency

POINTS: Final = 160
"""Most points of a curve; windows that follow each other are put together."""
HEAD: Final = ("Recipe", "Service", "Requests", "In time", "Dropped", "p50", "p99", "Batch")


def rows(groups: Sequence[Group], colours: dict[str, int]) -> list[dict[str, Any]]:
    """By recipe and service: means over the seeds."""
    table: list[dict[str, Any]] = []
    for group in groups:
        for at, name in enumerate(names([group])):
            figures = [run.services[name] for run in group.runs if name in run.services]
            latencies = (_mean(figures, f"latency_{part}_seconds") for part in ("p50", "p99"))
            batch = _mean(figures, "batch_mean")
            cells = [
                name,
                f"{_mean(figures, 'requests'):,.0f}",
                per_cent(_mean(figures, "attainment")),
                f"{_mean(figures, 'dropped'):,.0f}",
                *map(latency, latencies),
                f"{batch:.1f}" if math.isfinite(batch) else "\u2013",
            ]
            table.append(
                {
                    "label": group.label,
                    "colour": colours[group.label],
                    "first": not at,
                    "cells": cells,
                }
            )
    return table


def names(groups: Sequence[Group]) -> list[str]:
    """The services that any of the runs has."""
    return list(
        dict.fromkeys(name for group in groups for run in group.runs for name in run.services)
    )


def _mean(figures: Sequence[dict[str, Any]], name: str) -> float:
    """NaN where one of the runs has no such figure."""
    values = [each[name] for each in figures]
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known and len(known) == len(values) else math.nan


def over_time(run: Run) -> dict[str, dict[str, Any]]:
    """By service, the curves of a run: arrivals and drops a second, the part in time of what ended,
    what waits, replicas, and p99; at the middles of the windows, in seconds."""
    return {name: _curves(series) for name, series in run.service_windows.items()}


def _curves(series: dict[str, list[float | None]]) -> dict[str, Any]:
    since = [value or 0.0 for value in series["since"]]
    width = since[1] - since[0] if len(since) > 1 else 1.0
    each = -(-len(since) // POINTS)
    blocks = [slice(at, at + each) for at in range(0, len(since), each)]

    def total(name: str, block: slice) -> float:
        return sum(value or 0.0 for value in series[name][block])

    def mean(name: str, block: slice) -> float:
        known = [value for value in series[name][block] if value is not None]
        return sum(known) / len(known) if known else math.nan

    in_time = []
    for block in blocks:
        over = total("answered", block) + total("dropped", block)
        good = total("answered", block) - total("late", block)
        in_time.append(good / over if over else math.nan)
    seconds = [width * len(since[block]) for block in blocks]
    return {
        "at": shorts(
            [since[block][0] + long / 2 for block, long in zip(blocks, seconds, strict=True)]
        ),
        "arrivals": shorts(
            [total("arrivals", block) / long for block, long in zip(blocks, seconds, strict=True)]
        ),
        "in_time": shorts(in_time),
        "queue": shorts([mean("queue", block) for block in blocks]),
        "replicas": shorts([mean("replicas", block) for block in blocks]),
        "p99": shorts(
            [max((v for v in series["p99"][b] if v is not None), default=math.nan) for b in blocks]
        ),
    }
