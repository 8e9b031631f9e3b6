"""Programmes over shares of time: who spends which fraction of the time on which kind of machine.

x[i, j] is the fraction of time that i spends on kind j, using `scale[i]` machines while it does:
x >= 0, sum_i scale_i x_ij <= capacity_j, sum_j x_ij <= limit_i (Gavel, OSDI 2020, section 3).
Effective throughput is eff_i = sum_j rate_ij x_ij.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from ganger.solve.lp import maximise

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]

SLACKS = (0.0, 1e-9, 1e-6)
"""Relative room given to a floor that an earlier programme found, tried in turn, so that rounding
in the solver cannot make it infeasible."""


class Shares(NamedTuple):
    """The constraints. `rate` is (n, m), 0 where i cannot run; `limit` is 1 for a gang that is in
    one place at a time and infinite for work that can be spread over any mix of machines."""

    rate: Floats
    scale: Floats
    capacity: Floats
    limit: Floats

    def rows(self) -> sparse.csr_array:
        """Capacity and time, over the n x m variables in row-major order."""
        n, m = self.rate.shape
        parts: list[Any] = [sparse.kron(self.scale[None, :], sparse.eye_array(m))]
        bounded = np.flatnonzero(np.isfinite(self.limit))
        once = sparse.csr_array(sparse.kron(sparse.eye_array(n), np.ones((1, m))))
        if len(bounded):
            parts.append(once[bounded])
        return sparse.csr_array(sparse.vstack(parts))

    def limits(self) -> Floats:
        """The right-hand side of `rows`."""
        return np.concatenate([self.capacity, self.limit[np.isfinite(self.limit)]])

    def throughput(self) -> sparse.csr_array:
        """The (n, n x m) matrix that turns x into eff."""
        n, m = self.rate.shape
        at = np.repeat(np.arange(n), m)
        return sparse.csr_array((self.rate.ravel(), (at, np.arange(n * m))), shape=(n, n * m))

    def effective(self, x: Floats) -> Floats:
        """eff of an (n, m) solution."""
        total: Floats = (self.rate * x).sum(axis=1)
        return total


def proportional(shares: Shares) -> Floats:
    """Throughput of equal time on every machine: sum_j rate_ij N_j / sum_j N_j."""
    even: Floats = shares.rate @ shares.capacity / shares.capacity.sum()
    return even


def isolated(shares: Shares) -> Floats:
    """Throughput with 1/n of the cluster for oneself: x_ij = N_j / (n scale_i), cut to `limit`."""
    x = shares.capacity[None, :] / (len(shares.scale) * shares.scale[:, None])
    cut = np.minimum(1.0, shares.limit / np.maximum(x.sum(axis=1), 1e-300))
    return shares.effective(x * cut[:, None])


def max_sum(shares: Shares, gain: Floats, floor: Floats | None = None) -> Floats | None:
    """The x with the largest sum of gain_ij x_ij where eff_i >= floor_i; None if there is none."""
    rows, limits = shares.rows(), shares.limits()
    if floor is not None:
        rows = sparse.csr_array(sparse.vstack([rows, -shares.throughput()]))
        limits = np.concatenate([limits, -floor])
    found = maximise(gain.ravel(), rows, limits, upper=_upper(shares))
    return None if found is None else found.x.reshape(shares.rate.shape)


def _upper(shares: Shares) -> Floats:
    """No time where nothing can be done, so that solutions hold no idle shares."""
    able = np.where(shares.rate > 0, np.inf, 0.0)
    return able.ravel()


class Level(NamedTuple):
    """How far the smallest could be raised. `tight`: what each i's own row is worth; where it is
    positive, i is a bottleneck: no solution gives it more without giving somebody less."""

    x: Floats
    level: float
    tight: Floats


def max_min(shares: Shares, pace: Floats, floor: Floats | None = None) -> Level:
    """Raise eff_i = floor_i + pace_i t together, to the largest t."""
    floor = np.zeros(len(pace)) if floor is None else floor
    rows, limits = shares.rows(), shares.limits()
    eff = sparse.csr_array(sparse.hstack([-shares.throughput(), sparse.csr_array(pace[:, None])]))
    above = sparse.hstack([rows, sparse.csr_array((rows.shape[0], 1))])
    gain = np.zeros(shares.rate.size + 1)
    gain[-1] = 1.0
    every = sparse.csr_array(sparse.vstack([above, eff]))
    upper = np.append(_upper(shares), np.inf)
    for slack in SLACKS:
        found = maximise(gain, every, np.concatenate([limits, -floor * (1 - slack)]), upper)
        if found is not None:
            x = found.x[:-1].reshape(shares.rate.shape)
            return Level(x, found.value, found.duals[rows.shape[0] :])
    raise ArithmeticError("the floor of a max-min programme cannot be reached")


def efficient(shares: Shares, floor: Floats, gain: Floats) -> Floats:
    """Of all x with eff >= floor, one with the largest total gain."""
    for slack in SLACKS:
        x = max_sum(shares, gain, floor * (1 - slack))
        if x is not None:
            return x
    raise ArithmeticError("a floor that was reached before cannot be reached any more")


def water_filling(shares: Shares, pace_of: Callable[[Mask], Floats], unit: Floats) -> Floats:
    """Lexicographic max-min: raise all, freeze the bottlenecks, raise the others, and so on.

    `pace_of(open)` tells how fast each still open i rises (0: not yet), as a multiple of its
    `unit`; the bottlenecks are read off the duals, so that no integer programme is needed.
    Ends after at most n rounds, for each freezes somebody.
    """
    n = len(unit)
    level, free = np.zeros(n), np.ones(n, np.bool_)
    while free.any():
        pace = np.where(free, pace_of(free), 0.0) * unit
        if not (pace > 0).any():
            break
        found = max_min(shares, pace, level)
        level = level + pace * found.level
        frozen = (found.tight * pace > 1e-9) & (pace > 0)
        if not frozen.any():
            frozen = pace > 0
        free &= ~frozen
    gain = np.where(unit[:, None] > 0, shares.rate / np.maximum(unit, 1e-300)[:, None], 0.0)
    return efficient(shares, level, gain)


def least_largest(
    shares: Shares,
    need: Callable[[float], Floats],
    ratio: Callable[[Floats], float],
    start: Floats,
    steps: int = 20,
) -> tuple[float, Floats]:
    """The smallest r for which eff_i >= need_i(r) can be had, and the needs there.

    `ratio(eff)` is the r that eff reaches; `need` is its inverse and falls in r. From what
    raising `start` together reaches, every programme raises the needs of the best r so far as
    far as they go, which reaches a better one; `steps` programmes at most.
    """
    best = ratio(shares.effective(max_min(shares, start).x))
    for _ in range(steps):
        reached = ratio(shares.effective(max_min(shares, need(best)).x))
        if reached >= best * (1 - 1e-6):
            break
        best = reached
    return best, need(best)
