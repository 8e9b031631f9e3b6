"""One option of each group, with prices first: most options fall to them, and few are searched.

The dual of the linear relaxation of `integral.multiple_choice` prices the resources: a convex
function of as many prices as there are resources, found by cutting planes, each of which takes one
look at all options. An option whose gain at
those prices is below its group's best by more than the relaxation is above a known choice is in no
better choice (reduced-cost fixing). What remains is usually a handful of options.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ganger.solve.division.programme import Floats, Ints, Mask, dot
from ganger.solve.highs import Growing, model
from ganger.solve.integral import GAP, NODES, Chosen, multiple_choice

CUTS, NEAR = 60, 1e-6
"""Cutting planes at most, and how near the least of the dual they end, as a part of it."""
PAIRED = 200
"""Options of which every two are tried together."""
AMOUNTS = 60_000_000
"""Options times amounts at most by which to choose; beyond, a search takes less."""


def choose(
    gain: Floats,
    group: Ints,
    take: Floats,
    capacity: Floats,
    *,
    nodes: int = NODES,
    gap: float = GAP,
) -> Chosen:
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
    if bound - float(useful[start].sum()) > gap * abs(bound):
        lost = best[row] - reduced
        start = _exchanged(start, useful, row, takes, capacity, lost, bound * (1.0 - gap))
    value = float(useful[start].sum())
    if bound - value > gap * abs(bound):
        left = np.flatnonzero(reduced >= best[row] - (bound - value) - 1e-9 * abs(bound))
        found = _by_amounts(
            useful[left], row[left], takes[left], capacity, best <= bound - value, prices
        ) or multiple_choice(useful[left], row[left], takes[left], capacity, nodes=nodes, gap=gap)
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


class _Dual(NamedTuple):
    """The dual as a function of prices: p.capacity + the sum over groups of the best gain - p.take,
    which no choice exceeds. Options by group, amounts as parts of the capacities: `have`."""

    gains: Floats
    shares: Floats
    first: Ints
    of: Ints
    have: Floats

    def at(self, prices: Floats) -> tuple[float, Floats]:
        """Its height and a slope."""
        worth = self.gains - prices @ self.shares
        peaks = np.maximum.reduceat(worth, self.first)
        chosen = np.flatnonzero(worth == peaks[self.of])
        chosen = chosen[np.append(True, np.diff(self.of[chosen]) > 0)]
        chosen = chosen[peaks > 0]
        slope = self.have - self.shares[:, chosen].sum(axis=1)
        return dot(prices, self.have) + float(np.maximum(peaks, 0.0).sum()), slope


def _prices(gain: Floats, row: Ints, groups: int, take: Floats, capacity: Floats) -> Floats:
    """The resources' prices >= 0 where the dual is least."""
    unit = np.where(capacity > 0, capacity, 1.0)
    order = np.argsort(row, kind="stable")
    of = row[order]
    dual = _Dual(
        gain[order],
        np.ascontiguousarray((take / unit)[order].T),
        np.searchsorted(of, np.arange(groups)),
        of,
        capacity / unit,
    )
    sums = np.add.reduceat(dual.gains, dual.first).sum()
    most = max(float(sums), 1e-12)
    scarce = np.flatnonzero(dual.at(np.zeros(len(unit)))[1] < -1e-12)
    prices = _one_price(dual, int(scarce[0]), most) if len(scarce) == 1 else None
    return (_by_planes(dual, most) if prices is None else prices) / unit


def _one_price(dual: _Dual, resource: int, most: float) -> Floats | None:
    """Prices where all but one resource are free: where the tangents left and right of the least
    meet, again and again. None if the others would then be scarce."""
    prices = np.zeros(len(dual.have))
    left, (height, slope) = 0.0, dual.at(prices)
    best, lowest = prices.copy(), height
    ends = [(height - slope[resource] * left, slope)]
    prices[resource] = most
    for _ in range(CUTS):
        height, slope = dual.at(prices)
        if height < lowest:
            best, lowest = prices.copy(), height
        side = float(slope[resource])
        end = height - side * float(prices[resource]), slope
        if abs(side) <= 1e-12:
            ends = [end]
            break
        if len(ends) == 1:
            if side < 0:
                return None
            ends.append(end)
        else:
            ends[int(side > 0)] = end
        (before, falls), (after, rises) = ends
        part = float(rises[resource] / (rises[resource] - falls[resource]))
        if lowest - part * before - (1.0 - part) * after <= NEAR * max(abs(lowest), 1e-12):
            break
        prices[resource] = (before - after) / (rises[resource] - falls[resource])
    slope = ends[0][1] if len(ends) == 1 else part * ends[0][1] + (1.0 - part) * ends[1][1]
    return best if (slope >= -1e-9).all() else None


def _by_planes(dual: _Dual, most: float) -> Floats:
    """Prices by cutting planes (Kelley, 1960), of all resources at once."""
    many = len(dual.have)
    prices, lowest = np.zeros(many), np.inf
    best, planes = prices, None
    for _ in range(CUTS):
        value, slope = dual.at(prices)
        if value < lowest:
            best, lowest = prices, value
        if (np.where(prices > 0, np.abs(slope), -slope) <= 1e-12).all():
            break
        # The largest -t such that every plane lies below t.
        plane, height = np.append(slope, 1.0), dot(slope, prices) - value
        if planes is None:
            planes = Growing(
                model(
                    np.append(np.zeros(many), 1.0),
                    plane[None],
                    np.array([height]),
                    upper=np.append(np.full(many, most), np.inf),
                )._replace(lower=np.append(np.zeros(many), -np.inf))
            )
        else:
            planes.add(plane, height)
        x = planes.maximise().x
        if lowest + x[-1] <= NEAR * max(abs(lowest), 1e-12):
            break
        prices = x[:-1]
    return best


def _rounded(reduced: Floats, best: Floats, row: Ints, take: Floats, capacity: Floats) -> Mask:
    """What is best at its prices, those first that lose most by another, then what still fits."""
    order = np.lexsort((-reduced, row))
    first = np.append(True, np.diff(row[order]) > 0)
    second = np.zeros(len(best))
    rest = order[~first]
    np.maximum.at(second, row[rest], reduced[rest])
    lead = np.where(reduced >= best[row], (best - second)[row], -1.0)
    order = np.lexsort((-reduced, -lead))
    # The best of each come first, one after the other as long as they fit.
    sums = take[order[: len(best)]].cumsum(axis=0)
    fits = (lead[order[: len(best)]] >= 0) & (sums <= capacity + 1e-9).all(axis=1)
    sure = int(np.append(fits, False).argmin())
    taken = np.zeros(len(row), np.bool_)
    done = np.zeros(len(best), np.bool_)
    taken[order[:sure]] = done[row[order[:sure]]] = True
    left = (capacity - sums[sure - 1] if sure else capacity).tolist()
    rest = order[sure:]
    rest = rest[~done[row[rest]]]
    for option, group, needs in zip(
        rest.tolist(), row[rest].tolist(), take[rest].tolist(), strict=True
    ):
        if not done[group] and all(
            ask <= have + 1e-9 for ask, have in zip(needs, left, strict=True)
        ):
            taken[option] = done[group] = True
            left = [have - ask for ask, have in zip(needs, left, strict=True)]
    return taken


def _exchanged(
    taken: Mask,
    gain: Floats,
    row: Ints,
    take: Floats,
    capacity: Floats,
    lost: Floats,
    enough: float,
) -> Mask:
    """While less than `enough` is gained: of two groups' changes at a time, those that together
    gain most and fit. Only options that lose least at the prices are tried, PAIRED of them."""
    groups = int(row.max()) + 1
    has = np.full(groups, -1)
    has[row[taken]] = np.flatnonzero(taken)
    nearest = np.sort(np.argsort(lost, kind="stable")[: groups + PAIRED])
    own, held = np.append(gain, 0.0), np.vstack([take, np.zeros(take.shape[1])])
    while own[has].sum() < enough:
        left = capacity - held[has].sum(axis=0)
        tried = nearest[has[row[nearest]] != nearest][:PAIRED]
        now = has[row[tried]]
        more, asks = gain[tried] - own[now], take[tried] - held[now]
        fits = row[tried][:, None] != row[tried]
        for ask, have in zip(asks.T, left.tolist(), strict=True):
            fits &= ask[:, None] + ask <= have + 1e-9
        both = np.where(fits, more[:, None] + more, 0.0)
        pair = np.unravel_index(int(both.argmax()), both.shape) if len(tried) else (0, 0)
        if not len(tried) or both[pair] <= 1e-12:
            break
        changed = tried[list(pair)]
        has[row[changed]] = changed
    better = np.zeros(len(row), np.bool_)
    better[has[has >= 0]] = True
    return better


def _by_amounts(
    gain: Floats, row: Ints, take: Floats, capacity: Floats, none: Mask, prices: Floats
) -> Chosen | None:
    """The best choice by dynamic programming over the amounts of the resources that have a price,
    if they come in whole units, not too many, and there is room for that choice in the others; else
    None. `none`: which groups may go without."""
    priced = np.flatnonzero(prices > 0)
    if not len(priced) or (take[:, priced] != np.rint(take[:, priced])).any():
        return None
    # Options by group, and one of nothing for those that may go without.
    groups, of = np.unique(row, return_inverse=True)
    empty = np.flatnonzero(none[groups])
    of = np.append(of, empty)
    order = np.argsort(of, kind="stable")
    real = order < len(gain)
    gains = np.append(gain, np.zeros(len(empty)))[order]
    asks = np.zeros((len(order), len(priced)), np.int64)
    asks[real] = take[order[real]][:, priced]
    ends = np.bincount(of).cumsum()
    begins = np.append(0, ends[:-1])
    low = np.minimum.reduceat(asks, begins)
    asks -= np.repeat(low, ends - begins, axis=0)
    left = capacity[priced].astype(np.int64) - low.sum(axis=0)
    if (left < 0).any():
        return None
    unit = np.maximum(np.gcd.reduce(asks), 1)
    asks //= unit
    several = np.flatnonzero(ends - begins > 1)
    # After each stage amounts up to what its groups and those before can take, and there is room.
    widths = np.maximum.reduceat(asks, begins)[several].cumsum(axis=0)
    widths = np.minimum(widths, left // unit) + 1
    if int((widths.prod(axis=1) * (ends - begins)[several]).sum()) > AMOUNTS:
        return None
    worth, took, fits = np.zeros((1,) * len(priced)), list[NDArray[np.int16]](), asks.tolist()
    for group, shape in zip(several.tolist(), widths.tolist(), strict=True):
        better, choice = np.full(shape, -np.inf), np.zeros(shape, np.int16)
        for number, at in enumerate(range(int(begins[group]), int(ends[group]))):
            ask = fits[at]
            ends_at = [min(n, n0 + k) for n, n0, k in zip(shape, worth.shape, ask, strict=True)]
            if all(k < n for k, n in zip(ask, ends_at, strict=True)):
                here = tuple(slice(k, n) for k, n in zip(ask, ends_at, strict=True))
                rest = tuple(slice(0, n - k) for k, n in zip(ask, ends_at, strict=True))
                reached = worth[rest] + gains[at]
                wins = reached > better[here]
                np.copyto(better[here], reached, where=wins)
                np.copyto(choice[here], number, where=wins)
        worth = better
        took.append(choice)
    chosen, amount = begins.copy(), np.array(np.unravel_index(int(worth.argmax()), worth.shape))
    for group, choice in zip(several[::-1].tolist(), took[::-1], strict=True):
        chosen[group] += choice[tuple(amount)]
        amount -= asks[chosen[group]]
    options = order[chosen]
    options = options[options < len(gain)]
    if (take[options].sum(axis=0) > capacity).any():
        return None
    taken = np.zeros(len(gain), np.bool_)
    taken[options] = True
    value = float(gain[taken].sum())
    return Chosen(taken, value, value, 0)


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
