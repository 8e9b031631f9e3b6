"""Division by prices: exact, at the cost of a few passes over the jobs.

With K kinds of machines the Lagrangian dual has K prices, and at given prices each job's part has
a closed form (`blocks`). Near the best prices nearly every job's mix is settled: it is a straight
line in t. So a small programme over the few unsettled jobs and the kinds, in which the settled
ones appear as sums, gives exact prices and an exact vertex; what it settled wrongly shows when all
jobs are priced again, and joins it. First prices come from a sample, solved the same way.

Recipes do not pass prices from one round to the next, though that was measured to halve or quarter
the time of max-min at 256 to 2,048 jobs: among equally good answers a warm start may find another,
and a plan may depend on the policy's memory only, which would have to keep the prices.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

import numpy as np
from scipy import sparse

from ganger.solve.division.blocks import (
    Blocks,
    Choice,
    Floats,
    Ints,
    Mix,
    Reach,
    choose,
    lines,
    spread,
)
from ganger.solve.division.programme import dot
from ganger.solve.highs import Infeasible, Model, Solution, maximise

DIRECT = 160
"""So few jobs are given to HiGHS as they are."""
WORTH = 128
"""The root of a programme's worth in jobs: HiGHS takes as long for this many jobs times the root of
a number as for that number of small programmes, so that more are not tried before."""
FEW = 96
"""So many unsettled jobs a small programme has, unless that is too few to get on."""
PASSES = 3000
"""Jobs for each one of a small programme, if there are many: passes over them cost more then."""
SMALL = 1e-3
"""A price below this part of the mean is hardly one."""
SHRINK = 16
"""Jobs for each one of the sample."""
SAMPLED = 2.0
"""Prices from a sample are off by about this part, over the root of its size."""
LOST = 1e-8
"""A part of the bound that may be lost to rounding in a solver."""
DRAWN = 4.0
"""Prices from a sample of the unsure are off by about this part of their region, over the same."""


Stop: TypeAlias = Callable[[], bool]
"""Whether to be content with what there is; for the edge, where time counts."""


class Found(NamedTuple):
    """Scaled shares (m, n), t, prices, the worth of each job's row, and a bound on t or the sum."""

    x: Floats
    t: float
    value: float
    bound: float
    prices: Floats
    worth: Floats
    steps: int


class Start(NamedTuple):
    """Where to begin: prices and t of a like problem, and how far off they may be, as a part."""

    prices: Floats
    t: float
    reach: float


def optimum(
    blocks: Blocks,
    gap: float,
    steps: int,
    start: Start | None = None,
    stop: Stop | None = None,
    rough: float = 0.0,
) -> Found:
    """The best division within `gap` and `steps` programmes; then all at once, by HiGHS.

    Once `stop` says so, or prices are known but for a part of `rough`, what all choose at the
    prices found so far: its shares may take too many machines and are the caller's to cut. Raises
    Infeasible if the floors cannot be had.
    """
    unlimited = blocks.gain is not None and not np.isfinite(blocks.limit).all()
    if blocks.jobs <= DIRECT or unlimited:
        return _all_at_once(blocks)
    steps = min(steps, max(2, (blocks.jobs // WORTH) ** 2))
    try:
        start = start or _sampled(blocks, steps, stop)
        found = _by_prices(blocks, gap, steps, start, stop, rough)
    except ArithmeticError:  # a small programme with numbers that HiGHS does not get through
        found = None
    return found or _all_at_once(blocks)._replace(steps=steps + 1)


def _by_prices(
    blocks: Blocks, gap: float, steps: int, start: Start, stop: Stop | None, rough: float
) -> Found | None:
    near = _begun(blocks, start)
    for done in range(1, steps + 1):
        enough = near.region.prices.max() <= rough or (stop is not None and stop())
        if enough and not (blocks.hope and blocks.floor.any()):
            return _as_chosen(blocks, near, done)
        turn = _turn(blocks, near)
        bound = bound_at(blocks, turn.prices, turn.again)
        if turn.whole and bound - turn.step.value <= gap * max(abs(bound), abs(turn.step.value)):
            return _assembled(blocks, near.chosen, turn, bound, done)
        near = _after(blocks, near, turn)
    return None


class _Near(NamedTuple):
    """Prices, t, what all choose there, where the best prices are looked for, and how many unsure
    jobs a small programme may have; `drawn`: how many there were when it had only some of them."""

    prices: Floats
    t: float
    chosen: Choice
    region: _Region
    most: int
    drawn: float = np.inf


class _Turn(NamedTuple):
    """A small programme: who was `unsure`, the step that it gave, and what all choose at its
    prices. `whole`: it had all of the unsure, and machines for them."""

    unsure: Ints
    step: _Step
    prices: Floats
    t: float
    again: Choice
    whole: bool


def _begun(blocks: Blocks, start: Start) -> _Near:
    reach = np.full(len(start.prices), start.reach)
    region = _Region(reach, start.reach, np.zeros(len(reach)))
    prices, t, chosen = _settle(blocks, start.prices, min(start.t, blocks.top), region)
    return _Near(prices, t, chosen, region, max(FEW, blocks.jobs // PASSES))


def _turn(blocks: Blocks, near: _Near) -> _Turn:
    prices, t, chosen, region = near[:4]
    unsure = np.flatnonzero(chosen.margin <= 1.0)
    some = _drawn(chosen, unsure, near.most)
    around = prices * np.array([1 / (1 + region.prices), 1 + region.prices])
    span = t * (1 - region.t), t * (1 + region.t)
    step = _restricted(blocks, chosen, unsure, some, around, span)
    moved, top, again = _settle(blocks, step.prices, step.t, region)
    return _Turn(unsure, step, moved, top, again, step.feasible and len(some) == len(unsure))


def _drawn(chosen: Choice, unsure: Ints, most: int) -> Ints:
    """The unsure, or a sample of `most`: evenly out of those ordered by mix and by margin."""
    if len(unsure) <= most:
        return unsure
    mix = chosen.low[unsure] * np.int16(128) + chosen.high[unsure]
    order = np.lexsort((chosen.margin[unsure], mix))
    return unsure[order[(np.arange(most) * len(unsure)) // most]]


def _after(blocks: Blocks, near: _Near, turn: _Turn) -> _Near:
    """Where to look next: closer, unless prices were stopped."""
    count, sampled = len(turn.unsure), len(turn.unsure) > near.most
    least = DRAWN / np.sqrt(near.most) if sampled else 0.0
    change = abs(turn.t - near.t) / max(near.t, 1e-12)
    region = near.region.after(turn.prices / near.prices, change, least)
    most = 2 * near.most if sampled and count > near.drawn / 2 else near.most
    prices, t, chosen = turn.prices, turn.t, turn.again
    jumped = _jumped(blocks, prices, region.side, t)
    if (jumped != prices).any():
        prices, t, chosen = _settle(blocks, jumped, t, region)
    else:
        chosen = _looked_at_again(blocks, prices, t, chosen, near.region, region)
    return _Near(prices, t, chosen, region, most, count if sampled else np.inf)


def _looked_at_again(
    blocks: Blocks, prices: Floats, t: float, chosen: Choice, old: _Region, new: _Region
) -> Choice:
    """The choice with its margins for another region: only those near the edge are asked."""
    wider = max(float((new.prices / old.prices).max()), new.t / old.t)
    close = np.flatnonzero(chosen.margin <= wider)
    margin = chosen.margin / wider
    margin[close] = choose(blocks.part(close), prices, t, new.reach).margin
    return chosen._replace(margin=margin)


def _jumped(blocks: Blocks, prices: Floats, side: Floats, t: float) -> Floats:
    """Prices that are next to nothing go to nothing, or to what is worth a step, at once."""
    small = SMALL * dot(prices, blocks.capacity) / float(blocks.capacity.sum())
    low = prices < small
    jumped: Floats = np.where(low & (side < 0), _least(blocks, prices, t), prices)
    return np.where(low & (side > 0), small, jumped)


def _settle(
    blocks: Blocks, prices: Floats, t: float, region: _Region
) -> tuple[Floats, float, Choice]:
    """The prices in the scale of the objective, t (or what they allow, if that is far from it), and
    what all choose."""
    prices = np.maximum(prices, _least(blocks, prices, t))
    chosen = choose(blocks, prices, t, region.reach)
    if not blocks.hope:
        return prices, t, chosen
    for _ in range(2):
        top = bound_at(blocks, prices, chosen) / blocks.hope
        if abs(top - t) <= region.t * abs(t):
            break
        t = top
        chosen = choose(blocks, prices, t, region.reach)
    raised = dot(chosen.worth, blocks.pace)
    if raised > 0:
        scale = blocks.hope / raised
        prices = prices * scale
        chosen = chosen._replace(worth=chosen.worth * scale, spare=chosen.spare * scale)
    return prices, t, chosen


class _Region(NamedTuple):
    """Where the small programme may move the prices and t to, and where each price was stopped."""

    prices: Floats
    t: float
    side: Floats

    @property
    def reach(self) -> Reach:
        return Reach(self.prices, self.t)

    def after(self, ratio: Floats, t: float, least: float) -> _Region:
        """The next region: wider where a price is stopped on the same side again, narrower where
        it has arrived, but not below the part `least` of this one."""
        stopped = 1 + 0.999 * self.prices
        side = np.where(ratio >= stopped, 1.0, np.where(ratio <= 1 / stopped, -1.0, 0.0))
        change = np.maximum(ratio, 1 / ratio) - 1
        wider = np.where(side == self.side, 4.0, 1.5)
        arrived = least * self.prices if least else np.maximum(2 * change, self.prices / 4)
        new = np.where(side == 0, arrived, self.prices * wider)
        close = max(least * self.t, t) if least else max(2 * t, self.t / 4)
        return _Region(np.clip(new, 1e-7, 100.0), min(max(close, 1e-7), 0.5), side)


def _least(blocks: Blocks, prices: Floats, t: float) -> float:
    """A price that makes no difference to the objective, but to ties."""
    total = max(dot(prices, blocks.capacity), blocks.hope * t)
    return 1e-10 * total / float(blocks.capacity.sum()) + 1e-12


def _sampled(blocks: Blocks, steps: int, stop: Stop | None) -> Start:
    """Prices from a sample with its part of the machines, as closely as a sample tells them."""
    size = max(DIRECT, blocks.jobs // SHRINK)
    at = np.sort(np.random.default_rng(0).permutation(blocks.jobs)[:size])
    part = blocks.part(at)
    share = part.take.sum() / blocks.take.sum()
    moves = part.pace.sum() / max(blocks.pace.sum(), 1e-300)
    reach = SAMPLED / np.sqrt(size)
    part = part._replace(  # floors that the sample can surely have
        capacity=blocks.capacity * share, hope=blocks.hope * moves, floor=part.floor * (1 - reach)
    )
    if size > DIRECT:
        near = _begun(part, _sampled(part, steps, stop))
        for _ in range(steps):
            if near.region.prices.max() <= reach or (stop is not None and stop()):
                break
            near = _after(part, near, _turn(part, near))
        return Start(near.prices, near.t, max(reach, float(near.region.prices.max())))
    try:
        found = _all_at_once(part, plain=True)
    except Infeasible:  # the sample asks for more than its part of the machines
        found = _all_at_once(part._replace(floor=np.zeros(size)))
    return Start(found.prices, found.t, reach)


def bound_at(blocks: Blocks, prices: Floats, chosen: Choice) -> float:
    """What no division exceeds, by weak duality."""
    spare = np.where(np.isfinite(blocks.limit), blocks.limit, 0.0)
    total = (
        dot(prices, blocks.capacity) + dot(spare, chosen.spare) - dot(chosen.worth, blocks.floor)
    )
    if not blocks.hope:
        return total
    raised = dot(chosen.worth, blocks.pace)
    top = blocks.hope * blocks.top
    return min(total * blocks.hope / raised, top) if raised > 0 else top


class _Step(NamedTuple):
    x: Floats
    t: float
    value: float
    prices: Floats
    worth: Floats
    feasible: bool


def _restricted(
    blocks: Blocks,
    chosen: Choice,
    unsure: Ints,
    some: Ints,
    around: Floats,
    span: tuple[float, float],
) -> _Step:
    """The programme over the unsure jobs (`some` stand for all of them), the settled ones as sums
    that are linear in t.

    Machines can be sold and bought at the lower and upper prices `around`, so that it has a
    solution, and prices stay where only the unsure can change their mind.
    """
    settled = _but(blocks.jobs, unsure)
    part, mine = blocks.part(settled), chosen.part(settled)
    mix = lines(part, mine)
    constant, slope, gained = _sums(part, mine, mix)
    each = len(unsure) / max(len(some), 1)
    few = blocks.part(some)
    few = few._replace(
        take=few.take * each,
        gain=None if few.gain is None else few.gain * each,
        capacity=blocks.capacity - constant,
        hope=blocks.hope + gained[1],
    )
    solved = _solve(
        few, slope, (max(mix.start, span[0]), min(mix.stop, span[1], blocks.top)), around
    )
    value = gained[0] + float(few.hope * solved.t)
    if few.gain is not None:
        value += float((few.gain * solved.x).sum())
    feasible = solved.bought <= 1e-9 * blocks.capacity.max()
    return _Step(solved.x, solved.t, value, solved.prices, solved.worth, feasible)


def _but(count: int, these: Ints) -> Ints:
    others = np.ones(count, np.bool_)
    others[these] = False
    return np.flatnonzero(others)


def _sums(blocks: Blocks, chosen: Choice, mix: Mix) -> tuple[Floats, Floats, tuple[float, float]]:
    """Machines of each kind in use, and gains, as constant + slope t."""
    m, k = len(blocks.rate), len(blocks.capacity)
    every = np.arange(blocks.jobs)
    kind = np.append(blocks.kind, k)
    at_low, at_high = kind[chosen.low], kind[chosen.high]
    mixed = (chosen.low != chosen.high) & (chosen.low < m)
    at_low = np.where(mixed, at_low, k)
    rest = np.where(mixed, blocks.limit - mix.constant, 0.0)

    def total(weight_low: Floats, weight_high: Floats) -> Floats:
        low = np.bincount(at_low, blocks.take * weight_low, k + 1)
        both = low + np.bincount(at_high, blocks.take * weight_high, k + 1)
        return both[:k].astype(np.float64)

    constant, slope = total(rest, mix.constant), total(np.where(mixed, -mix.slope, 0), mix.slope)
    if blocks.gain is None:
        return constant, slope, (0.0, 0.0)
    gain = np.vstack([blocks.gain, np.zeros((1, blocks.jobs))])
    low, high = np.where(mixed, gain[chosen.low, every], 0.0), gain[chosen.high, every]
    return constant, slope, (dot(low, rest) + dot(high, mix.constant), dot(high - low, mix.slope))


class _Solved(NamedTuple):
    x: Floats
    t: float
    prices: Floats
    worth: Floats
    bought: float


def _solve(
    blocks: Blocks,
    slope: Floats,
    span: tuple[float, float],
    around: Floats | None = None,
    *,
    plain: bool = True,
) -> _Solved:
    """The programme as it is. `slope`: machines that others take per t; `span`: of t; `around`: at
    which prices machines are sold and bought, None for not at all."""
    n, k = blocks.jobs, len(blocks.capacity)
    column, job = np.nonzero(blocks.rate > 0)
    asked = np.flatnonzero((blocks.pace > 0) | (blocks.floor > 0))
    bounded = np.flatnonzero(np.isfinite(blocks.limit))
    row_of, time_of = np.full(n, -1), np.full(n, -1)
    row_of[asked] = k + np.arange(len(asked))
    time_of[bounded] = k + len(asked) + np.arange(len(bounded))
    number = np.arange(len(column))
    entries = [
        (blocks.kind[column], number, blocks.take[job]),
        (row_of[job], number, -blocks.rate[column, job]),
        (time_of[job], number, np.ones(len(column))),
        (np.arange(k), np.full(k, len(column)), slope),
        (row_of[asked], np.full(len(asked), len(column)), blocks.pace[asked]),
    ]
    gain = np.zeros(len(column)) if blocks.gain is None else blocks.gain[column, job]
    gain = np.append(gain, blocks.hope)
    lower, upper = np.zeros(len(gain)), np.full(len(gain), np.inf)
    lower[-1], upper[-1] = span
    if around is not None:
        entries.append((np.arange(k), len(column) + 1 + np.arange(k), np.full(k, -1.0)))
        entries.append((np.arange(k), len(column) + 1 + k + np.arange(k), np.ones(k)))
        gain = np.concatenate([gain, -around[1], around[0]])
        lower = np.append(lower, np.zeros(2 * k))
        upper = np.append(upper, np.full(2 * k, np.inf))
    rows, columns, values = (np.concatenate(part) for part in zip(*entries, strict=True))
    kept = (rows >= 0) & (values != 0)
    most = np.concatenate([blocks.capacity, -blocks.floor[asked], blocks.limit[bounded]])
    matrix = sparse.csc_array(
        (values[kept], (rows[kept], columns[kept])), shape=(len(most), len(gain))
    )
    least = np.full(len(most), -np.inf)
    solved = maximise(Model(gain, matrix, least, most, lower, upper), plain=plain)
    return _read(blocks, solved, (column, job), asked)


def _read(blocks: Blocks, solved: Solution, where: tuple[Ints, Ints], asked: Ints) -> _Solved:
    k, count = len(blocks.capacity), len(where[0])
    x, worth = np.zeros(blocks.rate.shape), np.zeros(blocks.jobs)
    x[where] = solved.x[:count]
    worth[asked] = np.maximum(solved.duals[k : k + len(asked)], 0.0)
    bought = solved.x[count + 1 : count + 1 + k]
    prices = np.maximum(solved.duals[:k], 0.0)
    return _Solved(x, float(solved.x[count]), prices, worth, float(bought.max(initial=0.0)))


def _as_chosen(blocks: Blocks, near: _Near, done: int) -> Found:
    x = spread(blocks, near.chosen, lines(blocks, near.chosen), near.t)
    bound = bound_at(blocks, near.prices, near.chosen)
    return Found(x, near.t, bound, bound, near.prices, near.chosen.worth, done)


def _assembled(blocks: Blocks, chosen: Choice, turn: _Turn, bound: float, done: int) -> Found:
    settled, step = _but(blocks.jobs, turn.unsure), turn.step
    part, mine = blocks.part(settled), chosen.part(settled)
    x, worth = np.zeros(blocks.rate.shape), turn.again.worth.copy()
    x[:, settled] = spread(part, mine, lines(part, mine), step.t)
    x[:, turn.unsure] = step.x
    worth[turn.unsure] = _worth(blocks, turn, bound)
    return Found(x, step.t, step.value, bound, turn.prices, worth, done)


def _worth(blocks: Blocks, turn: _Turn, bound: float) -> Floats:
    """What the small programme says, which is 0 for those that may rise; but what they choose at
    its prices where rounding in the solver would cost more of the bound than that is worth."""
    few, own = blocks.part(turn.unsure), turn.again.worth[turn.unsure]
    cost, demand = few.cost(turn.prices), few.floor + few.pace * turn.step.t
    limit = np.where(np.isfinite(few.limit), few.limit, 0.0)

    def proved(worth: Floats) -> Floats:
        spare = np.maximum((worth * few.rate - cost).max(axis=0, initial=0.0), 0.0)
        return np.asarray(worth * demand - spare * limit)

    lost = proved(own) - proved(turn.step.worth)
    return np.where(lost > LOST * abs(bound) / max(len(own), 1), own, turn.step.worth)


def _all_at_once(blocks: Blocks, *, plain: bool = False) -> Found:
    solved = _solve(blocks, np.zeros(len(blocks.capacity)), (0.0, blocks.top), plain=plain)
    value = blocks.hope * solved.t
    if blocks.gain is not None:
        value += float((blocks.gain * solved.x).sum())
    return Found(solved.x, solved.t, value, value, solved.prices, solved.worth, 1)


__all__ = ["Found", "Infeasible", "Start", "Stop", "optimum"]
