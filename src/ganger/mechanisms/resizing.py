"""Rules that resize what runs: who shrinks to let others in, and who grows into what is left.

Each takes a view and a market and gives sizes in steps, 0 for none, like those of `elastic`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ganger.core.jobs import Phase
from ganger.core.units import NEVER
from ganger.core.view import View
from ganger.mechanisms.elastic import Market, Rule
from ganger.mechanisms.gain import Curve, grow, knee, shrink
from ganger.mechanisms.order import Levels


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
    sizes, left = [0] * len(runs), market.capacity
    for i in sorted(range(len(runs)), key=lambda i: (not runs[i], i)):
        if market.least[i] * market.units[i] <= left:
            sizes[i] = market.least[i]
            left -= sizes[i] * market.units[i]
    return grow(sizes, speed_gains(market), left, market.units)


def by_levels(levels: Levels, many: int) -> Rule:
    """Elastic-Tiresias (EDL): the walk of Tiresias' queues at the sizes asked for; if more than
    `many` wait, those below the top queue are content with their least; what is left goes
    where it adds most speed."""

    def rule(view: View, market: Market) -> list[int]:
        ids = market.ids.tolist()
        crowded = int((view.jobs.phase[market.ids] == Phase.PENDING).sum()) > many
        sizes, left, usual = [0] * len(ids), market.capacity, asked(view, market)
        for i in sorted(range(len(ids)), key=lambda i: (*levels.key(view, ids[i]), ids[i])):
            meek = crowded and levels.level(view, ids[i]) > 0
            want = market.least[i] if meek else usual[i]
            if want * market.units[i] <= left:
                sizes[i] = want
                left -= want * market.units[i]
        return grow(sizes, speed_gains(market), left, market.units)

    return rule


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
