"""Continuous batching: the batch of a token model is put together anew for every step.

The rule of vLLM's scheduler (version 1): a step has a budget of tokens. Sequences that run come
first: each gets what it lacks, one token once its prompt is read. What is left goes to those that
wait, so that a long prompt is read in pieces beside the others (Agrawal et al.: Sarathi-Serve, OSDI
2024). When the cache is full, the last is preempted: it gives up its cache, waits again, and is
computed anew up to where it was. Nothing that waits begins in a step that preempted.

Each model on each lane is an engine with a line of its own. A request goes to the lane with the
fewest open requests; where several engines of a lane have work, they take turns step by step.
Models that are not token models get batches of what waits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from msgspec import Struct

from ganger.core.serving.router import PLAIN, Abilities
from ganger.core.serving.verbs import OK, Batch, Do, Ended, News, Part
from ganger.core.serving.world import Lane, World
from ganger.mechanisms.serving.turns import Line, Turns

_LONG: Final = 1 << 20
_NO_LIMIT: Final = 1 << 60
_NOTHING: Final[tuple[Do, ...]] = ()


class Engine(Struct):
    """A model on a lane: what waits, what runs (in the order in which it began), and of the order
    that the lane runs: the requests that each step gives a token, and the steps counted so far."""

    model: int
    lane: int
    tokens: bool
    line: Line
    running: list[int] = []
    giving: Sequence[int] = ()
    counted: int = 0
    turn: int = 0
    held: bool = False
    """Whether it found no room even for one: then others of the lane end something first."""

    @property
    def works(self) -> bool:
        """Whether there is something to do."""
        return bool(self.running or self.line.groups)


class Memory(Struct):
    """What a continuous router remembers."""

    engines: list[dict[int, Engine]]
    """By lane and model."""
    open: list[int]
    """By lane: requests that wait or run there."""
    drops: list[list[int]]
    """By lane: preempted sequences whose cache is given up with the next batch."""
    turns: Any
    began: set[int] = set()
    """Requests whose input was counted already."""
    stranded: list[int] = []
    turn: int = 0


@dataclass(frozen=True)
class Continuous:
    """See the module. `tokens`: the budget of a step; `sequences`: that run at once on a lane at
    most, for each model; of other models, inputs in a batch."""

    name: str
    tokens: int
    sequences: int
    turns: Turns
    can: Abilities = PLAIN

    def begin(self, world: World) -> Memory:
        """Nothing waits."""
        engines: list[dict[int, Engine]] = []
        for lane in world.lanes:
            able = [
                model
                for model in range(len(world.models))
                if not lane.copies and (world.latencies(model, lane) or world.times(model, lane))
            ]
            engines.append(
                {
                    model: Engine(model, lane.number, world.times(model, lane) is not None, Line())
                    for model in able
                }
            )
        count = len(world.lanes)
        return Memory(engines, [0] * count, [[] for _ in world.lanes], self.turns.begin(world))

    # ------------------------------------------------------------------ requests

    def arrive(self, world: World, rows: range) -> None:
        """Each goes to the lane with the fewest; the steps that run there end, if it could join."""
        memory: Memory = world.memory
        requests = world.requests
        for row in rows:
            if not any(requests.model[row - requests.base] in those for those in memory.engines):
                world.refuse(
                    (row,), "no lane runs its model", at=requests.arrival[row - requests.base]
                )
                continue
            engine = self._send(world, memory, row)
            running = None if engine is None else world.lanes[engine.lane].running
            if engine is None or not isinstance(running, Batch) or running.steps == 1:
                continue
            group = self.turns.group(world, row)
            first = self.turns.first(memory.turns, engine.line, engine.tokens)
            ahead = first == group and engine.line.groups[group][0] == row
            if not engine.running or (
                len(engine.running) < self.sequences and (ahead or self.turns.moves)
            ):
                world.interrupt(engine.lane)

    def _send(self, world: World, memory: Memory, row: int) -> Engine | None:
        """To the lane where the fewest requests are open; None if no lane is up."""
        model = world.requests.model[row - world.requests.base]
        lanes = [
            at
            for at, those in enumerate(memory.engines)
            if model in those and not world.lanes[at].down
        ]
        if not lanes:
            memory.stranded.append(row)
            return None
        at = min(lanes, key=memory.open.__getitem__)
        memory.open[at] += 1
        engine = memory.engines[at][model]
        self._count(world, memory)
        self._wait(world, memory, engine, row)
        return engine

    def _wait(self, world: World, memory: Memory, engine: Engine, row: int) -> None:
        if row not in memory.began:
            self.turns.come(world, memory.turns, row, engine.tokens)
        self.turns.waits(world, memory.turns, row, engine.tokens)
        engine.line.push(self.turns.group(world, row), row)

    def _count(self, world: World, memory: Memory) -> None:
        """Count the tokens that steps have given by now."""
        if self.turns.moves:
            for those in memory.engines:
                for engine in those.values():
                    if engine.giving:
                        done = world.steps_done(engine.lane)
                        self._counted(world, memory, engine, done)

    def _counted(self, world: World, memory: Memory, engine: Engine, done: int) -> None:
        if done > engine.counted:
            self.turns.made(world, memory.turns, engine.giving, done - engine.counted)
            engine.counted = done

    def _take(self, world: World, memory: Memory, engine: Engine, cost: float) -> int:
        """The request whose turn it is waits no more."""
        kind = engine.tokens
        row = engine.line.pop(self.turns.first(memory.turns, engine.line, kind))
        again = row in memory.began
        memory.began.add(row)
        self.turns.taken(world, memory.turns, row, kind, 0.0 if again else cost)
        return row

    # ------------------------------------------------------------------ batches

    def next(self, world: World, idle: Sequence[Lane]) -> Sequence[Do]:
        """For each lane the next step of the engine that waited longest for its turn."""
        memory: Memory = world.memory
        orders: list[Do] = []
        self._count(world, memory)
        for lane in idle:
            able = [each for each in memory.engines[lane.number].values() if each.works]
            able.sort(key=lambda each: each.turn)
            for engine in self._ordered(memory, able):
                order = (
                    self._step(world, memory, engine, lane, alone=len(able) == 1)
                    if engine.tokens
                    else self._batch(world, memory, engine, lane)
                )
                if order is not None:
                    memory.turn += 1
                    engine.turn = memory.turn
                    orders.append(order)
                    break
        return orders

    def _ordered(self, memory: Memory, able: list[Engine]) -> list[Engine]:
        """Where tenants are counted, the engine that the least served tenant waits for comes before
        its like."""
        if len(able) < 2 or not self.turns.moves or able[0].tokens:
            return able
        like = [each for each in able if not each.tokens]
        every = Line({group: rows for each in like for group, rows in each.line.groups.items()})
        group = self.turns.first(memory.turns, every, False)
        return sorted(able, key=lambda each: each.tokens or group not in each.line.groups)

    def _batch(self, world: World, memory: Memory, engine: Engine, lane: Lane) -> Batch:
        """Of a model that is no token model: what waits."""
        known = world.latencies(engine.model, lane)
        assert known is not None, "an engine is where its model was measured"
        most = min(self.sequences, known.largest)
        each = known.mean[known.largest] / known.largest
        requests = world.requests
        rows: list[int] = []
        items = 0
        while engine.line.groups:
            group = self.turns.first(memory.turns, engine.line, False)
            brings = requests.items[engine.line.groups[group][0] - requests.base]
            if rows and items + brings > most:
                break
            rows.append(self._take(world, memory, engine, each * brings))
            items += brings
        return Batch(lane.number, (Part(engine.model, rows, items),), "whatever waits, in turn")

    def _step(
        self, world: World, memory: Memory, engine: Engine, lane: Lane, *, alone: bool
    ) -> Batch | None:
        """The next step, and how often it is repeated while nothing can change."""
        step = _Step(world, engine, lane, memory.drops[lane.number], self.tokens)
        preempted = self._go_on(world, memory, step)
        blocked = True
        if not preempted:
            blocked = self._begin_some(world, memory, step)
        if not step.rows:
            engine.held = True
            return None
        whole = len(step.rows) == len(engine.running) == len(step.giving)
        steps = _LONG if alone and whole and blocked and not preempted else 1
        engine.giving, engine.counted = step.giving, 0
        drops, memory.drops[lane.number] = tuple(memory.drops[lane.number]), []
        part = Part(engine.model, step.rows, len(step.rows), tokens=step.counts)
        reason = (
            "the cache was full: the last gave up its own"
            if preempted
            else "what runs, then what waits, within the token budget"
        )
        return Batch(lane.number, (part,), reason, steps, drops)

    def _go_on(self, world: World, memory: Memory, step: _Step) -> bool:
        """What runs gets its tokens; whether a sequence was preempted for it."""
        running, preempted, at = step.engine.running, False, 0
        while at < len(running) and step.budget:
            lacks = step.lacks(running[at])
            count = min(lacks, step.budget)
            while count > step.room and at < len(running):
                last = self.turns.last(world, running)
                row = running.pop(last)
                preempted = True
                step.preempt(row, last)
                self._wait(world, memory, step.engine, row)
                at -= last < at
            if at < len(running):
                step.add(running[at], count, lacks)
                at += 1
        return preempted

    def _begin_some(self, world: World, memory: Memory, step: _Step) -> bool:
        """What waits begins; whether nothing more can while what runs goes on alike."""
        engine = step.engine
        if engine.held and any(each.running for each in memory.engines[engine.lane].values()):
            return True
        while engine.line.groups:
            if len(engine.running) >= self.sequences:
                return True
            group = self.turns.first(memory.turns, engine.line, True)
            row = engine.line.groups[group][0]
            lacks = step.lacks(row)
            count = min(lacks, step.budget)
            if count > step.room:
                return not self.turns.moves or len(engine.line.groups) == 1
            if not count:
                return False
            self._take(world, memory, engine, world.requests.prompt[row - world.requests.base])
            engine.running.append(row)
            step.add(row, count, lacks)
        return True

    # ------------------------------------------------------------------ ends

    def ended(self, world: World, done: Ended) -> Sequence[Do]:
        """Answer what is over; what a lane that failed or goes had waits for another."""
        order = done.order
        assert isinstance(order, Batch), "it loads nothing"
        memory: Memory = world.memory
        part, lane = order.parts[0], world.lanes[order.lane]
        engine = memory.engines[order.lane][part.model]
        if not engine.tokens:
            if done.outcome == OK:
                self._over(world, memory, engine, part.tasks)
            else:
                self._again(world, memory, engine, part.tasks)
            return _NOTHING
        self._counted(world, memory, engine, order.steps)
        engine.giving, engine.counted = (), 0
        if done.over:
            over = set(done.over)
            engine.running = [row for row in engine.running if row not in over]
            for each in memory.engines[order.lane].values():
                each.held = False
            self._over(world, memory, engine, done.over)
        if lane.down:
            self._leave(world, memory, order.lane)
        return _NOTHING

    def _over(self, world: World, memory: Memory, engine: Engine, rows: Sequence[int]) -> None:
        world.answer(rows, engine.model)
        memory.open[engine.lane] -= len(rows)
        memory.began.difference_update(rows)

    def _again(self, world: World, memory: Memory, engine: Engine, rows: Sequence[int]) -> None:
        memory.open[engine.lane] -= len(rows)
        for row in rows:
            self._send(world, memory, row)

    def _leave(self, world: World, memory: Memory, lane: int) -> None:
        """What a lane that is down has goes elsewhere, as its cache is lost."""
        memory.drops[lane] = []
        for engine in memory.engines[lane].values():
            rows, engine.running = engine.running, []
            self._again(world, memory, engine, rows)
            while engine.line.groups:
                group = min(engine.line.groups)
                row = engine.line.pop(group)
                self.turns.taken(world, memory.turns, row, engine.tokens, 0.0)
                self._again(world, memory, engine, (row,))

    def told(self, world: World, news: News) -> Sequence[Do]:
        """Lanes come and go."""
        memory: Memory = world.memory
        for number in news.down:
            if world.lanes[number].running is None:
                self._leave(world, memory, number)
        again, memory.stranded = sorted(memory.stranded), []
        for row in again:
            self._send(world, memory, row)
        return _NOTHING


class _Step:
    """A step that is put together: budget and room in tokens that are left."""

    def __init__(
        self, world: World, engine: Engine, lane: Lane, drops: list[int], budget: int
    ) -> None:
        self.engine, self.budget = engine, budget
        self.rows: list[int] = []
        self.counts: list[int] = []
        self.giving: list[int] = []
        self._drops, self._cached, requests = drops, world.cached, world.requests
        self._base, self._prompt, self._made = requests.base, requests.prompt, requests.made
        self._lane = lane.number
        each = world.models[engine.model].cache_bytes
        self.room = _NO_LIMIT
        if lane.cache >= 0 and each:
            freed = sum(self._cached[row].tokens * self._cached[row].each for row in drops)
            self.room = (lane.cache - lane.cached + freed) // each

    def _computed(self, row: int) -> int:
        have = self._cached.get(row)
        return 0 if have is None or (self._drops and row in self._drops) else have.tokens

    def lacks(self, row: int) -> int:
        """Tokens that are known of a sequence and not computed."""
        at = row - self._base
        return self._prompt[at] + self._made[at] - self._computed(row)

    def add(self, row: int, count: int, lacks: int) -> None:
        """A sequence gets so many of the tokens that it lacks."""
        if count == lacks:
            self.giving.append(row)
        self.rows.append(row)
        self.counts.append(count)
        self.budget -= count
        self.room -= count

    def preempt(self, row: int, at: int) -> None:
        """A sequence gives up its cache, and what it was given in this step."""
        self.room += self._computed(row)
        if row in self._cached:
            self._drops.append(row)
        if at < len(self.rows):
            del self.rows[at]
            count = self.counts.pop(at)
            self.budget += count
            self.room += count
            if row in self.giving:
                self.giving.remove(row)
