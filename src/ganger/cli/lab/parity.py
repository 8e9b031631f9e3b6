"""`ganger parity`."""

from __future__ import annotations

import tempfile
from dataclasses import asdict
from pathlib import Path

import click

from ganger.cli import completion
from ganger.cli.words import SPAN, FloatRange
from ganger.core.errors import BadInput


@click.command(
    epilog="\b\nExamples:\n  ganger parity --gpus 8 --jobs 100 --runs 5"
    "\n  ganger parity --jobs 40 --recipe 'fifo,las(quantum=2s)' --json"
    "\n  ganger parity --torch .venv-torch/bin/python --jobs 20"
    "\n  ganger parity --serving models.toml --load 0.6 --seconds 20"
)
@click.option(
    "--gpus",
    type=click.IntRange(1, 64),
    help="Number of simulated GPUs. Default: 8; with --torch the number of cores.",
)
@click.option(
    "--jobs",
    type=click.IntRange(2, 10_000),
    default=100,
    show_default=True,
    help="Jobs in a run. Each is a process of 0.3 to 3 s; with --torch of 1 to 10 s.",
)
@click.option(
    "--recipe",
    default="",
    metavar="A,B(x=1)",
    shell_complete=completion.recipes,
    help="Recipes to run, with commas. Default: six of them.",
)
@click.option(
    "--torch",
    "python",
    default="",
    metavar="PYTHON",
    help="Let jobs train with the PyTorch of this Python, one core each.",
)
@click.option(
    "--serving",
    "served",
    default="",
    metavar="FILE",
    help="Serve requests instead of running jobs: the models of FILE, by `ganger serve` on one "
    "core, asked from another.",
)
@click.option("--slo", type=SPAN, default="100ms", show_default=True, help="With --serving.")
@click.option(
    "--seconds",
    type=FloatRange(1, 3600),
    default=20.0,
    show_default=True,
    help="Of each run, with --serving.",
)
@click.option("--runs", type=click.IntRange(1, 100), default=5, show_default=True)
@click.option(
    "--load",
    type=FloatRange(0.01, 5),
    default=0.8,
    show_default=True,
    help="Offered load: GPU time requested over GPU time available. With --serving: of batches of "
    "one.",
)
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def parity(
    gpus: int | None,
    jobs: int,
    recipe: str,
    python: str,
    served: str,
    slo: str,
    seconds: float,
    runs: int,
    load: float,
    seed: int,
    as_json: bool,
) -> None:
    """Run jobs for real and in the simulator, and compare.

    The jobs are processes on this machine whose steps are paced by timers. The simulator gets the
    measured costs and the same submissions. Every live log is replayed. The exit code is 1 if the
    mean JCT of a recipe is off by more than 5 % (median of the runs), or if a plan differs. The
    defaults take about twenty minutes. The run time of jobs that train depends on the machine:
    the simulator gets the time that each computed. The spread between live runs bounds what it
    can predict, and is printed beside the error.

    With --serving, the same requests are served live and simulated. A run in which the client
    lagged by more than 5 ms (p99) is void: use an idle machine. The exit code is 1 if, in medians
    of the runs, the mean batch of a recipe is off by more than 10 %, p50 by more than 15 %,
    attainment by more than 3 points, or goodput by more than 1 point on average.
    """
    from ganger.cli.text import print_json, table

    if served:
        _serving(served, recipe, slo, seconds, runs, load, seed, as_json)
        return
    from ganger.lab.live import parity as lab
    from ganger.lab.live.run import Training
    from ganger.recipes.registry import split_specs

    recipes = split_specs(recipe) or list(lab.TRAINING_RECIPES if python else lab.RECIPES)
    training = Training.measured(python) if python else None
    gpus = gpus or (lab.cores() if python else 8)
    with tempfile.TemporaryDirectory(prefix="ganger-") as folder:
        study = lab.Study(Path(folder), jobs, gpus, seed, load, training)
        found = study.run(
            recipes, runs, lambda one, trial: click.echo(lab.told(one, trial), err=True)
        )
    if as_json:
        print_json([{**asdict(one), "good": one.good} for one in found])
    else:
        rows = [dict(lab.columns(one)) for one in found]
        # The recipes side by side: there are more figures than fit on a line.
        lines = [[title, *(row[title] for row in rows)] for title in rows[0]]
        click.echo(table(lines[0], lines[1:]))
    if not all(one.good for one in found):
        raise SystemExit(1)


def _serving(
    file: str,
    recipe: str,
    slo: str,
    seconds: float,
    runs: int,
    load: float,
    seed: int,
    as_json: bool,
) -> None:
    """Requests, live and simulated."""
    from ganger.cli.text import print_json, table
    from ganger.core.units import parse_duration
    from ganger.lab.live.parity import cores
    from ganger.lab.serving import parity as lab
    from ganger.recipes.registry import split_specs
    from ganger.serving.runtime import runtime

    runtime()
    if cores() < 2:
        raise BadInput("it needs two cores", where="--serving", mend="use another machine")
    study = lab.Study(Path(file), load, parse_duration(slo, where="--slo"), seconds, seed)
    pairs = study.run(
        split_specs(recipe) or lab.RECIPES, runs, lambda line: click.echo(line, err=True)
    )
    off = lab.goodput_off(pairs)
    if as_json:
        print_json(
            {"pairs": [{**asdict(pair), "good": pair.good} for pair in pairs], "goodput_off": off}
        )
    else:
        heads = ["recipe", "rate", "runs", "void"]
        heads += [f"{name} live/sim." for name in ("mean batch", "p50 ms", "in time %", "goodput")]
        scales = (1.0, 1000.0, 100.0, 1.0)
        rows = [
            [pair.recipe, f"{pair.rate:.1f}", str(pair.counted), str(pair.void)]
            + [
                f"{pair.live[name] * by:.2f} / {pair.simulated[name] * by:.2f}"
                for name, by in zip(lab.COMPARED, scales, strict=True)
            ]
            for pair in pairs
        ]
        click.echo(table(heads, rows))
        click.echo(f"Goodput is off by {off:.2%} of the requests, on average.")
    if not (all(pair.good for pair in pairs) and off <= lab.GOODPUT_OFF):
        raise SystemExit(1)
