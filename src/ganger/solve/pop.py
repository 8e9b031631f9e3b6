"""Partitioned optimisation (POP, SOSP 2021): many small programmes instead of a large one.

Jobs are dealt into parts with 1/k of every kind of machine each; the answers side by side are
feasible, and somewhat worse than the best. Here for comparison: the exact answer is cheap.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum

import numpy as np

from ganger.solve.division.programme import Answer, Floats, Ints, Shares


class Deal(Enum):
    """How jobs come to parts."""

    RANDOM = "random"
    STRATIFIED = "stratified"
    """Like jobs (by the type that suits them best, and size) go round all parts."""
    REPLICATED = "replicated"
    """Stratified, and gangs of more than a part's machines of some kind are in every part with
    1/k of their time."""


def partitioned(
    posed: Shares,
    parts: int,
    solve: Callable[[Shares, Ints, Floats], Answer],
    deal: Deal = Deal.STRATIFIED,
    seed: int = 0,
) -> Floats:
    """The (n, m) shares of `parts` programmes side by side.

    `solve(part, rows, fraction)` divides a part, whose jobs are `rows` of `posed`, `fraction` of
    each; there may be fewer parts than asked for, but not fewer jobs than parts.
    """
    n = len(posed.scale)
    k = max(1, min(parts, n))
    large = np.zeros(n, np.bool_)
    if deal is Deal.REPLICATED:
        wide = np.where(posed.rate > 0, posed.capacity[posed.kind] / k, np.inf)
        large = posed.scale > wide.min(axis=1)
    order = np.random.default_rng(seed).permutation(n)
    if deal is not Deal.RANDOM:
        order = order[np.lexsort((posed.scale[order], posed.rate[order].argmax(axis=1)))]
    order = order[~large[order]]
    x = np.zeros(posed.rate.shape)
    for part in range(k):
        rows = np.sort(np.concatenate([order[part::k], np.flatnonzero(large)]))
        if not len(rows):
            continue
        fraction = np.where(large[rows], 1.0 / k, 1.0)
        some = posed._replace(
            rate=posed.rate[rows],
            scale=posed.scale[rows],
            capacity=posed.capacity / k,
            limit=posed.limit[rows] * fraction,
        )
        x[rows] += solve(some, rows, fraction).x
    return x
