"""Regression trees on histograms of each feature: gradient boosting, a sum of small trees, each
fitted to what the last ones missed (Friedman, Annals of Statistics 2001), and random forests, a
mean of large ones, each fitted to a sample of its own (Breiman, Machine Learning 2001). Pure and
deterministic."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
_NOWHERE = 1.7976931348623157e308
"""A cut that sends everything to the left; an infinity could not be written as JSON."""
_SHRINK = 1.0
"""Examples' worth of zero residual in every leaf: the ridge on leaf values."""
_HARDLY = 1e-9
"""The same in a forest, whose mean shrinks nothing."""


class Trees(msgspec.Struct):
    """A fitted sum of complete trees of one depth, as plain data. Node i of a tree has the children
    2 i + 1 (the feature is below the cut) and 2 i + 2."""

    base: float = 0.0
    features: list[list[int]] = []
    cuts: list[list[float]] = []
    leaves: list[list[float]] = []

    def at(self, x: Sequence[float]) -> float:
        """The prediction for one row of features."""
        total = self.base
        for features, cuts, leaves in zip(self.features, self.cuts, self.leaves, strict=True):
            node = 0
            while node < len(features):
                node = 2 * node + 1 + (x[features[node]] >= cuts[node])
            total += leaves[node - len(features)]
        return total


def boost(
    x: Floats, y: Floats, *, rounds: int = 60, depth: int = 3, rate: float = 0.1, bins: int = 32
) -> Trees:
    """Trees fitted to `y` (n) from the features `x` (n, k), by least squares.

    `rounds` trees of `depth` splits from root to leaf, each counted `rate`-fold; every feature is
    cut at no more than `bins` - 1 of its quantiles.
    """
    edges, codes = _histogram(x, bins)
    trees = Trees(float(y.mean()))
    missed = y - trees.base
    for _ in range(rounds):
        features, cuts, node = _grow(codes, edges, missed, depth, bins, _SHRINK)
        count = np.bincount(node, minlength=1 << depth)
        values = rate * np.bincount(node, missed, minlength=1 << depth) / (count + _SHRINK)
        missed = missed - values[node]
        trees.features.append(features)
        trees.cuts.append(cuts)
        trees.leaves.append(values.tolist())
    return trees


def forest(
    x: Floats, y: Floats, *, many: int = 30, depth: int = 8, bins: int = 32, seed: int = 0
) -> Trees:
    """The mean of `many` trees fitted to `y` (n) from the features `x` (n, k), by least squares.

    Each of `depth` splits from root to leaf is grown on n examples that are drawn with replacement,
    by a generator of that `seed`, so that trees err in different ways. Features as in `boost`.
    """
    edges, codes = _histogram(x, bins)
    trees, draw = Trees(float(y.mean())), np.random.default_rng(seed)
    for _ in range(many):
        drawn = draw.integers(len(y), size=len(y))
        beyond = y[drawn] - trees.base
        features, cuts, node = _grow(codes[:, drawn], edges, beyond, depth, bins, _HARDLY)
        count = np.bincount(node, minlength=1 << depth)
        values = np.bincount(node, beyond, minlength=1 << depth) / np.maximum(count, 1) / many
        trees.features.append(features)
        trees.cuts.append(cuts)
        trees.leaves.append(values.tolist())
    return trees


def _histogram(x: Floats, bins: int) -> tuple[list[Floats], NDArray[np.int64]]:
    """Where each feature may be cut, and between which of its cuts each example lies."""
    edges = [np.unique(np.quantile(column, np.linspace(0, 1, bins + 1)[1:-1])) for column in x.T]
    codes = np.stack(
        [np.searchsorted(edge, column, "right") for edge, column in zip(edges, x.T, strict=True)]
    )
    return edges, codes


def _grow(
    codes: NDArray[np.int64],
    edges: list[Floats],
    missed: Floats,
    depth: int,
    bins: int,
    shrink: float,
) -> tuple[list[int], list[float], NDArray[np.int64]]:
    """One tree: its features and cuts, level by level, and the leaf of every example."""
    features, cuts = list[int](), list[float]()
    node = np.zeros(codes.shape[1], np.int64)
    for level in range(depth):
        nodes = 1 << level
        best, which, where = np.zeros(nodes), np.zeros(nodes, np.int64), np.full(nodes, bins)
        for feature, code in enumerate(codes):
            gain = _gains(node * bins + code, missed, nodes, bins, shrink)
            at = gain.argmax(axis=1)
            better = gain[np.arange(nodes), at] > best + 1e-12
            best[better] = gain[np.arange(nodes), at][better]
            which[better], where[better] = feature, at[better]
        features += which.tolist()
        cuts += [
            float(edges[feature][at]) if at < bins else _NOWHERE
            for feature, at in zip(which.tolist(), where.tolist(), strict=True)
        ]
        node = 2 * node + (codes[which[node], np.arange(len(node))] > where[node])
    return features, cuts, node


def _gains(keys: NDArray[np.int64], missed: Floats, nodes: int, bins: int, shrink: float) -> Floats:
    """Squared error saved by cutting each node (rows) after each bin (columns)."""
    left = np.bincount(keys, missed, minlength=nodes * bins).reshape(nodes, bins).cumsum(axis=1)
    many = np.bincount(keys, minlength=nodes * bins).reshape(nodes, bins).cumsum(axis=1)
    total, count = left[:, -1:], many[:, -1:]
    saved: Floats = (
        left**2 / (many + shrink)
        + (total - left) ** 2 / (count - many + shrink)
        - total**2 / (count + shrink)
    )
    return np.where((many > 0) & (many < count), saved, 0.0)
