"""Choices that cannot be halved: a model, a greedy answer to begin with, HiGHS to better it.

Every function is within budgets of nodes and returns the best feasible choice with its bound, in
the worst case the greedy one.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy import sparse

from ganger.solve.division.programme import Floats, Ints, Mask
from ganger.solve.highs import maximise_whole, model

NODES = 10_000
GAP = 1e-6


class Chosen(NamedTuple):
    """Which options are taken, their total gain, what it could be at most, and nodes used."""

    taken: Mask
    value: float
    bound: float
    nodes: int


def multiple_choice(
    gain: Floats,
    group: Ints,
    take: Floats,
    capacity: Floats,
    *,
    nodes: int = NODES,
    gap: float = GAP,
) -> Chosen:
    """At most one option of each group, of the largest total gain, within `capacity`.

    `take`: (options, resources). The multiple-choice knapsack with several resources; the
    configurations of Sia (SOSP 2023, section 3.3) are its options.
    """
    start = _greedy_choice(gain, group, take, capacity)
    useful = (gain > 0) & (take <= capacity).all(axis=1)
    groups, row = np.unique(group, return_inverse=True)
    one = sparse.csr_array(
        (np.ones(len(gain)), (row, np.arange(len(gain)))), shape=(len(groups), len(gain))
    )
    rows = sparse.vstack([sparse.csr_array(take.T), one])
    posed = model(
        gain,
        sparse.csr_array(rows),
        np.concatenate([capacity, np.ones(len(groups))]),
        upper=useful.astype(np.float64),
        integer=np.ones(len(gain), np.bool_),
    )
    found = maximise_whole(posed, start.astype(np.float64), nodes=nodes, gap=gap)
    return Chosen(found.x > 0.5, found.value, found.bound, found.work)


def _greedy_choice(gain: Floats, group: Ints, take: Floats, capacity: Floats) -> Mask:
    """By gain over the part of the resources taken; each group's first that fits."""
    part = (take / np.maximum(capacity, 1e-300)).sum(axis=1)
    order = np.argsort(-gain / np.maximum(part, 1e-12), kind="stable")
    left, taken, done = capacity.copy(), np.zeros(len(gain), np.bool_), set[int]()
    for option in order.tolist():
        if gain[option] <= 0 or int(group[option]) in done:
            continue
        if (take[option] <= left).all():
            taken[option] = True
            left -= take[option]
            done.add(int(group[option]))
    return taken


class Leases(NamedTuple):
    """Which jobs run in which lease, (jobs, leases); those that cannot meet their deadline in
    none."""

    runs: Mask
    value: float
    bound: float
    nodes: int


def pack_leases(
    gpus: Ints,
    leases: Ints,
    deadline: Ints,
    value: Floats,
    free: Ints,
    *,
    nodes: int = NODES,
    gap: float = GAP,
) -> Leases:
    """The jobs of the largest total value that can all have their leases before their deadlines.

    Job i needs `leases[i]` leases of `gpus[i]` GPUs, all before lease `deadline[i]`; lease t has
    `free[t]` GPUs (Chronus, SoCC 2021).
    """
    n, t = len(gpus), len(free)
    early = np.arange(t)[None, :] < deadline[:, None]
    start = _greedy_leases(gpus, leases, deadline, value, free)
    grid = np.arange(n * t).reshape(n, t)
    count = sparse.kron(sparse.eye_array(n), np.ones((1, t)))
    use = sparse.kron(np.asarray(gpus, np.float64)[None, :], sparse.eye_array(t))
    rows = sparse.vstack(
        [
            sparse.hstack([count, -sparse.diags_array(leases.astype(np.float64))]),
            sparse.hstack([use, sparse.csr_array((t, n))]),
        ]
    )
    gain = np.concatenate([np.zeros(n * t), value])
    posed = model(
        gain,
        sparse.csr_array(rows),
        np.concatenate([np.zeros(n), free]),
        least=np.concatenate([np.zeros(n), np.full(t, -np.inf)]),
        upper=np.concatenate([early.ravel().astype(np.float64), np.ones(n)]),
        integer=np.ones(len(gain), np.bool_),
    )
    begin = np.concatenate([start.ravel(), start.any(axis=1)]).astype(np.float64)
    found = maximise_whole(posed, begin, nodes=nodes, gap=gap)
    return Leases(found.x[grid] > 0.5, found.value, found.bound, found.work)


def _greedy_leases(gpus: Ints, leases: Ints, deadline: Ints, value: Floats, free: Ints) -> Mask:
    """In order of slack, then leases, then GPUs; from the latest lease that is free backwards."""
    left, runs = free.copy(), np.zeros((len(gpus), len(free)), np.bool_)
    order = np.lexsort((gpus, leases, np.minimum(deadline, len(free)) - leases))
    order = order[(value[order] > 0) & (leases[order] > 0)]
    columns = (order, *(each[order] for each in (gpus, leases, deadline)))
    for job, size, need, end in zip(*(column.tolist() for column in columns), strict=True):
        fits = (left[:end] >= size).nonzero()[0]
        if need <= len(fits):
            chosen = fits[-need:]
            runs[job, chosen] = True
            left[chosen] -= size
    return runs


def fill_backwards(gpus: Ints, leases: Ints, deadline: Ints, free: Ints) -> Mask:
    """Which jobs run in which lease by the rule that `pack_leases` begins with, all of one value:
    the least slack first, each in the latest leases that are free (Chronus' fast check)."""
    return _greedy_leases(gpus, leases, deadline, np.ones(len(gpus)), free)
