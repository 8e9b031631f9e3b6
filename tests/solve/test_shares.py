"""Programmes over shares of time: the lecture's two instances, and lexicographic max-min."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from ganger.solve.gittins import gittins_index
from ganger.solve.lp import maximise
from ganger.solve.shares import (
    Shares,
    isolated,
    least_largest,
    max_min,
    max_sum,
    proportional,
    water_filling,
)

NEED = 1e-6


def three_jobs() -> Shares:
    """2 K80, 1 P100, 1 V100 and jobs A, B, C of one GPU."""
    rate = np.array([[10.0, 30, 80], [50, 65, 70], [20, 55, 60]])
    return Shares(rate, np.ones(3), np.array([2.0, 1, 1]), np.ones(3))


def two_jobs(scale: int, limit: float) -> Shares:
    """2 V100, 2 K80; A (80, 10) and B (70, 50) per GPU."""
    rate = np.array([[80.0, 10], [70, 50]]) * scale
    return Shares(rate, np.full(2, float(scale)), np.array([2.0, 2]), np.full(2, limit))


def total(shares: Shares, x: np.ndarray) -> float:
    return float(shares.effective(x).sum())


def test_the_largest_sum_of_the_lectures_assignment_is_185() -> None:
    shares = three_jobs()
    x = max_sum(shares, shares.rate)
    assert x is not None
    assert total(shares, x) == pytest.approx(185, abs=1e-9)


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
    shares = three_jobs()
    assert proportional(shares).tolist() == [32.5, 58.75, 38.75]
    best = max_min(shares, proportional(shares))
    assert best.level == pytest.approx(90 / 79, abs=1e-9)
    assert round(best.level, 5) == 1.13924
    assert shares.effective(best.x) == pytest.approx([37.025, 66.930, 44.146], abs=1e-3)


@pytest.mark.parametrize(
    ("scale", "limit", "largest", "ratio"),
    [(2, 1.0, 260, 1.0), (1, 1.0, 150, 7 / 6), (1, np.inf, 260, 64 / 53)],
)
def test_three_readings_of_the_fairness_example(
    scale: int, limit: float, largest: float, ratio: float
) -> None:
    shares = two_jobs(scale, limit)
    x = max_sum(shares, shares.rate)
    assert x is not None
    assert total(shares, x) == pytest.approx(largest, abs=1e-9)
    assert max_min(shares, isolated(shares)).level == pytest.approx(ratio, abs=1e-9)


def test_water_filling_raises_the_second_worst_too() -> None:
    """A job that can use one machine only does not hold the others down."""
    shares = Shares(
        np.array([[1.0, 0.0], [1.0, 1.0], [0.0, 1.0]]),
        np.ones(3), np.array([0.5, 4.0]), np.ones(3),
    )  # fmt: skip
    x = water_filling(shares, lambda free: np.ones(3), np.ones(3))
    assert shares.effective(x) == pytest.approx([0.5, 1.0, 1.0], abs=NEED)


def test_the_least_largest_ratio() -> None:
    """One machine, works 1 and 3: both done by 4."""
    shares = Shares(np.ones((2, 1)), np.ones(2), np.ones(1), np.ones(2))
    work = np.array([1.0, 3.0])
    level, need = least_largest(
        shares, lambda r: work / r, lambda eff: float((work / eff).max()), np.ones(2)
    )
    assert level == pytest.approx(4.0, abs=1e-6)
    assert need == pytest.approx([0.25, 0.75], abs=1e-6)


def test_an_infeasible_programme_has_no_solution() -> None:
    assert maximise(np.ones(1), np.array([[1.0]]), np.array([-1.0])) is None


def test_an_unbounded_one_is_an_error() -> None:
    with pytest.raises(ArithmeticError):
        maximise(np.ones(1), np.array([[-1.0]]), np.array([1.0]))


def test_gittins_of_sizes_1_or_10() -> None:
    sizes = np.array([1.0, 10.0])
    assert gittins_index(sizes, 0.0) == 0.5
    assert gittins_index(sizes, 1.0) == 1 / 9
    assert gittins_index(sizes, 10.0) == 0.0


def test_gittins_with_one_fixed_step() -> None:
    """D = 2 at age 0: half are done, for (1 + 2) / 2 each."""
    assert gittins_index(np.array([1.0, 10.0]), 0.0, 2.0) == 1 / 3
