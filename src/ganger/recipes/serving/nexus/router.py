"""Nexus: lanes work through cycles of sessions, which an epoch plans for the next.

Shen et al.: Nexus: A GPU Cluster Engine for Accelerating DNN-Based Video Analysis, SOSP 2019.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import Final

from ganger.core.serving.router import Abilities
from ganger.core.serving.verbs import OK, Batch, Do, Ended, News, Part, Wait
from ganger.core.serving.world import Lane, World
from ganger.core.units import NEVER
from ganger.mechanisms.serving.batching import taken
from ganger.mechanisms.serving.pipeline import LATE, Staging
from ganger.recipes.serving.nexus import prefix
from ganger.recipes.serving.nexus.memory import Line, Memory, Stream, alike
from ganger.recipes.serving.nexus.planning import Planning

_SLOS: Final = 16
"""Of what is asked for so many SLOs are told apart; others count as the next shorter."""
_ALL: Final = 1 << 40
_STAGING: Final = Staging()


@dataclass(frozen=True)
class Nexus:
    """See the module. `profile`: plans count on so many times what was measured."""

    planning: Planning
    profile: float
    name: str = "nexus"
    can: Abilities = Abilities(pipelines=True)  # noqa: RUF009 - frozen

    def begin(self, world: World) -> Memory:
        """Nothing was asked for; lanes have no cycles."""
        none = [0] * len(world.lanes)
        return Memory(
            alike(world, self.profile),
            [[] for _ in none],
            [*none],
            [*none],
            [*none],
            [*none],
            _STAGING.begin(world) if world.pipelines else None,
            prefix.alike(world.models),
        )

    # ------------------------------------------------------------------ what comes

    def arrive(self, world: World, rows: range) -> None:
        """Each waits at the next lane of its session. With the first after a second rates are
        measured, and there may be a new plan: so no plan depends on how rows are grouped."""
        memory: Memory = world.memory
        requests = world.requests
        base = requests.base
        models, arrivals, deadlines = requests.model, requests.arrival, requests.deadline
        streams, awake = memory.streams, memory.awake
        for row in rows:
            at = row - base
            came, due = arrivals[at], deadlines[at]
            if came >= memory.beacon and self.planning.measure(world, memory, came):
                self._plan(world, memory)
            code, slo = models[at], NEVER if due >= NEVER else due - came
            stream = streams.get((code, slo)) or self._stream(world, memory, code, slo)
            stream.count += 1
            if stream.parts:
                assert memory.staged is not None
                wanted = _STAGING.arrive(world, memory.staged, row, stream.parts)
                self._send_tasks(world, memory, stream, wanted)
                continue
            flow = memory.flows[stream.sessions[0]]
            order, turn = flow.order, flow.turn
            if not order:
                self._strand(world, memory, row)
                continue
            flow.turn = turn + 1 if turn + 1 < len(order) else 0
            line = memory.lines[order[turn]]
            line.queue.rows.append(row)
            awake.add(line.lane)

    def _stream(self, world: World, memory: Memory, code: int, slo: int) -> Stream:
        """The stream of requests with this SLO; a new one is served by all lanes at first."""
        slos = memory.slos.setdefault(code, [])
        if (code, slo) not in memory.streams and len(slos) < _SLOS:
            insort(slos, slo)
            stream = memory.streams[code, slo] = Stream(code, slo, [])
            up = [
                (pool, [at for at in pool.lanes if not world.lanes[at].down])
                for pool in memory.pools
            ]
            known = len(memory.flows)
            self.planning.divide(world, memory, stream, up)
            for at in range(known, len(memory.flows)):
                self.planning.serve_everywhere(world, memory, at)
            memory.new = True
        return memory.streams[code, slos[max(bisect_right(slos, slo) - 1, 0)]]

    def _stream_of(self, world: World, memory: Memory, row: int) -> Stream:
        requests = world.requests
        at = row - requests.base
        due = requests.deadline[at]
        slo = NEVER if due >= NEVER else due - requests.arrival[at]
        return self._stream(world, memory, requests.model[at], slo)

    def _send_tasks(
        self, world: World, memory: Memory, stream: Stream, numbers: Sequence[int]
    ) -> None:
        for number in numbers:
            at = stream.sessions[world.tasks[number].step - 1]
            self._send(world, memory, at, number)

    def _send(self, world: World, memory: Memory, session: int, number: int) -> None:
        flow = memory.flows[session]
        if not flow.order:
            self._strand(world, memory, number)
            return
        line = memory.lines[flow.order[flow.turn]]
        flow.turn = (flow.turn + 1) % len(flow.order)
        line.queue.rows.append(number)
        memory.awake.add(line.lane)

    def _strand(self, world: World, memory: Memory, number: int) -> None:
        """No lane that runs it is up: it waits for one, if there is any."""
        model = (
            world.tasks[number].model
            if number < 0
            else (world.requests.model[number - world.requests.base])
        )
        if any(model in pool.latency for pool in memory.pools):
            memory.stranded.append(number)
        else:
            self._refuse(world, memory, number, "no lane runs its model", world.arrival_of(number))

    def _refuse(self, world: World, memory: Memory, number: int, why: str, at: int) -> None:
        if number >= 0:
            world.refuse((number,), why, at=at)
        else:
            assert memory.staged is not None
            _STAGING.refuse(world, memory.staged, number, why, at)

    # ------------------------------------------------------------------ plans

    def _plan(self, world: World, memory: Memory) -> None:
        """Plan, and let what waits go to the lanes that have its session now."""
        waiting = memory.stranded
        for line in memory.lines:
            waiting += line.queue.pop(len(line.queue))
        memory.stranded = []
        self.planning.plan(world, memory)
        self._again(world, memory, sorted(waiting, key=world.arrival_of))

    def _again(self, world: World, memory: Memory, numbers: Sequence[int]) -> None:
        for number in numbers:
            if number >= 0:
                stream = self._stream_of(world, memory, number)
                self._send(world, memory, stream.sessions[0], number)
            elif not self._gone(world, memory, number):
                stream = self._stream_of(world, memory, world.tasks[number].request)
                self._send_tasks(world, memory, stream, [number])

    def _gone(self, world: World, memory: Memory, number: int) -> bool:
        """Whether it is a task of a request that is over, which is then forgotten."""
        if number >= 0:
            return False
        assert memory.staged is not None
        gone = _STAGING.gone(world, memory.staged, number)
        if gone:
            del world.tasks[number]
        return gone

    # ------------------------------------------------------------------ what runs

    def next(self, world: World, idle: Sequence[Lane]) -> Sequence[Do]:
        """The next batch of the cycle of each lane that may have one."""
        memory: Memory = world.memory
        timers, awake, now = memory.timers, memory.awake, world.now
        while timers and timers[0][0] <= now:
            awake.add(heappop(timers)[1])
        orders: list[Do] = []
        for number in sorted(awake):
            lane = world.lanes[number]
            if lane.down or (lane.running is not None and not (lane.ahead and lane in idle)):
                if lane.down or not lane.ahead:
                    awake.discard(number)
                continue
            order = self._next(world, memory, lane)
            if order is not None:
                orders.append(order)
            if order is None or not lane.ahead:
                awake.discard(number)
        if timers:
            given = {order.lane for order in orders if isinstance(order, Batch)}
            start, first = memory.start, NEVER
            for lane in idle:
                number = lane.number
                if start[number] < first and number not in given:
                    first = start[number]
                    if first <= now:  # an arrival may follow at once
                        orders.append(Wait(timers[0][0]))
                        return orders
            # until then nothing could follow an arrival
            orders.append(Wait(min(first, timers[0][0]), _ALL))
        return orders

    def _next(self, world: World, memory: Memory, lane: Lane) -> Batch | None:
        """The next session in the cycle of which something waits; a new cycle not before its
        time."""
        at, now, lines = lane.number, world.now, memory.lines
        cycle, turn, began = memory.cycle[at], memory.turn[at], False
        while True:
            if turn >= len(cycle):
                if began or not any(len(lines[each].queue) for each in cycle):
                    memory.turn[at] = turn
                    return None
                if memory.start[at] > now:
                    memory.turn[at] = turn
                    if memory.timed[at] != memory.start[at]:
                        memory.timed[at] = memory.start[at]
                        heappush(memory.timers, (memory.start[at], at))
                    return None
                turn, began = 0, True
            line = lines[cycle[turn]]
            turn += 1
            batch = self._batch(world, memory, line, lane) if len(line.queue) else None
            if batch is not None:
                if began:
                    memory.start[at] = now + memory.pace[at]
                memory.turn[at] = turn
                return batch

    def _batch(self, world: World, memory: Memory, line: Line, lane: Lane) -> Batch | None:
        """The first window of requests of which the first can wait for the whole batch. Those
        before it are dropped, late or not: they would make the batch small for all that follow.
        (Early drop, section 4.3.)"""
        queue, begins = line.queue, world.now
        if lane.running is not None:
            begins = max(begins, lane.due)
        while len(queue):
            number = queue.head
            if number < 0 and self._gone(world, memory, number):
                queue.pop(1)
                continue
            count, items = taken(world, queue, lane, line.batch)
            took = 0
            if line.tables is None:
                took = line.latency[items]
            else:
                some = prefix.counted(world, queue.rows[queue.first : queue.first + count])
                took = prefix.took(world.models, line.tables, some)
            if world.deadline_of(number) >= begins + took:
                reason = "the batch of its cycle" if items >= line.batch else "all that wait"
                tasks = queue.pop(count)
                if line.tables is None:
                    return Batch(lane.number, (Part(queue.model, tasks, items),), reason)
                return Batch(lane.number, prefix.batch(world, line.tables, tasks), reason)
            queue.pop(1)
            self._refuse(world, memory, number, LATE, world.now)
        return None

    def ended(self, world: World, done: Ended) -> Sequence[Do]:
        """Answer, or go on with the next stage; what failed waits again."""
        order = done.order
        assert isinstance(order, Batch), "it loads nothing"
        memory: Memory = world.memory
        memory.awake.add(order.lane)
        if done.outcome != OK:
            lost = [number for part in order.parts if not part.last for number in part.tasks]
            if len(order.parts) > 1:
                lost.sort(key=world.arrival_of)
            self._again(world, memory, lost)
            return ()
        for part in order.parts:
            if not part.last:  # else it is what the models have in common
                self._answer(world, memory, part)
        return ()

    def _answer(self, world: World, memory: Memory, part: Part) -> None:
        """A model has run."""
        if memory.staged is None:
            world.answer(part.tasks, part.model)
            return
        world.answer([number for number in part.tasks if number >= 0], part.model)
        for number in part.tasks:
            if number < 0:
                row = world.tasks[number].request
                wanted = _STAGING.over(world, memory.staged, number)
                if wanted:
                    stream = self._stream_of(world, memory, row)
                    self._send_tasks(world, memory, stream, wanted)

    def told(self, world: World, news: News) -> Sequence[Do]:
        """Lanes come and go: the plan is made anew for those that there are."""
        memory: Memory = world.memory
        memory.awake.update(news.up)
        self._plan(world, memory)
        return ()
