"""Requests without the windows that a table stands for, and what that makes of the figures.

Time that is read from the table does not pass for the router: the windows that are run follow each
other, so that each begins with lanes and queues as the one before left them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from ganger.lab.serving.tally import Tally
from ganger.lab.serving.windows.choosing import Choosing, Parts
from ganger.lab.serving.windows.look import look_at
from ganger.lab.serving.windows.stored import StoredEntry
from ganger.lab.serving.windows.table import Entry
from ganger.workloads.requests.columns import Chunk, Requests, joined


class Windowed:
    """Thins `requests` (`requests` of this has the rest); `parts` watches what becomes of those.

    `length`: microseconds of a window, of requests that come `faster` times as fast; `cost`: of a
    name, the microseconds that an item needs of all devices together at least; `capacity`: the load
    that the fleet keeps up with under its recipe, in the same measure; `tally` makes an empty one.
    """

    def __init__(
        self,
        requests: Requests,
        length: int,
        faster: float,
        cost: Callable[[str], float],
        capacity: float,
        tally: Callable[[], Tally],
    ) -> None:
        self._given, self._length, self._faster = requests, length, faster
        self._cost, self._capacity, self._tally = cost, capacity, tally
        self.choosing, self.parts = Choosing(tally), Parts()
        self._costs = np.zeros(0)
        self._skipped = 0
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
            self.choosing.table.entries.append(entry)

    def stored(self) -> list[StoredEntry]:
        """The table, as it is after the run; entries of which nothing was run are left out."""
        names = self._given.models.values
        some = self.choosing.table.entries
        return [each.stored(names) for each in some if each.tally.requests]

    def _produce(self, thinned: Requests) -> Iterator[Chunk]:
        """The windows that are run, moved together."""
        each = max(round(self._length * self._faster), 1)
        names = self._given.models
        for rows in windows_of(self._given, each, thinned):
            new = [self._cost(names[code]) for code in range(len(self._costs), len(names))]
            self._costs = np.concatenate((self._costs, new))
            look = look_at(rows, each, self._costs / self._capacity, self._faster)
            entry, known = self.choosing.choose(look)
            if known:
                self._skipped += each
                continue
            now = int(rows.arrival[0]) // each * each
            begin = round((now - self._skipped) / self._faster)
            self.parts.begin(entry, len(rows), begin)
            yield rows.earlier(self._skipped)

    def complete(self, tally: Tally) -> None:
        """Add to what was run what the table stands for."""
        self.parts.complete(tally, self.choosing.table, round(self._skipped / self._faster))

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        return self.choosing.to_json(self._length)


def windows_of(requests: Requests, each: int, thinned: Requests) -> Iterator[Chunk]:
    """The requests of one window after the other, of so many microseconds; of none that is empty.
    What is remarked of them is remarked of `thinned`."""
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
