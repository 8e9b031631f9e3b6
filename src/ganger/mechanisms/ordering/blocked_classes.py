"""Which classes of waiting jobs could not be placed, and what must happen before they are tried.

What is free or can be evicted for a head that failed, its *hope*, grows in two ways only: GPUs are
given back, or a running job comes to stand behind it. So it fails again until its cells were given
back as many GPUs as it lacked then, and besides as many as jobs before it have taken since. A head
that lacks CPUs, host memory or parts of a GPU fails again until anything was given back. All of
that holds for each job of its class and shape that comes behind it, too: when a head has started,
the next one is mostly known to fit nowhere. What a class waits for is therefore kept while the
class is tried. Of some classes nothing can be known; they are tried at every decision. All of it is
cache.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, TypeAlias

from ganger.core.books.ledger import Cell
from ganger.core.plan import Reason

Entry: TypeAlias = tuple[Any, ...]
"""A key (floats) with the job's number (an int) at its end."""
ANY_RETURN = -(1 << 60)
"""Instead of how many GPUs are lacking: a number of GPUs says nothing of whether the job fits."""


def by_shape(reason: Reason) -> tuple[int, str]:
    """The order in which a plan's reasons stand."""
    return reason.shape, reason.code


@lru_cache(maxsize=4096)
def lacking(shape: int, gpus: int, stirs: int, rules: tuple[tuple[str, float], ...]) -> Reason:
    """The reason of jobs of a shape that wait for GPUs; kept, as it is given again and again."""
    evidence = {"asked_gpus": float(gpus), **dict(rules)}
    return Reason("Resources", "QueuePolicy", shape, evidence=evidence, until=stirs)


class _Limit:
    """A cell can do something for a class only once its `returned` has reached both: `count` for
    enough GPUs all in all, `least` for anything at all, where there are enough but not together."""

    __slots__ = ("cell", "count", "least")

    def __init__(self, cell: Cell, lacks: int) -> None:
        self.cell, self.count, self.least = cell, cell.returned + lacks, cell.returned + 1


class Record:
    """What a class waits for: `entry` is the job of which it was found; a job behind it has no
    better hope. `tried`: the class is tried in this decision."""

    __slots__ = ("entry", "limits", "reason", "tried")

    def __init__(self, entry: Entry, reason: Reason, limits: list[_Limit]) -> None:
        self.entry, self.reason, self.limits, self.tried = entry, reason, limits, False


class Blocked:
    """What blocked classes wait for, and the classes that are to be tried."""

    def __init__(self) -> None:
        self.records: dict[int, Record] = {}
        """By class. At the end of a decision: the blocked ones."""
        self._due: set[int] = set()
        self._kind_of: dict[int, int] = {}
        self._reasons: list[Reason] | None = None

    @property
    def reasons(self) -> list[Reason]:
        """Why the blocked classes wait, by shape."""
        if self._reasons is None:
            self._reasons = sorted((each.reason for each in self.records.values()), key=by_shape)
        return self._reasons

    def file(self, kind: int, entry: Entry, reason: Reason, lacks: dict[Cell, int]) -> None:
        """The head of `kind` cannot be placed: so many GPUs are lacking in each cell (0 or less: it
        has enough, but not together)."""
        old = self.records.get(kind)
        if old is None or old.reason is not reason:
            self._reasons = None
        limits = [_Limit(cell, lack) for cell, lack in lacks.items()]
        self.records[kind] = Record(entry, reason, limits)
        self._name(kind, entry, old)

    def keeps(self, kind: int, entry: Entry, shape: int) -> bool:
        """Whether the class is known to stay blocked with this head, a job of that shape."""
        record = self.records.get(kind)
        if record is None or entry < record.entry or record.reason.shape != shape:
            return False
        for limit in record.limits:
            returned = limit.cell.returned
            if limit.count <= returned and limit.least <= returned:
                return False
        record.tried = False
        if entry is not record.entry:
            self._name(kind, entry, record)
            record.entry = entry
        return True

    def _name(self, kind: int, entry: Entry, old: Record | None) -> None:
        """The class has another head: who goes calls for a try. One whose class changed may stand
        in two records, and belongs to the later."""
        if old is not None and self._kind_of.get(old.entry[-1]) == kind:
            del self._kind_of[old.entry[-1]]
        if entry:
            self._kind_of[entry[-1]] = kind

    def took(self, entry: Entry, cell: Cell, gpus: int) -> None:
        """A job that stands at `entry` got so many whole GPUs: those behind it cannot have them
        before they are given back."""
        for record in self.records.values():
            if entry <= record.entry:
                for limit in record.limits:
                    if limit.cell is cell:
                        limit.count += gpus

    def left(self, entry: Entry, cell: Cell, gpus: int) -> None:
        """A job that stood at `entry` was evicted and gave back so many whole GPUs: those before it
        could have had them all along."""
        for record in self.records.values():
            if record.entry < entry:
                for limit in record.limits:
                    if limit.cell is cell:
                        limit.count += gpus

    def moved(self, entry: Entry, gpus: int) -> None:
        """A running job with so many GPUs stands at `entry` from now on: it can be evicted for
        the heads before that, which may lack no GPU but what the job holds beside GPUs."""
        for record in self.records.values():
            if record.entry < entry:
                for limit in record.limits:
                    limit.count -= gpus
                    limit.least -= max(gpus, 1)

    def always(self, kind: int) -> None:
        """Nothing can be known of `kind`: it is tried at every decision."""
        self.forget(kind)
        self._due.add(kind)

    def came(self, kind: int, entry: Entry) -> None:
        """A job was filed under `kind`: try the class if it is its head now."""
        record = self.records.get(kind)
        if record is None or entry < record.entry:
            self._due.add(kind)

    def went(self, job: int) -> None:
        """A waiting job is filed no longer as it was: if it was a blocked head, try the next."""
        kind = self._kind_of.get(job)
        if kind is not None:
            self._due.add(kind)

    def due(self) -> list[int]:
        """The classes to be tried now. Each must be forgotten, kept or filed anew."""
        due, records = list(self._due), self.records
        self._due.clear()
        if not records:
            return due
        for kind in due:
            if kind in records:
                records[kind].tried = True
        return due + self.crossed()

    def crossed(self) -> list[int]:
        """The classes whose cells were given back enough since. Each must be forgotten, kept or
        filed anew."""
        found = []
        for kind, record in self.records.items():
            if record.tried:
                continue
            for limit in record.limits:
                returned = limit.cell.returned
                if limit.count <= returned and limit.least <= returned:
                    record.tried = True
                    found.append(kind)
                    break
        return found

    def forget(self, kind: int) -> None:
        """Nothing is known of the class."""
        record = self.records.pop(kind, None)
        if record is not None:
            self._name(kind, (), record)
            self._reasons = None
