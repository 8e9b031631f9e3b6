"""Many small programmes instead of a large one (POP, SOSP 2021), around any objective."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ganger.core.allocation import Allocation
from ganger.core.state.table import Ids
from ganger.core.view import View
from ganger.mechanisms.rounds.program import Floats, Objective, Problem, divide, pose
from ganger.solve.division.programme import Answer, Ints, Shares
from ganger.solve.pop import Deal, partitioned

_UNPROVED = np.zeros(0)


@dataclass(frozen=True)
class Partitioned:
    """Allocates by `objective` in `parts` parts with 1/parts of every GPU type each; `deal` says
    how jobs come to parts. There are never more parts than jobs."""

    objective: Objective
    parts: int
    deal: Deal

    def allocate(self, view: View, ids: Ids) -> Allocation:
        """Rows in order of job."""
        return divide(pose(view, ids), False, lambda problem: self._solve(view, problem))

    def _solve(self, view: View, problem: Problem) -> Floats:
        seed = int(view.rng("parts").integers(1 << 31))

        def solve(part: Shares, rows: Ints, fraction: Floats) -> Answer:
            weight = problem.weight[rows] * fraction
            some = Problem(problem.ids[rows], problem.types, part, weight)
            return Answer(self.objective(view, some), np.nan, np.nan, _UNPROVED, _UNPROVED)

        return partitioned(problem.shares, self.parts, solve, self.deal, seed)
