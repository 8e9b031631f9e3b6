"""Continuous batching by a router that knows all requests, and how long their outputs will be."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

from msgspec import Struct

from ganger.core.serving.router import PLAIN, Abilities
from ganger.core.serving.verbs import Do, Ended, News
from ganger.core.serving.world import Lane, World
from ganger.mechanisms.serving.continuous import Continuous, Engine
from ganger.mechanisms.serving.continuous import Memory as Lines
from ganger.mechanisms.serving.turns import Line

_BUDGET: Final = 8192
"""Tokens of a step."""
_TOGETHER: Final = 16
"""What a request costs is thought of as in a batch of so many like it."""
_LATE: Final = "it could not be answered in time"


class Order(Enum):
    """Which request goes first where several wait for steps of a token model."""

    DEADLINE = "deadline"
    LEAST = "least"


class Ranks(Struct):
    """The rank of each request that waits or runs: the least goes first."""

    rank: dict[int, tuple[int, int]] = {}


@dataclass(frozen=True)
class Ranked:
    """Turns by rank: each request is a group of its own."""

    order: Order
    moves: bool = False

    def begin(self, world: World) -> Ranks:
        """Nobody waits."""
        return Ranks()

    def group(self, world: World, row: int) -> int:
        """Itself."""
        return row

    def come(self, world: World, memory: Any, row: int, kind: bool) -> None:
        """Its rank is known."""
        at = row - world.requests.base
        due = world.requests.deadline[at]
        cost = cost_of(world, row)
        memory.rank[row] = (cost, due) if self.order is Order.LEAST else (due, cost)

    def waits(self, world: World, memory: Any, row: int, kind: bool) -> None:
        """Nothing."""

    def first(self, memory: Any, line: Line, kind: bool) -> int:
        """The least rank; of two alike the one that came first."""
        return min(line.groups, key=lambda row: (memory.rank[row], row))

    def taken(self, world: World, memory: Any, row: int, kind: bool, cost: float) -> None:
        """Nothing."""

    def made(self, world: World, memory: Any, rows: Sequence[int], count: int) -> None:
        """Nothing."""

    def last(self, world: World, running: Sequence[int]) -> int:
        """The one that is due last."""
        requests = world.requests
        return max(
            range(len(running)),
            key=lambda at: (requests.deadline[running[at] - requests.base], running[at]),
        )


def cost_of(world: World, row: int) -> int:
    """The time in microseconds that a request takes of the lane that serves it quickest, in a
    batch of equal requests; 0 where no lane is up, or its model is not a token model."""
    at = row - world.requests.base
    prompt, output = world.requests.prompt[at], world.future.output_of(row)
    some = {
        (model, lane.type): world.times(model, lane)
        for lane in world.lanes
        for model in world.variants[world.requests.model[at]]
    }
    costs = [
        times.whole([prompt] * _TOGETHER, output) / _TOGETHER
        for times in some.values()
        if times is not None
    ]
    return round(min(costs, default=0.0))


@dataclass(frozen=True)
class ForeseenSteps:
    """Continuous batching that gives up, between steps, whatever could not be in time even alone:
    what waits and what runs; and begins what is to come first by `order`, with at most `size`
    sequences at once."""

    steps: Continuous
    name: str = "serve.clairvoyant"
    can: Abilities = PLAIN

    @classmethod
    def of(cls, order: Order, size: int) -> ForeseenSteps:
        """With steps of up to so many sequences."""
        return cls(Continuous("serve.clairvoyant", _BUDGET, size, Ranked(order)))

    def begin(self, world: World) -> Lines:
        """Nothing waits."""
        return self.steps.begin(world)

    def arrive(self, world: World, rows: range) -> None:
        """As continuous batching."""
        self.steps.arrive(world, rows)

    def next(self, world: World, idle: Sequence[Lane]) -> Sequence[Do]:
        """Drop what is hopeless; then the next step."""
        memory: Lines = world.memory
        for lane in idle:
            for engine in memory.engines[lane.number].values():
                self._drop(world, memory, engine, lane)
        return self.steps.next(world, idle)

    def _drop(self, world: World, memory: Lines, engine: Engine, lane: Lane) -> None:
        waiting = [row for rows in engine.line.groups.values() for row in rows]
        late = [row for row in waiting if self._is_late(world, engine, lane, row, runs=False)]
        for row in late:
            engine.line.pop(row)
        gone = [row for row in engine.running if self._is_late(world, engine, lane, row, runs=True)]
        if gone:
            engine.running = [row for row in engine.running if row not in gone]
            memory.drops[lane.number] += [row for row in gone if row in world.cached]
        for row in [*late, *gone]:
            memory.began.discard(row)
            memory.turns.rank.pop(row, None)
        memory.open[lane.number] -= len(late) + len(gone)
        world.refuse([*late, *gone], _LATE)

    def _is_late(self, world: World, engine: Engine, lane: Lane, row: int, *, runs: bool) -> bool:
        """Whether it could not be in time if it had the lane for itself from now on."""
        at = row - world.requests.base
        slack = world.requests.deadline[at] - world.now
        times = world.times(engine.model, lane)
        if times is None:
            known = world.latencies(engine.model, lane)
            assert known is not None, "an engine is where its model was measured"
            return slack < known.mean[min(world.requests.items[at], known.largest)]
        prompt, made = world.requests.prompt[at], world.requests.made[at]
        lacks: int = world.future.output_of(row) - made
        have = world.cached[row].tokens if runs and row in world.cached else 0
        if have == prompt + made - 1 and made:
            line = times.line(1)
            return slack < lacks * (line.start + line.context * have)
        return slack < times.whole([prompt + made - have], lacks)

    def ended(self, world: World, done: Ended) -> Sequence[Do]:
        """As continuous batching; what is over has no rank."""
        orders = self.steps.ended(world, done)
        memory: Lines = world.memory
        for row in done.over:
            memory.turns.rank.pop(row, None)
        return orders

    def told(self, world: World, news: News) -> Sequence[Do]:
        """As continuous batching."""
        return self.steps.told(world, news)
