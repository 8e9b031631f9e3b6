"""What the simulator keeps of each job: its columns, which grow, and its children still to end."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ganger.core.spec import Kind
from ganger.core.state.jobs import Declared, Jobs
from ganger.core.state.table import F64, I64, Table


class Outage(NamedTuple):
    """A node that is down from `down` until `up`, which is known `notice` before (microseconds)."""

    node: int
    down: int
    up: int
    notice: int = 0


class Rows(Table):
    """One row per job, in the order of the jobs table."""

    total: I64
    """Work to be done in all, microseconds on the reference; NEVER for a job that does not end."""
    did: F64
    """Work done and kept, which says nothing of how much is to be done in all."""
    alive: I64
    """The present attempt, with its suspensions; 0 if there is none."""
    began: I64
    rate: F64


class Children:
    """The searches that end with their last child, and how many each still has."""

    def __init__(self, declared: Declared) -> None:
        parent = declared.parent[: declared.n]
        parents, counts = np.unique(
            parent[(parent >= 0) & (declared.kind[parent] == Kind.TUNE)], return_counts=True
        )
        self.left: dict[int, int] = dict(zip(parents.tolist(), counts.tolist(), strict=True))
        """By search that ends with its last child: how many are not over."""
        self.retired: set[int] = set()
        """Jobs that are over as soon as they have let go."""

    def asked_for(self, parent: int) -> None:
        """A policy wants more children of it, so that it ends when the policy says so."""
        self.left.pop(parent, None)

    def over(self, job: int, parent: int) -> bool:
        """A job is over; whether it was the last child that its parent lives for."""
        self.retired.discard(job)
        if parent not in self.left:
            return False
        self.left[parent] -= 1
        return not self.left[parent]


def kept_run_time(
    jobs: Jobs, lasting: NDArray[np.int64], done: NDArray[np.float64]
) -> NDArray[np.float64]:
    """How long jobs computed in attempts whose work is kept: the part of their run time that the
    kept work is of all work done. `lasting`: what the present attempt adds to the books."""
    everything: NDArray[Any] = done + jobs.lost[: jobs.n]
    part = np.divide(done, everything, out=np.ones_like(done), where=everything > 0)
    return np.asarray((jobs.ran[: jobs.n] + lasting) * part, np.float64)
