"""Gavel's objectives as its public code has them solved: by an interior-point method.

Where many divisions are equally good, it ends in the middle of them, which time-shares more than a
vertex does; its makespan is searched by halving, and any division within it will do.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any

import numpy as np
from scipy import sparse

from ganger.core.allocation import Allocation
from ganger.core.state.table import Ids
from ganger.core.units import SECOND
from ganger.core.view import View
from ganger.mechanisms.common.believed import believed_duration
from ganger.mechanisms.fairness.fair import Notes
from ganger.mechanisms.rounds.objectives import MOST_EVEN
from ganger.mechanisms.rounds.program import (
    FinishTimeFairness,
    Floats,
    Problem,
    fair_unit,
    pose,
    rho_parts,
    rows_of,
    work_left,
)
from ganger.solve.division.interior_shares import feasible, highest
from ganger.solve.division.programme import Shares, isolated_shares
from ganger.solve.division.shares import max_min
from ganger.solve.interior import interior


class Centred(Enum):
    """An objective that the public code solves so."""

    MAX_MIN = "max-min"
    MAKESPAN = "makespan"
    FTF = "ftf"


@dataclass(frozen=True)
class CentredProgramme:
    """Allocates by `objective`. `agnostic`: every type is taken for the reference."""

    objective: Centred
    agnostic: bool

    def remember(self, view: View, ids: Ids, notes: Notes) -> Notes:
        """What finish-time fairness must know of the past."""
        if self.objective is not Centred.FTF:
            return Notes()
        return FinishTimeFairness(self.agnostic).remember(view, ids, notes)

    def allocate_from(self, view: View, ids: Ids, notes: Notes) -> Allocation:
        """Rows in order of job."""
        problem = pose(view, ids)
        if not len(problem.ids):
            return Allocation()
        if self.agnostic:
            alike = problem.shares._replace(rate=np.ones_like(problem.shares.rate))
            problem = problem._replace(shares=alike)
        if self.objective is Centred.MAX_MIN:
            return rows_of(problem, _most_even(view, problem), exact=True)
        solve = _soonest if self.objective is Centred.MAKESPAN else _fairest
        return rows_of(problem, solve(view, problem, notes), exact=True)


def _most_even(view: View, problem: Problem) -> Floats:
    try:
        return highest(problem.shares, fair_unit(problem))
    except ArithmeticError:
        return MOST_EVEN(view, problem)


def _soonest(view: View, problem: Problem, notes: Notes) -> Floats:
    """Halving between 100 and 1e6 s (then up to ten times that, and so on) until it is within 5 %,
    and any division that ends within the last time that was enough."""
    left = work_left(view, problem.ids) / SECOND
    found = max_min(problem.shares, left)
    soonest = 1.0 / found.value
    low, high, top, enough = 100.0, 1e6, 1e6, 0.0
    while not enough:
        while 1.05 * low < high:
            middle = (low + high) / 2
            if middle >= soonest:
                high = enough = middle
            else:
                low = middle
        low, top = top, 10 * top
        high = top
    try:
        steps = _steps(view, problem)  # their size decides where it ends
        posed = problem.shares._replace(rate=problem.shares.rate * steps[:, None])
        return feasible(posed, left * steps / enough)
    except ArithmeticError:
        return found.x


def _fairest(view: View, problem: Problem, notes: Notes) -> Floats:
    """min u with (age + left y) / independent <= u and y >= 1 / eff, the latter as cones."""
    posed, m = problem.shares, len(problem.ids)
    steps = _steps(view, problem)
    left, age, independent = (part / SECOND for part in rho_parts(view, problem, notes))
    rows, most = _asked(posed._replace(rate=posed.rate * steps[:, None]), np.zeros(m))
    count, above = posed.rate.size, len(most)
    of_y = sparse.diags_array(left * steps / independent)
    u = np.full((m, 1), -1.0)
    eff = -sparse.csr_array(rows[above - m :])  # rows were -eff
    rows, most = rows[: above - m], most[: above - m]
    fair: Any = sparse.hstack([sparse.csr_array((m, count)), of_y, sparse.csr_array(u)])
    flat = sparse.hstack([rows, sparse.csr_array((len(most), m + 1))])
    nothing = sparse.csr_array((m, 1))
    one = sparse.eye_array(m)
    cone = sparse.vstack(
        [
            sparse.hstack([-eff, -one, nothing]),
            sparse.hstack([-eff, one, nothing]),
            sparse.csr_array((m, count + m + 1)),
        ]
    )
    order = np.arange(3 * m).reshape(3, m).T.ravel()
    rows = sparse.vstack([flat, fair, sparse.csr_array(cone)[order]])
    most = np.concatenate([most, -age / independent, np.tile([0.0, 0.0, 2.0], m)])
    cost = np.append(np.zeros(count + m), 1.0)
    try:
        x = interior(cost, rows, most, m)[:count].reshape(posed.rate.shape)
    except ArithmeticError:  # as the public code does when its solver fails
        return isolated_shares(posed)
    return np.clip(x, 0.0, 1.0)


def _steps(view: View, problem: Problem) -> Floats:
    """Steps per second on the reference; 1 where a job states no steps."""
    seconds = believed_duration(view, problem.ids) / SECOND
    stated = view.jobs.steps[problem.ids]
    return np.where((stated > 0) & (seconds > 0), stated / np.maximum(seconds, 1e-6), 1.0)


def _asked(posed: Shares, floor: Floats) -> tuple[Any, Floats]:
    """x >= 0, the kinds, everybody's time, eff >= floor, as rows and what they are at most."""
    m, n = posed.rate.shape
    of_job = sparse.kron(sparse.eye_array(m), np.ones((1, n)))
    rates: Any = sparse.csr_array(of_job).multiply(posed.rate.ravel()[None, :])
    kinds = sparse.kron(posed.scale[None, :], sparse.eye_array(n))
    rows = sparse.vstack([-sparse.eye_array(m * n), kinds, of_job, -rates])
    return rows, np.concatenate([np.zeros(m * n), posed.capacity, posed.limit, -floor])


__all__ = ["Centred", "CentredProgramme"]
