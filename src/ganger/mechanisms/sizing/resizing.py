"""Rules that resize what runs: which jobs shrink to let others in, and which grow into what is
left.

Each takes a view and a market and gives sizes in steps, 0 for none, like those of `elastic`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from ganger.core.state.jobs import Phase
from ganger.core.units import HOUR, NEVER
from ganger.core.view import View
from ganger.mechanisms.fairness.fair import demands
from ganger.mechanisms.ordering.order import first_start
from ganger.mechanisms.sizing.elastic import Market, Rule, pools
from ganger.mechanisms.sizing.marginal_gain import (
    Curves,
    Floats,
    Ints,
    first_fit,
    grow,
    knees,
    shrink,
    time_gains,
)
from ganger.solve.knapsack import multi_knapsack

Utility: TypeAlias = Callable[[NDArray[np.float64]], NDArray[np.float64]]
"""What completing after so many microseconds is worth; falls with time."""


def held(view: View, market: Market) -> Ints:
    """The steps that each job runs on now."""
    return np.asarray(view.jobs.size[market.ids] // market.units)


def asked(view: View, market: Market) -> Ints:
    """The steps that each job asks for, no fewer than its least and no more than it can use."""
    steps = view.jobs.gpus[market.ids] // market.units
    return np.asarray(np.minimum(np.maximum(steps, market.least), market.most))


def left_over(market: Market, sizes: Ints) -> int:
    """GPUs that `sizes` do not take."""
    return market.capacity - int(sizes @ market.units)


def speed_gains(curves: Curves) -> Floats:
    """What each next step adds to a job's speedup over one step, per GPU."""
    gains: Floats = np.diff(curves.speed / curves.speed[:, :1], axis=1) / curves.units[:, None]
    return gains


def up_to_knee(tolerance: float) -> Rule:
    """MARBLE: first come, first served, each job gets the GPUs at the knee of its curve, fewer if
    only fewer are free; a running job grows up to its knee when GPUs become free."""

    def knee(curves: Curves) -> Ints:
        return np.maximum(knees(curves, tolerance), curves.least)

    def rule(view: View, market: Market) -> Ints:
        wants, units, left = market.each(knee), market.units, market.capacity
        whole = int((wants * units).cumsum().searchsorted(left, side="right"))
        sizes = np.where(np.arange(len(wants)) < whole, wants, 0)
        left -= int(sizes @ units)
        for i in range(whole, len(wants)):  # few of them are there before nothing is left
            if not left:
                break
            want = min(int(wants[i]), left // int(units[i]))
            if want >= market.least[i]:
                sizes[i] = want
                left -= want * int(units[i])
        return sizes

    return rule


def by_least_loss(view: View, market: Market) -> Ints:
    """Wang et al.: a job that arrives gets its least from the jobs that lose least remaining time
    by it; what is free goes where remaining time falls most."""
    curves, sizes = market.curves, held(view, market)
    gains = time_gains(curves, market.work)
    for i in np.flatnonzero(sizes == 0).tolist():
        low = int(curves.least[i])
        missing = low * int(curves.units[i]) - left_over(market, sizes)
        smaller = shrink(curves, sizes, gains, missing)
        if smaller is not None:
            sizes = smaller.copy()
            sizes[i] = low
    return grow(curves, sizes, gains, left_over(market, sizes))


def into_idle(view: View, market: Market) -> Ints:
    """Elan: running jobs, then waiting ones, first come, first served, get their least, and smaller
    ones pass; then each idle GPU goes where it adds most speed."""
    curves = market.curves
    order = np.argsort(held(view, market) == 0, kind="stable")
    sizes = _walk(market, order, curves.least)
    return grow(curves, sizes, speed_gains(curves), left_over(market, sizes))


def by_levels(thresholds: tuple[int, ...], many: int) -> Rule:
    """Elastic-Tiresias (EDL): the walk of Tiresias' queues at the sizes asked for; if that leaves
    more than `many` waiting, those below the top queue are content with their least. What is left
    goes where it adds most speed."""

    def rule(view: View, market: Market) -> Ints:
        ids, curves, usual = market.ids, market.curves, asked(view, market)
        level = np.searchsorted(sorted(thresholds), view.attained(ids), side="right")
        order = np.lexsort((ids, first_start(view, ids), level))
        sizes = _walk(market, order, usual)
        if (sizes == 0).sum() > many:
            sizes = _walk(market, order, np.where(level == 0, usual, curves.least))
        return grow(curves, sizes, speed_gains(curves), left_over(market, sizes))

    return rule


def _walk(market: Market, order: Ints, wants: Ints) -> Ints:
    """What everybody wants, in `order`, where there is room."""
    gets = np.zeros(len(wants), np.bool_)
    gets[order] = first_fit((wants * market.curves.units)[order], market.capacity)
    return np.where(gets, wants, 0)


def next_level(thresholds: tuple[int, ...], view: View) -> int:
    """When the next running job changes its queue."""
    jobs, ids = view.jobs, view.active
    ids = ids[(jobs.phase[ids] == Phase.RUNNING) & (jobs.size[ids] > 0)]
    attained, ladder = view.attained(ids), np.array(sorted(thresholds), np.int64)
    above = np.searchsorted(ladder, attained, side="right")
    ids, attained, above = (each[above < len(ladder)] for each in (ids, attained, above))
    ahead = -((attained - ladder[above]) // jobs.size[ids])
    return view.now + int(ahead.min()) if len(ids) else NEVER


class Claims:
    """GPUs that jobs which the rule does not see have waited for long enough; set anew before every
    decision."""

    __slots__ = ("gpus",)

    def __init__(self) -> None:
        self.gpus = 0


def patiently(patience: int, quiet: int) -> Rule:
    """DRAGON: a waiting job starts as it asks, first come, first served, and smaller ones pass.
    Once the first has waited for `patience` microseconds, running jobs shrink towards their least
    to let it in at its least; and so they do for what others claim (`Claims`). Where GPUs are idle
    and nothing was done for `quiet`, running jobs grow."""

    def rule(view: View, market: Market) -> Ints:
        before, usual = held(view, market), asked(view, market)
        waiting = np.flatnonzero(before == 0)
        starts = first_fit((usual * market.units)[waiting], left_over(market, before))
        sizes = before.copy()
        sizes[waiting[starts]] = usual[waiting[starts]]
        late = waiting[~starts]
        if len(late) and view.now - view.at.pending_since[int(market.ids[late[0]])] >= patience:
            sizes = _let_in(market, sizes, int(late[0]))
        claimed = view.cached(Claims).gpus - left_over(market, sizes)
        if claimed > 0:
            curves = market.curves
            smaller = shrink(curves, sizes, _above_least(curves), claimed)
            sizes = sizes if smaller is None else smaller
        if (sizes == before).all() and view.now - _last_change(view) >= quiet:
            left = left_over(market, sizes)
            may_grow = (sizes > 0) & (sizes < market.most)
            for i in np.flatnonzero(may_grow).tolist() if left else ():
                if not left:
                    break
                more = min(left // int(market.units[i]), int(market.most[i] - sizes[i]))
                sizes[i] += more
                left -= more * int(market.units[i])
        return sizes

    return rule


def _let_in(market: Market, sizes: Ints, job: int) -> Ints:
    """The sizes with which `job` has its least, those with most above theirs giving first."""
    curves = market.curves
    missing = int(curves.least[job] * curves.units[job]) - left_over(market, sizes)
    smaller = shrink(curves, sizes, _above_least(curves), missing)
    if smaller is None:
        return sizes
    smaller = smaller.copy()
    smaller[job] = curves.least[job]
    return smaller


def _above_least(curves: Curves) -> Floats:
    """What each step is worth: the less, the further above the job's least it is."""
    steps = np.arange(2, curves.speed.shape[1] + 1)
    return np.asarray((curves.least[:, None] - steps).astype(np.float64))


def _last_change(view: View) -> int:
    """When somebody was last started or resized."""
    return int(view.jobs.held_since[view.active].max(initial=0))


def patience_ends(patience: int, quiet: int, view: View) -> int:
    """When the first job that waits in a pool has waited enough, or it has been quiet for so
    long."""
    heads = (
        next((job for job in pool.tolist() if view.draft.holds(job) is None), None)
        for pool in pools(view, view.pending)
    )
    ends = [view.at.pending_since[job] + patience for job in heads if job is not None]
    if len(view.active) and view.ledger.free:
        ends.append(_last_change(view) + quiet)
    return min((end for end in ends if end > view.now), default=NEVER)


def by_knapsack(utility: Utility, epsilon: float, effort: int, few: int = 12) -> Rule:
    """SMD: every job names the size that it wants, the least within `epsilon` of its fastest; a
    knapsack over GPUs, CPUs and host memory picks those whose `utility` of completing is largest in
    all. A job that was not picked gets its least while there is room.

    `effort`: how many jobs the knapsack tries out as its first ones, where at most `few` compete.
    """

    def rule(view: View, market: Market) -> Ints:
        ids, curves = market.ids, market.curves
        wants = np.minimum(knees(curves, epsilon), market.capacity // curves.units)
        wants = np.maximum(wants, curves.least)
        done = view.now + market.work / curves.at(wants) - view.jobs.submitted[ids]
        values = np.maximum(view.jobs.weight[ids] * utility(done), 0.0)
        taken = wants * curves.units
        demand = demands(view, ids) * (taken / np.maximum(view.jobs.gpus[ids], 1))[:, None]
        total = max(view.ledger.total, 1)
        demand[:, 0] = taken / total
        room = np.array([market.capacity / total, 1.0, 1.0])
        chosen = multi_knapsack(values, demand, room, effort if len(ids) <= few else 0)
        sizes = np.zeros(len(ids), np.int64)
        sizes[chosen] = wants[chosen]
        rest = np.flatnonzero(sizes == 0)
        least = curves.least[rest]
        gets = first_fit(least * curves.units[rest], left_over(market, sizes))
        sizes[rest[gets]] = least[gets]
        return sizes

    return rule


def hourly(done: NDArray[np.float64]) -> NDArray[np.float64]:
    """The utility of a job that is done after so many microseconds: it halves every hour at first,
    and is never nothing."""
    return 1.0 / (1.0 + np.maximum(done, 0.0) / HOUR)
