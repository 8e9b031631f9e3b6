"""RubberBand and SEER by hand: how many GPUs each stage has, planned and as it is run."""

from __future__ import annotations

import random
from typing import Any

import pytest

from ganger.recipes.tuning.rubberband import Rungs, Stage, stages
from ganger.recipes.tuning.seer import Round, Wanted, planned
from ganger.workloads.experiment.document import Budget, Resources
from lab.tuning.searches import Searched, experiment, searched, table

THREE = Rungs((Stage(4, 60.0), Stage(2, 60.0), Stage(1, 60.0)), (1.0, 1.6, 2.0, 2.5), 4, 4)
"""The card: 4, 2, 1 trials of a minute on one GPU; 1.6 times as fast on 2, 2.5 on 4."""
FOUR = table(*([1.0 + 0.1 * at - 0.001 * epoch for epoch in range(180)] for at in range(4)))
RESOURCES = Resources(most_gpus=4, scaling=[1, 1.6, 2, 2.5])
RUBBERBAND = "rubberband(eta=2,first=60,epoch=1s)"


def test_gpus_that_never_change_cost_more() -> None:
    static = [THREE.static(180.0)] * 3
    assert static == [4, 4, 4]
    assert (THREE.time(static), THREE.cost(static)) == (121.5, 486.0)


def test_the_greedy_plan_and_its_gap() -> None:
    """Until 180 s it finds the best plan; until 150 s it stops at 465, and 456 is possible."""
    path = THREE.greedy(180.0)
    assert path == [[4, 4, 4], [4, 4, 2], [4, 2, 2], [4, 2, 1]]
    assert [THREE.cost(plan) for plan in path] == [486.0, 465.0, 435.0, 420.0]
    assert THREE.cheapest(180.0) == path[-1]
    assert THREE.greedy(150.0)[-1] == [4, 4, 2]
    assert THREE.cheapest(150.0) == [4, 2, 4]
    assert THREE.cost([4, 2, 4]) == 456.0
    assert THREE.cheapest(100.0) is None


def test_more_trials_than_gpus_train_in_waves_and_a_start_counts_in_each() -> None:
    slow = Rungs((Stage(5, 60.0),), (1.0,), 3, 1, startup=10.0)
    assert slow.choices(slow.stages[0]) == [1, 2, 3]
    assert [slow.time([gpus]) for gpus in (1, 2, 3)] == [350.0, 210.0, 140.0]


def test_the_stages_are_the_rungs_of_successive_halving() -> None:
    assert stages(9, 3, 1.0, 9.0, 2.0) == ((9, 2.0), (3, 4.0), (1, 12.0))
    assert stages(9, 3, 1.0, 5.0, 1.0) == ((9, 1.0), (3, 2.0), (1, 2.0))
    assert stages(9, 3, 1.0, 2.0, 1.0) == ((9, 1.0), (3, 1.0)), "the second rung is the last"


def run(recipe: str, deadline: str, **more: Any) -> Searched:
    search = experiment(4, trials=4, epochs=180, deadline=deadline, resources=RESOURCES, **more)
    return searched(search, FOUR, recipe)


@pytest.mark.parametrize(
    ("deadline", "seconds", "cost"), [("180s", 180, 420), ("150s", 135, 465), ("130s", 121.5, 486)]
)
def test_a_search_takes_the_time_and_the_gpus_that_were_planned(
    deadline: str, seconds: float, cost: float
) -> None:
    found = run(RUBBERBAND, deadline)
    assert found.epochs() == [180, 120, 60, 60]
    assert found.run.metrics["seconds"] == pytest.approx(seconds)
    assert found.run.metrics["gpu_hours"] * 3600 == pytest.approx(cost)
    assert found.run.metrics["deadline_kept"]


def test_successive_halving_alone_holds_all_its_gpus_to_the_end() -> None:
    """Its nearest neighbour finds the same trial, at 720 GPU-seconds."""
    found = run("tune.sha(eta=2,first=60)", "180s")
    assert found.epochs() == [180, 120, 60, 60]
    assert found.run.metrics["gpu_hours"] * 3600 == pytest.approx(720)


def test_no_trial_begins_a_rung_before_the_search_has_the_gpus_of_the_rung() -> None:
    """Each trial that goes on changes its size once."""
    found = run(RUBBERBAND, "130s")
    assert [(at, trial) for at, what, trial in found.actions() if what == "resize"] == [
        (60, 0),
        (60, 1),
        (97.5, 0),
    ]


SPEEDS = (1.0, 1.6, 2.5, 3.6)


def test_seer_begins_with_as_many_trials_as_the_budget_allows() -> None:
    """The card: four rounds of an hour, 32 GPU-hours, progress 5: 13 begin, and 13 + 7 + 4 + 2 x 4
    are 32; 8 would on 8 GPUs all the time."""
    plan = planned(Wanted(4, 2, 32.0, 5.0, 100, 100, SPEEDS))
    assert plan == (Round(13, 1), Round(7, 1), Round(4, 1), Round(2, 4))
    fixed = planned(Wanted(4, 2, 32.0, 5.0, 100, 8, SPEEDS))
    assert fixed[0].trials <= 8
    assert planned(Wanted(4, 2, 3.0, 5.0, 100, 100, SPEEDS)) == ()


def test_no_plan_of_seer_exceeds_its_budget_or_falls_short() -> None:
    draw = random.Random(5)
    for _ in range(1000):
        wanted = Wanted(
            draw.randint(1, 5),
            draw.randint(2, 4),
            draw.uniform(1, 60),
            draw.uniform(0, 12),
            draw.randint(1, 40),
            draw.randint(1, 40),
            SPEEDS[: draw.randint(1, 4)],
        )
        plan = planned(wanted)
        held = [trials * width for trials, width in plan]
        assert sum(held) <= wanted.budget + 1e-6
        assert max(held, default=0) <= wanted.gpus
        if plan:
            speeds = dict(zip((1, 2, 4, 8), wanted.scaling, strict=False))
            assert sum(speeds[width] for _, width in plan) >= wanted.progress - 1e-6
            assert plan[0].trials <= wanted.trials


def test_seer_takes_what_was_planned_and_not_more() -> None:
    """The card's plan in rounds of a minute: the last two have trained for 3 minutes, and for one
    2.5 times as fast. All of the budget is used, to the second."""
    curves = table(*([1.0 + 0.1 * at - 0.001 * epoch for epoch in range(600)] for at in range(20)))
    search = experiment(
        20,
        trials=20,
        epochs=600,
        deadline="240s",
        budget=Budget(gpu_hours=32 / 60),
        resources=Resources(most_gpus=8, scaling=[1, 1.6, 2, 2.5, 2.7, 3, 3.3, 3.6]),
    )
    found = searched(search, curves, "seer(progress=5)")
    assert found.epochs() == [330] * 2 + [180] * 2 + [120] * 3 + [60] * 6
    assert found.run.metrics["seconds"] == 240
    assert found.run.metrics["gpu_hours"] == pytest.approx(32 / 60)
    assert found.run.metrics["deadline_kept"]
    assert found.run.metrics["budget_kept"]
    resized = [trial for _, what, trial in found.actions() if what == "resize" and trial >= 0]
    assert resized == [0, 1]


def test_a_trial_that_breaks_down_is_the_worst_of_its_round() -> None:
    nan = float("nan")
    curves = table([0.1, nan] + [nan] * 98, *([1.0 + 0.1 * at] * 100 for at in range(3)))
    search = experiment(4, trials=4, epochs=100, deadline="20s", budget=Budget(gpu_hours=1.0))
    found = searched(search, curves, "seer(rounds=2)")
    assert found.epochs()[0] == 2
    assert found.epochs()[1:] == [30, 30, 10], "of two GPUs each in the second round"
