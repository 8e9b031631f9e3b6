"""What Clockwork's controller remembers: requests that wait, what batches take, and how much of the
demand those that hold a model can serve.

Gujarati et al.: Serving DNNs like Clockwork, OSDI 2020, sections 4 and 5; the split of demand is of
the public code.
"""

from __future__ import annotations

from collections.abc import Sequence
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
_ROUNDING: Final = 1e-9
"""Demand that is served but for this share is served."""


class Waiting(Struct):
    """The requests of one model, in order of arrival: their deadlines (less the safety margin) and,
    where models are loaded, the work that they bring, in microseconds a window."""

    rows: list[int] = []
    due: list[int] = []
    work: list[float] = []
    demand: float = 0.0


class Spans(Struct):
    """What batches of a model take on a type of device: `every` by inputs, the 99th percentile of
    the last measurements, which of ten is the largest, or what the profile says before there are
    any; `sizes`: those that it may run in; by how many wait (the last for more) `fits`, the largest
    size that they can fill, and `most`, what takes longest of those that they can; `measured` by
    inputs."""

    every: list[int]
    sizes: list[int]
    fits: list[int] = []
    most: list[int] = []
    longest: int = 0
    """What the batch takes that takes longest of all."""
    measured: dict[int, list[int]] = {}

    def __post_init__(self) -> None:
        filled = [size if size in self.sizes else 0 for size in range(self.sizes[-1] + 1)]
        self.fits, self.longest = list(accumulate(filled, max)), max(self.every)
        self.changed()

    def changed(self) -> None:
        """The estimate of a size is another."""
        most = [0] * len(self.fits)
        for size in self.sizes:
            most[size] = self.every[size]
        self.most = list(accumulate(most, max))

    def measure(self, inputs: int, took: int) -> None:
        """A batch took so long."""
        last = self.measured.get(inputs)
        if last is None:
            last = self.measured[inputs] = []
        last.append(took)
        if len(last) > _KEPT:
            del last[0]
        found, before = max(last), self.every[inputs]
        if found != before:
            self.every[inputs] = found
            if found > self.longest or before == self.longest:
                self.longest = max(self.every)
            if inputs < len(self.fits) and self.fits[inputs] == inputs:
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
    alike: list[Spans | None]
    """By model: what batches take, where it is the same on all lanes that may run it; None also
    where that is to be found again."""
    loads: bool
    """Whether there are lanes that copy."""
    mixed: bool
    """Whether lanes of a pool have others between them."""
    unlike: bool
    """Whether what is late on a lane that is asked for may be in time on another, so that all are
    looked at each time: lanes are of several types, or some ask while they are busy."""
    some: int = 0
    """Models that requests wait for."""
    fresh: int = 0
    """Those among them which lanes that are idle may hold."""
    freed: list[int] = []
    """Lanes that have become idle, and may hold others of them."""
    cold: dict[int, None] = {}
    """Models that requests wait for and that are loaded nowhere."""
    looked: int = -LOOK
    """When loads were last thought about."""
    quiet: int = 0
    """Until then nothing follows an arrival, for all lanes that run batches are busy."""

    def take(self, model: int, first: int, count: int) -> list[int]:
        """Take so many requests of a model out, from this position on."""
        waiting = self.waiting[model]
        if count == len(waiting.rows):
            rows, waiting.rows, waiting.demand = waiting.rows, [], 0.0
            waiting.due.clear()
            waiting.work.clear()
            self.some ^= 1 << model
            return rows
        last = first + count
        rows = waiting.rows[first:last]
        del waiting.rows[first:last], waiting.due[first:last]
        if waiting.work:
            waiting.demand -= sum(waiting.work[first:last])
            del waiting.work[first:last]
        return rows


def members(models: int) -> list[int]:
    """The members of a set, rising."""
    digits = bin(models)[:1:-1]
    rising = list[int]()
    at = digits.find("1")
    while at >= 0:
        rising.append(at)
        at = digits.find("1", at + 1)
    return rising


def unserved(memory: Memory) -> list[int]:
    """The models whose demand those that hold it cannot serve; that of which most is left first."""
    waiting, pools_of = memory.waiting, memory.pools_of
    missing, held = list[tuple[float, int]](), list[tuple[int, float]]()
    for model in members(memory.some):
        demand = waiting[model].demand
        if pools_of[model]:
            held.append((model, demand))
        elif demand > 0:
            missing.append((-demand, model))
    if not all_serve(memory, [(demand, len(pools_of[model])) for model, demand in held]):
        served = served_demand(memory, [model for model, _ in held])
        missing += [
            (served[model] - demand, model)
            for model, demand in held
            if served[model] < demand * (1 - _ROUNDING)
        ]
    return [model for _, model in sorted(missing)]


def all_serve(memory: Memory, demands: Sequence[tuple[float, int]]) -> bool:
    """Whether no pool can have more to do than it can, however these demands are split, each over
    so many pools.

    Of a demand, a pool with b to do is given d / b / (1 / b + ...). Where none has more than m, the
    other k - 1 bring at least (k - 1) / m to the sum, and what the pool then has is convex in b: it
    is at most the greater of what one with 1 and one with m would have.
    """
    least = min(len(lanes) for lanes in memory.lanes_of)
    bound = 1.0
    for demand, pools in demands:
        if demand <= 0:
            return False
        bound = max(1.0 + demand, bound + demand / pools)
    return bound < least * WINDOW * (1 - _ROUNDING)


def served_demand(memory: Memory, models: Sequence[int]) -> dict[int, float]:
    """How much of the demand of each of these models those that hold it can serve, in microseconds
    a window: it is split over them in inverse proportion to what they have to do already."""
    busy = [1.0] * len(memory.lanes_of)
    shares: list[tuple[int, list[int], list[float]]] = []
    for model in models:
        demand, pools = memory.waiting[model].demand, memory.pools_of[model]
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
