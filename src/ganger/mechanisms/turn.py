"""Whose turn it is: the rows of an allocation in order of what they are owed.

The order changes with every round and the rows do not, so they are kept as arrays; only who has
received something is anything but in the order of amounts.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ganger.core.allocation import Allocation, Share
from ganger.core.table import Ids
from ganger.core.view import View


class Rows(NamedTuple):
    """An allocation's rows as arrays, in their order. `unserved`: what is due to a row that has
    received nothing; `by_amount`: rows in order of amount, then job; `number`: rows by key;
    `several`: whether some have two jobs."""

    allocation: Allocation
    first: Ids
    gpus: Ids
    amount: NDArray[np.float64]
    unserved: NDArray[np.float64]
    by_amount: Ids
    number: dict[str, list[int]]
    several: bool

    def ranked(
        self, received: Mapping[str, int], elapsed: int, kept: NDArray[np.bool_] | None = None
    ) -> list[int]:
        """The rows (those that are `kept`) in order of allocation over share of the time `elapsed`
        that was received, microseconds; ties by amount, then job."""
        due = self.unserved.copy()
        for key, time in received.items():
            for row in self.number.get(key, ()):
                due[row] = round(float(self.amount[row]) / (time / elapsed), 9)
        some = self.by_amount if kept is None else self.by_amount[kept[self.by_amount]]
        order: list[int] = some[np.argsort(-due[some], kind="stable")].tolist()
        return order


def rows_of(view: View, allocation: Allocation) -> Rows:
    """The rows of the allocation in force, made once."""
    known: Rows | None = view.scratch.get("rows")
    if known is not None and known.allocation is allocation:
        return known
    rows = allocation.rows
    amount = np.array([row.amount for row in rows], np.float64)
    number: dict[str, list[int]] = {}
    for i, row in enumerate(rows):
        number.setdefault(key_of(row.jobs, row.gpu_type), []).append(i)
    made = view.scratch["rows"] = Rows(
        allocation,
        np.array([row.jobs[0] for row in rows], np.int64),
        np.array([row.gpus for row in rows], np.int64),
        amount,
        np.array([round(row.amount * 1e9, 9) for row in rows], np.float64),
        np.array(sorted(range(len(rows)), key=lambda i: _by_amount(rows[i])), np.int64),
        number,
        any(len(row.jobs) > 1 for row in rows),
    )
    return made


def _by_amount(row: Share) -> tuple[float, tuple[int, ...]]:
    return -row.amount, row.jobs


def key_of(jobs: tuple[int, ...], gpu_type: str) -> str:
    """Under what time received is booked: `job/type`, `job+job/type`."""
    return f"{'+'.join(map(str, jobs))}/{gpu_type}"


def served(view: View) -> list[str]:
    """The keys of all who hold GPUs, of their type and of all types; jobs that share the very same
    ones are one."""
    holds = view.ledger.holds
    known: dict[int, tuple[object, list[str]]] = view.scratch.setdefault("served", {})
    if len(known) > 2 * len(holds) + 64:
        known.clear()
    keys: list[str] = []
    together: dict[object, list[int]] = {}
    for job, held in holds.items():
        told = known.get(job)
        if told is None or told[0] is not held:
            placement = held[1]
            alone = not (placement and placement[0].share > 0)
            told = known[job] = (held, _keys(view, (job,)) if alone else [])
        if told[1]:
            keys += told[1]
        else:
            together.setdefault(held[1], []).append(job)
    for jobs in together.values():
        keys += _keys(view, tuple(sorted(jobs)))
    return keys


def _keys(view: View, jobs: tuple[int, ...]) -> list[str]:
    ledger = view.ledger
    kind = ledger.cell_of[ledger.holds[jobs[0]][1][0].node].gpu_type
    return [key_of(jobs, each) for each in dict.fromkeys((kind, ""))]


__all__ = ["Rows", "key_of", "rows_of", "served"]
