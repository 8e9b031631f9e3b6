"""Requests of a service beside training, held back until it is known whether a window is run.

A window is the time between two reports of the service. It is run where replicas came or went in
it, or before it since the last one; else what it was like may be known from others, and then
neither its requests nor its time reach the router.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from ganger.core.serving.world import Lane
from ganger.core.units import NEVER
from ganger.lab.serving.source import ROWS, Source
from ganger.lab.serving.tally import Tally
from ganger.lab.serving.windows.choosing import Choosing, Parts
from ganger.lab.serving.windows.look import look_at
from ganger.lab.serving.windows.table import Entry
from ganger.lab.serving.windows.thinning import windows_of
from ganger.sim.requests.plane import NOT_YET, Columns
from ganger.sim.requests.window import PIECE, Fared, Figures, peaks_of, slo_of
from ganger.workloads.requests.columns import Chunk, Requests

MOVED: Final = "replicas changed"
"""Why a window was run."""
_COUNTED: Final = ("answered", "late", "dropped", "labelled", "correct")
"""Figures that are as many as there were requests; so are drops by reason."""
_EXACT: Final = ("arrivals", "replicas")
_PEAK, _REASON = "most_in_", "dropped:"

Plan = tuple[str, ...]
"""The types of the lanes that are up."""


@dataclass
class _Sums:
    """Figures of the windows that were run for an entry, added up; each with how many had it."""

    arrivals: float = 0.0
    figures: dict[str, tuple[float, int]] = field(default_factory=dict)
    busy: list[float] = field(default_factory=list)
    windows: int = 0

    def add(self, fared: Fared) -> None:
        """One more window."""
        self.windows += 1
        self.arrivals += fared.figures["arrivals"] or 0.0
        for name, value in fared.figures.items():
            if value is not None and name not in _EXACT and not name.startswith(_PEAK):
                total, count = self.figures.get(name, (0.0, 0))
                self.figures[name] = total + value, count + 1
        before = self.busy or [0.0] * len(fared.busy)
        self.busy = [mine + each for mine, each in zip(before, fared.busy, strict=True)]

    def expected(self, arrivals: int) -> Fared:
        """A window in which so many came."""
        figures: Figures = {}
        for name, (total, count) in self.figures.items():
            if name in _COUNTED or name.startswith(_REASON):
                figures[name] = float(round(total / self.arrivals * arrivals))
            else:
                figures[name] = total / count
        return Fared(figures, [each / self.windows for each in self.busy])


class HeldBack:
    """The requests of a service (`Held` of the simulator). `requests`: its own, checked; `length`:
    microseconds of a window; `tally` makes an empty one; `needs`: microseconds that an item takes
    of all lanes of a plan together, as the router uses them where it has more than it can do."""

    def __init__(
        self,
        requests: Requests,
        length: int,
        tally: Callable[[], Tally],
        needs: Callable[[Plan], float],
    ) -> None:
        self.skipped = 0
        self.choosing = Choosing(tally)
        self._names, self._length, self._needs = requests.models, length, needs
        self._windows = windows_of(requests, length, requests)
        self._next = next(self._windows, None)
        self._plan: Plan | None = None
        self._needed: dict[Plan, float] = {}
        self._changed = -1
        """The last window in which replicas came or went."""
        self._entry: Entry | None = None
        """That for which the window is run that ended."""
        self._sums: dict[int, _Sums] = {}
        """By the identity of its entry."""
        self._outlets: list[tuple[deque[Chunk], Parts]] = []
        self._open = False

    # ------------------------------------------------------------------ for the simulator

    @property
    def more(self) -> bool:
        """Whether requests are held back."""
        return self._next is not None

    def release(self, now: int) -> None:
        """Something changes at `now`: what was held back of the windows up to there comes."""
        self._changed = (now - 1) // self._length
        while (rows := self._take(self._changed)) is not None:
            self.choosing.ran(MOVED)
            self._hand(rows, None)

    def known(self, now: int, up: Sequence[Lane]) -> Fared | None:
        """A window ends. What it was like, with these lanes; or None, and its requests come."""
        number = now // self._length - 1
        plan = tuple(sorted(lane.type for lane in up))
        fresh = MOVED if plan != self._plan or self._changed == number else ""
        self._plan, self._entry = plan, None
        rows = self._take(number)
        if rows is None:
            return None
        if not plan:
            self.choosing.ran(MOVED)
            self._hand(rows, None)
            return None
        if plan not in self._needed:
            self._needed[plan] = self._needs(plan)
        cost = np.full(len(self._names), self._needed[plan])
        entry, known = self.choosing.choose(look_at(rows, self._length, cost, 1.0, plan), fresh)
        if entry is None or not known:
            self._entry = entry
            self._hand(rows, entry)
            return None
        self.skipped += self._length
        fared = self._sums[id(entry)].expected(len(rows))
        pieces = np.bincount((rows.arrival - number * self._length) // PIECE)
        exact = {"arrivals": float(len(rows)), "replicas": float(len(up))}
        if rows.deadline is not None:
            exact |= slo_of(int((rows.deadline - rows.arrival).min(initial=NEVER)))
        return Fared({**fared.figures, **exact, **peaks_of(pieces, self._length)}, fared.busy)

    def served(self, fared: Fared) -> None:
        """The window that ended was served, and was like that."""
        if self._entry is not None:
            self._sums.setdefault(id(self._entry), _Sums()).add(fared)
            self._entry = None  # what is left when the service ends is of no entry

    def open(self, at: int) -> None:
        """The service is over, `at` by the clock of its planes: nothing is held back any more."""
        self._open = True
        for _, parts in self._outlets:
            parts.until = at

    # ------------------------------------------------------------------ for planes

    def outlet(self, source: Source, parts: Parts) -> Iterator[Columns]:
        """The requests for a plane, as `source` gives them; `parts` hears of their windows."""
        ready: deque[Chunk] = deque()
        self._outlets.append((ready, parts))
        before = 0
        while True:
            if not ready and self._open and self._next is not None:
                self._hand(self._pop(), None)
            if ready:
                rows = ready.popleft()
                for begin in range(0, len(rows), ROWS):
                    some = rows.take(slice(begin, begin + ROWS))
                    yield source.columns(some, before)
                    before += len(some)
            elif self._next is None:
                return
            else:
                yield NOT_YET

    def _take(self, number: int) -> Chunk | None:
        """The next requests that are held back, if they came in this window or before."""
        if self._next is None or int(self._next.arrival[0]) // self._length > number:
            return None
        return self._pop()

    def _pop(self) -> Chunk:
        rows = self._next
        assert rows is not None
        self._next = next(self._windows, None)
        return rows

    def _hand(self, rows: Chunk, entry: Entry | None) -> None:
        """A window is run."""
        at = int(rows.arrival[0]) // self._length * self._length - self.skipped
        for ready, parts in self._outlets:
            parts.begin(entry, len(rows), at)
            ready.append(rows.earlier(self.skipped))

    # ------------------------------------------------------------------ at the end

    def complete(self, tally: Tally, parts: Parts) -> None:
        """Add to what was run on a plane what the table stands for."""
        parts.complete(tally, self.choosing.table, self.skipped)

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        return self.choosing.to_json(self._length)
