"""What is divided, under which constraints, and how an answer is certified.

x[i, c] is the fraction of time that i spends in column c (a kind of machine, or a placement on
it), using `scale[i]` machines of kind `kind[c]` while it does: x >= 0, sum_c x_ic <= limit_i, and
the machines of a kind that are in use never exceed `capacity` (Gavel, OSDI 2020, section 3).
Effective throughput is eff_i = sum_c rate_ic x_ic.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]

TINY = 1e-300


def dot(a: Floats, b: Floats) -> float:
    """The sum of products, in an order that does not depend on the number of threads."""
    return float(np.einsum("i,i->", a, b))


class Shares(NamedTuple):
    """The constraints. `rate` is (n, m), 0 where i cannot run; `limit` is 1 for a gang that is in
    one place at a time and infinite for work that can be spread over any mix of machines."""

    rate: Floats
    scale: Floats
    capacity: Floats
    limit: Floats
    kind: Ints

    def part(self, at: Ints) -> Shares:
        """The same for some jobs only."""
        return self._replace(rate=self.rate[at], scale=self.scale[at], limit=self.limit[at])

    def effective(self, x: Floats) -> Floats:
        """eff of an (n, m) solution."""
        total: Floats = np.einsum("ic,ic->i", self.rate, x)
        return total

    def used(self, x: Floats) -> Floats:
        """Machines of every kind that `x` takes."""
        by_column = np.einsum("i,ic->c", self.scale, x)
        return np.bincount(self.kind, by_column, len(self.capacity)).astype(np.float64)

    def fastest(self, free: Mask | None = None) -> Floats:
        """The most that each could do with all machines (of the `free` kinds) to itself."""
        most: Floats = np.zeros(len(self.scale))
        rate = self.rate if free is None else self.rate[:, free[self.kind]]
        able = rate.max(axis=1, initial=0.0)
        np.multiply(able, self.limit, out=most, where=able > 0)
        return most


def shares(
    rate: Floats,
    scale: Floats,
    capacity: Floats,
    limit: Floats | float = 1.0,
    kind: Ints | None = None,
) -> Shares:
    """The constraints with one column per kind of machine, unless `kind` says otherwise."""
    return Shares(
        np.ascontiguousarray(rate, np.float64),
        np.asarray(scale, np.float64),
        np.asarray(capacity, np.float64),
        np.full(len(rate), limit, np.float64),
        np.arange(rate.shape[1]) if kind is None else np.asarray(kind, np.int64),
    )


class Answer(NamedTuple):
    """A feasible division, and a proof of how good it is.

    `value` is the objective at `x` and `bound` what it could be at most (at least, where it is
    minimised); `prices` is what one more machine of a kind is worth, `worth` what one more unit
    of throughput asked of i costs; `steps` counts the programmes solved on the way.
    """

    x: Floats
    value: float
    bound: float
    prices: Floats
    worth: Floats
    steps: int = 1

    @property
    def gap(self) -> float:
        """How far the value may be from the best, relative to the larger of the two."""
        largest = max(abs(self.value), abs(self.bound))
        return 0.0 if self.value == self.bound else abs(self.bound - self.value) / largest


def proportional(posed: Shares) -> Floats:
    """Throughput of equal time on every machine: sum_j rate_ij N_j / sum_j N_j; of several
    columns of one kind the fastest counts."""
    by_kind = np.zeros((len(posed.scale), len(posed.capacity)))
    for column, kind in enumerate(posed.kind.tolist()):
        np.maximum(by_kind[:, kind], posed.rate[:, column], out=by_kind[:, kind])
    even: Floats = by_kind @ posed.capacity / posed.capacity.sum()
    return even


def isolated_shares(posed: Shares) -> Floats:
    """1/n of the cluster for each: x_ij = N_j / (n scale_i), cut to `limit`; of several columns of
    one kind in the fastest."""
    n = len(posed.scale)
    part = posed.capacity[posed.kind] / (n * posed.scale[:, None])
    for kind in range(len(posed.capacity)):
        columns = np.flatnonzero(posed.kind == kind)
        if len(columns) > 1:
            best = columns[posed.rate[:, columns].argmax(axis=1)]
            part[:, columns] *= columns[None, :] == best[:, None]
    cut = np.minimum(1.0, posed.limit / np.maximum(part.sum(axis=1), TINY))
    x: Floats = part * cut[:, None]
    return x


def isolated(posed: Shares) -> Floats:
    """Throughput with 1/n of the cluster for oneself."""
    return posed.effective(isolated_shares(posed))


def fitted(posed: Shares, x: Floats, floor: Floats) -> Floats:
    """`x` without the breaches that rounding leaves: nothing negative, nobody over `limit`, no
    kind over its capacity, and nobody below a `floor` that is within reach."""
    x = np.maximum(x, 0.0)
    short = np.flatnonzero(posed.effective(x) < floor)
    if len(short):
        best = posed.rate[short].argmax(axis=1)
        rate = posed.rate[short, best]
        late = floor[short] - posed.effective(x)[short]
        x[short, best] += np.where(rate > 0, late / np.maximum(rate, TINY), 0.0)
    x *= np.minimum(1.0, posed.limit / np.maximum(x.sum(axis=1), TINY))[:, None]
    used = posed.used(x)
    cut = np.where(used > posed.capacity, posed.capacity / np.maximum(used, TINY), 1.0)
    if (cut < 1).any():
        x *= cut[posed.kind]
    return x
