"""Systems that search for hyper-parameters, on curves that are made up."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean
from typing import Any

from effects.common import DIRECTION, NO, YES, Effect, effect
from ganger.core.tuning.space import Parameter
from ganger.core.units import SECOND
from ganger.lab.tuning.run import Place, own_cluster, run_experiment
from ganger.sim.physics import Costs
from ganger.workloads.curves.parametric import Formula
from ganger.workloads.experiment.document import FORMAT, Document, Resources
from ganger.workloads.experiment.reading import checked

SPACE = {
    "lr": Parameter(low=1e-4, high=1e-1, log=True),
    "x": Parameter(),
    "y": Parameter(),
    "o": Parameter(type="choice", values=("a", "b")),
}
SCALING = [1, 1.9, 2.7, 3.5, 4.2, 4.9, 5.5, 6.1]
SEARCHES = range(5)
"""Seeds; a search depends on luck more than a workload does."""


def searches(
    recipe: str,
    formula: Formula,
    *,
    restart: int = 15,
    seeds: Sequence[int] = SEARCHES,
    scaling: Sequence[float] = (),
    most: int = 0,
    **more: Any,
) -> list[dict[str, Any]]:
    """The figures of a search for a small loss, by seed. `restart`: seconds until a trial computes
    that begins or goes on."""
    resources = Resources(most=most, scaling=list(scaling))
    document = Document(FORMAT, "loss", space=SPACE, resources=resources, **more)
    search = checked(document, "effect")
    costs = Costs(start=restart * SECOND, restore=restart * SECOND)
    place = Place(own_cluster(search), costs)
    return [run_experiment(search, formula, recipe, seed, place).metrics for seed in seeds]


def mean_of(figures: Sequence[dict[str, Any]], name: str) -> float:
    """The mean over seeds."""
    return fmean(each[name] for each in figures)


@effect
def hypersched() -> Effect:
    """Against successive halving without waiting, by how near the deadline is."""

    def best(recipe: str, deadline: str) -> float:
        found = searches(
            recipe,
            Formula(epochs=100),
            scaling=SCALING,
            most=8,
            parallelism=16,
            trials=100,
            deadline=deadline,
        )
        return mean_of(found, "best")

    ours = {
        f"loss at {deadline}, {name} / hypersched": best(recipe, deadline)
        / best("hypersched", deadline)
        for deadline in ("20m", "4h")
        for name, recipe in (
            ("asha", "tune.asha(eta=4)"),
            ("no trial grows", "hypersched(dealing=nobody)"),
            ("trials begin until the end", "hypersched(ends=false)"),
        )
    }
    tight, loose = (ours[f"loss at {deadline}, asha / hypersched"] for deadline in ("20m", "4h"))
    return Effect(
        "hypersched",
        "100 configurations, 100 epochs of a minute on average, 16 GPUs, up to 8 a trial (6.1 times"
        " as fast); the best loss found by a deadline of 20 min and of 4 h",
        "better than ASHA under tight deadlines, as good under loose ones",
        ours,
        (YES if loose >= 0.98 else DIRECTION) if tight >= 1.02 else NO,
        "under the loose deadline it may fall behind: ASHA lets early trials go on whatever comes"
        " later, hypersched judges them again",
        "15 s to start, to go on and to change size",
    )
