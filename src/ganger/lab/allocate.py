"""How much of which GPUs each job gets: a problem, an objective, the best answer and its proof."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ganger.core.errors import BadInput
from ganger.solve.division.hierarchy import Tree
from ganger.solve.division.lexicographic import Paces, water_filling
from ganger.solve.division.pairs import (
    Merged,
    Pairs,
    PairsPool,
    max_min_pairs,
    max_sum_pairs,
    merge,
)
from ganger.solve.division.programme import (
    TINY,
    Answer,
    Floats,
    Ints,
    isolated,
    isolated_shares,
    proportional,
    shares,
)
from ganger.solve.division.search import Pool, largest
from ganger.solve.division.shares import SharesPool, max_min, max_sum
from ganger.solve.highs import Infeasible
from ganger.solve.pop import Deal, partitioned
from ganger.workloads.problem import Problem, load_problem


class Parted(NamedTuple):
    """What POP with so many parts reaches, and how much worse that is than the exact value."""

    parts: int
    value: float
    loss: float


class Allocated(NamedTuple):
    """An allocation. `value` is the objective's, within `gap` of the best; `x` the fractions of
    time, one row for each job and then for each pair, by column of the problem; `throughput` in
    steps per second; `dual_prices` what one more GPU of each type would improve the value by (None
    where nothing is optimised)."""

    problem: Problem
    objective: str
    value: float
    gap: float
    x: Floats
    throughput: Floats
    dual_prices: Floats | None
    cpu_seconds: float
    pop: Parted | None = None

    def __repr__(self) -> str:
        jobs = len(self.problem.names)
        return (
            f"<Allocated: {self.objective} {self.value:.6g} for {jobs:,} jobs, gap {self.gap:.1g}>"
        )

    def allocation(self) -> dict[str, dict[str, Any]]:
        """Fractions above 0 by job (or `a+b`) and type, and placement where there is one."""
        names = self.problem.names
        keys = names + [f"{names[a]}+{names[b]}" for a, b in self.problem.pairs.tolist()]
        rows: dict[str, dict[str, Any]] = {name: {} for name in names}
        for at, column in np.argwhere(self.x > 0).tolist():
            row, (kind, placement) = rows.setdefault(keys[at], {}), self.problem.columns[column]
            share = float(self.x[at, column])
            if placement:
                row.setdefault(kind, {})[placement] = share
            else:
                row[kind] = share
        return rows

    def to_dict(self) -> dict[str, Any]:
        """As `ganger allocate --json` prints it."""
        prices = self.dual_prices
        types = self.problem.types
        told = {} if self.pop is None else {"pop": self.pop._asdict()}
        return {
            "objective": {"name": self.objective, "value": self.value},
            "gap": self.gap,
            "allocation": self.allocation(),
            "effective_throughput": dict(
                zip(self.problem.names, self.throughput.tolist(), strict=True)
            ),
            "dual_prices": {} if prices is None else dict(zip(types, prices.tolist(), strict=True)),
            "cpu_seconds": self.cpu_seconds,
            **told,
        }


class _Solved(NamedTuple):
    value: float
    bound: float
    x: Floats
    prices: Floats | None


class _Field:
    """The problem's arrays, alone or with pairs, behind the same questions."""

    def __init__(self, problem: Problem, stop: Callable[[], bool] | None) -> None:
        self.problem, self.stop = problem, stop
        self.alone = shares(
            problem.throughput, problem.gpus, problem.gpus_of_type, kind=problem.kind
        )
        self.pairs: Pairs | None = None
        if len(problem.pairs):
            first, second = problem.pairs.T
            rate = problem.pair_throughput
            self.pairs = Pairs(
                self.alone, first, second, rate[:, 0], rate[:, 1], np.ones(len(problem.names))
            )

    def merged(self, *tags: Floats) -> Merged | None:
        """Classes of jobs alike in `tags`; None without pairs, where solvers merge themselves."""
        return None if self.pairs is None else merge(self.pairs, list(tags))

    def pool(self, merged: Merged | None) -> Pool:
        """What a search asks."""
        if merged is None:
            return SharesPool(self.alone, self.stop)
        return PairsPool(merged.posed, self.stop)

    def fastest(self) -> Floats:
        """The most that each could do."""
        return self.alone.fastest() if self.pairs is None else self.pairs.fastest()

    def max_min(self, unit: Floats) -> _Solved:
        """The smallest multiple of `unit` at its largest."""
        merged = self.merged(unit)
        if merged is None:
            found = max_min(self.alone, unit, stop=self.stop)
        else:
            found = max_min_pairs(merged.posed, unit[merged.jobs.first], self.stop)
        return _Solved(found.value, found.bound, expanded(merged, found), found.prices)

    def max_sum(self, factor: Floats, price: Floats, floor: Floats) -> _Solved:
        """The largest sum of factor x throughput / price of the column, above `floor`."""
        merged = self.merged(factor, floor)
        if merged is None:
            gain = factor[:, None] * self.alone.rate / price
            found = max_sum(self.alone, gain, floor, stop=self.stop)
        else:
            few, at = merged.posed, merged.jobs.first
            factor = factor[at]
            both = factor[few.first, None] * few.rate_first
            both = both + factor[few.second, None] * few.rate_second
            gain = factor[:, None] * few.alone.rate / price
            found = max_sum_pairs(few, gain, both / price, floor[at], self.stop)
        return _Solved(found.value, found.bound, expanded(merged, found), found.prices)


class _PartedField(_Field):
    """The same questions, answered part by part (POP)."""

    parts = 1

    def max_min(self, unit: Floats) -> _Solved:
        """The smallest multiple of `unit` that the parts reach."""
        x = partitioned(
            self.alone,
            self.parts,
            lambda part, rows, fraction: max_min(part, unit[rows] * fraction),
            POP_DEAL,
        )
        value = float((self.alone.effective(x) / unit).min())
        return _Solved(value, value, x, None)

    def max_sum(self, factor: Floats, price: Floats, floor: Floats) -> _Solved:
        """The sum of what the parts reach."""
        x = partitioned(
            self.alone,
            self.parts,
            lambda part, rows, fraction: max_sum(
                part, factor[rows, None] * part.rate / price, floor[rows] * fraction
            ),
            POP_DEAL,
        )
        value = float((factor[:, None] * self.alone.rate / price * x).sum())
        return _Solved(value, value, x, None)


def expanded(merged: Merged | None, answer: Answer) -> Floats:
    """The rows of jobs and pairs of an answer for classes."""
    return answer.x if merged is None else merged.expand(answer.x)


# ---------------------------------------------------------------------- objectives


def _unit(field: _Field, weight: Floats | None = None) -> Floats:
    problem = field.problem
    weight = problem.weight if weight is None else weight
    unit: Floats = weight * proportional(field.alone) / problem.gpus
    return unit


def _max_min(field: _Field) -> _Solved:
    return field.max_min(_unit(field))


def _agnostic(field: _Field) -> _Solved:
    alike = field.problem._replace(
        throughput=np.ones_like(field.problem.throughput), pairs=np.zeros((0, 2), np.int64)
    )
    blind = _Field(alike, field.stop)
    found = blind.max_min(_unit(blind))
    return found._replace(x=_padded(field, found.x))


def _padded(field: _Field, x: Floats) -> Floats:
    return np.vstack([x, np.zeros((len(field.problem.pairs), x.shape[1]))])


def _filled(field: _Field, unit: Floats, paces: Paces | None, tags: list[Floats]) -> _Solved:
    """Water-filling. Prices are those of the smallest level, which is what `value` is."""
    merged = field.merged(unit, *tags)
    at = np.arange(len(unit)) if merged is None else merged.jobs.first
    pool = field.pool(merged)
    filled = water_filling(pool, field.alone.capacity, unit[at], paces, stop=field.stop)
    x = expanded(merged, filled.answer)
    first = unit[at] if paces is None else paces(np.ones(len(at), np.bool_)) * unit[at]
    reached = pool.throughput(filled.answer)[first > 0] / first[first > 0]
    return _Solved(float(reached.min()), filled.even.bound, x, filled.even.prices)


def _lexicographic(field: _Field) -> _Solved:
    return _filled(field, _unit(field), None, [])


def _hierarchical(field: _Field) -> _Solved:
    problem = field.problem
    if not problem.entities:
        raise BadInput("there are none", where="entities", mend="state them, or use max-min")
    order = _parents_first(problem.parent)
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(1, len(order) + 1)
    parent = np.where(problem.parent >= 0, place[problem.parent], 0)[order]
    owner = np.where(problem.entity >= 0, place[problem.entity], 0)
    tree = Tree(
        np.append(0, parent),
        np.append(1.0, problem.entity_weight[order]),
        np.append(False, problem.entity_fifo[order]),
        owner,
        problem.weight,
    )
    every = np.arange(len(owner), dtype=np.float64)
    alike = np.where(tree.fifo[owner], every, -1.0)
    unit = _unit(field, np.ones(len(owner)))
    if field.pairs is not None:  # classes would need weights of their own
        return _filled(field, unit, tree.parts, [every])
    return _filled(field, unit, tree.parts, [alike])


def _parents_first(parent: Ints) -> Ints:
    depth = np.zeros(len(parent), np.int64)
    above = parent.copy()
    while (above >= 0).any():
        depth += above >= 0
        above = np.where(above >= 0, parent[above], -1)
    return np.argsort(depth, kind="stable")


def _steps(field: _Field, rows: Ints | None = None) -> Floats:
    steps = field.problem.steps
    for row in range(len(steps)) if rows is None else rows.tolist():
        if np.isnan(steps[row]):
            raise BadInput(
                "it is not stated", where=f"jobs[{row}].steps_remaining", mend="this needs it"
            )
    return steps


def _finish_time(field: _Field) -> _Solved:
    problem, steps = field.problem, _steps(field)
    age, alone = problem.seconds_elapsed, isolated(field.alone)
    if (alone <= 0).any():
        raise BadInput("its equal share has throughput 0", where="jobs", mend="give throughputs")
    independent = problem.isolated_seconds_elapsed + steps / alone
    merged = field.merged(steps, age, independent)
    at = np.arange(len(steps)) if merged is None else merged.jobs.first
    few_steps, few_age, whole = steps[at], age[at], independent[at]

    def demand(part: float) -> Floats:
        needed: Floats = few_steps * part / (whole - few_age * part)
        return needed

    def reached(eff: Floats) -> float:
        return float((independent / (age + steps / eff)).min())

    found = largest(
        field.pool(merged), demand, reached(alone), reached(field.fastest()), stop=field.stop
    )
    x = expanded(merged, found.answer)
    eff = _throughput(field, x)
    value, prices = 1 / reached(eff), np.zeros(len(problem.types))
    if len(found.prices):
        step = 1e-6 * found.value
        slope = float(found.worth @ (demand(found.value) - demand(found.value - step))) / step
        prices = found.prices / max(slope, TINY) * value**2
    return _Solved(value, min(1 / found.bound, value), x, prices)


def _makespan(field: _Field) -> _Solved:
    steps = _steps(field)
    found = field.max_min(steps / steps.max())
    value = float((steps / np.maximum(_throughput(field, found.x), TINY)).max())
    prices = None if found.prices is None else found.prices * value / found.value
    return _Solved(value, min(steps.max() / found.bound, value), found.x, prices)


def _floor(field: _Field) -> Floats:
    """What is needed per second to be done within the SLO."""
    seconds = field.problem.slo_seconds
    rows = np.flatnonzero(~np.isnan(seconds))
    floor = np.zeros(len(seconds))
    if len(rows):
        floor[rows] = _steps(field, rows)[rows] / seconds[rows]
    return floor


def _sum(field: _Field, factor: Floats, price: Floats) -> _Solved:
    floor = _floor(field)
    try:
        return field.max_sum(factor, price, floor)
    except Infeasible:
        raise _late(field, floor) from None


def _late(field: _Field, floor: Floats) -> BadInput:
    """Which SLOs cannot hold together: those with a price where all are missed alike."""
    names, mend = field.problem.names, "allow more seconds, or add GPUs"
    field.stop = None  # who misses what by how much is said exactly
    alone = np.flatnonzero(floor > field.fastest() * (1 + 1e-9))
    if len(alone):
        row = int(alone[0])
        said = f"{names[row]!r} needs {floor[row]:.6g} steps/s and never does more than"
        return BadInput(
            f"{said} {field.fastest()[row]:.6g}", where=f"jobs[{row}].slo_seconds", mend=mend
        )
    rows = np.flatnonzero(floor > 0)
    merged = field.merged(floor)
    at = np.arange(len(floor)) if merged is None else merged.jobs.first
    answer = field.pool(merged).max_min(floor[at])
    tight = (answer.worth if merged is None else answer.worth[merged.jobs.of])[rows] > 0
    listed = ", ".join(names[row] for row in rows[tight][:8].tolist())
    more = f" and {tight.sum() - 8} more" if tight.sum() > 8 else ""
    return BadInput(
        f"the SLOs of {listed}{more} cannot all be met: at most {100 * answer.value:.4g} % of what"
        " each needs",
        where=f"jobs[{rows[tight][0] if tight.any() else rows[0]}].slo_seconds",
        mend=mend,
    )


def _max_sum(field: _Field) -> _Solved:
    return _sum(field, np.ones(len(field.problem.names)), np.ones(len(field.problem.columns)))


def _max_sum_per_cost(field: _Field) -> _Solved:
    price = field.problem.price
    for kind, name in enumerate(field.problem.types):
        if np.isnan(price[kind]):
            raise BadInput("it is not stated", where=f"prices.{name}", mend="give USD per GPU-hour")
    return _sum(field, np.ones(len(field.problem.names)), price[field.problem.kind])


def _fifo(field: _Field) -> _Solved:
    n = len(field.problem.names)
    return _in_order(field, np.arange(n))


def _shortest_first(field: _Field) -> _Solved:
    return _in_order(field, np.argsort(_steps(field) / field.alone.fastest(), kind="stable"))


def _in_order(field: _Field, order: Ints) -> _Solved:
    """Gavel's FIFO: throughput over the best, weighted by n, n - 1, ... 1 in order."""
    rank = np.empty(len(order))
    rank[order] = np.arange(len(order), 0, -1)
    price = np.ones(len(field.problem.columns))
    return field.max_sum(rank / field.alone.fastest(), price, np.zeros(len(order)))


def _isolated(field: _Field) -> _Solved:
    x = isolated_shares(field.alone)
    value = float((field.alone.effective(x) / _unit(field)).min())
    return _Solved(value, value, _padded(field, x), None)


OBJECTIVES: dict[str, Callable[[_Field], _Solved]] = {
    "max-min": _max_min,
    "max-min-agnostic": _agnostic,
    "max-min-lexicographic": _lexicographic,
    "finish-time-fairness": _finish_time,
    "makespan": _makespan,
    "max-sum": _max_sum,
    "max-sum-per-cost": _max_sum_per_cost,
    "fifo": _fifo,
    "sjf": _shortest_first,
    "isolated": _isolated,
    "hierarchical": _hierarchical,
}


def _throughput(field: _Field, x: Floats) -> Floats:
    return field.alone.effective(x) if field.pairs is None else field.pairs.throughput(x)


POP_DEAL = Deal.REPLICATED
IN_PARTS = ("max-min", "makespan", "max-sum", "max-sum-per-cost", "fifo", "sjf")
"""Objectives of one linear programme, for which POP can be compared."""


def _parted(problem: Problem, objective: str, parts: int, exact: float) -> Parted:
    if objective not in IN_PARTS or len(problem.pairs):
        raise BadInput(
            "only one linear programme without pairs is solved in parts",
            where="pop",
            mend=f"use {', '.join(IN_PARTS)}",
        )
    if parts < 1:
        raise BadInput(f"{parts} parts", where="pop", mend="give at least 1")
    field = _PartedField(problem, None)
    field.parts = parts
    value = OBJECTIVES[objective](field).value
    return Parted(parts, value, abs(value - exact) / max(abs(exact), TINY))


def allocate(
    problem: Problem | Mapping[str, Any] | str | Path,
    objective: str = "max-min",
    *,
    time_limit: float | None = None,
    pop: int = 0,
) -> Allocated:
    """The best division of GPU time under `objective`, one of `OBJECTIVES`.

    `problem`: a file of docs/problem-format.md, or one as decoded. `time_limit`, seconds: then the
    best so far with its gap. `pop`: in how many parts partitioned optimisation is to do the same,
    for comparison. Raises BadInput.
    """
    if objective not in OBJECTIVES:
        raise BadInput(
            f"{objective!r} is not a valid objective",
            where="objective",
            mend=f"use {', '.join(OBJECTIVES)}",
        )
    start, began = time.process_time(), time.monotonic()
    stop = None if time_limit is None else (lambda: time.monotonic() - began >= time_limit)
    field = _Field(load_problem(problem), stop)
    solved = OBJECTIVES[objective](field)
    taken = time.process_time() - start
    in_parts = _parted(field.problem, objective, pop, solved.value) if pop else None
    largest_of = max(abs(solved.value), abs(solved.bound), TINY)
    return Allocated(
        field.problem,
        objective,
        solved.value,
        abs(solved.bound - solved.value) / largest_of,
        solved.x,
        _throughput(field, solved.x),
        solved.prices,
        taken,
        in_parts,
    )
