"""Trials that take longer than their curves say: how much longer, what recipes believe, and what a
plan that knows of them does."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from ganger.cli.main import cli
from ganger.core.errors import BadInput
from ganger.core.units import SECOND
from ganger.lab.tuning.draws import Configurations, Slowed
from ganger.recipes.tuning.rubberband import Rungs, Stage, farthest
from ganger.workloads.curves.stragglers import Stragglers, read_stragglers
from ganger.workloads.curves.table import Curve

from .searches import experiment, searched, table

NINE = Curve([1.0, 2.0, 3.0], [10 * SECOND, 20 * SECOND, 30 * SECOND], {"loss": [0.3, 0.2, 0.1]})


def lengths(stragglers: Stragglers, count: int = 4000) -> list[float]:
    """How many seconds trials take whose curve takes 30."""
    rngs = (np.random.default_rng([7, at]) for at in range(count))
    return [stragglers.slowed(NINE, rng).ends[-1] / SECOND for rng in rngs]


def test_a_trial_is_slow_as_a_whole_and_no_faster_than_its_curve() -> None:
    """E|z| = sqrt(2 / pi) = 0.798: with spread 0.5 trials take 1.4 times as long on average."""
    taken = lengths(Stragglers(spread=0.5))
    assert min(taken) >= 30
    assert np.mean(taken) == pytest.approx(30 * (1 + 0.5 * 0.798), rel=0.02)
    slow = Stragglers(spread=0.5).slowed(NINE, np.random.default_rng(1))
    first, second, third = np.diff([0, *slow.ends]).tolist()
    assert first == pytest.approx(second, abs=2) == pytest.approx(third, abs=2)
    assert (slow.epochs, slow.values) == (NINE.epochs, NINE.values)


def test_a_part_of_the_epochs_is_slow() -> None:
    taken = lengths(Stragglers(part=0.1, times=5))
    assert np.mean(taken) == pytest.approx(30 * (1 + 0.1 * 4), rel=0.03)
    assert {round(each) for each in taken} == {30, 70, 110, 150}


def test_without_any_nothing_changes() -> None:
    assert Stragglers().slowed(NINE, np.random.default_rng(0)) is NINE


def test_the_same_seed_slows_the_same_trials_by_as_much() -> None:
    curves = table(*([0.5, 0.4, 0.3] for _ in range(4)), seconds=[10.0] * 4)
    found = experiment(2, trials=4)
    slow = Stragglers(spread=1.0)
    first, again, other = (
        searched(found, curves, "tune.random", seed, stragglers=slow).run for seed in (1, 1, 2)
    )
    ends = [[trial.ended_seconds for trial in run.trials] for run in (first, again, other)]
    assert ends[0] == ends[1] != ends[2]
    assert first.metrics["seconds"] > 60
    assert first.metrics["reports"] == 12


def test_synchronous_halving_waits_for_stragglers_and_asynchronous_does_not() -> None:
    """Of nine trials on nine GPUs all of a rung wait for the slowest one."""
    losses = ([1.0 - at / 10 - epoch / 100 for epoch in range(9)] for at in range(9))
    curves, found = table(*losses, seconds=[10.0] * 9), experiment(9, trials=9)
    slow = Stragglers(part=0.2, times=20)
    waits = {
        recipe: np.mean([
            searched(found, curves, recipe, seed, stragglers=slow).run.metrics["seconds"]
            / searched(found, curves, recipe, seed).run.metrics["seconds"]
            for seed in range(3)
        ])
        for recipe in ("tune.sha", "tune.asha(variant=promote)")
    }  # fmt: skip
    assert waits["tune.sha"] > 2
    gone = [
        searched(found, curves, recipe, 0, stragglers=slow).run.metrics["trial_gpu_hours"]
        for recipe in ("tune.sha", "tune.random")
    ]
    assert gone[0] < gone[1]


def test_what_a_recipe_believes_is_the_curve_and_not_the_straggler() -> None:
    curves = table([0.5, 0.4, 0.3], [0.4, 0.3, 0.2], seconds=[10.0, 20.0])
    drawn = Configurations(curves, None, [{"x": 0}, {"x": 1}], "points", 0)
    slowed = Slowed(drawn, Stragglers(spread=2.0), 0)
    for job in (1, 2):
        taken = slowed.draw("s", job)
        assert taken is not None
        assert taken[1].ends[-1] > slowed.believed[job]
    assert slowed.believed == {1: 30 * SECOND, 2: 60 * SECOND}


def test_a_wave_lasts_as_long_as_the_slowest_of_its_trials() -> None:
    """By the mean of the largest of so many |z|, as drawn."""
    rng = np.random.default_rng(0)
    for count in (1, 2, 9, 81):
        drawn = np.abs(rng.normal(size=(20_000, count))).max(axis=1).mean()
        assert farthest(count) == pytest.approx(drawn, rel=0.02)
    rungs = Rungs((Stage(4, 10.0),), (1.0,), 4, 1, startup=1.0, stragglers=0.5)
    assert rungs.takes(rungs.stages[0], 4) == pytest.approx(1 + 10 * (1 + 0.5 * farthest(4)))
    assert rungs.takes(rungs.stages[0], 2) == pytest.approx(2 * (1 + 10 * (1 + 0.5 * farthest(2))))


def test_rubberband_that_knows_of_stragglers_rents_more_gpus_for_the_deadline() -> None:
    """Eight trials of 10 s, and then one: without stragglers two GPUs hold a deadline of 60 s."""
    stages = (Stage(8, 10.0), Stage(1, 10.0))
    plain = Rungs(stages, (1.0,), 8, 1)
    aware = Rungs(stages, (1.0,), 8, 1, stragglers=1.0)
    assert plain.time(plain.greedy(60)[-1]) <= 60
    assert aware.greedy(60)[-1][0] > plain.greedy(60)[-1][0]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("slow=1", "'slow=1' is not a setting of stragglers"),
        ("spread=x", "'spread=x' is not a setting"),
        ("spread=-1", "-1 is out of range"),
        ("spread=nan", "nan is out of range"),
        ("part=2", "2 is out of range"),
        ("times=3", "which part of the epochs?"),
        ("spread=1,spread=2", "'spread=2' is not a setting"),
    ],
)
def test_words_that_mean_nothing(text: str, message: str) -> None:
    with pytest.raises(BadInput) as refused:
        read_stragglers(text)
    assert message in str(refused.value)


def test_the_command_takes_them_and_jobs_have_none(tmp_path: Path) -> None:
    (tmp_path / "e.toml").write_text(
        'format = "ganger.experiment/1"\nmetric = "loss"\nrecipe = "tune.random"\n'
        "parallelism = 1\ntrials = 3\n[space.x]\nlow = 0\nhigh = 1\n"
    )
    words = ["simulate", str(tmp_path / "e.toml"), "--curves", "parametric:epochs=3", "--json"]
    took = [
        json.loads(CliRunner().invoke(cli, [*words, *more]).output)["runs"][0]["metrics"]["seconds"]
        for more in ([], ["--stragglers", "spread=1"])
    ]
    assert took[1] > took[0]
    failed = CliRunner().invoke(cli, ["simulate", "demo", "--stragglers", "spread=1"])
    assert "--stragglers: it is about the trials" in str(failed.exception) + failed.output
