"""What each job would do at given prices, in closed form.

At prices per machine the cheapest way to reach a throughput is on the lower hull of the points
(rate, cost) of the columns and of being idle: a mix of at most two neighbours on it. The slope of
the hull there is what one more unit of throughput costs. Arrays are (columns, jobs), so that a
step is a few passes over contiguous memory; column `m` stands for idle.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]

CHUNK = 1 << 15
"""Jobs at a time: what a step needs stays in the cache."""


class Blocks(NamedTuple):
    """Jobs over columns of kinds: maximise sum(gain x) + hope t where `rate x >= floor + pace t`.

    `take`: machines that a whole share needs; `limit`: the largest sum of a job's shares; `top`: t
    at most. All scaled so that rates, shares and t are of the order of 1.
    """

    rate: Floats
    gain: Floats | None
    take: Floats
    limit: Floats
    floor: Floats
    pace: Floats
    capacity: Floats
    kind: Ints
    hope: float
    top: float = np.inf

    @property
    def jobs(self) -> int:
        """How many jobs."""
        return len(self.take)

    def part(self, at: Ints | slice) -> Blocks:
        """The same for some jobs only."""
        return self._replace(
            rate=self.rate[:, at],
            gain=None if self.gain is None else self.gain[:, at],
            take=self.take[at],
            limit=self.limit[at],
            floor=self.floor[at],
            pace=self.pace[at],
        )

    def cost(self, prices: Floats) -> Floats:
        """(m, n): what a whole share costs, less what it gains."""
        cost = prices[self.kind][:, None] * self.take
        return cost if self.gain is None else cost - self.gain


class Choice(NamedTuple):
    """By job: a mix of columns `low` and `high` (equal: one column, all of `limit`), what one more
    unit of throughput costs, and what one more unit of `limit` saves. Within a part of less than
    `margin` of the changes foreseen the mix stays as it is."""

    low: NDArray[np.int8]
    high: NDArray[np.int8]
    worth: Floats
    spare: Floats
    margin: Floats

    def part(self, at: Ints) -> Choice:
        """The same for some jobs only."""
        return Choice(self.low[at], self.high[at], self.worth[at], self.spare[at], self.margin[at])


class Reach(NamedTuple):
    """How far each price, and t, may move: parts of what they are."""

    prices: Floats
    t: float


def choose(blocks: Blocks, prices: Floats, t: float, reach: Reach) -> Choice:
    """Every job's cheapest mix that reaches floor + pace t (or as much as it can)."""
    n = blocks.jobs
    found = Choice(
        np.empty(n, np.int8), np.empty(n, np.int8), np.empty(n), np.empty(n), np.empty(n)
    )
    for start in range(0, n, CHUNK):
        at = slice(start, min(start + CHUNK, n))
        piece = _choose(blocks.part(at), prices, t, reach)
        found.low[at], found.high[at] = piece.low, piece.high
        found.worth[at], found.spare[at], found.margin[at] = piece.worth, piece.spare, piece.margin
    return found


def _choose(blocks: Blocks, prices: Floats, t: float, reach: Reach) -> Choice:
    # A mix stays while every other column, and being idle, is above the line through its two ends,
    # and while that line rises; prices move both ends of it.
    m, rate, cost = len(blocks.rate), blocks.rate, blocks.cost(prices)
    demand = blocks.floor + blocks.pace * t
    low, high, worth, at = _walk(rate, cost, demand, blocks.limit)
    spare = np.maximum(worth * at.rate_high - at.cost_high, 0.0)
    margin = _slack_in_time(demand, blocks.limit, low, high, at) / reach.t
    paid = np.append((reach.prices * prices)[blocks.kind], 0.0)
    at_low, at_high = paid[low] * blocks.take, paid[high] * blocks.take
    mixed, width = low != high, at.rate_high - at.rate_low
    rising = np.where(mixed, worth * width, np.inf)
    np.minimum(margin, rising / np.maximum(at_low + at_high, 1e-300), out=margin)
    width[~mixed] = np.inf
    columns = [(each, rate[each], cost[each], rate[each] <= 0) for each in range(m)]
    for column, its_rate, its_cost, never in [*columns, (m, 0.0, 0.0, False)]:
        apart = its_cost + spare - worth * its_rate
        apart[(low == column) | (high == column) | never] = np.inf
        part = (its_rate - at.rate_low) / width
        moved = paid[column] * blocks.take + np.abs(part) * at_high + np.abs(1 - part) * at_low
        np.minimum(margin, apart / np.maximum(moved, 1e-300), out=margin)
    return Choice(low.astype(np.int8), high.astype(np.int8), worth, spare, margin)


class _Ends(NamedTuple):
    rate_low: Floats
    rate_high: Floats
    cost_high: Floats


def _walk(
    rate: Floats, cost: Floats, demand: Floats, limit: Floats
) -> tuple[Ints, Ints, Floats, _Ends]:
    """Along each job's lower hull, from its cheapest point to the first that reaches `demand`."""
    m, n = rate.shape
    high, rate_high, cost_high = np.full(n, m), np.zeros(n), np.zeros(n)
    for column in range(m) if cost.min(initial=0.0) < 0 else ():
        better = cost[column] < cost_high
        high[better] = column
        np.copyto(rate_high, rate[column], where=better)
        np.copyto(cost_high, cost[column], where=better)
    low, rate_low, worth = high.copy(), rate_high.copy(), np.zeros(n)
    need = demand / limit
    todo = np.flatnonzero((rate_high < need) | ((rate_high <= 0) & (demand > 0)))
    for _ in range(m):
        if not len(todo):
            break
        r0, c0 = rate_high[todo], cost_high[todo]
        best, pick = np.full(len(todo), np.inf), np.full(len(todo), -1)
        for column in range(m):
            rise, more = rate[column][todo] - r0, cost[column][todo] - c0
            slope = np.divide(more, rise, out=np.full(len(todo), np.inf), where=rise > 0)
            better = slope < best
            pick[better] = column
            np.minimum(best, slope, out=best)
        able = pick >= 0
        todo, pick = todo[able], pick[able]
        low[todo], rate_low[todo] = high[todo], r0[able]
        high[todo], rate_high[todo] = pick, rate[pick, todo]
        cost_high[todo], worth[todo] = cost[pick, todo], np.maximum(best[able], 0.0)
        todo = todo[rate_high[todo] < need[todo]]
    return low, high, worth, _Ends(rate_low, rate_high, cost_high)


def _slack_in_time(demand: Floats, limit: Floats, low: Ints, high: Ints, at: _Ends) -> Floats:
    """How far the demand is from where the mix would change, relative to it."""
    safe = np.maximum(demand, 1e-300)
    above = np.where(at.rate_high > 0, limit, 0.0) * at.rate_high - demand
    mixed = (low != high) & (at.rate_low > 0)
    below = demand - np.where(mixed, limit, 0.0) * at.rate_low
    room = np.where(mixed, np.minimum(above, below), above) / safe
    slack: Floats = np.where(demand > 0, np.maximum(room, 0.0), np.inf)
    return slack


class Mix(NamedTuple):
    """Shares as straight lines in t: `high` gets a + b t, `low` the rest of limit (idle: none).

    They hold for t from `start` to `stop`.
    """

    constant: Floats
    slope: Floats
    start: float
    stop: float


def lines(blocks: Blocks, chosen: Choice) -> Mix:
    """The chosen mixes as t changes."""
    m = len(blocks.rate)
    every = np.arange(blocks.jobs)
    padded = np.vstack([blocks.rate, np.zeros((1, blocks.jobs))])
    r_low, r_high = padded[chosen.low, every], padded[chosen.high, every]
    full, idle = chosen.low == chosen.high, chosen.low == m
    base = np.where(idle | full, 0.0, blocks.limit) * r_low
    rise = np.where(full, 1.0, np.where(idle, r_high, r_high - r_low))
    constant = np.where(full, blocks.limit, (blocks.floor - base) / rise)
    constant[chosen.high == m] = 0.0
    slope = np.where(full, 0.0, blocks.pace / rise)
    moves = blocks.pace > 0
    top = np.where(r_high > 0, blocks.limit, 0.0) * r_high
    stop = ((top - blocks.floor)[moves] / blocks.pace[moves]).min(initial=np.inf)
    below = moves & ~full
    start = ((base - blocks.floor)[below] / blocks.pace[below]).max(initial=0.0)
    return Mix(constant, slope, float(start), float(stop))


def spread(blocks: Blocks, chosen: Choice, mix: Mix, t: float) -> Floats:
    """(m, n) shares at t."""
    m, every = len(blocks.rate), np.arange(blocks.jobs)
    x = np.zeros((m + 1, blocks.jobs))
    share = mix.constant + mix.slope * t
    mixed = (chosen.low != chosen.high) & (chosen.low < m)
    x[chosen.low[mixed], every[mixed]] = (blocks.limit - share)[mixed]
    x[chosen.high, every] = share
    return x[:m]
