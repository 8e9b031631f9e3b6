"""Budgets and deadlines of searches, by hand; what could never report is refused before it runs."""

from __future__ import annotations

from typing import Any

import pytest

from ganger.core.errors import BadInput
from ganger.core.spec import ClusterSpec, GpuType, NodeSpec
from ganger.core.state.jobs import Phase
from ganger.sim.physics import Costs
from ganger.workloads.experiment.document import Budget
from lab.tuning.searches import Searched, experiment, searched, table

FLAT = table(*([1.0] * 9 for _ in range(9)))
"""Nine configurations, nine epochs of one second."""
PRICED = ClusterSpec((NodeSpec(gpus=4, gpu_type="V100"),), (GpuType("V100", price=36.0),))
"""A GPU costs 0.01 a second."""


def run(parallelism: int = 2, recipe: str = "tune.random", **more: Any) -> Searched:
    place = {key: more.pop(key) for key in ("cluster", "costs") if key in more}
    return searched(experiment(parallelism, trials=9, **more), FLAT, recipe, **place)


def test_a_deadline_ends_all_trials_at_that_very_time() -> None:
    found = run(deadline="13s")
    assert found.run.metrics["seconds"] == 13
    assert found.epochs() == [9, 9, 4, 4]
    assert [trial.state for trial in found.run.trials] == ["complete"] * 2 + ["stopped"] * 2
    assert found.run.metrics["deadline_kept"] is True
    assert found.run.metrics["budget_kept"] is None, "there is none"
    assert run(deadline="1h").run.metrics["seconds"] == 45


def test_saving_comes_after_the_deadline_and_counts_as_kept() -> None:
    found = run(deadline="13s", costs=Costs(checkpoint=2_000_000))
    assert found.run.metrics["seconds"] == 15
    assert found.run.metrics["deadline_kept"] is True


def test_gpu_hours_are_those_that_the_search_holds() -> None:
    """Two GPUs for 7 s."""
    found = run(budget=Budget(gpu_hours=14 / 3600))
    assert found.run.metrics["seconds"] == 7
    assert found.run.metrics["gpu_hours"] == pytest.approx(14 / 3600)
    assert found.run.metrics["budget_kept"] is True


def test_epochs_count_when_they_are_reported() -> None:
    """Two at once: both have trained 6 at 6 s; at 7 s the 13th is reported, and the 14th in the
    same instant."""
    found = run(budget=Budget(epochs=13))
    assert found.epochs() == [7, 7]
    assert found.run.metrics["seconds"] == 7
    assert run(budget=Budget(epochs=14)).run.metrics["seconds"] == 7
    assert run(budget=Budget(epochs=15)).run.metrics["seconds"] == 8
    alone = run(1, budget=Budget(epochs=20))
    assert alone.epochs() == [9, 9, 2]


def test_epochs_that_ended_trials_have_trained_count_too() -> None:
    """Of successive halving: nine times one, then three times two more are 15."""
    found = run(9, recipe="tune.sha", budget=Budget(epochs=15))
    assert found.epochs() == [3, 3, 3, *[1] * 6]
    found = run(9, recipe="tune.asha(epochs=9)", budget=Budget(epochs=14))
    assert sum(found.epochs()) in (14, 15)


def test_money_is_what_the_gpus_cost_for_as_long_as_they_are_held() -> None:
    """Two of four GPUs at 0.01 a second: 0.2 last for 10 s."""
    found = run(budget=Budget(money=0.2), cluster=PRICED)
    assert found.run.metrics["seconds"] == 10
    assert found.run.metrics["cost"] == pytest.approx(0.2)
    assert found.run.metrics["budget_kept"] is True
    assert run(cluster=PRICED).run.metrics["cost"] == pytest.approx(0.9)
    assert run().run.metrics["cost"] is None


def test_the_first_limit_that_is_reached_ends_the_search() -> None:
    both: dict[str, Any] = {"deadline": "5s", "budget": Budget(gpu_hours=14 / 3600, epochs=12)}
    assert run(**both).run.metrics["seconds"] == 5
    assert run(**both | {"deadline": "8s"}).run.metrics["seconds"] == 6


@pytest.mark.parametrize(
    ("limits", "field", "needs"),
    [
        ({"deadline": "999ms"}, "deadline", "1 s"),
        ({"budget": Budget(gpu_hours=1.9 / 3600)}, "budget: gpu_hours", "0.00055"),
        ({"budget": Budget(money=0.019), "cluster": PRICED}, "budget: money", "0.02"),
        ({"budget": Budget(epochs=0.5)}, "budget: epochs", "1"),
    ],
)
def test_a_limit_before_the_first_report_is_refused_before_anything_runs(
    limits: dict[str, Any], field: str, needs: str
) -> None:
    with pytest.raises(BadInput) as refused:
        run(**limits)
    assert refused.value.where == f"x.toml: {field}"
    assert "no trial reports before" in str(refused.value)
    assert needs in str(refused.value)


def test_money_without_prices_is_refused() -> None:
    with pytest.raises(BadInput, match="the GPUs of the cluster have no price"):
        run(budget=Budget(money=1.0))


def test_more_trials_at_once_than_the_cluster_has_gpus_for_are_refused() -> None:
    with pytest.raises(BadInput, match="5 trials at once need 5 GPUs, and the cluster has 4"):
        run(5, cluster=PRICED)


@pytest.mark.parametrize(
    ("limits", "said"),
    [
        ({"deadline": "5s"}, "the deadline"),
        ({"budget": Budget(gpu_hours=14 / 3600)}, "the budget of GPU-hours"),
        ({"budget": Budget(epochs=12)}, "the budget of epochs"),
        ({"budget": Budget(money=0.2), "cluster": PRICED}, "the budget of money"),
        ({"deadline": "1h", "budget": Budget(epochs=1000)}, ""),
    ],
)
def test_a_run_says_which_limit_ended_it(limits: dict[str, Any], said: str) -> None:
    assert run(**limits).run.metrics["ended_by"] == said


def test_trials_that_are_set_aside_when_the_search_ends_have_finished_as_the_others() -> None:
    """Of nine trials three went on when the deadline came, and six had been set aside."""
    found = run(9, recipe="tune.asha(epochs=9,variant=promote)", deadline="2s")
    jobs = found.kernel.jobs
    assert set(jobs.phase[: jobs.n].tolist()) == {int(Phase.FINISHED)}


def test_seer_without_a_plan_is_refused() -> None:
    with pytest.raises(BadInput, match="not one trial comes as far as 4 rounds on one GPU"):
        run(2, recipe="seer", deadline="8s", budget=Budget(gpu_hours=3.5 / 3600))
