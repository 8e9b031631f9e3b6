"""BentoML's adaptive batching: wait for more requests while that shortens the mean latency.

BentoML 1.4, `CorkDispatcher` and its `Optimizer`. All is counted in seconds, as there.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

import numpy as np
from msgspec import Struct, field

from ganger.core.serving.verbs import Part
from ganger.core.serving.world import Lane, World
from ganger.core.units import SECOND
from ganger.mechanisms.serving.batching import Form, taken
from ganger.mechanisms.serving.queues import Queue

TICK = SECOND // 1000
"""Between two looks at the queue."""
_KEPT, _SKIPPED, _TRAINING = 50, 2, 11
"""Batches that the line is fitted to; the first ones, which do not count; those that go at once."""
_REFRESH = 5 * SECOND
_DECAY = 0.95
_NEVER_MIND = 1 << 30


class Fit(Struct):
    """What one worker has learned of one model: a batch of n takes `each` n + `base` seconds, and
    its first request has waited for `wait`, on average."""

    each: float
    base: float
    wait: float = 0.0
    samples: deque[tuple[int, float, float]] = field(default_factory=lambda: deque(maxlen=_KEPT))
    """Requests, seconds, seconds waited."""
    sent: int = 0
    ended: int = 0
    refreshed: int = -_REFRESH

    def note(self, requests: int, took: float, waited: float, now: int) -> None:
        """A batch has ended; every 5 s the line is fitted again."""
        self.ended += 1
        if self.ended > _SKIPPED:
            self.samples.append((requests, took, waited))
            if now - self.refreshed >= _REFRESH:
                self.refreshed = now
                self.refresh()

    def refresh(self) -> None:
        """Fit the line by least squares; of many that fit, the shortest."""
        if self.samples:
            x = [(n, 1) for n, _, _ in self.samples]
            line = np.linalg.lstsq(x, [took for _, took, _ in self.samples], rcond=None)[0]
            self.each, self.base = max(1e-6, float(line[0])), max(0.0, float(line[1]))
            self.wait = sum(waited for _, _, waited in self.samples) / len(self.samples)

    def late(self, count: int, first: float, most: float) -> bool:
        """Whether the head of `count` requests, which waits since `first` seconds, is given up."""
        if count == 1:
            return first >= most
        return first + self.each * count + self.base >= most

    def waits(self, count: int, last: float) -> bool:
        """Whether `count` requests wait for another; the last one came `last` seconds ago."""
        return count * (last + TICK / SECOND + self.each) <= self.wait * _DECAY


@dataclass(frozen=True)
class Cork:
    """See the module. `size`: of the largest batch; `latency`: microseconds that a request may
    take."""

    size: int
    latency: int

    def begin(self, world: World) -> dict[tuple[int, int], Fit]:
        """By lane and model; nothing was learned yet."""
        return {}

    def _fit(self, memory: dict[tuple[int, int], Fit], lane: Lane, model: int) -> Fit:
        found = memory.get((lane.number, model))
        if found is None:
            most = self.latency / SECOND
            found = memory[lane.number, model] = Fit(min(2.0, most * 2 / 30), min(1.0, most / 30))
        return found

    def form(
        self, world: World, memory: dict[tuple[int, int], Fit], queue: Queue, lane: Lane
    ) -> Form:
        """Give up heads that would be late, then send what waits, or look again in a tick."""
        fit = self._fit(memory, lane, queue.model)
        training = fit.sent < _TRAINING
        most = self.latency / SECOND
        while len(queue) and queue.head >= 0 and not training:
            first = (world.now - world.arrival_of(queue.head)) / SECOND
            if not fit.late(len(queue), first, most):
                break
            world.refuse(queue.pop(1), "it would have taken longer than the latency that is kept")
        if not len(queue):
            return Form(0)
        count, _ = taken(world, queue, lane, self.size)
        if not training and count == len(queue) < self.size:
            last = (world.now - world.arrival_of(queue.upcoming()[-1])) / SECOND
            if fit.waits(count, last):
                return Form(0, until=world.now + TICK, missing=_NEVER_MIND)
        fit.sent += 1
        return Form(count, "more would come too late to shorten the mean latency")

    def learn(
        self,
        world: World,
        memory: dict[tuple[int, int], Fit],
        part: Part,
        lane: Lane,
        took: int,
    ) -> None:
        """One more sample; batches of the training count as if they had not waited."""
        fit = self._fit(memory, lane, part.model)
        training = fit.ended < _TRAINING
        waited = world.now - took - world.arrival_of(part.tasks[0])
        fit.note(len(part.tasks), took / SECOND, 0.0 if training else waited / SECOND, world.now)
        if training and fit.ended > _TRAINING - 3:
            fit.refresh()
