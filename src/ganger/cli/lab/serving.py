"""What `ganger requests simulate` does: read, run in parallel, print."""

from __future__ import annotations

import json
import math
import os
import shlex
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from ganger.cli.lab.simulate import parse_seeds
from ganger.cli.lab.trace import console, plain_table
from ganger.cli.progress import Bar
from ganger.core.errors import BadInput
from ganger.core.units import NEVER, SECOND, format_duration, parse_duration

if TYPE_CHECKING:
    from ganger.lab.serving.bound import Bound
    from ganger.lab.serving.run import ServingRun
    from ganger.lab.serving.sweep import Task
    from ganger.workloads.models.profiles import Models
    from ganger.workloads.requests.columns import Requests


def compare(file: str, load: Callable[[], Requests], chosen: dict[str, Any]) -> None:
    """Run every recipe on every fleet, at every load, with every seed. Raises BadInput."""
    from ganger.lab.serving.fleet import read_fleet
    from ganger.lab.serving.run import Setup
    from ganger.lab.serving.sweep import Task, run_tasks
    from ganger.lab.serving.trouble import Trouble
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
    slos = [_slo(chosen.get(name), f"--{name.replace('_', '-')}")
            for name in ("slo", "slo_ttft", "slo_tpot")]  # fmt: skip
    trouble = Trouble(chosen.get("outages", ""), chosen.get("stragglers", ""))
    for fleet in fleets:
        trouble.changes(fleet, 0)
    setup = Setup(slo=slos[0], noise=noise, trouble=trouble, slo_ttft=slos[1], slo_tpot=slos[2],
                  watch=chosen["report"] is not None)  # fmt: skip
    tasks = [
        Task(recipe, fleet, replace(setup, seed=seed, faster=faster))
        for faster in _faster(chosen["faster"])
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
        runs = run_tasks(load, models, tasks, workers=workers, per_request=target,
                         progress=lambda share: bar.show(share, 1.0))  # fmt: skip
    bounds = _bounds(load, models, tasks)
    if chosen["report"] is not None:
        _report(runs, bounds, [file, chosen["models"]], chosen["report"])
    if chosen["as_json"]:
        click.echo(json.dumps({
            "requests": file, "runs": [run.to_json() for run in runs],
            "bounds": [
                {"fleet": fleet, "faster": faster, "attainment": bound.attainment,
                 "goodput_per_second": bound.goodput_per_second}
                for (fleet, faster), bound in bounds.items()
            ],
        }, indent=2))  # fmt: skip
        return
    show(runs, bounds, by_class=chosen.get("by_class", False))


def refuse_unwritable(options: dict[str, Any]) -> None:
    """Raise BadInput before a long simulation if its results can be put nowhere."""
    for name in ("per_request", "report"):
        path: Path | None = options[name]
        if path is not None and not path.absolute().parent.is_dir():
            raise BadInput(f"no folder {str(path.parent)!r}", where=f"--{name.replace('_', '-')}",
                           mend="make it first")  # fmt: skip


def _report(
    runs: list[ServingRun], bounds: dict[tuple[str, float], Bound], inputs: list[str], path: Path
) -> None:
    """Write the HTML report."""
    from ganger.lab.origin import origin_of
    from ganger.lab.report.serving import write_report

    origin = origin_of(shlex.join(["ganger", *sys.argv[1:]]), inputs)
    write_report(runs, path, origin=origin, bounds=bounds)
    click.echo(f"report: {path}", err=True)


def _bounds(
    load: Callable[[], Requests], models: Models, tasks: list[Task]
) -> dict[tuple[str, float], Bound]:
    """The most that can be in time, by fleet and load."""
    from ganger.lab.serving.run import bound_of
    from ganger.recipes.registry import make_router

    streams = max(make_router(task.recipe).can.streams for task in tasks)
    asked = {(str(task.fleet), task.setup.faster): task for task in tasks}
    found = {
        key: bound_of(load(), models, task.fleet, task.setup, streams)
        for key, task in asked.items()
    }
    return {key: bound for key, bound in found.items() if bound is not None}


def _slo(text: str | None, where: str) -> int:
    """Microseconds; NEVER where none is given. Raises BadInput."""
    slo = NEVER if text is None else parse_duration(text, where=where)
    if not slo:
        raise BadInput("nothing is answered in no time", where=where, mend="write like 100ms")
    return slo


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


def show(
    runs: list[ServingRun], bounds: dict[tuple[str, float], Bound], *, by_class: bool = False
) -> None:
    """Print a row for each recipe, fleet and load: means over the seeds; `by_class` the same for
    the classes of requests; the most that any recipe could have in time; why requests were dropped;
    what was left out."""
    from rich.markup import escape

    screen = console()
    groups: dict[tuple[str, str, str], list[ServingRun]] = {}
    for run in runs:
        key = (run.recipe, run.fleet, f"{run.setup.faster:g}")
        groups.setdefault(key, []).append(run)
    columns = dict(zip(("recipe", "fleet", "load"), zip(*groups, strict=True), strict=True))
    shown = [name for name, words in columns.items() if len(set(words)) > 1] or ["recipe"]
    table = plain_table()
    table.show_header, table.padding = True, (0, 1, 0, 0)
    widest = 16 if len(shown) < len(columns) else 12
    for title in shown:
        words = [title, *columns[title]]
        table.add_column(title, overflow="fold", min_width=min(widest, max(map(len, words))))
    spoke = any(run.metrics["output_tokens"] is not None for run in runs)
    room = len(shown) == 1
    loads = room and any(run.metrics["loads"] for run in runs)
    used = room and any(_gave_back(run) for run in runs)
    figures = {
        **(_SPOKEN if spoke else _FIGURES),
        **({"loads": ("loads", "{:,.0f}".format)} if loads else {}),
        **({"lanes": ("lanes_used_mean", _number)} if used else {}),
    }
    for title in figures:
        table.add_column(title, justify="right", no_wrap=True)
    for at, group in enumerate(groups.values()):
        table.add_row(
            *(escape(columns[name][at]) for name in shown),
            *(write(_mean(group, name)) for name, write in figures.values()),
        )  # fmt: skip
    screen.print(table)
    if by_class:
        _show_classes(screen, [
            (" ".join(columns[name][at] for name in shown), row)
            for at, group in enumerate(groups.values()) for row in group[0].classes
        ])  # fmt: skip
    same = [f"{name} {words[0]}" for name, words in columns.items() if name not in shown]
    seeds = len({run.setup.seed for run in runs})
    same += [f"means over {seeds} seeds"] * (seeds > 1)
    said = ", ".join([f"{runs[0].metrics['requests']:,} requests", *same])
    lines = [f"{said}. In time: answered by the deadline, of all that came; good/s: these, a"
             " second. Latencies are of answered requests."]  # fmt: skip
    if spoke:
        lines.append("ttft, tpot: the 99th percentiles of the time to the first token, and of that"
                     " for each further one; tok/s: tokens of outputs, a second.")  # fmt: skip
    for (fleet, faster), bound in bounds.items():
        if bound.attainment > _ALL:
            continue
        about = " ".join({"fleet": fleet, "load": f"load {faster:g}"}[name]
                         for name in shown if name != "recipe")  # fmt: skip
        lines.append(f"{about}{': no' if about else 'No'} recipe can have more than"
                     f" {percent(bound.attainment)} in time, without luck")  # fmt: skip
    lines += [
        f"{recipe} needs the future: it knows which requests come, and cannot be deployed"
        for recipe in dict.fromkeys(run.recipe for run in runs if run.needs)
    ]
    for (recipe, fleet, load), group in groups.items():
        for reason, count in sorted(group[0].dropped.items(), key=lambda item: -item[1]):
            about = " ".join({"recipe": recipe, "fleet": fleet, "load": load}[name]
                             for name in shown)  # fmt: skip
            lines.append(f"{about}: {count:,} dropped: {reason}")
    for line in lines:
        screen.print(escape(line), style="dim", soft_wrap=False)
    for remark in runs[0].remarks:
        click.echo(f"note: {remark}", err=True)


def _gave_back(run: ServingRun) -> bool:
    """Whether its router gives lanes back, so that not all are used all the time."""
    from ganger.recipes.registry import make_router

    return make_router(run.recipe).can.retires


def _show_classes(screen: Any, rows: list[tuple[str, dict[str, Any]]]) -> None:
    """A row for each class of requests, by tenant and SLO, of the first seed of each group."""
    from rich.markup import escape

    if not rows:
        screen.print("Each model has one class of requests.", style="dim")
        return
    every = [row for _, row in rows]
    words = {
        "run": [name for name, _ in rows],
        "model": [row["model"] for row in every],
        "tenant": [row["tenant"] or "" for row in every],
        "SLO": [time_of(row["slo_seconds"]) for row in every],
    }  # fmt: skip
    table = plain_table()
    table.show_header, table.padding = True, (0, 1, 0, 0)
    names = [name for name, column in words.items() if len(set(column)) > 1]
    for name in names:
        table.add_column(name, overflow="fold")
    for title in ("requests", *_OF_CLASSES):
        table.add_column(title, justify="right", no_wrap=True)
    for at, row in enumerate(every):
        table.add_row(*(escape(words[name][at]) for name in names), f"{row['requests']:,}",
                      *(write(row[of]) for of, write in _OF_CLASSES.values()))  # fmt: skip
    screen.print(table)


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
_SPOKEN: Final = {
    "in time": ("attainment", percent), "good/s": ("goodput_per_second", _number),
    "ttft": ("ttft_p99_seconds", time_of), "tpot": ("tpot_p99_seconds", time_of),
    "tok/s": ("output_tokens_per_second", _number), "busy": ("utilisation", _round),
}  # fmt: skip
"""The same where token models ran."""
_OF_CLASSES: Final = {
    "in time": ("attainment", percent), "p50": ("latency_p50_seconds", time_of),
    "p99": ("latency_p99_seconds", time_of), "ttft p99": ("ttft_p99_seconds", time_of),
}  # fmt: skip
"""The same of a class."""
