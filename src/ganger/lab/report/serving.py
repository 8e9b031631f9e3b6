"""From runs over requests to one HTML file: words and tables; curves by the page's own script."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from ganger.core.errors import BadInput
from ganger.lab.metrics import Estimate
from ganger.lab.origin import Origin
from ganger.lab.report.batches import drawn_lanes
from ganger.lab.report.page import (
    COLOURS,
    Column,
    cell,
    estimate,
    fill,
    listed,
    one_seed,
    per_cent,
    span,
    table,
    text_of,
    versions,
)
from ganger.lab.report.series import short, shorts
from ganger.lab.serving.groups import (
    Bounds,
    Group,
    grouped,
    headline,
    latency,
    leading,
    notes,
    remarks,
)
from ganger.lab.serving.run import Place, ServingRun
from ganger.lab.serving.watching import Watched
from ganger.lab.serving.yardsticks.bound import Bound

COLUMNS: Final = (
    Column("attainment", "In time", "ratio", "high"),
    Column("goodput_per_second", "Good/s", "rate", "high"),
    Column("latency_p50_seconds", "p50", "latency", "low"),
    Column("latency_p95_seconds", "p95", "latency", "low"),
    Column("latency_p99_seconds", "p99", "latency", "low"),
    Column("latency_p999_seconds", "p99.9", "latency", "low"),
    Column("ttft_p99_seconds", "First token p99", "latency", "low"),
    Column("tpot_p99_seconds", "Token p99", "latency", "low"),
    Column("dropped", "Dropped", "number"),
    Column("batch_mean", "Batch", "rate"),
    Column("utilisation", "Busy", "ratio"),
    Column("effective_accuracy", "Right in time", "ratio", "high"),
    Column("cost_per_million_in_time", "Cost/M", "rate", "low"),
)
_MOST_MODELS: Final = 12
_MOST_CLASSES: Final = 24


def write_report(
    runs: Sequence[ServingRun],
    path: str | Path,
    title: str = "Ganger report",
    origin: Origin | None = None,
    bounds: Bounds | None = None,
    missing: Sequence[str] = (),
) -> None:
    """Write one self-contained HTML page comparing the runs to `path`.

    Runs that differ in their seed only are one recipe with a 95 % confidence interval; each fleet
    at each load is a panel. `missing` says why a yardstick is not there. Curves over time and
    batches need runs with `Setup.watch`. Raises BadInput for no runs.
    """
    Path(path).write_text(render(runs, title, origin, bounds, missing), encoding="utf-8")


def render(
    runs: Sequence[ServingRun],
    title: str = "Ganger report",
    origin: Origin | None = None,
    bounds: Bounds | None = None,
    missing: Sequence[str] = (),
) -> str:
    """The page of `write_report` as text. The same runs and origin give the same text."""
    if not runs:
        raise BadInput("a report needs at least one run")
    groups = grouped(runs)
    colours = {name: at for at, name in enumerate(dict.fromkeys(each.recipe for each in groups))}
    places = sorted({group.place for group in groups}, key=_in_order([g.place for g in groups]))
    panels = [
        _panel(
            at,
            place,
            place.told(places),
            [g for g in groups if g.place == place],
            colours,
            (bounds or {}).get(place),
            missing,
        )
        for at, place in enumerate(places)
    ]
    fleets = list(dict.fromkeys(place.fleet for place in places))
    loads = sorted({place.faster for place in places})
    charts = [panel["chart"] for panel in panels]
    first = _first(panels)
    data = {"labels": list(colours), "colours": COLOURS, "panels": charts, "first": first}
    return fill(
        "serving.html.j2",
        "serving.js",
        data=data,
        title=title,
        labels=list(colours),
        panels=panels,
        first=first,
        columns=_columns(groups),
        loads=loads,
        fleets=fleets,
        facts=_facts(runs, list(colours), fleets),
        provenance=_provenance(runs, origin),
        one_seed=one_seed([run.setup.seed for run in group.runs] for group in groups),
        has_time=any(g["time"] for chart in charts for g in chart["groups"]),
        has_lanes=any(g["lanes"] for chart in charts for g in chart["groups"]),
    )


def _in_order(places: Sequence[Place]) -> Callable[[Place], tuple[int, int, float]]:
    """Fleets as they come, then SLOs and loads that grow."""
    fleets = list(dict.fromkeys(place.fleet for place in places))
    return lambda place: (fleets.index(place.fleet), place.slo, place.faster)


def _first(panels: Sequence[dict[str, Any]]) -> int:
    """The panel that is shown first: where recipes differ most in what is in time."""

    def gap(panel: dict[str, Any]) -> float:
        values = [g["metrics"]["attainment"][0] or 0.0 for g in panel["chart"]["groups"]]
        return max(values) - min(values)

    return max(range(len(panels)), key=lambda at: (gap(panels[at]), -at))


def _columns(groups: Sequence[Group]) -> list[Column]:
    """Those of which some group has a figure."""
    return [each for each in COLUMNS if any(math.isfinite(g.mean(each.key)) for g in groups)]


def _panel(
    at: int,
    place: Place,
    where: str,
    groups: list[Group],
    colours: Mapping[str, int],
    bound: Bound | None,
    missing: Sequence[str],
) -> dict[str, Any]:
    columns = _columns(groups)
    best = {each.key: leading(groups, each.key, each.better) for each in columns}
    return {
        "index": at,
        "at": where,
        "choice": where,
        "headline": headline(groups),
        "remarks": [*remarks(groups, bound), *missing],
        "warnings": notes(groups),
        "columns": columns,
        "rows": [
            {
                "label": group.recipe,
                "colour": colours[group.recipe],
                "needs": group.needs,
                "cells": [
                    cell(group.metrics[each.key], each.kind, best=group in best[each.key])
                    for each in columns
                ],
            }
            for group in groups
        ],
        "bound": _bound(bound, columns),
        "names": [(group.recipe, colours[group.recipe]) for group in groups],
        "everything": _everything(groups),
        "drops": _drops(groups, colours),
        "models": _models(groups, colours),
        "classes": _classes(groups, colours),
        "chart": {
            "fleet": place.fleet,
            "load": place.faster,
            "slo": place.slo_seconds,
            "bound": None if bound is None else short(bound.attainment, 6),
            "groups": [_chart(group, colours[group.recipe]) for group in groups],
        },
    }


def _bound(bound: Bound | None, columns: Sequence[Column]) -> list[str]:
    """The last row of the table: what no recipe can exceed; "" where there is no bound."""
    if bound is None:
        return []
    most = {"attainment": bound.attainment, "goodput_per_second": bound.goodput_per_second}
    found = ((most.get(each.key), each.kind) for each in columns)
    return ["" if value is None else text_of(value, kind) for value, kind in found]


def _everything(groups: Sequence[Group]) -> list[tuple[str, list[str]]]:
    names = dict.fromkeys(name for group in groups for name in group.metrics)
    none = Estimate(math.nan, math.nan)
    return [(n, [estimate(g.metrics.get(n, none)) for g in groups]) for n in names]


def _drops(groups: Sequence[Group], colours: Mapping[str, int]) -> dict[str, Any] | None:
    """By recipe and reason: how many a run, and of all requests."""
    body = []
    for group in groups:
        requests = sum(int(run.metrics["requests"] or 0) for run in group.runs)
        counts: dict[str, int] = {}
        for run in group.runs:
            for reason, count in run.dropped.items():
                counts[reason] = counts.get(reason, 0) + count
        order = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
        for at, (reason, count) in enumerate(order):
            cells = [reason, f"{count / len(group.runs):,.0f}", per_cent(count / requests)]
            body.append(
                {
                    "label": group.recipe,
                    "colour": colours[group.recipe],
                    "first": not at,
                    "cells": cells,
                }
            )
    return table(["Recipe", "Reason", "Requests", "Of all"], 2, body)


def _models(groups: Sequence[Group], colours: Mapping[str, int]) -> dict[str, Any] | None:
    """By recipe and model, those first that are asked for most; of the first seed."""
    if all(len(group.runs[0].models) < 2 for group in groups):
        return None
    body = []
    for group in groups:
        run = group.runs[0]
        watched = run.watched.by_model if run.watched is not None else {}
        rows = sorted(run.models, key=lambda row: -row["requests"])[:_MOST_MODELS]
        for at, row in enumerate(rows):
            told = watched.get(row["model"], {})
            cells = [
                row["model"],
                f"{row['requests']:,}",
                per_cent(row["attainment"]),
                f"{row['dropped']:,}",
                *(
                    latency(math.nan if (value := told.get(key)) is None else value)
                    for key in ("latency_p50_seconds", "latency_p95_seconds", "latency_p99_seconds")
                ),
            ]
            body.append(
                {
                    "label": group.recipe,
                    "colour": colours[group.recipe],
                    "first": not at,
                    "cells": cells,
                }
            )
    head = ["Recipe", "Model", "Requests", "In time", "Dropped", "p50", "p95", "p99"]
    return table(head, 2, body)


def _classes(groups: Sequence[Group], colours: Mapping[str, int]) -> dict[str, Any] | None:
    """By recipe and class of requests (model, tenant, SLO), those first that are asked for most; of
    the first seed. Only what tells classes apart has a column."""
    rows = [(group, row) for group in groups for row in group.runs[0].classes]
    first = [row["model"] for row in groups[0].runs[0].classes]
    if len(first) == len(set(first)):
        return None
    words = {
        "Model": [row["model"] for _, row in rows],
        "Tenant": [row["tenant"] or "" for _, row in rows],
        "SLO": ["" if (slo := row["slo_seconds"]) is None else latency(slo) for _, row in rows],
    }
    shown = [name for name, column in words.items() if len(set(column)) > 1]
    times = ["latency_p50_seconds", "latency_p99_seconds"]
    if any(row["ttft_p99_seconds"] is not None for _, row in rows):
        times.append("ttft_p99_seconds")
    body: list[dict[str, Any]] = []
    for group in groups:
        mine = [at for at, (owner, _) in enumerate(rows) if owner is group]
        mine.sort(key=lambda at: -rows[at][1]["requests"])
        for place, at in enumerate(mine[:_MOST_CLASSES]):
            row = rows[at][1]
            cells = [
                *(words[name][at] for name in shown),
                f"{row['requests']:,}",
                per_cent(row["attainment"]),
                "" if row["attainment_bound"] is None else per_cent(row["attainment_bound"]),
                f"{row['dropped']:,}",
                *(latency(math.nan if row[key] is None else row[key]) for key in times),
            ]
            body.append(
                {
                    "label": group.recipe,
                    "colour": colours[group.recipe],
                    "first": not place,
                    "cells": cells,
                }
            )
    titles = ["p50", "p99", "First token p99"][: len(times)]
    head = ["Recipe", *shown, "Requests", "In time", "At most", "Dropped", *titles]
    return table(head, 1 + len(shown), body)


def _chart(group: Group, colour: int) -> dict[str, Any]:
    watched = group.runs[0].watched
    return {
        "series": colour,
        "metrics": {
            name: [short(value.mean, 6), short(value.half_width, 6)]
            for name, value in group.metrics.items()
        },
        "within": {"x": [], "y": []}
        if watched is None
        else dict(zip("xy", map(shorts, watched.within), strict=True)),
        "time": None if watched is None else _over_time(watched),
        "lanes": None if watched is None else drawn_lanes(watched),
    }


def _over_time(watched: Watched) -> dict[str, Any] | None:
    if not watched.windows.get("arrivals"):
        return None
    blank = [0.0] * len(watched.windows["arrivals"])
    names = ("arrivals", "in_time", "open", "busy", "batches", "executed")
    series = {name: shorts(watched.windows.get(name, blank)) for name in names}
    return {"width": watched.width, **series}


def _facts(
    runs: Sequence[ServingRun], labels: Sequence[str], fleets: Sequence[str]
) -> list[tuple[str, str]]:
    """The strip of figures under the title."""
    requests = sorted({int(run.metrics["requests"] or 0) for run in runs})
    seeds = len({run.setup.seed for run in runs})
    return [
        (span(requests), "requests"),
        (
            fleets[0] if len(fleets) == 1 else str(len(fleets)),
            "fleet" if len(fleets) == 1 else "fleets",
        ),
        (str(len(labels)), "recipe" if len(labels) == 1 else "recipes"),
        (str(seeds), "seed" if seeds == 1 else "seeds"),
    ]


def _provenance(runs: Sequence[ServingRun], origin: Origin | None) -> list[tuple[str, str]]:
    """Where the figures come from: enough to make them again."""
    cpu = sum(run.cpu_seconds for run in runs)
    requests = sum(int(run.metrics["requests"] or 0) for run in runs)
    speed = f", {requests / cpu:,.0f} requests a CPU second" if cpu else ""
    rows = [
        *(origin.rows() if origin is not None else []),
        ("Recipes", listed(run.recipe for run in runs)),
        ("Fleets", listed(run.fleet for run in runs)),
        ("Seeds", listed(str(run.setup.seed) for run in runs)),
        ("Loads", listed(f"{run.setup.faster:g}" for run in runs)),
        ("Noise", listed(f"{run.setup.noise:g} of the measured spread" for run in runs)),
        ("Simulation", f"{len(runs)} runs, {cpu:,.1f} s of CPU time{speed}"),
        versions(),
    ]
    return [(name, text) for name, text in rows if text]
