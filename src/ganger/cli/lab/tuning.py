"""`ganger simulate EXPERIMENT --curves FILE`: searches for hyper-parameters on curves."""

from __future__ import annotations

import json
import math
import shlex
import sys
from collections.abc import Collection, Iterable
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any, Final

import click
from click.core import ParameterSource

from ganger.cli.lab.shown_runs import refuse_no_folder
from ganger.cli.lab.trace import console, plain_table
from ganger.cli.progress import Bar
from ganger.core.errors import BadInput
from ganger.core.units import SECOND, format_duration, parse_duration

if TYPE_CHECKING:
    from ganger.lab.tuning.result import TuningRun
    from ganger.lab.tuning.run import Place
    from ganger.workloads.curves.parametric import Formula
    from ganger.workloads.curves.table import CurveTable
    from ganger.workloads.experiment.reading import Experiment

_USED: Final = {
    "trace", "schema", "cluster", "recipe", "seeds", "curves", "task", "per_trial", "begin",
    "checkpoint", "restore", "finish", "stragglers", "as_json", "validate", "quiet",
    "workers", "report",
}  # fmt: skip
"""The options that mean something for an experiment."""


def simulate_experiment(path: Path, recipe: str, options: dict[str, Any]) -> None:
    """Every recipe with every seed, one after the other. Raises BadInput."""
    from ganger.lab.tuning.result import per_trial
    from ganger.lab.tuning.run import run_experiment
    from ganger.recipes.registry import split_specs
    from ganger.workloads.experiment.reading import read_experiment
    from ganger.workloads.files import write_bytes

    refuse_others(_USED)
    experiment = read_experiment(path)
    source = curves_of(options["curves"], options["task"])
    given = click.get_current_context().get_parameter_source
    recipes = split_specs(recipe if given("recipe") != _DEFAULT else experiment.document.recipe)
    if not recipes:
        raise BadInput("it names none", where="--recipe", mend="write like tune.asha,tune.sha")
    refuse_no_folder(options, "per_trial", "report")
    _refuse_overwriting(options, (path, Path(options["curves"])))
    target: Path | None = options["per_trial"]
    report: Path | None = options["report"]
    place, seeds = _place(experiment, options), _seeds(experiment, options)
    tasks = [(name, seed) for name in recipes for seed in seeds]
    runs: list[TuningRun] = []
    with Bar(f"{len(tasks)} runs", options["quiet"] or options["as_json"]) as bar:
        for name, seed in tasks:
            watch = report is not None
            runs.append(run_experiment(experiment, source, name, seed, place, watch=watch))
            bar.show(len(runs) / len(tasks), 1.0)
    if target is not None:
        write_bytes(target, per_trial(runs).encode())
    if report is not None:
        _write_report(runs, report, options)
    if options["as_json"]:
        figures = {"experiment": str(path), "runs": [run.to_json() for run in runs]}
        click.echo(json.dumps(figures, indent=2))
    else:
        _show(experiment, place, runs)


_DEFAULT = ParameterSource.DEFAULT


def _refuse_overwriting(options: dict[str, Any], inputs: Iterable[Path]) -> None:
    """Raise BadInput where a file that is to be written is one that is read."""
    for name in ("per_trial", "report"):
        target: Path | None = options[name]
        for read in inputs:
            if target is not None and target.exists() and read.exists() and target.samefile(read):
                raise BadInput(
                    f"it would overwrite {read}, which is read",
                    where=f"--{name.replace('_', '-')}",
                    mend="name another file",
                )


def _write_report(runs: list[TuningRun], target: Path, options: dict[str, Any]) -> None:
    from ganger.lab.origin import origin_of
    from ganger.lab.report.searches.build import write_report

    command = shlex.join(["ganger", *sys.argv[1:]])
    read = [options["trace"], options["curves"], options["cluster"]]
    origin = origin_of(command, filter(None, read))
    write_report(runs, target, f"Search: {runs[0].experiment}", origin)
    click.echo(f"report: {target}", err=True)


def refuse_others(used: Collection[str], what: str = "an experiment") -> None:
    """Raise BadInput for an option that was given, is not `used`, and so is not about `what`."""
    context = click.get_current_context()
    for parameter in context.command.get_params(context):
        name = parameter.name or ""
        if name not in used and context.get_parameter_source(name) not in (None, _DEFAULT):
            raise BadInput(
                f"it means nothing for {what}", where=parameter.opts[0], mend="leave it out"
            )


def curves_of(text: str | None, task: str) -> CurveTable | Formula:
    """The curves that `--curves` and `--task` name. Raises BadInput."""
    from ganger.workloads.curves.parametric import read_formula
    from ganger.workloads.curves.reading import read_curves

    if text is None:
        raise BadInput(
            "what do its trials report?",
            where="--curves",
            mend="give a curve table, or parametric:epochs=81,noise=0.02; see docs/tuning.md",
        )
    if text.partition(":")[0] == "parametric":
        if task:
            raise BadInput("parametric curves have no task", where="--task", mend="leave it out")
        return read_formula(text)
    return read_curves(Path(text), task)


def _place(experiment: Experiment, options: dict[str, Any]) -> Place:
    from ganger.lab.tuning.run import Place, own_cluster
    from ganger.sim.physics import Costs
    from ganger.workloads.clusters import load_cluster
    from ganger.workloads.curves.stragglers import read_stragglers

    cluster = options["cluster"]
    costs = Costs(
        start=parse_duration(options["begin"], where="--start-cost"),
        finish=parse_duration(options["finish"], where="--finish-cost"),
        checkpoint=parse_duration(options["checkpoint"], where="--checkpoint-cost"),
        restore=parse_duration(options["restore"], where="--restore-cost"),
    )
    spec = own_cluster(experiment) if cluster is None else load_cluster(cluster)
    return Place(spec, costs, options["validate"], read_stragglers(options["stragglers"]))


def _seeds(experiment: Experiment, options: dict[str, Any]) -> list[int]:
    from ganger.cli.lab.simulate import parse_seeds

    given = click.get_current_context().get_parameter_source
    if given("seeds") == _DEFAULT:
        return [experiment.document.seed]
    return parse_seeds(options["seeds"])


def _show(experiment: Experiment, place: Place, runs: list[TuningRun]) -> None:
    """Print a row for each recipe: means over its seeds."""
    from rich.markup import escape

    screen = console()
    groups: dict[str, list[TuningRun]] = {}
    for run in runs:
        groups.setdefault(run.recipe, []).append(run)
    priced = any(run.metrics["cost"] is not None for run in runs)
    limited = [
        name
        for name in ("deadline_kept", "budget_kept")
        if any(run.metrics[name] is not None for run in runs)
    ]
    titles = ["trials", "reports", "best", "after", "took", "GPU-h", *["cost"] * priced]
    titles += [each.split("_")[0] for each in limited]
    table = plain_table()
    table.show_header, table.padding, table.show_edge = True, 0, False
    table.add_column("recipe", overflow="fold", min_width=14)
    for title in titles:
        table.add_column(title, justify="right", no_wrap=True)
    for recipe, group in groups.items():
        cells = [
            f"{_mean(group, 'trials'):,.0f}",
            f"{_mean(group, 'reports'):,.0f}",
            _figure(_mean(group, "best")),
            _time(_mean(group, "best_at_seconds")),
            _time(_mean(group, "seconds")),
            f"{_mean(group, 'gpu_hours'):,.2f}",
            *[f"{_mean(group, 'cost'):,.2f}"] * priced,
            *(_kept(group, name) for name in limited),
        ]
        table.add_row(escape(recipe), *cells)
    screen.print(table, "")
    seeds = len({run.seed for run in runs})
    about = (
        f"{experiment.document.name} on {place.cluster.name}, {runs[0].mode} of {runs[0].metric}"
    )
    screen.print(escape(about + f", means over {seeds} seeds" * (seeds > 1)), style="dim")


def _mean(group: list[TuningRun], name: str) -> float:
    values = [run.metrics[name] for run in group if run.metrics[name] is not None]
    return fmean(values) if values else math.nan


def _figure(value: float) -> str:
    return "" if math.isnan(value) else f"{value:.4g}"


def _time(seconds: float) -> str:
    return "" if math.isnan(seconds) else format_duration(round(seconds) * SECOND)


def _kept(group: list[TuningRun], name: str) -> str:
    kept = sum(bool(run.metrics[name]) for run in group)
    if kept == len(group):
        return "kept"
    return "exceeded" if not kept else f"kept in {kept} of {len(group)}"
