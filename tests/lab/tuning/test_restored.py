"""A search that is restored from a snapshot goes on to the same plans."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from ganger.core.events import Batch
from ganger.core.kernel import Kernel
from ganger.core.plan import Plan
from ganger.core.state.snapshot import Snapshot, capture, restore
from ganger.lab.tuning.run import Place, own_cluster, run_experiment
from ganger.workloads.curves.parametric import Formula
from ganger.workloads.experiment.document import FORMAT, Budget, Document
from ganger.workloads.experiment.reading import checked

RECIPES = (
    "tune.random",
    "tune.sha",
    "tune.hyperband(epochs=9)",
    "tune.bohb(epochs=9)",
    "tune.asha(epochs=9)",
    "tune.asha(epochs=9,variant=promote)",
    "tune.median(least=2)",
    "tune.pbt(epochs=9,every=2,trials=5)",
    "hypersched(epochs=9,eta=2)",
    "hyperdrive(epochs=9,every=2,target=0.2)",
    "hermes(epochs=9)",
    "rubberband(epochs=9,trials=9,eta=2)",
    "seer(trials=3,rounds=3)",
    "fluid(epochs=9,tuner=promote)",
    "fluid(epochs=9,dynamic=false)",
    "easeml(epochs=9,trials=40)",
)
SPACE = {"x": {"low": 0.0, "high": 1.0}}


class Steps:
    """All batches and plans of a run, and a snapshot after some of them."""

    def __init__(self, at: int) -> None:
        self._at = at
        self.batches: list[Batch] = []
        self.plans: list[bytes] = []
        self.snapshot = b""

    def begin(self, kernel: Kernel) -> Steps:
        self.kernel = kernel
        return self

    def append(self, revision: int, batch: Batch, plan: Plan | None, memory: Any) -> None:
        self.batches.append(batch)
        self.plans.append(encoded(plan))
        if len(self.batches) == self._at:
            self.snapshot = msgspec.msgpack.encode(capture(self.kernel))


def encoded(plan: Plan | None) -> bytes:
    """What is to be the same."""
    return msgspec.msgpack.encode(plan)


@pytest.mark.parametrize("at", [7, 40])
@pytest.mark.parametrize("limits", [{"deadline": "5m"}, {"budget": Budget(epochs=60)}])
@pytest.mark.parametrize("recipe", RECIPES)
def test_a_restored_search_goes_on_to_the_same_plans(
    recipe: str, limits: dict[str, Any], at: int
) -> None:
    document = msgspec.convert(
        {"format": FORMAT, "metric": "loss", "parallelism": 3, "trials": 40, "space": SPACE},
        Document,
    )
    search = checked(msgspec.structs.replace(document, **limits), "x.toml")
    if recipe.partition("(")[0] in ("rubberband", "seer"):
        at = min(at, 15)  # they take fewer steps
    steps = Steps(at)
    formula = Formula(epochs=9, seconds=10.0, diverge=0.2)
    run_experiment(search, formula, recipe, 1, Place(own_cluster(search)), journal=steps.begin)
    assert steps.snapshot, "the run has more steps than that"
    kept = msgspec.msgpack.decode(steps.snapshot, type=Snapshot)
    then = steps.kernel
    kernel = restore(kept, then.nodes, then.policy, oracle=then.oracle, seed=1)
    plans = [encoded(kernel.step(batch)) for batch in steps.batches[at:]]
    assert plans == steps.plans[at:]
    assert len(plans) > 5
