"""What the publications promise, on made-up curves: the same budget finds something better."""

from __future__ import annotations

from functools import cache
from statistics import mean

import pytest

from ganger.core.tuning.space import Parameter
from ganger.lab.tuning.run import run_experiment
from ganger.workloads.curves.parametric import Formula
from ganger.workloads.experiment.document import FORMAT, Budget, Document
from ganger.workloads.experiment.reading import checked

pytestmark = pytest.mark.long

SPACE = {
    "lr": Parameter(low=1e-4, high=1e-1, log=True),
    "x": Parameter(),
    "y": Parameter(),
    "o": Parameter(type="choice", values=("a", "b")),
}
SEEDS = range(8)


@cache
def best(recipe: str, trials: int = 300) -> float:
    """The mean over seeds of the best loss that four trials at once find in ten GPU-hours."""
    document = Document(
        FORMAT, "loss", parallelism=4, space=SPACE, trials=trials, budget=Budget(gpu_hours=10)
    )
    search = checked(document, "x.toml")
    runs = [run_experiment(search, Formula(epochs=27), recipe, seed) for seed in SEEDS]
    assert all(run.metrics["budget_kept"] for run in runs)
    return float(mean(run.metrics["best"] for run in runs))


@pytest.mark.parametrize(
    "recipe",
    [
        "tune.median",
        "tune.asha",
        "tune.asha(variant=promote)",
        "tune.hyperband(rounds=9)",
        "tune.bohb(rounds=9)",
    ],
)
def test_stopping_bad_trials_early_finds_better_ones_than_random_search(recipe: str) -> None:
    assert best(recipe) < 0.96 * best("tune.random")


def test_halving_finds_better_ones_where_its_first_rung_can_be_paid_for() -> None:
    assert best("tune.sha", 100) < 0.9 * best("tune.random")


def test_a_searcher_that_listens_finds_better_ones_than_one_that_does_not() -> None:
    assert best("tune.bohb(rounds=9)") < 0.97 * best("tune.hyperband(rounds=9)")


def test_a_population_that_copies_its_best_beats_one_that_does_not() -> None:
    assert best("tune.pbt(trials=12,every=3)") < 0.96 * best("tune.random", 12)
