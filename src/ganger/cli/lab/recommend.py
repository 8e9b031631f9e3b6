"""`ganger recommend`."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ganger.cli import completion
from ganger.cli.lab.renting_advice import ABOUT, recommended_rental, renting_options
from ganger.cli.lab.simulate import missing_cluster, parse_seeds
from ganger.cli.options import (
    cost_options,
    load_with_options,
    profiles_option,
    stragglers_option,
    trace_options,
)
from ganger.cli.progress import Bar
from ganger.cli.words import FloatRange
from ganger.core.errors import BadInput

if TYPE_CHECKING:
    from ganger.lab.recommend.race import Recommendation
    from ganger.sim.physics import Costs

EXAMPLES = """\b
Examples:
  ganger recommend jobs.csv --cluster 8x8xV100
  ganger recommend sacct.txt --cluster 16x8xA100 --current backfill --knows rolling
  ganger recommend jobs.csv --cluster 8x8xV100 --objective fairness --load 0.9
  ganger recommend jobs.csv --cluster 8x8xV100 --recipes 'las,mlfq,tiresias,tiresias(starvation=2)'
  ganger recommend jobs.csv --cluster 8x8xV100 --json | jq .pick
  ganger recommend requests.csv --models m.toml --slo 100ms --fleets T4:1-64,L4:1-64
  ganger recommend experiment.toml --curves curves.csv --target 0.03 --objective cheapest
  ganger recommend job.toml --rent prices.toml --goal 6h --budget 200
  ganger recommend job.toml --rent prices.toml --goal 6h --profiles gavel.json --json

\b
Exit codes: 0 a recipe (with --rent: machines) is recommended; 1 none is surely better
than --current (or fifo), or no machines meet the goal; 2 wrong input.
"""


@click.command(epilog=EXAMPLES)
@click.argument("trace", type=click.Path(path_type=Path))
@click.option(
    "--cluster",
    help="For example 8x8xV100, or a cluster file. Default: the cluster that the trace states.",
)
@click.option(
    "--objective",
    metavar="WORD",
    help="jct (default): the mean JCT; fairness: the 99th percentile of rho; makespan; deadline: "
    "the fraction of deadlines missed. For an experiment: soonest (default) or cheapest.",
)
@click.option(
    "--current",
    metavar="RECIPE",
    shell_complete=completion.recipes,
    help="The recipe in use, which the others are compared with. Default: fifo, or that of the "
    "experiment.",
)
@click.option(
    "--recipes",
    metavar="LIST",
    shell_complete=completion.recipes,
    help="Recipes to try. Default: those that suit the trace, the cluster and --knows.",
)
@click.option(
    "--knows",
    default="truth",
    show_default=True,
    type=click.Choice(
        ["truth", "noisy", "history", "rolling", "group", "estimate", "losses", "nothing"]
    ),
    help="What recipes may know about durations, as for `simulate`. They know speeds "
    "with truth, noisy and losses only.",
)
@click.option(
    "--noise",
    type=FloatRange(0, 10),
    default=0.5,
    show_default=True,
    help="Spread of the lognormal error for --knows noisy.",
)
@click.option(
    "--windows",
    type=click.IntRange(1, 1000),
    default=5,
    show_default=True,
    help="Number of windows of the trace that the recipes run on. Intervals are over windows.",
)
@click.option(
    "--jobs",
    type=click.IntRange(1),
    default=500,
    show_default=True,
    help="The most jobs in a window.",
)
@click.option(
    "--seeds", default="0", help="Seeds, like 0 or 0,1,7 or 0-4. Default: 0; of searches 0-9."
)
@click.option(
    "--start-cost",
    "begin",
    default="0s",
    show_default=True,
    help="Time that a job or trial needs before it computes.",
)
@cost_options
@stragglers_option
@click.option(
    "--curves",
    metavar="FILE|parametric:..",
    help="What trials report, as for `simulate`: TRACE is an experiment, and a recipe for it is "
    "recommended.",
)
@click.option(
    "--task", default="", metavar="NAME", help="Which task of --curves, where it has several."
)
@click.option(
    "--target", type=float, help="What trials are to reach. Default: what the experiment says."
)
@click.option(
    "--models",
    metavar="FILE",
    help="What models take: TRACE holds requests, and fleets are recommended.",
)
@click.option("--slo", metavar="TIME", help="Deadline of requests that state none.")
@click.option(
    "--fleets",
    metavar="RANGES",
    help="Fleets to try, like T4:1-64,L4:1-64 (each type alone) or T4:0-8+L4:0-8 (mixes).",
)
@click.option(
    "--attainment",
    type=FloatRange(0, 1, min_open=True),
    default=0.99,
    show_default=True,
    help="The part of requests that has to be in time.",
)
@click.option(
    "--price",
    "prices",
    metavar="TYPE=X,...",
    help="What a device of each type costs; others cost 1. Default: devices are counted.",
)
@renting_options
@click.option(
    "--time-limit",
    default="2m",
    show_default=True,
    metavar="TIME",
    help="CPU time of one run. A recipe that needs more drops out.",
)
@profiles_option
@trace_options
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")
@click.option("--workers", type=click.IntRange(1), help="Processes (default: all cores).")
@click.option("--quiet", is_flag=True, help="No progress bar.")
def recommend(trace: Path, cluster: str | None, **options: Any) -> None:
    """Recommend a recipe for TRACE, with its gain over the others and a confidence interval.

    TRACE may also hold requests to models: with --models, the answer is which recipe keeps the SLO
    on which smallest fleet. Or it is an experiment (docs/tuning.md): with --curves, the answer is
    which recipe over its trials reaches the target soonest, or at the least cost. Or it is one job
    (a job file, as for `submit`): with --rent, the answer is which machines to rent for it, how
    long it takes on them, and what they cost.

    Candidate recipes run over windows of the trace in parallel. Clearly worse ones drop out
    early. The answer states what information the recipe needs. See docs/recommend.md.
    """
    from ganger.workloads.experiment.reading import is_experiment

    if recommended_rental(trace, options):
        return
    _refuse(options, ABOUT, "machines for one job", "a job file")
    if is_experiment(trace):
        from ganger.cli.lab.search_advice import recommend_for_search

        recommend_for_search(trace, {**options, "cluster": cluster})
        return
    _refuse(
        options,
        ("curves", "task", "target", "stragglers"),
        "the trials of an experiment",
        "an experiment",
    )
    if options["models"] is not None:
        from ganger.cli.lab.serving.sizing import recommend_fleet

        recommend_fleet(trace, options)
        return
    _refuse(options, ("slo", "fleets", "prices"), "requests", "requests and --models")
    from ganger.core.units import SECOND, parse_duration
    from ganger.lab.recommend.race import recommend as race
    from ganger.lab.simulating.setup import Setup
    from ganger.recipes.registry import split_specs
    from ganger.workloads.clusters import load_cluster

    loaded = load_with_options(trace, {**options, "load": None})
    spec = load_cluster(cluster or loaded.cluster or missing_cluster())
    if options["load"] is not None:
        loaded = load_with_options(trace, options, spec.gpus)
    limit = parse_duration(options["time_limit"], where="--time-limit") / SECOND
    with Bar("recommend", options["quiet"] or options["as_json"]) as bar:
        found = race(
            loaded,
            spec,
            options["objective"] or "jct",
            among=split_specs(options["recipes"]) if options["recipes"] else None,
            current=options["current"],
            windows=options["windows"],
            jobs=options["jobs"],
            seeds=parse_seeds(options["seeds"]),
            setup=Setup(knows=options["knows"], noise=options["noise"], costs=_costs(options)),
            limit_seconds=limit,
            workers=options["workers"] or os.cpu_count() or 1,
            progress=bar.show,
        )
    if options["as_json"]:
        click.echo(json.dumps(found.to_json(), indent=2))
    else:
        _print(found)
    if not found.better:
        click.get_current_context().exit(1)


def _costs(options: dict[str, Any]) -> Costs:
    from ganger.core.units import parse_duration
    from ganger.sim.physics import Costs

    return Costs(
        start=parse_duration(options["begin"], where="--start-cost"),
        checkpoint=parse_duration(options["checkpoint"], where="--checkpoint-cost"),
        restore=parse_duration(options["restore"], where="--restore-cost"),
    )


def _refuse(options: dict[str, Any], names: Iterable[str], about: str, needs: str) -> None:
    """Raise BadInput for an option that is not about jobs."""
    for name in names:
        if options[name] not in (None, ""):
            raise BadInput(
                f"it is about {about}, and these are jobs",
                where=f"--{name}",
                mend=f"leave it out, or name {needs}",
            )


def _print(found: Recommendation) -> None:
    from rich.console import Console

    from ganger.lab.recommend.table import standings, verdict

    console = Console()
    for line in verdict(found):
        console.print(line, highlight=False, markup=False)
    console.print()
    console.print(standings(found))
