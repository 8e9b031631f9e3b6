"""Whose turn it is: the rows of an allocation in order of what they are owed.

The order changes with every round and the rows do not, so they are kept as arrays, and so is the
time that each has received.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ganger.core.allocation import Allocation, Share
from ganger.core.table import Ids
from ganger.core.view import View


class Rows(NamedTuple):
    """An allocation's rows as arrays, in their order. `kind`: its GPU type's number among those
    of the cluster, -1 for any; `unserved`: what is due to a row that has received nothing;
    `by_amount`: rows in order of amount, then job; `several`: whether some have two jobs; `least`:
    the smallest amount."""

    allocation: Allocation
    first: Ids
    gpus: Ids
    kind: Ids
    amount: NDArray[np.float64]
    unserved: NDArray[np.float64]
    by_amount: Ids
    several: bool
    least: float

    def ranked(
        self, received: Ids, elapsed: int, kept: NDArray[np.bool_] | None = None
    ) -> list[int]:
        """The rows (those that are `kept`) in order of allocation over share of the time `elapsed`
        that each has `received`, microseconds; ties by amount, then job."""
        some = self.by_amount if kept is None else self.by_amount[kept[self.by_amount]]
        due, had = self.unserved[some], received[some]
        got = had > 0
        due[got] = np.round(self.amount[some][got] / (had[got] / elapsed), 9)
        order: list[int] = some[np.argsort(-due, kind="stable")].tolist()
        return order


def rows_of(view: View, allocation: Allocation) -> Rows:
    """The rows of the allocation in force, made once."""
    known: Rows | None = view.scratch.get("rows")
    if known is not None and known.allocation is allocation:
        return known
    rows = allocation.rows
    amount = np.array([row.amount for row in rows], np.float64)
    codes = {kind: code for code, kind in enumerate(view.nodes.types) if kind}
    made = view.scratch["rows"] = Rows(
        allocation,
        np.array([row.jobs[0] for row in rows], np.int64),
        np.array([row.gpus for row in rows], np.int64),
        np.array([codes.get(row.gpu_type, -1) for row in rows], np.int64),
        amount,
        np.array([round(row.amount * 1e9, 9) for row in rows], np.float64),
        np.array(sorted(range(len(rows)), key=lambda i: _by_amount(rows[i])), np.int64),
        any(len(row.jobs) > 1 for row in rows),
        float(amount.min(initial=1.0)),
    )
    return made


def _by_amount(row: Share) -> tuple[float, tuple[int, ...]]:
    return -row.amount, row.jobs


def served(view: View, rows: Rows, *, sharing: bool) -> NDArray[np.bool_]:
    """The rows whose jobs hold GPUs of their type now; `sharing`: jobs that share the very same
    ones are one, of which only the rows of both are served."""
    if not sharing:
        on = _kinds(view)[rows.first]
        return np.asarray((on == rows.kind) | ((rows.kind < 0) & (on >= 0)))
    number: dict[tuple[tuple[int, ...], str], list[int]] = {}
    for i, row in enumerate(rows.allocation.rows):
        number.setdefault((row.jobs, row.gpu_type), []).append(i)
    together: dict[object, list[int]] = {}
    for job, (_, placement) in view.ledger.holds.items():
        shares = placement and placement[0].share > 0
        together.setdefault(placement if shares else job, []).append(job)
    mask = np.zeros(len(rows.first), np.bool_)
    for jobs in together.values():
        kind = view.ledger.cell_of[view.ledger.holds[jobs[0]][1][0].node].gpu_type
        for each in (kind, ""):
            mask[number.get((tuple(sorted(jobs)), each), [])] = True
    return mask


def _kinds(view: View) -> Ids:
    """By job the number of the GPU type that it holds, -2 where it holds nothing."""
    nodes, holds = view.nodes, view.ledger.holds
    kinds = np.full(view.jobs.capacity, -2, np.int64)
    who = np.fromiter(holds, np.int64, len(holds))
    if len(nodes.types) == 1:
        kinds[who] = 0
        return kinds
    where = np.fromiter((held[1][0].node for held in holds.values()), np.int64, len(holds))
    kinds[who] = nodes.gpu_type[where]
    return kinds
