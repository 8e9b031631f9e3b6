"""Marginal gain: who profits most from the next GPU. Curves in, sizes out.

A curve is an array of throughputs at 1, 2, ... GPUs (or workers, see `units`); `work` is what is
left, in the unit that throughput counts; `least` the smallest size of each job, and its curve's
end the largest; `units` how many GPUs one step costs (1 where left out). Sizes are in steps of the
curve; 0 means that the job does not run. All rules are pure and break ties by the lower index.
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heapify, heappop, heappush

import numpy as np
from numpy.typing import NDArray

Curve = NDArray[np.float64]


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
    heap = [(-float(gains[i][n - 1]), i) for i, n in enumerate(sizes) if 0 < n < len(curves[i])]
    heapify(heap)
    while heap and left:
        gain, i = heappop(heap)
        if gain >= 0:
            break
        if units[i] > left:
            continue
        sizes[i] += 1
        left -= units[i]
        if sizes[i] < len(curves[i]):
            heappush(heap, (-float(gains[i][sizes[i] - 1]), i))
    return sizes


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
    units = units or [1] * len(curves)
    sizes, left = [0] * len(curves), capacity
    length = [float("inf")] * len(curves)
    alone = [
        float(each / curve[n - 1]) if shrinking else float(each)
        for curve, each, n in zip(curves, lengths, least, strict=True)
    ]
    as_a = [0.0] * len(curves)  # relative gain if it is the shorter of two
    as_b = [1.0] * len(curves)  # and if it is the longer
    open_to = [i for i in range(len(curves)) if least[i] * units[i] <= left]
    while open_to:
        top = open_to[0]
        for i in open_to:
            top = _preferred(top, i, length, alone, as_a, as_b)
        step = 1 if sizes[top] else least[top]
        sizes[top] += step
        left -= step * units[top]
        _refresh(top, curves[top], sizes[top], length, alone, as_a, as_b)
        if shrinking:
            length[top] = float(lengths[top] / curves[top][sizes[top] - 1])
        open_to = [
            i for i in open_to
            if (1 if sizes[i] else least[i]) * units[i] <= left and as_b[i] > 0
        ]  # fmt: skip
    return sizes


def _preferred(
    i: int,
    j: int,
    length: list[float],
    alone: list[float],
    as_a: list[float],
    as_b: list[float],
) -> int:
    """The winner of the two-job rule; `i` where nothing tells them apart."""
    if length[i] == length[j] == float("inf"):
        return i if alone[i] <= alone[j] else j
    a, b = (i, j) if length[i] <= length[j] else (j, i)
    return b if as_b[b] > as_a[a] else a


def _refresh(
    i: int,
    curve: Curve,
    size: int,
    length: list[float],
    alone: list[float],
    as_a: list[float],
    as_b: list[float],
) -> None:
    """The relative gains of job `i` at its new size."""
    length[i] = alone[i]
    if size == len(curve):
        as_a[i] = as_b[i] = 0.0
        return
    now, then = float(curve[size - 1]), float(curve[size])
    as_a[i], as_b[i] = (then - now) / now, (then - now) / then


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
    sizes = [0] * len(curves)
    fits = np.cumsum([n * unit for n, unit in zip(least, units, strict=True)]) <= capacity
    kept = int(fits.sum())
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
