"""Clockwork's controller: which model runs next, in which batch size, and which is loaded.

Gujarati et al.: Serving DNNs like Clockwork, OSDI 2020, sections 4 and 5. Everything is planned
ahead from estimates; a request that cannot be answered in time is refused as soon as that is known.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from operator import attrgetter
from typing import Final

from msgspec import Struct

from ganger.core.serving.router import LOADS, Abilities
from ganger.core.serving.verbs import OK, Batch, Do, Ended, Evict, Load, News, Part, Wait
from ganger.core.serving.world import Lane, Store, World
from ganger.core.units import NEVER, SECOND

WINDOW: Final = SECOND // 10
"""Over which demand is measured."""
_LOOK: Final = SECOND // 100
"""While all lanes are busy, loads are thought about so often."""
_KEPT: Final = 10
"""So many measurements make an estimate."""
_copies = attrgetter("copies")
LATE: Final = "it could not be answered in time"


class Waiting(Struct):
    """The requests of one model, in order of arrival: their deadlines (less the safety margin) and
    the work that they bring, in microseconds a window."""

    rows: list[int] = []
    due: list[int] = []
    work: list[float] = []
    demand: float = 0.0

    def take(self, first: int, count: int) -> list[int]:
        """Take some out."""
        last = first + count
        rows = self.rows[first:last]
        self.demand -= sum(self.work[first:last])
        del self.rows[first:last], self.due[first:last], self.work[first:last]
        if not self.rows:
            self.demand = 0.0
        return rows


class Memory(Struct):
    """What the controller remembers. A *pool* is lanes that hold the same models: all of them where
    memory is not watched, else those of one store."""

    waiting: list[Waiting]
    pool_of: list[int]
    """By lane."""
    type_of: list[str]
    """By pool: the type of its lanes."""
    lanes_of: list[list[int]]
    """By pool: lanes that run batches and are up."""
    pools_of: list[list[int]]
    """By model: where it is resident."""
    ready: list[list[tuple[int, int]]]
    """By pool, a heap of (priority, model)."""
    listed: list[dict[int, int]]
    """By pool and model: its priority in `ready`; other entries are stale."""
    free: list[int]
    """By lane: when it will be free, by the estimates."""
    measured: dict[tuple[int, str, int], list[int]] = {}
    estimates: dict[tuple[int, str, int], int] = {}
    sizes: dict[tuple[int, str], list[int]] = {}
    """By model and type: the sizes that it may run in."""
    awake: set[int] = set()
    """The pools in which something is ready."""
    cold: dict[int, None] = {}
    """Models that requests wait for and that are loaded nowhere."""
    looked: int = -_LOOK
    """When loads were last thought about."""


class Choice(Struct):
    """A batch of a model: the position of its first request, how many, and its priority."""

    first: int
    size: int
    priority: int


def served_demand(memory: Memory) -> dict[int, float]:
    """How much of each model's demand those that hold it can serve, in microseconds a window: it is
    split over them in inverse proportion to what they have to do already."""
    busy = [1.0] * len(memory.ready)
    shares: list[tuple[int, int, float]] = []
    for model, waiting in enumerate(memory.waiting):
        pools = memory.pools_of[model]
        if waiting.demand and pools:
            total = sum(1 / busy[pool] for pool in pools)
            some = [(model, pool, waiting.demand / busy[pool] / total) for pool in pools]
            for _, pool, share in some:
                busy[pool] += share
            shares += some
    served: dict[int, float] = {}
    for model, pool, share in shares:
        able = min(1.0, WINDOW * len(memory.lanes_of[pool]) / busy[pool])
        served[model] = served.get(model, 0.0) + share * able
    return served


@dataclass(frozen=True)
class Clockwork:
    """See the module. `sizes` rise; batches of more than one take at most `longest`; `margin` is
    the time before each deadline that is aimed at. Times in microseconds."""

    sizes: tuple[int, ...]
    longest: int
    margin: int
    name: str = "clockwork"
    can: Abilities = LOADS

    def begin(self, world: World) -> Memory:
        """Nothing waits; what is resident may run."""
        lanes = [lane for lane in world.lanes if not lane.copies]
        pools: dict[tuple[int, str], int] = {}
        pool_of = [-1] * len(world.lanes)
        for lane in world.lanes:
            pool_of[lane.number] = pools.setdefault((lane.store, lane.type), len(pools))
        memory = Memory(
            [Waiting() for _ in world.models], pool_of, [type_ for _, type_ in pools],
            [[] for _ in pools], [[] for _ in world.models], [[] for _ in pools],
            [{} for _ in pools], [0] * len(world.lanes),
        )  # fmt: skip
        for lane in lanes:
            pool = pool_of[lane.number]
            if not lane.down:
                memory.lanes_of[pool].append(lane.number)
            for model in range(len(world.models)):
                held = lane.store < 0 or model in world.stores[lane.store].resident
                able = world.latencies(model, lane) is not None
                if held and able and pool not in memory.pools_of[model]:
                    memory.pools_of[model].append(pool)
        return memory

    # ------------------------------------------------------------------ what comes

    def arrive(self, world: World, rows: range) -> None:
        """Refuse what cannot be in time even if it is next; the rest waits."""
        memory: Memory = world.memory
        requests = world.requests
        base = requests.base
        soonest: dict[int, tuple[int, int]] = {}
        for row in rows:
            at = row - base
            model, now = requests.model[at], requests.arrival[at]
            due = requests.deadline[at] - self.margin
            found = soonest.get(model)
            if found is None:  # lanes do not change while requests come
                found = soonest[model] = self._soonest(world, memory, model)
            free, alone = found
            if due < max(now, free) + alone:
                world.refuse((row,), LATE, at=now)
                continue
            waiting = memory.waiting[model]
            work = alone * WINDOW / max(due - now, 1)
            waiting.rows.append(row)
            waiting.due.append(due)
            waiting.work.append(work)
            waiting.demand += work
            if len(waiting.rows) in self.sizes:
                self._list(world, memory, model)
            if not memory.pools_of[model]:
                memory.cold[model] = None

    def _soonest(self, world: World, memory: Memory, model: int) -> tuple[int, int]:
        """When a lane will be free for the model, and what it takes there alone, by the estimates;
        the load comes first where it is resident nowhere."""
        free, lanes_of = memory.free, memory.lanes_of
        by_type: dict[str, int] = {}
        for pool in memory.pools_of[model]:
            type_ = memory.type_of[pool]
            soonest = by_type.get(type_, NEVER)
            for number in lanes_of[pool]:
                soonest = min(soonest, free[number])
            by_type[type_] = soonest
        if by_type:
            found = [(soonest, self._estimate(world, memory, model, type_, 1))
                     for type_, soonest in by_type.items()]  # fmt: skip
            return min(found, key=sum)
        known = world.models[model]
        return 0, known.load + min(each.p99[1] for each in known.latencies.values())

    def _estimate(self, world: World, memory: Memory, model: int, type_: str, size: int) -> int:
        """The 99th percentile of the last measurements, which of ten is the largest; what the
        profile says before there are any."""
        found = memory.estimates.get((model, type_, size))
        return world.models[model].latencies[type_, 1.0].p99[size] if found is None else found

    def _sizes(self, world: World, memory: Memory, model: int, type_: str) -> list[int]:
        """The sizes that a model may run in on a type: measured, and not too long."""
        found = memory.sizes.get((model, type_))
        if found is None:
            known = world.models[model].latencies[type_, 1.0]
            found = memory.sizes[model, type_] = [
                size for size in self.sizes
                if size == 1 or (size <= known.largest and known.p99[size] <= self.longest)
            ]  # fmt: skip
        return found

    # ------------------------------------------------------------------ what runs

    def _list(self, world: World, memory: Memory, model: int) -> None:
        """Note the model's priority wherever it is resident, which is never above the true one."""
        waiting = memory.waiting[model]
        if not waiting.rows:
            return
        count, due = len(waiting.rows), waiting.due[0]
        keys: dict[str, int] = {}
        for pool in memory.pools_of[model]:
            type_ = memory.type_of[pool]
            key = keys.get(type_)
            if key is None:
                sizes = self._sizes(world, memory, model, type_)
                size = sizes[bisect_right(sizes, count) - 1]
                key = keys[type_] = due - self._estimate(world, memory, model, type_, size)
            listed = memory.listed[pool].get(model)
            if listed is None or key < listed:
                memory.listed[pool][model] = key
                heappush(memory.ready[pool], (key, model))
                memory.awake.add(pool)

    def next(self, world: World, idle: Sequence[Lane]) -> Sequence[Do]:
        """The most urgent batch for each lane; loads for those that copy, which come last."""
        memory: Memory = world.memory
        orders: list[Do] = []
        for pool in sorted(memory.awake):
            for number in memory.lanes_of[pool]:
                lane = world.lanes[number]
                if lane.running is None or (lane.ahead and lane in idle):
                    orders += self._next(world, memory, lane)
            if not memory.ready[pool]:
                memory.awake.discard(pool)
        runs = bisect_left(idle, True, key=_copies)
        copying, busy = idle[runs:], len(orders) == runs
        if copying:
            if memory.cold or world.now - memory.looked >= _LOOK:
                memory.looked = world.now
                orders += self._loads(world, memory, copying, orders)
            if busy:  # nothing but a load could follow an arrival
                orders.append(Wait(world.now + _LOOK, 1 << 30))
        return orders

    def _next(self, world: World, memory: Memory, lane: Lane) -> list[Do]:
        pool = memory.pool_of[lane.number]
        ready, listed = memory.ready[pool], memory.listed[pool]
        starts = max(world.now, memory.free[lane.number])
        while ready:
            key, model = ready[0]
            if listed.get(model) != key:
                heappop(ready)
                continue
            waiting = memory.waiting[model]
            choice = self._choose(world, memory, model, lane, starts)
            if choice is None:
                heappop(ready)
                del listed[model]
                memory.cold.pop(model, None)
                continue
            if choice.priority > key and len(ready) > 1:
                heappop(ready)
                listed[model] = choice.priority
                heappush(ready, (choice.priority, model))
                if ready[0] != (choice.priority, model):
                    continue
            heappop(ready)
            del listed[model]
            rows = waiting.take(choice.first, choice.size)
            inputs = world.count_items(rows)
            took = self._estimate(world, memory, model, lane.type, inputs)
            memory.free[lane.number] = starts + took
            if lane.store >= 0:
                world.stores[lane.store].resident[model] = world.now
            self._list(world, memory, model)
            part = Part(model, rows, inputs)
            return [Batch(lane.number, (part,), "the most urgent, in the largest size in time")]
        return []

    def _choose(
        self, world: World, memory: Memory, model: int, lane: Lane, starts: int
    ) -> Choice | None:
        """The most urgent size of a model, then the largest that still keeps its deadlines."""
        waiting = memory.waiting[model]
        due = waiting.due
        self._drop_late(world, memory, model, lane, starts)
        best: Choice | None = None
        for size in self._sizes(world, memory, model, lane.type):
            if size > len(due):
                break
            first = 0 if best is None else best.first
            ends = self._ends(world, memory, model, lane, starts, first, size)
            while first < len(due) and due[first] < ends:
                first += 1
            if len(due) - first < size:
                break
            if not world.requests.each_one_item:
                ends = self._ends(world, memory, model, lane, starts, first, size)
            if min(due[first : first + size]) < ends:
                continue
            priority = due[first] - (ends - starts)
            if best is None or priority <= best.priority:
                best = Choice(first, size, priority)
            elif first == best.first:
                best.size = size
        return best

    def _drop_late(self, world: World, memory: Memory, model: int, lane: Lane, starts: int) -> None:
        """Refuse the first requests that could not be in time even alone."""
        waiting = memory.waiting[model]
        late = 0
        while late < len(waiting.due) and waiting.due[late] < self._ends(
            world, memory, model, lane, starts, late, 1
        ):
            late += 1
        if late:
            world.refuse(waiting.take(0, late), LATE)

    def _ends(
        self, world: World, memory: Memory, model: int, lane: Lane, starts: int, first: int,
        size: int,
    ) -> int:  # fmt: skip
        """When a batch of `size` requests from position `first` would end; never, if their inputs
        are more than were measured."""
        if not world.requests.each_one_item:
            rows = memory.waiting[model].rows[first : first + size]
            size = world.count_items(rows)
            known = world.latencies(model, lane)
            if known is None or size > known.largest:
                return NEVER
        return starts + self._estimate(world, memory, model, lane.type, size)

    # ------------------------------------------------------------------ what is loaded

    def _loads(
        self, world: World, memory: Memory, copying: Sequence[Lane], given: Sequence[Do]
    ) -> list[Do]:
        """Load the models whose demand is served least, if there are any that are not served;
        `given`: what was ordered in this instant."""
        served = served_demand(memory)
        missing = [(served.get(model, 0.0) - waiting.demand, model)
                   for model, waiting in enumerate(memory.waiting) if waiting.rows]  # fmt: skip
        wanted = [model for lack, model in sorted(missing) if lack < 0]
        orders: list[Do] = []
        for lane in copying:
            store = world.stores[lane.store]
            model = next((model for model in wanted if model not in store.resident
                          and model not in store.loading), -1)  # fmt: skip
            if model < 0:
                continue
            evicted = self._room(world, store, world.models[model].bytes, given)
            if evicted is not None:
                wanted.remove(model)
                memory.cold.pop(model, None)
                pool = memory.pool_of[lane.number]
                orders += [self._evict(memory, pool, store, each) for each in evicted]
                orders.append(Load(lane.number, model))
        return orders

    def _evict(self, memory: Memory, pool: int, store: Store, model: int) -> Evict:
        memory.pools_of[model].remove(pool)
        memory.listed[pool].pop(model, None)
        self._note_cold(memory, model)
        return Evict(store.number, model)

    def _note_cold(self, memory: Memory, model: int) -> None:
        """Think about loading a model at once, if requests wait for it and it is nowhere."""
        if memory.waiting[model].rows and not memory.pools_of[model]:
            memory.cold[model] = None

    def _room(self, world: World, store: Store, size: int, given: Sequence[Do]) -> list[int] | None:
        """The models that go so that `size` bytes fit, least recently used first; None if those
        that run keep too much."""
        batches = [batch for batch in given if isinstance(batch, Batch)]
        for lane in world.lanes:
            if lane.store == store.number:
                batches += [each for each in (lane.running, *lane.queued)
                            if isinstance(each, Batch)]  # fmt: skip
        runs = {part.model for batch in batches for part in batch.parts
                if world.lanes[batch.lane].store == store.number}  # fmt: skip
        room, evicted = store.capacity - store.used, list[int]()
        for model in sorted(store.resident, key=store.resident.__getitem__):
            if room >= size:
                break
            if model not in runs:
                room += world.models[model].bytes
                evicted.append(model)
        return evicted if room >= size else None

    # ------------------------------------------------------------------ what is over

    def ended(self, world: World, done: Ended) -> Sequence[Do]:
        """Answer, and measure."""
        memory: Memory = world.memory
        order = done.order
        lane = world.lanes[order.lane]
        if isinstance(order, Load):
            if done.outcome == OK:
                memory.pools_of[order.model].append(memory.pool_of[lane.number])
                self._list(world, memory, order.model)
            self._note_cold(memory, order.model)
            return ()
        part = order.parts[0]
        if done.outcome == OK:
            world.answer(part.tasks, part.model)
            self._measure(memory, (part.model, lane.type, part.items), done.took)
        else:
            world.refuse(part.tasks, "its lane failed")
        ahead = [each for each in (lane.running, *lane.queued) if isinstance(each, Batch)]
        memory.free[lane.number] = world.now + sum(
            self._estimate(world, memory, each.parts[0].model, lane.type, each.parts[0].items)
            for each in ahead
        )
        return ()

    def _measure(self, memory: Memory, key: tuple[int, str, int], took: int) -> None:
        last = memory.measured.setdefault(key, [])
        last.append(took)
        if len(last) > _KEPT:
            del last[0]
        memory.estimates[key] = max(last)

    def told(self, world: World, news: News) -> Sequence[Do]:
        """Lanes come and go."""
        memory: Memory = world.memory
        for number in news.up:
            lanes = memory.lanes_of[memory.pool_of[number]]
            if not world.lanes[number].copies and number not in lanes:
                insort(lanes, number)
                memory.free[number] = world.now
        for number in news.down:
            lanes = memory.lanes_of[memory.pool_of[number]]
            if number in lanes:
                lanes.remove(number)
            self._lose(world, memory, world.lanes[number])
        return ()

    def _lose(self, world: World, memory: Memory, lane: Lane) -> None:
        """Models are gone from the memory of a lane that failed."""
        pool = memory.pool_of[lane.number]
        held = None if lane.store < 0 else world.stores[lane.store].resident
        for model, pools in enumerate(memory.pools_of):
            if held is not None and model not in held and pool in pools:
                pools.remove(pool)
                memory.listed[pool].pop(model, None)
                self._note_cold(memory, model)
