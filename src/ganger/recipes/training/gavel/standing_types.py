"""First come, first served on GPU types that jobs keep, as Gavel's public simulator has it.

Its `fifo` means to give each job a type at random and does not: what it drew says only which type
is struck off the list when one is full, and the job gets the last type of that list, with room for
it or not.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ganger.core.allocation import Allocation
from ganger.core.state.table import Ids
from ganger.core.view import View
from ganger.mechanisms.common.python_random import Draws
from ganger.mechanisms.fairness.fair import Notes
from ganger.mechanisms.rounds.program import Problem, pose


@dataclass(frozen=True)
class StandingTypes:
    """A job keeps the type that it was given until it ends; the first job of the queue takes over
    the type of a job that has ended. The notes hold the number of each job's type among those of
    the cluster in alphabetical order."""

    def remember(self, view: View, ids: Ids, notes: Notes) -> Notes:
        """Give types to those that have none."""
        problem = pose(view, ids)
        if not len(problem.ids):
            return Notes(draws=notes.draws)
        draws = Draws(view.seed, notes.draws)
        given = _given(problem, notes, draws)
        jobs = sorted(given)
        kinds = np.array([given[job] for job in jobs], "<f8")
        columns = np.concatenate([kinds, np.zeros(2 * len(jobs))])
        return Notes(jobs, columns.astype("<f8").tobytes(), draws.count)

    def allocate_from(self, view: View, ids: Ids, notes: Notes) -> Allocation:
        """Rows in order of job."""
        names, allocation = sorted(pose(view, ids).types, key=str.lower), Allocation()
        _, (kinds, _, _) = notes.of(np.array(notes.jobs, np.int64))
        for job, kind in zip(notes.jobs, kinds.astype(np.int64).tolist(), strict=True):
            allocation.add((job,), names[kind], int(view.at.gpus[job]), 1.0)
        return allocation


def _given(problem: Problem, notes: Notes, draws: Draws) -> dict[int, int]:
    """The type of every job that has one."""
    order = sorted(range(len(problem.types)), key=lambda kind: problem.types[kind].lower())
    free = problem.shares.capacity[order].astype(np.int64).tolist()
    gpus = dict(zip(problem.ids.tolist(), problem.shares.scale.astype(int).tolist(), strict=True))
    before = np.array(notes.jobs, np.int64)
    kinds = notes.of(before)[1][0].astype(np.int64).tolist()
    given = dict(zip(notes.jobs, kinds, strict=True))
    queue = [job for job in gpus if job not in given]
    for job in notes.jobs:
        kind = given[job]
        if job in gpus:
            free[kind] -= gpus[job]
            continue
        del given[job]
        if queue:
            heir = queue.pop(0)
            if gpus[heir] <= free[kind]:
                given[heir] = kind
                free[kind] -= gpus[heir]
    listed = [kind for kind in range(len(free)) if free[kind] > 0]
    for job in queue:
        fits = [at for at, kind in enumerate(listed) if free[kind] >= gpus[job]]
        if not fits:
            break
        struck, kind = fits[draws.below(len(fits))], listed[-1]
        given[job] = kind
        free[kind] -= gpus[job]
        if not free[kind]:
            del listed[struck]
    return given
