"""Several metrics and constraints in a simulated search."""

from __future__ import annotations

import csv
import io
import math
from typing import Any

import numpy as np
import pytest

from ganger.core.errors import BadInput
from ganger.core.units import SECOND
from ganger.lab.tuning.result import per_trial
from ganger.workloads.curves.table import CurveTable, rectangular
from lab.tuning.searches import Searched, experiment, searched

LOSSES = [[0.9, 0.5], [0.8, 0.3], [0.7, 0.2], [0.6, 0.4]]
SIZES = [[1.0, 1.0], [2.0, 2.0], [9.0, 9.0], [3.0, 5.0]]
"""c2 is the best and the largest; c3 becomes too large; c1 is smaller and better than c3."""


def table() -> CurveTable:
    ends = np.array([[1, 2]] * 4) * SECOND
    values = {"loss": np.array(LOSSES), "size": np.array(SIZES)}
    labels = [f"c{at}" for at in range(4)]
    return rectangular("t", labels, {"x": list(range(4))}, np.array([1.0, 2.0]), ends, values)


def search(recipe: str = "tune.random", **more: Any) -> Searched:
    return searched(experiment(4, trials=4, **more), table(), recipe)


def test_a_trial_that_breaks_a_constraint_is_never_the_best() -> None:
    free, bound = search().run, search(constraints=["size <= 4"]).run
    assert (free.metrics["best"], free.metrics["best_configuration"]) == (0.2, "c2")
    assert (bound.metrics["best"], bound.metrics["best_configuration"]) == (0.3, "c1")
    assert bound.metrics["trials_feasible"] == 2
    assert [each.feasible for each in bound.trials] == [True, True, False, False]
    assert (1.0, 0.6) in bound.best_by_time, "c3 kept it after its first epoch"
    assert bound.best_by_time[-1] == (2.0, 0.3)
    assert bound.trials[3].best == 0.6
    assert math.isnan(bound.trials[2].best)


def test_the_front_is_what_no_other_trial_beats() -> None:
    """c3 is beaten by c1 in both."""
    front = search(metrics={"size": "min"}).run.metrics["pareto"]
    assert [(each["configuration"], each["loss"], each["size"]) for each in front] == [
        ("c0", 0.5, 1.0),
        ("c1", 0.3, 2.0),
        ("c2", 0.2, 9.0),
    ]
    bound = search(metrics={"size": "max"}, constraints=["size <= 4"]).run
    assert [each["configuration"] for each in bound.metrics["pareto"]] == ["c1"]


def test_a_target_counts_only_if_the_constraints_are_kept() -> None:
    """Alone, c2 would end the search after its first epoch."""
    free = search(target=0.75)
    bound = search(target=0.75, constraints=["size <= 2.5"])
    never = search(target=0.35, constraints=["size <= 1.5"])
    assert free.run.metrics["seconds"] == pytest.approx(1, abs=0.1)
    assert bound.run.metrics["seconds"] == pytest.approx(2, abs=0.1)
    assert bound.run.metrics["ended_by"] == "the target"
    assert (never.run.metrics["ended_by"], never.run.metrics["best"]) == ("", 0.5)


def test_a_searcher_that_learns_takes_it_for_one_that_broke_down() -> None:
    """Small x are good, and too small ones break the constraint."""
    xs = np.linspace(0, 1, 200)
    ends = np.full((200, 1), SECOND)
    values = {"loss": xs[:, None], "size": 1 - xs[:, None]}
    labels = [str(at) for at in range(200)]
    many = rectangular("t", labels, {"x": xs.tolist()}, np.array([1.0]), ends, values)
    tried = {
        name: np.array(
            [
                trial.point["x"]
                for trial in searched(
                    experiment(searcher="kde", trials=60, constraints=bound), many, "tune.random"
                ).run.trials[30:]
            ]
        )
        for name, bound in (("free", []), ("bound", ["size <= 0.6"]))
    }
    assert np.median(tried["free"]) < 0.3
    assert np.median(tried["bound"]) > 0.4


def test_the_table_of_trials_has_them() -> None:
    run = search(metrics={"size": "min"}, constraints=["size <= 4"]).run
    rows = list(csv.DictReader(io.StringIO(per_trial([run]))))
    assert [(row["size"], row["feasible"]) for row in rows] == [
        ("1.0", "true"),
        ("2.0", "true"),
        ("9.0", "false"),
        ("5.0", "false"),
    ]
    assert "feasible" not in per_trial([search().run])


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"constraints": ["size < 4"]}, "is not a valid constraint"),
        ({"constraints": ["width <= 4"]}, "the curves have no metric 'width'"),
        ({"constraints": ["loss <= 4"]}, "is the one that trials are judged by"),
        ({"metrics": {"loss": "min"}}, "is the one that trials are judged by"),
        ({"metrics": {"width": "min"}}, "the curves have no metric 'width'"),
    ],
)
def test_what_cannot_be_is_refused(more: dict[str, Any], said: str) -> None:
    with pytest.raises(BadInput, match=said):
        search(**more)
