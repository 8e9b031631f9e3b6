"""Pages of recipes for the trials of a search: each with what it does with one small example."""

from __future__ import annotations

from functools import cache
from typing import Final

import numpy as np

from ganger.core.tuning.space import Parameter
from ganger.core.units import SECOND
from ganger.lab.tuning.result import TuningRun
from ganger.lab.tuning.run import run_experiment
from ganger.recipes.registry import Recipe
from ganger.workloads.curves.table import CurveTable, rectangular
from ganger.workloads.experiment.document import FORMAT, Document
from ganger.workloads.experiment.reading import checked

EPOCHS, ROWS, COLUMNS, AT_ONCE = 9, 6, 7, 3
"""Of the example: epochs of a trial, values of either parameter, trials at once."""
PLAYED: Final = {
    "tune.bohb": "tune.bohb(epochs=9)",
    "tune.pbt": "tune.pbt(trials=6,every=3,part=0.34)",
    "tune.grid": "tune.grid(trials=9)",
    "tune.random": "tune.random(trials=9)",
    "hermes": "hermes(trials=9)",
    "hyperdrive": "hyperdrive(target=0.21,every=2)",
    "rubberband": "rubberband(trials=9,deadline=20m)",
    "fluid": "fluid(trials=9,most_gpus=3)",
    "easeml": "easeml(trials=15)",
    "seer": "seer(deadline=6m,gpu_hours=0.25,rounds=3)",
    "hypersched": "hypersched(deadline=6m,most_gpus=3)",
}
"""What stands for a recipe whose defaults show little here."""
SAID: Final = {"easeml": " The users are the rates, and what is trained for them the widths."}


def example_table() -> CurveTable:
    """A grid of learning rates and widths: loss falls faster and to less near the middle, an epoch
    takes as many seconds as the width is large, and the highest rate breaks down at epoch 4."""
    rates = [10.0 ** (-4 + 0.6 * at) for at in range(ROWS)]
    pairs = [(rate, width) for rate in rates for width in range(1, COLUMNS + 1)]
    epochs = np.arange(1.0, EPOCHS + 1.0)
    loss, ends = [], []
    for rate, width in pairs:
        off = abs(np.log10(rate) + 2.2) / 2 + abs(width - 4) / 6
        curve = 0.1 + 0.4 * off + (0.9 - 0.4 * off) * (1 + epochs) ** (-1.0 / (1.0 + off))
        curve[3 if rate == rates[-1] else EPOCHS :] = np.nan
        loss.append(curve)
        ends.append(epochs * width * 10 * SECOND)
    return rectangular(
        "the example",
        [f"{rate:.2g}/{width}" for rate, width in pairs],
        {"rate": [rate for rate, _ in pairs], "width": [width for _, width in pairs]},
        epochs,
        np.array(ends, np.int64),
        {"loss": np.array(loss)},
    )


@cache
def searched(name: str) -> TuningRun:
    """What the recipe does with the example."""
    space = {
        "rate": Parameter(low=1e-4, high=0.1 * 1.0001, log=True, grid=3),
        "width": Parameter(type="integer", low=1, high=COLUMNS, grid=3),
    }
    document = Document(FORMAT, "loss", parallelism=AT_ONCE, space=space, trials=27, epochs=9.0)
    return run_experiment(checked(document, "the example"), example_table(), played(name), 2)


def played(name: str) -> str:
    """What is run of that recipe."""
    return PLAYED.get(name, name)


def example(recipe: Recipe) -> str:
    """What stands on the page of a recipe below its parameters."""
    run = searched(recipe.name)
    figures, called = run.metrics, played(recipe.name)
    rows = [
        f"| {trial.number} | {trial.point['rate']:.2g} | {trial.point['width']}"
        f" | {trial.started_seconds:.0f} | {trial.ended_seconds:.0f} | {trial.epochs:.0f}"
        f" | {trial.state} | {trial.best:.3f} |"
        for trial in run.trials
    ]
    return "\n".join(
        [
            "## On a small example",
            "",
            f"A search for a small loss among {ROWS * COLUMNS} configurations of a learning rate"
            f" and a width, of which {AT_ONCE} train at once, for at most {EPOCHS} epochs. An epoch"
            " takes 10 seconds times the width. The highest rate breaks down in epoch 4. This is"
            f" `{called}`, with the same seed on all pages: {figures['trials']} trials,"
            f" {figures['epochs']:.0f} epochs, {figures['gpu_hours']:.2f} GPU-hours; best loss"
            f" {figures['best']:.3f}, found after {figures['best_at_seconds']:.0f} s of"
            f" {figures['seconds']:.0f} s.{SAID.get(recipe.name, '')}",
            "",
            "| trial | rate | width | started (s) | ended (s) | epochs | state | best loss |",
            "|---:|---:|---:|---:|---:|---:|:---|---:|",
            *rows,
        ]
    )
