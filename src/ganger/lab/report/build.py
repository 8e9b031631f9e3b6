"""From runs of jobs to one HTML file: words and tables here, curves by the page's own script."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ganger.core.errors import BadInput
from ganger.lab import words
from ganger.lab.metrics import Estimate, Group, aggregate
from ganger.lab.origin import Origin
from ganger.lab.report import bills, series, services
from ganger.lab.report.page import (
    COLOURS,
    Column,
    cell,
    fill,
    listed,
    one_seed,
    span,
    versions,
    whole,
)
from ganger.lab.report.page import estimate as _estimate
from ganger.lab.report.searches.beside import experiments
from ganger.lab.result import Run
from ganger.lab.simulating.waited import hours, shares

COLUMNS = (
    Column("jct_mean_seconds", "Mean JCT", "time", "low"),
    Column("jct_p50_seconds", "Median", "time", "low"),
    Column("jct_p99_seconds", "99th pct", "time", "low"),
    Column("queueing_delay_mean_seconds", "Queueing", "time", "low"),
    Column("makespan_seconds", "Makespan", "time", "low"),
    Column("unfair_fraction", "Unfair", "ratio", "low"),
    Column("gpu_allocated_ratio", "Allocated", "ratio", "high"),
    Column("preemptions", "Preempted", "number"),
)


def write_report(
    runs: Sequence[Run],
    path: str | Path,
    title: str = "Ganger report",
    origin: Origin | None = None,
) -> None:
    """Write one self-contained HTML page comparing the runs to `path`.

    Runs that differ in their seed only are shown as one recipe with a 95% confidence interval;
    runs at several loads get a chart over load. `origin`: by what command, from what files and
    when. Raises BadInput for no runs.
    """
    Path(path).write_text(render(runs, title, origin), encoding="utf-8")


def render(runs: Sequence[Run], title: str = "Ganger report", origin: Origin | None = None) -> str:
    """The page of `write_report` as text. The same runs and origin give the same text."""
    if not runs:
        raise BadInput("a report needs at least one run")
    groups = aggregate(runs)
    labels = list(dict.fromkeys(group.label for group in groups))
    loads = sorted({group.load for group in groups})
    panels = [
        _panel([g for g in groups if g.load == load], labels, at) for at, load in enumerate(loads)
    ]
    charts = {"labels": labels, "colours": COLOURS, "panels": [p["chart"] for p in panels]}
    return fill(
        "page.html.j2",
        "page.js",
        data=charts,
        title=title,
        labels=labels,
        panels=panels,
        first=len(panels) - 1,
        columns=COLUMNS,
        facts=_facts(runs, labels),
        provenance=_provenance(runs, origin),
        one_seed=one_seed(group.seeds for group in groups),
        has_services=any(p["services"] for p in panels),
        has_experiments=any(p["experiments"] for p in panels),
        has_lanes=any(run.service_watched for run in runs),
        has_bills=any(p["bills"] for p in panels),
        priced=any(run.cost for run in runs),
        has_waited=any(p["waited"] for p in panels),
        has_gantt=any(g["gantt"] for p in panels for g in p["chart"]["groups"]),
    )


def _panel(groups: list[Group], labels: list[str], at: int) -> dict[str, Any]:
    colours = {label: number for number, label in enumerate(labels)}
    leading = {each.key: words.leaders(groups, each.key, each.better) for each in COLUMNS}
    chart = series.panel(groups, colours)
    chart["services"] = services.names(groups)
    for group, drawn in zip(groups, chart["groups"], strict=True):
        drawn["services"] = services.charts(group.runs[0])
    return {
        "at": f"load {groups[0].load:g}",
        "choice": f"{groups[0].load:g}",
        "headline": words.headline(groups),
        "remarks": words.remarks(groups),
        "warnings": words.notes(groups),
        "rows": [_row(group, colours[group.label], leading) for group in groups],
        "everything": _everything(groups),
        "names": [(group.label, colours[group.label]) for group in groups],
        "waited": _waited(groups, colours),
        "bills": bills.table(groups, colours),
        "tenants": series.tenants(groups),
        "undrawn": _undrawn(groups),
        "services": services.tables(groups, colours, at),
        "experiments": experiments(groups, colours),
        "chart": chart,
    }


def _waited(groups: list[Group], colours: dict[str, int]) -> list[dict[str, Any]]:
    """Why jobs waited under each recipe of which that was recorded, and what is shown of it."""
    found = []
    for group in groups:
        known = [run.waited for run in group.runs if run.waited is not None]
        if not known:
            continue
        rows = [
            {
                "reason": one.reason,
                "jobs": whole(round(one.jobs, 1)),
                "share": one.share,
                "job_hours": hours(one.job_hours),
                "gpu_hours": hours(one.gpu_hours),
            }
            for one in shares(known)
        ]
        found.append({"label": group.label, "colour": colours[group.label], "rows": rows})
    return found


def _undrawn(groups: list[Group]) -> list[str]:
    """Which recipes have no Gantt chart, and why."""
    reasons = [(group.label, series.no_gantt(group.runs[0])) for group in groups]
    return [f"{label}: {reason}." for label, reason in reasons if reason]


def _row(group: Group, colour: int, leading: dict[str, list[Group]]) -> dict[str, Any]:
    return {
        "label": group.label,
        "colour": colour,
        "knows": group.knows,
        "finished": whole(group.mean("jobs_finished")),
        "submitted": whole(group.mean("jobs_submitted")),
        "cells": [
            cell(group.metrics[column.key], column.kind, best=group in leading[column.key])
            for column in COLUMNS
        ],
    }


def _everything(groups: list[Group]) -> list[tuple[str, list[str]]]:
    """Every metric of every recipe as text."""
    names = list(dict.fromkeys(name for group in groups for name in group.metrics))
    none = Estimate(float("nan"), float("nan"))
    return [(n, [_estimate(g.metrics.get(n, none)) for g in groups]) for n in names]


def _facts(runs: Sequence[Run], labels: list[str]) -> list[tuple[str, str]]:
    """The strip of figures under the title."""
    sizes = sorted({len(run.jobs.name) - run.jobs.in_searches for run in runs})
    gpus = sorted({run.cluster_gpus for run in runs})
    seeds = len({run.seed for run in runs})
    return [
        (span(sizes), "jobs"),
        (span(gpus), "GPUs"),
        (str(len(labels)), "recipe" if len(labels) == 1 else "recipes"),
        (str(seeds), "seed" if seeds == 1 else "seeds"),
    ]


def _provenance(runs: Sequence[Run], origin: Origin | None) -> list[tuple[str, str]]:
    """Where the figures come from: enough to make them again."""
    told = sorted({f"{run.recipe} knows {run.knows}" for run in runs})
    total = {k: sum(run.simulation.get(k, 0.0) for run in runs) for k in ("events", "decisions")}
    cpu = sum(run.simulation.get("cpu_seconds", 0.0) for run in runs)
    loads = sorted({run.load for run in runs})
    rows = [
        *(origin.rows() if origin is not None else []),
        ("Trace", listed(run.trace for run in runs)),
        ("Cluster", listed(f"{run.cluster} ({run.cluster_gpus:,} GPUs)" for run in runs)),
        ("Recipes", "; ".join(told)),
        ("Seeds", listed(str(run.seed) for run in runs)),
        ("Loads", listed(f"{load:g}" for load in loads) if loads != [1.0] else ""),
        (
            "Simulation",
            f"{total['events']:,.0f} events, {total['decisions']:,.0f} decisions, "
            f"{cpu:,.1f} s of CPU time",
        ),
        versions(),
    ]
    return [(name, text) for name, text in rows if text]
