"""One option of each group, with prices first: most options fall to them, and few are searched.

The dual of the linear relaxation of `integral.multiple_choice` prices the resources: a convex
function of as many prices as there are resources, found by cutting planes, each of which takes one
look at all options. An option whose gain at
those prices is below its group's best by more than the relaxation is above a known choice is in no
better choice (reduced-cost fixing). What remains is usually a handful of options.
"""

from __future__ import annotations

import numpy as np
from scipy import sparse

from ganger.solve.highs import maximise, model
from ganger.solve.integral import GAP, NODES, Chosen, multiple_choice
from ganger.solve.programme import Floats, Ints, Mask, dot

CUTS, NEAR = 60, 1e-6
"""Cutting planes at most, and how near the least of the dual they end, as a part of it."""


def choose(
    gain: Floats, group: Ints, take: Floats, capacity: Floats, *, nodes: int = NODES,
    gap: float = GAP,
) -> Chosen:  # fmt: skip
    """At most one option of each group, of the largest total gain, within `capacity`; the same
    as `multiple_choice`, sooner where groups are many and resources few."""
    options = len(gain)
    able = np.flatnonzero((gain > 0) & (take <= capacity).all(axis=1))
    if not len(able):
        return Chosen(np.zeros(options, np.bool_), 0.0, 0.0, 0)
    groups, row = np.unique(group[able], return_inverse=True)
    n, useful, takes = len(groups), gain[able], take[able]
    first = _first_best(useful, row, n)
    if (takes[first].sum(axis=0) <= capacity).all():  # all have what they like best
        taken = np.zeros(options, np.bool_)
        taken[able[first]] = True
        value = float(gain[taken].sum())
        return Chosen(taken, value, value, 0)
    prices = _prices(useful, row, n, takes, capacity)
    reduced = useful - np.einsum("or,r->o", takes, prices)
    best = np.zeros(n)
    np.maximum.at(best, row, reduced)
    bound = dot(prices, capacity) + float(best.sum())
    start = _bettered(_rounded(reduced, best, row, takes, capacity), useful, row, takes, capacity)
    value = float(useful[start].sum())
    if bound - value > gap * abs(bound):
        left = np.flatnonzero(reduced >= best[row] - (bound - value) - 1e-9 * abs(bound))
        found = multiple_choice(
            useful[left], row[left], takes[left], capacity, nodes=nodes, gap=gap
        )
        if found.value > value:
            start = np.zeros(len(able), np.bool_)
            start[left[found.taken]] = True
            value = found.value
        bound, nodes = max(min(bound, found.bound), value), found.nodes
    else:
        nodes = 0
    taken = np.zeros(options, np.bool_)
    taken[able[start]] = True
    return Chosen(taken, value, max(bound, value), nodes)


def _first_best(gain: Floats, row: Ints, groups: int) -> Ints:
    """Each group's option of the largest gain, the first of equal ones."""
    order = np.lexsort((-gain, row))
    first: Ints = order[np.searchsorted(row[order], np.arange(groups))]
    return first


def _prices(gain: Floats, row: Ints, groups: int, take: Floats, capacity: Floats) -> Floats:
    """The resources' prices p >= 0 of least p.capacity + sum over groups of the best gain - p.take,
    which no choice exceeds (Kelley, 1960)."""
    many = len(capacity)
    unit = np.where(capacity > 0, capacity, 1.0)
    parts, order = take / unit, np.argsort(row, kind="stable")
    at = np.searchsorted(row[order], np.arange(groups))
    gains, shares = gain[order], np.ascontiguousarray(parts[order].T)
    have = capacity / unit
    sums = np.add.reduceat(gains, at).sum()
    most = np.full(many, max(float(sums), 1e-12))
    prices, slopes, heights = np.zeros(many), list[Floats](), list[float]()
    best, lowest = prices, np.inf
    for _ in range(CUTS):
        worth = gains - prices @ shares
        peaks = np.maximum.reduceat(worth, at)
        chosen = np.flatnonzero((worth == peaks[row[order]]) & (worth > 0))
        chosen = chosen[np.unique(row[order][chosen], return_index=True)[1]]
        value = dot(prices, have) + float(np.maximum(peaks, 0.0).sum())
        if value < lowest:
            best, lowest = prices, value
        slope = have - shares[:, chosen].sum(axis=1)
        if (np.where(prices > 0, np.abs(slope), -slope) <= 1e-12).all():
            break
        slopes.append(slope)
        heights.append(value - dot(slope, prices))
        # The largest -t such that every plane lies below t.
        rows = np.column_stack([np.array(slopes), np.full(len(slopes), 1.0)])
        found = maximise(model(
            np.append(np.zeros(many), 1.0), sparse.csr_array(rows), -np.array(heights),
            upper=np.append(most, np.inf),
        )._replace(lower=np.append(np.zeros(many), -np.inf)))  # fmt: skip
        if lowest + found.x[-1] <= NEAR * max(abs(lowest), 1e-12):
            break
        prices = found.x[:-1]
    return best / unit


def _rounded(reduced: Floats, best: Floats, row: Ints, take: Floats, capacity: Floats) -> Mask:
    """What is best at its prices, those first that lose most by another, then what still fits."""
    order = np.lexsort((-reduced, row))
    first = np.append(True, np.diff(row[order]) > 0)
    second = np.zeros(len(best))
    rest = order[~first]
    np.maximum.at(second, row[rest], reduced[rest])
    lead = np.where(reduced >= best[row], (best - second)[row], -1.0)
    taken, done = np.zeros(len(row), np.bool_), [False] * len(best)
    left, asks, of = capacity.tolist(), take.tolist(), row.tolist()
    for option in np.lexsort((-reduced, -lead)).tolist():
        if done[of[option]]:
            continue
        needs = asks[option]
        if all(ask <= have + 1e-9 for ask, have in zip(needs, left, strict=True)):
            taken[option] = done[of[option]] = True
            left = [have - ask for ask, have in zip(needs, left, strict=True)]
    return taken


def _bettered(taken: Mask, gain: Floats, row: Ints, take: Floats, capacity: Floats) -> Mask:
    """While a group has an option that gains more and fits in what is left over: the change that
    gains most."""
    groups = int(row.max()) + 1
    has = np.full(groups, -1)
    has[row[taken]] = np.flatnonzero(taken)
    own, held = np.zeros(groups), np.zeros((groups, take.shape[1]))
    own[row[taken]], held[row[taken]] = gain[taken], take[taken]
    left = capacity - held.sum(axis=0)
    while True:
        more = np.where((take - held[row] <= left + 1e-9).all(axis=1), gain - own[row], 0.0)
        option = int(more.argmax())
        if more[option] <= 1e-12:
            break
        at = row[option]
        left += held[at] - take[option]
        has[at], own[at], held[at] = option, gain[option], take[option]
    better = np.zeros(len(row), np.bool_)
    better[has[has >= 0]] = True
    return better
