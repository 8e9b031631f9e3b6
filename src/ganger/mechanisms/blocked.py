"""Which classes of waiting jobs could not be placed, and what must happen before they are tried.

A head that failed once fails again until its cells were given back as many GPUs as it lacked then,
since what is free or can be evicted for it grows in no other way: a job that starts takes what was
free, and keys of running jobs stand or improve. What breaks that rule says so by `moved`, and
classes of which it cannot be said are tried at every decision. All of it is cache.
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import Any, TypeAlias

from ganger.core.ledger import Cell
from ganger.core.plan import Reason

Entry: TypeAlias = tuple[Any, ...]
"""A key (floats) with the job's number (an int) at its end."""


def by_shape(reason: Reason) -> tuple[int, str]:
    """The order in which a plan's reasons stand."""
    return reason.shape, reason.code


class Record:
    """One blocked class: its head, and per cell the count of returned GPUs to wait for."""

    __slots__ = ("entry", "kind", "limits", "reason")

    def __init__(self, kind: int, entry: Entry, reason: Reason, limits: dict[Cell, int]) -> None:
        self.kind, self.entry, self.reason, self.limits = kind, entry, reason, limits


class Blocked:
    """The blocked classes by what each waits for, and those that are to be tried."""

    def __init__(self) -> None:
        self.records: dict[int, Record] = {}
        self._due: set[int] = set()
        self._kind_of: dict[int, int] = {}
        self._waits: dict[Cell, list[tuple[int, int, Record]]] = {}
        self._filed = 0
        self._reasons: list[Reason] | None = None

    @property
    def reasons(self) -> list[Reason]:
        """Why the blocked classes wait, by shape."""
        if self._reasons is None:
            self._reasons = sorted((each.reason for each in self.records.values()), key=by_shape)
        return self._reasons

    def file(self, kind: int, entry: Entry, reason: Reason, limits: dict[Cell, int]) -> None:
        """The head of `kind` cannot be placed before a cell's `returned` reaches its limit."""
        record = self.records[kind] = Record(kind, entry, reason, limits)
        self._kind_of[entry[-1]] = kind
        self._reasons = None
        for cell, limit in limits.items():
            self._wait(cell, limit, record)

    def _wait(self, cell: Cell, limit: int, record: Record) -> None:
        heap = self._waits.get(cell)
        if heap is None:
            heap = self._waits[cell] = []
        self._filed += 1
        heappush(heap, (limit, self._filed, record))

    def always(self, kind: int) -> None:
        """Nothing can be said of `kind`: it is tried at every decision."""
        self._due.add(kind)

    def came(self, kind: int, entry: Entry) -> None:
        """A job was filed under `kind`: try the class if it is its head now."""
        record = self.records.get(kind)
        if record is None:
            self._due.add(kind)
        elif entry < record.entry:
            self._try(record)

    def went(self, job: int) -> None:
        """A waiting job is filed no longer as it was: if it was a blocked head, try the next."""
        kind = self._kind_of.get(job)
        if kind is not None:
            self._try(self.records[kind])

    def moved(self, entry: Entry, gpus: int) -> None:
        """A running job with so many GPUs stands at `entry` from now on: it can be evicted for
        the heads before that."""
        for record in self.records.values():
            if record.entry < entry:
                for cell in record.limits:
                    record.limits[cell] -= gpus
                    self._wait(cell, record.limits[cell], record)

    def due(self) -> set[int]:
        """The classes to be tried now; they are blocked no longer."""
        self._due |= self.crossed()
        due, self._due = self._due, set()
        return due

    def crossed(self) -> set[int]:
        """The classes whose cells were given back enough since; they are blocked no longer."""
        found = set[int]()
        for cell, heap in self._waits.items():
            returned = cell.returned
            while heap and heap[0][0] <= returned:
                record = heappop(heap)[2]
                if self.records.get(record.kind) is record:
                    self._drop(record)
                    found.add(record.kind)
        return found

    def _drop(self, record: Record) -> None:
        del self.records[record.kind]
        del self._kind_of[record.entry[-1]]
        self._reasons = None

    def _try(self, record: Record) -> None:
        self._drop(record)
        self._due.add(record.kind)
