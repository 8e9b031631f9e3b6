"""`ganger parity`."""

from __future__ import annotations

import tempfile
from dataclasses import asdict
from pathlib import Path

import click

from ganger.cli import completion


@click.command(
    epilog="\b\nExamples:\n  ganger parity --gpus 8 --jobs 100 --runs 5"
    "\n  ganger parity --jobs 40 --recipe 'fifo,las(quantum=2s)' --json"
    "\n  ganger parity --torch .venv-torch/bin/python --jobs 20"
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
@click.option("--runs", type=click.IntRange(1, 100), default=5, show_default=True)
@click.option(
    "--load",
    type=click.FloatRange(0.01, 5),
    default=0.8,
    show_default=True,
    help="Offered load: GPU time requested over GPU time available.",
)
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def parity(
    gpus: int | None,
    jobs: int,
    recipe: str,
    python: str,
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
    """
    from ganger.cli.text import print_json, table
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
