"""`ganger parity`."""

from __future__ import annotations

import tempfile
from dataclasses import asdict
from pathlib import Path

import click


@click.command(
    epilog="\b\nExamples:\n  ganger parity --gpus 8 --jobs 100 --runs 5"
    "\n  ganger parity --jobs 40 --recipe 'fifo,las(quantum=2s)' --json"
    "\n  ganger parity --torch .venv-torch/bin/python --jobs 20"
)
@click.option("--gpus", type=click.IntRange(1, 64),
              help="Simulated GPUs. Default: 8; with --torch as many as cores.")  # fmt: skip
@click.option("--jobs", type=click.IntRange(2, 10_000), default=100, show_default=True,
              help="Jobs a run, each a process of 0.3 to 3 s; with --torch 1 to 10.")  # fmt: skip
@click.option("--recipe", default="", metavar="A,B(x=1)", help="Default: six of them.")
@click.option("--torch", "python", default="", metavar="PYTHON",
              help="Jobs train with this Python's PyTorch, one core each.")  # fmt: skip
@click.option("--runs", type=click.IntRange(1, 100), default=5, show_default=True)
@click.option("--load", type=click.FloatRange(0.01, 5), default=0.8, show_default=True,
              help="GPU time asked for over GPU time there.")  # fmt: skip
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def parity(
    gpus: int | None, jobs: int, recipe: str, python: str, runs: int, load: float, seed: int,
    as_json: bool,
) -> None:  # fmt: skip
    """Run jobs for real and in the simulator, and compare.

    The jobs are processes on this machine whose steps are paced by timers. The simulator gets the
    costs measured and the same submissions; every live log is decided again. Exit code 1 if the
    mean JCT of a recipe is off by more than 5 % (median of the runs), or a plan differs. With the
    defaults it takes about twenty minutes. Jobs that train take as long as the machine lets them:
    the simulator gets how long each computed, and what it can foretell is bounded by the spread of
    the live runs, which stands beside it.
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
            recipes, runs,
            lambda one, trial: click.echo(lab.told(one, trial), err=True),
        )  # fmt: skip
    if as_json:
        print_json([{**asdict(one), "good": one.good} for one in found])
    else:
        rows = [dict(lab.columns(one)) for one in found]
        # The recipes side by side: there are more figures than fit on a line.
        lines = [[title, *(row[title] for row in rows)] for title in rows[0]]
        click.echo(table(lines[0], lines[1:]))
    if not all(one.good for one in found):
        raise SystemExit(1)
