"""Programmes over shares of time: the lecture's two instances, and lexicographic max-min."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from ganger.solve.division.lexicographic import water_filling
from ganger.solve.division.programme import Shares, isolated, proportional, shares
from ganger.solve.division.search import largest
from ganger.solve.division.shares import SharesPool, max_min, max_sum
from ganger.solve.gittins import gittins_index
from ganger.solve.highs import Infeasible, Unbounded, maximise, model

NEED = 1e-6


def three_jobs() -> Shares:
    """2 K80, 1 P100, 1 V100 and jobs A, B, C of one GPU."""
    rate = np.array([[10.0, 30, 80], [50, 65, 70], [20, 55, 60]])
    return shares(rate, np.ones(3), np.array([2.0, 1, 1]))


def two_jobs(scale: int, limit: float) -> Shares:
    """2 V100, 2 K80; A (80, 10) and B (70, 50) per GPU."""
    rate = np.array([[80.0, 10], [70, 50]]) * scale
    return shares(rate, np.full(2, float(scale)), np.array([2.0, 2]), limit)


def test_the_largest_sum_of_the_lectures_assignment_is_185() -> None:
    posed = three_jobs()
    assert max_sum(posed, posed.rate).value == pytest.approx(185, abs=1e-9)


def test_so_says_enumeration_and_the_next_best_is_165() -> None:
    rate = three_jobs().rate
    sums = sorted(
        sum(rate[i, kind] for i, kind in enumerate(kinds))
        for kinds in product(range(3), repeat=3)
        if kinds.count(1) <= 1 and kinds.count(2) <= 1 and kinds.count(0) <= 2
    )
    assert len(sums) == 12
    assert sums[-2:] == [165, 185]


def test_max_min_over_the_proportional_baseline_is_1_13924() -> None:
    posed = three_jobs()
    assert proportional(posed).tolist() == [32.5, 58.75, 38.75]
    best = max_min(posed, proportional(posed))
    assert best.value == pytest.approx(90 / 79, abs=1e-9)
    assert round(best.value, 5) == 1.13924
    assert posed.effective(best.x) == pytest.approx([37.025, 66.930, 44.146], abs=1e-3)


@pytest.mark.parametrize(
    ("scale", "limit", "most", "ratio"),
    [(2, 1.0, 260, 1.0), (1, 1.0, 150, 7 / 6), (1, np.inf, 260, 64 / 53)],
)
def test_three_readings_of_the_fairness_example(
    scale: int, limit: float, most: float, ratio: float
) -> None:
    posed = two_jobs(scale, limit)
    assert max_sum(posed, posed.rate).value == pytest.approx(most, abs=1e-9)
    assert max_min(posed, isolated(posed)).value == pytest.approx(ratio, abs=1e-9)


def test_water_filling_raises_the_second_worst_too() -> None:
    """A job that can use one machine only does not hold the others down."""
    posed = shares(np.array([[1.0, 0.0], [1.0, 1.0], [0.0, 1.0]]), np.ones(3), np.array([0.5, 4.0]))
    filled = water_filling(SharesPool(posed), posed.capacity, np.ones(3))
    assert posed.effective(filled.answer.x) == pytest.approx([0.5, 1.0, 1.0], abs=NEED)
    assert filled.even.value == pytest.approx(0.5, abs=NEED)


def test_the_least_largest_ratio() -> None:
    """One machine, works 1 and 3: both done by 4."""
    posed = shares(np.ones((2, 1)), np.ones(2), np.ones(1))
    work = np.array([1.0, 3.0])
    found = largest(SharesPool(posed), lambda part: work * part, 0.1, 1 / 3)
    assert 1 / found.value == pytest.approx(4.0, abs=1e-6)
    assert posed.effective(found.answer.x) == pytest.approx([0.25, 0.75], abs=1e-6)


def test_rows_that_cannot_hold_together_are_named() -> None:
    rows = np.array([[1.0, 1.0], [1.0, 0.0], [0.0, -1.0]])
    with pytest.raises(Infeasible) as said:
        maximise(model(np.ones(2), rows, np.array([1.0, 5.0, -2.0])))
    assert said.value.rows.tolist() == [0, 2]


def test_a_sum_that_grows_for_ever_is_an_error() -> None:
    with pytest.raises(Unbounded):
        maximise(model(np.ones(1), np.array([[-1.0]]), np.array([1.0])))


def test_gittins_of_sizes_1_or_10() -> None:
    sizes = np.array([1.0, 10.0])
    assert gittins_index(sizes, 0.0) == 0.5
    assert gittins_index(sizes, 1.0) == 1 / 9
    assert gittins_index(sizes, 10.0) == 0.0


def test_gittins_with_one_fixed_step() -> None:
    """D = 2 at age 0: half are done, for (1 + 2) / 2 each."""
    assert gittins_index(np.array([1.0, 10.0]), 0.0, 2.0) == 1 / 3
