"""Token models as one would simulate them first: every step is an event, every token is counted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ganger.core.serving.tokens import Cached, Times
from ganger.core.serving.verbs import Batch
from ganger.core.serving.world import Known, Lane, World


@dataclass
class Talk:
    """What a lane does: the step that runs, and how many were done."""

    times: Times
    lane: Lane
    order: Batch
    outputs: Sequence[int]
    done: int = 0
    cut: bool = False
    since: int = 0
    """When the step began."""
    over: tuple[int, ...] = ()

    def counts(self) -> list[tuple[int, int]]:
        """Each task with the tokens that it gets in this step."""
        part = self.order.parts[0]
        return [
            (task, part.tokens[at] if not self.done else 1) for at, task in enumerate(part.tasks)
        ]

    def begin(self, world: World) -> int:
        """Microseconds of the next step."""
        for task in self.order.drops if not self.done else ():
            drop(world, task)
        self.since = world.now
        reads = squares = sequences = context = 0
        for task, count in self.counts():
            before = world.cached[task].tokens if task in world.cached else 0
            if count == 1 and before > 0:
                sequences, context = sequences + 1, context + before
            else:
                reads += count
                squares += (before + count) ** 2 - before**2
        return max(round(self.times.micros(reads, squares, sequences, context)), 1)

    def end(self, world: World) -> bool:
        """The step is over; whether the order is, too."""
        each = world.models[self.order.parts[0].model].cache_bytes
        over, asked = [], world.requests
        for task, count in self.counts():
            have = world.cached.setdefault(task, Cached(self.lane.number, 0, each))
            have.tokens += count
            self.lane.cached += count * each
            if have.tokens == asked.prompt[task] + asked.made[task]:
                asked.made[task] += 1
                asked.first[task] = asked.first[task] or world.now
                if asked.made[task] >= self.outputs[task]:
                    over.append(task)
        self.done += 1
        needs = len(self.order.parts[0].tasks) * each
        full = 0 <= self.lane.cache < self.lane.cached + needs
        for task in over:
            drop(world, task)
        self.over = tuple(over)
        return bool(over) or self.done == self.order.steps or full


def drop(world: World, task: int) -> None:
    """Its cache is given up."""
    if task in world.cached:
        have = world.cached.pop(task)
        world.lanes[have.lane].cached -= have.tokens * have.each


def whole(world: World, order: Batch, lane: Lane, outputs: Sequence[int]) -> tuple[int, list[int]]:
    """Microseconds of a batch of whole requests, and from its beginning when each was read."""
    part = order.parts[0]
    known: Known = world.models[part.model]
    times, rows = (
        known.tokens[lane.type],
        [task if task >= 0 else world.tasks[task].request for task in part.tasks],
    )
    took, first = 0, list[int]()
    while rows:
        together = rows[:1]
        for row in rows[1:]:
            more = [*together, row]
            longest = max(outputs[each] for each in more)
            needs = sum(world.requests.prompt[each] + longest - 1 for each in more)
            if 0 <= lane.cache < needs * known.cache_bytes:
                break
            together = more
        prompts = [world.requests.prompt[row] for row in together]
        squares = sum(each**2 for each in prompts)
        took += max(round(times.micros(sum(prompts), squares, 0, 0)), 1)
        first += [took] * len(together)
        for step in range(max(outputs[row] for row in together) - 1):
            context = sum(prompts) + step * len(together)
            took += max(round(times.micros(0, 0, len(together), context)), 1)
        rows = rows[len(together) :]
    return took, first
