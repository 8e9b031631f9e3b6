"""Boosted trees: they find steps and products, and one example is as good as many."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest

from ganger.solve.boost import Trees, boost, forest


def test_one_tree_finds_a_step() -> None:
    x = np.arange(100.0)[:, None]
    y = np.where(x[:, 0] < 30, 1.0, 5.0)
    trees = boost(x, y, rounds=40, depth=1, rate=0.5, bins=100)
    assert trees.at([10.0]) == pytest.approx(1, abs=0.05)
    assert trees.at([29.0]) == pytest.approx(1, abs=0.05)
    assert trees.at([30.0]) == pytest.approx(5, abs=0.05)


def test_depth_finds_what_no_sum_of_steps_can() -> None:
    rng = np.random.default_rng(1)
    x = rng.normal(size=(3000, 3))
    y = np.sign(x[:, 0] * x[:, 1])
    errors = {}
    for depth in (1, 3):
        trees = boost(x, y, depth=depth)
        errors[depth] = np.mean(
            [(trees.at(row) - want) ** 2 for row, want in zip(x.tolist(), y.tolist(), strict=True)]
        )
    assert errors[1] > 0.9
    assert errors[3] < 0.2


def test_constant_features_and_single_examples_are_no_trouble() -> None:
    trees = boost(np.ones((1, 2)), np.array([3.0]))
    assert trees.at([7.0, 7.0]) == pytest.approx(3)
    same = boost(np.ones((50, 1)), np.arange(50.0))
    assert same.at([1.0]) == pytest.approx(24.5)


def test_trees_are_plain_data() -> None:
    trees = boost(np.arange(20.0)[:, None], np.arange(20.0))
    again = msgspec.json.decode(msgspec.json.encode(trees), type=Trees)
    assert [again.at([v]) for v in (0.0, 9.5)] == [trees.at([v]) for v in (0.0, 9.5)]


def test_a_forest_is_the_mean_of_trees_and_knows_what_it_was_fitted_to() -> None:
    """A table of four values, seen often: each tree tells all four, and so does the mean."""
    x = np.array([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]] * 50)
    y = np.array([1.0, 2.0, 4.0, 8.0] * 50)
    for many in (1, 7):
        trees = forest(x, y, many=many, depth=2)
        assert len(trees.leaves) == many
        assert [trees.at(row) for row in x[:4].tolist()] == pytest.approx([1.0, 2.0, 4.0, 8.0])


def test_the_trees_of_a_forest_are_fitted_to_samples_of_their_own_by_its_seed() -> None:
    x = np.arange(20.0).reshape(-1, 1)
    y = (x[:, 0] * 7) % 5
    one, same, other = (forest(x, y, many=3, depth=3, seed=seed) for seed in (0, 0, 1))
    assert one == same != other
    assert one.leaves[0] != one.leaves[1]
    flat = forest(x, np.full(20, 3.0), many=2, depth=3)
    assert flat.at([11.0]) == 3.0
