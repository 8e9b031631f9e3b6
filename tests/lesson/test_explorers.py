"""The lecture's pieces for inputs of one's own: by hand, and against a run of the command line."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import ganger
from ganger.cli.lab.lesson import lesson as command
from ganger.core.errors import BadInput
from ganger.lab.figures import queueing_delays
from ganger.lab.lessons import fields
from ganger.lab.lessons.parts import Bars, Lines, TableOf, to_json
from ganger.lab.lessons.pieces import LESSONS
from ganger.web.pages.whatif import asked_in
from ganger.workloads.synthetic import synthesize

EIGHT = (
    "queue", "policies", "queueing-delay", "sensitivity", "gavel", "step-time", "trade-off",
    "four-jobs",
)  # fmt: skip


def rows(name: str, table: int = 0, **given: Any) -> dict[Any, Any]:
    """A table of a piece by the first cell of each row."""
    return {row[0]: row[1:] for row in LESSONS[name].work(given).tables[table].rows}


def test_eight_pieces_have_inputs_a_formula_a_reading_and_a_table() -> None:
    assert tuple(LESSONS)[:8] == EIGHT
    for name in EIGHT:
        piece = LESSONS[name]
        assert piece.fields
        assert piece.formula
        assert piece.reading
        assert piece.work({}).tables


def test_eve_waits_on_four_gpus_and_not_on_eight() -> None:
    """On 4: Alice has all until 6; Bob and Carol follow, Dave when Carol is over, then Eve."""
    four, eight = rows("queue"), rows("queue", gpus="8", recipe="backfill")
    assert [row[4] for row in four.values()] == [0, 6, 6, 6.5, 7]
    assert four["Eve"][6] == 7.25
    assert [row[4] for row in eight.values()] == [0, 0, 0, 0.5, 0]
    late = rows("queue", gpus="1", jobs="b 1x2@3, a 1x1@1")
    assert late == {"a": (1, 1, 1, 1, 0, 2, 1), "b": (1, 2, 3, 3, 0, 5, 2)}


def test_policies_are_those_of_the_lectures_table() -> None:
    found = {recipe: row[1:3] for recipe, row in rows("policies").items()}
    assert found["fifo"] == (35, 70)
    assert found["srtf"] == (34, 66)
    assert found["priority(highest=largest)"] == (43.5, 53)
    assert rows("policies", jobs="5, 3", gpus="1", recipes="fifo, sjf") == {
        "fifo": ("5, 8", 6.5, 8, 0),
        "sjf": ("8, 3", 5.5, 8, 0),
    }


def test_waits_by_size_are_those_of_the_run() -> None:
    """Every class counts its jobs, and together they are the run's mean queueing delay."""
    given = {"kind": "helios", "jobs": "150", "seed": "4", "cluster": "2x8xV100", "recipe": "srtf"}
    found = rows("queueing-delay", 0, **given)
    run = ganger.simulate(synthesize("helios", 150, 4, gpus=16), "2x8xV100", "srtf")
    jobs = np.array([float(row[0]) for row in found.values()])
    means = np.array([float(row[1]) for row in found.values()])
    assert jobs.sum() == 150
    mean = run.metrics["queueing_delay_mean_seconds"]
    assert float((jobs * means).sum() / 150 * 3600) == pytest.approx(mean, rel=1e-12)
    one = queueing_delays(run.jobs)[run.jobs.gpus == 1] / 3600
    assert found["1"][1:] == (
        float(one.mean()),
        float(np.median(one)),
        float(np.percentile(one, 90)),
        float(one.max()),
    )


def test_the_fast_gpu_goes_to_the_job_that_gains_by_it() -> None:
    """One K80 and one V100: 80 + 50 beats 70 + 10."""
    two = {"types": "K80, V100", "rates": "Transformer 10 80; ResNet 50 70"}
    assert rows("sensitivity", 0, **two)["Transformer"][-1] == 8
    assert rows("sensitivity", 1, **two) == {"Transformer": (0, 1), "ResNet": (1, 0)}
    assert rows("sensitivity", 2, **two) == {"largest total, iterations/s": (130,)}


def test_gavels_best_is_185_and_ones_own_is_what_it_is() -> None:
    found = rows("gavel", yours="V100, K80, P100")
    assert found["by turns"][0] == 135
    assert found["yours"][:2] == (185, 100)
    assert found["best (largest total)"][0] == pytest.approx(185, rel=1e-9)
    assert found["fairest (largest least ratio)"][2] == pytest.approx(1.13924, abs=1e-5)
    idle = rows("gavel", yours="none, K80, none")
    assert idle["yours"][:3] == (50, pytest.approx(100 * 50 / 185), 0)


def test_a_step_is_computing_and_sending() -> None:
    """100 ms and 1 GB over 10 GB/s: 100 ms more once, 150 ms more around a ring of four."""
    once, step, slower, ring, by_ring = rows("step-time")["Ethernet"][1:]
    assert (once, step, ring, by_ring) == pytest.approx((100, 200, 150, 250))
    assert slower == pytest.approx(100 * (200 / (100 + 1000 / 600) - 1))


def test_what_fairness_costs_hangs_on_what_a_job_may_use() -> None:
    gangs, mix = rows("trade-off", weight="1"), rows("trade-off", weight="1", use="any mix")
    assert gangs[0.0][0] == pytest.approx(260)
    assert gangs[1.0][:2] == pytest.approx((210, 100 * 50 / 260), rel=1e-5)
    assert mix[1.0][:2] == pytest.approx((253.585, 2.467), rel=1e-3)
    totals = [float(row[0]) for row in gangs.values()]
    assert totals == sorted(totals, reverse=True), "more fairness never gives more"
    assert 0.33 in rows("trade-off", weight="0.33")


@pytest.mark.parametrize("name", EIGHT)
def test_what_is_drawn_stands_in_a_table(name: str) -> None:
    made = LESSONS[name].work({})
    cells = {
        cell
        for part in made.parts
        if isinstance(part, TableOf)
        for row in part.rows
        for cell in row
    }
    for part in made.parts:
        if isinstance(part, Bars) and name != "sensitivity":  # whose bars are quotients of two
            assert {value for _, value in part.rows} <= cells
        if isinstance(part, Lines):
            assert {y for points in part.lines.values() for _, y in points} <= cells


@pytest.mark.parametrize(("name", "wrong"), [
    ("queue", {"gpus": "0"}), ("queue", {"gpus": "1e3"}), ("queue", {"jobs": ""}),
    ("queue", {"jobs": "Alice 4"}), ("queue", {"jobs": "a 65x1"}), ("queue", {"jobs": "a 8x1"}),
    ("queue", {"jobs": ", ".join(f"j{at} 1x1" for at in range(21))}), ("queue", {"recipe": "x"}),
    ("queue", {"cluster": "x"}), ("policies", {"jobs": "0"}), ("policies", {"recipes": "a/b.py:C"}),
    ("policies", {"recipes": "fifo(x=1)"}), ("policies", {"recipes": ",".join("abcdefg")}),
    ("queueing-delay", {"cluster": "cluster.toml"}), ("queueing-delay", {"cluster": "99x9xV100"}),
    ("queueing-delay", {"recipe": "fifo, las"}), ("queueing-delay", {"kind": "/etc/passwd"}),
    ("sensitivity", {"rates": "A 1 2"}), ("sensitivity", {"rates": "A 0 1 2"}),
    ("sensitivity", {"rates": "A 1 2 3; A 1 2 3"}), ("sensitivity", {"types": "<b>"}),
    ("gavel", {"yours": "V100, V100, K80"}), ("gavel", {"yours": "V100"}),
    ("gavel", {"yours": "H100, K80, K80"}), ("gavel", {"types": "0 K80"}),
    ("gavel", {"rates": "A 0 0 0"}), ("step-time", {"compute": "-1"}),
    ("step-time", {"links": "NVLink 0"}), ("step-time", {"workers": "1"}),
    ("trade-off", {"weight": "1.1"}), ("trade-off", {"weight": "nan"}),
    ("trade-off", {"use": "anything"}), ("four-jobs", {"durations": "1,2,3"}),
])  # fmt: skip
def test_a_bad_input_is_one_sentence(name: str, wrong: dict[str, str]) -> None:
    with pytest.raises(BadInput) as error:
        LESSONS[name].work(wrong)
    assert error.value.mend or error.value.where
    assert "\n" not in str(error.value)


def test_lengths_are_bounded_before_anything_is_read() -> None:
    for name in EIGHT:
        for field in LESSONS[name].fields:
            with pytest.raises(BadInput):
                field.value("9" * 100_000)


def test_the_command_line_sets_inputs_and_lists_them() -> None:
    def said(*words: str) -> str:
        return (
            CliRunner(env={"COLUMNS": "80"})
            .invoke(command, list(words), catch_exceptions=False)
            .output
        )

    assert "gpus=4" in said("queue", "--list")
    assert json.loads(said("queue", "--list", "--json"))["recipe"] == "fifo"
    assert "no inputs" in said("gang", "--list")
    set_ = ["--set", "gpus=8", "--set", "recipe=backfill"]
    data: dict[str, Any] = json.loads(said("queue", *set_, "--json"))
    again = to_json(LESSONS["queue"].work({"gpus": "8", "recipe": "backfill"}))
    assert data == json.loads(json.dumps(again))
    assert "JCT = finish - arrival" in said("queue")
    with pytest.raises(BadInput, match="has no 'x'"):
        said("queue", "--set", "x=1")
    with pytest.raises(BadInput, match="INPUT=VALUE"):
        said("queue", "--set", "gpus")


def test_a_cluster_is_words_and_a_recipe_is_registered() -> None:
    assert fields.cluster("2x4xV100+1x8xA100", "cluster") == "2x4xV100+1x8xA100"
    assert fields.recipes("fifo, gavel(x=1,y=2) ,fifo") == ["fifo", "gavel(x=1,y=2)"]


@pytest.mark.parametrize(
    "recipe", ["fgd(workload=@jobs.csv)", "mine.py:Mine", "las(x=a/b)", "fgd(workload=/etc/passwd)"]
)
def test_a_lesson_and_a_page_name_no_file(recipe: str) -> None:
    with pytest.raises(BadInput, match="is not a recipe"):
        fields.recipes(recipe)
    with pytest.raises(BadInput, match="is not a recipe"):
        asked_in({"recipe": [recipe]})
