"""From runs to one HTML file: words and tables here, curves by the page's own script.

Everything is inside the file; nothing is fetched. Every string is escaped by Jinja or stands in a
JSON block whose `<`, `>` and `&` are escaped, and the script never writes HTML.
"""

from __future__ import annotations

import json
import math
import platform
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal

import numpy as np
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

import ganger
from ganger.core.errors import BadInput
from ganger.lab import words
from ganger.lab.metrics import Estimate, Group, aggregate
from ganger.lab.origin import Origin
from ganger.lab.report import series
from ganger.lab.result import Run
from ganger.lab.simulating.waited import hours, shares

COLOURS = 12


@dataclass(frozen=True)
class Column:
    """A metric as a column: `better` says which end of it is good, if any."""

    key: str
    title: str
    kind: Literal["time", "ratio", "number"]
    better: Literal["low", "high", ""] = ""


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


def render(
    runs: Sequence[Run], title: str = "Ganger report", origin: Origin | None = None
) -> str:  # fmt: skip
    """The page of `write_report` as text. The same runs and origin give the same text."""
    if not runs:
        raise BadInput("a report needs at least one run")
    groups = aggregate(runs)
    labels = list(dict.fromkeys(group.label for group in groups))
    loads = sorted({group.load for group in groups})
    panels = [_panel([g for g in groups if g.load == load], labels) for load in loads]
    charts = {"labels": labels, "colours": COLOURS, "panels": [p["chart"] for p in panels]}
    return (
        _environment()
        .get_template("page.html.j2")
        .render(
            title=title,
            labels=labels,
            colours=COLOURS,
            panels=panels,
            columns=COLUMNS,
            data=Markup(_script_json(charts)),
            css=_asset("style.css"),
            scripts=[_asset("draw.js"), _asset("page.js")],
            facts=_facts(runs, labels),
            provenance=_provenance(runs, origin),
            one_seed=_one_seed(groups),
            has_waited=any(p["waited"] for p in panels),
            has_gantt=any(g["gantt"] for p in panels for g in p["chart"]["groups"]),
        )
    )


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("ganger.lab.report", "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(estimate=_estimate, per_cent=_per_cent, duration=words.duration)
    return environment


def _asset(name: str) -> Markup:
    return Markup(files("ganger.lab.report").joinpath(name).read_text(encoding="utf-8"))


def _script_json(data: Any) -> str:
    """JSON that can stand in a script element: no name can close it or open a comment."""
    text = json.dumps(data, allow_nan=False, separators=(",", ":"), ensure_ascii=True)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _panel(groups: list[Group], labels: list[str]) -> dict[str, Any]:
    colours = {label: number for number, label in enumerate(labels)}
    leading = {each.key: words.leaders(groups, each.key, each.better) for each in COLUMNS}
    return {
        "load": groups[0].load,
        "headline": words.headline(groups),
        "remarks": words.remarks(groups),
        "warnings": words.notes(groups),
        "rows": [_row(group, colours[group.label], leading) for group in groups],
        "everything": _everything(groups),
        "names": [(group.label, colours[group.label]) for group in groups],
        "waited": _waited(groups, colours),
        "tenants": series.tenants(groups),
        "undrawn": _undrawn(groups),
        "chart": series.panel(groups, colours),
    }


def _waited(groups: list[Group], colours: dict[str, int]) -> list[dict[str, Any]]:
    """Why jobs waited under each recipe of which that was recorded, and what is shown of it."""
    found = []
    for group in groups:
        known = [run.waited for run in group.runs if run.waited is not None]
        if not known:
            continue
        rows = [
            {"reason": one.reason, "jobs": _whole(round(one.jobs, 1)), "share": one.share,
             "job_hours": hours(one.job_hours), "gpu_hours": hours(one.gpu_hours)}
            for one in shares(known)
        ]  # fmt: skip
        found.append({"label": group.label, "colour": colours[group.label], "rows": rows})
    return found


def _undrawn(groups: list[Group]) -> list[str]:
    """Which recipes have no Gantt chart, and why."""
    reasons = [(group.label, series.no_gantt(group.runs[0])) for group in groups]
    return [f"{label}: {reason}." for label, reason in reasons if reason]


def _one_seed(groups: list[Group]) -> str:
    """What charts of a single run must say where figures are means over several seeds."""
    several = [group for group in groups if len(group.runs) > 1]
    if not several:
        return ""
    first = _listed(str(group.runs[0].seed) for group in several)
    most = max(len(group.runs) for group in several)
    return f"This is the run of seed {first} alone; the tables above are means over {most} seeds."


def _row(group: Group, colour: int, leading: dict[str, list[Group]]) -> dict[str, Any]:
    return {
        "label": group.label,
        "colour": colour,
        "knows": group.knows,
        "finished": _whole(group.mean("jobs_finished")),
        "submitted": _whole(group.mean("jobs_submitted")),
        "cells": [_cell(group, column, leading[column.key]) for column in COLUMNS],
    }


def _cell(group: Group, column: Column, leading: list[Group]) -> dict[str, Any]:
    value, half = group.metrics[column.key]
    return {
        "sort": value if math.isfinite(value) else "",
        "text": _text(value, column.kind),
        "half": _text(half, column.kind) if half > 0 else "",
        "best": group in leading,
    }


def _text(value: float, kind: str) -> str:
    if not math.isfinite(value):
        return ""
    if kind == "time":
        return words.duration(value)
    return _per_cent(value) if kind == "ratio" else f"{value:,.0f}"


def _per_cent(value: float) -> str:
    return f"{value:.1%}" if math.isfinite(value) else "\u2013"


def _whole(value: float) -> str:
    return f"{value:,.0f}" if float(value).is_integer() else f"{value:,.1f}"


def _everything(groups: list[Group]) -> list[tuple[str, list[str]]]:
    """Every metric of every recipe as text."""
    names = list(dict.fromkeys(name for group in groups for name in group.metrics))
    none = Estimate(math.nan, math.nan)
    return [(n, [_estimate(g.metrics.get(n, none)) for g in groups]) for n in names]


def _estimate(value: Estimate) -> str:
    """The mean, and the half-width with two digits where it is more than rounding."""
    if not math.isfinite(value.mean):
        return "\u2013"
    half = value.half_width
    if not half > 0:
        return _number(value.mean)
    decimals = max(0, 1 - math.floor(math.log10(half)))
    return f"{value.mean:,.{decimals}f} \u00b1 {half:,.{decimals}f}"


def _number(value: float) -> str:
    """Five digits, never as a power of ten."""
    if value == 0 or abs(value) >= 1e4:
        return f"{value:,.0f}"
    text = f"{value:,.{max(0, 4 - math.floor(math.log10(abs(value))))}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def _facts(runs: Sequence[Run], labels: list[str]) -> list[tuple[str, str]]:
    """The strip of figures under the title."""
    sizes = sorted({len(run.jobs.name) for run in runs})
    gpus = sorted({run.cluster_gpus for run in runs})
    seeds = len({run.seed for run in runs})
    return [
        (_span(sizes), "jobs"),
        (_span(gpus), "GPUs"),
        (str(len(labels)), "recipe" if len(labels) == 1 else "recipes"),
        (str(seeds), "seed" if seeds == 1 else "seeds"),
    ]


def _span(values: list[int]) -> str:
    return f"{values[0]:,}" if len(values) == 1 else f"{values[0]:,}\u2013{values[-1]:,}"


def _provenance(runs: Sequence[Run], origin: Origin | None) -> list[tuple[str, str]]:
    """Where the figures come from: enough to make them again."""
    told = sorted({f"{run.recipe} knows {run.knows}" for run in runs})
    total = {k: sum(run.simulation.get(k, 0.0) for run in runs) for k in ("events", "decisions")}
    cpu = sum(run.simulation.get("cpu_seconds", 0.0) for run in runs)
    loads = sorted({run.load for run in runs})
    rows = [
        *(origin.rows() if origin is not None else []),
        ("Trace", _listed(run.trace for run in runs)),
        ("Cluster", _listed(f"{run.cluster} ({run.cluster_gpus:,} GPUs)" for run in runs)),
        ("Recipes", "; ".join(told)),
        ("Seeds", _listed(str(run.seed) for run in runs)),
        ("Loads", _listed(f"{load:g}" for load in loads) if loads != [1.0] else ""),
        ("Simulation", f"{total['events']:,.0f} events, {total['decisions']:,.0f} decisions, "
                       f"{cpu:,.1f} s of CPU time"),
        ("Versions", f"ganger {ganger.__version__}, Python {platform.python_version()}, "
                     f"numpy {np.__version__}"),
    ]  # fmt: skip
    return [(name, text) for name, text in rows if text]


def _listed(values: Any) -> str:
    return ", ".join(dict.fromkeys(values))
