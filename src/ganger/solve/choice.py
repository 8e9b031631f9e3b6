"""One option of each group, with prices first: most options fall to them, and few are searched.

The linear relaxation of `integral.multiple_choice` prices the resources. An option whose gain at
those prices is below its group's best by more than the relaxation is above a known choice is in no
better choice (reduced-cost fixing). What remains is usually a handful of options.
"""

from __future__ import annotations

import numpy as np
from scipy import sparse

from ganger.solve.highs import maximise, model
from ganger.solve.integral import GAP, NODES, Chosen, multiple_choice
from ganger.solve.programme import Floats, Ints, Mask, dot

_WHOLE = 1.0 - 1e-7


def choose(
    gain: Floats, group: Ints, take: Floats, capacity: Floats, *, nodes: int = NODES,
    gap: float = GAP,
) -> Chosen:  # fmt: skip
    """At most one option of each group, of the largest total gain, within `capacity`; the same
    as `multiple_choice`, sooner where groups are many and resources few."""
    groups, row = np.unique(group, return_inverse=True)
    n, options = len(groups), len(gain)
    able = np.flatnonzero((gain > 0) & (take <= capacity).all(axis=1))
    if not len(able):
        return Chosen(np.zeros(options, np.bool_), 0.0, 0.0, 0)
    useful, row, takes = gain[able], row[able], take[able]
    one = sparse.csr_array((np.ones(len(able)), (row, np.arange(len(able)))), shape=(n, len(able)))
    rows = sparse.csr_array(sparse.vstack([sparse.csr_array(takes.T), one]))
    relaxed = maximise(model(useful, rows, np.concatenate([capacity, np.ones(n)])))
    prices = np.maximum(relaxed.duals[: len(capacity)], 0.0)
    reduced = useful - np.einsum("or,r->o", takes, prices)
    best = np.zeros(n)
    np.maximum.at(best, row, reduced)
    bound = dot(prices, capacity) + float(best.sum())
    start = _rounded(relaxed.x > _WHOLE, reduced, row, takes, capacity)
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


def _rounded(whole: Mask, reduced: Floats, row: Ints, take: Floats, capacity: Floats) -> Mask:
    """What the relaxation takes whole, then the best at its prices that still fits."""
    taken, done = np.zeros(len(row), np.bool_), set[int]()
    left = capacity.copy()
    for option in np.lexsort((-reduced, ~whole)).tolist():
        if int(row[option]) not in done and (take[option] <= left + 1e-9).all():
            taken[option] = True
            left -= take[option]
            done.add(int(row[option]))
    return taken
