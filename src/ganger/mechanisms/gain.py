"""Marginal gain: who profits most from the next GPU. Curves in, sizes out.

A curve is an array of throughputs at 1, 2, ... GPUs (or workers, see `units`); `work` is what is
left, in the unit that throughput counts; `least` the smallest size of each job, and its curve's
end the largest; `units` how many GPUs one step costs (1 where left out). Sizes are in steps of the
curve; 0 means that the job does not run. All rules are pure and break ties by the lower index.
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heapify, heappop, heappush
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Curve = NDArray[np.float64]
_INFINITE = float("inf")


def greedy(
    curves: Sequence[Curve],
    work: Sequence[float],
    capacity: int,
    least: Sequence[int],
    units: Sequence[int] | None = None,
) -> list[int]:
    """Sizes by Optimus' rule (EuroSys 2018, section 4.1).

    First every job gets its least, in the order given; then each next step goes to the job whose
    predicted remaining time falls most per GPU; none is given where nothing falls.
    """
    units = units or [1] * len(curves)
    sizes = _first(range(len(curves)), capacity, least, units)
    left = capacity - _cost(sizes, units)
    gains = [
        np.diff(-each / curve) / unit for curve, each, unit in zip(curves, work, units, strict=True)
    ]
    return grow(sizes, gains, left, units)


def grow(
    sizes: Sequence[int], gains: Sequence[Curve], left: int, units: Sequence[int]
) -> list[int]:
    """`sizes`, and every next step where it gains most, while `left` GPUs last and it gains.

    `gains[i][n - 1]`: of going from n to n + 1 steps. Jobs of size 0 stay out.
    """
    sizes = list(sizes)
    heap = [(-float(gains[i][n - 1]), i) for i, n in enumerate(sizes) if 0 < n <= len(gains[i])]
    heapify(heap)
    while heap and left:
        gain, i = heappop(heap)
        if gain >= 0:
            break
        if units[i] > left:
            continue
        sizes[i] += 1
        left -= units[i]
        if sizes[i] <= len(gains[i]):
            heappush(heap, (-float(gains[i][sizes[i] - 1]), i))
    return sizes


def shrink(
    sizes: Sequence[int],
    losses: Sequence[Curve],
    least: Sequence[int],
    need: int,
    units: Sequence[int],
) -> list[int] | None:
    """`sizes` less as many steps as free `need` GPUs, each where it loses least; None if `least`
    does not allow it. `losses[i][n - 2]`: of going from n to n - 1 steps."""
    sizes = list(sizes)
    heap = [(float(losses[i][n - 2]), i) for i, n in enumerate(sizes) if n > max(least[i], 1)]
    heapify(heap)
    while heap and need > 0:
        _, i = heappop(heap)
        sizes[i] -= 1
        need -= units[i]
        if sizes[i] > max(least[i], 1):
            heappush(heap, (float(losses[i][sizes[i] - 2]), i))
    return sizes if need <= 0 else None


def knee(curve: Curve, tolerance: float) -> int:
    """The least size within `tolerance` of the largest throughput (MARBLE)."""
    return int(np.flatnonzero(curve >= (1.0 - tolerance) * curve.max() - 1e-12)[0]) + 1


def afs(
    curves: Sequence[Curve],
    lengths: Sequence[float],
    capacity: int,
    least: Sequence[int],
    units: Sequence[int] | None = None,
    *,
    shrinking: bool = True,
) -> list[int]:
    """Sizes by Apathetic Future Share (AFS, NSDI 2021, section 4.2): GPUs go one by one to the
    winner of the two-job rule, folded over the list.

    Of two jobs let a be the shorter and b the longer at their *own* present sizes. b wins if
    (p_b(n_b+1) - p_b(n_b)) / p_b(n_b+1) > (p_a(n_a+1) - p_a(n_a)) / p_a(n_a), p the throughput;
    a job without GPUs is infinitely long, and among such the one that one GPU makes shortest wins.
    `shrinking`: lengths are remaining work, divided by throughput (AFS-L); otherwise they are
    used as they are (AFS-P gives attained service).
    """
    n, units = len(curves), units or [1] * len(curves)
    sizes, left = [0] * n, capacity
    alone = [
        float(each / curve[low - 1]) if shrinking else float(each)
        for curve, each, low in zip(curves, lengths, least, strict=True)
    ]
    fold = _Fold([_INFINITE] * n, alone, [0.0] * n, [1.0] * n, [True] * n, [-1] * n)
    tight = max((low * unit for low, unit in zip(least, units, strict=True)), default=0)
    changed = 0
    while True:
        if left < tight:
            for i in range(n):
                if fold.open[i] and (1 if sizes[i] else least[i]) * units[i] > left:
                    fold.open[i] = False
                    changed = min(changed, i)
        top = fold.winner(changed) if n else -1
        if top < 0:
            return sizes
        step = 1 if sizes[top] else least[top]
        sizes[top] += step
        left -= step * units[top]
        curve, size = curves[top], sizes[top]
        now = float(curve[size - 1])
        gain = float(curve[size]) - now if size < len(curve) else 0.0
        fold.length[top] = float(lengths[top]) / now if shrinking else alone[top]
        fold.as_a[top], fold.as_b[top] = gain / now, gain / (now + gain)
        fold.open[top] = gain > 0
        changed = top


class _Fold(NamedTuple):
    """The two-job rule folded over the jobs, in columns. `as_a`, `as_b`: relative gain of the next
    step where the job is the shorter or the longer of two; `open`: whether it may have a step;
    `best[i]`: the winner among jobs 0 to i, kept so that only what changed is folded again."""

    length: list[float]
    alone: list[float]
    as_a: list[float]
    as_b: list[float]
    open: list[bool]
    best: list[int]

    def winner(self, changed: int) -> int:
        """The winner of all, where jobs before `changed` are as they were; -1 if none is open."""
        length, alone, as_a, as_b, may, best = self
        top = best[changed - 1] if changed else -1
        for i in range(changed, len(length)):
            if may[i]:
                if top < 0:
                    top = i
                elif length[top] == length[i] == _INFINITE:
                    if alone[i] < alone[top]:
                        top = i
                elif length[top] <= length[i]:
                    if as_b[i] > as_a[top]:
                        top = i
                elif as_b[top] <= as_a[i]:
                    top = i
            best[i] = top
        return top


def exact(
    curves: Sequence[Curve],
    capacity: int,
    least: Sequence[int],
    units: Sequence[int] | None = None,
) -> tuple[list[int], float]:
    """Sizes of the largest total of curve values, and that total, by dynamic programming over
    P[j][k] = max over g of s_j(g) + P[j-1][k-g] (Saxena et al., MASCOTS 2020).

    Every job of the longest prefix of the list that fits at its least gets at least that; those
    behind get nothing. Among equal totals earlier jobs get more.
    """
    units = units or [1] * len(curves)
    fits = np.cumsum([n * unit for n, unit in zip(least, units, strict=True)]) <= capacity
    kept = int(fits.sum())
    if kept == len(curves):  # where all can have what is best for them there is nothing to weigh
        rows = zip(curves, least, units, strict=True)
        sizes = [low + int(curve[low - 1 : capacity // unit].argmax()) for curve, low, unit in rows]
        if _cost(sizes, units) <= capacity:
            total = sum((float(curve[n - 1]) for curve, n in zip(curves, sizes, strict=True)), 0.0)
            return sizes, total
    return _weighed(curves, capacity, least, units, kept)


def _weighed(
    curves: Sequence[Curve], capacity: int, least: Sequence[int], units: Sequence[int], kept: int
) -> tuple[list[int], float]:
    """`exact` for the first `kept` jobs, by the programme."""
    sizes = [0] * len(curves)
    best = np.zeros(capacity + 1)
    choices: list[NDArray[np.intp]] = []
    for curve, low, unit in zip(curves[:kept], least, units, strict=False):
        most = min(len(curve), capacity // unit)
        padded = np.concatenate([np.full(most * unit, -np.inf), best])
        windows = np.lib.stride_tricks.sliding_window_view(padded, most * unit + 1)
        # Column g of `totals` is this job at `low + g` steps, row k is k GPUs for all so far.
        back = windows[:, ::-1][:, low * unit :: unit]
        totals = back + curve[low - 1 : most]
        choice = totals.argmax(axis=1)
        choices.append(choice)
        best = totals[np.arange(capacity + 1), choice]
    left = capacity
    for i in range(kept - 1, -1, -1):
        sizes[i] = least[i] + int(choices[i][left])
        left -= sizes[i] * units[i]
    return sizes, float(best[capacity]) if kept else 0.0


def _first(
    order: Sequence[int], capacity: int, least: Sequence[int], units: Sequence[int]
) -> list[int]:
    """Everybody's least in `order`, while there is room."""
    sizes = [0] * len(least)
    for i in order:
        if least[i] * units[i] <= capacity:
            sizes[i] = least[i]
            capacity -= least[i] * units[i]
    return sizes


def _cost(sizes: Sequence[int], units: Sequence[int]) -> int:
    return sum(size * unit for size, unit in zip(sizes, units, strict=True))
