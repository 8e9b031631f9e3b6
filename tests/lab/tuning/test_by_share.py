"""Fluid and Ease.ml by hand: how the GPUs of a search are divided, and who is served."""

from __future__ import annotations

from statistics import fmean

import numpy as np
import pytest

from ganger.recipes.tuning.easeml import arms_of, expectations, potential
from ganger.recipes.tuning.fluid import widths
from ganger.workloads.curves.table import CurveTable, rectangular
from ganger.workloads.experiment.document import Resources
from lab.tuning.searches import Searched, experiment, searched, table

RESOURCES = Resources(most_gpus=4, scaling=[1, 1.9, 2.7, 3.5], gpu_use=0.5)
"""Two trials on one GPU each run at 1 / 1.25."""


def alike(*seconds: float, epochs: int = 10) -> CurveTable:
    """Trials whose epochs take so long."""
    falls = [1.0 - 0.01 * epoch for epoch in range(epochs)]
    return table(*(falls for _ in seconds), seconds=seconds)


def fluid(curves: CurveTable, recipe: str = "fluid", gpus: int = 4) -> Searched:
    search = experiment(gpus, trials=len(curves), epochs=10, resources=RESOURCES)
    return searched(search, curves, recipe)


def test_widths_are_parts_of_the_work_rounded_down() -> None:
    """The card: four GPUs, two trials on one at most, heights of 4, 2, 1 and 1."""
    assert widths([4, 2, 1, 1], 4, 2, 4) == [2, 1, 0.5, 0.5]
    assert widths([4, 2, 1, 1], 4, 2, 1) == [1, 1, 0.5, 0.5], "no more than one of them can use"
    assert widths([1, 1, 1], 4, 2, 4) == [1, 1, 1]
    assert widths([1] * 10, 4, 2, 4) == [0.5] * 10
    assert widths([1] * 10, 4, 1, 4) == [1.0] * 10
    assert widths([], 4, 2, 4) == []


def test_short_trials_share_a_gpu_and_a_long_one_grows() -> None:
    """Epochs of 40, 20, 10, 10 s on four GPUs, of which at first each has one. At 20 s it is known
    that the second needs 180 s more, and the last two 80 s each, half a GPU's part of it all. At
    40 s it is known that the first needs 360 s more: three of four GPUs would be too many."""
    found = fluid(alike(40, 20, 10, 10))
    resized = [(at, trial) for at, what, trial in found.actions() if what == "resize"]
    assert {trial for at, trial in resized if at == 20} >= {2, 3}
    assert (40, 0) in resized
    assert found.epochs() == [10] * 4
    assert found.run.metrics["seconds"] < 400 / 1.5, "alone on one GPU the first takes 400 s"


def test_it_is_over_sooner_than_with_one_gpu_for_each_trial() -> None:
    """Too many trials at the start, too few at the end."""
    curves = alike(40, 20, 10, 10, 10, 10)
    ours, plain = fluid(curves), fluid(curves, "tune.random")
    assert plain.run.metrics["seconds"] == 400
    assert ours.run.metrics["seconds"] < 300
    assert fluid(curves, "fluid(dynamic=false)").run.metrics["seconds"] >= 400
    apart = fluid(curves, "fluid(packed=1)").run.metrics["seconds"]
    assert ours.run.metrics["seconds"] < apart < 400


def test_two_that_share_a_gpu_run_beside_each_other_as_the_experiment_says() -> None:
    """Two trials of 10 s on one GPU: 12.5 s together, of which either would need 10."""
    found = fluid(alike(1, 1), gpus=1)
    assert found.run.metrics["seconds"] == 12.5
    assert fluid(alike(1, 1), "fluid(packed=1)", gpus=1).run.metrics["seconds"] == 20


@pytest.mark.parametrize("tuner", ["stop", "promote"])
def test_the_trials_that_go_on_are_those_that_the_tuner_says(tuner: str) -> None:
    """Nine with losses of 0.9, 0.8, ...: ASHA's first rung ends the worse ones."""
    curves = table(*([at / 10] * 9 for at in range(1, 10)))
    search = experiment(3, trials=9, epochs=9, resources=RESOURCES)
    ours = searched(search, curves, f"fluid(tuner={tuner})")
    whole = searched(search, curves, f"tune.asha(variant={tuner})")
    assert ours.run.metrics["best"] == whole.run.metrics["best"] == 0.1
    assert sum(ours.epochs()) < 9 * 9 / 2
    assert max(ours.epochs()) == 9


# ------------------------------------------------------------------------------ Ease.ml


def test_the_user_whose_best_may_rise_the_most_is_served() -> None:
    """The card: best .90 and at most .91; best .50 and at most .80."""
    assert potential({0: 0.90, 1: 0.50}, {0: 0.91, 1: 0.80}) == 1
    assert potential({0: 0.90}, {0: 0.91, 1: 0.80}) == 1, "nothing was trained for it yet"


def test_what_a_model_reaches_for_one_user_says_what_it_reaches_for_others() -> None:
    """For user a, model x has reached 0.9, and y 0.5: for b, x is believed to be better."""
    arms = arms_of(["a/x", "a/y", "b/x", "b/y"], np.full(4, np.nan))
    known = {0: 0.9, 1: 0.5}
    mean, sigma = expectations(arms, [2, 3], known, [], 0.5)
    assert mean[0] > mean[1]
    assert mean.mean() == pytest.approx(0.7)
    unlike, _ = expectations(arms, [2, 3], known, [], 0.0)
    assert unlike[0] == pytest.approx(unlike[1])
    _, beside = expectations(arms, [2, 3], known, [2], 0.5)
    assert beside[0] < 0.1 * sigma[0], "it will be known what b/x reaches"
    assert beside[1] < sigma[1], "and with it how good anything is for b"


def served(curves: CurveTable, recipe: str = "easeml", gpus: int = 1) -> list[str]:
    """In which order configurations are trained."""
    points = [curves.point(row) for row in range(len(curves))]
    search = experiment(gpus, points=points, searcher="points", metric="accuracy", mode="max")
    run = searched(search, curves, recipe).run
    order = sorted(run.trials, key=lambda trial: (trial.started_seconds, trial.number))
    return [f"{trial.point['user']}/{trial.point['model']}" for trial in order]


def users(values: dict[str, list[float]], seconds: list[float]) -> CurveTable:
    """By user what its models m0, m1, ... reach after one epoch, which takes so long."""
    names = [(user, f"m{at}") for user, row in values.items() for at in range(len(row))]
    ends = np.array([[round(second * 1e6)] for _ in values for second in seconds], np.int64)
    return rectangular(
        "the table",
        [f"{user}/{model}" for user, model in names],
        {"user": [user for user, _ in names], "model": [model for _, model in names]},
        np.array([1.0]),
        ends,
        {"accuracy": np.array([[value] for row in values.values() for value in row])},
    )


def test_each_user_is_served_once_with_the_cheapest_model_and_then_the_one_that_gains_most() -> (
    None
):
    """Nothing is known at first, so that the cheapest is worth the most. For b, m1 is as much
    better as it was for a, so that b, which is behind, is served before a."""
    curves = users({"a": [0.80, 0.90, 0.30], "b": [0.20, 0.60, 0.10]}, [1, 2, 8])
    order = served(curves)
    assert set(order[:2]) == {"a/m0", "b/m0"}
    assert order[2:4] == ["b/m1", "a/m1"]
    assert set(order[4:]) == {"a/m2", "b/m2"}


def test_turns_serve_users_one_after_the_other() -> None:
    curves = users({"a": [0.8] * 3, "b": [0.2] * 3, "c": [0.5] * 3}, [1, 1, 1])
    order = served(curves, "easeml(serves=turns)")
    assert [name[0] for name in order] == ["a", "b", "c"] * 3


def test_hybrid_takes_turns_when_the_same_user_is_served_again_without_success() -> None:
    """For b one model is good, so that its others may be, too; none is."""
    values = {"a": [0.70] * 8, "b": [0.1, 0.9, *[0.05] * 6]}
    curves = users(values, [1.0] * 8)
    greedy, hybrid = (
        "".join(name[0] for name in served(curves, f"easeml(serves={word},patience=2,alike=0)"))
        for word in ("greedy", "hybrid")
    )
    assert "aaaa" in greedy or "bbbb" in greedy
    assert "ababab" in hybrid or "bababa" in hybrid


def test_a_user_with_many_slots_is_not_served_twice_for_the_same_reason() -> None:
    """Four GPUs, four users: each is served at once."""
    curves = users({user: [0.5, 0.6] for user in "abcd"}, [1, 1])
    assert {name[0] for name in served(curves, gpus=4)[:4]} == set("abcd")


def test_a_model_that_breaks_down_is_as_bad_as_any() -> None:
    curves = users({"a": [np.nan, 0.9], "b": [0.6, 0.7]}, [1, 2])
    order = served(curves)
    assert sorted(order) == ["a/m0", "a/m1", "b/m0", "b/m1"]


def test_the_mean_loss_falls_sooner_than_in_turns_without_costs_and_than_by_chance() -> None:
    """Six users, eight models whose costs differ: seconds until the best of each user is on average
    0.02 from what it can reach."""

    def seconds(recipe: str, seed: int) -> float:
        rng = np.random.default_rng(seed)
        level, good = rng.normal(0.7, 0.1, 6), rng.normal(0.0, 0.06, 8)
        values = level[:, None] + good + rng.normal(0.0, 0.03, (6, 8))
        named = {f"u{at}": row.tolist() for at, row in enumerate(values)}
        curves = users(named, rng.lognormal(3.0, 1.0, 8).tolist())
        search = experiment(1, trials=48, metric="accuracy", mode="max", searcher="random")
        run, best = searched(search, curves, recipe).run, dict.fromkeys(named, 0.0)
        for trial in sorted(run.trials, key=lambda each: each.ended_seconds):
            user = str(trial.point["user"])
            best[user] = max(best[user], trial.best)
            if fmean(max(named[user]) - value for user, value in best.items()) <= 0.02:
                return trial.ended_seconds
        return float(run.metrics["seconds"])

    ours, chance = (
        fmean(seconds(recipe, seed) for seed in range(3)) for recipe in ("easeml", "tune.random")
    )
    assert ours < chance / 2
