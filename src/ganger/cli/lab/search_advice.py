"""`ganger recommend EXPERIMENT --curves FILE`: the recipe that brings a search to its target."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
from click.core import ParameterSource

from ganger.cli.lab.trace import console, plain_table
from ganger.cli.progress import Bar
from ganger.core.errors import BadInput
from ganger.core.units import SECOND, format_duration, parse_duration

if TYPE_CHECKING:
    from ganger.lab.recommend.searches import SearchAdvice, Span

_USED: Final = {
    "trace", "cluster", "objective", "current", "recipes", "seeds", "begin", "checkpoint",
    "restore", "curves", "task", "target", "stragglers", "time_limit", "as_json",
    "workers", "quiet",
}  # fmt: skip


def recommend_for_search(path: Path, options: dict[str, Any]) -> None:
    """Run, print, and exit with 1 if no recipe is surely better than the one in use. Raises
    BadInput."""
    import msgspec

    from ganger.cli.lab.simulate import parse_seeds
    from ganger.cli.lab.tuning import curves_of, refuse_others
    from ganger.lab.recommend.searches import recommend_search
    from ganger.lab.tuning.run import Place, own_cluster
    from ganger.recipes.registry import split_specs
    from ganger.sim.physics import Costs
    from ganger.workloads.clusters import load_cluster
    from ganger.workloads.curves.stragglers import read_stragglers
    from ganger.workloads.experiment.reading import checked, read_experiment

    refuse_others(_USED)
    experiment = read_experiment(path)
    if options["target"] is not None:
        if not math.isfinite(options["target"]):
            raise BadInput(
                f"{options['target']} is not a valid target",
                where="--target",
                mend="write like 0.03",
            )
        document = msgspec.structs.replace(experiment.document, target=options["target"])
        experiment = checked(document, experiment.where)
    source = curves_of(options["curves"], options["task"])
    cluster = options["cluster"]
    spec = own_cluster(experiment) if cluster is None else load_cluster(cluster)
    costs = Costs(
        start=parse_duration(options["begin"], where="--start-cost"),
        checkpoint=parse_duration(options["checkpoint"], where="--checkpoint-cost"),
        restore=parse_duration(options["restore"], where="--restore-cost"),
    )
    given = click.get_current_context().get_parameter_source("seeds") != ParameterSource.DEFAULT
    with Bar("recommend", options["quiet"] or options["as_json"]) as bar:
        advice = recommend_search(
            experiment,
            source,
            options["objective"] or "soonest",
            among=split_specs(options["recipes"]) if options["recipes"] else None,
            current=options["current"],
            seeds=parse_seeds(options["seeds"] if given else "0-9"),
            place=Place(spec, costs, stragglers=read_stragglers(options["stragglers"])),
            limit_seconds=parse_duration(options["time_limit"], where="--time-limit") / SECOND,
            workers=options["workers"] or os.cpu_count() or 1,
            progress=lambda share: bar.show(share, 1.0),
        )
    if options["as_json"]:
        click.echo(json.dumps(advice.to_json(), indent=2))
    else:
        _print(advice)
    if not advice.better:
        click.get_current_context().exit(1)


def _print(advice: SearchAdvice) -> None:
    from rich.markup import escape

    screen = console()
    for line in _verdict(advice):
        screen.print(escape(line), highlight=False)
    table = plain_table()
    table.show_header, table.padding, table.show_edge = True, (0, 1, 0, 0), False
    table.add_column("recipe", overflow="fold", min_width=14)
    table.add_column("reached", justify="right", no_wrap=True)
    for title in (_TITLES[advice.unit], "times the pick", "best, mean"):
        table.add_column(title, justify="right", no_wrap=True)
    for each in advice.entrants:
        name, times = escape(each.recipe), ""
        if advice.pick is not None and each is not advice.pick:
            times = "= " * advice.is_tied(each) + _times(advice.behind(each))
        best = [run.best for run in each.runs if not math.isnan(run.best)]
        table.add_row(
            f"[bold]{name}[/bold]" if each is advice.pick else name,
            f"{each.reached}/{len(each.runs)}",
            _said(advice.unit, advice.takes(each)),
            times,
            f"{sum(best) / len(best):.4g}" if best else "-",
        )
    screen.print(table)
    screen.print(escape(_caption(advice)), style="dim")
    for name, why in advice.left_out.items():
        screen.print(escape(f"Not tried: {name}: {why}"), style="dim", highlight=False)


_TITLES: Final = {"seconds": "until then", "GPU-hours": "GPU-hours", "money": "money"}


def _verdict(advice: SearchAdvice) -> list[str]:
    """Which to take, and how sure that is."""
    goal = f"{advice.metric} {advice.target:g}"
    if advice.pick is None:
        return [f"No recipe reaches {goal} in {_seeds(advice)}."]
    pick, unit = advice.pick, advice.unit
    takes = _said(unit, advice.takes(pick))
    lines = [f"Take {pick.recipe}: it reaches {goal} {'after' if unit == 'seconds' else 'for'}"
             f" {takes}{'' if unit == 'seconds' else f' {unit}'}."]  # fmt: skip
    ties = [each.recipe for each in advice.entrants if advice.is_tied(each)]
    if ties:
        lines.append(f"Not surely worse: {', '.join(ties)}.")
    over = advice.over_baseline
    if over is not None:
        sure = "" if over.low > 1.0 else ", within noise"
        lines.append(f"Against {advice.baseline}: {_times(over)}{sure}.")
    return lines


def _caption(advice: SearchAdvice) -> str:
    words = (
        f"{_seeds(advice)} each, the same configurations and costs for every recipe. A search that"
        " misses the target counts in whole, and is begun anew."
    )
    if advice.seeds > 1:
        words += (
            " In brackets 95 % intervals over seeds; = one that is not surely worse than the pick."
        )
    return words


def _seeds(advice: SearchAdvice) -> str:
    return f"{advice.seeds} seed{'s' * (advice.seeds > 1)}"


def _said(unit: str, span: Span) -> str:
    """A figure and its interval, for people."""
    if not math.isfinite(span.value):
        return "never"
    if math.isnan(span.low):
        return _figure(unit, span.value)
    return f"{_figure(unit, span.value)} ({_figure(unit, span.low)} to {_figure(unit, span.high)})"


def _figure(unit: str, value: float) -> str:
    if not math.isfinite(value):
        return "never"
    return format_duration(round(value) * SECOND) if unit == "seconds" else f"{value:.3g}"


def _times(span: Span) -> str:
    """`1.31x (1.22-1.40)`."""
    if not math.isfinite(span.value):
        return "never"
    if math.isnan(span.low):
        return f"{span.value:.2f}x"
    high = f"{span.high:.2f}" if math.isfinite(span.high) else "never"
    return f"{span.value:.2f}x ({span.low:.2f}-{high})"
