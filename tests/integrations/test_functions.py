"""Python functions as trials."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import ganger
from ganger import sdk
from ganger.client.connection import Client
from ganger.core.errors import BadInput
from ganger.core.tuning.space import Parameter


def train(tried: dict[str, Any]) -> None:
    """Loss falls to `floor`; sizes are known at once."""
    assert type(tried["floor"]) is float
    assert type(tried["width"]) is int
    for epoch in range(1, 10):
        loss = tried["floor"] + (tried["kind"] == "b") + 1 / epoch
        sdk.report(epoch, loss=loss, size=float(tried["width"]))
        if sdk.should_checkpoint():
            sdk.leave()


def square(tried: dict[str, Any]) -> float:
    if tried["x"] == 2.5:
        raise ZeroDivisionError("as it does")
    return float(tried["x"] ** 2)


def breaks(tried: dict[str, Any]) -> float:
    raise ZeroDivisionError(str(tried))


class Nearer:
    """Proposes the middle of what it does not know, then what is nearer to the best."""

    def __init__(self, space: Any, seed: int) -> None:
        self.best, self.bad, self.step = 8, float("inf"), 4  # halved by each that is better
        self.asked = 0

    def ask(self) -> dict[str, Any]:
        self.asked += 1
        return {"x": self.best if self.asked == 1 else self.best - self.step}

    def tell(self, point: dict[str, Any], epoch: float, badness: float) -> None:
        if badness < self.bad:
            self.best, self.bad, self.step = point["x"], badness, max(self.step // 2, 1)


SPACE = {"floor": Parameter(low=0.1, high=0.9), "kind": ["a", "b"], "width": "1..4"}


def test_a_function_is_searched_with_a_recipe_and_a_constraint(daemon: Client) -> None:
    found = ganger.tune(
        train,
        SPACE,
        metric="loss",
        recipe="tune.asha",
        trials=8,
        epochs=9,
        parallel=4,
        seed=1,
        metrics={"size": "min"},
        constraints=["size <= 3"],
        name="mine",
        resources={"cpus": 0.1},
    )
    assert (found.state, len(found.trials)) == ("COMPLETED", 8)
    assert {trial.state for trial in found.trials} == {"COMPLETED"}
    kept = [trial for trial in found.trials if trial.params["width"] <= 3]
    assert [trial for trial in found.trials if trial.feasible] == kept
    assert found.best is not None
    assert found.best.value == min(trial.value for trial in kept if trial.value is not None)
    assert found.best in found.front
    detail = daemon.call("GET", f"/v1/jobs/{found.job}")[0]
    assert (detail["name"], detail["gpus"], detail["cpus"]) == ("mine", 4, 0.1)


def test_what_it_returns_counts_and_what_it_raises_is_told(daemon: Client) -> None:
    found = ganger.tune(
        square, {"x": [1, 2.5, 3]}, metric="y", searcher="grid", recipe="tune.random", parallel=3
    )
    assert [(trial.params["x"], trial.value) for trial in found.trials] == [
        (1, 1.0),
        (2.5, None),
        (3, 9.0),
    ]
    assert found.best is found.trials[0]
    assert isinstance(found.trials[1].error, ZeroDivisionError)
    with pytest.raises(ZeroDivisionError, match="'x': 1"):
        ganger.tune(breaks, {"x": [1]}, metric="y", trials=1, recipe="tune.random")
    assert not list((daemon.places.root / "calls").iterdir())


def test_a_searcher_of_ones_own_is_asked_here_and_hears_what_trials_report(daemon: Client) -> None:
    """One after the other: 8, then 2 less, 1 less and 1 less, since each is better."""
    found = ganger.tune(
        square,
        {"x": "-9..9"},
        metric="y",
        searcher=Nearer,
        recipe="tune.random",
        trials=4,
        parallel=1,
        retries=0,
    )
    assert [trial.params["x"] for trial in found.trials] == [8, 6, 5, 4]


def test_what_cannot_be_is_said(daemon: Client, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="does not travel"):
        ganger.tune(square, {"x": [1, None]}, metric="y")
    with pytest.raises(BadInput, match="is not a valid parameter"):
        ganger.tune(square, {"x": ""}, metric="y")
    with pytest.raises(BadInput, match="deadlines"):
        ganger.tune(square, {"x": [1]}, metric="y", deadlines="1h")
    with pytest.raises(BadInput, match="the cluster has 4"):
        ganger.tune(square, {"x": [1]}, metric="y", gpus=5)
