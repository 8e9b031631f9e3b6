"""Division by prices: exact, at the cost of a few passes over the jobs.

With K kinds of machines the Lagrangian dual has K prices, and at given prices each job's part has
a closed form (`blocks`). Near the best prices nearly every job's mix is settled: it is a straight
line in t. So a small programme over the few unsettled jobs and the kinds, in which the settled
ones appear as sums, gives exact prices and an exact vertex; what it settled wrongly shows when all
jobs are priced again, and joins it. First prices come from a sample, solved the same way.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

import numpy as np
from scipy import sparse

from ganger.solve.blocks import (
    Blocks,
    Choice,
    Floats,
    Ints,
    Mask,
    Mix,
    Reach,
    choose,
    lines,
    spread,
)
from ganger.solve.highs import Basis, Infeasible, Model, Solution, maximise
from ganger.solve.programme import dot

DIRECT = 160
"""So few jobs are given to HiGHS as they are."""
FEW = 320
"""So many unsettled jobs a small programme has, unless that is too few to get on."""
SMALL = 1e-3
"""A price below this part of the mean is hardly one."""
SHRINK = 16
"""Jobs for each one of the sample."""


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
    blocks: Blocks, gap: float, steps: int, start: Start | None = None, stop: Stop | None = None
) -> Found:
    """The best division within `gap` and `steps` programmes; then all at once, by HiGHS.

    Once `stop` says so, what all choose at the prices found so far: its shares may take too many
    machines and are the caller's to cut. Raises Infeasible if the floors cannot be had.
    """
    unlimited = blocks.gain is not None and not np.isfinite(blocks.limit).all()
    if blocks.jobs <= DIRECT or unlimited:
        return _all_at_once(blocks)
    try:
        found = _by_prices(blocks, gap, steps, start or _sampled(blocks, gap, steps, stop), stop)
    except ArithmeticError:  # a small programme with numbers that HiGHS does not get through
        found = None
    return found or _all_at_once(blocks)._replace(steps=steps + 1)


def _by_prices(
    blocks: Blocks, gap: float, steps: int, start: Start, stop: Stop | None
) -> Found | None:
    prices, t, most, last = start.prices, min(start.t, blocks.top), FEW, False
    region = _Region(np.full(len(prices), start.reach), start.reach, np.zeros(len(prices)))
    prices, t, chosen = _settle(blocks, prices, t, region)
    for done in range(1, steps + 1):
        if stop is not None and stop() and not blocks.floor.any():
            return _as_chosen(blocks, chosen, prices, t, done)
        unsure, part = _unsure(chosen.margin, most)
        width = region.prices * part
        around = prices * np.array([1 / (1 + width), 1 + width])
        span = t * (1 - region.t * part), t * (1 + region.t * part)
        step = _restricted(blocks, chosen, unsure, around, span)
        moved, top, again = _settle(blocks, step.prices, step.t, region)
        bound = bound_at(blocks, moved, again)
        if step.feasible and bound - step.value <= gap * max(abs(bound), abs(step.value)):
            return _assembled(blocks, chosen, again, unsure, step, bound, done)
        region, held = region.after(moved / prices, abs(top - t) / max(t, 1e-12), width)
        jumped = _jumped(blocks, moved, region.side, top)
        if (jumped != moved).any():
            moved, top, again = _settle(blocks, jumped, top, region)
        most = 2 * most if held and last and part < 1 else most
        prices, t, chosen, last = moved, top, again, held
    return None


def _jumped(blocks: Blocks, prices: Floats, side: Floats, t: float) -> Floats:
    """Prices that are next to nothing go to nothing, or to what is worth a step, at once."""
    small = SMALL * dot(prices, blocks.capacity) / float(blocks.capacity.sum())
    low = prices < small
    jumped: Floats = np.where(low & (side < 0), _least(blocks, prices, t), prices)
    return np.where(low & (side > 0), small, jumped)


def _settle(
    blocks: Blocks, prices: Floats, t: float, region: _Region
) -> tuple[Floats, float, Choice]:
    """The prices in the scale of the objective, the t that they allow, and what all choose."""
    prices = np.maximum(prices, _least(blocks, prices, t))
    chosen = choose(blocks, prices, t, region.reach)
    if not blocks.hope:
        return prices, t, chosen
    for _ in range(2):
        raised = dot(chosen.worth, blocks.pace)
        top = bound_at(blocks, prices, chosen) / blocks.hope
        if raised > 0:
            prices = prices * (blocks.hope / raised)
        if abs(top - t) <= 1e-9 * abs(t):
            break
        t = top
        chosen = choose(blocks, prices, t, region.reach)
    return prices, t, chosen


class _Region(NamedTuple):
    """Where the small programme may move the prices and t to, and where each price was stopped."""

    prices: Floats
    t: float
    side: Floats

    @property
    def reach(self) -> Reach:
        return Reach(self.prices, self.t)

    def after(self, ratio: Floats, t: float, width: Floats) -> tuple[_Region, bool]:
        """The next region: wider where a price is stopped on the same side again, narrower where
        it has arrived. Also whether any was stopped."""
        side = np.where(ratio >= 1 + width * 0.999, 1.0, 0.0)
        side[ratio <= 1 / (1 + width * 0.999)] = -1.0
        change = np.maximum(ratio, 1 / ratio) - 1
        wider = np.where(side == self.side, 4.0, 1.5)
        new = np.where(side == 0, np.maximum(2 * change, self.prices / 4), self.prices * wider)
        held = bool((side != 0).any())
        new = np.clip(new, 1e-7, 100.0)
        return _Region(new, min(max(2 * t, self.t / 4, 1e-7), 0.5), side), held


def _unsure(margin: Floats, most: int) -> tuple[Mask, float]:
    """Whose mix may change, at most `most`; and for which part of the region that is all."""
    unsure = margin <= 1.0
    if np.count_nonzero(unsure) <= most:
        return unsure, 1.0
    first = np.argpartition(margin, most)[: most + 1]
    unsure = np.zeros(len(margin), np.bool_)
    unsure[first] = True
    return unsure, max(float(margin[first].max()), 1e-7)


def _least(blocks: Blocks, prices: Floats, t: float) -> float:
    """A price that makes no difference to the objective, but to ties."""
    total = max(dot(prices, blocks.capacity), blocks.hope * t)
    return 1e-10 * total / float(blocks.capacity.sum()) + 1e-12


def _sampled(blocks: Blocks, gap: float, steps: int, stop: Stop | None) -> Start:
    """Prices from a sample with its part of the machines."""
    size = max(DIRECT, blocks.jobs // SHRINK)
    at = np.sort(np.random.default_rng(0).permutation(blocks.jobs)[:size])
    part = blocks.part(at)
    share = part.take.sum() / blocks.take.sum()
    moves = part.pace.sum() / max(blocks.pace.sum(), 1e-300)
    part = part._replace(capacity=blocks.capacity * share, hope=blocks.hope * moves)
    try:
        found = optimum(part, max(gap, 1e-4), steps, None, stop)
    except Infeasible:  # the sample asks for more than its part of the machines
        found = optimum(part._replace(floor=np.zeros(size)), max(gap, 1e-4), steps)
    return Start(found.prices, found.t, 2.0 / np.sqrt(size))


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
    blocks: Blocks, chosen: Choice, unsure: Mask, around: Floats, span: tuple[float, float]
) -> _Step:
    """The programme over the unsure jobs, the settled ones as sums that are linear in t.

    Machines can be sold and bought at the lower and upper prices `around`, so that it has a
    solution, and prices stay where only the unsure can change their mind.
    """
    settled = np.flatnonzero(~unsure)
    part = blocks.part(settled)
    mine = chosen.part(settled)
    mix = lines(part, mine)
    constant, slope, gained = _sums(part, mine, mix)
    some = blocks.part(np.flatnonzero(unsure))
    some = some._replace(capacity=blocks.capacity - constant, hope=blocks.hope + gained[1])
    solved = _solve(
        some, slope, (max(mix.start, span[0]), min(mix.stop, span[1], blocks.top)), around
    )
    value = gained[0] + float(some.hope * solved.t)
    if some.gain is not None:
        value += float((some.gain * solved.x).sum())
    feasible = solved.bought <= 1e-9 * blocks.capacity.max()
    return _Step(solved.x, solved.t, value, solved.prices, solved.worth, feasible)


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
    return constant, slope, (
        dot(low, rest) + dot(high, mix.constant), dot(high - low, mix.slope)
    )  # fmt: skip


class _Solved(NamedTuple):
    x: Floats
    t: float
    prices: Floats
    worth: Floats
    bought: float


def _solve(
    blocks: Blocks, slope: Floats, span: tuple[float, float], around: Floats | None = None,
    begin: Choice | None = None,
) -> _Solved:  # fmt: skip
    """The programme as it is. `slope`: machines that others take per t; `span`: of t; `around`: at
    which prices machines are sold and bought, None for not at all; `begin`: a first solution."""
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
    basis = None if begin is None else _basis(blocks, begin, (column, job), asked, bounded)
    solved = maximise(Model(gain, matrix, least, most, lower, upper), basis=basis)
    return _read(blocks, solved, (column, job), asked)


def _basis(
    blocks: Blocks, begin: Choice, where: tuple[Ints, Ints], asked: Ints, bounded: Ints
) -> Basis:
    """The basis of what all choose: their mixes, and the rows that these leave open."""
    m, k = len(blocks.rate), len(blocks.capacity)
    column, job = where
    mixed = (column == begin.low[job]) | (column == begin.high[job])
    nothing = begin.high == m
    slack = nothing | (begin.low == begin.high), nothing | (begin.low == m)
    return Basis(
        np.concatenate([mixed, np.zeros(1 + 2 * k, np.bool_)]),
        np.concatenate([np.ones(k, np.bool_), slack[0][asked], slack[1][bounded]]),
    )


def _read(blocks: Blocks, solved: Solution, where: tuple[Ints, Ints], asked: Ints) -> _Solved:
    k, count = len(blocks.capacity), len(where[0])
    x, worth = np.zeros(blocks.rate.shape), np.zeros(blocks.jobs)
    x[where] = solved.x[:count]
    worth[asked] = np.maximum(solved.duals[k : k + len(asked)], 0.0)
    bought = solved.x[count + 1 : count + 1 + k]
    prices = np.maximum(solved.duals[:k], 0.0)
    return _Solved(x, float(solved.x[count]), prices, worth, float(bought.max(initial=0.0)))


def _as_chosen(blocks: Blocks, chosen: Choice, prices: Floats, t: float, done: int) -> Found:
    x = spread(blocks, chosen, lines(blocks, chosen), t)
    bound = bound_at(blocks, prices, chosen)
    return Found(x, t, bound, bound, prices, chosen.worth, done)


def _assembled(
    blocks: Blocks, chosen: Choice, again: Choice, unsure: Mask, step: _Step, bound: float,
    done: int,
) -> Found:  # fmt: skip
    settled = np.flatnonzero(~unsure)
    part, mine = blocks.part(settled), chosen.part(settled)
    x, worth = np.zeros(blocks.rate.shape), again.worth.copy()
    x[:, settled] = spread(part, mine, lines(part, mine), step.t)
    x[:, unsure] = step.x
    worth[unsure] = step.worth
    return Found(x, step.t, step.value, bound, step.prices, worth, done)


def _all_at_once(blocks: Blocks) -> Found:
    solved = _solve(blocks, np.zeros(len(blocks.capacity)), (0.0, blocks.top))
    value = blocks.hope * solved.t
    if blocks.gain is not None:
        value += float((blocks.gain * solved.x).sum())
    return Found(solved.x, solved.t, value, value, solved.prices, solved.worth, 1)


__all__ = ["Found", "Infeasible", "Start", "Stop", "optimum"]
