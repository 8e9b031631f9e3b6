"""The services of a run beside training, for the report of jobs: a table, and figures over time."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Final

from ganger.lab.metrics import Group
from ganger.lab.report.batches import drawn_lanes
from ganger.lab.report.page import Column, per_cent, table, text_of
from ganger.lab.report.series import shorts
from ganger.lab.result import Run
from ganger.lab.serving.groups import latency
from ganger.lab.tables import FORESEEN, no_row

POINTS: Final = 160
"""Most points of a curve; windows that follow each other are put together."""
_MOST_CLASSES: Final = 24
_CLASS_HEAD: Final = [
    "Recipe", "Service", "Tenant", "SLO", "Requests", "In time", "At most", "Dropped", "p50",
    "p99",
]  # fmt: skip
_COLUMNS: Final = (
    Column("requests", "Requests", "number"),
    Column("attainment", "In time", "ratio"),
    Column("attainment_bound", "At most", "ratio"),
    Column("goodput_per_second", "Good/s", "rate"),
    Column("dropped", "Dropped", "number"),
    Column("latency_p50_seconds", "p50", "latency"),
    Column("latency_p95_seconds", "p95", "latency"),
    Column("latency_p99_seconds", "p99", "latency"),
    Column("latency_p999_seconds", "p99.9", "latency"),
    Column("ttft_p99_seconds", "First token p99", "latency"),
    Column("tpot_p99_seconds", "Token p99", "latency"),
    Column("batch_mean", "Batch", "rate"),
    Column("utilisation", "Busy", "ratio"),
    Column("effective_accuracy", "Right in time", "ratio"),
)


def tables(groups: Sequence[Group], colours: dict[str, int], at: int) -> dict[str, Any] | None:
    """What the page has of services in words, on panel `at`: their figures, why requests were
    dropped, and figures by tenant and SLO. None without services."""
    services = names(groups)
    if not services:
        return None
    means = {
        (group.label, name, foreseen, column.key): _mean(some, column.key)
        for group in groups
        for name in services
        if (figures := _figures(group, name))
        for foreseen in (False, True)
        if (some := _foreseen(figures) if foreseen else figures)
        for column in _COLUMNS
    }
    shown = [
        column
        for column in _COLUMNS
        if any(math.isfinite(mean) for (*_, key), mean in means.items() if key == column.key)
    ]
    body = _rows(
        groups,
        colours,
        lambda group, name: [
            [
                f"{name}, clairvoyant" if foreseen else name,
                *(
                    text_of(means[group.label, name, foreseen, each.key], each.kind) or "\u2013"
                    for each in shown
                ),
            ]
            for foreseen in (False, True)
            if (group.label, name, foreseen, shown[0].key) in means
        ],
    )
    drops = _rows(groups, colours, _drops)
    classes = _rows(groups, colours, _classes)
    return {
        "at": at,
        "head": ["Recipe", "Service", *(column.title for column in shown)],
        "body": body,
        "drops": table(["Recipe", "Service", "Reason", "Requests", "Of all"], 3, drops),
        "classes": table(_CLASS_HEAD, 4, classes),
        "foreseen": FORESEEN if any(foreseen for _, _, foreseen, _ in means) else "",
        "missing": no_row(run.services for group in groups for run in group.runs),
    }


def _rows(
    groups: Sequence[Group],
    colours: dict[str, int],
    cells: Callable[[Group, str], list[list[str]]],
) -> list[dict[str, Any]]:
    """Rows by recipe and service, for the template."""
    body: list[dict[str, Any]] = []
    for group in groups:
        rows = [row for name in names([group]) for row in cells(group, name)]
        body += [
            {
                "label": group.label,
                "colour": colours[group.label],
                "first": not place,
                "cells": row,
            }
            for place, row in enumerate(rows)
        ]
    return body


def _figures(group: Group, name: str) -> list[dict[str, Any]]:
    return [run.services[name] for run in group.runs if name in run.services]


def _foreseen(figures: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """What a router that knows the future did with the same replicas, where all runs have that."""
    foreseen = [each["clairvoyant"] for each in figures if "clairvoyant" in each]
    return foreseen if len(foreseen) == len(figures) else []


def _drops(group: Group, name: str) -> list[list[str]]:
    """By reason: requests a run, and of all of the service."""
    figures = _figures(group, name)
    counts: dict[str, int] = {}
    for each in figures:
        for reason, count in each["dropped_by_reason"].items():
            counts[reason] = counts.get(reason, 0) + count
    total = sum(each["requests"] for each in figures)
    return [
        [name, reason, f"{count / len(figures):,.0f}", per_cent(count / total)]
        for reason, count in sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    ]


def _classes(group: Group, name: str) -> list[list[str]]:
    """By tenant and SLO, of the first seed; none where all requests are alike."""
    rows = sorted(_figures(group, name)[0].get("classes", []), key=lambda row: -row["requests"])
    if len(rows) < 2:
        return []
    return [
        [
            name,
            row["tenant"] or "",
            "" if row["slo_seconds"] is None else latency(row["slo_seconds"]),
            f"{row['requests']:,}",
            per_cent(row["attainment"]),
            "" if row["attainment_bound"] is None else per_cent(row["attainment_bound"]),
            f"{row['dropped']:,}",
            *(
                latency(math.nan if (value := row[f"latency_{part}_seconds"]) is None else value)
                for part in ("p50", "p99")
            ),
        ]
        for row in rows[:_MOST_CLASSES]
    ]


def names(groups: Sequence[Group]) -> list[str]:
    """The services that any of the runs has."""
    return list(
        dict.fromkeys(name for group in groups for run in group.runs for name in run.services)
    )


def _mean(figures: Sequence[dict[str, Any]], name: str) -> float:
    """NaN where one of the runs has no such figure."""
    values = [each.get(name) for each in figures]
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known and len(known) == len(values) else math.nan


def charts(run: Run) -> dict[str, dict[str, Any]]:
    """By service, the curves of a run: arrivals and drops a second, the part in time of what ended,
    what waits, replicas, how busy they were, batches, and p99; at the middles of the windows, in
    seconds. Where they were watched, also the distribution of latencies, and batches on lanes."""
    drawn = {name: _curves(series) for name, series in run.service_windows.items()}
    for name, watched in run.service_watched.items():
        if name in drawn:
            drawn[name]["within"] = dict(zip("xy", map(shorts, watched.within), strict=True))
            drawn[name]["lanes"] = drawn_lanes(watched)
    return drawn


def _curves(series: dict[str, list[float | None]]) -> dict[str, Any]:
    since = [value or 0.0 for value in series["since"]]
    until = [value or 0.0 for value in series["until"]]
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
    seconds = [until[block][-1] - since[block][0] for block in blocks]
    return {
        "at": shorts(
            [since[block][0] + long / 2 for block, long in zip(blocks, seconds, strict=True)]
        ),
        "arrivals": shorts(
            [total("arrivals", block) / long for block, long in zip(blocks, seconds, strict=True)]
        ),
        "in_time": shorts(in_time),
        "queue": shorts([mean("queue", block) for block in blocks]),
        **{
            part: shorts([mean(part, block) for block in blocks])
            for part in ("replicas", "batch", "busy")
        },
        "p99": shorts(
            [max((v for v in series["p99"][b] if v is not None), default=math.nan) for b in blocks]
        ),
    }
