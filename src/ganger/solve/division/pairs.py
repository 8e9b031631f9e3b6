"""Space sharing: two jobs on the same machines, as further columns.

Jobs that the programme cannot tell apart (equal numbers, and as many partners of each like class
with equal pair throughputs) have equal parts in some best solution, so that it is enough to solve
for classes of jobs and classes of pairs: found by colour refinement (Grohe et al., "Dimension
Reduction via Colour Refinement", ESA 2014). The classes of pairs that a solution uses are few:
they are priced at the duals and let in as they pay (column generation).
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from ganger.solve.division.classes import Classes, classes
from ganger.solve.division.prices import Stop
from ganger.solve.division.programme import TINY, Answer, Floats, Ints, Mask, Shares, dot
from ganger.solve.division.shares import GAP, SLACKS, Warm
from ganger.solve.highs import Infeasible, Solution, maximise, model

Words: TypeAlias = NDArray[np.uint64]

ROUNDS = 60
"""How often columns are let in."""


class Pairs(NamedTuple):
    """Jobs, alone as in `alone`, and in pairs: `first` and `second` of pair p run at
    `rate_first[p, c]` and `rate_second[p, c]` in column c, together on `scale` machines of it.

    `size`: how many jobs of a class each row stands for, 1 for plain jobs. A pair of classes
    stands for all pairs of members; of a class with itself, for pairs of different members.
    """

    alone: Shares
    first: Ints
    second: Ints
    rate_first: Floats
    rate_second: Floats
    size: Floats

    @property
    def scale(self) -> Floats:
        """Machines that each pair takes."""
        return self.alone.scale[self.first]

    def throughput(self, x: Floats) -> Floats:
        """eff of each member, of an (n + pairs, m) solution; pairs count for a whole class."""
        n = len(self.size)
        eff = self.alone.effective(x[:n])
        for who, rate in ((self.first, self.rate_first), (self.second, self.rate_second)):
            eff = eff + np.bincount(who, np.einsum("pc,pc->p", rate, x[n:]), n) / self.size
        return eff

    def used(self, x: Floats) -> Floats:
        """Machines of each kind in use."""
        n = len(self.size)
        by_column = np.einsum("i,ic->c", self.alone.scale * self.size, x[:n])
        by_column += np.einsum("p,pc->c", self.scale, x[n:])
        return np.bincount(self.alone.kind, by_column, len(self.alone.capacity)).astype(float)

    def busy(self, x: Floats) -> Floats:
        """The sum of each member's shares."""
        n = len(self.size)
        together = x[n:].sum(axis=1)
        both = np.bincount(self.first, together, n) + np.bincount(self.second, together, n)
        busy: Floats = x[:n].sum(axis=1) + both / self.size
        return busy

    def fastest(self, free: Mask | None = None) -> Floats:
        """The most that each can do alone or with any partner, on the `free` kinds."""
        most = self.alone.fastest(free)
        columns = slice(None) if free is None else free[self.alone.kind]
        for who, rate in ((self.first, self.rate_first), (self.second, self.rate_second)):
            np.maximum.at(most, who, rate[:, columns].max(axis=1, initial=0.0))
        return most


def fitted_pairs(posed: Pairs, x: Floats) -> Floats:
    """`x` without the breaches that rounding leaves."""
    x = np.maximum(x, 0.0)
    n = len(posed.size)
    late = np.minimum(1.0, 1.0 / np.maximum(posed.busy(x), TINY))
    x[:n] *= late[:, None]
    x[n:] *= np.minimum(late[posed.first], late[posed.second])[:, None]
    used = posed.used(x)
    cut = np.where(used > posed.alone.capacity, posed.alone.capacity / np.maximum(used, TINY), 1.0)
    return x * cut[posed.alone.kind]


# ---------------------------------------------------------------------- classes of pairs


class Merged(NamedTuple):
    """Pairs of classes, and whose class is whose: `jobs` and `pairs` of the problem merged."""

    posed: Pairs
    jobs: Classes
    pairs: Classes

    def expand(self, x: Floats) -> Floats:
        """Each job's and each pair's part of a solution for classes."""
        few = len(self.jobs.size)
        return np.vstack(
            [x[:few][self.jobs.of], (x[few:] / self.pairs.size[:, None])[self.pairs.of]]
        )


def merge(posed: Pairs, tags: list[Floats]) -> Merged:
    """The coarsest classes that `tags` and the pairs allow: refined until nothing splits."""
    n, p = len(posed.size), len(posed.first)
    found = classes([posed.alone.rate, posed.alone.scale, *tags])
    who = np.concatenate([posed.first, posed.second])
    other = np.concatenate([posed.second, posed.first])
    mine = np.vstack([posed.rate_first, posed.rate_second])
    views = classes([mine, np.vstack([posed.rate_second, posed.rate_first])]).of if p else who
    while True:
        told = _total(who, _mix(views, found.of[other]), n)
        refined = classes([found.of.astype(np.float64), told])
        if len(refined.size) == len(found.size):
            return _merged_pairs(posed, found, views)
        found = refined


def _mix(views: Ints, colour: Ints) -> Words:
    """A hash of each pair as one of its jobs sees it (splitmix64)."""
    z = views.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    z += colour.astype(np.uint64) * np.uint64(0xD1B54A32D192ED03) + np.uint64(0x2545F491)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return (z ^ (z >> np.uint64(31))) >> np.uint64(24)


def _total(who: Ints, told: Words, n: int) -> Floats:
    total = np.zeros(n, np.uint64)
    np.add.at(total, who, told)
    return (total & np.uint64((1 << 52) - 1)).astype(np.float64)


def _merged_pairs(posed: Pairs, found: Classes, views: Ints) -> Merged:
    """Pairs of like classes that see each other alike are one, whichever of the two is first."""
    p = len(posed.first)
    a, b = found.of[posed.first], found.of[posed.second]
    swap = (a > b) | ((a == b) & (views[:p] > views[p:]))
    keys = [np.where(swap, b, a), np.where(swap, a, b), np.where(swap, views[p:], views[:p])]
    pairs = classes([key.astype(np.float64) for key in keys])
    lead, alone = pairs.first, posed.alone
    few = alone._replace(
        rate=alone.rate[found.first], scale=alone.scale[found.first], limit=alone.limit[found.first]
    )
    return Merged(
        Pairs(few, a[lead], b[lead], posed.rate_first[lead], posed.rate_second[lead], found.size),
        found,
        pairs,
    )


# ---------------------------------------------------------------------- programmes


class PairsPool(NamedTuple):
    """Classes as a search asks them (`search.Pool`)."""

    posed: Pairs
    stop: Stop | None = None

    def max_min(self, pace: Floats, warm: Warm | None = None, rough: float = 0.0) -> Answer:
        """The largest t with eff >= pace t."""
        return max_min_pairs(self.posed, pace, self.stop)

    def throughput(self, answer: Answer) -> Floats:
        """eff of an answer."""
        return self.posed.throughput(answer.x)

    def fastest(self, free: Mask) -> Floats:
        """What each can do at most: with a frozen partner a kind may be used all the same."""
        return self.posed.fastest()

    def sole(self) -> None:
        """Pairs are further columns."""


def max_min_pairs(posed: Pairs, pace: Floats, stop: Stop | None = None) -> Answer:
    """The largest t for which every member reaches eff >= pace t, as `shares.max_min`."""
    best = np.maximum(posed.fastest(), TINY)
    alone = float((best / np.maximum(pace, TINY))[pace > 0].min())
    room = posed.alone.capacity.sum() / max(dot(posed.alone.scale * posed.size, pace / best), TINY)
    unit = min(alone, room)
    solved, inside = _grown(posed, None, np.zeros(len(pace)), pace * unit, stop)
    x, k = fitted_pairs(posed, _spread(posed, solved, inside)), len(posed.alone.capacity)
    eff = posed.throughput(x)
    value = float((eff[pace > 0] / pace[pace > 0]).min())
    prices, worth = solved.duals[:k], solved.duals[k : k + len(pace)] / best
    raised = max(dot(worth, pace), TINY)
    prices, worth = np.maximum(prices, 0) / raised, np.maximum(worth, 0) / raised
    spare = np.maximum(solved.duals[k + len(pace) :], 0.0) / posed.size / raised
    bound = min(_bound(posed, prices, worth, spare, None), alone)
    return Answer(x, value, max(bound, value), prices, worth, solved.work)


def max_sum_pairs(
    posed: Pairs,
    gain: Floats,
    gain_pairs: Floats,
    floor: Floats | None = None,
    stop: Stop | None = None,
) -> Answer:
    """The largest sum of gains, `gain` of each member alone and `gain_pairs` of each pair, where
    eff >= `floor`. Raises Infeasible if the floors cannot be had."""
    floor = np.zeros(len(gain)) if floor is None else floor
    floor, begun = _floored(posed, floor)
    gains = np.vstack([gain * posed.size[:, None], gain_pairs])
    unit = float(np.abs(gains).max()) or 1.0
    solved, inside = _grown(posed, gains / unit, floor, np.zeros(len(gain)), stop, begun)
    x, k = fitted_pairs(posed, _spread(posed, solved, inside)), len(posed.alone.capacity)
    best = np.maximum(posed.fastest(), TINY)
    prices = np.maximum(solved.duals[:k], 0.0) * unit
    worth = np.maximum(solved.duals[k : k + len(gain)], 0.0) * unit / best
    value = float((gains * np.vstack([x[: len(gain)], x[len(gain) :]])).sum())
    spare = np.maximum(solved.duals[k + len(gain) :], 0.0) * unit / posed.size
    bound = _bound(posed, prices, worth, spare, gains) - dot(worth, floor)
    return Answer(x, value, max(bound, value), prices, worth, solved.work)


def efficient_pairs(posed: Pairs, floor: Floats, gain: Floats, gain_pairs: Floats) -> Answer:
    """Of all x with eff >= floor, known to be within reach, one with the largest total gain."""
    for slack in SLACKS:
        try:
            return max_sum_pairs(posed, gain, gain_pairs, floor * (1 - slack))
        except Infeasible:
            continue
    raise ArithmeticError("a floor that was reached before cannot be reached any more")


def _bound(
    posed: Pairs, prices: Floats, worth: Floats, spare: Floats, gains: Floats | None
) -> float:
    """Weak duality. `spare`, the price of a member's time, is raised until no column pays."""
    n, kind = len(posed.size), posed.alone.kind
    each = worth / posed.size
    own = worth[:, None] * posed.alone.rate
    own = own - (posed.alone.scale * posed.size)[:, None] * prices[kind]
    pair = each[posed.first, None] * posed.rate_first + each[posed.second, None] * posed.rate_second
    pair = pair - posed.scale[:, None] * prices[kind]
    if gains is not None:
        own, pair = own + gains[:n], pair + gains[n:]
    spare = np.maximum(spare, own.max(axis=1, initial=0.0) / posed.size)
    short = pair.max(axis=1, initial=0.0) - spare[posed.first] - spare[posed.second]
    more = np.zeros(n)
    for who in (posed.first, posed.second):
        np.maximum.at(more, who, short / 2)
    return dot(prices, posed.alone.capacity) + dot(spare + more, posed.size)


def _floored(posed: Pairs, floor: Floats) -> tuple[Floats, Mask | None]:
    """Floors that can be had but for rounding, and columns with which they can."""
    if not floor.any():
        return floor, None
    solved, inside = _grown(posed, None, np.zeros(len(floor)), floor, enough=1.0)
    if solved.value < 1 - 1e-9:
        k = len(posed.alone.capacity)
        raise Infeasible(np.flatnonzero(solved.duals[k : k + len(floor)] > 0))
    return floor * min(1.0, solved.value), inside


def _grown(
    posed: Pairs,
    gains: Floats | None,
    floor: Floats,
    pace: Floats,
    stop: Stop | None = None,
    begun: Mask | None = None,
    *,
    enough: float = np.inf,
) -> tuple[Solution, Mask]:
    """Columns are let in until none pays (or `enough` is reached); which are in at the end.

    Shares of a class in the unknowns are those of a member, of a pair those of both classes
    together over the smaller class.
    """
    n, m = posed.alone.rate.shape
    k, best = len(posed.alone.capacity), np.maximum(posed.fastest(), TINY)
    columns = _columns(posed, best)
    gain = np.zeros(columns.shape[1]) if gains is None else gains.ravel() * _unit(posed).repeat(m)
    most = np.concatenate([posed.alone.capacity, -floor / best, np.ones(n)])
    rise = np.concatenate([np.zeros(k), pace / best, np.zeros(n)])
    hope = 0.0 if gains is not None else 1.0
    inside = np.zeros(columns.shape[1], np.bool_)
    inside[: n * m] = np.diff(columns.indptr)[: n * m] > 2
    inside |= False if begun is None else begun
    for _ in range(ROUNDS):
        some = np.flatnonzero(inside)
        matrix = sparse.hstack([columns[:, some], sparse.csc_array(rise[:, None])], format="csc")
        solved = maximise(model(np.append(gain[some], hope), sparse.csc_array(matrix), most))
        if solved.value >= enough or (stop is not None and stop()):
            break
        profit = gain - columns.T @ solved.duals
        profit[inside] = 0.0
        better = np.flatnonzero(profit > 1e-9 * max(1.0, float(np.abs(gain).max(initial=0.0))))
        if not len(better):
            break
        new = better[np.argsort(-profit[better], kind="stable")][: max(2 * (n + k), 64)]
        inside[new] = True
    kept = np.zeros(columns.shape[1], np.bool_)
    kept[some] = True
    return solved, kept


def _spread(posed: Pairs, solved: Solution, inside: Mask) -> Floats:
    """The shares of jobs and pairs by column."""
    x = np.zeros(len(inside))
    x[inside] = solved.x[:-1]
    return x.reshape(-1, posed.alone.rate.shape[1]) * _unit(posed)[:, None]


def _unit(posed: Pairs) -> Floats:
    """What a share of 1 in the unknowns is: of a pair, all of the smaller class."""
    both = np.minimum(posed.size[posed.first], posed.size[posed.second])
    return np.concatenate(
        [
            np.ones(len(posed.size)),
            np.where(posed.first == posed.second, posed.size[posed.first] / 2, both),
        ]
    )


def _columns(posed: Pairs, best: Floats) -> sparse.csc_array:
    """Rows: kinds, throughput of each class's member over its best (negative), time of a member.
    Columns: alone and in pairs, by column of the machines."""
    n, m = posed.alone.rate.shape
    p, k = len(posed.first), len(posed.alone.capacity)
    unit, number = _unit(posed), np.arange((n + p) * m).reshape(-1, m)
    kinds = np.broadcast_to(posed.alone.kind, (n + p, m))
    take = np.concatenate([posed.alone.scale * posed.size, posed.scale * unit[n:]])
    entries = [(kinds, number, np.broadcast_to(take[:, None], (n + p, m)))]
    every = np.arange(n)[:, None]
    sides = [(every, number[:n], posed.alone.rate, np.ones(n))]
    for who, rate in ((posed.first, posed.rate_first), (posed.second, posed.rate_second)):
        sides.append((who[:, None], number[n:], rate, unit[n:] / posed.size[who]))
    for who_, at, rate, part in sides:
        row = np.broadcast_to(who_, at.shape)
        entries.append((k + row, at, -rate * part[:, None] / best[who_]))
        entries.append((k + n + row, at, np.broadcast_to(part[:, None], at.shape)))
    rows, columns, values = (
        np.concatenate([np.ravel(entry[which]) for entry in entries]) for which in range(3)
    )
    kept = values != 0
    return sparse.csc_array(
        (values[kept], (rows[kept], columns[kept])), shape=(k + 2 * n, (n + p) * m)
    )


__all__ = [
    "GAP",
    "Infeasible",
    "Merged",
    "Pairs",
    "PairsPool",
    "efficient_pairs",
    "max_min_pairs",
    "max_sum_pairs",
]
