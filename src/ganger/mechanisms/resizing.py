"""Rules that resize what runs: who shrinks to let others in, and who grows into what is left.

Each takes a view and a market and gives sizes in steps, 0 for none, like those of `elastic`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from ganger.core.jobs import Phase
from ganger.core.units import HOUR, NEVER
from ganger.core.view import View
from ganger.mechanisms.elastic import Market, Rule
from ganger.mechanisms.fair import demands
from ganger.mechanisms.gain import Curve, grow, knee, shrink
from ganger.mechanisms.order import Levels
from ganger.solve.knapsack import multi_knapsack

Utility: TypeAlias = Callable[[NDArray[np.float64]], NDArray[np.float64]]
"""What completing after so many microseconds is worth; falls with time."""


def held(view: View, market: Market) -> list[int]:
    """The steps that each job runs on now."""
    sizes = view.jobs.size[market.ids].tolist()
    return [size // unit for size, unit in zip(sizes, market.units, strict=True)]


def asked(view: View, market: Market) -> list[int]:
    """The steps that each job asks for, no fewer than its least and no more than it can use."""
    gpus = view.jobs.gpus[market.ids].tolist()
    rows = zip(gpus, market.units, market.least, market.curves, strict=True)
    return [min(max(want // unit, low), len(curve)) for want, unit, low, curve in rows]


def left_over(market: Market, sizes: Sequence[int]) -> int:
    """GPUs that `sizes` do not take."""
    taken = sum(size * unit for size, unit in zip(sizes, market.units, strict=True))
    return market.capacity - taken


def speed_gains(market: Market) -> list[Curve]:
    """What each next step adds to a job's speedup over one step, per GPU."""
    return [
        np.diff(curve / curve[0]) / unit
        for curve, unit in zip(market.curves, market.units, strict=True)
    ]


def time_gains(market: Market) -> list[Curve]:
    """What each next step takes off a job's remaining time, per GPU."""
    rows = zip(market.curves, market.work.tolist(), market.units, strict=True)
    return [np.diff(-work / curve) / unit for curve, work, unit in rows]


def up_to_knee(tolerance: float) -> Rule:
    """MARBLE: first come, first served, everybody gets the GPUs at the knee of its curve, fewer if
    only fewer are free; who runs grows up to its knee when GPUs become free."""

    def rule(view: View, market: Market) -> list[int]:
        sizes, left = [0] * len(market.ids), market.capacity
        rows = zip(market.curves, market.least, market.units, strict=True)
        for i, (curve, low, unit) in enumerate(rows):
            want = min(max(knee(curve, tolerance), low), left // unit)
            if want >= low:
                sizes[i] = want
                left -= want * unit
        return sizes

    return rule


def by_least_loss(view: View, market: Market) -> list[int]:
    """Wang et al.: who arrives gets its least from whoever loses least remaining time by it; what
    is free goes where remaining time falls most."""
    sizes, gains = held(view, market), time_gains(market)
    for i, low in enumerate(market.least):
        if sizes[i]:
            continue
        room = left_over(market, sizes)
        missing = low * market.units[i] - room
        smaller = sizes if missing <= 0 else shrink(
            sizes, gains, market.least, missing, market.units
        )  # fmt: skip
        if smaller is not None:
            sizes = [*smaller]
            sizes[i] = low
    return grow(sizes, gains, left_over(market, sizes), market.units)


def into_idle(view: View, market: Market) -> list[int]:
    """Elan: those who run, then those who wait, first come, first served, get their least, and
    smaller ones pass; then each idle GPU goes where it adds most speed."""
    runs = held(view, market)
    order = sorted(range(len(runs)), key=lambda i: (not runs[i], i))
    sizes = _walk(market, order, market.least)
    return grow(sizes, speed_gains(market), left_over(market, sizes), market.units)


def by_levels(levels: Levels, many: int) -> Rule:
    """Elastic-Tiresias (EDL): the walk of Tiresias' queues at the sizes asked for; if that leaves
    more than `many` waiting, those below the top queue are content with their least. What is left
    goes where it adds most speed."""

    def rule(view: View, market: Market) -> list[int]:
        ids, usual = market.ids.tolist(), asked(view, market)
        order = sorted(range(len(ids)), key=lambda i: (*levels.key(view, ids[i]), ids[i]))
        sizes = _walk(market, order, usual)
        if sizes.count(0) > many:
            top = [levels.level(view, job) == 0 for job in ids]
            rows = zip(usual, market.least, top, strict=True)
            sizes = _walk(market, order, [want if up else low for want, low, up in rows])
        return grow(sizes, speed_gains(market), left_over(market, sizes), market.units)

    return rule


def _walk(market: Market, order: Sequence[int], wants: Sequence[int]) -> list[int]:
    """What everybody wants, in `order`, where there is room."""
    sizes, left = [0] * len(wants), market.capacity
    for i in order:
        if wants[i] * market.units[i] <= left:
            sizes[i] = wants[i]
            left -= wants[i] * market.units[i]
    return sizes


def next_level(levels: Levels, view: View) -> int:
    """When the next running job changes its queue."""
    running = view.active[view.jobs.phase[view.active] == Phase.RUNNING]
    return min((levels.until(view, job) for job in running.tolist()), default=NEVER)


def patiently(patience: int, quiet: int) -> Rule:
    """DRAGON: who waits starts as it asks, first come, first served, and smaller ones pass. Once
    the first has waited for `patience` microseconds, those who run shrink towards their least to
    let it in at its least. Where GPUs are idle and nothing was done for `quiet`, those who run
    grow."""

    def rule(view: View, market: Market) -> list[int]:
        before = held(view, market)
        sizes, usual = list(before), asked(view, market)
        waiting = [i for i, size in enumerate(before) if not size]
        for i in waiting:
            if usual[i] * market.units[i] <= left_over(market, sizes):
                sizes[i] = usual[i]
        late = [i for i in waiting if not sizes[i]]
        if late and view.now - view.at.pending_since[int(market.ids[late[0]])] >= patience:
            sizes = _let_in(market, sizes, late[0])
        if sizes == before and view.now - _last_change(view) >= quiet:
            for i, size in enumerate(sizes):
                more = left_over(market, sizes) // market.units[i]
                if size and more > 0:
                    sizes[i] = min(size + more, len(market.curves[i]))
        return sizes

    return rule


def _let_in(market: Market, sizes: list[int], job: int) -> list[int]:
    """The sizes with which `job` has its least, those with most above theirs giving first."""
    missing = market.least[job] * market.units[job] - left_over(market, sizes)
    losses = [-np.arange(2.0, len(curve) + 1) + low
              for curve, low in zip(market.curves, market.least, strict=True)]  # fmt: skip
    smaller = sizes if missing <= 0 else shrink(sizes, losses, market.least, missing, market.units)
    if smaller is None:
        return sizes
    smaller = [*smaller]
    smaller[job] = market.least[job]
    return smaller


def _last_change(view: View) -> int:
    """When somebody was last started or resized."""
    return int(view.jobs.held_since[view.active].max(initial=0))


def patience_ends(patience: int, quiet: int, view: View) -> int:
    """When the first who waits has waited enough, or it has been quiet for long enough."""
    waiting = [job for job in view.pending.tolist() if view.draft.holds(job) is None]
    ends = [view.at.pending_since[job] + patience for job in waiting[:1]]
    if len(view.active) and view.ledger.free:
        ends.append(_last_change(view) + quiet)
    return min((end for end in ends if end > view.now), default=NEVER)


def by_knapsack(utility: Utility, epsilon: float, effort: int, few: int = 12) -> Rule:
    """SMD: every job names the size that it wants, the least within `epsilon` of its fastest; a
    knapsack over GPUs, CPUs and host memory picks those whose `utility` of completing is largest in
    all. Who was not picked gets its least while there is room.

    `effort`: how many jobs the knapsack tries out as its first ones, where at most `few` compete.
    """

    def rule(view: View, market: Market) -> list[int]:
        ids = market.ids
        rows = zip(market.curves, market.least, market.units, strict=True)
        sizes = [max(min(knee(curve, epsilon), market.capacity // unit), low)
                 for curve, low, unit in rows]  # fmt: skip
        speed = np.array([curve[size - 1]
                          for curve, size in zip(market.curves, sizes, strict=True)])  # fmt: skip
        done = view.now + market.work / speed - view.jobs.submitted[ids]
        values = np.maximum(view.jobs.weight[ids] * utility(done), 0.0)
        taken = np.array(sizes) * np.array(market.units, np.int64)
        demand = demands(view, ids) * (taken / np.maximum(view.jobs.gpus[ids], 1))[:, None]
        total = max(view.ledger.total, 1)
        demand[:, 0] = taken / total
        room = np.array([market.capacity / total, 1.0, 1.0])
        chosen = multi_knapsack(values, demand, room, effort if len(ids) <= few else 0)
        out = [size if i in set(chosen) else 0 for i, size in enumerate(sizes)]
        for i, low in enumerate(market.least):
            if not out[i] and low * market.units[i] <= left_over(market, out):
                out[i] = low
        return out

    return rule


def hourly(done: NDArray[np.float64]) -> NDArray[np.float64]:
    """The utility of a job that is done after so many microseconds: it halves every hour at first,
    and is never nothing."""
    return 1.0 / (1.0 + np.maximum(done, 0.0) / HOUR)
