"""What every recipe for trials decides of some searches is on record: whoever changes a decision
sees which.

A line of `decided.txt` is a recipe, a search, how many steps that took, the milliseconds until it
was over, the best trial, the epochs of all trials together, and two fingerprints: of what was asked
for, started, resized and ended and when, and of the plans in full. To change what a recipe decides,
run `PYTHONPATH=tests python tests/lab/tuning/test_decided.py`, read what that changed in
`decided.txt`, and commit both.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
import pytest

from ganger.core.errors import BadInput
from ganger.core.events import Batch
from ganger.core.kernel import Kernel
from ganger.core.plan import Plan
from ganger.core.units import SECOND
from ganger.lab.tuning.run import Place, own_cluster, run_experiment
from ganger.recipes.registry import recipes
from ganger.sim.physics import Costs
from ganger.workloads.curves.table import CurveTable, rectangular
from ganger.workloads.experiment.document import Budget, Resources
from ganger.workloads.experiment.reading import Experiment
from lab.tuning.searches import experiment

RECORD = Path(__file__).with_name("decided.txt")
VARIANTS = [
    "easeml(serves=greedy,alike=0,delta=0.01)",
    "easeml(serves=turns)",
    "easeml(patience=1,alike=0.9)",
    "fluid(tuner=stop,eta=2,packed=3)",
    "fluid(tuner=promote,first=2)",
    "fluid(dynamic=no,packed=1)",
    "hermes(window=2)",
    "hyperdrive(every=1,target=0.3)",
    "hypersched(eta=2,again=no,ends=no)",
    "hypersched(eta=3,first=2,ends=no)",
    "rubberband(eta=2,first=2)",
    "rubberband(elastic=no,startup=1s)",
    "seer(rounds=2,eta=3)",
    "seer(rounds=3,progress=0.1)",
    "tune.asha(eta=2,first=2)",
    "tune.asha(variant=promote)",
    "tune.asha(variant=promote,beyond=yes)",
    "tune.bohb(epochs=4,rounds=2)",
    "tune.hyperband(epochs=9,first=2)",
    "tune.median(least=2,grace=3,every=2)",
    "tune.pbt(every=2,part=0.4)",
    "tune.sha(eta=2,first=2)",
]
"""Parameters away from their defaults."""


class Sought(NamedTuple):
    """A search, the curves of its trials, and what starting and stopping costs."""

    search: Experiment
    curves: CurveTable
    costs: Costs = Costs()


def curves(seed: int, levels: int, seconds: tuple[int, ...]) -> CurveTable:
    """Eighteen configurations of ten epochs, for two users: a loss falls from level to level, with
    noise; every fifth breaks down somewhere. An epoch takes one of `seconds`."""
    draw = random.Random(seed).random
    values, ends = [], []
    for _ in range(18):
        floor, steep = draw(), 0.2 + draw()
        row = [floor + steep / (epoch + 1) + 0.1 * draw() for epoch in range(10)]
        row = [round(value * levels) / levels for value in row]
        if draw() < 0.2:
            broken = int(draw() * 10)
            row[broken:] = [float("nan")] * (10 - broken)
        values.append(row)
        each = seconds[int(draw() * len(seconds))]
        ends.append([each * SECOND * (epoch + 1) for epoch in range(10)])
    labels = [f"{'ab'[at % 2]}/m{at // 2}" for at in range(18)]
    return rectangular(
        "the table",
        labels,
        {"x": [at / 18 for at in range(18)], "y": [at % 3 for at in range(18)]},
        np.arange(1.0, 11.0),
        np.array(ends, np.int64),
        {"loss": np.array(values)},
    )


def noisy() -> Sought:
    """Epochs that take longer for some; starting and stopping takes time, too."""
    costs = Costs(start=SECOND, checkpoint=2 * SECOND, restore=SECOND)
    return Sought(experiment(4, epochs=10), curves(1, 1000, (1, 2, 3, 5)), costs)


def even() -> Sought:
    """Few levels, and epochs that end together; as much of the metric as can be."""
    return Sought(experiment(3, epochs=10, mode="max"), curves(2, 4, (2,)))


def bounded() -> Sought:
    """Two at once, of two GPUs each; so many epochs, and a goal."""
    more: dict[str, Any] = {"budget": Budget(epochs=60), "target": 0.1}
    search = experiment(2, resources=Resources(gpus=2), **more)
    return Sought(search, curves(3, 50, (1, 4)))


def hasty() -> Sought:
    """Trials that may grow, and share, in so many seconds."""
    resources = Resources(most_gpus=4, scaling=[1, 1.9, 2.7, 3.5], gpu_use=0.5)
    search = experiment(6, epochs=10, resources=resources, deadline="20s")
    return Sought(search, curves(4, 1000, (1, 2)), Costs(start=SECOND // 2))


SEARCHES: dict[str, Callable[[], Sought]] = {
    each.__name__: each for each in (noisy, even, bounded, hasty)
}
CASES = list(product([*recipes("tuning"), *VARIANTS], SEARCHES))


class Noted:
    """All plans of a run."""

    def __init__(self) -> None:
        self.plans: list[tuple[int, Plan]] = []

    def begin(self, kernel: Kernel) -> Noted:
        """It runs in this kernel."""
        return self

    def append(self, revision: int, batch: Batch, plan: Plan | None, memory: Any) -> None:
        """A step."""
        if plan is not None:
            self.plans.append((batch.at, plan))


def decided(recipe: str, name: str) -> str:
    """What was done in this search."""
    sought, noted = SEARCHES[name](), Noted()
    place = Place(own_cluster(sought.search), sought.costs)
    try:
        run = run_experiment(sought.search, sought.curves, recipe, 5, place, journal=noted.begin)
    except BadInput as refused:
        return f"refused: {refused}"
    done = [(at, plan.actions) for at, plan in noted.plans if plan.actions]
    figures = (
        len(noted.plans),
        round(run.metrics["seconds"] * 1000),
        run.metrics["best"],
        f"{sum(trial.epochs for trial in run.trials):g}",
    )
    return " ".join(map(str, (*figures, fingerprint(done), fingerprint(noted.plans))))


def fingerprint(of: Any) -> str:
    """Eight letters that differ where it does."""
    return hashlib.sha256(msgspec.json.encode(of)).hexdigest()[:8]


@pytest.mark.parametrize(("number", "case"), list(enumerate(CASES)))
def test_it_decides_what_is_on_record(number: int, case: tuple[str, str]) -> None:
    lines = RECORD.read_text().splitlines()
    assert f"{' '.join(case)} {decided(*case)}" == lines[number]
    assert len(lines) == len(CASES)


if __name__ == "__main__":
    RECORD.write_text("".join(f"{' '.join(case)} {decided(*case)}\n" for case in CASES))
