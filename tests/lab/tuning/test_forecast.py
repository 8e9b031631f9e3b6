"""What a search will come to, before it is submitted: figures by hand, and how often they hold."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from ganger.cli.main import cli
from ganger.core.errors import BadInput
from ganger.core.spec import ClusterSpec, GpuType, NodeSpec
from ganger.core.tuning.space import Parameter
from ganger.core.units import SECOND
from ganger.lab.tuning.export import Tried
from ganger.lab.tuning.forecast import Forecast, Known, by_trials, forecast
from ganger.lab.tuning.run import run_experiment
from ganger.workloads.curves.parametric import Formula
from ganger.workloads.experiment.document import Budget
from ganger.workloads.experiment.reading import Experiment
from soaking import rarely

from .searches import experiment, table

PRICED = ClusterSpec((NodeSpec(gpus=2, gpu_type="A"),), gpu_types=(GpuType("A", price=36.0),))
SPACE = {"x": Parameter(type="integer", low=0, high=80)}


def tried(label: str, *reports: tuple[float, float, float | None], ended: bool = False) -> Tried:
    """A trial with its reports: epoch, seconds, loss."""
    trial = Tried(label, {"x": "1"}, ended=ended)
    for epoch, seconds, loss in reports:
        trial.hear(epoch, seconds, {"loss": loss})
    return trial


def wanted(recipe: str = "tune.random", **more: Any) -> Experiment:
    """A search of four trials, two at once, that runs a command."""
    more.setdefault("trials", 4)
    points = [{"x": at} for at in range(more["trials"])]
    return experiment(2, recipe=recipe, command=["true"], **{"points": points, **more})


def test_four_equal_trials_two_at_once_take_twice_as_long_as_one() -> None:
    curves = table(*([0.5, 0.4, 0.3] for _ in range(4)), seconds=[10.0] * 4)
    told = forecast(wanted(), Known(curves, "a table", PRICED))
    assert [*told.figures["trials"]] == [4, 4, 4]
    assert [*told.figures["epochs"]] == [12, 12, 12]
    assert told.figures["seconds"].median == pytest.approx(60, abs=0.1)
    assert told.figures["gpu_hours"].low == pytest.approx(120 / 3600, rel=0.01)
    assert told.figures["cost"].high == pytest.approx(1.2, rel=0.01)
    assert [*told.figures["best"]] == [0.3, 0.3, 0.3]
    assert told.by == ["a table"]
    assert told.ended_by == {"": 20}


def test_what_nobody_knows_is_said_and_not_made_up() -> None:
    limits = Budget(epochs=40.0, gpu_hours=3.0)
    told = forecast(wanted(deadline="1h", budget=limits), Known())
    assert told.figures == {}
    assert told.bounds == {"trials": 4, "seconds": 3600, "gpu_hours": 2, "epochs": 40}
    assert told.unknown[0] == "how long trials take, and what they report"


def test_a_budget_of_money_does_not_count_where_prices_are_not_known() -> None:
    curves = table(*([0.5, 0.4, 0.3] for _ in range(4)), seconds=[10.0] * 4)
    found = wanted(budget=Budget(money=0.6))
    priced = forecast(found, Known(curves, "a table", PRICED))
    assert priced.ended_by == {"the budget of money": 20}
    assert priced.figures["cost"].median == pytest.approx(0.6, rel=0.01)
    blind = forecast(found, Known(curves, "a table"))
    assert "cost" not in blind.figures
    assert {"prices of GPUs", "when the budget of money is spent"} <= {*blind.unknown}
    assert blind.bounds["cost"] == 0.6


def test_a_trial_has_the_pace_that_it_had_while_it_trained() -> None:
    """It began to report after 12 s, took 10 s an epoch, and was set aside for an hour."""
    paused = tried("a", (1, 12, 0.5), (2, 22, 0.4), (3, 3632, 0.3), (4, 3642, 0.2), ended=True)
    told = forecast(wanted(), by_trials([paused], wanted(), "search 7"))
    assert told.figures["seconds"].median == pytest.approx(2 * 42, abs=0.1)
    assert told.by == ["1 trials of search 7"]
    assert "how much trials differ: 1 have reported" in told.unknown


def test_what_was_ended_early_is_continued_and_what_broke_down_is_not() -> None:
    early = tried("early", (1, 10, 0.9))
    full = tried("full", (1, 10, 0.5), (2, 20, 0.4), (3, 30, 0.3), ended=True)
    broken = tried("broken", (1, 10, None))
    known = by_trials([early, full, broken], wanted(), "search 7")
    source = known.source
    assert source is not None
    curves = [source.curve(row) for row in range(3)]  # type: ignore[union-attr]
    assert curves[0].epochs == [1, 2, 3]
    assert curves[0].ends == [10 * SECOND, 20 * SECOND, 30 * SECOND]
    assert curves[0].values["loss"] == [0.9, 0.9, 0.9]
    assert curves[1].values["loss"] == [0.5, 0.4, 0.3]
    assert (curves[2].epochs, math.isnan(curves[2].values["loss"][0])) == ([1], True)
    assert "what trials that were ended early had come to: here they keep their value" in (
        known.doubts
    )


def test_later_epochs_than_any_trial_trained_are_no_fact() -> None:
    short = [tried(f"t{at}", (1, 10, 0.5), (2, 20, 0.4)) for at in range(5)]
    known = by_trials(short, wanted(epochs=9.0), "search 7")
    assert known.source is not None
    assert known.source.curve(0).epochs[-1] == 9  # type: ignore[union-attr]
    assert known.doubts[0].startswith("how long epochs after 2 take")


@pytest.mark.parametrize(
    ("trials", "message"),
    [
        ([tried("a")], "none of its trials has reported"),
        ([Tried("a", {}, ended=True)], "none of its trials has reported"),
    ],
)
def test_trials_that_tell_nothing(trials: list[Tried], message: str) -> None:
    with pytest.raises(BadInput, match=message):
        by_trials(trials, wanted(), "search 7")


def test_a_metric_that_was_not_reported_is_named() -> None:
    with pytest.raises(BadInput, match="its trials did not report size"):
        by_trials([tried("a", (1, 1, 0.5))], wanted(metrics={"size": "min"}), "search 7")


def earlier_and_now(world: int) -> tuple[Forecast, float]:
    """A search of 16 random trials; the forecast of another recipe by those, and what it takes."""
    formula = Formula(epochs=9, seconds=30.0, spread=0.5)
    before = experiment(4, trials=16, points=[], searcher="random", space=SPACE)
    run = run_experiment(before, formula, "tune.random", world, watch=True)
    assert run.detail is not None
    trials = []
    for trial, curve in zip(run.trials, run.detail.curves, strict=True):
        reports = zip(curve.epochs, curve.seconds, curve.values, strict=True)
        told = [
            (epoch, at - trial.started_seconds, None if math.isnan(value) else value)
            for epoch, at, value in reports
        ]
        trials.append(tried(str(trial.number), *told, ended=trial.state == "complete"))
    now = experiment(
        4, trials=30, points=[], searcher="random", space=SPACE, command=["true"], epochs=9.0,
        recipe="tune.asha",
    )  # fmt: skip
    told_now = forecast(now, by_trials(trials, now, "search 7"))
    return told_now, run_experiment(now, formula, "tune.asha", world).metrics["seconds"]


@pytest.mark.parametrize("worlds", [range(3), rarely(range(40))])
def test_intervals_hold_what_they_say(worlds: range) -> None:
    """In other worlds each, with other curves: 80 % of what a search took are to lie inside."""
    results = [earlier_and_now(world) for world in worlds]
    inside = sum(
        told.figures["seconds"].low <= took <= told.figures["seconds"].high
        for told, took in results
    )
    assert inside >= 0.67 * len(results)


FILE = """format = "ganger.experiment/1"
metric = "loss"
recipe = "tune.random"
parallelism = 1
trials = 2
command = ["true", "{x}"]
[space.x]
type = "integer"
low = 0
high = 8
"""


def dry(tmp_path: Path, *words: object) -> Result:
    (tmp_path / "e.toml").write_text(FILE)
    rows = [f"c{c},{c},{e},{5 * e},{1 - 0.1 * e:g}" for c in range(9) for e in range(1, 4)]
    (tmp_path / "c.csv").write_text("\n".join(["configuration,x,epoch,seconds,loss", *rows]) + "\n")
    command = ["tune", str(tmp_path / "e.toml"), "--dry-run", *(str(word) for word in words)]
    return CliRunner().invoke(cli, command)


def test_the_command_says_it_in_lines_and_as_json(tmp_path: Path) -> None:
    said = dry(tmp_path, "--curves", tmp_path / "c.csv").output
    assert "trials: 2, at most 2\n" in said
    assert "time: 30.0" in said
    assert "nothing is submitted" in said
    plain = json.loads(dry(tmp_path, "--curves", tmp_path / "c.csv", "--json").output)
    assert plain["forecast"]["figures"]["trials"]["median"] == 2
    assert len(plain["configurations"]) == 2  # the request that would be sent
    nothing = dry(tmp_path).output
    assert "not known: how long trials take, and what they report" in nothing
    assert "name --curves FILE, or --like SEARCH" in nothing


def test_words_that_do_not_fit(tmp_path: Path) -> None:
    twice = dry(tmp_path, "--curves", tmp_path / "c.csv", "--like", "3")
    assert "--like: --curves says it, too" in str(twice.exception) + twice.output
    task = dry(tmp_path, "--task", "3")
    assert "--task: a task of which curves?" in str(task.exception) + task.output
