"""Believing what users state: the estimate, else the limit, else nothing."""

from __future__ import annotations

import numpy as np
import pytest

from ganger.core.units import SECOND
from ganger.estimate.stated import Stated
from ganger.lab.simulation import Setup, run_one
from worlds import cluster, job, play, trace_of

ONE = cluster(1, 1)
WORDS = [
    job("busy", 0, 5, estimate=5),
    job("silent", 1, 1),
    job("long", 2, 1, estimate=50, limit=60),
    job("short", 3, 9, estimate=20),
    job("limited", 4, 1, limit=30),
]


def test_the_estimate_counts_then_the_limit_then_nothing_is_known() -> None:
    run = play("fifo", WORDS, ONE)
    oracle, view = Stated(), run.kernel.view
    told = oracle.duration(view, np.arange(5)) / SECOND
    assert told[2:].tolist() == [50, 20, 30]
    assert told[0] == 5
    assert np.isnan(told[1])
    one_by_one = [float(oracle.duration(view, row)) / SECOND for row in range(5)]
    assert np.array_equal(one_by_one, told, equal_nan=True)


@pytest.mark.parametrize("recipe", ["sjf", "helios", "srtf"])
def test_queues_order_by_the_users_word_and_not_by_the_truth(recipe: str) -> None:
    """What is short by its owner's word runs first, though it takes longest; who says nothing
    comes last."""
    run = play(recipe, WORDS, ONE, knows="estimate")
    begun = sorted(["silent", "long", "short", "limited"], key=lambda name: run.started(name) or 0)
    assert begun == ["short", "limited", "long", "silent"]


def test_a_result_says_that_estimates_were_believed_and_how_many_jobs_have_none() -> None:
    run = run_one(trace_of(WORDS), ONE, "sjf", Setup(knows="estimate"))
    assert run.knows == "estimate"
    assert run.notes == ["1 of 5 jobs state neither estimate nor time limit (--knows estimate)"]
    assert run_one(trace_of(WORDS), ONE, "fifo", Setup(knows="estimate")).notes == []


@pytest.mark.parametrize(("recipe", "warned"), [("sjf", True), ("helios", True), ("fifo", False)])
def test_a_recipe_that_needs_durations_and_is_told_none_says_so(recipe: str, warned: bool) -> None:
    run = run_one(trace_of(WORDS), ONE, recipe, Setup(knows="nothing"))
    assert any("needs durations and has none" in note for note in run.notes) == warned
