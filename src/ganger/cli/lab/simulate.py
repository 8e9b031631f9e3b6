"""`ganger simulate` and `ganger demo`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ganger.cli import completion
from ganger.cli.lab.combinations import combinations, planes_options
from ganger.cli.lab.shown_runs import log_one, output_options, run_and_show
from ganger.cli.options import (
    cost_options,
    load_with_options,
    profiles_option,
    stragglers_option,
    trace_options,
    yardsticks_option,
)
from ganger.cli.words import FloatRange
from ganger.core.errors import BadInput
from ganger.core.units import shown

if TYPE_CHECKING:
    from ganger.core.spec import ClusterSpec
    from ganger.lab.api import Task
    from ganger.lab.tuning.beside import Entry

DEMO_RECIPES = "fifo,backfill,helios,sjf,las,tiresias,srtf,gavel"

EXAMPLES = """\b
Examples:
  ganger simulate jobs.csv --cluster 8x8xV100 --recipe fifo,srtf,tiresias
  ganger simulate sacct.txt --cluster cluster.toml --recipe 'backfill(walk=easy)'
  ganger simulate jobs.csv --cluster 16x4xT4 --recipe las --seed 0-4 --knows noisy
  ganger simulate jobs.csv --cluster 8x8xV100 --recipe fifo,las --load 0.7,0.9,1.1
  ganger simulate jobs.csv --cluster 8x8xV100 --recipe mine.py:MyPolicy --json
  ganger simulate jobs.csv --cluster 8x8xV100 --recipe las --outages mtbf=30d,mttr=4h
  ganger simulate jobs.csv --cluster 9x4xV100+9x4xK80 -r gavel,afs --profiles models.toml
  ganger simulate requests.csv --models papers --cluster 1x4xT4 -r clipper,clockwork
  ganger simulate experiment.toml --curves curves.csv -r tune.asha,tune.hyperband --seed 0-9
"""


@click.command(epilog=EXAMPLES)
@click.argument("trace", type=click.Path(path_type=Path), required=False)
@click.option(
    "--schema",
    is_flag=False,
    flag_value="scenario",
    type=click.Choice(["scenario", "experiment"]),
    help="Print the JSON Schema of scenario files, or of experiment files.",
)
@click.option(
    "--cluster",
    help="For example 8x8xV100, or a cluster file. Default: the cluster that the trace states.",
)
@click.option(
    "--recipe",
    "--training",
    "-r",
    "recipe",
    default="fifo",
    show_default=True,
    shell_complete=completion.recipes,
    help="Recipes, comma separated; parameters in parentheses; or FILE.py:Class.",
)
@planes_options
@click.option(
    "--rates",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Requests to the services of the trace: CSV with service, time,"
    " requests_per_second, replica_per_second.",
)
@click.option(
    "--window",
    default="10s",
    show_default=True,
    metavar="TIME",
    help="How often services report how they do, with --rates or --requests.",
)
@click.option(
    "--requests",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Requests that the services of the trace answer one by one: those that name a "
    "service's model (docs/serving.md). Needs --models.",
)
@click.option(
    "--models",
    type=click.Path(dir_okay=False, path_type=Path),
    help="What the models of --requests take.",
)
@click.option("--slo", metavar="TIME", help="Deadline of --requests that state none.")
@click.option(
    "--by-windows",
    is_flag=True,
    help="With --requests: what a service does in a --window that is like others is read from a "
    "table of those.",
)
@yardsticks_option
@click.option(
    "--knows",
    default="truth",
    show_default=True,
    type=click.Choice(
        ["truth", "noisy", "history", "rolling", "group", "estimate", "losses", "nothing"]
    ),
    help="What policies may know about durations. history, rolling, group: the durations of "
    "similar earlier jobs; estimate: the user's estimate, else the time limit, else "
    "nothing; losses: curves fitted to the losses that jobs reported (see --profiles).",
)
@click.option(
    "--noise",
    type=FloatRange(0, 10),
    default=0.5,
    show_default=True,
    help="Spread of the lognormal error for --knows noisy.",
)
@click.option(
    "--speed-noise",
    "speeds",
    type=FloatRange(0, 10),
    default=0.0,
    show_default=True,
    help="The same spread for speeds, drawn by job, GPU type and size.",
)
@click.option(
    "--seed", "seeds", default="0", show_default=True, help="Seeds, like 0 or 0,1,7 or 0-4."
)
@click.option(
    "--start-cost",
    "begin",
    default="0s",
    show_default=True,
    help="Time a job, or a replica of a service, needs before it first computes, or loads its "
    "model.",
)
@click.option(
    "--finish-cost",
    "finish",
    default="0s",
    show_default=True,
    help="Time between the end of a job's work and the release of its GPUs.",
)
@cost_options
@click.option(
    "--boot-cost",
    "boot",
    default="0s",
    show_default=True,
    help="Time between switching a node on and its first use (helios-ces).",
)
@click.option("--slicing-cost", "slicing", default="0s", help="Time to make a MIG slice. [0s]")
@click.option(
    "--profiling-cost",
    "profiling",
    default="0s",
    show_default=True,
    help="Time that profiling takes for a new job, under recipes that need throughputs.",
)
@click.option(
    "--rescale",
    default="",
    metavar="PROTOCOL",
    help="How running jobs are resized: stop-restart, side-car, stop-free, io-free or "
    "device-proxy.",
)
@click.option("--by-step", is_flag=True, help="Simulate every step's transfers over shared links.")
@click.option(
    "--outages",
    metavar="FILE|mtbf=..,mttr=..",
    help="Failures of nodes: a CSV file (node,down,up), or random ones, like mtbf=30d,mttr=4h.",
)
@click.option(
    "--checkpoint-every",
    "every",
    default="0s",
    metavar="TIME",
    show_default=True,
    help="When a node fails, its jobs keep the work up to the last multiple of TIME; 0s: none.",
)
@click.option(
    "--carbon",
    type=FloatRange(0, 1e6),
    metavar="G_PER_KWH",
    help="Grams of CO2 for a kWh. Default: what the cluster file says, else the world's mean.",
)
@click.option(
    "--log",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write the log of the run here, for `ganger replay`. Only for a single run.",
)
@click.option(
    "--curves",
    metavar="FILE|parametric:..",
    help="What the trials of an experiment report: a curve table (docs/tuning.md), or a formula, "
    "like parametric:epochs=81,noise=0.02.",
)
@click.option(
    "--task", default="", metavar="NAME", help="Which task of --curves, where it has several."
)
@stragglers_option
@click.option(
    "--per-trial",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write every trial of an experiment here, as CSV.",
)
@profiles_option
@trace_options
@output_options
def simulate(
    trace: Path | None, cluster: str | None, recipe: str, *, schema: str | None, **options: Any
) -> None:
    """Replay TRACE under one or more recipes and compare them.

    TRACE may also hold requests to models: with --models and without --requests, the GPUs of the
    cluster serve them (`ganger requests simulate` has more options for that). Or TRACE is a
    scenario (docs/scenario-file.md), which says all but what is printed and written; or an
    experiment (docs/tuning.md): a search for hyper-parameters, on --curves.

    Several recipes, seeds and loads run in parallel processes. A job's time limit counts its run
    time over the attempts whose work is kept. An attempt that begins from nothing has the whole
    limit again. Means over jobs cover the jobs that finished under every recipe.
    """
    if schema is not None:
        click.echo(json.dumps(_schema(schema), indent=2))
        return
    if trace is None:
        raise BadInput("which file?", where="TRACE", mend="name a trace, requests or a scenario")
    from ganger.workloads.experiment.reading import is_experiment
    from ganger.workloads.scenario.reading import is_scenario

    if is_experiment(trace):
        from ganger.cli.lab.tuning import simulate_experiment

        simulate_experiment(trace, recipe, {**options, "trace": trace, "cluster": cluster})
        return
    scenario = is_scenario(trace)
    for name in ("curves", "task", "per_trial", "stragglers"):
        if options[name] and not (scenario and name == "per_trial"):
            raise BadInput(
                "it is about the trials of an experiment",
                where=f"--{name.replace('_', '-')}",
                mend="leave it out, or name an experiment file",
            )
    if scenario:
        from ganger.cli.lab.serving.scenario import run_scenario

        run_scenario(trace, {**options, "recipe": recipe})
    elif options["models"] is not None and options["requests"] is None:
        from ganger.cli.lab.serving.comparison import serve_on_cluster

        serve_on_cluster(trace, cluster or missing_cluster(), recipe, options)
    else:
        simulate_jobs(trace, cluster, recipe, {**options, "traffic": _traffic(options)})


def _schema(kind: str) -> dict[str, Any]:
    from ganger.workloads.experiment import document as experiment
    from ganger.workloads.scenario import document as scenario

    return experiment.schema() if kind == "experiment" else scenario.schema()


def simulate_jobs(
    trace: Path | None, cluster: str | None, recipe: str, options: dict[str, Any]
) -> None:
    """A trace of jobs, requests to its services (`traffic`), and experiments (`entries`), of which
    there are some where there is no trace. Raises BadInput."""
    from ganger.core.units import parse_duration
    from ganger.lab.api import Task
    from ganger.lab.simulating.setup import Setup
    from ganger.lab.tuning.beside import entered
    from ganger.sim.physics import Costs
    from ganger.workloads.clusters import load_cluster
    from ganger.workloads.trace import no_jobs

    _refuse_nan(options)
    costs = Costs(
        start=parse_duration(options["begin"], where="--start-cost"),
        finish=parse_duration(options["finish"], where="--finish-cost"),
        checkpoint=parse_duration(options["checkpoint"], where="--checkpoint-cost"),
        restore=parse_duration(options["restore"], where="--restore-cost"),
        boot=parse_duration(options["boot"], where="--boot-cost"),
        profiling=parse_duration(options["profiling"], where="--profiling-cost"),
        slicing=parse_duration(options["slicing"], where="--slicing-cost"),
        rescale=_protocol(options["rescale"]),
        checkpoint_every=parse_duration(options["every"], where="--checkpoint-every"),
        by_step=options["by_step"],
    )
    setup = Setup(
        knows=options["knows"],
        noise=options["noise"],
        costs=costs,
        validate=options["validate"],
        speed_noise=options["speeds"],
        loads=_rates(options["rates"]),
        traffic=options["traffic"],
        window=_window(options["window"]),
        why=options["why"],
        prices=options.get("prices", {}),
        loan_rate=options.get("loan_rate", 1.0),
        carbon=-1.0 if options["carbon"] is None else options["carbon"],
    )
    chosen = combinations(recipe, options)
    base = no_jobs() if trace is None else load_with_options(trace, options)
    spec = load_cluster(cluster or base.cluster or missing_cluster())
    seeds = parse_seeds(options["seeds"])
    tasks: list[Task] = []
    for load in _loads(options["load"]):
        loaded = base if load is None else _scaled(base, load, spec.gpus)
        failing = {seed: _outages(options["outages"], spec, loaded, seed) for seed in seeds}
        beside = {
            inner: entered(loaded, setup, _judged(options.get("entries"), inner), spec)
            for inner in dict.fromkeys(each.inner for each in chosen)
        }
        tasks += [
            Task(each.recipe, beside[each.inner][0], seeded, load or 1.0, each.label)
            for each in chosen
            for seed in seeds
            for seeded in (
                replace(each.setup(beside[each.inner][1]), seed=seed, outages=failing[seed]),
            )
        ]
    files = (options[name] or "" for name in ("rates", "requests", "models", "profiles", "outages"))
    own = dict.fromkeys(each.recipe.partition(":")[0] for each in chosen)
    options["inputs"] = [trace or "", cluster or "", *files, *own, *options.get("files", ())]
    if options["log"] is not None:
        log_one(tasks, spec, options)
    else:
        run_and_show(tasks, spec, options)


def _judged(entries: Sequence[Entry] | None, recipe: str) -> Sequence[Entry]:
    """The experiments, with another recipe over their trials if there is one."""
    if not entries or not recipe:
        return entries or ()
    return [replace(each, recipe=recipe) for each in entries]


def _refuse_nan(options: dict[str, Any]) -> None:
    """Raise BadInput for a spread, or grams of CO2, that are not a number."""
    if options["carbon"] is not None and options["carbon"] != options["carbon"]:
        raise BadInput("nan is not valid", where="--carbon", mend="give grams of CO2 for a kWh")
    for option, spread in (("--noise", options["noise"]), ("--speed-noise", options["speeds"])):
        if spread != spread:
            raise BadInput(
                "nan is not a valid spread", where=option, mend="give a number from 0 to 10"
            )


def _rates(path: Path | None) -> Any:
    if path is None:
        return {}
    from ganger.workloads.measured.loads import read_loads

    return read_loads(path)


def _traffic(options: dict[str, Any]) -> Any:
    """The requests that services answer one by one, if any are given. Raises BadInput."""
    if options["requests"] is None:
        for name in ("slo", "by_windows"):
            if options[name]:
                where = f"--{name.replace('_', '-')}"
                raise BadInput("there are no requests", where=where, mend="add --requests FILE")
        return None
    if options["models"] is None or options["rates"] is not None:
        raise BadInput(
            "requests need a models file, and no --rates",
            where="--requests",
            mend="add --models FILE",
        )
    from ganger.core.units import NEVER, parse_duration
    from ganger.lab.serving.hosting import Traffic
    from ganger.recipes.registry import make_router
    from ganger.workloads.models.reading import read_models
    from ganger.workloads.requests.formats import load_requests

    make_router(options["router"])
    slo = NEVER if options["slo"] is None else parse_duration(options["slo"], where="--slo")
    return Traffic(
        load_requests(options["requests"]),
        read_models(options["models"]),
        options["router"],
        slo,
        watch=options["report"] is not None,
        yardsticks=options["yardsticks"],
        remembers=options["log"] is not None,
        by_windows=options["by_windows"],
    )


def _window(text: str) -> int:
    from ganger.core.units import SECOND, parse_duration

    window = parse_duration(text, where="--window")
    if window < SECOND:
        raise BadInput(f"{text!r} is shorter than 1 s", where="--window", mend="write like 10s")
    return window


def _scaled(trace: Any, load: float, gpus: int) -> Any:
    from ganger.workloads.transform import scale_load

    return scale_load(trace, load, gpus)


def _outages(text: str | None, cluster: ClusterSpec, trace: Any, seed: int) -> Any:
    from ganger.lab.outages import read_outages

    return () if text is None else read_outages(text, cluster, trace, seed)


def _protocol(name: str) -> str:
    from ganger.sim.rescale import protocol

    protocol(name)
    return name


def missing_cluster() -> str:
    """Raises BadInput: there is no cluster."""
    raise BadInput("the trace does not state a cluster", mend="give --cluster, like 8x8xV100")


def _loads(text: str | None) -> list[float | None]:
    if text is None:
        return [None]
    loads: list[float | None] = []
    for part in text.split(","):
        try:
            load = float(part)
        except ValueError:
            load = -1.0
        if not 0 < load < 100:
            raise BadInput(
                f"{part!r} is not a valid load", where="--load", mend="write like 0.9 or 0.7,1.1"
            )
        loads.append(load)
    return loads


def parse_seeds(text: str) -> list[int]:
    """`0,3` or `0-4` as numbers. Raises BadInput."""
    seeds: list[int] = []
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        if any(not word.isdecimal() or len(word) > 18 for word in (first, *([last] * bool(dash)))):
            raise BadInput(
                f"{shown(part)} is not a valid seed", where="--seed", mend="write like 0 or 0-4"
            )
        if int(last or first) < int(first):
            raise BadInput(f"{part!r} runs backwards", where="--seed", mend="write like 0-4")
        count = len(seeds) + int(last or first) - int(first) + 1
        if count > 1000:
            raise BadInput(f"{count:,} seeds or more", where="--seed", mend="at most 1000")
        seeds += range(int(first), int(last or first) + 1)
    return seeds


@click.command(epilog="\b\nExample:\n  ganger demo --report demo.html")
@click.option(
    "--seed", "seeds", default="0-4", show_default=True, help="Seeds of the workload's draw."
)
@output_options
def demo(seeds: str, **options: Any) -> None:
    """Replay the bundled workload (400 jobs, 64 GPUs) under eight recipes."""
    from ganger.lab.api import Task
    from ganger.lab.simulating.setup import Setup
    from ganger.recipes.registry import split_specs
    from ganger.workloads.clusters import load_cluster
    from ganger.workloads.synthetic import demo as workload

    tasks = []
    for seed in parse_seeds(seeds):
        trace = workload(seed=seed)
        setup = Setup(seed=seed, validate=options["validate"], why=options["why"])
        tasks += [Task(name, trace, setup) for name in split_specs(DEMO_RECIPES)]
    run_and_show(tasks, load_cluster("8x8xV100"), options)
