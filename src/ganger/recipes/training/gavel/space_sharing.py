"""Space sharing: further columns for two jobs on the same GPUs (Gavel, OSDI 2020, section 3.1).

x[(job, job), type] is the fraction of the time that two gangs of one size spend together on a type,
each at its throughput as measured beside the other. A job's throughput is the sum over all rows
that it is in, and so is its time. A pair that does no more together than in turns is left out.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import numpy as np

from ganger.core.allocation import Allocation
from ganger.core.state.table import Ids
from ganger.core.view import View
from ganger.mechanisms.common.reconcile import sharable
from ganger.mechanisms.fairness.fair import Notes
from ganger.mechanisms.rounds.objectives import LargestSum, Raised
from ganger.mechanisms.rounds.program import (
    LEAST_SHARE,
    FinishTimeFairness,
    Floats,
    Problem,
    pose,
    rho_demand,
    rho_parts,
    rows_of,
)
from ganger.solve.division.lexicographic import water_filling
from ganger.solve.division.pairs import (
    Merged,
    Pairs,
    PairsPool,
    efficient_pairs,
    max_min_pairs,
    max_sum_pairs,
    merge,
)
from ganger.solve.division.programme import isolated
from ganger.solve.division.search import largest


class Packed(NamedTuple):
    """A problem with its pairs."""

    problem: Problem
    pairs: Pairs

    def merged(self, *tags: Floats) -> Merged:
        """Classes of jobs alike in `tags` too."""
        return merge(self.pairs, list(tags))


Solve: TypeAlias = Callable[[View, Packed], Floats]
"""Gives the (jobs + pairs, types) fractions of time."""
PairObjective: TypeAlias = Raised | LargestSum


def pack(view: View, problem: Problem) -> Packed:
    """All pairs of jobs that do more together than in turns, on the types where they do."""
    ids, alone = problem.ids, problem.shares
    able = np.flatnonzero([sharable(view, job) for job in ids.tolist()])
    names = [_kind(view, job) for job in ids[able].tolist()]
    kinds = {name: at for at, name in enumerate(dict.fromkeys(names))}
    code = np.array([kinds[name] for name in names], np.int64)
    parts = np.zeros((len(kinds), len(kinds), len(problem.types)))
    for mine, row in kinds.items():
        for other, column in kinds.items():
            if mine[1:] == other[1:]:
                parts[row, column] = _parts(view, mine[0], other[0], mine[1], problem.types)
    back = parts.swapaxes(0, 1)
    pays = (parts > 0) & (back > 0) & (parts + back > 1 + 1e-9)
    parts = np.where(pays, parts, 0.0)
    first, second = np.triu_indices(len(able), 1)
    kept = np.asarray(pays.any(axis=2))[code[first], code[second]]
    first, second = first[kept], second[kept]
    one = alone.rate[able[first]] * parts[code[first], code[second]]
    two = alone.rate[able[second]] * parts[code[second], code[first]]
    both = (one > 0) & (two > 0)
    kept = np.asarray(both.any(axis=1))
    return Packed(
        problem,
        Pairs(
            alone,
            able[first[kept]],
            able[second[kept]],
            np.where(both, one, 0.0)[kept],
            np.where(both, two, 0.0)[kept],
            np.ones(len(ids)),
        ),
    )


_Kind: TypeAlias = tuple[str, int, str, int]


def _kind(view: View, job: int) -> _Kind:
    """Model, GPUs, and what else must be equal for one to be placed where the other is."""
    shape = view.draft.shape(job)
    model = view.jobs.models[view.at.model[job]]
    return model, view.at.gpus[job], shape.pool, int(shape.locality)


class _PartsBeside:
    """By model, model beside it, GPUs and types: what `_parts` found."""

    __slots__ = ("found",)

    def __init__(self) -> None:
        self.found: dict[tuple[str, str, int, tuple[str, ...]], list[float]] = {}


def _parts(view: View, mine: str, other: str, gpus: int, types: tuple[str, ...]) -> list[float]:
    """What is left of the speed of `mine` beside `other`, by type."""
    known = view.cached(_PartsBeside).found
    key = mine, other, gpus, types
    if key not in known:
        told = [view.oracle.interference((mine, other), kind, gpus)[0] for kind in types]
        known[key] = np.nan_to_num(told).tolist()
    return known[key]


# ---------------------------------------------------------------------- objectives


def best(objective: PairObjective, view: View, packed: Packed) -> Floats:
    """The (jobs + pairs, types) fractions of time that are best by `objective`."""
    problem = packed.problem
    if isinstance(objective, LargestSum):
        return _summed(packed, objective.factor(problem), objective.price(view, problem))
    unit = objective.unit(view, problem)
    return (_filled_up if objective.in_turn else _raised)(packed, unit)


def _raised(packed: Packed, unit: Floats) -> Floats:
    """The smallest multiple of `unit` at its largest, then the largest sum of multiples."""
    merged = packed.merged(unit)
    few, unit = merged.posed, unit[merged.jobs.first]
    level = max_min_pairs(few, unit).value
    return _efficient(merged, unit * level, 1.0 / unit)


def _efficient(merged: Merged, floor: Floats, factor: Floats) -> Floats:
    """Everybody's floor, then the largest sum of throughputs times `factor`."""
    few = merged.posed
    own, both = _gains(few, factor, np.ones(few.alone.rate.shape[1]))
    return merged.expand(efficient_pairs(few, floor, own, both).x)


def _gains(few: Pairs, factor: Floats, price: Floats) -> tuple[Floats, Floats]:
    both = factor[few.first, None] * few.rate_first + factor[few.second, None] * few.rate_second
    return factor[:, None] * few.alone.rate / price, both / price


def _filled_up(packed: Packed, unit: Floats) -> Floats:
    """The smallest multiple of `unit` at its largest, then the second smallest, and so on."""
    merged = packed.merged(unit)
    unit = unit[merged.jobs.first]
    filled = water_filling(PairsPool(merged.posed), merged.posed.alone.capacity, unit, None)
    return _efficient(merged, filled.level, 1.0 / unit)


def _summed(packed: Packed, factor: Floats, price: Floats) -> Floats:
    """The largest sum of throughputs x `factor` / `price`."""
    merged = packed.merged(factor)
    few = merged.posed
    own, both = _gains(few, factor[merged.jobs.first], price)
    return merged.expand(max_sum_pairs(few, own, both).x)


# ---------------------------------------------------------------------- allocators


@dataclass(frozen=True)
class PairProgramme:
    """Allocates by `objective`, alone and in pairs."""

    objective: PairObjective

    def allocate(self, view: View, ids: Ids) -> Allocation:
        """Rows in order of job, then of pair."""
        return _divided(view, ids, lambda view, packed: best(self.objective, view, packed))


@dataclass(frozen=True)
class PairFinishTimeFairness(FinishTimeFairness):
    """The same with pairs; what a job would do in isolation is without any."""

    def allocate_from(self, view: View, ids: Ids, notes: Notes) -> Allocation:
        """Rows in order of job, then of pair."""
        return _divided(view, ids, lambda view, packed: _fairest(view, packed, notes))


def _divided(view: View, ids: Ids, solve: Solve) -> Allocation:
    problem = pose(view, ids)
    if not len(problem.ids):
        return Allocation()
    packed = pack(view, problem)
    return _rows(packed, solve(view, packed))


def _fairest(view: View, packed: Packed, notes: Notes) -> Floats:
    parts = rho_parts(view, packed.problem, notes)
    merged = packed.merged(*parts)
    few, at = merged.posed, merged.jobs.first
    demand, reached = rho_demand(*(part[at] for part in parts))
    start = reached(isolated(packed.problem.shares)[at])
    found = largest(PairsPool(few), demand, start, reached(few.fastest()))
    return _efficient(merged, demand(found.value), np.ones(len(at)))


def _rows(packed: Packed, x: Floats) -> Allocation:
    """A solution as rows, without what is only rounding."""
    problem, pairs, n = packed.problem, packed.pairs, len(packed.problem.ids)
    allocation = rows_of(problem, x[:n])
    together = np.round(np.where(x[n:] < LEAST_SHARE, 0.0, x[n:]), 9)
    for p, j in np.argwhere(together).tolist():
        a, b = int(pairs.first[p]), int(pairs.second[p])
        jobs = int(problem.ids[a]), int(problem.ids[b])
        gpus = int(problem.shares.scale[a])
        allocation.add(jobs, problem.types[j], gpus, float(together[p, j]))
    return allocation
