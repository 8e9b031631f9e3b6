"""A router put together from slots: choose, admit, dispatch, order, batch, keep. An absent slot
costs nothing.

Requests wait in queues by model, and by lane where a dispatcher chooses one when they come. Lanes
that may run the same models form a *group*; an idle lane takes from the queue of its group whose
head comes first in the order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush, heapreplace
from typing import Any, Final, TypeAlias

from msgspec import Struct

from ganger.core.serving.router import Abilities
from ganger.core.serving.verbs import OK, STAY, Batch, Do, Ended, Load, News, Part, Wait
from ganger.core.serving.world import Lane, World
from ganger.core.units import NEVER
from ganger.mechanisms.serving.asking import Asked, Asking
from ganger.mechanisms.serving.batching import Batching, Form
from ganger.mechanisms.serving.dispatch import Dispatch
from ganger.mechanisms.serving.groups import grouped
from ganger.mechanisms.serving.pipeline import Staged, Staging
from ganger.mechanisms.serving.queues import Earliest, Fifo
from ganger.mechanisms.serving.residency import Kept, NextUse, Residency

_FEW: Final = 8
_STAGING: Final = Staging()
_NOTHING: Final[tuple[Do, ...]] = ()
Queues: TypeAlias = Fifo | Earliest


class Memory(Struct, kw_only=True):
    """What a composed router remembers. `ready`: by group, a heap of (key of the head, queue)."""

    group_of: list[int]
    """By lane."""
    groups_of: list[list[int]]
    """By model: the groups that may run it."""
    lanes_of: list[list[int]]
    """By group: its lanes that are up."""
    queues: list[Queues] = []
    queue_of: dict[tuple[int, int], int] = {}
    ready: list[list[tuple[int, int]]]
    awake: set[int] = set()
    """The groups that have anything in `ready`."""
    listed: list[int] = []
    """By queue: its key in `ready`, -1 where it is not there; other entries of it are stale."""
    parked: dict[int, int] = {}
    """By queue that waits for more: the length at which it is ready."""
    timers: list[tuple[int, int]] = []
    """A heap of (until, queue) for those; others are stale."""
    load: list[int]
    """By lane: inputs that wait there or run; kept only where a dispatcher asks for it."""
    turns: list[int]
    """By model: requests that were dispatched."""
    stranded: list[int] = []
    """Requests and tasks for which no lane is up."""
    able: list[list[int]]
    """By what is asked for: the models that answer it and that some lane may run."""
    learned: Any
    asked: Asked | None
    """None where no request names a family and nothing is kept."""
    staged: Staged | None
    """None where there are no pipelines."""
    kept: Kept | None
    """None where memory is not watched."""
    ways: dict[int, list[int]] = {}
    """By model: its lanes that are up, in order; found anew when lanes come and go."""


@dataclass(frozen=True)
class Composed:
    """See the module. `queue`: the order inside a queue and among queues; `longest`: of a queue, 0
    for no limit; `apart`: every model has an equal part of the lanes for itself; `asking`: which
    models answer a request, if it is not just the one that it names; `staging`: how pipelines run;
    `residency`: which models stay in memory, where not all fit."""

    name: str
    batching: Batching
    dispatch: Dispatch | None = None
    queue: type[Fifo] | type[Earliest] = Fifo
    longest: int = 0
    apart: bool = False
    asking: Asking | None = None
    staging: Staging | None = _STAGING
    residency: Residency | None = None

    @property
    def can(self) -> Abilities:
        """It chooses where there is a choice among the models of a family, and loads where there is
        a cache of models."""
        return Abilities(
            loads=self.residency is not None,
            chooses=self.asking is not None and self.asking.choice is not None,
            weighs=self.asking is not None and self.asking.stepwise is not None,
            pipelines=self.staging is not None,
            foresees=self.residency is not None and isinstance(self.residency.worth, NextUse),
        )

    # ------------------------------------------------------------------ Router

    def begin(self, world: World) -> Memory:
        """Nothing waits. Raises BadInput where models can run in several groups of lanes and none
        is chosen."""
        groups = grouped(world, self.name, each=self.dispatch is not None, apart=self.apart)
        count = len(groups.lanes)
        asks = self.asking is not None and (world.families or self.asking.keeps)
        staging = self.staging
        stages = staging is not None and (world.pipelines or staging.cuts)
        return Memory(
            group_of=groups.of_lane,
            groups_of=groups.of_model,
            lanes_of=groups.lanes,
            ready=[[] for _ in range(count)],
            load=[0] * len(world.lanes),
            turns=[0] * len(world.models),
            able=[[model for model in those if groups.of_model[model]] for those in world.variants],
            learned=self.batching.begin(world),
            asked=self.asking.begin(world) if self.asking is not None and asks else None,
            staged=staging.begin(world) if stages and staging is not None else None,
            kept=None if self.residency is None else self.residency.begin(world),
        )

    def arrive(self, world: World, rows: range) -> None:
        """Each waits in the queue of its model, and of its lane where one is chosen."""
        memory: Memory = world.memory
        requests = world.requests
        base = requests.base
        if memory.staged is not None:
            for row in rows:
                self._arrive(world, memory, row)
            return
        if memory.asked is not None:
            self._ask_all(world, memory, memory.asked, rows)
            return
        if len(rows) > 1 and self.dispatch is None and not self.longest:
            models = requests.model[rows.start - base : rows.stop - base]
            first = models[0]
            if models.count(first) == len(models):
                self._push(world, memory, first, memory.groups_of[first], rows)
                return
            by_model: dict[int, list[int]] = {}
            for row, model in zip(rows, models, strict=True):
                found = by_model.get(model)
                if found is None:
                    by_model[model] = [row]
                else:
                    found.append(row)
            for model, some in by_model.items():
                self._push(world, memory, model, memory.groups_of[model], some)
            return
        model_of = requests.model
        for row in rows:
            self._send(world, memory, model_of[row - base], row)

    def _arrive(self, world: World, memory: Memory, row: int) -> None:
        """A request that may be for a pipeline."""
        asked = world.requests.model[row - world.requests.base]
        assert self.staging is not None
        if self.staging.runs(world, row):
            assert memory.staged is not None
            self._send_tasks(world, memory, self.staging.arrive(world, memory.staged, row))
        elif memory.asked is not None:
            self._ask_all(world, memory, memory.asked, range(row, row + 1))
        else:
            self._send(world, memory, asked, row)

    def _ask_all(self, world: World, memory: Memory, asked: Asked, rows: range) -> None:
        """Requests that are asked of one model, or several, or nobody."""
        assert self.asking is not None
        asking, able = self.asking, memory.able
        model_of, base = world.requests.model, world.requests.base
        for row in rows:
            for model, number in asking.arrive(world, asked, row, able[model_of[row - base]]):
                self._send(world, memory, model, number)

    def _send_tasks(self, world: World, memory: Memory, numbers: Sequence[int]) -> None:
        for number in numbers:
            self._send(world, memory, world.tasks[number].model, number)

    def _send(self, world: World, memory: Memory, model: int, number: int) -> None:
        """A request or a task waits where it is dispatched to."""
        groups = memory.groups_of[model]
        if self.dispatch is not None:
            lanes = memory.ways.get(model)
            if lanes is None:
                lanes = memory.ways[model] = [
                    lane for group in groups for lane in memory.lanes_of[group]
                ]
            if lanes:
                turn = memory.turns[model]
                memory.turns[model] = turn + 1
                lane = self.dispatch.choose(world, number, turn, lanes, memory.load)
                single = world.requests.each_one_item
                memory.load[lane] += 1 if single else world.count_items((number,))
                groups = [memory.group_of[lane]]
        self._push(world, memory, model, groups, [number])

    def _push(
        self, world: World, memory: Memory, model: int, groups: list[int], rows: range | list[int]
    ) -> None:
        if not groups:
            self._refuse(world, rows, "no lane runs its model")
            return
        group = groups[0]
        if not memory.lanes_of[group]:
            memory.stranded.extend(rows)
            return
        at = memory.queue_of.get((group, model))
        if at is None:
            at = memory.queue_of[group, model] = len(memory.queues)
            memory.queues.append(self.queue(model, group))
            memory.listed.append(-1)
        queue = memory.queues[at]
        if self.longest and len(queue) >= self.longest:
            if self.dispatch is not None:
                memory.load[memory.lanes_of[group][0]] -= world.count_items(rows)
            self._refuse(world, rows, "the queue was full")
            return
        queue.push(world, rows)
        if at in memory.parked:
            if len(queue) < memory.parked[at] and world.requests.each_one_item:
                return
            del memory.parked[at]
        self._list(world, memory, at)

    def _list(self, world: World, memory: Memory, at: int) -> None:
        """The queue is ready, or has another head."""
        queue = memory.queues[at]
        listed, key = memory.listed[at], queue.key(world)
        if listed < 0 or key < listed:
            memory.listed[at] = key
            heappush(memory.ready[queue.group], (key, at))
            memory.awake.add(queue.group)

    def _refuse(self, world: World, rows: range | list[int], why: str) -> None:
        memory: Memory = world.memory
        for row in rows:
            at = world.arrival_of(row)
            if memory.staged is not None and row < 0 and world.tasks[row].step:
                assert self.staging is not None
                self.staging.refuse(world, memory.staged, row, why, at)
            elif memory.asked is not None:
                assert self.asking is not None
                self.asking.refuse(world, memory.asked, row, why, at)
            else:
                world.refuse((row,), why, at=at)

    def next(self, world: World, idle: Sequence[Lane]) -> Sequence[Do]:
        """A batch for each lane whose group has one ready."""
        memory: Memory = world.memory
        timers = memory.timers
        while timers and (timers[0][0] <= world.now or timers[0][1] not in memory.parked):
            _, at = heappop(timers)
            if memory.parked.pop(at, 0):
                self._list(world, memory, at)
        orders: list[Do] = []
        watched = memory.kept is not None
        runs = [lane for lane in idle if not lane.copies] if watched else idle
        for lane in runs:
            if not memory.awake:
                break
            group = memory.group_of[lane.number]
            if group not in memory.awake:
                continue
            ready = memory.ready[group]
            absent = self._absent(world, memory, ready, lane) if watched else ()
            while ready:
                key, at = ready[0]
                if key != memory.listed[at]:
                    heappop(ready)
                    continue
                queue = memory.queues[at]
                if memory.asked is not None or memory.staged is not None:
                    self._skip(world, memory, queue, lane)
                form = self._form(world, memory, queue, lane) if len(queue) else Form(0)
                if form.size:
                    orders.append(self._batch(world, queue, form.size, form.reason, lane))
                    self._settle(world, memory, ready, at)
                    break
                if len(queue):
                    self._park(memory, at, form)
                else:  # all were refused
                    self._settle(world, memory, ready, at)
            for entry in absent:
                heappush(ready, entry)
            if not ready:
                memory.awake.discard(group)
        if watched:
            orders += self._loads(world, memory, idle[len(runs) :], orders)
        if timers:
            orders.append(Wait(timers[0][0], self._missing(memory)))
        return orders

    def _skip(self, world: World, memory: Memory, queue: Queues, lane: Lane) -> None:
        """Take tasks off the head whose request is over."""
        if memory.asked is not None:
            assert self.asking is not None
            self.asking.close_due(world, memory.asked)
        while len(queue) and queue.head < 0:
            number = queue.head
            if memory.staged is not None and world.tasks[number].step:
                assert self.staging is not None
                gone = self.staging.gone(world, memory.staged, number)
            else:
                assert self.asking is not None
                assert memory.asked is not None
                gone = self.asking.gone(world, memory.asked, number)
            if not gone:
                return
            queue.pop(1)
            if self.dispatch is not None:
                memory.load[lane.number] -= world.tasks[number].items
            del world.tasks[number]

    def _absent(
        self, world: World, memory: Memory, ready: list[tuple[int, int]], lane: Lane
    ) -> list[tuple[int, int]]:
        """Take what is not in the memory of the lane out of a heap."""
        resident = world.stores[lane.store].resident
        absent = [entry for entry in ready if memory.queues[entry[1]].model not in resident]
        ready[:] = [entry for entry in ready if memory.queues[entry[1]].model in resident]
        heapify(ready)
        return absent

    def _loads(
        self, world: World, memory: Memory, copying: Sequence[Lane], given: Sequence[Do]
    ) -> list[Do]:
        """On each lane that copies, the model whose requests go first among those that are loaded
        nowhere; a device with nothing to run may load what another one has."""
        assert self.residency is not None
        assert memory.kept is not None
        orders: list[Do] = []
        busy = {order.lane for order in given if isinstance(order, Batch)}
        coming: set[tuple[int, int]] = set()
        for copies in copying:
            store = world.stores[copies.store]
            runs = [
                lane
                for lane in world.lanes
                if lane.store == store.number and not lane.copies and not lane.down
            ]
            idle = all(lane.running is None and lane.number not in busy for lane in runs)
            groups = {memory.group_of[lane.number] for lane in runs}
            waits = self._waiting(world, memory, groups)
            numbers = [number for group in groups for number in memory.lanes_of[group]]
            others = [world.stores[world.lanes[number].store] for number in numbers]
            for model, key in sorted(waits.items(), key=lambda item: item[1]):
                if model in store.resident or any(
                    model in other.loading
                    or (other.number, model) in coming
                    or (model in other.resident and not idle)
                    for other in others
                ):
                    continue
                orders += self.residency.load(world, memory.kept, copies, model, key, waits, given)
                coming.add((store.number, model))
                break
            orders += self.residency.fill(world, memory.kept, copies, waits, others, coming)
        return orders

    def _waiting(self, world: World, memory: Memory, groups: set[int]) -> dict[int, int]:
        """The models whose requests wait for these groups, with the key of the first request."""
        ready = {at for group in groups for _, at in memory.ready[group]}
        queues = [memory.queues[at] for at in sorted(ready.union(memory.parked))]
        waits = [queue for queue in queues if queue.group in groups and len(queue)]
        return {queue.model: queue.key(world) for queue in waits}

    def _park(self, memory: Memory, at: int, form: Form) -> None:
        """The queue waits for more requests, or for a time."""
        memory.parked[at] = len(memory.queues[at]) + form.missing
        memory.listed[at] = -1
        if form.until < NEVER:
            heappush(memory.timers, (form.until, at))

    def _missing(self, memory: Memory) -> int:
        """How many requests have to come before any queue that waits for more can be ready."""
        if len(memory.parked) > _FEW:
            return 1
        missing = (length - len(memory.queues[at]) for at, length in memory.parked.items())
        return min(missing, default=1)

    def _form(self, world: World, memory: Memory, queue: Queues, lane: Lane) -> Form:
        """What the batching says; whom it refuses no longer counts as load."""
        if self.dispatch is None:
            return self.batching.form(world, memory.learned, queue, lane)
        before = world.open
        form = self.batching.form(world, memory.learned, queue, lane)
        memory.load[lane.number] -= before - world.open
        return form

    def _settle(self, world: World, memory: Memory, ready: list[tuple[int, int]], at: int) -> None:
        """The queue in front has another head now, or none."""
        queue = memory.queues[at]
        if len(queue):
            key = memory.listed[at] = queue.key(world)
            heapreplace(ready, (key, at))
        else:
            memory.listed[at] = -1
            heappop(ready)

    def _batch(self, world: World, queue: Queues, count: int, reason: str, lane: Lane) -> Batch:
        rows = queue.pop(count)
        part = Part(queue.model, rows, world.count_items(rows))
        if lane.store >= 0 and self.residency is not None:
            self.residency.used(world, world.memory.kept, lane.store, queue.model, count)
        return Batch(lane.number, (part,), reason)

    def ended(self, world: World, done: Ended) -> Sequence[Do]:
        """Answer the requests of a batch; those of one that failed wait again."""
        order = done.order
        if isinstance(order, Load):
            return _NOTHING
        memory: Memory = world.memory
        part = order.parts[0]
        if self.dispatch is not None:
            memory.load[order.lane] -= part.items
        if done.outcome != OK:
            self._again(world, memory, part.tasks)
            return _NOTHING
        self.batching.learn(world, memory.learned, part, world.lanes[order.lane], done.took)
        if memory.staged is not None:
            self._over(world, memory, part, done)
        elif memory.asked is not None:
            self._tell(world, memory, part, done)
        else:
            world.answer(part.tasks, part.model)
        if memory.asked is not None and memory.asked.idle:
            assert self.asking is not None
            return self.asking.useless(world, memory.asked)
        return _NOTHING if memory.awake else STAY

    def _tell(
        self, world: World, memory: Memory, part: Part, done: Ended, places: list[int] | None = None
    ) -> None:
        """What was asked for was given; what is asked for because of it waits."""
        assert self.asking is not None
        assert memory.asked is not None
        for model, number in self.asking.ended(world, memory.asked, part, done, places):
            self._send(world, memory, model, number)

    def _over(self, world: World, memory: Memory, part: Part, done: Ended) -> None:
        """Tasks of pipelines hand on what they gave. The rest is answered, or counts for a request
        that several models are asked for."""
        staged, rest = list[int](), list[int]()
        for at, number in enumerate(part.tasks):
            (staged if number < 0 and world.tasks[number].step else rest).append(at)
        if memory.asked is None:
            world.answer([part.tasks[at] for at in rest], part.model)
        elif rest:
            self._tell(world, memory, part, done, rest)
        for at in staged:
            assert self.staging is not None
            assert memory.staged is not None
            wanted = self.staging.over(world, memory.staged, part.tasks[at])
            self._send_tasks(world, memory, wanted)

    def _again(self, world: World, memory: Memory, numbers: Sequence[int]) -> None:
        """Requests and tasks wait anew."""
        for number in numbers:
            if number < 0:
                self._send(world, memory, world.tasks[number].model, number)
            else:
                self.arrive(world, range(number, number + 1))

    def told(self, world: World, news: News) -> Sequence[Do]:
        """Lanes come and go: what waits at one that goes is dispatched again. A choice learns."""
        memory: Memory = world.memory
        if news.truths and memory.asked is not None and self.asking is not None:
            self.asking.hear(world, memory.asked, news.truths)
        if not news.up and not news.down:
            return _NOTHING
        memory.ways.clear()
        for number in news.up:
            if world.lanes[number].copies:
                continue
            memory.lanes_of[memory.group_of[number]].append(number)
            running = world.lanes[number].running
            parts = running.parts if isinstance(running, Batch) else ()
            memory.load[number] = sum(part.items for part in parts)
        for number in news.down:
            if world.lanes[number].copies:
                continue
            group = memory.group_of[number]
            memory.lanes_of[group].remove(number)
            if not memory.lanes_of[group]:
                for (of, _), at in memory.queue_of.items():
                    if of == group:
                        queue = memory.queues[at]
                        memory.stranded.extend(queue.pop(len(queue)))
                        memory.parked.pop(at, None)
                        memory.listed[at] = -1
        again, memory.stranded = sorted(memory.stranded), []
        self._again(world, memory, again)
        return _NOTHING
