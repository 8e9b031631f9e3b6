"""Gavel's objectives as its public code has them solved: by an interior-point method.

Where many divisions are equally good, it ends in the middle of them, which time-shares more than a
vertex does; its makespan is searched by halving, and any division within it will do.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

import numpy as np

from ganger.core.allocation import Allocation
from ganger.core.table import Ids
from ganger.core.units import SECOND
from ganger.core.view import View
from ganger.mechanisms.fair import Notes
from ganger.mechanisms.program import (
    FinishTimeFairness,
    Floats,
    Problem,
    fair_unit,
    rows_of,
    pose,
    rho_demand,
    work_left,
)
from ganger.solve.centre import highest, within
from ganger.solve.programme import isolated
from ganger.solve.search import largest
from ganger.solve.shares import SharesPool, max_min


class Centred(Enum):
    """An objective that the public code solves so."""

    MAX_MIN = "max-min"
    MAKESPAN = "makespan"
    FTF = "ftf"


SLACK = 1e-5
"""How much worse than the best finish-time fairness may be, so that there is an inside."""


@dataclass(frozen=True)
class CentredProgramme:
    """Allocates by `objective`. `agnostic`: every type is taken for the reference."""

    objective: Centred
    agnostic: bool = False

    def remember(self, view: View, ids: Ids, notes: Notes) -> Notes:
        """What finish-time fairness must know of the past."""
        if self.objective is not Centred.FTF:
            return {}
        return FinishTimeFairness(self.agnostic).remember(view, ids, notes)

    def allocate(self, view: View, ids: Ids) -> Allocation:
        """Without a past."""
        return self.allocate_from(view, ids, self.remember(view, ids, {}))

    def allocate_from(self, view: View, ids: Ids, notes: Notes) -> Allocation:
        """Rows in order of job."""
        problem = pose(view, ids)
        if not len(problem.ids):
            return Allocation()
        if self.agnostic:
            alike = problem.shares._replace(rate=np.ones_like(problem.shares.rate))
            problem = problem._replace(shares=alike)
        if self.objective is Centred.MAX_MIN:
            return rows_of(problem, highest(problem.shares, fair_unit(problem))[0])
        solve = _soonest if self.objective is Centred.MAKESPAN else _fairest
        return rows_of(problem, solve(view, problem, notes))


def _soonest(view: View, problem: Problem, notes: Notes) -> Floats:
    """Halving between 100 and 1e6 s (then ten times that, and so on) until it is within 5 %; the
    middle of all that ends within the last time that was enough."""
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
    x = within(problem.shares, left / enough)
    return found.x if x is None else x


def _fairest(view: View, problem: Problem, notes: Notes) -> Floats:
    """The middle of all that is as fair as can be."""
    posed = problem.shares
    demand, reached = rho_demand(view, problem, notes)
    start, top = reached(isolated(posed)), reached(posed.fastest())
    found = largest(SharesPool(posed), demand, start, top)
    x = within(posed, demand(found.value * (1 - SLACK)), gentle=True)
    return found.answer.x if x is None else x


__all__ = ["Centred", "CentredProgramme"]
