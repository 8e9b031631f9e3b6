"""Marginal gain: which job profits most from the next GPU. Curves in, sizes out.

`work` is what is left, in the unit that throughput counts. Sizes are in steps of the curves; 0
means that the job does not run. All rules are pure and break ties by the lower index.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ganger.core.errors import BadInput

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_FAR = 2.0**600
"""Times the length that a job would have, its length while it has no GPUs: longer than any."""


class Curves(NamedTuple):
    """What steps are worth to each of n jobs.

    `speed[i, k]`: throughput of job i at k + 1 steps, level beyond its `most`; `least`: the fewest
    steps on which it runs; `units`: how many GPUs one step costs it.
    """

    speed: Floats
    least: Ints
    most: Ints
    units: Ints

    @classmethod
    def of(
        cls,
        rows: Sequence[Sequence[float] | Floats],
        least: Sequence[int],
        units: Sequence[int] = (),
    ) -> Curves:
        """From rows of throughputs that may differ in length. Raises BadInput where a job's least
        is not on its curve."""
        most = np.array([len(row) for row in rows], np.int64)
        speed = np.zeros((len(rows), int(most.max(initial=1))))
        for i, row in enumerate(rows):
            speed[i, : len(row)] = row
            speed[i, len(row) :] = row[-1] if len(row) else 0.0
        low = np.array(least, np.int64)
        if len(low) != len(most) or (low < 1).any() or (low > most).any():
            raise BadInput("a least size that is on no curve", mend="give 1 to the curve's length")
        return cls(speed, low, most, np.array(units or [1] * len(rows), np.int64))

    def at(self, sizes: Ints) -> Floats:
        """The throughput of everybody at so many steps, 1 or more."""
        taken: Floats = self.speed[np.arange(len(sizes)), sizes - 1]
        return taken

    def cost(self, sizes: Ints) -> int:
        """The GPUs that `sizes` take."""
        return int((sizes * self.units).sum())


def first_fit(costs: Ints, capacity: int) -> NDArray[np.bool_]:
    """Which jobs get all of what they want, one after the other; jobs that do not fit are
    passed."""
    taken = np.zeros(len(costs), np.bool_)
    rows = np.flatnonzero(costs <= capacity)
    while len(rows):
        used = costs[rows].cumsum()
        fit = int(used.searchsorted(capacity, side="right"))
        taken[rows[:fit]] = True
        capacity -= int(used[fit - 1]) if fit else 0
        rows = rows[fit:]
        rows = rows[costs[rows] <= capacity]
    return taken


def greedy(curves: Curves, work: Floats, capacity: int) -> Ints:
    """Sizes by Optimus' rule (EuroSys 2018, section 4.1).

    First every job gets its least, in the order given; then each next step goes to the job whose
    predicted remaining time falls most per GPU; none is given where nothing falls.
    """
    sizes = np.where(first_fit(curves.least * curves.units, capacity), curves.least, 0)
    return grow(curves, sizes, time_gains(curves, work), capacity - curves.cost(sizes))


def time_gains(curves: Curves, work: Floats) -> Floats:
    """What each next step takes off a job's remaining time, per GPU; column k: from k + 1 steps."""
    gains: Floats = np.diff(-work[:, None] / curves.speed, axis=1) / curves.units[:, None]
    return gains


def grow(curves: Curves, sizes: Ints, gains: Floats, left: int) -> Ints:
    """`sizes`, and every next step where it gains most, while `left` GPUs last and it gains.

    `gains[i, n - 1]`: of going from n to n + 1 steps. Jobs of size 0 stay out.
    """
    if left <= 0 or not gains.size:
        return sizes
    # What comes right after a smaller gain of the same job is taken together with that one, so
    # that the least gain so far says when a step has its turn.
    step = np.arange(1, gains.shape[1] + 1)
    turn = np.where(step >= sizes[:, None], gains, np.inf)
    np.minimum.accumulate(turn, axis=1, out=turn)
    turn[(step < sizes[:, None]) | (step >= curves.most[:, None])] = 0.0
    turn[sizes == 0] = 0.0
    flat = turn.ravel()
    steps = np.flatnonzero(flat > 0)
    if len(steps) > 2 * left and curves.units.max() == 1:  # no more than `left` will be taken
        least = np.partition(flat[steps], -left)[-left]
        steps = steps[flat[steps] >= least]
    steps = steps[np.argsort(-flat[steps], kind="stable")]
    rows = steps // max(gains.shape[1], 1)
    taken = rows[first_fit(curves.units[rows], left)]
    more: Ints = sizes + np.bincount(taken, minlength=len(sizes))
    return more


def shrink(curves: Curves, sizes: Ints, losses: Floats, need: int) -> Ints | None:
    """`sizes` less as many steps as free `need` GPUs, each where it loses least; None if `least`
    does not allow it. `losses[i, n - 2]`: of going from n to n - 1 steps."""
    if need <= 0:
        return sizes
    spare = np.maximum(sizes - curves.least, 0)
    if curves.cost(spare) < need:
        return None
    step = np.arange(2, losses.shape[1] + 2)
    turn = np.where(step <= sizes[:, None], losses, -np.inf)[:, ::-1]
    turn = np.maximum.accumulate(turn, axis=1)
    gives = ((step <= sizes[:, None]) & (step > curves.least[:, None]))[:, ::-1]
    steps = np.flatnonzero(gives.ravel())
    steps = steps[np.argsort(turn.ravel()[steps], kind="stable")]
    rows = steps // max(losses.shape[1], 1)
    last = int(curves.units[rows].cumsum().searchsorted(need))
    fewer: Ints = sizes - np.bincount(rows[: last + 1], minlength=len(sizes))
    return fewer


def knees(curves: Curves, tolerance: float) -> Ints:
    """The least size of each job within `tolerance` of its largest throughput (MARBLE)."""
    speed = curves.speed
    near = speed >= (1.0 - tolerance) * speed.max(axis=1, keepdims=True) - 1e-12
    return np.asarray(near.argmax(axis=1) + 1)


def rests(curves: Curves) -> Ints:
    """[i, n - 1]: the size, from n on, from which the next step gains job i nothing; below its
    least that of its least."""
    width = curves.speed.shape[1]
    size = np.broadcast_to(np.arange(1, width + 1), curves.speed.shape)
    goes_on = np.diff(curves.speed, axis=1, append=curves.speed[:, -1:]) > 0
    goes_on |= size < curves.least[:, None]
    stops = np.where(goes_on, width, size)[:, ::-1]
    return np.minimum.accumulate(stops, axis=1)[:, ::-1]


def peaks(curves: Curves) -> Ints:
    """The least size of each job, of those that it may have, at which it is fastest."""
    size = np.arange(1, curves.speed.shape[1] + 1)
    may = (size >= curves.least[:, None]) & (size <= curves.most[:, None])
    return np.asarray(np.where(may, curves.speed, -np.inf).argmax(axis=1) + 1)


def afs(curves: Curves, lengths: Floats, capacity: int, *, shrinking: bool = True) -> Ints:
    """Sizes by Apathetic Future Share (AFS, NSDI 2021, section 4.2): GPUs go one by one to the
    winner of the two-job rule between neighbours in the list of jobs (by length at the least size,
    the longest first), then between the winners, and so on.

    Of two jobs let a be the shorter and b the longer at their *own* present sizes. b wins if
    (p_b(n_b+1) - p_b(n_b)) / p_b(n_b+1) > (p_a(n_a+1) - p_a(n_a)) / p_a(n_a), p the throughput;
    a job without GPUs is infinitely long, and among such the one that one GPU makes shortest wins.
    `shrinking`: lengths are remaining work, divided by throughput (AFS-L); otherwise they are
    used as they are (AFS-P gives attained service).
    """
    end = rests(curves)[:, 0]
    if curves.cost(end) <= capacity:
        return end
    speed = curves.speed
    gain = np.diff(speed, axis=1, append=speed[:, -1:])  # none beyond the most, where it is level
    each = np.broadcast_to(lengths[:, None], speed.shape)
    if shrinking:
        each = each / speed
    alone = each[np.arange(len(end)), curves.least - 1]
    order = np.argsort(-alone, kind="stable")
    columns = (each, gain / speed, gain / (speed + gain))
    listed = Curves(speed[order], *(column[order] for column in curves[1:]))
    sizes = np.zeros(len(end), np.int64)
    sizes[order] = _Tournament(listed, end[order], *(column[order] for column in columns)).play(
        capacity
    )
    return sizes


class _Tournament:
    """The two-job rule between neighbours, then between the winners, and so on. By job and size
    `length`, and `as_a`, `as_b`: relative gain of the next step where the job is the shorter or
    the longer of two."""

    def __init__(
        self, curves: Curves, end: Ints, length: Floats, as_a: Floats, as_b: Floats
    ) -> None:
        jobs, least = len(end), curves.least
        self._by_size = length, as_a, as_b
        self._units, self._least, self._end = curves.units.tolist(), least.tolist(), end.tolist()
        # Without GPUs a job is longer than any that has some, and the gain of its next step is
        # all, so that of two such jobs the shorter wins.
        alone = length[np.arange(jobs), least - 1]
        self._length = (np.maximum(alone, 1e-100) * _FAR).tolist()
        self._as_a, self._as_b = [1.0] * jobs, [1.0] * jobs
        self._leaves = 1 << max(jobs - 1, 0).bit_length()
        self._tree: list[int] = [-1] * self._leaves + [*range(jobs)]
        self._tree += [-1] * (2 * self._leaves - len(self._tree))
        first = curves.units * least
        self._by_first, self._by_next = (
            np.argsort(-cost, kind="stable").tolist() for cost in (first, curves.units)
        )
        self._first: list[int] = first.tolist()

    def play(self, left: int) -> Ints:
        """The sizes once `left` GPUs are given away."""
        units, least, end, length = self._units, self._least, self._end, self._length
        as_a, as_b, tree, sizes = self._as_a, self._as_b, self._tree, [0] * len(self._end)
        rows: dict[int, list[list[float]]] = {}
        first = _beyond(self._by_first, self._first, 0, left)
        for job in self._by_first[:first]:
            tree[self._leaves + job] = -1
        following = _beyond(self._by_next, units, 0, left)
        self._begin()
        while (top := tree[1]) >= 0:
            step = 1 if sizes[top] else least[top]
            sizes[top] = size = sizes[top] + step
            left -= step * units[top]
            if top not in rows:  # few of many get any
                rows[top] = [each[top].tolist() for each in self._by_size]
            length[top], as_a[top], as_b[top] = (each[size - 1] for each in rows[top])
            if size >= end[top]:
                tree[self._leaves + top] = -1
            self._settle(top)
            # Nobody plays on whose next step costs more than is left.
            begin, first = first, _beyond(self._by_first, self._first, first, left)
            self._shut(job for job in self._by_first[begin:first] if not sizes[job])
            begin, following = following, _beyond(self._by_next, units, following, left)
            self._shut(job for job in self._by_next[begin:following] if sizes[job])
        return np.array(sizes, np.int64)

    def _begin(self) -> None:
        """Play all matches while nobody has any GPUs: the shorter of two wins."""
        length, winners = np.array(self._length), np.array(self._tree[self._leaves :])
        while len(winners) > 1:
            one, other = winners[::2], winners[1::2]
            wins = (other < 0) | ((one >= 0) & (length[one] <= length[other]))
            winners = np.where(wins, one, other)
            self._tree[len(winners) : 2 * len(winners)] = winners.tolist()

    def _shut(self, jobs: Iterable[int]) -> None:
        for job in jobs:
            if self._tree[self._leaves + job] >= 0:
                self._tree[self._leaves + job] = -1
                self._settle(job)

    def _settle(self, job: int) -> None:
        """Play the matches of `job` again, as far up as that changes anything."""
        tree, node = self._tree, (self._leaves + job) >> 1
        while node:
            winner = self._winner(node)
            if winner == tree[node] != job:
                break
            tree[node] = winner
            node >>= 1

    def _winner(self, node: int) -> int:
        """Who of the two below is next, -1 if neither plays."""
        one, other = self._tree[2 * node], self._tree[2 * node + 1]
        if other < 0:
            return one
        if one < 0:
            return other
        if self._length[one] <= self._length[other]:
            return other if self._as_b[other] > self._as_a[one] else one
        return one if self._as_b[one] > self._as_a[other] else other


def _beyond(order: list[int], costs: list[int], begin: int, left: int) -> int:
    """The first in `order` (the dearest first), from `begin` on, whose cost is not above `left`."""
    while begin < len(order) and costs[order[begin]] > left:
        begin += 1
    return begin


def exact(curves: Curves, capacity: int) -> tuple[Ints, float]:
    """Sizes of the largest total of curve values, and that total, by dynamic programming over
    P[j][k] = max over g of s_j(g) + P[j-1][k-g] (Saxena et al., MASCOTS 2020).

    Every job of the longest prefix of the list that fits at its least gets at least that; those
    behind get nothing. Among equal totals earlier jobs get more.
    """
    n, low = len(curves.least), curves.least
    kept = int(((low * curves.units).cumsum() <= capacity).sum())
    if kept == n:  # where all can have what is best for them there is nothing to weigh
        sizes = peaks(curves)
        if curves.cost(sizes) <= capacity:
            return sizes, float(sum(curves.at(sizes).tolist()))
    return _weighed(curves, capacity, kept)


def _weighed(curves: Curves, capacity: int, kept: int) -> tuple[Ints, float]:
    """`exact` for the first `kept` jobs, by the programme."""
    sizes = np.zeros(len(curves.least), np.int64)
    best = np.zeros(capacity + 1)
    choices: list[NDArray[np.intp]] = []
    rows = zip(curves.speed[:kept], *(each[:kept].tolist() for each in curves[1:]), strict=True)
    for speed, low, top, unit in rows:
        most = min(top, capacity // unit)
        padded = np.concatenate([np.full(most * unit, -np.inf), best])
        windows = np.lib.stride_tricks.sliding_window_view(padded, most * unit + 1)
        # Column g of `totals` is this job at `low + g` steps, row k is k GPUs for all so far.
        back = windows[:, ::-1][:, low * unit :: unit]
        totals = back + speed[low - 1 : most]
        choice = totals.argmax(axis=1)
        choices.append(choice)
        best = totals[np.arange(capacity + 1), choice]
    left = capacity
    for i in range(kept - 1, -1, -1):
        sizes[i] = curves.least[i] + int(choices[i][left])
        left -= int(sizes[i] * curves.units[i])
    return sizes, float(best[capacity]) if kept else 0.0
