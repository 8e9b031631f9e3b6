"""What `ganger requests simulate` does: read, run in parallel, print."""

from __future__ import annotations

import json
import math
import os
import shlex
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
from click.core import ParameterSource

from ganger.cli.lab.simulate import parse_seeds
from ganger.cli.lab.trace import console, plain_table
from ganger.cli.progress import Bar
from ganger.core.errors import BadInput
from ganger.core.units import NEVER, SECOND, format_duration, parse_duration

if TYPE_CHECKING:
    from ganger.lab.serving.run import Place, ServingRun
    from ganger.lab.serving.sweep import Comparison
    from ganger.workloads.requests.columns import Requests


def compare(
    file: str, load: Callable[[], Requests], chosen: dict[str, Any], files: Sequence[str] = ()
) -> None:
    """Run every recipe on every fleet, at every load, with every SLO and seed; `files`: what the
    figures come from. Raises BadInput."""
    from ganger.lab.serving.fleet import read_fleet
    from ganger.lab.serving.run import Setup
    from ganger.lab.serving.sweep import Task, compare_tasks
    from ganger.recipes.registry import make_router, split_specs
    from ganger.workloads.models.reading import read_models

    recipes = split_specs(chosen["recipe"])
    if not recipes:
        raise BadInput("it names none", where="--recipe", mend="write like serve.triton,clockwork")
    for recipe in recipes:
        make_router(recipe)
    fleets = [read_fleet(part) for part in chosen["fleets"].split(",")]
    noise = chosen["noise"]
    if noise != noise:
        raise BadInput("nan is not a valid spread", where="--latency-noise",
                       mend="give a number from 0 to 10")  # fmt: skip
    setup = Setup(noise=noise, watch=chosen["report"] is not None)
    tasks = [
        Task(recipe, fleet, replace(setup, seed=seed, faster=faster, slo=slo))
        for slo in _slos(chosen["slo"]) for faster in _faster(chosen["faster"])
        for fleet in fleets for recipe in recipes
        for seed in parse_seeds(chosen["seeds"])
    ]  # fmt: skip
    target: Path | None = chosen["per_request"]
    if target is not None and len(tasks) != 1:
        raise BadInput(f"one file holds one run, not {len(tasks)}", where="--per-request",
                       mend="name one recipe, fleet, load and seed")  # fmt: skip
    refuse_unwritable(chosen)
    models = read_models(chosen["models"])
    workers = chosen["workers"] or os.cpu_count() or 1
    with Bar(f"{len(tasks)} runs", chosen["quiet"] or chosen["as_json"]) as bar:
        found = compare_tasks(load, models, tasks, workers=workers, per_request=target,
                              progress=lambda share: bar.show(share, 1.0))  # fmt: skip
    if chosen["report"] is not None:
        _report(found, files or [file, chosen["models"]], chosen["report"])
    if chosen["as_json"]:
        click.echo(json.dumps({"requests": file, **found.to_json()}, indent=2))
    else:
        show(found)


def serve_on_cluster(requests: Path, cluster: str, recipe: str, options: dict[str, Any]) -> None:
    """Requests on all GPUs of a cluster. Raises BadInput."""
    from ganger.workloads.requests.formats import load_requests

    given = click.get_current_context().get_parameter_source
    for name in ("inner", "serving", "rates", "knows", "load", "per_job", "log", "why"):
        if given(name) not in (None, ParameterSource.DEFAULT):
            option = name.replace("_", "-")
            raise BadInput("it is about jobs, and these are requests", where=f"--{option}",
                           mend="leave it out; see `ganger requests simulate`")  # fmt: skip
    chosen = {
        "recipe": recipe if given("recipe") != ParameterSource.DEFAULT else options["router"],
        "fleets": fleet_of(cluster),
        "models": str(options["models"]), "faster": "1", "noise": 1.0, "per_request": None,
        **{name: options[name] for name in (
            "slo", "seeds", "workers", "quiet", "as_json", "report")},
    }  # fmt: skip
    compare(str(requests), lambda: load_requests(requests), chosen)


def fleet_of(cluster: str) -> str:
    """All GPUs of a cluster as a fleet. Raises BadInput."""
    from ganger.workloads.clusters import load_cluster

    counts: dict[str, int] = {}
    for node in load_cluster(cluster).nodes:
        if node.gpus:
            counts[node.gpu_type] = counts.get(node.gpu_type, 0) + node.count * node.gpus
    return "+".join(f"{name}:{count}" for name, count in counts.items())


def refuse_unwritable(options: dict[str, Any]) -> None:
    """Raise BadInput before a long simulation if its results can be put nowhere."""
    for name in ("per_request", "report"):
        path: Path | None = options[name]
        if path is not None and not path.absolute().parent.is_dir():
            raise BadInput(f"no folder {str(path.parent)!r}", where=f"--{name.replace('_', '-')}",
                           mend="make it first")  # fmt: skip


def _report(found: Comparison, inputs: Sequence[str], path: Path) -> None:
    """Write the HTML report."""
    from ganger.lab.origin import origin_of
    from ganger.lab.report.serving import write_report

    origin = origin_of(shlex.join(["ganger", *sys.argv[1:]]), inputs)
    write_report([*found.runs, *found.oracle], path, origin=origin, bounds=found.bounds)
    click.echo(f"report: {path}", err=True)


def _slos(text: str | None) -> list[int]:
    found = [NEVER] if text is None else [
        parse_duration(part.strip(), where="--slo") for part in text.split(",")
    ]  # fmt: skip
    if not all(found):
        raise BadInput("nothing is answered in no time", where="--slo", mend="write like 100ms")
    return found


def _faster(text: str) -> list[float]:
    found = []
    for part in text.split(","):
        try:
            value = float(part)
        except ValueError:
            value = math.nan
        if not 1e-6 <= value <= 1e6:
            raise BadInput(f"{part!r} is not a valid factor", where="--faster",
                           mend="write like 2 or 0.5,1,2")  # fmt: skip
        found.append(value)
    return found


def show(found: Comparison) -> None:
    """Print a row for each recipe and place: means over the seeds; the most that any recipe could
    have in time; why requests were dropped; what was left out."""
    from rich.markup import escape

    screen, runs = console(), found.runs
    groups: dict[tuple[str, str, str, str], list[ServingRun]] = {}
    places = list(found.bounds)
    for run in sorted([*runs, *found.oracle], key=lambda run: places.index(run.place)):
        groups.setdefault(_key(run.recipe.removeprefix("serve.") if run in found.oracle
                               else run.recipe, run.place), []).append(run)  # fmt: skip
    titles = ("recipe", "fleet", "load", "SLO")
    columns = dict(zip(titles, zip(*groups, strict=True), strict=True))
    shown = [name for name, words in columns.items() if len(set(words)) > 1] or ["recipe"]
    table = plain_table()
    table.show_header, table.padding = True, (0, 1, 0, 0)
    widest = 17 if len(shown) < 3 else 12
    for title in shown:
        words = [title, *columns[title]]
        table.add_column(title, overflow="fold", min_width=min(widest, max(map(len, words))))
    for title in _FIGURES:
        table.add_column(title, justify="right", no_wrap=True)
    for at, group in enumerate(groups.values()):
        table.add_row(
            *(escape(columns[name][at]) for name in shown),
            *(write(_mean(group, name)) for name, write in _FIGURES.values()),
        )  # fmt: skip
    screen.print(table)
    same = [f"{name} {words[0]}" for name, words in columns.items()
            if name not in shown and words[0]]  # fmt: skip
    seeds = len({run.setup.seed for run in runs})
    same += [f"means over {seeds} seeds"] * (seeds > 1)
    said = ", ".join([f"{runs[0].metrics['requests']:,} requests", *same])
    lines = [f"{said}. In time: answered by the deadline, of all that came; good/s: these, a"
             " second. Latencies are of answered requests."]  # fmt: skip
    if found.oracle:
        lines.append("clairvoyant (serve.clairvoyant) knows all requests before they come (needs:"
                     " future), which nobody can deploy.")  # fmt: skip
    for place, bound in found.bounds.items():
        if bound.attainment > _ALL:
            continue
        about = place.told(found.bounds)
        lines.append(f"{about}{': no' if about else 'No'} recipe can have more than"
                     f" {percent(bound.attainment)} in time, without luck")  # fmt: skip
    for group in groups.values():
        first = group[0]
        about = ", ".join(filter(None, (first.recipe, first.place.told(found.bounds))))
        for reason, count in sorted(first.dropped.items(), key=lambda item: -item[1]):
            lines.append(f"{about}: {count:,} dropped: {reason}")
    for line in lines:
        screen.print(escape(line), style="dim", soft_wrap=False)
    for remark in runs[0].remarks:
        click.echo(f"note: {remark}", err=True)


def _key(recipe: str, place: Place) -> tuple[str, str, str, str]:
    slo = "" if place.slo == NEVER else format_duration(place.slo)
    return recipe, place.fleet, f"{place.faster:g}", slo


def _mean(group: list[ServingRun], name: str) -> float | None:
    """Over its seeds; None where a run has no such figure."""
    values = [run.metrics[name] for run in group]
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if len(known) == len(values) else None


def percent(value: float | None) -> str:
    """A part, as it is shown."""
    return "-" if value is None else f"{100 * value:.1f}%"


def _round(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.0f}%"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:,.0f}" if value >= 100 else f"{value:.1f}"


def time_of(value: float | None) -> str:
    """Seconds, as they are shown."""
    if value is None:
        return "-"
    return f"{value * 1000:.1f}ms" if value < 1 else format_duration(value * SECOND)


_ALL: Final = 0.9995
"""Bounds above it are no news."""
_FIGURES: Final = {
    "in time": ("attainment", percent), "good/s": ("goodput_per_second", _number),
    "p50": ("latency_p50_seconds", time_of), "p99": ("latency_p99_seconds", time_of),
    "drops": ("dropped", "{:,.0f}".format),
    "batch": ("batch_mean", _number), "busy": ("utilisation", _round),
}  # fmt: skip
"""Columns: the metric, and how it is written."""
