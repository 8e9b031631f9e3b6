"""Choices by prices: equal to the plain programme, and never over capacity."""

from __future__ import annotations

import numpy as np
import pytest

from ganger.solve.choice import choose
from ganger.solve.integral import multiple_choice


def test_prices_first_gives_the_same_total_as_the_programme_alone() -> None:
    searched = 0
    for seed in range(80):
        rng = np.random.default_rng(seed)
        groups, options = int(rng.integers(1, 12)), int(rng.integers(1, 6))
        gain = np.round(rng.normal(2.0, 2.0, groups * options), 3)
        take = rng.integers(0, 5, (groups * options, 2)).astype(float)
        group = np.arange(groups * options) // options
        capacity = rng.integers(0, 12, 2).astype(float)
        found = choose(gain, group, take, capacity)
        best = multiple_choice(gain, group, take, capacity)
        assert found.value == pytest.approx(best.value, abs=1e-6)
        assert found.value == pytest.approx(gain[found.taken].sum())
        assert (take[found.taken].sum(axis=0) <= capacity).all()
        assert np.bincount(group[found.taken], minlength=1).max(initial=0) <= 1
        assert found.bound >= found.value - 1e-9
        searched += found.value < gain[gain > 0].sum() and found.nodes > 0
    assert searched > 5, "some of them are not decided by prices alone"


def test_no_options_is_no_choice() -> None:
    found = choose(np.zeros(0), np.zeros(0, np.int64), np.zeros((0, 2)), np.ones(2))
    assert not len(found.taken)
    assert found.value == 0
