"""Allocation by programme: a view becomes arrays, `solve` divides the time, rows come back.

The programmes are those of Gavel (OSDI 2020): x[job, type] is the fraction of the time that a job
spends on a type, at the size it asks for.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import repeat
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ganger.core.allocation import Allocation, Share
from ganger.core.books.empty import EmptyCluster
from ganger.core.state.table import Ids
from ganger.core.view import View
from ganger.mechanisms.common.believed import believed_duration, believed_speed
from ganger.mechanisms.common.speed_cache import SpeedCache, Width, answers
from ganger.mechanisms.fairness.fair import Notes, Tree, integrate_isolated
from ganger.solve.division.lexicographic import Paces, water_filling
from ganger.solve.division.programme import Shares, isolated, proportional, shares
from ganger.solve.division.raised import raised
from ganger.solve.division.search import largest
from ganger.solve.division.shares import SharesPool, efficient, max_min, max_sum
from ganger.solve.waterfill import water_fill

Floats = NDArray[np.float64]
_Counts = list[tuple[str, int]]

FOREVER = 1e15
"""Remaining work of jobs of which nothing is known, microseconds."""
LEAST_SHARE = 1e-6
"""Smaller fractions of time are rounding in the solver."""


class Problem(NamedTuple):
    """The jobs that can run, and the types they compete for."""

    ids: Ids
    types: tuple[str, ...]
    shares: Shares
    weight: Floats


Objective: TypeAlias = Callable[[View, Problem], Floats]
"""Gives the (jobs, types) fractions of time."""


class _Rates(SpeedCache):
    """Speeds by type."""


def pose(view: View, ids: Ids) -> Problem:
    """The arrays of the jobs of `ids` that want GPUs and could run on some type alone."""
    capacity: dict[str, int] = {}
    widest: dict[str, int] = {}
    for cell in view.ledger.cells:
        if cell.gpu_type:
            capacity[cell.gpu_type] = capacity.get(cell.gpu_type, 0) + cell.total
            widest[cell.gpu_type] = max(widest.get(cell.gpu_type, 1), cell.widest)
    there = list(capacity.items()), list(widest.items())
    rows, of = answers(view, _Rates, ids, there, (len(capacity),), partial(_told, view, there))
    rate = rows[of]
    able = rate.any(axis=1)
    if not able.all():
        ids, rate = ids[able], rate[able]
    gpus = view.jobs.gpus[ids].astype(np.float64)
    posed = shares(rate, gpus, np.array(list(capacity.values()), np.float64))
    return Problem(ids, tuple(capacity), posed, view.jobs.weight[ids])


def _told(view: View, there: tuple[_Counts, _Counts], ids: Ids, _: Width) -> Floats:
    """The speed of each job on each type, 0 where it cannot run, from the oracle. `there`: by type
    its GPUs, and those of its widest node."""
    capacity, widest = map(dict, there)
    out = np.zeros((len(ids), len(capacity)))
    some = view.jobs.gpus[ids] > 0
    ids = ids[some]
    gpus = view.jobs.gpus[ids]
    rate = np.empty((len(ids), len(capacity)))
    for j, kind in enumerate(capacity):
        nodes = -(-gpus // widest[kind])
        speed = believed_speed(view, ids, kind, gpus, nodes)
        rate[:, j] = np.where(gpus <= capacity[kind], speed, 0.0)
    out[some] = rate * allowed_on(view, ids, tuple(capacity))
    return out


class _AllowedOn:
    """By the types asked about: for each shape and type whether it fits there, -1 if not known."""

    __slots__ = ("by_types",)

    def __init__(self) -> None:
        self.by_types: dict[tuple[str, ...], NDArray[np.int8]] = {}


def allowed_on(view: View, ids: Ids, types: Sequence[str]) -> NDArray[np.bool_]:
    """Whether the job would fit on the type's nodes if all were empty."""
    shapes, known = view.jobs.shapes.values, view.cached(_AllowedOn).by_types
    key = tuple(types)
    fits = known.get(key)
    if fits is None or len(fits) < len(shapes):
        more = np.full((2 * len(shapes), len(types)), -1, np.int8)  # -1: nobody asked yet
        fits = known[key] = more if fits is None else np.concatenate([fits, more])
    codes = view.jobs.shape[ids]
    if fits[codes].min(initial=0) < 0:
        empty = view.cached(EmptyCluster, view.nodes)
        for code in np.unique(codes).tolist():
            if fits[code, 0] < 0:
                fits[code] = [empty.fits_on(shapes[code], kind) for kind in types]
    return fits[codes] > 0


def work_left(view: View, ids: Ids) -> Floats:
    """What is believed to be left to do, in microseconds at speed 1; at least one."""
    left = np.minimum(believed_duration(view, ids), FOREVER) - view.work(ids)
    return np.maximum(left, 1.0)


# ---------------------------------------------------------------------- programmes


def fair_unit(problem: Problem) -> Floats:
    """What counts as 1 in max-min fairness: weight x throughput of equal time everywhere, per
    GPU asked for (Gavel, section 4.1)."""
    posed = problem.shares
    unit: Floats = problem.weight * proportional(posed) / posed.scale
    return unit


def unrivalled(posed: Shares, gain: Floats) -> Floats | None:
    """Everybody all the time where it gains most, if there is room for that, and for nobody two
    such types: then there is no better answer, and no other as good. None otherwise."""
    best = gain.argmax(axis=1)
    rows = np.arange(len(gain))
    top, x = gain[rows, best], np.zeros(gain.shape)
    used = np.bincount(best, posed.scale, len(posed.capacity))
    as_good = np.count_nonzero(gain >= top[:, None] * (1 - 1e-6))
    if as_good > len(gain) or (used > posed.capacity).any():
        return None
    x[rows, best] = 1.0
    return x


def raised_to(problem: Problem, unit: Floats) -> Floats:
    """The smallest multiple of `unit` at its largest, then the largest sum of multiples."""
    small = raised(problem.shares, unit)
    if small is not None and small.x is not None:
        return small.x
    level = max_min(problem.shares, unit).value if small is None else small.level
    return efficient(problem.shares, unit * level, problem.shares.rate / unit[:, None]).x


def filled_up(problem: Problem, unit: Floats, pace_of: Paces | None) -> Floats:
    """The smallest multiple of `unit` at its largest, then the second smallest, and so on."""
    posed = problem.shares
    alone = unrivalled(posed, posed.rate)
    if alone is not None:
        return alone
    filled = water_filling(SharesPool(posed), posed.capacity, unit, pace_of)
    return efficient(posed, filled.level, posed.rate / unit[:, None]).x


def largest_sum(problem: Problem, gain: Floats) -> Floats:
    """The largest sum of time x `gain`."""
    alone = unrivalled(problem.shares, gain)
    return max_sum(problem.shares, gain).x if alone is None else alone


# ---------------------------------------------------------------------- allocators


@dataclass(frozen=True)
class Programme:
    """Allocates by `objective`. `agnostic`: types are held to be alike; the time that the
    objective gives to a job is spread over all types by their numbers."""

    objective: Objective
    agnostic: bool = False

    def allocate(self, view: View, ids: Ids) -> Allocation:
        """Rows in order of job."""
        problem = pose(view, ids)
        return divide(problem, self.agnostic, lambda posed: self.objective(view, posed))


def fold(problem: Problem) -> Problem:
    """The same as if all types were one, on which everybody runs at speed 1."""
    posed = problem.shares
    alike = shares(
        np.ones((len(problem.ids), 1)), posed.scale, posed.capacity.sum(keepdims=True), posed.limit
    )
    return problem._replace(types=("",), shares=alike)


def divide(problem: Problem, agnostic: bool, solve: Callable[[Problem], Floats]) -> Allocation:
    """The solution of `problem` as rows."""
    if not len(problem.ids):
        return Allocation()
    if not agnostic:
        return rows_of(problem, solve(problem))
    part = (problem.shares.rate > 0) * problem.shares.capacity
    return rows_of(problem, solve(fold(problem)) * part / part.sum(axis=1, keepdims=True))


def rows_of(problem: Problem, x: Floats, *, exact: bool = False) -> Allocation:
    """A solution as rows, unless `exact` without what is only rounding."""
    rounded = x if exact else np.round(np.where(x < LEAST_SHARE, 0.0, x), 9)
    i, j = np.nonzero(rounded > 0)
    gpus = problem.shares.scale[i].astype(np.int64)
    jobs, kinds = problem.ids[i].tolist(), [problem.types[kind] for kind in j.tolist()]
    columns = [(job,) for job in jobs], kinds, gpus.tolist(), rounded[i, j].tolist()
    return Allocation(list(map(Share._make, zip(*columns, repeat(()), strict=False))))


@dataclass(frozen=True)
class FirstFit:
    """First come, first served without a programme: each in turn gets all of the type on which it
    is fastest among those with room for it, or nothing if it runs on none of these, until somebody
    finds room on no type."""

    def allocate(self, view: View, ids: Ids) -> Allocation:
        """Rows in order of job."""
        problem = pose(view, ids)
        free, gpus = problem.shares.capacity.copy(), problem.shares.scale
        order = sorted(range(len(problem.types)), key=lambda j: problem.types[j].lower())
        allocation = Allocation()
        for i, rate in enumerate(problem.shares.rate):
            fits = [j for j in order if free[j] >= gpus[i]]
            if not fits:
                break
            best = max(fits, key=lambda j: float(rate[j]))
            if not rate[best]:
                continue
            free[best] -= gpus[i]
            allocation.add((int(problem.ids[i]),), problem.types[best], int(gpus[i]), 1.0)
        return allocation


@dataclass(frozen=True)
class EqualShares:
    """Weighted water-filling of like GPUs: a job asks for its gang and gets a fraction of the
    time on any type."""

    def allocate(self, view: View, ids: Ids) -> Allocation:
        """Rows in order of job."""
        return divide(pose(view, ids), True, _filled)


def _filled(problem: Problem) -> Floats:
    shares = problem.shares
    gpus = water_fill(float(shares.capacity.sum()), problem.weight, shares.scale)
    return (gpus / shares.scale)[:, None]


@dataclass(frozen=True)
class Hierarchical:
    """Water-filling with weights that flow down the tenants' tree; whenever jobs can get no more,
    their part goes to those beside them (Gavel, section 4.3)."""

    tree: Tree
    agnostic: bool

    def allocate(self, view: View, ids: Ids) -> Allocation:
        """Rows in order of job."""
        return divide(pose(view, ids), self.agnostic, lambda posed: self._fill(view, posed))

    def _fill(self, view: View, problem: Problem) -> Floats:
        unit = proportional(problem.shares) / problem.shares.scale
        return filled_up(problem, unit, self.tree.over(view, problem.ids).parts)


@dataclass(frozen=True)
class FinishTimeFairness:
    """Minimises the largest rho = (age + left / eff) / (isolated so far + left / isolated now).

    Isolated so far is what the work done would have taken with a 1/n of the cluster, n being as
    it was at the time.
    """

    agnostic: bool

    def remember(self, view: View, ids: Ids, notes: Notes) -> Notes:
        """Book what was done since the last call, and what each would do alone from now on."""
        problem = pose(view, ids)
        if not len(problem.ids):
            return Notes()
        alone = isolated(fold(problem).shares if self.agnostic else problem.shares)
        return integrate_isolated(view, problem.ids, alone, notes)

    def allocate_from(self, view: View, ids: Ids, notes: Notes) -> Allocation:
        """Rows in order of job."""
        return divide(pose(view, ids), self.agnostic, lambda posed: _fairest(view, posed, notes))


def rho_parts(view: View, problem: Problem, notes: Notes) -> tuple[Floats, Floats, Floats]:
    """Work left, age, and the time that each would take alone, microseconds."""
    ids = problem.ids
    left = work_left(view, ids)
    age = (view.now - view.jobs.submitted[ids]).astype(np.float64)
    known, (past, _, _) = notes.of(ids)
    past = np.where(known, past, 0.0)
    return left, age, past + left / isolated(problem.shares)


def rho_demand(
    left: Floats, age: Floats, independent: Floats
) -> tuple[Callable[[float], Floats], Callable[[Floats], float]]:
    """The throughputs at which every rho is 1 / part, by part; and the part that throughputs
    reach."""

    def demand(part: float) -> Floats:
        needed: Floats = left * part / (independent - age * part)
        return needed

    def reached(eff: Floats) -> float:
        return float((independent / (age + left / eff)).min())

    return demand, reached


def _fairest(view: View, problem: Problem, notes: Notes) -> Floats:
    posed = problem.shares
    alone = unrivalled(posed, posed.rate)
    if alone is not None:
        return alone
    demand, reached = rho_demand(*rho_parts(view, problem, notes))
    start, top = reached(isolated(posed)), reached(posed.fastest())
    found = largest(SharesPool(posed), demand, start, top)
    return efficient(posed, demand(found.value), posed.rate).x
