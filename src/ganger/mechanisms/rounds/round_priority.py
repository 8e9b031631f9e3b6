"""Whose turn it is: the rows of an allocation in order of what they are owed.

The order changes with every round and the rows do not, so they are kept as arrays, and so is the
time that each has received.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ganger.core.allocation import Allocation
from ganger.core.state.jobs import Phase
from ganger.core.state.table import Ids, cells
from ganger.core.view import View

_STARTING, _STOPPING = int(Phase.STARTING), int(Phase.STOPPING)


class Rows:
    """An allocation's rows, in their order, by column. Most allocations are replaced before
    anybody asks for the arrays, so these are made when they are first asked for.

    `several`: whether some have two jobs; `least`: the smallest amount.
    """

    def __init__(self, allocation: Allocation, types: Iterable[str]) -> None:
        self.allocation = allocation
        self._types = types
        self._columns = jobs, *_, amounts, _ = list(zip(*allocation.rows, strict=True)) or [()] * 5
        self.jobs: list[int] = [each[0] for each in jobs]
        self.several = max(map(len, jobs), default=1) > 1
        self.least: float = min(amounts, default=1.0)

    @cached_property
    def first(self) -> Ids:
        """The (first) job of each."""
        return np.array(self.jobs, np.int64)

    @cached_property
    def kind(self) -> Ids:
        """The number of each one's GPU type among those of the cluster, -1 for any."""
        codes = {kind: code for code, kind in enumerate(self._types) if kind}
        return np.array([codes.get(each, -1) for each in self._columns[1]], np.int64)

    @cached_property
    def gpus(self) -> Ids:
        """How many GPUs each is for."""
        return np.array(self._columns[2], np.int64)

    @cached_property
    def _amount(self) -> NDArray[np.float64]:
        return np.array(self._columns[3], np.float64)

    @cached_property
    def _by_amount(self) -> Ids:
        """Rows in order of amount, then jobs."""
        if not self.several:
            return np.lexsort((self.first, -self._amount))
        keys = [(-row.amount, row.jobs) for row in self.allocation.rows]
        return np.array(sorted(range(len(keys)), key=keys.__getitem__))

    @cached_property
    def _unserved(self) -> NDArray[np.float64]:
        """What is due to a row that has received nothing."""
        due = self._amount * 1e9
        whole = np.rint(due)
        return np.where(np.abs(due - whole) < 1e-6, whole, due)

    def ranked(
        self, received: Ids | None, elapsed: int, kept: NDArray[np.bool_] | None = None
    ) -> Ids:
        """The rows (those that are `kept`) in order of allocation over share of the time `elapsed`
        that each has `received`, microseconds (None: none has anything); ties by amount, then
        job."""
        some = self._by_amount
        if kept is not None:
            some = some[kept[some]]
        if received is not None:
            due, had = self._unserved[some], received[some]
            got = had > 0
            due[got] = np.round(self._amount[some][got] / (had[got] / elapsed), 9)
            some = some[np.argsort(-due, kind="stable")]
        return some


class _StandingRows:
    """The rows of the allocation that was asked about last."""

    __slots__ = ("rows",)

    def __init__(self) -> None:
        self.rows: Rows | None = None


def rows_of(view: View, allocation: Allocation) -> Rows:
    """The rows of the allocation in force, made once."""
    standing = view.cached(_StandingRows)
    known = standing.rows
    if known is None or known.allocation is not allocation:
        known = standing.rows = Rows(allocation, view.nodes.types)
    return known


def served(view: View, rows: Rows, *, sharing: bool) -> Ids | list[int]:
    """The rows whose jobs hold GPUs of their type now; `sharing`: jobs that share the very same
    ones are one, of which only the rows of both are served."""
    if not sharing:
        held = _types_held(view, rows.first)
        return np.flatnonzero((held >= 0) & ((rows.kind < 0) | (rows.kind == held)))
    holds = view.ledger.holds
    number: dict[tuple[tuple[int, ...], str], list[int]] = {}
    for i, row in enumerate(rows.allocation.rows):
        number.setdefault((row.jobs, row.gpu_type), []).append(i)
    together: dict[object, list[int]] = {}
    for job, (_, placement) in holds.items():
        shares = placement and placement[0].share > 0
        together.setdefault(placement if shares else job, []).append(job)
    found: list[int] = []
    for jobs in together.values():
        kind = view.ledger.cell_of[holds[jobs[0]][1][0].node].gpu_type
        for each in (kind, ""):
            found += number.get((tuple(sorted(jobs)), each), [])
    return found


class _TypesHeld:
    """By job: the attempt that was looked up, and the number of the GPU type that it holds."""

    __slots__ = ("attempt", "kind")

    def __init__(self, jobs: int) -> None:
        self.cover(jobs)

    def cover(self, jobs: int) -> None:
        """Nothing is known of so many jobs."""
        self.attempt, self.kind = np.full(jobs, -1), np.full(jobs, -1)


def _types_held(view: View, ids: Ids) -> Ids:
    """The number of the GPU type that each of `ids` holds, -1 if it holds nothing. An attempt keeps
    its place, so that only new ones are looked up."""
    jobs, holds, code = view.jobs, view.ledger.holds, cells(view.nodes.gpu_type)
    known = view.cached(_TypesHeld, jobs.capacity)
    if len(known.kind) != jobs.capacity:
        known.cover(jobs.capacity)
    attempt, kind = known.attempt, known.kind
    phase = jobs.phase[ids]
    there = (phase >= _STARTING) & (phase < _STOPPING)
    new = ids[there & (attempt[ids] != jobs.attempt[ids])]
    if len(new):
        kind[new] = [code[holds[job][1][0].node] for job in new.tolist()]
        attempt[new] = jobs.attempt[new]
    held: Ids = np.where(there, kind[ids], -1)
    return held
