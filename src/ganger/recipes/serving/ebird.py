"""Ebird's scheduler: what waits is covered by several batches that run beside each other.

Cui et al.: Ebird: Elastic Batch for Improving Responsiveness and Throughput of Deep Learning
Services, ICCD 2019.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from msgspec import Struct

from ganger.core.serving.router import Abilities
from ganger.core.serving.verbs import OK, Batch, Do, Ended, News, Part, Wait
from ganger.core.serving.world import Lane, World
from ganger.mechanisms.serving.batching import taken
from ganger.mechanisms.serving.queues import Fifo

_MANY = 1 << 40


class Memory(Struct):
    """What a worker's batch has inputs for, by lane; the smallest of the workers that are up, which
    take what there is; requests that wait, by model; inputs that run, by device."""

    size_of: list[int]
    smallest: int
    queues: list[Fifo]
    running: dict[int, int]


@dataclass(frozen=True)
class Ebird:
    """See the module. `sizes`: of the batches of the workers of each device, the largest first;
    `most`: inputs that run on a device at once, 0 for no limit; `tick`: microseconds."""

    sizes: tuple[int, ...]
    most: int
    tick: int
    name: str = "ebird"

    @property
    def can(self) -> Abilities:
        """A lane for every worker."""
        return Abilities(streams=len(self.sizes))

    def begin(self, world: World) -> Memory:
        """The lanes of a device are its workers, the largest first."""
        size_of, seen = [], dict[int, int]()
        for lane in world.lanes:
            at = seen[lane.device] = seen.get(lane.device, -1) + 1
            size_of.append(self.sizes[at % len(self.sizes)])
        queues = [Fifo(model, 0) for model in range(len(world.models))]
        return Memory(size_of, self._smallest(world, size_of), queues, dict.fromkeys(seen, 0))

    def _smallest(self, world: World, size_of: list[int]) -> int:
        return min((size_of[lane.number] for lane in world.lanes if not lane.down), default=0)

    def arrive(self, world: World, rows: range) -> None:
        """Requests wait for the next tick."""
        memory: Memory = world.memory
        requests = world.requests
        for row in rows:
            memory.queues[requests.model[row - requests.base]].push(world, [row])

    def next(self, world: World, idle: Sequence[Lane]) -> Sequence[Do]:
        """At a tick, from the largest idle worker down: each that what waits can fill is started.
        The requests that came first choose first."""
        memory: Memory = world.memory
        if not any(map(len, memory.queues)):
            return ()
        late = world.now % self.tick
        orders: list[Do] = []
        if not late:
            for lane in sorted(idle, key=lambda lane: (-memory.size_of[lane.number], lane.number)):
                batch = self._batch(world, memory, lane)
                if batch is not None:
                    orders.append(batch)
        return [*orders, Wait(world.now + self.tick - late, _MANY)]

    def _batch(self, world: World, memory: Memory, lane: Lane) -> Batch | None:
        """A full batch of this worker's size, if there is one and room for it."""
        size = memory.size_of[lane.number]
        running = memory.running[lane.device]
        for queue in sorted(filter(len, memory.queues), key=lambda queue: queue.head):
            if world.latencies(queue.model, lane) is None:
                continue
            count, inputs = taken(world, queue, lane, size)
            full = inputs >= size or count < len(queue) or size <= memory.smallest
            if full and (not self.most or not running or running + inputs <= self.most):
                memory.running[lane.device] = running + inputs
                part = Part(queue.model, queue.pop(count), inputs)
                return Batch(lane.number, (part,), "the largest worker that what waits fills")
        return None

    def ended(self, world: World, done: Ended) -> Sequence[Do]:
        """Answer; what failed waits again."""
        order = done.order
        assert isinstance(order, Batch), "it loads nothing"
        memory: Memory = world.memory
        part = order.parts[0]
        memory.running[world.lanes[order.lane].device] -= part.items
        if done.outcome == OK:
            world.answer(part.tasks, part.model)
        else:
            memory.queues[part.model].push(world, list(part.tasks))
        return ()

    def told(self, world: World, news: News) -> Sequence[Do]:
        """Workers come and go: another may be the smallest."""
        memory: Memory = world.memory
        memory.smallest = self._smallest(world, memory.size_of)
        return ()
