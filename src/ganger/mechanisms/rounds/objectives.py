"""What a division of time optimises: one set of objectives, for jobs alone and for jobs in pairs.

An objective says what counts (`unit`, `factor`); called, it solves the programme without pairs.
`recipes/training/gavel/space_sharing` solves the same objectives with pairs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np

from ganger.core.units import NEVER
from ganger.core.view import View
from ganger.mechanisms.rounds.program import (
    Floats,
    Problem,
    fair_unit,
    filled_up,
    largest_sum,
    raised_to,
    unrivalled,
    work_left,
)
from ganger.solve.division.programme import isolated_shares
from ganger.solve.division.shares import max_sum
from ganger.solve.highs import Infeasible

Units: TypeAlias = Callable[[View, Problem], Floats]


@dataclass(frozen=True)
class Raised:
    """The smallest multiple of each job's `unit` at its largest; what is left goes where it does
    most. `in_turn`: after the smallest the second smallest, and so on."""

    unit: Units
    in_turn: bool = False

    def __call__(self, view: View, problem: Problem) -> Floats:
        """The fractions of time."""
        if self.in_turn:
            return filled_up(problem, self.unit(view, problem), None)
        alone = unrivalled(problem.shares, problem.shares.rate)
        return raised_to(problem, self.unit(view, problem)) if alone is None else alone


@dataclass(frozen=True)
class LargestSum:
    """The largest sum of throughputs; starves jobs that are slow everywhere. `in_order`: of
    throughputs over the job's best, the earlier the heavier. `priced`: of throughput per dollar,
    types without a price counting as 1 USD/h. `deadlines`: jobs that have one get what it takes to
    meet it, unless that is out of reach (Gavel, sections 4.2 and 4.4)."""

    in_order: bool = False
    priced: bool = False
    deadlines: bool = False

    def __call__(self, view: View, problem: Problem) -> Floats:
        """The fractions of time."""
        gain = problem.shares.rate
        if self.in_order:
            # Multiplied after the division; `factor` divides first, and rounds otherwise.
            gain = gain / gain.max(axis=1, keepdims=True) * _earlier(problem)[:, None]
        if self.priced:
            gain = gain / self.price(view, problem)
        floor = _in_time(view, problem) if self.deadlines else np.zeros(len(problem.ids))
        if not floor.any():
            return largest_sum(problem, gain)
        try:
            return max_sum(problem.shares, gain, floor).x
        except Infeasible:
            return largest_sum(problem, gain)

    def factor(self, problem: Problem) -> Floats:
        """By how much each job's throughput counts."""
        if self.in_order:
            return np.asarray(_earlier(problem) / problem.shares.rate.max(axis=1))
        return np.ones(len(problem.ids))

    def price(self, view: View, problem: Problem) -> Floats:
        """What an hour on each type costs, as far as that counts."""
        if not self.priced:
            return np.ones(len(problem.types))
        prices = {kind.name: kind.price for kind in view.nodes.type_specs}
        return np.array([prices.get(kind) or 1.0 for kind in problem.types])


def _earlier(problem: Problem) -> Floats:
    """Weights by order: n for the first of n jobs, 1 for the last."""
    n = len(problem.ids)
    return np.asarray(n - np.arange(n), np.float64)


def _in_time(view: View, problem: Problem) -> Floats:
    """The throughput at which each would meet its deadline; 0 without one or if it cannot."""
    deadline = view.jobs.deadline[problem.ids]
    rest = (deadline - view.now).astype(np.float64)
    needed = work_left(view, problem.ids) / np.maximum(rest, 1.0)
    able = (deadline < NEVER) & (rest > 0) & (needed <= problem.shares.fastest())
    return np.where(able, needed, 0.0)


def equal_parts(view: View, problem: Problem) -> Floats:
    """1/n of every type for each of n jobs, whatever it is worth to them."""
    return isolated_shares(problem.shares)


def _fair(view: View, problem: Problem) -> Floats:
    return fair_unit(problem)


def _part_of_work(view: View, problem: Problem) -> Floats:
    left = work_left(view, problem.ids)
    return np.asarray(left / left.max())


MOST_EVEN: Final = Raised(_fair)
"""Max-min fairness in one programme."""
WATER_FILLED: Final = Raised(_fair, in_turn=True)
"""Max-min fairness all the way."""
SHORTEST_MAKESPAN: Final = Raised(_part_of_work)
"""All done as early as possible: eff_i >= left_i / T is linear in 1/T, so that one programme is
enough where the public code bisects."""
FIRST_COME: Final = LargestSum(in_order=True)
"""Gavel's FIFO."""
