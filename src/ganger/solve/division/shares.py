"""The linear programmes over shares of time: the smallest throughput, or a sum, at its largest.

Both scale the numbers, merge equal jobs, divide by prices (`prices`), and certify the answer on
the numbers as given: x is made feasible, and the bound is that of weak duality.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from ganger.solve.division.blocks import Blocks
from ganger.solve.division.classes import Classes, classes
from ganger.solve.division.prices import Found, Start, Stop, optimum
from ganger.solve.division.programme import TINY, Answer, Floats, Ints, Mask, Shares, dot, fitted
from ganger.solve.division.sole import Sole, knapsack, level, sole, time_for
from ganger.solve.highs import Infeasible

GAP = 1e-6
"""How far from the best an answer may be, relatively."""
STEPS = 40
"""How many small programmes one answer may take before HiGHS gets it whole."""


class Warm(NamedTuple):
    """Where a like programme ended: prices and t as it was posed, and how far off they may be."""

    prices: Floats
    t: float
    reach: float = 0.02


def max_min(
    posed: Shares,
    pace: Floats,
    floor: Floats | None = None,
    *,
    gap: float = GAP,
    steps: int = STEPS,
    warm: Warm | None = None,
    stop: Stop | None = None,
    rough: float = 0.0,
) -> Answer:
    """The largest t for which everybody reaches eff_i >= floor_i + pace_i t at once.

    `pace` >= 0, somewhere above 0. `prices` and `worth` are per unit of t; `worth` is 0 for those
    that could rise further without anybody falling. `rough`: it is enough to know prices but for
    this part of them. Raises Infeasible if the floors cannot be had.
    """
    floor = np.zeros(len(pace)) if floor is None else floor
    asked = (pace > 0) | (floor > 0)
    if not asked.all():
        return _of_some(
            posed,
            np.flatnonzero(asked),
            lambda few, at: max_min(
                few, pace[at], floor[at], gap=gap, steps=steps, warm=warm, stop=stop, rough=rough
            ),
        )
    if (one := sole(posed)) is not None:
        t, price, worth = level(one, pace, floor)
        x = fitted(posed, time_for(posed, floor + pace * t), floor)
        return _certified(posed, x, (np.array([price]), worth), pace, floor, 1)
    merged = classes([posed.rate, posed.scale, posed.limit, floor, pace])
    few, count = _merged(posed, merged), merged.size
    low, rise, cap = floor[merged.first], pace[merged.first], few.fastest()
    moves = rise > 0
    alone = float(((cap - low)[moves] / rise[moves]).min())
    _check_alone(cap, low, merged)
    best = np.maximum(few.rate.max(axis=1, initial=0.0), TINY)
    unit = few.capacity.sum() / max(dot(few.scale / count, rise / best * count), TINY)
    unit = min(alone, unit) if 0 < alone < np.inf else unit
    share = np.minimum(few.limit, (low + rise * unit) / best)
    share[share <= 0] = np.minimum(few.limit, 1.0)[share <= 0]
    blocks = Blocks(
        np.ascontiguousarray((few.rate / best[:, None]).T),
        None,
        few.scale * share,
        few.limit / share,
        low / best / share,
        rise * unit / best / share,
        few.capacity,
        few.kind,
        float(moves.sum()),
        alone / unit,
    )
    hope = blocks.hope / unit
    start = None if warm is None else Start(warm.prices * hope, warm.t / unit, warm.reach)
    found = optimum(blocks, gap / 2, steps, start, stop, rough)
    x = fitted(posed, (found.x.T * share[:, None])[merged.of], floor)
    worth = (found.worth / best / share / count)[merged.of]
    return _certified(posed, x, (found.prices, worth), pace, floor, found.steps)


def _of_some(posed: Shares, at: Ints, solve: Callable[[Shares, Ints], Answer]) -> Answer:
    """The answer for those of whom something is asked; the others get nothing."""
    found = solve(posed.part(at), at)
    x, worth = np.zeros(posed.rate.shape), np.zeros(len(posed.rate))
    x[at], worth[at] = found.x, found.worth
    return found._replace(x=x, worth=worth)


def _certified(
    posed: Shares, x: Floats, dual: tuple[Floats, Floats], pace: Floats, floor: Floats, steps: int
) -> Answer:
    """What `x` reaches, and the bound that the `dual` (prices and worths) proves."""
    moves = pace > 0
    value = float(((posed.effective(x) - floor)[moves] / pace[moves]).min())
    prices, worth, bound = _proved(posed, *dual, pace, floor)
    room = (posed.fastest() - floor)[moves] / pace[moves]
    alone = float(room.min())
    if alone <= bound:  # somebody is at the most that all machines would give
        prices, worth, bound = np.zeros(len(prices)), np.zeros(len(pace)), alone
        last = np.flatnonzero(moves)[np.argmin(room)]
        worth[last] = 1.0 / pace[last]
    return Answer(x, value, max(bound, value), prices, worth, steps)


def _check_alone(cap: Floats, low: Floats, merged: Classes) -> None:
    short = cap < low * (1 - 1e-9)
    if short.any():
        raise Infeasible(np.flatnonzero(short[merged.of]))


def _merged(posed: Shares, merged: Classes) -> Shares:
    few = posed.part(merged.first)
    return few._replace(scale=few.scale * merged.size)


def _spare(posed: Shares, prices: Floats, worth: Floats, gain: Floats | None) -> Floats:
    """What one more unit of limit would be worth to each: the dual's slack."""
    spare = np.zeros(len(worth))
    for column, kind in enumerate(posed.kind.tolist()):
        profit = worth * posed.rate[:, column] - prices[kind] * posed.scale
        np.maximum(spare, profit if gain is None else profit + gain[:, column], out=spare)
    return spare


def _dual(
    posed: Shares, prices: Floats, worth: Floats, floor: Floats, gain: Floats | None = None
) -> tuple[Floats, float]:
    """A worth that is feasible in the dual, and the dual's value there."""
    free = np.flatnonzero(~np.isfinite(posed.limit))
    if len(free):
        worth = worth.copy()
        paid = posed.scale[free, None] * prices[posed.kind]
        paid = paid if gain is None else paid - gain[free]
        rate = posed.rate[free]
        most = np.where(rate > 0, paid / np.maximum(rate, TINY), np.inf).min(axis=1)
        worth[free] = np.clip(worth[free], 0.0, np.maximum(most, 0.0))
    spare = _spare(posed, prices, worth, gain)
    spare[free] = 0.0
    kept = np.where(np.isfinite(posed.limit), posed.limit, 0.0)
    return worth, dot(prices, posed.capacity) + dot(spare, kept) - dot(worth, floor)


def _proved(
    posed: Shares, prices: Floats, worth: Floats, pace: Floats, floor: Floats
) -> tuple[Floats, Floats, float]:
    """Prices and worths per unit of t, and the bound that they prove."""
    worth, total = _dual(posed, prices, worth, floor)
    raised = dot(worth, pace)
    if raised <= 0:
        return prices, worth, np.inf
    return prices / raised, worth / raised, total / raised


def max_sum(
    posed: Shares,
    gain: Floats,
    floor: Floats | None = None,
    *,
    gap: float = GAP,
    steps: int = STEPS,
    warm: Warm | None = None,
    stop: Stop | None = None,
) -> Answer:
    """The largest sum of gain_ic x_ic where eff_i >= floor_i; time where nothing can be done is
    never given. Raises Infeasible if the floors cannot be had, Unbounded if the sum has no end.
    """
    floor = np.zeros(len(gain)) if floor is None else floor
    gain = np.where(posed.rate > 0, gain, 0.0)
    if (one := sole(posed)) is not None:
        x, price, worth = knapsack(posed, one, gain, floor)
        return _valued(posed, gain, floor, fitted(posed, x, floor), (np.array([price]), worth), 1)
    merged = classes([posed.rate, posed.scale, posed.limit, floor, gain])
    few, count, low = _merged(posed, merged), merged.size, floor[merged.first]
    _check_alone(few.fastest(), low, merged)
    best = np.maximum(few.rate.max(axis=1, initial=0.0), TINY)
    share = np.where(np.isfinite(few.limit), few.limit, 1.0)
    wanted = gain[merged.first] * (count * share)[:, None]
    unit = float(np.abs(wanted).max(axis=1).mean()) or 1.0
    blocks = Blocks(
        np.ascontiguousarray((few.rate / best[:, None]).T),
        np.ascontiguousarray(wanted.T / unit),
        few.scale * share,
        few.limit / share,
        low / best / share,
        np.zeros(len(low)),
        few.capacity,
        few.kind,
        0.0,
    )
    start = None if warm is None else Start(warm.prices / unit, 0.0, warm.reach)
    found = optimum(blocks, gap / 2, steps, start, stop)
    return _summed(posed, gain, floor, found, (share, best, merged, unit))


def _summed(
    posed: Shares,
    gain: Floats,
    floor: Floats,
    found: Found,
    scaling: tuple[Floats, Floats, Classes, float],
) -> Answer:
    share, best, merged, unit = scaling
    x = _held(posed, fitted(posed, (found.x.T * share[:, None])[merged.of], floor), floor)
    worth = (found.worth * unit / best / share / merged.size)[merged.of]
    return _valued(posed, gain, floor, x, (found.prices * unit, worth), found.steps)


def _valued(
    posed: Shares, gain: Floats, floor: Floats, x: Floats, dual: tuple[Floats, Floats], steps: int
) -> Answer:
    prices = dual[0]
    worth, bound = _dual(posed, *dual, floor, gain)
    value = float(np.einsum("ic,ic->", gain, x))
    return Answer(x, value, max(bound, value), prices, worth, steps)


def _held(posed: Shares, x: Floats, floor: Floats) -> Floats:
    """`x`, or where a search that was stopped left some below their floors, as much of it as can
    be had beside a division that keeps them. Raises Infeasible if there is none."""
    eff = posed.effective(x)
    if (eff >= floor * (1 - SLACKS[1])).all():
        return x
    safe = max_min(posed, floor)
    if safe.value < 1 - SLACKS[1]:
        raise Infeasible(np.flatnonzero(safe.worth > 0))
    kept = posed.effective(safe.x)
    short = eff < floor
    part = ((kept - floor)[short] / (kept - eff)[short]).min()
    part = min(max(float(part), 0.0), 1.0)
    mixed: Floats = part * x + (1 - part) * safe.x
    return mixed


class SharesPool(NamedTuple):
    """The shares as a search asks them (`search.Pool`)."""

    posed: Shares
    stop: Stop | None = None

    def max_min(self, pace: Floats, warm: Warm | None = None, rough: float = 0.0) -> Answer:
        """The largest t with eff >= pace t, closely, or with prices but for a part of `rough`."""
        return max_min(self.posed, pace, gap=1e-9, warm=warm, stop=self.stop, rough=rough)

    def throughput(self, answer: Answer) -> Floats:
        """eff of an answer."""
        return self.posed.effective(answer.x)

    def fastest(self, free: Mask) -> Floats:
        """The most that each could do on the `free` kinds."""
        return self.posed.fastest(free)

    def sole(self) -> Sole | None:
        """The only kind of machines, if there is but one."""
        return sole(self.posed)


SLACKS = (0.0, 1e-9, 1e-6)
"""Relative room given to a floor that an earlier programme found, tried in turn, so that rounding
in the solver cannot make it infeasible."""


def efficient(posed: Shares, floor: Floats, gain: Floats, warm: Warm | None = None) -> Answer:
    """Of all x with eff >= floor, known to be within reach, one with the largest total gain."""
    for slack in SLACKS:
        try:
            return max_sum(posed, gain, floor * (1 - slack), warm=warm)
        except Infeasible:
            continue
    raise ArithmeticError("a floor that was reached before cannot be reached any more")


__all__ = ["GAP", "STEPS", "Infeasible", "Ints", "Warm", "efficient", "max_min", "max_sum"]
