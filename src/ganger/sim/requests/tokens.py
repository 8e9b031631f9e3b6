"""Token models on lanes: how long steps take, what they put out, and the cache that they fill.

How long outputs become is known here alone: a router sees a token only once it is there. Steps take
what the models file says, without noise. A run of steps in which nothing can change is one order.

It ends with the step in which an output ends, the cache is full, or the router interrupts it for a
request that came. It is what its steps would be one by one, as a test shows.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Final, NamedTuple

import numpy as np
from msgspec.structs import replace

from ganger.core.errors import InvariantError
from ganger.core.serving.tokens import Cached, Line, Times
from ganger.core.serving.verbs import OK, Batch, Part
from ganger.core.serving.world import Lane, World

_FEW: Final = 12
"""Up to so many steps a loop is faster than an array."""


class _Run(NamedTuple):
    """What a lane does: `borders`, microseconds from its beginning to the end of each step."""

    began: int
    order: Batch
    borders: Sequence[int]


class _Whole(NamedTuple):
    """A batch of whole requests: when the prompt of each was read, and the bytes that it holds."""

    began: int
    first: Sequence[int]
    held: int


class Steps:
    """The steps of all lanes of a world."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._outputs: list[int] = []
        """By request that is not forgotten: tokens of its output; 0 where it has none."""
        self._runs: dict[int, _Run] = {}
        self._wholes: dict[int, _Whole] = {}
        self.breakable = 0
        """How many lanes run more than one step."""
        world.steps_done = self.done

    def add(self, columns: Mapping[str, Sequence[int]]) -> None:
        """What requests that come will put out."""
        found = columns.get("output")
        self._outputs.extend([0] * len(columns["arrival"]) if found is None else found)

    def drop_first(self, count: int) -> None:
        """Forget the first rows, which are over."""
        del self._outputs[:count]

    # ------------------------------------------------------------------ begin

    def begin(self, order: Batch, lane: Lane, pace: float = 1.0) -> int:
        """Microseconds that a batch takes unless it is cut, if a step takes `pace` times what is
        stated; 0 for a batch that is not of a token model. Raises InvariantError for one that
        cannot be."""
        times = self._world.models[order.parts[0].model].tokens.get(lane.type)
        if times is None:
            return 0
        if len(order.parts) != 1:
            raise InvariantError(f"lane {lane.number}: a batch of several token models")
        for task in order.drops:
            self._drop(task)
        part = order.parts[0]
        if not part.tokens:
            return self._begin_whole(part, lane, times, pace)
        tokens = squares = sequences = context = new = behind = 0
        giving, left = 0, order.steps
        requests, cached, outputs = self._world.requests, self._world.cached, self._outputs
        base, prompt, made = requests.base, requests.prompt, requests.made
        for task, count in zip(part.tasks, part.tokens, strict=True):
            at, have = task - base, cached.get(task)
            before = 0 if have is None else have.tokens
            lacks = prompt[at] + made[at] - before
            if not 0 < count <= lacks or (have is not None and have.lane != lane.number):
                raise InvariantError(f"request {task} cannot have {count} tokens of {lacks}")
            if count == 1 and before:
                sequences += 1
                context += before
            else:
                tokens += count
                squares += (before + count) ** 2 - before * before
            new += count
            behind += before + count
            if count == lacks:
                giving += 1
                left = min(left, outputs[at] - made[at])
        if giving < len(part.tasks) and order.steps > 1:
            raise InvariantError(f"lane {lane.number}: a prompt that is not read in several steps")
        room = self._room(part.model, lane)
        if room >= 0:
            if new > room:
                raise InvariantError(f"lane {lane.number} has room for {room} tokens, not {new}")
            left = min(left, 1 + (room - new) // len(part.tasks))
        took = [max(round(times.micros(tokens, squares, sequences, context)), 1)]
        if left > 1:
            took += _decoding(times.line(giving), behind, giving, left - 1)
            self.breakable += 1
        if pace != 1:
            took = [max(round(each * pace), 1) for each in took]
        borders = list(accumulate(took))
        self._runs[lane.number] = _Run(self._world.now, order, borders)
        return borders[-1]

    def _room(self, model: int, lane: Lane) -> int:
        """Tokens for which the cache has room; -1 for no limit."""
        each = self._world.models[model].cache_bytes
        return -1 if lane.cache < 0 or not each else (lane.cache - lane.cached) // each

    def _begin_whole(self, part: Part, lane: Lane, times: Times, pace: float) -> int:
        """All prompts, then steps until the longest output is there. What does not fit into the
        cache together is done in rounds, one after the other."""
        requests, tasks = self._world.requests, self._world.tasks
        rows = [(task if task >= 0 else tasks[task].request) - requests.base for task in part.tasks]
        room, most, took = self._room(part.model, lane), 0, 0
        first: list[int] = []
        while len(first) < len(rows):
            prompts: list[int] = []
            held = longest = 0
            for at in rows[len(first) :]:
                output = max(longest, self._outputs[at])
                needs = sum(prompts) + requests.prompt[at] + (len(prompts) + 1) * (output - 1)
                if prompts and 0 <= room < needs:
                    break
                prompts.append(requests.prompt[at])
                held, longest = needs, output
            if 0 <= room < held:
                raise InvariantError(f"lane {lane.number} has room for {room} tokens, not {held}")
            most = max(most, held)
            squares = sum(each * each for each in prompts)
            took += max(round(times.micros(sum(prompts), squares, 0, 0)), 1)
            first += [took] * len(prompts)
            line = times.line(len(prompts))
            took += sum(_decoding(line, sum(prompts), len(prompts), longest - 1))
        if pace != 1:
            first, took = [round(each * pace) for each in first], max(round(took * pace), 1)
        held = most * self._world.models[part.model].cache_bytes if room >= 0 else 0
        lane.cached += held
        self._wholes[lane.number] = _Whole(self._world.now, first, held)
        return took

    # ------------------------------------------------------------------ end

    def done(self, lane: int) -> int:
        """How many steps of what a lane runs are over by now."""
        run = self._runs.get(lane)
        return 0 if run is None else bisect_right(run.borders, self._world.now - run.began)

    def border(self, lane: int) -> int:
        """The earliest moment from now on at which a lane can stop; -1: not before its end; 0: it
        runs no token model."""
        run = self._runs.get(lane)
        if run is None:
            return -1 if lane in self._wholes else 0
        at = bisect_left(run.borders, self._world.now - run.began)
        return run.began + run.borders[at] if at < len(run.borders) - 1 else -1

    def end(self, lane: Lane, order: Batch, outcome: str) -> tuple[Batch, tuple[int, ...]]:
        """A lane has ended or was stopped: the batch as it was executed, of a token model with the
        steps that were done, and the tasks whose output has ended."""
        whole = self._wholes.pop(lane.number, None)
        if whole is not None:
            lane.cached -= whole.held
            if outcome == OK:
                self._end_whole(order.parts[0], whole)
            return order, ()
        run = self._runs.pop(lane.number, None)
        if run is None:
            return order, ()
        self.breakable -= len(run.borders) > 1
        steps = bisect_right(run.borders, self._world.now - run.began)
        order = replace(order, steps=steps)
        if not steps:
            return order, ()
        part, requests, cached = order.parts[0], self._world.requests, self._world.cached
        base, prompt, made, outputs = requests.base, requests.prompt, requests.made, self._outputs
        arrived = run.began + run.borders[0]
        over: list[int] = []
        new = 0
        for task, count in zip(part.tasks, part.tokens, strict=True):
            have = cached.get(task)
            if have is None:
                each = self._world.models[part.model].cache_bytes
                have = cached[task] = Cached(lane.number, 0, each)
            at = task - base
            gives = have.tokens + count == prompt[at] + made[at]
            have.tokens += count + steps - 1
            new += count + steps - 1
            if gives:
                if not made[at]:
                    requests.first[at] = arrived
                made[at] += steps
                if made[at] >= outputs[at]:
                    over.append(task)
        lane.cached += new * self._world.models[part.model].cache_bytes
        for task in over:
            self._drop(task)
        return order, tuple(over)

    def _end_whole(self, part: Part, whole: _Whole) -> None:
        requests, tasks = self._world.requests, self._world.tasks
        for task, first in zip(part.tasks, whole.first, strict=True):
            at = (task if task >= 0 else tasks[task].request) - requests.base
            if at >= 0:
                requests.made[at] = self._outputs[at]
                requests.first[at] = requests.first[at] or whole.began + first

    def _drop(self, task: int) -> None:
        """A lane keeps nothing more of a task."""
        have = self._world.cached.pop(task, None)
        if have is not None:
            self._world.lanes[have.lane].cached -= have.tokens * have.each

    def lose(self, lane: int) -> None:
        """Whatever a lane keeps is lost."""
        for task in [task for task, have in self._world.cached.items() if have.lane == lane]:
            self._drop(task)


def _decoding(line: Line, context: int, sequences: int, steps: int) -> list[int]:
    """Microseconds of steps that follow each other, of sequences with `context` tokens at first."""
    if steps <= _FEW:
        return [
            max(round(line.start + line.context * (context + sequences * at)), 1)
            for at in range(steps)
        ]
    took = line.start + line.context * (context + sequences * np.arange(steps))
    found: list[int] = np.maximum(np.rint(took), 1).astype(np.int64).tolist()
    return found
