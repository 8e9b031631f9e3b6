"""Knapsacks: who gets in, if each takes so much and is worth so much."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

import numpy as np
from numpy.typing import NDArray


def knapsack(values: Sequence[float], sizes: Sequence[int], capacity: int) -> list[int]:
    """The items (ascending) of the largest total value whose sizes sum to `capacity` at most,
    exactly, by dynamic programming over capacities. Among equals the earlier items."""
    fits = [item for item, value in enumerate(values) if value > 0 and sizes[item] <= capacity]
    if sum(sizes[item] for item in fits) <= capacity:
        return fits
    best = np.zeros(capacity + 1)
    takes = np.zeros((len(values), capacity + 1), np.bool_)
    for item in reversed(fits):
        size = sizes[item]
        there = best[size:]
        with_it = best[: capacity + 1 - size] + values[item]
        np.greater_equal(with_it, there, out=takes[item, size:])
        np.maximum(there, with_it, out=there)
    chosen: list[int] = []
    for item, size in enumerate(sizes):
        if takes[item, capacity]:
            chosen.append(item)
            capacity -= size
    return chosen


def multi_knapsack(
    values: NDArray[np.float64],
    demands: NDArray[np.float64],
    capacity: NDArray[np.float64],
    effort: int = 1,
) -> list[int]:
    """Items (ascending) of nearly the largest total value that fit into several capacities.

    `demands`: items x resources. For every set of up to `effort` items taken first, the linear
    programme over items worth no more than those is solved and its whole items kept, then what
    still fits is added by value (Frieze and Clarke, EJOR 1984).
    """
    n = len(values)
    if (demands[values > 0].sum(axis=0) <= capacity + 1e-9).all():
        return np.flatnonzero(values > 0).tolist()
    best: tuple[float, list[int]] = (0.0, [])
    for size in range(min(effort, n) + 1):
        for first in combinations(range(n), size):
            left = capacity - demands[list(first)].sum(axis=0)
            if (left < -1e-9).any():
                continue
            ceiling = min((values[item] for item in first), default=np.inf)
            rest = [i for i in range(n) if i not in first and values[i] <= ceiling]
            chosen = [*first, *_rounded(values, demands, left, rest)]
            worth = float(values[chosen].sum())
            if worth > best[0] + 1e-12:
                best = worth, sorted(chosen)
    return best[1]


def _rounded(
    values: NDArray[np.float64],
    demands: NDArray[np.float64],
    left: NDArray[np.float64],
    rest: list[int],
) -> list[int]:
    """Of `rest`, those that the programme takes whole, and then whoever still fits."""
    if not rest:
        return []
    from ganger.solve.highs import maximise, model  # slow to import; one capacity needs none of it

    room = np.maximum(left, 0.0)
    whole = maximise(model(values[rest], demands[rest].T, room, upper=np.ones(len(rest)))).x
    order = sorted(range(len(rest)), key=lambda i: (whole[i] < 1 - 1e-9, -values[rest[i]], i))
    chosen: list[int] = []
    for i in order:
        item = rest[i]
        if values[item] > 0 and (demands[item] <= left + 1e-9).all():
            left = left - demands[item]
            chosen.append(item)
    return chosen
