"""Requests without the windows that a table stands for, and what that makes of the figures.

Time that is read from the table does not pass for the router: the windows that are run follow each
other, so that each begins with lanes and queues as the one before left them.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ganger.core.serving.verbs import Batch, Load
from ganger.core.serving.world import Lane, World
from ganger.core.units import SECOND
from ganger.lab.serving.tally import Tally
from ganger.lab.serving.windows.look import Look, changed, look_at
from ganger.lab.serving.windows.stored import StoredEntry
from ganger.lab.serving.windows.table import Entry, Table
from ganger.workloads.requests.columns import Chunk, Requests, joined

F64 = NDArray[np.float64]
FULL: Final = 0.8
"""Above this part of its capacity a fleet is never read from the table."""
_CHANGE: Final = 0.1
"""A window is after a change where so much of the capacity is asked for differently."""
MEASURED, FIRST, FILLED, UNSURE = "measured", "after a change", "near capacity", "not converged"
"""Why a window was run."""


class _Part(NamedTuple):
    """A window that is run: the entry that it is measured for, its first request and its begin."""

    entry: Entry | None
    row: int
    at: int


class Windowed:
    """Thins `requests` (`requests` of this has the rest), and watches what becomes of those.

    `length`: microseconds of a window, of requests that come `faster` times as fast; `cost`: of a
    name, the microseconds that an item needs of all devices together at least; `capacity`: the load
    that the fleet keeps up with under its recipe, in the same measure; `tally` makes an empty one.
    """

    def __init__(
        self, requests: Requests, length: int, faster: float, cost: Callable[[str], float],
        capacity: float, tally: Callable[[], Tally],
    ) -> None:  # fmt: skip
        self._given, self._length, self._faster = requests, length, faster
        self._cost, self._capacity, self._tally = cost, capacity, tally
        self.table = Table()
        self.counts: dict[str, int] = {}
        """Windows that were run, by why."""
        self._costs = np.zeros(0)
        self._before: Look | None = None
        self._parts: list[_Part] = []
        self._rows, self._skipped = 0, 0
        self.requests = Requests(
            self._produce, requests.name, requests.source, requests.models, requests.tenants
        )

    def restore(self, entries: Sequence[StoredEntry]) -> None:
        """Begin with a table that was stored. Raises ValueError where it cannot be one of these
        requests."""
        for stored in entries:
            entry = Entry.restored(
                stored, self._tally(), self._given.models.code, self._given.tenants.code
            )
            self.table.entries.append(entry)

    def stored(self) -> list[StoredEntry]:
        """The table, as it is after the run; entries of which nothing was run are left out."""
        names = self._given.models.values
        return [each.stored(names) for each in self.table.entries if each.tally.requests]

    # ------------------------------------------------------------------ in

    def _produce(self, thinned: Requests) -> Iterator[Chunk]:
        """The windows that are run, moved together."""
        each = max(round(self._length * self._faster), 1)
        for rows in _cut(self._given, each, thinned):
            entry, why = self._judge(rows, each)
            if entry is not None and not why:
                entry.read += 1
                entry.requests_read += len(rows)
                self._skipped += each
                continue
            self.counts[why] = self.counts.get(why, 0) + 1
            now = int(rows.arrival[0]) // each * each
            begin = round((now - self._skipped) / self._faster)
            self._parts.append(_Part(entry, self._rows, begin))
            self._rows += len(rows)
            yield rows.earlier(self._skipped)

    def _judge(self, rows: Chunk, each: int) -> tuple[Entry | None, str]:
        """The entry of a window, and why it is run; "" where it is read."""
        names = self._given.models
        new = [self._cost(names[code]) for code in range(len(self._costs), len(names))]
        self._costs = np.concatenate((self._costs, new))
        look = look_at(rows, each, self._costs / self._capacity, self._faster)
        before, self._before = self._before, look
        if look.load > FULL:
            return None, FILLED
        if before is None or before.load > FULL or changed(before.work, look.work) > _CHANGE:
            return None, FIRST
        entry = self.table.find(look)
        if entry is None:
            entry = Entry(look, self._tally())
            self.table.entries.append(entry)
        elif entry.converged:
            return entry, ""
        elif entry.spent:
            return None, UNSURE
        entry.run += 1
        return entry, MEASURED

    # ------------------------------------------------------------------ out

    def ran(self, lane: Lane, order: Batch | Load, began: int, ended: int, outcome: str) -> None:
        """A lane was busy."""
        at = bisect_right(self._parts, began, key=lambda part: part.at) - 1
        entry = self._parts[max(at, 0)].entry
        if entry is not None:
            entry.tally.ran(lane, order, began, ended, outcome)

    def settled(self, world: World, count: int) -> None:
        """The first `count` rows are over."""
        first = world.requests.base
        parts, end = self._parts, first + count
        for at, part in enumerate(parts):
            until = parts[at + 1].row if at + 1 < len(parts) else end
            low, high = max(part.row, first), min(until, end)
            if part.entry is not None and low < high:
                tally = part.entry.tally
                part.entry.add(*tally.add(world, slice(low - first, high - first)))
        while len(parts) > 2 and parts[2].row <= end:
            del parts[0]

    def complete(self, tally: Tally) -> None:
        """Add to what was run what the table stands for."""
        for entry in self.table.entries:
            if entry.requests_read:
                tally.add_like(entry.tally, entry.requests_read)
        tally.beyond += round(self._skipped / self._faster)

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        read = sum(entry.read for entry in self.table.entries)
        return {
            "seconds": self._length / SECOND,
            "windows": read + sum(self.counts.values()),
            "read": read,
            "run": dict(self.counts),
            "requests_read": sum(entry.requests_read for entry in self.table.entries),
            "table": [entry.to_json() for entry in self.table.entries],
        }


def _cut(requests: Requests, each: int, thinned: Requests) -> Iterator[Chunk]:
    """The requests of one window after the other; of none that is empty."""
    waiting: list[Chunk] = []
    for chunk in requests.chunks():
        thinned.remarks = requests.remarks
        number = chunk.arrival // each
        edges = np.flatnonzero(np.diff(number)) + 1
        for begin, end in zip([0, *edges], [*edges, len(chunk)], strict=True):
            if waiting and int(waiting[0].arrival[0]) // each != int(number[begin]):
                yield joined(waiting)
                waiting = []
            waiting.append(chunk.take(slice(int(begin), int(end))))
    if waiting:
        yield joined(waiting)
