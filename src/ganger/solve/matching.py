"""Which job runs where and when, so that they end early on average (AlloX, EuroSys 2020).

The k-th last job on a machine delays k jobs, itself included: its cost is k times its processing
time there, whatever the others are. AlloX writes an assignment of n jobs to machines x n places;
like machines and the fact that nobody leaves an earlier place empty make that n jobs to at most
about n places of each kind of machine.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.optimize import linear_sum_assignment

from ganger.solve.programme import Floats, Ints


class Assigned(NamedTuple):
    """By job: the group of machines, which of them, and the place counted from the last (1).

    `cost` is the sum of the times at which they end.
    """

    group: Ints
    machine: Ints
    place: Ints
    cost: float


def assign(processing: Floats, count: Ints, ready: Floats | None = None) -> Assigned:
    """The order and place of least total completion time. `processing`: (jobs, groups), infinite
    where a job cannot run; `count`: like machines in each group; `ready`: when they are free.

    Exact. Raises ValueError if some job can run nowhere.
    """
    n, groups = processing.shape
    if not np.isfinite(processing).any(axis=1).all():
        raise ValueError("a job that can run nowhere cannot be assigned")
    wait = np.zeros(groups) if ready is None else ready
    used = np.flatnonzero(count)
    depth = [-(-n // int(count[g])) for g in used.tolist()]
    group = np.concatenate([np.full(d * count[g], g) for g, d in zip(used, depth, strict=True)])
    place = np.concatenate([
        np.repeat(np.arange(1, d + 1), count[g]) for g, d in zip(used, depth, strict=True)
    ])  # fmt: skip
    machine = np.concatenate([
        np.tile(np.arange(count[g]), d) for g, d in zip(used, depth, strict=True)
    ])  # fmt: skip
    cost = processing[:, group]
    cost *= place
    cost += wait[group]
    jobs, slots = linear_sum_assignment(cost)
    return Assigned(group[slots], machine[slots], place[slots], float(cost[jobs, slots].sum()))
