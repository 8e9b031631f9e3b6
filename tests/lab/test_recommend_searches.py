"""Which recipe brings a search to its target: stories worked out by hand, and what is printed."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result

from ganger.cli.main import cli
from ganger.core.errors import BadInput
from ganger.core.spec import ClusterSpec, GpuType, NodeSpec
from ganger.lab.recommend.searches import (
    Entrant,
    SearchAdvice,
    Tried,
    candidates,
    recommend_search,
)
from ganger.lab.tuning.recipes import chosen
from ganger.lab.tuning.run import Place
from ganger.recipes.registry import recipes

from .tuning.searches import experiment, table

# nine configurations, one second an epoch; the last one alone comes to 0.1, after nine epochs
NINE = table(*([1.0 - 0.01 * c] * 9 for c in range(8)), [0.9 - 0.1 * e for e in range(9)])


def advice(**runs: list[Tried]) -> SearchAdvice:
    """Of runs that are made up; those that take least come first."""
    entrants = [Entrant(name, each) for name, each in runs.items()]
    first = next(iter(runs))
    return SearchAdvice("seconds", "loss", 0.1, entrants, {}, first, len(entrants[0].runs))


def test_a_recipe_that_stops_bad_trials_is_there_first_on_one_gpu() -> None:
    """Random search trains eight bad trials for nine epochs before the good one: 81 s. By asha the
    first trial goes on to its end, each bad one is worse than it after an epoch: 9 + 7 + 9 s."""
    falling = table(*([0.92 + 0.01 * c] * 9 for c in range(8)), [0.9 - 0.1 * e for e in range(9)])
    found = recommend_search(
        experiment(trials=9, target=0.11, recipe="tune.random"),
        falling,
        among=["tune.asha"],
        seeds=(0, 1, 2),
    )
    assert [each.recipe for each in found.entrants] == ["tune.asha", "tune.random"]
    asha, random = found.entrants
    assert found.takes(random).value == pytest.approx(81, abs=0.1)
    assert found.takes(asha).value == pytest.approx(25, abs=0.2)
    assert found.pick is asha
    assert found.better
    assert not found.is_tied(random)
    over = found.over_baseline
    assert over is not None
    assert over.low == over.high == pytest.approx(over.value)  # every seed was the same


def test_a_search_that_misses_counts_in_whole_and_is_begun_anew() -> None:
    found = advice(
        sure=[Tried(True, 30.0, 1.0, 0.1)] * 4,
        lucky=[Tried(True, 10.0, 1.0, 0.1), *[Tried(False, 50.0, 1.0, 0.4)] * 3],
        never=[Tried(False, 50.0, 1.0, 0.4)] * 4,
    )
    sure, lucky, never = found.entrants
    assert found.takes(sure) == (30.0, 30.0, 30.0)
    assert found.takes(lucky).value == 160.0
    assert found.takes(lucky).high == math.inf  # perhaps no seed reaches it
    assert found.behind(lucky).value == pytest.approx(160 / 30)
    assert found.takes(never).value == math.inf
    assert not found.is_tied(never)
    plain = found.to_json()["recipes"]
    assert (plain[1]["takes"]["high"], plain[2]["takes"]["value"]) == (None, None)


def test_one_that_is_worse_in_the_mean_but_not_surely_is_a_tie() -> None:
    mine = [Tried(True, float(each), 1.0, 0.1) for each in (10, 30, 12, 28, 20)]
    theirs = [Tried(True, float(each), 1.0, 0.1) for each in (12, 27, 14, 25, 24)]
    slower = [Tried(True, 1.3 * run.seconds, 1.0, 0.1) for run in mine]
    found = advice(mine=mine, theirs=theirs, slower=slower)
    assert found.behind(found.entrants[1]).value > 1.0
    assert found.is_tied(found.entrants[1])
    assert not found.is_tied(found.entrants[2])  # seed by seed it is 1.3 times as slow
    assert found.to_json()["ties"] == ["theirs"]


def test_intervals_cover_what_they_say() -> None:
    """Ten seeds that reach the target with probability 0.8, after exponential times: of 200
    intervals of what it takes (1 / 0.8 of the mean time), 95 % are to hold it."""
    rng, held = np.random.default_rng(3), 0
    for _ in range(200):
        hits, times = rng.random(10) < 0.8, rng.exponential(100.0, 10)
        runs = [
            Tried(bool(hit), float(took), 1.0, 0.1) for hit, took in zip(hits, times, strict=True)
        ]
        span = advice(one=runs).takes(Entrant("one", runs))
        held += span.low <= 125.0 <= span.high
    assert 170 <= held <= 198


def test_one_seed_has_no_interval_and_no_ties_by_it() -> None:
    found = advice(one=[Tried(True, 1.0, 1.0, 0.1)], two=[Tried(True, 2.0, 1.0, 0.1)])
    assert math.isnan(found.behind(found.entrants[1]).low)
    assert found.is_tied(found.entrants[1])  # nothing says that it is worse
    assert not found.better


def test_the_cheapest_counts_money_where_there_are_prices() -> None:
    found = experiment(parallelism=2, trials=9, target=0.11, recipe="tune.random")
    priced = ClusterSpec((NodeSpec(gpus=2, gpu_type="A"),), gpu_types=(GpuType("A", price=3600.0),))
    money = recommend_search(
        found, NINE, "cheapest", among=["tune.random"], seeds=(0,), place=Place(priced)
    )
    hours = recommend_search(found, NINE, "cheapest", among=["tune.random"], seeds=(0,))
    assert (money.unit, hours.unit) == ("money", "GPU-hours")
    # five rounds of nine seconds on two GPUs, until the ninth trial has ended: 45 s x 2
    assert money.takes(money.entrants[0]).value == pytest.approx(90, rel=0.01)
    assert hours.takes(hours.entrants[0]).value == pytest.approx(90 / 3600, rel=0.01)


def test_every_recipe_is_tried_or_it_is_said_why_not() -> None:
    tried, left_out = candidates()
    assert {*recipes("tuning")} <= {*tried, *left_out}
    assert list(left_out) == ["easeml"]
    short = experiment(parallelism=2, target=0.11, points=[{"x": 8}, {"x": 0}], searcher="points")
    found = recommend_search(short, NINE, seeds=(0,))
    assert "starts" in found.left_out["tune.hyperband"]  # more trials than there are points
    ran = {each.recipe for each in found.entrants}
    assert ran.isdisjoint(found.left_out)
    assert {*tried} == (ran | {*found.left_out}) - {"easeml"}


def test_hyperdrive_knows_the_target_unless_it_is_told_another() -> None:
    wants = experiment(trials=9, target=0.11)
    assert chosen("hyperdrive", wants).arguments["target"] == 0.11
    assert chosen("hyperdrive(target=0.3)", wants).arguments["target"] == 0.3


@pytest.mark.parametrize(
    ("target", "objective", "message"),
    [
        (None, "soonest", "which loss is to be reached?"),
        (0.1, "nicest", "there is no objective 'nicest' for a search"),
    ],
)
def test_what_cannot_be_answered(target: float | None, objective: str, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        recommend_search(experiment(trials=3, target=target), NINE, objective)


def test_a_search_that_no_recipe_can_run_is_one_error() -> None:
    with pytest.raises(BadInput, match="the curves have no metric 'acc'"):
        recommend_search(
            experiment(trials=3, target=0.1, metric="acc"), NINE, among=["tune.random"], seeds=(0,)
        )


FILE = """format = "ganger.experiment/1"
name = "small"
metric = "loss"
recipe = "tune.random"
parallelism = 1
target = 0.11
"""


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    rows = [
        f"c{c},{c},{e},{e},{0.9 - 0.1 * e if c == 8 else 0.92 + 0.01 * c:g}"
        for c in range(9)
        for e in range(1, 10)
    ]
    (tmp_path / "e.toml").write_text(FILE)
    (tmp_path / "c.csv").write_text("\n".join(["configuration,x,epoch,seconds,loss", *rows]) + "\n")
    return tmp_path / "e.toml", tmp_path / "c.csv"


def run(*words: object) -> Result:
    return CliRunner().invoke(cli, ["recommend", *(str(word) for word in words)])


def test_the_command_says_which_and_how_surely(files: tuple[Path, Path]) -> None:
    path, curves = files
    words = (path, "--curves", curves, "--recipes", "tune.random,tune.sha", "--workers", 1)
    said = run(*words, "--seeds", "0-5", "--quiet")
    assert "it reaches loss 0.11 after" in said.output, said.output
    assert said.exit_code in (0, 1)
    plain = json.loads(run(*words, "--seeds", "0-5", "--json").output)
    assert (said.exit_code == 0) == plain["better_than_baseline"]
    assert {each["recipe"] for each in plain["recipes"]} == {"tune.random", "tune.sha"}
    random = next(each for each in plain["recipes"] if each["recipe"] == "tune.random")
    assert random["reached"] == random["runs"] == 6
    assert random["takes"]["low"] <= random["takes"]["value"] <= random["takes"]["high"]
    assert sum(random["seconds"]) / 6 == pytest.approx(random["takes"]["value"])


def test_a_target_that_nothing_reaches_is_said(files: tuple[Path, Path]) -> None:
    path, curves = files
    words = (path, "--curves", curves, "--recipes", "tune.random", "--target", "-1")
    said = run(*words, "--seeds", "0-1", "--workers", 1)
    assert "No recipe reaches loss -1 in 2 seeds." in said.output
    assert said.exit_code == 1


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "--curves: what do its trials report?"),
        (("--curves", "c.csv", "--windows", "3"), "--windows: it means nothing for an experiment"),
        (("--curves", "c.csv", "--objective", "jct"), "no objective 'jct' for a search"),
        (("--curves", "c.csv", "--target", "nan"), "--target: nan is not a valid target"),
    ],
)
def test_words_that_do_not_fit(
    files: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], message: str
) -> None:
    monkeypatch.chdir(files[0].parent)
    failed = run(files[0], *words)
    assert failed.exit_code == 2 or isinstance(failed.exception, BadInput)
    assert message in failed.output + str(failed.exception)


def test_where_no_target_is_stated_the_table_says_what_there_is(files: tuple[Path, Path]) -> None:
    path, curves = files
    path.write_text(FILE.replace("target = 0.11\n", ""))
    failed = run(path, "--curves", curves)
    assert (
        "one of the 9 configurations of the table reach 0" in str(failed.exception) + failed.output
    )


def test_words_about_trials_need_an_experiment(tmp_path: Path) -> None:
    failed = run(tmp_path / "jobs.csv", "--target", "0.1")
    assert "it is about the trials of an experiment, and" in str(failed.exception) + failed.output
