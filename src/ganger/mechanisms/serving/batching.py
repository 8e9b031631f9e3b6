"""How many of the requests that wait form the next batch, and how long to wait for more.

Batches are counted in requests where each brings one input, in inputs otherwise: `taken` is the one
place that knows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from msgspec import Struct

from ganger.core.serving.verbs import Part
from ganger.core.serving.world import Lane, World
from ganger.core.units import NEVER
from ganger.mechanisms.serving.queues import Queue


class Form(Struct, frozen=True, gc=False):
    """Send `size` requests now, for this reason; none: ask again at `until`, or once `missing`
    more requests have come."""

    size: int
    reason: str = ""
    until: int = NEVER
    missing: int = 1


class Batching(Protocol):
    """Forms batches. What it learns is in the memory that `begin` makes."""

    def begin(self, world: World) -> Any:
        """The memory to begin with."""

    def form(self, world: World, memory: Any, queue: Queue, lane: Lane) -> Form:
        """The next batch of a queue that is not empty, on a lane that is idle. May refuse requests
        at the head, which it takes off."""

    def learn(self, world: World, memory: Any, part: Part, lane: Lane, took: int) -> None:
        """A batch was executed in so many microseconds."""


def taken(world: World, queue: Queue, lane: Lane, most: int) -> tuple[int, int]:
    """How many requests at the head bring at most `most` inputs together, and how many inputs; no
    more than the largest batch that was measured there, and one request at least."""
    known = world.latencies(queue.model, lane)
    if known is not None:
        most = min(most, known.largest)
    requests = world.requests
    if requests.each_one_item:
        count = min(len(queue), max(most, 1))
        return count, count
    total = count = 0
    for number in queue.upcoming():
        items = world.count_items((number,))
        if total + items > most and count:
            break
        total += items
        count += 1
    return count, total


def due_of(world: World, queue: Queue) -> int:
    """The deadline of what is at the head."""
    return world.deadline_of(queue.head)


def drop_late(world: World, queue: Queue, earliest: int) -> None:
    """Refuse the requests at the head that are due before `earliest`; tasks are left alone."""
    while len(queue) and queue.head >= 0 and due_of(world, queue) < earliest:
        world.refuse(queue.pop(1), "it could not be answered in time")


class _Plain:
    """Learns nothing."""

    def begin(self, world: World) -> None:
        """Nothing."""

    def learn(self, world: World, memory: Any, part: Part, lane: Lane, took: int) -> None:
        """Nothing."""


@dataclass(frozen=True)
class Single(_Plain):
    """One request at a time."""

    def form(self, world: World, memory: Any, queue: Queue, lane: Lane) -> Form:
        """The head."""
        return Form(1, "one at a time")


class _Full(Struct):
    """The fewest requests that are a full batch of any model on any lane."""

    least: int


@dataclass(frozen=True)
class SizeOrTimeout:
    """A full batch of `size` as soon as there is one, or what is there once the oldest has waited
    for `timeout` (microseconds), as TensorFlow Serving and TorchServe do."""

    size: int
    timeout: int

    def begin(self, world: World) -> _Full:
        """A queue that is empty now may be full after as many requests as this."""
        largest = (table.largest for known in world.models for table in known.latencies.values())
        return _Full(min(self.size, min(largest, default=1)))

    def learn(self, world: World, memory: Any, part: Part, lane: Lane, took: int) -> None:
        """Nothing."""

    def form(self, world: World, memory: Any, queue: Queue, lane: Lane) -> Form:
        """A full batch, or what came within the timeout."""
        assert isinstance(memory, _Full)
        known = world.latencies(queue.model, lane)
        size = self.size if known is None else min(self.size, known.largest)
        count, inputs = taken(world, queue, lane, size)
        if inputs >= size or count < len(queue):
            return Form(count, "full")
        until = world.arrival_of(queue.head) + self.timeout
        if until <= world.now:
            return Form(count, "the oldest waited for the timeout")
        missing = min(size - inputs, memory.least) if world.requests.each_one_item else 1
        return Form(0, until=until, missing=missing)


@dataclass(frozen=True)
class Preferred(_Plain):
    """Triton's dynamic batcher: the largest of the `preferred` sizes that the waiting requests
    fill, else what is there once the oldest has waited for `delay`; without preferred sizes, or
    with no delay, whatever is there, up to `size`."""

    size: int
    delay: int
    preferred: Sequence[int] = ()

    def form(self, world: World, memory: Any, queue: Queue, lane: Lane) -> Form:
        """A preferred size, or what came within the delay."""
        count, inputs = taken(world, queue, lane, self.size)
        if count < len(queue) or inputs >= self.size:
            return Form(count, "the next would exceed the largest batch")
        if not self.delay:
            return Form(count, "whatever waits")
        for size in sorted(self.preferred, reverse=True):
            some, exactly = taken(world, queue, lane, size)
            if exactly == size:
                return Form(some, "a preferred size")
        until = world.arrival_of(queue.head) + self.delay
        if until <= world.now:
            return Form(count, "the oldest waited for the delay")
        return Form(0, until=until)


class _Sizes(Struct):
    """The largest batch by model and type of device, as it was learned."""

    sizes: dict[tuple[int, str], float] = {}


@dataclass(frozen=True)
class Aimd:
    """Additive increase, multiplicative decrease: the size grows by `step` with every full batch
    that is executed within the SLO, and is cut to `back` of it by one that is not.

    (Crankshaw et al.: Clipper, NSDI 2017, section 4.3.1.) The SLO of a batch is the time that its
    first request was given.
    """

    step: int = 1
    back: float = 0.9

    def begin(self, world: World) -> _Sizes:
        """Every size begins with 1."""
        return _Sizes()

    def form(self, world: World, memory: Any, queue: Queue, lane: Lane) -> Form:
        """As many as wait, up to the size."""
        assert isinstance(memory, _Sizes)
        size = int(memory.sizes.get((queue.model, lane.type), 1))
        return Form(taken(world, queue, lane, size)[0], "up to the size that kept the SLO")

    def learn(self, world: World, memory: Any, part: Part, lane: Lane, took: int) -> None:
        """Grow or shrink."""
        assert isinstance(memory, _Sizes)
        key = (part.model, lane.type)
        size = int(memory.sizes.get(key, 1))
        slack = min(world.deadline_of(each) - world.arrival_of(each) for each in part.tasks)
        if took > slack:
            memory.sizes[key] = max(int(self.back * size), 1)
        elif part.items >= size:
            known = world.latencies(part.model, lane)
            most = known.largest if known is not None else size
            memory.sizes[key] = min(size + self.step, most)


@dataclass(frozen=True)
class WithinSlack(_Plain):
    """The largest batch that the tightest request can still wait for: its execution ends by the
    deadline of the first. A request that cannot be answered in time even alone is refused.

    (Tang et al.: Nanily, HPCC 2019: the batch whose execution time comes closest below the
    remaining time.) The mean is what counts.
    """

    def form(self, world: World, memory: Any, queue: Queue, lane: Lane) -> Form:
        """The largest batch that ends in time."""
        known = world.latencies(queue.model, lane)
        assert known is not None, "a lane that serves a model has its latencies"
        took = known.mean
        drop_late(world, queue, world.now + took[1])
        if not len(queue):
            return Form(0)
        most, inputs = taken(world, queue, lane, known.largest)
        left = due_of(world, queue) - world.now
        count = most
        while count > 1 and took[inputs] > left:
            count -= 1
            inputs = _items(world, queue, count)
        return Form(count, "all that wait" if count == most else "the most that ends in time")


def _items(world: World, queue: Queue, count: int) -> int:
    if world.requests.each_one_item:
        return count
    return world.count_items(queue.upcoming()[:count])


class _Regression(Struct):
    """Of microseconds on inputs, by model and type of device: counts, sums and products."""

    sums: dict[tuple[int, str], list[float]] = {}


@dataclass(frozen=True)
class FittedLatency:
    """The largest batch that is predicted to end within `within` of the time that the head has
    left: latency is a line of the inputs, fitted to what was executed, with `spread` deviations of
    what it missed by added.

    Until `after` batches were executed, the size grows by one with each. (Clipper, NSDI 2017,
    section 4.3.1, has a quantile regression; its public code a ridge regression of mean + 3
    deviations at 0.92 of the budget.) The head that is late already is taken alone.
    """

    within: float = 0.92
    spread: float = 3.0
    after: int = 5

    def begin(self, world: World) -> _Regression:
        """Nothing was executed."""
        return _Regression()

    def form(self, world: World, memory: Any, queue: Queue, lane: Lane) -> Form:
        """As many as wait, up to the size that is predicted to end in time."""
        assert isinstance(memory, _Regression)
        sums = memory.sums.get((queue.model, lane.type))
        if sums is None or sums[0] < self.after:
            size = 1 if sums is None else 1 + int(sums[0])
            return Form(taken(world, queue, lane, size)[0], "too little was executed yet")
        base, each, missed = _line(sums)
        left = (due_of(world, queue) - world.now) * self.within - base - self.spread * missed
        known = world.latencies(queue.model, lane)
        most = known.largest if known is not None else len(queue)
        size = most if each <= 0 or left >= each * most else max(int(left / each), 1)
        return Form(taken(world, queue, lane, size)[0], "the most that is predicted in time")

    def learn(self, world: World, memory: Any, part: Part, lane: Lane, took: int) -> None:
        """One more point."""
        assert isinstance(memory, _Regression)
        sums = memory.sums.setdefault((part.model, lane.type), [0.0] * 6)
        x, y = float(part.items), float(took)
        for at, value in enumerate((1.0, x, y, x * x, x * y, y * y)):
            sums[at] += value


def _line(sums: Sequence[float]) -> tuple[float, float, float]:
    """Least squares: the base, what each input adds, the standard deviation of what is missed. All
    batches alike: the mean, and as if all of it were for the inputs."""
    n, x, y, xx, xy, yy = sums
    spread = n * xx - x * x
    if spread <= 1e-9 * n * xx:
        return 0.0, y / x, 0.0
    each = (n * xy - x * y) / spread
    base = (y - each * x) / n
    missed = max(yy - base * y - each * xy, 0.0) / max(n - 2, 1)
    return base, each, missed**0.5
