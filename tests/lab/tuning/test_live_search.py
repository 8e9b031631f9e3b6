"""From what a user says to the search that a daemon runs."""

from __future__ import annotations

from typing import Any

import pytest

from ganger.core.errors import BadInput
from ganger.core.tuning.space import Parameter
from ganger.core.units import HOUR
from ganger.lab.tuning.live import search_of
from ganger.lab.tuning.own_recipe import LENGTH_MAX, own_recipe, written
from ganger.mechanisms.tuning.limits import Limited, Limits
from ganger.workloads.experiment.document import FORMAT, Budget, Document, Resources
from ganger.workloads.experiment.reading import checked
from ganger.workloads.experiment.words import amounts_of, space_of

SPACE = {
    "lr": Parameter(low=1e-4, high=1e-1, log=True),
    "opt": Parameter("choice", values=("a", "b")),
}


def asked(**said: Any) -> dict[str, Any]:
    """The request for a search."""
    said = {"metric": "acc", "space": SPACE, "command": ["train", "--lr", "{lr}"], **said}
    recipe = said.setdefault("recipe", "tune.asha")
    return search_of(checked(Document(FORMAT, **said), "tune"), recipe)


def test_the_request_names_recipe_limits_and_a_configuration_for_each_trial() -> None:
    request = asked(
        mode="max",
        trials=12,
        epochs=9,
        parallelism=3,
        resources=Resources(gpus=2),
        deadline="6h",
        budget=Budget(epochs=400, gpu_hours=20),
    )
    assert request["recipe"] == (
        "tune.asha(mode=max,gpus=2,epochs=9,trials=12); deadline=6h; epochs=400; gpu_hours=20"
    )
    assert (request["gpus"], request["kind"], request["printed"]) == (6, "tune", True)
    configurations = request["configurations"]
    assert len(configurations) == 12
    assert all(1e-4 <= float(each["lr"]) <= 1e-1 for each in configurations)
    assert {each["opt"] for each in configurations} == {"a", "b"}
    assert all(len(each["lr"]) <= 12 for each in configurations), "people read them"
    assert asked(trials=12)["configurations"] != asked(trials=12, seed=1)["configurations"]


@pytest.mark.parametrize("recipe", ["hypersched", "rubberband", "hyperdrive"])
def test_a_recipe_that_plans_for_the_deadline_has_that_of_the_search(recipe: str) -> None:
    """Durations are microseconds inside, and seconds in text."""
    policy = own_recipe(asked(recipe=recipe, deadline="90m", epochs=9)["recipe"])
    assert isinstance(policy, Limited)
    judge = getattr(policy.inner, "dealer", None) or getattr(policy.inner, "staged", None)
    judge = judge or policy.inner.judge  # type: ignore[attr-defined]
    assert judge.deadline == policy.limits.deadline == 1.5 * HOUR


def test_without_a_number_of_trials_the_recipe_or_the_searcher_says_it() -> None:
    assert len(asked()["configurations"]) == 27
    assert len(asked(recipe="tune.hyperband(epochs=27)")["configurations"]) > 27
    assert len(asked(recipe="tune.grid")["configurations"]) == 10
    points = [{"lr": 0.01, "opt": "a"}, {"lr": 0.02, "opt": "b"}]
    found = asked(space={}, points=points, searcher="points", recipe="tune.random")
    assert found["configurations"] == [{"lr": "0.01", "opt": "a"}, {"lr": "0.02", "opt": "b"}]


def test_a_searcher_that_learns_is_asked_by_the_daemon() -> None:
    points = [{"lr": 0.01, "opt": "a"}]
    for said in ({"recipe": "tune.bohb"}, {"searcher": "kde"}):
        request = asked(points=points, seed=7, **said)
        assert request["configurations"] == [{"lr": "0.01", "opt": "a"}]
        assert (request["searcher"], request["space"], request["seed"]) == ("kde", SPACE, 7)
    assert "searcher" not in asked(searcher="quasi-random")


def test_a_population_has_its_configurations_and_the_space_for_copies() -> None:
    request = asked(recipe="tune.pbt(trials=6)")
    assert len(request["configurations"]) == 6
    assert (request["searcher"], request["space"]) == ("random", SPACE)


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ({"command": []}, "what does a trial run"),
        ({"space": {}}, "there is nothing to try"),
        ({"recipe": "fifo"}, "does not decide over the trials"),
        ({"recipe": "tune.random(trials=11)", "searcher": "grid"}, "there are 10 configurations"),
        ({"recipe": "tune.pbt", "searcher": "kde"}, "begins with random trials"),
        (
            {"recipe": "tune.pbt(trials=1)", "space": {}, "points": [{"lr": 0.1}]},
            "values near those of others",
        ),
        ({"searcher": "clever"}, "there is no searcher"),
    ],
)
def test_what_a_daemon_cannot_run_is_refused(said: dict[str, Any], words: str) -> None:
    with pytest.raises(BadInput, match=words):
        asked(**said)


def test_a_recipe_and_its_limits_are_one_text() -> None:
    text = written("tune.asha(mode=max)", {"deadline": "6h", "money": "5"})
    assert text == "tune.asha(mode=max); deadline=6h; money=5"
    policy = own_recipe(text)
    assert isinstance(policy, Limited)
    assert policy.limits == Limits(6 * HOUR, money=5.0)
    assert policy.inner.name == "tune.asha"
    assert own_recipe("fifo").name == "fifo"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("mine.py:Mine", "mine.py"),
        ("/etc/passwd", "passwd"),
        ("scale.threshold", "does not decide over the trials"),
        ("tune.asha(trials=99999)", "trials"),
        ("srtf", "does not decide over the trials"),
        ("tune.hyperband(epochs=1e9,eta=2)", "at most 10,000"),
        ("tune.asha; deadline", "is not one limit"),
        ("tune.asha; speed=3", "is not one limit"),
        ("tune.asha; epochs=3; epochs=4", "is not one limit"),
        ("tune.asha; epochs=0", "not above 0"),
        ("tune.asha; epochs=nan", "not above 0"),
        ("tune.asha; money=1e13", "not above 0"),
        ("tune.asha; gpu_hours=many", "not above 0"),
        ("tune.asha; deadline=soon", "deadline"),
        ("fifo; deadline=1h", "asks for no trials"),
        ("tune.asha" + " " * LENGTH_MAX, "longer than"),
        ("", "recipe"),
    ],
)
def test_a_text_that_names_anything_else_is_refused(text: str, words: str) -> None:
    """Above all a file, which would run as the daemon."""
    with pytest.raises(BadInput, match=words):
        own_recipe(text)


def test_a_space_in_words() -> None:
    assert space_of(["lr=log:1e-4..1e-1,layers=1..5", "bs=16|32", "x=0..0.5"]) == {
        "lr": Parameter("real", 1e-4, 1e-1, True),
        "layers": Parameter("integer", 1, 5),
        "bs": Parameter("choice", values=(16, 32)),
        "x": Parameter("real", 0.0, 0.5),
    }
    assert space_of(["opt=sgd|0.5|7"])["opt"].values == ("sgd", 0.5, 7)


@pytest.mark.parametrize(
    "words", ["lr", "lr=", "=1..2", "1x=1..2", "lr=a..b", "lr=2..1", "lr=log:0..1", "lr=log:a|b",
              "lr=1..2,lr=1..3", "bs=1|1"],
)  # fmt: skip
def test_words_that_are_no_space(words: str) -> None:
    with pytest.raises(BadInput, match="--space"):
        space_of([words])


def test_amounts_in_words() -> None:
    assert amounts_of("gpu_hours=2, money=3.5", ("gpu_hours", "money"), "--budget") == {
        "gpu_hours": 2.0,
        "money": 3.5,
    }
    for words in ("gpu_hours", "hours=3", "money=1,money=2", "money=much"):
        with pytest.raises(BadInput, match="--budget"):
            amounts_of(words, ("gpu_hours", "money"), "--budget")
    with pytest.raises(BadInput, match=r"'1h' is not a number \(write a number, like gpu"):
        amounts_of("gpu_hours=1h", ("gpu_hours",), "--budget")
