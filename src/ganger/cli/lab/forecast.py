"""What `ganger tune --dry-run` says: what a search will come to, by what is known."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click
import msgspec

from ganger.cli import completion
from ganger.cli.live.searches import search_named, tried_in
from ganger.cli.text import print_json
from ganger.client.answers import JobPage
from ganger.client.connection import Client, NoDaemon
from ganger.client.shown import shown
from ganger.core.errors import BadInput
from ganger.core.units import SECOND, format_duration

if TYPE_CHECKING:
    from ganger.core.spec import ClusterSpec
    from ganger.lab.tuning.forecast import Forecast, Known, Range
    from ganger.workloads.experiment.reading import Experiment

F = TypeVar("F", bound=Callable[..., Any])
_OPTIONS: Final = (
    click.option("--dry-run", is_flag=True, help="Submit nothing: forecast trials, time and cost. "
        "With --json the request as well."),
    click.option("--curves", metavar="FILE|parametric:..", help="What trials will report, as for "
        "`simulate`: --dry-run forecasts by it."),
    click.option("--task", default="", metavar="NAME",
        help="Which task of --curves, where it has several."),
    click.option("--like", multiple=True, metavar="SEARCH", shell_complete=completion.jobs,
        help="Trials take as long as those of this search: --dry-run forecasts by it. Default: "
        "--warm-start, or searches of the same --name."),
    click.option("--cluster", metavar="FILE", help="The cluster whose prices --dry-run counts. "
        "Default: what the search of --like paid."),
)  # fmt: skip
_NAMELESS: Final = "search"
"""What searches without a name are called."""
_SAME_NAME: Final = 5
"""The most searches of the same name whose trials count."""


def forecast_options(command: F) -> F:
    """Add `--dry-run` and what it forecasts by."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def refuse_unforecast(options: dict[str, Any]) -> None:
    """Raise BadInput for what a forecast alone needs, where there is none."""
    for name in ("curves", "task", "like", "cluster"):
        if options[name] and not options["dry_run"]:
            raise BadInput(
                "it is what a forecast is made by", where=f"--{name}", mend="add --dry-run"
            )


def show_forecast(
    experiment: Experiment,
    request: msgspec.Struct,
    warm_start: tuple[str, ...],
    options: dict[str, Any],
    *,
    as_json: bool,
) -> None:
    """Print what the search will come to; as JSON the request with a `forecast`. Raises
    BadInput."""
    from ganger.lab.tuning.forecast import forecast

    prediction = forecast(
        experiment, _known(experiment, warm_start, options), workers=os.cpu_count() or 1
    )
    if as_json:
        print_json({**msgspec.to_builtins(request), "forecast": prediction.to_json()})
        return
    for line in words_of(prediction):
        click.echo(shown(line))


def _known(experiment: Experiment, warm_start: tuple[str, ...], options: dict[str, Any]) -> Known:
    """The curves of a file, or what trials of earlier searches reported. Raises BadInput."""
    from ganger.cli.lab.tuning import curves_of
    from ganger.lab.tuning.forecast import Known
    from ganger.workloads.clusters import load_cluster

    cluster = None if options["cluster"] is None else load_cluster(options["cluster"])
    if options["curves"]:
        if options["like"]:
            raise BadInput("--curves says it, too", where="--like", mend="keep one of them")
        source = curves_of(options["curves"], options["task"])
        return Known(source, f"the curves of {options['curves']}", cluster)
    if options["task"]:
        raise BadInput("a task of which curves?", where="--task", mend="add --curves FILE")
    if named := options["like"] or warm_start:
        return _by_searches(experiment, named, cluster)
    if same := _of_the_same_name(experiment):
        try:
            return _by_searches(experiment, same, cluster)
        except BadInput:
            pass  # nobody named them, and they tell nothing
    return Known(cluster=cluster)


def _of_the_same_name(experiment: Experiment) -> tuple[str, ...]:
    """The last searches of the experiment, if it has a name and a daemon answers."""
    if experiment.document.name == _NAMELESS:
        return ()
    query = {"state": "all", "kind": "tune", "limit": 1000}
    try:
        page = Client().call("GET", "/v1/jobs", JobPage, query=query)
    except NoDaemon:
        return ()
    same = [str(job.job) for job in page.jobs if job.name == experiment.document.name]
    return tuple(same[:_SAME_NAME])


def _by_searches(
    experiment: Experiment, searches: tuple[str, ...], cluster: ClusterSpec | None
) -> Known:
    """What trials of these searches reported. Raises BadInput where that tells nothing."""
    from ganger.lab.tuning.forecast import by_trials
    from ganger.lab.tuning.run import own_cluster

    client, trials, paid, held = Client(), [], 0.0, 0.0
    for search in searches:
        detail = search_named(client, search)
        metric, tried = tried_in(client, detail)
        if metric != experiment.document.metric:
            raise BadInput(
                f"its trials are judged by {metric}, not by {experiment.document.metric}",
                where=f"search {detail.label}",
                mend="name another search",
            )
        trials += tried
        if detail.cost is not None and detail.gpu_hours:
            paid, held = paid + detail.cost, held + detail.gpu_hours
    words = "searches" if len(searches) > 1 else "search"
    known = by_trials(trials, experiment, f"{words} {', '.join(searches)}")
    if cluster is None and paid:
        cluster = _priced(own_cluster(experiment), paid / held)
    return replace(known, cluster=cluster)


def _priced(cluster: ClusterSpec, price: float) -> ClusterSpec:
    """The cluster with GPUs at this price an hour."""
    from ganger.core.spec import GpuType

    types = {node.gpu_type for node in cluster.nodes}
    kinds = tuple(GpuType(name, price=price) for name in sorted(types))
    return msgspec.structs.replace(cluster, gpu_types=kinds)


def words_of(prediction: Forecast) -> list[str]:
    """A forecast in lines."""
    lines = [f"{prediction.recipe}; nothing is submitted"]
    for name, title in _TITLES.items():
        span, limit = prediction.figures.get(name), prediction.bounds.get(name)
        bound = "" if limit is None else f"at most {_figure(name, limit)}"
        if span is not None:
            lines.append(f"{title}: {_spanned(name, span)}" + f", {bound}" * bool(bound))
        elif bound:
            lines.append(f"{title}: {bound}")
    runs = sum(prediction.ended_by.values())
    for word, count in prediction.ended_by.items():
        if word:
            lines.append(f"ended by {word} in {count} of {runs} runs")
    if prediction.by:
        by = ", ".join(prediction.by)
        lines.append(f"by {by}: {runs} simulated runs, the median (where 80 % of them lie)")
    lines += [f"not known: {each}" for each in prediction.unknown]
    if not prediction.by:
        lines.append("name --curves FILE, or --like SEARCH for a search whose trials are alike")
    return lines


_TITLES: Final = {
    "trials": "trials",
    "epochs": "epochs of all trials",
    "seconds": "time",
    "gpu_hours": "GPU-hours",
    "cost": "money",
    "best": "best",
}


def _spanned(name: str, span: Range) -> str:
    if span.low == span.high:
        return _figure(name, span.median)
    low, high = _figure(name, span.low), _figure(name, span.high)
    return f"{_figure(name, span.median)} ({low} to {high})"


def _figure(name: str, value: float) -> str:
    if name == "seconds":
        return format_duration(round(value) * SECOND)
    return f"{round(value):,}" if name in ("trials", "epochs") else f"{value:.4g}"
