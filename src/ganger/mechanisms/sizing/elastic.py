"""Elastic allocators: how large every job should be, by a gain rule over its throughput curve.

All read the curves from the oracle (`throughput`) and what is left from `view.remaining`; where the
oracle does not know, speed is taken as linear and all work as equal.

Rules work on arrays of jobs x sizes. Only jobs that change size are drafted. Jobs that fit in other
pools yield to jobs that fit only in this one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ganger.core.books.fit import Cell
from ganger.core.spec import OnPreempt, Shape
from ganger.core.state.jobs import Phase
from ganger.core.state.table import Ids
from ganger.core.units import NEVER
from ganger.core.view import View
from ganger.mechanisms.common.believed import believed_speed
from ganger.mechanisms.common.reconcile import Sizes, above_sleepers
from ganger.mechanisms.common.speed_cache import SpeedCache, Width, answers
from ganger.mechanisms.sizing.marginal_gain import (
    Curves,
    Floats,
    Ints,
    afs,
    exact,
    greedy,
    peaks,
    rests,
)

_PENDING, _STARTING, _RUNNING = int(Phase.PENDING), int(Phase.STARTING), int(Phase.RUNNING)
_NEVER = int(OnPreempt.NEVER)
_MOST = float(np.finfo(np.float64).max)
_OFFER = 3
"""So many numbers go before the speeds of a curve."""
_FEW = 256
"""Of more sets of shapes nothing is kept."""


class Classes:
    """Curves that differ, none of them longer than a `capacity` of GPUs, and what rules say of
    each."""

    def __init__(self, rows: Floats, capacity: int) -> None:
        self.capacity = capacity
        least, most, units = rows[:, :_OFFER].astype(np.int64).T
        speed = rows[:, _OFFER:]
        long = np.maximum(np.minimum(most, capacity // units), least)
        step = np.arange(1, speed.shape[1] + 1)
        speed = np.take_along_axis(speed, np.minimum(step, long[:, None]) - 1, 1)
        self.curves = Curves(speed, least, long, units)
        self._said: dict[Callable[[Curves], Ints], Ints] = {}

    def each(self, rule: Callable[[Curves], Ints]) -> Ints:
        """What `rule` says of each curve by itself."""
        if rule not in self._said:
            self._said[rule] = rule(self.curves)
        return self._said[rule]


class Market:
    """The jobs that may get any size now, and what there is to divide among them.

    `ids`: the jobs, of which the i-th has the curve `of[i]` of the `classes`; `capacity`: GPUs. A
    job with GPUs in several roles is one step: it gets all it asks for, or nothing.
    """

    def __init__(self, view: View, ids: Ids, classes: Classes, of: Ids) -> None:
        self.ids, self.capacity = ids, classes.capacity
        self._view, self._classes, self._of = view, classes, of

    @cached_property
    def least(self) -> Ints:
        """The fewest steps of each job."""
        return self._classes.curves.least[self._of]

    @cached_property
    def most(self) -> Ints:
        """The most steps of each job."""
        return self._classes.curves.most[self._of]

    @cached_property
    def units(self) -> Ints:
        """The GPUs of one step of each job."""
        return self._classes.curves.units[self._of]

    @cached_property
    def curves(self) -> Curves:
        """What 1, 2, ... steps are worth to each job."""
        return Curves(self._classes.curves.speed[self._of], self.least, self.most, self.units)

    @cached_property
    def work(self) -> Floats:
        """Microseconds left at throughput 1; 1 where nothing is known."""
        return np.minimum(np.fmax(self._view.remaining(self.ids), 1.0), _MOST)

    def each(self, rule: Callable[[Curves], Ints]) -> Ints:
        """What `rule` says of the curve of each job by itself."""
        return self._classes.each(rule)[self._of]

    def grown(self, sizes: Ints) -> Ints:
        """The sizes that those of `sizes` have once no next step gains anything."""
        return self._classes.each(rests)[self._of, sizes - 1]

    def has_room(self, sizes: Ints) -> bool:
        """Whether there are as many GPUs as `sizes` take."""
        return int(sizes @ self.units) <= self.capacity


Rule = Callable[[View, Market], Ints]
"""Sizes in steps, 0 for none, for the jobs of a market."""


def resizable(view: View, ids: Ids) -> Ids:
    """Those of `ids` that may be started, resized or stopped now.

    A job that computes over the memory of a sleeping one stays as it is: its GPUs would be free to
    few others, so that with it there would be more to divide than without it.
    """
    jobs, phase = view.jobs, view.jobs.phase[ids]
    may = (phase == _STARTING) | (phase == _RUNNING)
    may &= jobs.on_preempt[ids] != _NEVER
    if view.ledger.asleep:
        may &= ~np.isin(ids, list(above_sleepers(view)))
    resizable: Ids = ids[may | (phase == _PENDING)]
    return resizable


class _OfferedCurves(SpeedCache):
    """Offers and curves of `_told`."""


class _KnownClasses:
    """Classes of the curves in `rows`, by the GPUs that they share."""

    __slots__ = ("by_capacity", "rows")

    def __init__(self) -> None:
        self.rows: Floats | None = None
        self.by_capacity: dict[int, Classes] = {}


def market(view: View, ids: Ids) -> Market:
    """Curves and capacity for the resizable jobs of `ids`, on the GPU type that each prefers.

    What they hold counts as free, and so does what is being released. GPUs that none of them may
    use do not. Where none of them has GPUs, there is enough for all.
    """
    ids, jobs = resizable(view, ids), view.jobs
    found = _shapes(view, jobs.shape[ids])
    rows, of = answers(view, _OfferedCurves, ids, found.there, (found.width,), partial(_told, view))
    capacity = sum([cell.free for cell in found.cells]) + int(jobs.size[ids].sum())
    if not jobs.gpus[ids].any():
        capacity = int((rows[of, 1] * rows[of, 2]).sum())
    known = view.cached(_KnownClasses)
    if known.rows is not rows or len(known.by_capacity) > _FEW:
        known.rows, known.by_capacity = rows, {}
    if capacity not in known.by_capacity:
        known.by_capacity[capacity] = Classes(rows, capacity)
    return Market(view, ids, known.by_capacity[capacity], of)


class _Offer(NamedTuple):
    """What jobs of a shape may have: steps of `unit` GPUs, from `least` to `most`; what speeds are
    asked for: GPU type, GPUs of the widest node."""

    least: int
    most: int
    unit: int
    gpu_type: str
    widest: int


class _Shapes(NamedTuple):
    """What is said of a set of shapes: of which cluster, the cells where they may be, how long an
    answer of `_told` is, and the codes of each pool."""

    there: Any
    cells: list[Cell]
    width: int
    pools: list[list[int]]


class _KnownSets:
    """Sets of shapes, by their codes as bytes, on what was `there`."""

    __slots__ = ("found", "there")

    def __init__(self) -> None:
        self.there: Any = None
        self.found: dict[bytes, _Shapes] = {}


def _shapes(view: View, codes: NDArray[Any]) -> _Shapes:
    """Of the shapes with these codes, worked out once for each set of them and each cluster: a
    ledger, and what of it is up."""
    there = view.ledger, *[(cell.total, cell.widest) for cell in view.ledger.cells]
    known = view.cached(_KnownSets)
    if known.there != there or len(known.found) > _FEW:
        known.there, known.found = there, {}
    codes = np.flatnonzero(np.bincount(codes))
    key = codes.tobytes()
    if key not in known.found:
        every = codes.tolist()
        cells = {cell.index: cell for code in every for cell in _cells(view, code)}
        most = max((_offer(view, code).most for code in every), default=1)
        found = _Shapes(there, list(cells.values()), _OFFER + most, _apart(view, every))
        known.found[key] = found
    return known.found[key]


def _offer(view: View, code: int) -> _Offer:
    """Of a shape, on the GPU type that it prefers."""
    unit, low, high = _steps(view.jobs.shapes[code])
    cells = _cells(view, code)
    room = max((cell.total for cell in cells), default=0)
    widest = max((cell.widest for cell in cells), default=1)
    kind = cells[0].gpu_type if cells else ""
    return _Offer(low, max(min(high, room // unit), low), unit, kind, widest)


def _told(view: View, ids: Ids, width: Width) -> Floats:
    """Offers and curves, from the oracle: least, most and GPUs a step, and then the speeds at 1, 2,
    ... steps, level beyond the most."""
    out = np.empty((len(ids), *width))
    alike: dict[int, list[int]] = {}
    for row, code in enumerate(view.jobs.shape[ids].tolist()):
        alike.setdefault(code, []).append(row)
    for code, rows in alike.items():
        offer = _offer(view, code)
        gpus = offer.unit * np.arange(1, offer.most + 1)
        speed = _speeds(view, ids[rows], offer.gpu_type, gpus, offer.widest)
        out[rows, :_OFFER] = offer.least, offer.most, offer.unit
        out[rows, _OFFER:] = speed[:, -1:]
        out[rows, _OFFER : _OFFER + offer.most] = speed
    return out


def pools(view: View, ids: Ids) -> list[Ids]:
    """`ids` by the GPUs that they may use: two jobs are in one pool if there is a kind of GPUs that
    both may use, or a chain of such jobs between them. A job of one pool cannot make room for one
    of another; within one, all count on all its GPUs. Jobs without GPUs are in none with others."""
    shape = view.jobs.shape[ids]
    found = _shapes(view, shape).pools
    if len(found) == 1:
        return [ids]
    return [ids[np.isin(shape, pool)] for pool in found]


def _apart(view: View, every: Iterable[int]) -> list[list[int]]:
    """Codes of shapes by pool."""
    found: list[tuple[set[int], set[int]]] = []
    for code in every:
        cells, codes = {cell.index for cell in _cells(view, code)}, {code}
        if not view.jobs.shapes[code].gpus:
            cells.clear()
        for other in [one for one in found if one[0] & cells]:
            found.remove(other)
            cells, codes = cells | other[0], codes | other[1]
        found.append((cells, codes))
    return [list(codes) for _, codes in found]


def _cells(view: View, code: int) -> list[Cell]:
    """Where jobs of a shape may be."""
    return view.ledger.cells_for(view.jobs.shapes[code])


def _steps(shape: Shape) -> tuple[int, int, int]:
    """GPUs a step, and the fewest and the most steps, of a shape."""
    first = shape.roles[0]
    if any(role.needs.gpus for role in shape.roles[1:]):
        return shape.gpus, 1, 1
    return max(first.needs.gpus, 1), *first.range


def _speeds(
    view: View, ids: Ids, gpu_type: str, gpus: NDArray[np.int64], widest: int
) -> NDArray[np.float64]:
    """Throughput, one row per job and one column per size, packed on as few nodes as it takes.

    Positive, and never falling with size: more GPUs than help need not be used.
    """
    nodes = -(-gpus // max(widest, 1))
    speed = believed_speed(view, ids[:, None], gpu_type, gpus[None, :], nodes[None, :])
    return np.maximum.accumulate(np.maximum(speed, 1e-12), axis=1)


def run_times(view: View, job: int) -> dict[int, float]:
    """Expected time left, microseconds, by the GPUs (in all) on which `job` could run."""
    ids = np.array([job])
    shape = view.draft.shape(job)
    first, (low, high) = shape.roles[0], shape.roles[0].range
    fixed = shape.gpus - first.size * first.needs.gpus
    sizes = fixed + first.needs.gpus * np.arange(low, high + 1)
    sizes = np.unique(sizes)
    cells = view.ledger.cells_for(shape)
    widest = max((cell.widest for cell in cells), default=1)
    rows = _speeds(view, ids, cells[0].gpu_type if cells else "", np.maximum(sizes, 1), widest)
    left = float(np.nan_to_num(view.remaining(ids), nan=1.0)[0])
    return {
        size: left / speed for size, speed in zip(sizes.tolist(), rows[0].tolist(), strict=True)
    }


def cheapest_on_time(view: View, job: int) -> list[int]:
    """Sizes of `job` in order of preference: the fewest GPUs that meet its deadline, and where none
    does the fastest (GENIE)."""
    times, end = run_times(view, job), int(view.jobs.deadline[job]) - view.now
    met = [size for size, time in times.items() if time <= end]
    late = sorted((size for size in times if size not in met), key=lambda size: (times[size], size))
    return met + late


def by_greedy(view: View, market: Market) -> Ints:
    """Optimus: the next GPU where the predicted remaining time falls most."""
    return greedy(market.curves, market.work, market.capacity)


def by_afs(view: View, market: Market) -> Ints:
    """AFS-L: the two-job rule on remaining work."""
    return afs(market.curves, market.work, market.capacity)


def by_attained_afs(view: View, market: Market) -> Ints:
    """AFS-P: the two-job rule on attained service."""
    attained = view.attained(market.ids).astype(np.float64)
    return afs(market.curves, attained, market.capacity, shrinking=False)


def by_total(view: View, market: Market) -> Ints:
    """Saxena et al.: the largest sum of speedups over one worker, exactly, first come first."""
    best = market.each(peaks)
    if market.has_room(best):
        return best
    speed = market.curves.speed
    return exact(market.curves._replace(speed=speed / speed[:, :1]), market.capacity)[0]


def until_sated(rule: Rule, begin: Rule | None = None) -> Rule:
    """`rule`, one by which all grow, from `begin` or their least, until no next step gains any
    more: where there is room for that, no order among them is needed."""

    def sated(view: View, market: Market) -> Ints:
        sizes = market.least
        if begin is not None:
            sizes = begin(view, market)
            sizes = np.where(sizes > 0, sizes, market.least)
        if (sizes <= market.most).all():
            sizes = market.grown(sizes)
            if market.has_room(sizes):
                return sizes
        return rule(view, market)

    return sated


@dataclass(frozen=True)
class Elastic:
    """Sizes by `rule`, in each of the `pools`; jobs that must keep what they hold are left out.

    The rows come in order of submission, or (`small_first`, Optimus' order of placement) with the
    smallest first.
    """

    rule: Rule
    small_first: bool = False
    wakes: Callable[[View], int] = lambda view: NEVER
    """When the rule would decide otherwise although nothing happens."""

    def wake(self, view: View) -> int:
        """When it wants to be asked again at the latest."""
        return self.wakes(view)

    def sizes(self, view: View, ids: Ids) -> Sizes:
        """A size for every job that gets GPUs."""
        found = [self._of_pool(view, pool) for pool in pools(view, ids)] or [Sizes(ids, ids)]
        ids, gpus = found[0]
        if len(found) > 1:
            ids, gpus = (np.concatenate(column) for column in zip(*found, strict=True))
        elif not self.small_first:
            return found[0]
        order = np.lexsort((ids, gpus)) if self.small_first else np.argsort(ids)
        return Sizes(ids[order], gpus[order])

    def _of_pool(self, view: View, pool: Ids) -> Sizes:
        shop = market(view, pool)
        steps = self.rule(view, shop)
        gets = steps > 0
        return Sizes(shop.ids[gets], (steps * shop.units)[gets])
