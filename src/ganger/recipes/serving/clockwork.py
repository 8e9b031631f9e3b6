"""Clockwork's controller: which model runs next, in which batch size, and which is loaded.

Gujarati et al.: Serving DNNs like Clockwork, OSDI 2020, sections 4 and 5. Everything is planned
ahead from estimates; a request that cannot be answered in time is refused as soon as that is known.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Final, TypeAlias

from ganger.core.serving.router import LOADS, Abilities
from ganger.core.serving.verbs import OK, STAY, Batch, Do, Ended, Evict, Load, News, Part, Wait
from ganger.core.serving.world import Lane, Store, World
from ganger.core.units import NEVER
from ganger.recipes.serving.clockwork_state import (
    LOOK,
    WINDOW,
    Memory,
    Spans,
    Waiting,
    unserved,
)

_copies = attrgetter("copies")
LATE: Final = "it could not be answered in time"


Choice: TypeAlias = tuple[int, int, int, int]
"""A batch: its priority, the model, the position of its first request, and how many."""


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
        pools: dict[tuple[int, tuple[str, float]], int] = {}
        pool_of = [
            pools.setdefault((lane.store, (lane.type, lane.share)), len(pools))
            for lane in world.lanes
        ]
        order = pool_of[: len(lanes)]
        models = range(len(world.models))
        spans = {each: self._spans(world, each) for each in dict.fromkeys(t for _, t in pools)}
        memory = Memory(
            [Waiting() for _ in models],
            pool_of,
            [spans[each] for _, each in pools],
            [[] for _ in pools],
            [[] for _ in models],
            [0] * len(pools),
            [0] * len(world.lanes),
            0,
            [None for _ in models],
            [None for _ in models],
            len(lanes) < len(world.lanes),
            order != sorted(order),
            len(spans) > 1 or any(lane.ahead for lane in lanes),
        )
        for lane in lanes:
            pool = pool_of[lane.number]
            if not lane.down:
                memory.lanes_of[pool].append(lane.number)
            for model in models if lane.store < 0 else world.stores[lane.store].resident:
                if not memory.holds[pool] >> model & 1 and world.latencies(model, lane) is not None:
                    self._holds(memory, model, pool)
        return memory

    def _holds(self, memory: Memory, model: int, pool: int) -> None:
        """A pool has a model now."""
        memory.pools_of[model].append(pool)
        memory.holds[pool] |= 1 << model
        memory.fresh |= 1 << model
        memory.places[model] = memory.alike[model] = None

    # ------------------------------------------------------------------ what comes

    def arrive(self, world: World, rows: range) -> None:
        """Refuse what cannot be in time even if it is next; the rest waits."""
        memory: Memory = world.memory
        requests, margin = world.requests, self.margin
        base, model_of, arrival, deadline = (
            requests.base,
            requests.model,
            requests.arrival,
            requests.deadline,
        )
        waiting_of, alike, latest = memory.waiting, memory.alike, memory.latest
        pools_of = memory.pools_of if memory.loads else None
        soonest: dict[int, list[tuple[int, int]]] = {}
        for row in rows:
            at = row - base
            model, now = model_of[at], arrival[at]
            due = deadline[at] - margin
            spans = alike[model]
            alone = 0 if spans is None else spans.every[1]
            last = due - alone
            if spans is None or last < latest or last < now:  # else it is in time on any lane
                if model not in soonest:  # lanes do not change while requests come
                    soonest[model] = self._soonest(world, memory, model)
                ends, alone = min([(max(now, free) + took, took) for free, took in soonest[model]])
                if due < ends:
                    world.refuse((row,), LATE, at=now)
                    continue
            waiting = waiting_of[model]
            if not waiting.rows:
                memory.some |= 1 << model
                memory.fresh |= 1 << model
            waiting.rows.append(row)
            waiting.due.append(due)
            if pools_of is not None:
                work = alone * WINDOW / (due - now or 1)
                waiting.work.append(work)
                waiting.demand += work
                if not pools_of[model]:
                    memory.cold[model] = None

    def _soonest(self, world: World, memory: Memory, model: int) -> list[tuple[int, int]]:
        """By what it takes alone on lanes that may run the model: when the first of them will be
        free, and what it takes, by the estimates; the load comes first where it is resident
        nowhere."""
        places, free_at = self._places(memory, model), memory.free.__getitem__
        if places:
            return [
                (min(map(free_at, numbers), default=NEVER), spans.every[1])
                for spans, numbers in places
            ]
        known = world.models[model]
        return [(0, known.load + min(each.p99[1] for each in known.latencies.values()))]

    def _places(self, memory: Memory, model: int) -> list[tuple[Spans, list[int]]]:
        """The lanes that may run a model, by what batches take there."""
        places = memory.places[model]
        if places is None:
            found: dict[int, tuple[Spans, list[int]]] = {}
            for pool in memory.pools_of[model]:
                spans = memory.spans[pool][model]
                found.setdefault(id(spans), (spans, []))[1].extend(memory.lanes_of[pool])
            places = memory.places[model] = list(found.values())
            if len(places) == 1 and places[0][1]:
                memory.alike[model] = places[0][0]
        return places

    def _spans(self, world: World, kind: tuple[str, float]) -> dict[int, Spans]:
        """What batches take on a share of a type, by model; of those of several, no long ones are
        made."""
        found: dict[int, Spans] = {}
        for model, known in enumerate(world.models):
            table = known.latencies.get(kind)
            if table is not None:
                found[model] = Spans(
                    list(table.p99),
                    [
                        size
                        for size in self.sizes
                        if size == 1 or (size <= table.largest and table.p99[size] <= self.longest)
                    ],
                )
        return found

    # ------------------------------------------------------------------ what runs

    def next(self, world: World, idle: Sequence[Lane]) -> Sequence[Do]:
        """The most urgent batch for each lane; loads for those that copy, which come last."""
        memory: Memory = world.memory
        if world.now < memory.quiet and (not idle or idle[0].copies):
            return (Wait(memory.quiet, 1 << 30),)
        orders = self._batches(world, memory, idle) if memory.some else []
        memory.fresh = -1 if memory.unlike else 0
        memory.freed.clear()
        if idle and idle[-1].copies:
            busy = idle[len(orders)].copies
            if memory.cold or world.now - memory.looked >= LOOK:
                memory.looked = world.now
                copying = idle[bisect_left(idle, True, key=_copies) :]
                orders += self._loads(world, memory, copying, orders)
            if busy:  # nothing but a load could follow an arrival
                memory.quiet = world.now + LOOK
                orders.append(Wait(memory.quiet, 1 << 30))
        return orders

    def _batches(self, world: World, memory: Memory, idle: Sequence[Lane]) -> list[Do]:
        """The most urgent batch for each lane that holds a model that is waited for. A lane that
        was idle before has had its batch then, if there was one; so it is looked at again only if
        a model is new."""
        orders: list[Do] = []
        pool_of, holds, freed, lanes = memory.pool_of, memory.holds, memory.freed, idle
        if not memory.some & memory.fresh:
            given = map(world.lanes.__getitem__, sorted(freed))
            lanes = [lane for lane in given if lane.running is None and not lane.down]
        if memory.mixed:
            runs = [lane for lane in lanes if not lane.copies]
            lanes = sorted(runs, key=lambda lane: pool_of[lane.number])
        for lane in lanes:
            if lane.copies:
                break
            some = memory.some & holds[pool_of[lane.number]]
            if some:
                batch = self._next(world, memory, lane, some)
                if batch is not None:
                    orders.append(batch)
                if not memory.some or not (freed or memory.some & memory.fresh):
                    break
        return orders

    def _next(self, world: World, memory: Memory, lane: Lane, some: int) -> Batch | None:
        """The most urgent batch of these models, if one is still in time."""
        number, starts = lane.number, memory.free[lane.number]
        if starts < world.now:
            starts = world.now
        spans_of = memory.spans[memory.pool_of[number]]
        if some & (some - 1):
            best = self._most_urgent(world, memory, spans_of, some, starts)
        else:
            model = some.bit_length() - 1
            best = self._choose(world, memory, model, spans_of[model], starts)
        if best is None:
            return None
        _, model, first, size = best
        rows = memory.take(model, first, size)
        inputs = world.count_items(rows)
        free = memory.free[number] = starts + spans_of[model].every[inputs]
        if free > memory.latest:
            memory.latest = free
        if lane.store >= 0:
            world.stores[lane.store].resident[model] = world.now
        part = Part(model, rows, inputs)
        return Batch(number, (part,), "the most urgent, in the largest size in time")

    def _most_urgent(
        self, world: World, memory: Memory, spans_of: dict[int, Spans], some: int, starts: int
    ) -> Choice | None:
        """Of several models. None is more urgent than its first request would be in the size that
        takes longest, so few are looked at closely; those whose first is late are among them."""
        single, waiting = world.requests.each_one_item, memory.waiting
        best: Choice | None = None
        while some:
            least, model, others = NEVER, -1, some
            while others:
                low = others & -others
                others ^= low
                each = low.bit_length() - 1
                spans, due = spans_of[each], waiting[each].due
                by_count, count = spans.most, len(due)
                if not single:
                    takes = spans.longest
                else:
                    takes = by_count[count if count < len(by_count) else -1]
                key = due[0] - takes
                if key < least or model < 0:
                    least, model = key, each
            if best is not None and best < (least, model):
                break
            some ^= 1 << model
            choice = self._choose(world, memory, model, spans_of[model], starts)
            if choice is not None:
                best = choice if best is None else min(best, choice)
                if choice[0] == least:
                    break
        return best

    def _choose(
        self, world: World, memory: Memory, model: int, spans: Spans, starts: int
    ) -> Choice | None:
        """The most urgent size of a model, then the largest that still keeps its deadlines. Refuses
        the first requests that no lane could answer in time even alone, and leaves those that this
        one could not to the others; None if no others wait."""
        waiting = memory.waiting[model]
        due, single = waiting.due, world.requests.each_one_item
        if single:
            count = len(due)
            size = spans.fits[count if count < len(spans.fits) else -1]
            takes = spans.most[size]
            if min(due[:size]) >= starts + takes:  # in time in any size
                return due[0] - takes, model, 0, size
        late = 0
        while late < len(due) and due[late] < starts + (
            spans.every[1] if single else self._takes(world, waiting, spans, late, 1)
        ):
            late += 1
        if late:
            lost = self._lost(world, memory, model, late)
            if lost:
                world.refuse(memory.take(model, 0, lost), LATE)
                late -= lost
        best: Choice | None = None
        first = late
        for size in spans.sizes:
            if size > len(due):
                break
            takes = spans.every[size] if single else self._takes(world, waiting, spans, first, size)
            start = first
            while start < len(due) and due[start] < starts + takes:
                start += 1
            if len(due) - start < size:
                break
            if not single:
                takes = self._takes(world, waiting, spans, start, size)
            if min(due[start : start + size]) < starts + takes:
                continue
            priority = due[start] - takes
            if best is None or priority <= best[0]:
                best, first = (priority, model, start, size), start
            elif start == first:
                best = (best[0], model, first, size)
        return best

    def _lost(self, world: World, memory: Memory, model: int, late: int) -> int:
        """How many of the first `late` requests no lane could answer in time, as far as to one that
        some lane can."""
        waiting, free_at, now = memory.waiting[model], memory.free.__getitem__, world.now
        soonest = [
            (spans, max(now, min(map(free_at, numbers), default=NEVER)))
            for spans, numbers in self._places(memory, model)
        ]
        for at in range(late):
            due = waiting.due[at]
            for spans, starts in soonest:
                if due >= starts + self._takes(world, waiting, spans, at, 1):
                    return at
        return late

    def _takes(self, world: World, waiting: Waiting, spans: Spans, first: int, size: int) -> int:
        """What a batch of `size` requests from position `first` would take; for ever, if their
        inputs are more than were measured."""
        inputs = world.count_items(waiting.rows[first : first + size])
        return spans.every[inputs] if inputs < len(spans.every) else NEVER

    # ------------------------------------------------------------------ what is loaded

    def _loads(
        self, world: World, memory: Memory, copying: Sequence[Lane], given: Sequence[Do]
    ) -> list[Do]:
        """Load the models whose demand is served least, if there are any that are not served;
        `given`: what was ordered in this instant."""
        wanted = unserved(memory)
        orders: list[Do] = []
        for lane in copying:
            store, pool = world.stores[lane.store], memory.pool_of[lane.number]
            runs = memory.spans[pool]
            model = next(
                (
                    model
                    for model in wanted
                    if model in runs and model not in store.resident and model not in store.loading
                ),
                -1,
            )
            if model < 0:
                continue
            evicted = self._room(world, store, world.models[model].bytes, given)
            if evicted is not None:
                wanted.remove(model)
                memory.cold.pop(model, None)
                orders += [self._evict(memory, pool, store, each) for each in evicted]
                orders.append(Load(lane.number, model))
        return orders

    def _evict(self, memory: Memory, pool: int, store: Store, model: int) -> Evict:
        self._gone(memory, pool, model)
        return Evict(store.number, model)

    def _gone(self, memory: Memory, pool: int, model: int) -> None:
        """A model does not lie in the memory of a pool any more."""
        memory.pools_of[model].remove(pool)
        memory.holds[pool] &= ~(1 << model)
        memory.places[model] = memory.alike[model] = None
        self._note_cold(memory, model)

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
                batches += [
                    each for each in (lane.running, *lane.queued) if isinstance(each, Batch)
                ]
        runs = {
            part.model
            for batch in batches
            for part in batch.parts
            if world.lanes[batch.lane].store == store.number
        }
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
        order, waited, memory.quiet = done.order, memory.quiet >= world.now, 0
        lane = world.lanes[order.lane]
        if isinstance(order, Load):
            if done.outcome == OK:
                self._holds(memory, order.model, memory.pool_of[lane.number])
                memory.cold.pop(order.model, None)
            self._note_cold(memory, order.model)
            return ()
        pool = memory.pool_of[lane.number]
        part, spans_of = order.parts[0], memory.spans[pool]
        if done.outcome == OK:
            world.answer(part.tasks, part.model)
            spans_of[part.model].measure(part.items, done.took)
        else:
            world.refuse(part.tasks, "its lane failed")
        free = world.now
        if lane.running is not None:
            for each in (lane.running, *lane.queued):
                if isinstance(each, Batch):
                    (ahead,) = each.parts
                    free += spans_of[ahead.model].every[ahead.items]
        memory.free[lane.number] = free
        if free > memory.latest:
            memory.latest = free
        memory.freed.append(lane.number)
        if waited or (memory.loads and world.now - memory.looked >= LOOK):
            return ()
        idle = lane.running is None and not lane.down
        alone = idle and not memory.cold and not memory.unlike
        some = memory.some & memory.holds[pool] if alone else memory.some
        return () if some else STAY

    def told(self, world: World, news: News) -> Sequence[Do]:
        """Lanes come and go."""
        memory: Memory = world.memory
        memory.fresh, memory.quiet = -1, 0
        memory.places = [None for _ in memory.places]
        memory.alike = [None for _ in memory.alike]
        for number in news.up:
            lanes = memory.lanes_of[memory.pool_of[number]]
            if not world.lanes[number].copies and number not in lanes:
                insort(lanes, number)
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
                self._gone(memory, pool, model)
