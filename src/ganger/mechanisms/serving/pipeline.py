"""Requests that several models answer together: stages as tasks, joins as counts of open tasks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from msgspec import Struct

from ganger.core.serving.world import Pipeline, Stage, Task, World
from ganger.core.units import NEVER

LATE: Final = "it could not be answered in time"
_CUT: Final = -1
_SALT: Final = 16
"""Draws with less are for others."""


class Running(Struct):
    """A request under way, by stage: when it should be over, how many that feed it are not, the
    items that it was handed, and its open tasks; `left`: all open tasks. `pipeline`: -1 for one
    that is cut, as if it were a stage alone."""

    pipeline: int
    due: list[int]
    after: list[int]
    items: list[int]
    open: list[int]
    left: int = 0


class Staged(Struct):
    """What is under way, by request; by pipeline, the part of the time in which each stage should
    be over, and the microseconds from the begin of each stage to the end if all of it is alone."""

    open: dict[int, Running]
    parts: list[list[float]]
    rests: list[list[int]]


def quickest(world: World, model: int) -> int:
    """Microseconds of one item alone, where that takes least."""
    return min((each.mean[1] for each in world.models[model].latencies.values()), default=1)


def largest(world: World, asked: int) -> int:
    """The most inputs of a batch, on whatever lane, of what answers a request."""
    tables = [
        known
        for lane in world.lanes
        for model in world.variants[asked]
        if not lane.copies and (known := world.latencies(model, lane)) is not None
    ]
    return max((each.largest for each in tables), default=0)


def salt_of(stages: int, number: int, to: int) -> int:
    """Of the lot by which a stage hands on a whole number of items to another, of so many."""
    return _SALT + number * stages + to


def stages_of(world: World, row: int, pipeline: int) -> tuple[Stage, ...]:
    """Of a request under way: of its pipeline, or of one that is cut the only one, of the model
    that is quickest."""
    if pipeline == _CUT:
        able = world.variants[world.requests.model[row - world.requests.base]]
        return (Stage("", min(able, key=lambda model: quickest(world, model))),)
    return world.pipelines[pipeline].stages


def rests(pipeline: Pipeline, took: Sequence[float]) -> list[float]:
    """From the begin of each stage, the longest way to the end; `took`: by stage."""
    found = [0.0] * len(took)
    for at in range(len(took) - 1, -1, -1):
        found[at] = took[at] + max((found[to] for to, _ in pipeline.stages[at].feeds), default=0.0)
    return found


def parts(pipeline: Pipeline, took: Sequence[float]) -> list[float]:
    """Of the whole time, the part in which each stage should be over, where every stage gets time
    in proportion to what it takes, along the longest way through it."""
    ahead = rests(pipeline, took)
    before = [0.0] * len(took)
    found = []
    for at, stage in enumerate(pipeline.stages):
        for to, _ in stage.feeds:
            before[to] = max(before[to], before[at] + took[at])
        found.append((before[at] + took[at]) / (before[at] + ahead[at]))
    return found


def expected(pipeline: Pipeline) -> list[float]:
    """Items of each stage for an item of a request, on average."""
    found = [0.0 if stage.after else 1.0 for stage in pipeline.stages]
    for at, stage in enumerate(pipeline.stages):
        for to, items in stage.feeds:
            found[to] = max(found[to], found[at] * items)
    return found


@dataclass(frozen=True)
class Staging:
    """Runs the stages of pipelines as tasks of one item each, whose `step` is the number of the
    stage plus 1.

    A stage begins when all that feed it are over, with as many items as the one hands it that hands
    it most. Of `n` items a stage hands on `n` x the mean of the edge, up or down to a whole number
    by lot. The request is answered when no task is open. `drops`: one is refused as soon as what
    is left of it takes too long even alone. `cuts`: a request to a model that is larger than any
    batch is run as a stage alone.
    """

    drops: bool = False
    cuts: bool = False

    def begin(self, world: World) -> Staged:
        """Nothing is under way. Stages get time in proportion to what they take alone."""
        took = [[quickest(world, stage.model) for stage in each.stages] for each in world.pipelines]
        both = list(zip(world.pipelines, took, strict=True))
        return Staged(
            {},
            [parts(each, some) for each, some in both],
            [[round(rest) for rest in rests(each, some)] for each, some in both],
        )

    def arrive(
        self, world: World, memory: Staged, row: int, parts: Sequence[float] | None = None
    ) -> list[int]:
        """A request has come: the tasks of its first stages. `parts`: in which each of its stages
        should be over, if not those of the memory."""
        requests = world.requests
        at = row - requests.base
        code = max(requests.model[at] - world.first_pipeline, _CUT)
        stages = stages_of(world, row, code)
        came, due = requests.arrival[at], requests.deadline[at]
        if parts is None:
            parts = (1.0,) if code == _CUT else memory.parts[code]
        dues = [NEVER if due >= NEVER else came + round(part * (due - came)) for part in parts]
        first = [0 if stage.after else requests.items[at] for stage in stages]
        running = memory.open[row] = Running(
            code, dues, [stage.after for stage in stages], first, [0] * len(stages)
        )
        ready = [number for number, stage in enumerate(stages) if not stage.after]
        return self._start(world, row, running, ready, came)

    def _start(
        self, world: World, row: int, running: Running, ready: list[int], at: int
    ) -> list[int]:
        """The tasks of stages for which all is there, and of those behind a stage that was handed
        nothing."""
        stages = stages_of(world, row, running.pipeline)
        wanted = []
        while ready:
            number = ready.pop(0)
            count = running.items[number]
            if not count:
                ready += self._hand_on(world, row, running, number)
                continue
            running.open[number] = count
            running.left += count
            model, due = stages[number].model, running.due[number]
            wanted += [
                world.add_task(Task(row, model, 1, number + 1, at, due)) for _ in range(count)
            ]
        return wanted

    def _hand_on(self, world: World, row: int, running: Running, number: int) -> list[int]:
        """A stage is over: the stages that can begin now."""
        stages = stages_of(world, row, running.pipeline)
        ready = []
        for to, mean in stages[number].feeds:
            lot = world.draw(row, salt_of(len(stages), number, to))
            running.items[to] = max(running.items[to], int(running.items[number] * mean + lot))
            running.after[to] -= 1
            if not running.after[to]:
                ready.append(to)
        return ready

    def over(self, world: World, memory: Staged, number: int) -> list[int]:
        """A task was executed: the tasks that begin by that; the request is answered after its
        last."""
        task = world.tasks.pop(number)
        row, stage = task.request, task.step - 1
        running = memory.open.get(row)
        if running is None:
            return []  # it was refused meanwhile
        running.left -= 1
        running.open[stage] -= 1
        if running.open[stage]:
            return []
        ready = self._hand_on(world, row, running, stage)
        wanted = self._start(world, row, running, ready, world.now)
        if not running.left:
            del memory.open[row]
            world.answer((row,), task.model if running.pipeline == _CUT else -1)
        return wanted

    def runs(self, world: World, row: int) -> bool:
        """Whether a request is run by stages: one for a pipeline, or one that is cut."""
        requests = world.requests
        asked = requests.model[row - requests.base]
        if asked >= world.first_pipeline:
            return True
        if not self.cuts or requests.each_one_item:
            return False
        return requests.items[row - requests.base] > largest(world, asked)

    def refuse(self, world: World, memory: Staged, number: int, why: str, at: int) -> None:
        """A task is not run: its request is dropped, once."""
        row = world.tasks.pop(number).request
        if memory.open.pop(row, None) is not None:
            world.refuse((row,), why, at=at)

    def gone(self, world: World, memory: Staged, number: int) -> bool:
        """Whether a task need not be run, because its request is over, now at the latest."""
        task = world.tasks[number]
        running = memory.open.get(task.request)
        if running is None:
            return True
        if self.drops:
            due = world.requests.deadline[task.request - world.requests.base]
            if world.now + memory.rests[running.pipeline][task.step - 1] > due:
                del memory.open[task.request]
                world.refuse((task.request,), LATE)
                return True
        return False
