"""The best of a family of demands: one number is searched, the programme is asked at each.

Whatever demands rise together in one number (finish-time fairness, levels that stop at what a job
can do at most), the largest number within reach is between what an answer reaches and where the
dual of that answer forbids more. The second is where to ask next, which converges like Newton's
method: a handful of programmes instead of a bisection.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple, Protocol

import numpy as np

from ganger.solve.division.prices import Stop
from ganger.solve.division.programme import Answer, Floats, Mask, dot
from ganger.solve.division.shares import GAP, Warm
from ganger.solve.division.sole import Sole
from ganger.solve.highs import Infeasible

ROUGH = 0.03
"""How well prices are known at the end of the first programme, far from where the search ends."""
AHEAD = 4.0
"""By how much more than the number searched for prices move from one programme to the next."""


class Pool(Protocol):
    """What a search asks: everybody's throughput can be scaled up to what multiple of `pace`?"""

    def max_min(self, pace: Floats, warm: Warm | None = None, rough: float = 0.0) -> Answer:
        """The largest t with eff >= pace t; `rough`: prices will do that are off by this part."""
        ...

    def throughput(self, answer: Answer) -> Floats:
        """eff of an answer."""
        ...

    def fastest(self, free: Mask) -> Floats:
        """The most that each could do with all machines of the `free` kinds to itself."""
        ...

    def sole(self) -> Sole | None:
        """The only kind of machines where there is but one and nobody shares: then what is within
        reach is known without asking a programme. None otherwise."""
        ...


class Level(NamedTuple):
    """The number reached, the number that nothing exceeds, and the answer that reaches it.

    `worth`, `prices`: the dual that proves the bound: no division gives those of a worth above 0
    more than at `bound` without giving others less. 0 where `bound` is the `top` asked for.
    """

    value: float
    bound: float
    answer: Answer
    worth: Floats
    prices: Floats
    steps: int

    @property
    def gap(self) -> float:
        """Relative to the bound."""
        return (self.bound - self.value) / max(abs(self.bound), 1e-300)


def largest(
    pool: Pool,
    demand: Callable[[float], Floats],
    start: float,
    top: float,
    *,
    gap: float = GAP,
    steps: int = 60,
    slack: float = 0.0,
    warm: Warm | None = None,
    stop: Stop | None = None,
    known: Answer | None = None,
) -> Level:
    """The largest v <= `top` for which everybody reaches demand(v) at once.

    `demand` is 0 nowhere at `start`, rises in v and is finite up to `top`. A demand counts as
    reached if it is but for a part of `slack`. Ends within `gap`, after `steps` programmes, or
    once `stop` says so. `known`: an answer of the pool to whatever pace, where to begin instead.
    """
    if (one := pool.sole()) is not None:
        return _largest_on(one, pool, demand, start, top, slack)
    low, bound, best, at = 0.0, top, None, start
    worth, prices = np.zeros(len(demand(top))), np.zeros(0)
    done = 0
    while done < steps:
        rough = 0.0 if done or slack else ROUGH
        answer = known if known and not done else pool.max_min(demand(at), warm, rough)
        done += 1
        reached = pool.throughput(answer) / (1 - slack) * (1 + 1e-13)
        value = _last(partial(_within, demand, reached), low, bound)
        if best is None or value > low:
            low, best = max(value, low), answer
        most = answer.bound * (1 + max(slack / 4, 1e-12))
        if dot(answer.worth, demand(bound)) > 0:
            cut = _last(partial(_below, demand, answer.worth, most), low, bound)
            if cut < bound:
                bound, worth, prices = cut, answer.worth, answer.prices
        if bound - low <= gap * abs(bound) or (stop is not None and stop()):
            break
        last, at = at, bound if at != bound else 0.5 * (low + bound)
        reach = 0.02 if done == 1 else min(max(AHEAD * abs(at / last - 1), 1e-3), 0.02)
        warm = Warm(answer.prices, 1.0, max(reach, rough))
    assert best is not None
    return Level(low, max(bound, low), best, worth, prices, done)


def _largest_on(
    one: Sole, pool: Pool, demand: Callable[[float], Floats], start: float, top: float, slack: float
) -> Level:
    """The same on one kind of machines: a bisection of one sum."""
    value = _last(lambda at: one.within(demand(at) * (1 - slack - 1e-13)), 0.0, top)
    answer = pool.max_min(demand(value or start))
    if value >= top:
        return Level(value, top, answer, np.zeros(len(answer.worth)), np.zeros(0), 1)
    return Level(value, value, answer, answer.worth, answer.prices, 1)


def _within(demand: Callable[[float], Floats], reached: Floats, value: float) -> bool:
    return bool((demand(value) <= reached).all())


def _below(demand: Callable[[float], Floats], worth: Floats, most: float, value: float) -> bool:
    return dot(worth, demand(value)) <= most


def _last(holds: Callable[[float], bool], low: float, high: float) -> float:
    """The largest v in [low, high] where what holds at low still holds, to 15 digits; `high` where
    it holds throughout."""
    if holds(high):
        return high
    for _ in range(100):
        middle = 0.5 * (low + high)
        if not low < middle < high or high - low <= 1e-15 * high:
            break
        if holds(middle):
            low = middle
        else:
            high = middle
    return low


__all__ = ["Infeasible", "Level", "Pool", "largest"]
