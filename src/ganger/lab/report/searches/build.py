"""From searches to one HTML file: words and tables here, charts by the page's own script."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from ganger.core.errors import BadInput
from ganger.lab.metrics import Estimate
from ganger.lab.origin import Origin
from ganger.lab.report.page import (
    COLOURS,
    Column,
    cell,
    estimate,
    fill,
    listed,
    one_seed,
    span,
    text_of,
    versions,
)
from ganger.lab.report.searches import charts
from ganger.lab.report.searches.groups import (
    FIGURES,
    Group,
    grouped,
    headline,
    leader,
    leading,
    remarks,
)
from ganger.lab.report.searches.importance import LEAST
from ganger.lab.tuning.result import Trial, TuningRun
from ganger.mechanisms.tuning.trials import Mode, badness

_COLUMNS: Final = (
    Column("best_at_seconds", "Found after", "time"),
    Column("trials", "Trials", "number"),
    Column("reports", "Reports", "number"),
    Column("seconds", "Took", "time", "low"),
    Column("gpu_hours", "GPU-hours", "rate", "low"),
    Column("cost", "Cost", "rate", "low"),
)
_BEST_SHOWN: Final = 15


def write_report(
    runs: Sequence[TuningRun],
    path: str | Path,
    title: str = "Ganger report",
    origin: Origin | None = None,
) -> None:
    """Write one self-contained HTML page about these searches to `path`.

    Searches that differ in their seed only are shown as one with a 95 % confidence interval; what
    is drawn by trial is that of the first. It needs runs with `detail`. Raises BadInput for no
    runs, and for searches that are judged by different metrics.
    """
    Path(path).write_text(render(runs, title, origin), encoding="utf-8")


def render(
    runs: Sequence[TuningRun], title: str = "Ganger report", origin: Origin | None = None
) -> str:
    """The page of `write_report` as text. The same searches and origin give the same text."""
    if not runs:
        raise BadInput("a report needs at least one search")
    if len({(run.metric, run.mode) for run in runs}) > 1:
        judged = listed(f"{run.metric} ({run.mode})" for run in runs)
        raise BadInput(f"they are judged by {judged}", mend="report on searches with one metric")
    groups = grouped(runs)
    labels = [group.recipe for group in groups]
    colours = {label: number for number, label in enumerate(labels)}
    chart = charts.panel(groups, colours)
    searches = [group["search"] for group in chart["groups"] if group["search"]]
    panel = {
        "at": "",
        "choice": "",
        "headline": headline(groups),
        "remarks": remarks(groups),
        "warnings": _warnings(groups, chart),
    }
    return fill(
        "searches/searches.html.j2",
        "searches/searches.js",
        data={
            "labels": labels,
            "colours": COLOURS,
            "panels": [chart],
            "leader": colours[leader(groups).recipe],
        },
        title=title,
        labels=labels,
        panels=[panel],
        first=0,
        columns=_columns(groups),
        rows=_rows(groups, colours),
        everything=_everything(groups),
        names=list(colours.items()),
        facts=_facts(groups),
        provenance=_provenance(runs, origin),
        one_seed=one_seed([run.seed for run in group.runs] for group in groups),
        metric=groups[0].runs[0].metric,
        few=LEAST,
        best=[_best(group, colours[group.recipe]) for group in groups],
        along=[name for name in ("seconds", "gpu_hours", "money") if _drawn(chart, name)],
        has_searches=bool(searches),
        has_importance=any(search["importance"] for search in searches),
        has_axes=any(search["axes"] for search in searches),
        has_ladder=any(search["ladder"] for search in searches),
        has_gantt=any(search["gantt"] for search in searches),
    )


def _drawn(chart: dict[str, Any], name: str) -> bool:
    return any(group["best"][name] for group in chart["groups"])


def _warnings(groups: Sequence[Group], chart: dict[str, Any]) -> list[str]:
    """What the charts leave out."""
    said = []
    for group, drawn in zip(groups, chart["groups"], strict=True):
        search = drawn["search"]
        if search is None:
            continue
        shown, of = len(search["trials"]), search["of"]
        if shown < of:
            said.append(
                f"Of the {of:,} trials of {group.recipe}, {shown:,} are drawn, the best"
                " among them; all figures count all."
            )
        if search["no_gantt"]:
            said.append(f"Trials of {group.recipe} on GPUs are not drawn: {search['no_gantt']}.")
    return said


def _columns(groups: Sequence[Group]) -> list[Column]:
    """Those of which there is something to show."""
    return [each for each in _COLUMNS if any(each.key in group.metrics for group in groups)]


def _rows(groups: Sequence[Group], colours: dict[str, int]) -> list[dict[str, Any]]:
    better = "low" if groups[0].runs[0].mode == Mode.MIN.value else "high"
    columns = [Column("best", "", "number", "low" if better == "low" else "high")]
    columns += _columns(groups)
    ahead = {column.key: leading(groups, column.key, column.better) for column in columns}
    none = Estimate(float("nan"), float("nan"))
    rows = []
    for group in groups:
        cells = []
        for column in columns:
            value = group.metrics.get(column.key, none)
            shown = cell(value, column.kind, best=group in ahead[column.key])
            if column.key == "best":
                shown["text"], shown["half"] = _figures(value)
            cells.append(shown)
        rows.append(
            {
                "label": group.recipe,
                "colour": colours[group.recipe],
                "cells": cells,
                "deadline": group.kept("deadline_kept"),
                "budget": group.kept("budget_kept"),
                "ended": group.ends(),
            }
        )
    return rows


def _figures(value: Estimate) -> tuple[str, str]:
    """A value of the metric with four digits, and half of its interval with two."""
    half = value.half_width
    return _figure(value.mean), f"{half:.2g}" if half > 0 else ""


def _figure(value: float) -> str:
    return f"{value:.4g}" if value == value else ""


def _everything(groups: Sequence[Group]) -> list[tuple[str, list[str]]]:
    none = Estimate(float("nan"), float("nan"))
    return [(n, [estimate(g.metrics.get(n, none)) for g in groups]) for n in FIGURES]


def _best(group: Group, colour: int) -> dict[str, Any]:
    """The best trials of a search."""
    run = group.runs[0]
    mode = Mode(run.mode)
    order = sorted(run.trials, key=lambda trial: (badness(trial.best, mode), trial.number))
    names = list(dict.fromkeys(name for trial in run.trials for name in trial.point))
    return {
        "label": group.recipe,
        "colour": colour,
        "names": names,
        "rows": [_trial(trial, names) for trial in order[:_BEST_SHOWN]],
        "more": max(len(order) - _BEST_SHOWN, 0),
    }


def _trial(trial: Trial, names: Sequence[str]) -> dict[str, Any]:
    return {
        "number": trial.number,
        "name": trial.configuration,
        "state": trial.state,
        "point": [_value(trial.point.get(name)) for name in names],
        "figures": [
            _figure(trial.best),
            _figure(trial.last),
            f"{trial.epochs:g}",
            text_of(trial.started_seconds, "time"),
            text_of(trial.gpu_hours, "rate"),
        ],
    }


def _value(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    return "" if value is None else str(value)


def _facts(groups: Sequence[Group]) -> list[tuple[str, str]]:
    """The strip of figures under the title."""
    runs = [run for group in groups for run in group.runs]
    seeds = len({run.seed for run in runs})
    trials = sorted({int(run.metrics["trials"]) for run in runs})
    return [
        (str(len(groups)), "search" if len(groups) == 1 else "searches"),
        (span(trials), "trial" if trials == [1] else "trials"),
        (f"{sum(run.metrics['reports'] for run in runs):,}", "reports"),
        (str(seeds), "seed" if seeds == 1 else "seeds"),
    ]


def _provenance(runs: Sequence[TuningRun], origin: Origin | None) -> list[tuple[str, str]]:
    cpu = sum(run.metrics.get("simulation", {}).get("cpu_seconds", 0.0) for run in runs)
    rows = [
        *(origin.rows() if origin is not None else []),
        ("Search", listed(run.experiment for run in runs)),
        ("Cluster", listed(run.cluster for run in runs)),
        ("Metric", f"{runs[0].metric}, {'more' if runs[0].mode == 'max' else 'less'} is better"),
        ("Recipes", listed(run.recipe for run in runs)),
        ("Seeds", listed(str(run.seed) for run in runs)),
        ("Simulation", f"{cpu:,.1f} s of CPU time" if cpu else ""),
        versions(),
    ]
    return [(name, text) for name, text in rows if text]
