"""Choices by prices: equal to the plain programme, and never over capacity."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from ganger.solve.choice import _prices, choose
from ganger.solve.integral import multiple_choice


def test_prices_first_gives_the_same_total_as_the_programme_alone() -> None:
    searched = 0
    for seed in range(80):
        rng = np.random.default_rng(seed)
        groups, options = int(rng.integers(1, 12)), int(rng.integers(1, 6))
        gain = np.round(rng.normal(2.0, 2.0, groups * options), 3)
        take = rng.integers(0, 5, (groups * options, 2)).astype(float)
        take += seed % 2 * rng.uniform(0.0, 0.5, take.shape)  # not in whole units
        group = np.arange(groups * options) // options
        capacity = rng.integers(0, 12, 2).astype(float)
        found = choose(gain, group, take, capacity)
        best = multiple_choice(gain, group, take, capacity)
        assert found.value == pytest.approx(best.value, abs=1e-6)
        assert found.value == pytest.approx(gain[found.taken].sum())
        assert (take[found.taken].sum(axis=0) <= capacity + seed % 2 * 1e-9).all()
        assert np.bincount(group[found.taken], minlength=1).max(initial=0) <= 1
        assert found.bound >= found.value - 1e-9
        searched += found.value < gain[gain > 0].sum() and found.nodes > 0
    assert searched > 5, "some of them are not decided by prices alone"


def test_no_options_is_no_choice() -> None:
    found = choose(np.zeros(0), np.zeros(0, np.int64), np.zeros((0, 2)), np.ones(2))
    assert not len(found.taken)
    assert found.value == 0


@pytest.mark.parametrize("gap", [1e-9, 1e-3])
def test_two_scarce_resources_are_chosen_for_within_the_gap(gap: float) -> None:
    """60 jobs on 1 to 8 GPUs of two types, of which there are too few."""
    for seed in range(10):
        rng = np.random.default_rng(seed)
        sizes = np.array([1.0, 2.0, 4.0, 8.0])
        speed = np.cumsum(rng.uniform(0.1, 1.0, (60, 4)), axis=1)
        gain = (
            1.1 - np.append(speed, speed * rng.uniform(0.3, 1.2, (60, 1)), axis=1).ravel() ** -0.5
        )
        take = np.tile(np.kron(np.eye(2), sizes[:, None]), (60, 1))
        group, capacity = np.repeat(np.arange(60), 8), rng.integers(40, 120, 2).astype(float)
        found = choose(gain, group, take, capacity, gap=gap)
        best = multiple_choice(gain, group, take, capacity, gap=1e-9)
        assert found.value >= best.value - gap * abs(best.value) - 1e-7
        assert found.bound >= best.value - 1e-7
        assert found.value == pytest.approx(gain[found.taken].sum())
        assert (take[found.taken].sum(axis=0) <= capacity).all()
        assert np.bincount(group[found.taken]).max() <= 1


def test_where_one_resource_is_scarce_nothing_is_searched() -> None:
    """Dynamic programming over its amount finds what the programme finds."""
    for seed in range(40):
        rng = np.random.default_rng(seed)
        groups = 60
        sizes = np.array([1, 2, 4, 8])
        speed = np.cumsum(rng.uniform(0.1, 1.0, (groups, 4)), axis=1)
        gain = np.append((1.1 - speed**-0.5).clip(0.01), np.full((groups, 1), 0.05), axis=1).ravel()
        take = np.zeros((groups * 5, 2))
        take.reshape(groups, 5, 2)[:, :4, 0] = sizes
        take.reshape(groups, 5, 2)[:, 4, 1] = 1.0
        group = np.repeat(np.arange(groups), 5)
        capacity = np.array([float(rng.integers(groups // 2, groups * 4)), float(groups)])
        found = choose(gain, group, take, capacity, gap=1e-9)
        best = multiple_choice(gain, group, take, capacity, gap=1e-9)
        assert found.nodes == 0
        assert found.value == pytest.approx(best.value, abs=1e-7)
        assert found.bound >= best.value - 1e-7
        assert (take[found.taken].sum(axis=0) <= capacity).all()


def test_prices_by_planes_are_where_the_dual_is_least() -> None:
    """With several resources scarce: no other prices give a lower bound."""
    rng = np.random.default_rng(1)
    gain, take = rng.uniform(0.5, 2.0, 120), rng.integers(1, 6, (120, 3)).astype(float)
    row, capacity = np.repeat(np.arange(30), 4), np.array([20.0, 25.0, 30.0])

    def bound(prices: NDArray[np.float64]) -> float:
        reduced = gain - take @ prices
        return float(
            prices @ capacity + np.maximum.reduceat(reduced, np.arange(0, 120, 4)).clip(0).sum()
        )

    prices = _prices(gain, row, 30, take, capacity)
    least = bound(prices)
    assert (prices > 0).sum() > 1
    assert all(bound((prices + rng.normal(0, 0.01, 3)).clip(0)) >= least - 1e-5 for _ in range(500))
