"""What Clockwork's controller remembers: requests that wait, what batches take, and how much of the
demand those that hold a model can serve.

Gujarati et al.: Serving DNNs like Clockwork, OSDI 2020, sections 4 and 5; the split of demand is of
the public code.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate
from typing import Final

from msgspec import Struct

from ganger.core.units import SECOND

WINDOW: Final = SECOND // 10
"""Over which demand is measured."""
LOOK: Final = SECOND // 100
"""While all lanes are busy, loads are thought about so often."""
_KEPT: Final = 10
"""So many measurements make an estimate."""


class Waiting(Struct):
    """The requests of one model, in order of arrival: their deadlines (less the safety margin) and,
    where models are loaded, the work that they bring, in microseconds a window."""

    rows: list[int] = []
    due: list[int] = []
    work: list[float] = []
    demand: float = 0.0

    def take(self, first: int, count: int) -> list[int]:
        """Take some out."""
        last = first + count
        rows = self.rows[first:last]
        del self.rows[first:last], self.due[first:last]
        if self.work:
            self.demand -= sum(self.work[first:last])
            del self.work[first:last]
        if not self.rows:
            self.demand = 0.0
        return rows


class Spans(Struct):
    """What batches of a model take on a type of device: `every` by inputs, the 99th percentile of
    the last measurements, which of ten is the largest, or what the profile says before there are
    any; `sizes`: those that it may run in; `most`: by how many wait, what takes longest of the
    sizes that they can fill; `measured` by inputs."""

    every: list[int]
    sizes: list[int]
    most: list[int] = []
    longest: int = 0
    """Of all."""
    measured: dict[int, list[int]] = {}

    def __post_init__(self) -> None:
        self.changed()

    def changed(self) -> None:
        """An estimate is another."""
        most = [0] * (self.sizes[-1] + 1)
        for size in self.sizes:
            most[size] = self.every[size]
        self.most = list(accumulate(most, max))
        self.longest = max(self.every)

    def measure(self, inputs: int, took: int) -> None:
        """A batch took so long."""
        last = self.measured.setdefault(inputs, [])
        last.append(took)
        if len(last) > _KEPT:
            del last[0]
        found = max(last)
        if found != self.every[inputs]:
            self.every[inputs] = found
            self.changed()


class Memory(Struct):
    """What the controller remembers. A *pool* is lanes that hold the same models: all of one type
    where memory is not watched, else those of one store. Sets of models are bits."""

    waiting: list[Waiting]
    pool_of: list[int]
    """By lane."""
    spans: list[dict[int, Spans]]
    """By pool and model; those of one type are one."""
    lanes_of: list[list[int]]
    """By pool: lanes that run batches and are up."""
    pools_of: list[list[int]]
    """By model: where it is resident."""
    holds: list[int]
    """By pool: the models that are resident."""
    free: list[int]
    """By lane: when it will be free, by the estimates."""
    latest: int
    """No lane was ever to be free after this."""
    places: list[list[tuple[Spans, list[int]]] | None]
    """By model: for each type what batches take, and the lanes that may run it; None: to be found
    again."""
    loads: bool
    """Whether there are lanes that copy."""
    mixed: bool
    """Whether lanes of a pool have others between them."""
    some: int = 0
    """Models that requests wait for."""
    cold: dict[int, None] = {}
    """Models that requests wait for and that are loaded nowhere."""
    looked: int = -LOOK
    """When loads were last thought about."""
    quiet: int = 0
    """Until then nothing follows an arrival, for all lanes that run batches are busy."""


def members(models: int) -> Iterator[int]:
    """The members of a set."""
    while models:
        low = models & -models
        yield low.bit_length() - 1
        models ^= low


def served_demand(memory: Memory) -> dict[int, float]:
    """How much of each model's demand those that hold it can serve, in microseconds a window: it is
    split over them in inverse proportion to what they have to do already."""
    busy = [1.0] * len(memory.lanes_of)
    shares: list[tuple[int, list[int], list[float]]] = []
    for model in members(memory.some):
        demand, pools = memory.waiting[model].demand, memory.pools_of[model]
        if not demand or not pools:
            shares.append((model, [], []))
        else:
            total = sum([1 / busy[pool] for pool in pools])
            some = [demand / busy[pool] / total for pool in pools]
            for pool, share in zip(pools, some, strict=True):
                busy[pool] += share
            shares.append((model, pools, some))
    able = [
        min(1.0, WINDOW * len(lanes) / each)
        for lanes, each in zip(memory.lanes_of, busy, strict=True)
    ]
    return {
        model: sum([share * able[pool] for pool, share in zip(pools, some, strict=True)], 0.0)
        for model, pools, some in shares
    }
