"""Draws of run times: against the estimate of Kaplan and Meier, and against the truth."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from ganger.estimate.lifetimes import Lifetimes

DRAWS = 300


def guesses(
    took: NDArray[np.float64], over: NDArray[np.bool_], age: float, guesses: int = DRAWS
) -> NDArray[np.float64]:
    """One draw from each of so many guesses, for a job of the only group."""
    group = np.zeros(len(took), np.int64)
    return np.array(
        [
            Lifetimes(took, over, [group], np.random.default_rng(seed)).draw([0], age)
            for seed in range(guesses)
        ]
    )


def test_those_that_still_run_make_long_times_likelier() -> None:
    rng = np.random.default_rng(0)
    true = rng.lognormal(3.0, 1.0, 400)
    seen_for = rng.uniform(0, 60, 400)
    over = true <= seen_for
    took = np.minimum(true, seen_for)
    quantiles = (0.25, 0.5, 0.75)
    drawn = np.quantile(guesses(took, over, 0.0), quantiles)
    only_over = np.quantile(took[over], quantiles)
    truth = np.quantile(true, quantiles)
    assert np.abs(np.log(drawn / truth)).max() < 0.35
    assert np.log(truth / only_over).max() > 0.4  # what leaving them out would have given


@pytest.mark.parametrize("age", [0.0, 5.0, 19.0, 20.0, 1e6])
def test_every_draw_is_longer_than_the_age(age: float) -> None:
    took = np.arange(1.0, 21.0)
    drawn = guesses(took, np.ones(20, bool), age)
    assert drawn.min() > age or age == 0.0
    if age == 5.0:
        seen = np.isin(drawn, took)
        assert 0.65 < seen.mean() < 0.95  # some turn to the tail beyond the ninth tenth
        assert drawn[~seen].min() > np.quantile(took, 0.9)


def test_a_small_group_leans_on_the_wider_one() -> None:
    took = np.r_[np.full(200, 100.0), 1.0, 1.0]
    narrow = np.r_[np.zeros(200, np.int64), 1, 1]
    groups = [np.zeros(202, np.int64), narrow]
    over = np.ones(202, bool)
    drawn = [
        Lifetimes(took, over, groups, np.random.default_rng(seed)).draw([0, 1])
        for seed in range(DRAWS)
    ]
    own = np.mean([time == 1.0 for time in drawn])
    assert 0.25 < own < 0.65  # two of its own beside a strength of three
    older = Lifetimes(took, over, groups, np.random.default_rng(0)).draw([0, 1], 2.0)
    assert older >= 100.0


def test_one_guess_differs_from_another_and_not_from_itself() -> None:
    rng = np.random.default_rng(1)
    took = rng.lognormal(0.0, 1.0, 10)
    group = [np.zeros(10, np.int64)]

    def median(seed: int) -> float:
        guess = Lifetimes(took, np.ones(10, bool), group, np.random.default_rng(seed))
        return float(np.median([guess.draw([0]) for _ in range(400)]))

    between = np.std([median(seed) for seed in range(30)])
    assert median(3) == median(3)
    assert between > 0.1 * np.median(took)  # ten jobs do not settle a median


def test_with_nothing_known_there_is_still_a_draw() -> None:
    none = np.zeros(0)
    guess = Lifetimes(none, np.zeros(0, bool), [none.astype(np.int64)], np.random.default_rng(0))
    assert guess.draw([0], 7.0) > 7.0
