"""Water-filling: raise all, freeze those that can get no more, raise the others, and so on.

Which jobs stop because a whole share of the fastest machine gives no more is known beforehand, so
that one search passes all of them; the other bottlenecks are read off the duals, so that no integer
programme is needed. As every round exhausts a kind of machines, there are few.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from typing import NamedTuple, TypeAlias

import numpy as np

from ganger.solve.division.prices import Stop
from ganger.solve.division.programme import TINY, Answer, Floats, Mask, dot
from ganger.solve.division.search import Level, Pool, largest
from ganger.solve.division.shares import Warm
from ganger.solve.division.sole import Sole
from ganger.solve.waterfill import water_fill

SLACK = 2e-8
"""A part of a level that may be lost in a round."""
PAID = 1e-7
"""What a bottleneck's level is worth at least, as a part of the largest."""
EVENTS = 128
"""Jobs that may stop within one search where that changes how fast the others rise."""

Paces: TypeAlias = Callable[[Mask], Floats]
"""How fast each still open job rises, as a multiple of its unit; 0: not yet."""


class Filled(NamedTuple):
    """Everybody's level; the largest smallest multiple of its unit among those that rose at first,
    with its bound and prices; and the last answer, which reaches all levels."""

    level: Floats
    even: Answer
    answer: Answer
    rounds: int


class _Path(NamedTuple):
    """Levels as straight lines between times; the last line goes on to `top`."""

    times: list[float]
    levels: list[Floats]
    paces: list[Floats]
    cap: Floats
    top: float

    def at(self, time: float) -> Floats:
        """All levels at a time."""
        line = max(bisect_right(self.times, time) - 1, 0)
        risen = self.levels[line] + self.paces[line] * (time - self.times[line])
        level: Floats = np.minimum(risen, self.cap)
        return level


def water_filling(
    pool: Pool,
    capacity: Floats,
    unit: Floats,
    pace_of: Paces | None = None,
    steps: int = 60,
    stop: Stop | None = None,
) -> Filled:
    """Lexicographic max-min of eff / unit. `pace_of`: as all alike where None.

    Ends after at most two rounds for each job, nearly always after one for each kind, or with the
    round in which `stop` says so.
    """
    if (one := pool.sole()) is not None:
        return _filled_on(one, pool, unit, pace_of)
    free = np.ones(len(capacity), np.bool_)
    cap = pool.fastest(free)
    level, open_ = np.zeros(len(unit)), (unit > 0) & (cap > 0)
    even: Answer | None = None
    answer: Answer | None = None
    warm: Warm | None = None
    rounds = 0
    while open_.any() and rounds <= 2 * len(unit) and not (rounds and stop is not None and stop()):
        known = None
        if even is None:
            first = _rising(open_, unit, pace_of)
            if not first.any():
                break
            even = known = pool.max_min(first)
        cut = None if known is None else (known.worth, known.bound)
        path = _path(level, open_, cap, unit, pace_of, cut)
        if path.top <= 0:
            break
        found = largest(
            pool,
            path.at,
            path.top,
            path.top,
            gap=SLACK / 2,
            steps=steps,
            slack=SLACK,
            warm=warm,
            stop=stop,
            known=known,
        )
        before = level
        level = np.minimum(path.at(found.value), pool.throughput(found.answer))
        risen = open_ & (level > before * (1 + SLACK))
        answer = found.answer if risen.any() or answer is None else answer
        rounds += 1
        warm = Warm(answer.prices, 1.0, 0.1)
        moving = open_ & (path.paces[0] > 0)
        open_ = _still_open(path, found, open_, level, risen if risen.any() else moving)
        if len(found.prices):
            paid = found.prices * capacity
            free &= paid <= PAID * max(float(paid.sum()), TINY)
            cap = np.where(open_, np.minimum(cap, pool.fastest(free)), level)
            open_ &= level < cap * (1 - 2 * SLACK)
    if answer is None or even is None:
        raise ArithmeticError("water-filling: nobody can rise")
    return Filled(level, even, answer, rounds)


def _filled_on(one: Sole, pool: Pool, unit: Floats, pace_of: Paces | None) -> Filled:
    """The same on one kind of machines, which are the only bottleneck but for what each can do."""
    level, rounds = np.zeros(len(unit)), 0
    even: Answer | None = None
    while True:
        open_ = (unit > 0) & (level < one.cap * (1 - SLACK))
        cut = one.cost, one.capacity
        path = _path(level, open_, one.cap, unit, pace_of, cut) if open_.any() else None
        if path is None or path.top <= 0:
            break
        time, level = _full(one, path, level, unit, open_ if pace_of is None else None)
        even = even or pool.max_min(path.paces[0])
        rounds += 1
        if time < path.top:
            break
    if even is None:
        raise ArithmeticError("water-filling: nobody can rise")
    return Filled(level, even, pool.max_min(level), rounds)


def _full(
    one: Sole, path: _Path, level: Floats, unit: Floats, alike: Mask | None
) -> tuple[float, Floats]:
    """When the machines are all in use, and the levels then; `path.top` if they are not before.
    `alike`: who rises by its unit until it is at its cap."""
    if alike is not None:
        filled = water_fill(one.capacity, np.where(alike, one.cost * unit, 0.0), one.cost * one.cap)
        level = np.where(alike, filled / np.maximum(one.cost, TINY), level)
        return float((level / np.maximum(unit, TINY))[alike].max()), level
    used = [dot(one.cost, each) for each in path.levels]
    # By rounding the machines may be over-full where the path begins: then nobody rises.
    line = max(bisect_right(used, one.capacity) - 1, 0)
    if line + 1 >= len(used):
        return path.top, path.levels[-1]
    room = (one.capacity - used[line]) / max(dot(one.cost, path.paces[line]), TINY)
    time = min(path.times[line] + max(room, 0.0), path.top)
    return time, path.at(time)


def _path(
    level: Floats,
    open_: Mask,
    cap: Floats,
    unit: Floats,
    pace_of: Paces | None,
    cut: tuple[Floats, float] | None = None,
) -> _Path:
    """How all rise until they are at their caps, or for certain beyond what can be had: throughputs
    times the first of `cut` add up to the second at most."""
    if pace_of is None:
        pace = _rising(open_, unit, None)
        room = np.where(open_, (cap - level) / np.maximum(unit, TINY), 0.0)
        return _Path([0.0], [level], [pace], cap, float(room.max()))
    times, levels, paces, time = [0.0], [level], list[Floats](), 0.0
    left = open_.copy()
    for _ in range(EVENTS):
        pace = _rising(left, unit, pace_of)
        moving = pace > 0
        paces.append(pace)
        if not moving.any():
            break
        room = np.where(moving, (cap - levels[-1]) / np.maximum(pace, TINY), np.inf)
        step = max(float(room.min()), 0.0)
        level = np.minimum(levels[-1] + pace * step, cap)
        stopped = moving & (room <= step * (1 + 1e-12))
        level[stopped] = cap[stopped]
        left = left & ~stopped
        time += step
        times.append(time)
        levels.append(level)
        if not left.any() or (cut is not None and dot(cut[0], level) > cut[1] * (1 + SLACK)):
            break
    paces += [np.zeros(len(cap))] * (len(times) - len(paces))
    return _Path(times, levels, paces, cap, time)


def _rising(open_: Mask, unit: Floats, pace_of: Paces | None) -> Floats:
    pace: Floats = np.where(open_, unit if pace_of is None else pace_of(open_) * unit, 0.0)
    return pace


def _still_open(path: _Path, found: Level, open_: Mask, level: Floats, risen: Mask) -> Mask:
    """Open are those below the cap whose throughput costs nobody anything."""
    full = level >= path.cap * (1 - 2 * SLACK)
    if found.value >= path.top * (1 - 1e-12):
        return open_ & ~full
    paid = found.worth * level
    tight = risen & (paid > PAID * max(float(paid.max(initial=0.0)), TINY))
    if not ((tight | full) & open_).any():
        tight = risen
    still: Mask = open_ & ~full & ~tight
    return still
