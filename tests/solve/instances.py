"""Random and nasty instances, and the programmes as one would write them down, for comparison."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.optimize import linprog

from ganger.solve.division.pairs import Pairs
from ganger.solve.division.programme import Shares, shares

Floats = NDArray[np.float64]
NEED = 1e-6


def rates(rng: np.random.Generator, n: int, m: int) -> Floats:
    """Smooth, coarse with ties and zeros, far apart, or in equal rows."""
    kind = rng.integers(4)
    if kind == 0:
        rate = rng.lognormal(0, 1, (n, m))
    elif kind == 1:
        rate = rng.integers(0, 4, (n, m)).astype(float)
    elif kind == 2:
        rate = 10.0 ** rng.uniform(-5, 5, (n, m))
    else:
        rate = rng.integers(1, 3, (1, m)) * rng.choice([1.0, 10.0], (n, 1))
    rate[rate.max(axis=1) == 0] = 1.0
    return rate


def instance(seed: int, most: int = 120) -> tuple[Shares, Floats]:
    """Shares and weights: gangs wider than a type's count, one type, more GPUs than jobs, ..."""
    rng = np.random.default_rng(seed)
    n, m = int(rng.integers(1, most)), int(rng.integers(1, 6))
    scale = rng.choice([1.0, 2, 4, 8], n)
    scarce = np.maximum(np.round(rng.uniform(0.2, 1.5, m) * scale.sum() / m), 1)
    capacity = scarce if seed % 3 else rng.choice([1.0, 2, 4, 100, 1000], m)
    weight = rng.choice([1.0, 2, 5], n) if seed % 2 else 10.0 ** rng.uniform(-4, 4, n)
    return shares(rates(rng, n, m), scale, capacity), weight


def rows_of(posed: Shares) -> tuple[Any, Floats, Any]:
    """Capacity and time rows, their limits, and throughput as a matrix."""
    n, m = posed.rate.shape
    every = np.arange(n * m)
    capacity = sparse.csr_array(
        (np.repeat(posed.scale, m), (np.tile(posed.kind, n), every)),
        shape=(len(posed.capacity), n * m),
    )
    time = sparse.kron(sparse.eye_array(n), np.ones((1, m)))
    eff = sparse.csr_array(
        (posed.rate.ravel(), (np.repeat(np.arange(n), m), every)), shape=(n, n * m)
    )
    rows = sparse.csr_array(sparse.vstack([capacity, time]))
    return rows, np.concatenate([posed.capacity, posed.limit]), eff


def solve(gain: Floats, rows: Any, limits: Floats) -> float:
    """The largest gain @ x by HiGHS through scipy."""
    result = linprog(-gain, rows, limits, method="highs")
    assert result.status == 0, result.message
    return -float(result.fun or 0.0)


def largest_level(rows: Any, limits: Floats, eff: Any, pace: Floats, floor: Floats) -> float:
    """max t: eff >= floor + pace t."""
    above = sparse.hstack([rows, sparse.csr_array((rows.shape[0], 1))])
    unit = 1 / np.maximum(abs(eff).max(axis=1).toarray().ravel(), 1e-300)
    scale = sparse.diags_array(unit)
    demand = sparse.hstack([-(scale @ eff), sparse.csr_array((pace * unit)[:, None])])
    gain = np.zeros(rows.shape[1] + 1)
    gain[-1] = 1.0
    every = sparse.csr_array(sparse.vstack([above, demand]))
    return solve(gain, every, np.concatenate([limits, -floor * unit]))


def water_levels(
    rows: Any,
    limits: Floats,
    eff: Any,
    unit: Floats,
    pace_of: Callable[[NDArray[np.bool_]], Floats],
) -> Floats:
    """Water-filling by its definition: raise all, then ask of each whether it could have more."""
    level, open_ = np.zeros(len(unit)), np.ones(len(unit), bool)
    for _ in range(2 * len(unit)):
        pace = np.where(open_, pace_of(open_), 0.0) * unit
        if not (pace > 0).any():
            break
        level = level + pace * largest_level(rows, limits, eff, pace, level * (1 - 1e-10))
        for i in np.flatnonzero(pace > 0).tolist():
            one = np.zeros(len(unit))
            one[i] = max(level[i], 1e-9)
            more = largest_level(rows, limits, eff, one, level * (1 - 1e-9))
            if 1e-6 < more < 1e-4:  # or that is what the others give back: less, then
                more = largest_level(rows, limits, eff, one, level * (1 - 1e-10))
            open_[i] = more > 1e-6
    return level


def pair_rows(posed: Pairs) -> tuple[Any, Floats, Any]:
    """As `rows_of`, with a block of columns for each pair."""
    n, m = posed.alone.rate.shape
    p, k = len(posed.first), len(posed.alone.capacity)
    capacity, time = np.zeros((k, (n + p) * m)), np.zeros((n, (n + p) * m))
    eff = np.zeros((n, (n + p) * m))
    members = [(i, [(i, posed.alone.rate[i])], posed.alone.scale[i]) for i in range(n)]
    for q in range(p):
        both = [(posed.first[q], posed.rate_first[q]), (posed.second[q], posed.rate_second[q])]
        members.append((n + q, both, posed.scale[q]))
    for block, who, scale in members:
        for c in range(m):
            capacity[posed.alone.kind[c], block * m + c] = scale
            for i, rate in who:
                time[i, block * m + c] += 1
                eff[i, block * m + c] += rate[c]
    rows = sparse.csr_array(np.vstack([capacity, time]))
    return rows, np.concatenate([posed.alone.capacity, np.ones(n)]), sparse.csr_array(eff)


def pairs(seed: int) -> tuple[Pairs, Floats]:
    """Jobs of few types that may share with most others, and their weights."""
    rng = np.random.default_rng(seed)
    types, n, m = int(rng.integers(1, 4)), int(rng.integers(2, 12)), int(rng.integers(1, 4))
    kind = rng.integers(0, types, n)
    scale = rng.choice([1.0, 2], types)[kind]
    rate = rng.integers(1, 9, (types, m)).astype(float)[kind]
    slower = rng.uniform(0.3, 1, (types, types, m, 2))
    chosen = [
        (a, b)
        for a in range(n)
        for b in range(a + 1, n)
        if scale[a] == scale[b] and rng.random() < 0.9
    ]
    first, second = np.array(chosen, np.int64).reshape(-1, 2).T
    part = np.array(
        [
            slower[kind[a], kind[b]] if kind[a] <= kind[b] else slower[kind[b], kind[a]][:, ::-1]
            for a, b in chosen
        ]
    ).reshape(-1, m, 2)
    alone = shares(rate, scale, rng.choice([1.0, 2, 5], m))
    posed = Pairs(
        alone, first, second, rate[first] * part[..., 0], rate[second] * part[..., 1], np.ones(n)
    )
    return posed, rng.choice([1.0, 2], n)


def violation(posed: Shares, x: Floats) -> float:
    """The largest breach of a constraint of a programme, relative to its right-hand side."""
    over = posed.used(x) - posed.capacity
    late = x.sum(axis=1) - posed.limit
    return float(
        max(
            -x.min(initial=0.0),
            (over / np.maximum(posed.capacity, 1.0)).max(initial=0.0),
            (late / posed.limit).max(initial=0.0),
            0.0,
        )
    )
