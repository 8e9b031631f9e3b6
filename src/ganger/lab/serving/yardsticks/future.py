"""All requests of a run, before they come: for routers that nobody can deploy, which show how much
there is to gain by knowing more."""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ganger.core.serving.world import World
from ganger.core.units import NEVER
from ganger.sim.requests.plane import NOT_YET

Columns = Mapping[str, Sequence[int]]
I64 = NDArray[np.int64]


class Coming(NamedTuple):
    """The requests for one model (or family), in order of arrival. `rows`: their numbers in the
    run; `arrival` and `deadline` in microseconds (NEVER: none)."""

    rows: Sequence[int]
    arrival: Sequence[int]
    deadline: Sequence[int]
    items: Sequence[int]


_NONE = Coming((), (), (), ())


class Future:
    """What will be asked for and when, by the code of the model (or family) that requests name, and
    how long outputs of token models will be. It holds the whole log in memory: five numbers a
    request."""

    def __init__(self, chunks: Iterable[Columns] = ()) -> None:
        self.by_model: dict[int, Coming] = {}
        self._came: dict[int, int] = {}
        """By model: how many requests were forgotten."""
        self._outputs, self._base = array("q"), 0
        self._rows = 0
        for chunk in chunks:
            self.add(chunk)

    @classmethod
    def of(cls, chunks: Iterator[Columns]) -> Future:
        """From the columns that a plane takes."""
        return cls(chunks)

    def add(self, chunk: Columns) -> None:
        """Requests that come after those that are known."""
        model = np.array(chunk["model"], np.int64)
        count = len(model)
        columns = (
            np.arange(self._rows, self._rows + count),
            np.array(chunk["arrival"], np.int64),
            np.array(chunk.get("deadline", [NEVER] * count), np.int64),
            np.array(chunk.get("items", [1] * count), np.int64),
        )
        self._rows += count
        for code in np.unique(model).tolist():
            known = self.by_model.setdefault(code, Coming(*(array("q") for _ in columns)))
            for column, into in zip(columns, known, strict=True):
                assert isinstance(into, array)
                into.extend(array("q", column[model == code].tobytes()))
        self._outputs.extend(chunk.get("output", array("q", bytes(8 * count))))

    def forget(self, before: int, row: int) -> None:
        """Nobody asks any more for arrivals `before` this moment, and outputs before this row."""
        for model, known in self.by_model.items():
            over = bisect_left(known.arrival, before)
            self._came[model] = self._came.get(model, 0) + over
            for column in known:
                assert isinstance(column, array)
                del column[:over]
        del self._outputs[: max(row - self._base, 0)]
        self._base = max(row, self._base)

    def output_of(self, row: int) -> int:
        """How many tokens a request of this number will put out."""
        return self._outputs[row - self._base]

    def coming(self, model: int) -> Coming:
        """All requests for a model."""
        return self.by_model.get(model, _NONE)

    def next_of(self, model: int, came: int, most: int) -> Sequence[int]:
        """When requests for a model arrive, after the first `came` of them: up to so many."""
        came -= self._came.get(model, 0)
        return self.coming(model).arrival[came : came + most]

    def after(self, model: int, at: int) -> int:
        """When a model is asked for next, later than `at` microseconds; NEVER if it is not."""
        arrival = self.coming(model).arrival
        place = bisect_right(arrival, at)
        return arrival[place] if place < len(arrival) else NEVER

    def count(self, model: int, begin: int, end: int) -> int:
        """How many requests for a model arrive from `begin` until before `end` (microseconds)."""
        arrival = self.coming(model).arrival
        return bisect_left(arrival, end) - bisect_left(arrival, begin)


class Ahead(Future):
    """As much of the future as a router looks `ahead` (microseconds), and the chunk after that: so
    a log may be longer than memory. `chunks` are handed over in `handed`."""

    def __init__(self, chunks: Iterator[Columns], ahead: int, world: World) -> None:
        super().__init__()
        self._chunks, self._ahead, self._world = chunks, ahead, world

    def handed(self) -> Iterator[Columns]:
        """The chunks for the plane: what comes after each is known by then."""
        waiting: deque[Columns] = deque()
        begins = 0
        for chunk in self._chunks:
            if chunk is NOT_YET:  # all that may be known is known
                while waiting:
                    first = waiting.popleft()
                    yield first
                    self.forget(begins, self._world.requests.base)
                    begins = first["arrival"][-1]
                yield chunk
                continue
            if not len(chunk["arrival"]):
                continue
            self.add(chunk)
            waiting.append(chunk)
            while len(waiting) > 2 and (
                waiting[-2]["arrival"][-1] > waiting[0]["arrival"][-1] + self._ahead
            ):
                first = waiting.popleft()
                yield first
                self.forget(begins, self._world.requests.base)
                begins = first["arrival"][-1]
        yield from waiting
