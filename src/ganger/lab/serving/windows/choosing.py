"""Which windows are run and which are read from a table, and what becomes of those that are run."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from typing import Any, Final, NamedTuple

import numpy as np

from ganger.core.serving.verbs import Batch, Load
from ganger.core.serving.world import Lane, World
from ganger.core.units import NEVER, SECOND
from ganger.lab.serving.tally import Tally
from ganger.lab.serving.windows.look import Look, changed
from ganger.lab.serving.windows.table import Entry, Table

FULL: Final = 0.8
"""Above this part of its capacity a fleet is never read from the table."""
_CHANGE: Final = 0.1
"""A window is after a change where so much of the capacity is asked for differently."""
MEASURED, FIRST, FILLED, UNSURE = "measured", "after a change", "near capacity", "not converged"
"""Why a window was run."""


class Choosing:
    """Chooses for one window after the other; `tally` makes an empty one for an entry."""

    def __init__(self, tally: Callable[[], Tally]) -> None:
        self._tally = tally
        self.table = Table()
        self.counts: dict[str, int] = {}
        """Windows that were run, by why."""
        self._before: Look | None = None

    def choose(self, look: Look, fresh: str = "") -> tuple[Entry | None, bool]:
        """The entry of a window that looks so, and whether it is read from that; else it is run.
        `fresh`: why it is not like the windows before it in other things than its requests."""
        entry, why = self._judge(look, fresh)
        if why:
            self.counts[why] = self.counts.get(why, 0) + 1
        elif entry is not None:
            entry.read += 1
            entry.requests_read += look.count
        return entry, not why

    def ran(self, why: str) -> None:
        """A window was run of which nothing was asked here."""
        self.counts[why] = self.counts.get(why, 0) + 1
        self._before = None

    def _judge(self, look: Look, fresh: str) -> tuple[Entry | None, str]:
        """The entry of a window, and why it is run; "" where it is read."""
        before, self._before = self._before, look
        if look.load > FULL:
            return None, FILLED
        if fresh:
            return None, fresh
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

    def to_json(self, length: int) -> dict[str, Any]:
        """As plain data; `length`: microseconds of a window."""
        read = sum(entry.read for entry in self.table.entries)
        return {
            "seconds": length / SECOND,
            "windows": read + sum(self.counts.values()),
            "read": read,
            "run": dict(self.counts),
            "requests_read": sum(entry.requests_read for entry in self.table.entries),
            "table": [entry.to_json() for entry in self.table.entries],
        }


class _Part(NamedTuple):
    """A window that is run: the entry that it is measured for, its first request and its begin."""

    entry: Entry | None
    row: int
    at: int


class Parts:
    """Watches the windows that are run, one after the other, for the entries that they are measured
    for. `measures`: whether the entries learn from it how wide their intervals are; else it has
    tallies of its own, which `tally` makes."""

    def __init__(self, tally: Callable[[], Tally] | None = None) -> None:
        self._tally = tally
        self._own: dict[int, Tally] = {}
        """By the identity of its entry."""
        self._parts: list[_Part] = []
        self._rows = 0
        self.until = NEVER
        """When the service ends: what that does to requests is like no other window."""

    def begin(self, entry: Entry | None, count: int, at: int) -> None:
        """A window of so many requests is run, which begins at this time of the plane."""
        self._parts.append(_Part(entry, self._rows, at))
        self._rows += count

    def tally_of(self, entry: Entry) -> Tally:
        """What became of the requests that were run for an entry."""
        if self._tally is None:
            return entry.tally
        if id(entry) not in self._own:
            self._own[id(entry)] = self._tally()
        return self._own[id(entry)]

    def ran(self, lane: Lane, order: Batch | Load, began: int, ended: int, outcome: str) -> None:
        """A lane was busy."""
        at = bisect_right(self._parts, began, key=lambda part: part.at) - 1
        entry = self._parts[max(at, 0)].entry if self._parts else None
        if entry is not None:
            self.tally_of(entry).ran(lane, order, began, ended, outcome)

    def settled(self, world: World, count: int) -> None:
        """The first `count` rows are over."""
        first = world.requests.base
        parts, end = self._parts, first + count
        if self.until < NEVER:
            ended = np.array(world.requests.ended[:count], np.int64)
            end = first + int(np.append(ended >= self.until, True).argmax())
        for at, part in enumerate(parts):
            until = parts[at + 1].row if at + 1 < len(parts) else end
            low, high = max(part.row, first), min(until, end)
            if part.entry is not None and low < high:
                columns = self.tally_of(part.entry).add(world, slice(low - first, high - first))
                if self._tally is None:
                    part.entry.add(*columns)
        while len(parts) > 2 and parts[2].row <= end:
            del parts[0]

    def complete(self, tally: Tally, table: Table, skipped: int) -> None:
        """Add to what was run what the table stands for, which took so many microseconds."""
        for entry in table.entries:
            if entry.requests_read:
                tally.add_like(self.tally_of(entry), entry.requests_read)
        tally.beyond += skipped
