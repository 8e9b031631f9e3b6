"""Which job runs where and when, so that they end early on average (AlloX, EuroSys 2020).

The k-th last job on a machine delays k jobs, itself included: its cost is k times its processing
time there, whatever the others are. AlloX writes an assignment of n jobs to machines x n places;
like machines and the fact that nobody leaves an earlier place empty make that n jobs to at most
about n places of each kind of machine. Nor are all of those needed: a place costs everybody more
than the one after it in time, so that where the first places of a kind are not all taken its
earlier ones cannot help.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.optimize import linear_sum_assignment

from ganger.solve.division.programme import Floats, Ints


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
    full = np.array([-(-n // int(machines)) if machines else 0 for machines in count.tolist()])
    depth = np.minimum(full, -(-n // int(count.sum())))
    while True:
        try:
            found = _assigned(processing, count, wait, depth)
        except ValueError:  # somebody can run nowhere where there is room
            short = depth < full
        else:
            last = found.place == depth[found.group]
            short = (depth < full) & (np.bincount(found.group[last], minlength=groups) >= count)
        if not short.any():
            return found
        depth = np.where(short, np.minimum(2 * depth, full), depth)


def _assigned(processing: Floats, count: Ints, wait: Floats, depth: Ints) -> Assigned:
    """The same with `depth` places on each machine of a group; ValueError if these do not do."""
    size = depth * count
    group = np.repeat(np.arange(len(count)), size)
    slot = np.arange(len(group)) - np.repeat(np.cumsum(size) - size, size)
    place, machine = slot // count[group] + 1, slot % count[group]
    cost = np.take(processing, group, axis=1)
    cost *= place
    cost += wait[group]
    jobs, slots = linear_sum_assignment(cost)
    if len(jobs) < len(processing):
        raise ValueError("there are more jobs than places")
    total = float(cost[jobs, slots].sum())
    return Assigned(group[slots], machine[slots], place[slots], total)
