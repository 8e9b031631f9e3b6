"""The loop of the request plane: arrivals, ends and timers in order, and a router that decides.

A lane that is busy needs no event per arrival: what comes until the next event is one range.

A range is decided as its rows would be one by one, as a test shows for every router.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from heapq import heappop, heappush
from typing import Final, Protocol

from msgspec import Struct

from ganger.core.errors import InvariantError
from ganger.core.serving.idle import IdleLanes
from ganger.core.serving.residence import Residence
from ganger.core.serving.router import Router
from ganger.core.serving.verbs import (
    CANCELLED,
    FAILED,
    INTERRUPTED,
    OK,
    STAY,
    Batch,
    Cancel,
    Do,
    Ended,
    Evict,
    Interrupt,
    Load,
    News,
    Retire,
    Wait,
)
from ganger.core.serving.world import OPEN, Lane, World
from ganger.core.units import NEVER
from ganger.sim.requests.outputs import Outputs
from ganger.sim.requests.physics import Physics
from ganger.sim.requests.tokens import Steps

KEEP: Final = 1 << 16
Columns = Mapping[str, Sequence[int]]
NOT_YET: Final[Columns] = {}
"""In place of a chunk: the next one is not known yet (`Plane.resume`)."""


class Watch(Protocol):
    """Looks on: what ran when, and rows whose requests are over."""

    def ran(self, lane: Lane, order: Batch | Load, began: int, ended: int, outcome: str) -> None:
        """A lane was busy."""

    def settled(self, world: World, count: int) -> None:
        """The first `count` rows are over, and are forgotten after this."""


class _End(Struct, gc=False):
    """What a lane is busy with, until when. `offers`: it ends nothing, but is the moment at which a
    busy lane asks for its next batch."""

    order: Batch | Load
    began: int
    at: int
    outcome: str = OK
    operator: int = 0
    valid: bool = True
    offers: bool = False


class Plane:
    """Drives one router over requests that come in chunks (columns as of `Requests.add`).

    `outputs`: what models say, for routers that choose among models. `on_retire` hears of lanes
    that the router gives back. Rows that are over are forgotten once
    there are `keep` of them.
    """

    def __init__(
        self,
        world: World,
        router: Router,
        physics: Physics,
        chunks: Iterator[Columns],
        watches: Sequence[Watch] = (),
        on_retire: Callable[[int], None] = lambda lane: None,
        keep: int = KEEP,
        outputs: Outputs | None = None,
    ) -> None:
        self.world, self.router = world, router
        self._outputs, self._weighs, self._cuts = outputs, router.can.weighs, router.can.cuts
        self.physics, self._chunks, self._watches = physics, chunks, list(watches)
        self._steps = Steps(world) if any(known.tokens for known in world.models) else None
        self.on_retire, self._keep = on_retire, keep
        self._residence = Residence(world)
        self._heap: list[tuple[int, int, int, _End | None]] = []
        """(time, sequence, lane, what ends); no end: only a time at which to ask."""
        self._sequence = 0
        self._busy: dict[int, _End] = {}
        self._idle = IdleLanes(world.lanes)
        devices = [lane.device for lane in world.lanes if not lane.copies]
        self._on_device = None if len(set(devices)) == len(devices) else dict.fromkeys(devices, 0)
        """How many lanes of a device run a batch; None where no lanes share one."""
        self.arrived = 0
        """How many requests have come: the first row of which the router has not heard."""
        self._wait_rows = 0
        """The router need not be asked before this row has come."""
        self._wait_until = self._timer = 0
        """When to ask again, and the next time for which there is an event to do so."""
        self._more = True
        self._closed = ""
        self.batches = 0
        self._read()
        world.memory = router.begin(world)

    def watch(self, watch: Watch) -> None:
        """One more looks on."""
        self._watches.append(watch)

    # ------------------------------------------------------------------ time

    @property
    def next_time(self) -> int:
        """When something happens next; NEVER once all is over."""
        event = self._heap[0][0] if self._heap else NEVER
        return min(event, self._arrival())

    def _arrival(self) -> int:
        requests = self.world.requests
        at = self.arrived - requests.base
        return requests.arrival[at] if at < len(requests.arrival) else NEVER

    def advance(self, until: int = NEVER) -> None:
        """Work through all that happens until `until`, that moment included."""
        if self._closed:
            self._refuse_all(min(until, NEVER - 1))
            return
        world, heap, idle = self.world, self._heap, self._idle.lanes
        requests = world.requests
        arrivals = requests.arrival
        while True:
            at = self.arrived - requests.base
            arrival = arrivals[at] if at < len(arrivals) else NEVER
            event = heap[0][0] if heap else NEVER
            comes = arrival < event
            now = arrival if comes else event
            if now > until or now == NEVER:
                return
            if comes and (not idle or self._wait_rows > self.arrived + 1):
                self._come_unasked(event if event <= until else until + 1)
                continue
            world.now = now
            asks = event == now and self._happen(now)
            if arrival == now:
                self._come_now(now, at)
                asks = True
            if self._steps is not None:
                self._end_steps(now)
            if (asks and idle) or now == self._wait_until:
                self._ask()

    def _happen(self, now: int) -> bool:
        """Ends and timers of this moment; whether there is news for the router."""
        heap, lanes = self._heap, self.world.lanes
        news = False
        while heap and heap[0][0] == now:
            _, _, lane, end = heappop(heap)
            if end is None:
                if now == self._timer < self._wait_until < NEVER:
                    self._remind(self._wait_until)
            elif end.valid:
                if end.offers:
                    self._offered(lanes[lane], end)
                    news = True
                elif self._free(lanes[lane], end):
                    news = True
        return news

    def _end_steps(self, now: int) -> None:
        """Steps that end now because something has come."""
        heap = self._heap
        while heap and heap[0][0] == now and heap[0][3]:
            _, _, lane, end = heappop(heap)
            if end is not None and end.valid:
                self._free(self.world.lanes[lane], end)

    def _come_now(self, now: int, at: int) -> None:
        """What arrives in this moment, from position `at` on; also those of the next chunk."""
        requests = self.world.requests
        arrivals = requests.arrival
        if at + 1 < len(arrivals) and arrivals[at + 1] > now:  # nearly always
            self._come(at + 1)
            return
        while at < len(arrivals) and arrivals[at] == now:
            self._come(bisect_right(arrivals, now, at))
            at = self.arrived - requests.base

    def _come_unasked(self, before: int) -> None:
        """Arrivals while nobody need be asked, in one range."""
        requests = self.world.requests
        arrivals = requests.arrival
        first = self.arrived - requests.base
        last = bisect_left(arrivals, before, first)
        if self._idle.lanes:
            last = min(last, self._wait_rows - requests.base - 1)
        if self._cuts or (self._steps is not None and self._steps.breakable):
            last = bisect_right(arrivals, arrivals[first], first, last)
        self.world.now = arrivals[last - 1]
        self._come(last)

    def _come(self, last: int) -> None:
        """The router hears of the rows until before position `last`."""
        world = self.world
        requests = world.requests
        first, end = self.arrived, last + requests.base
        self.arrived = end
        world.open += end - first
        self.router.arrive(world, range(first, end))
        if world.cut:
            lanes, world.cut = world.cut, []
            for lane in lanes:
                self._interrupt(lane)
        if last == len(requests.arrival):
            self._read()

    def _read(self) -> None:
        """Take the next chunk, once all rows that are there have come."""
        requests = self.world.requests
        over = requests.outcome.find(OPEN)
        over = len(requests.outcome) if over < 0 else over
        if over >= self._keep or (over and not self._more):
            self._settle(over)
        while self._more and self.arrived == requests.end:
            chunk = next(self._chunks, None)
            if chunk is None:
                self._more = False
                continue
            if chunk is NOT_YET:
                return
            each_one_item = requests.each_one_item
            requests.add(chunk)
            if self._steps is not None:
                self._steps.add(chunk)
            if each_one_item and not requests.each_one_item:
                self._wait_rows = 0  # what is waited for was counted in requests of one item

    def resume(self) -> None:
        """The next chunk is known now, where it was not."""
        self._read()

    def _settle(self, count: int) -> None:
        for watch in self._watches:
            watch.settled(self.world, count)
        base, said = self.world.requests.base, self.world.said
        if said:
            for row in range(base, base + count):
                said.pop(row, None)
        self.world.requests.drop_first(count)
        if self._steps is not None:
            self._steps.drop_first(count)

    def close(self, at: int, reason: str) -> None:
        """From now on nobody answers: what runs is cancelled, what has come is dropped, and so is
        what comes later."""
        self._closed = reason
        self.world.now = at
        for number, end in self._busy.items():
            for watch in self._watches:
                watch.ran(self.world.lanes[number], end.order, end.began, at, CANCELLED)
        self._busy.clear()
        self._heap.clear()
        requests = self.world.requests
        outcomes = requests.outcome[: self.arrived - requests.base]
        open_ = [requests.base + i for i, outcome in enumerate(outcomes) if outcome == OPEN]
        self.world.refuse(open_, reason)

    def _refuse_all(self, until: int) -> None:
        """What comes to a closed plane."""
        requests = self.world.requests
        while self._arrival() <= until:
            at = self._arrival()
            last = bisect_right(requests.arrival, at, self.arrived - requests.base)
            rows = range(self.arrived, last + requests.base)
            self.arrived = rows.stop
            self.world.open += len(rows)
            self.world.refuse(rows, self._closed, at=at)
            if last == len(requests.arrival):
                self._read()

    def finish(self) -> None:
        """Nothing more happens: watchers get the last rows. Raises InvariantError where
        a request was forgotten by its router."""
        requests = self.world.requests
        lost = [requests.base + i for i, outcome in enumerate(requests.outcome) if not outcome]
        if lost:
            raise InvariantError(
                f"{self.router.name} forgot {len(lost)} requests, the first is {lost[0]}"
            )
        self._settle(len(requests.arrival))

    # ------------------------------------------------------------------ orders

    def _ask(self) -> None:
        self._wait_rows = self._wait_until = 0
        self._do(self.router.next(self.world, tuple(self._idle.lanes)))

    def _do(self, orders: Sequence[Do]) -> None:
        lanes = self.world.lanes
        for order in orders:
            if isinstance(order, Batch):
                lane = lanes[order.lane]
                if lane.down or lane.copies:
                    raise InvariantError(f"lane {lane.number} cannot do {order!r}")
                if lane.store >= 0:
                    self._check(lane, order)
                if lane.running is None:
                    self._begin(lane, order)
                else:
                    self._queue(lane, order)
            elif isinstance(order, Wait):
                self._wait(order)
            elif isinstance(order, Load):
                self._load(lanes[order.lane], order)
            elif isinstance(order, Evict):
                self._residence.evict(order)
            elif isinstance(order, Cancel):
                self._cut(order.lane, CANCELLED)
            elif isinstance(order, Interrupt):
                self._interrupt(order.lane)
            elif isinstance(order, Retire):
                self.on_retire(order.lane)

    def _wait(self, order: Wait) -> None:
        world = self.world
        if order.until <= world.now:
            raise InvariantError(f"{self.router.name} waits until {order.until}, now {world.now}")
        if order.until < NEVER and not world.now < self._timer <= order.until:
            self._remind(order.until)
        self._wait_until = order.until
        self._wait_rows = self.arrived + order.rows

    def _remind(self, at: int) -> None:
        """There is an event at that time; if it is too early, there is another one then."""
        self._timer = at
        self._push(at, -1, None)

    def _push(self, at: int, lane: int, end: _End | None) -> None:
        self._sequence += 1
        heappush(self._heap, (at, self._sequence, lane, end))

    def _load(self, lane: Lane, order: Load) -> None:
        """A lane that copies loads a model."""
        self._residence.reserve(order)
        if lane.down or not lane.copies:
            raise InvariantError(f"lane {lane.number} cannot do {order!r}")
        if lane.running is None:
            self._begin(lane, order)
        else:
            self._queue(lane, order)

    def _queue(self, lane: Lane, order: Batch | Load) -> None:
        """What a lane that is busy does next."""
        if not lane.ahead or lane.queued:
            raise InvariantError(f"lane {lane.number} runs a batch already")
        lane.queued = [order]
        self._idle.leave(lane.number)

    def _check(self, lane: Lane, order: Batch) -> None:
        for part in order.parts:
            if part.model not in self.world.stores[lane.store].resident:
                raise InvariantError(f"model {part.model} is not in store {lane.store}")

    def _begin(self, lane: Lane, order: Batch | Load) -> None:
        world, number = self.world, lane.number
        now = world.now
        if isinstance(order, Batch):
            beside = took = 0
            if self._on_device is not None:
                beside = self._on_device[lane.device]
                self._on_device[lane.device] = beside + 1
            if self._steps is not None:
                took = self._steps.begin(order, lane, self.physics.pace.get(lane.device, 1.0))
            took = took or self.physics.micros(order, lane, beside)
            self.batches += 1
            first = order.parts[0]
            known = None if first.tokens else world.latencies(first.model, lane)
            lane.due = now + (known.mean[first.items] if known is not None else 0)
        else:
            took = self.physics.load_micros(order.model)
            lane.due = now + took
        lane.running, lane.since = order, now
        end = self._busy[number] = _End(order, now, now + took)
        self._idle.leave(number)
        self._sequence += 1
        heappush(self._heap, (now + took, self._sequence, number, end))
        if lane.ahead:  # it is idle for the router from some time before its end on
            at = max(lane.due - lane.ahead, now)
            self._push(at, number, _End(order, now, at, offers=True))

    def _offered(self, lane: Lane, end: _End) -> None:
        """A busy lane asks for its next batch."""
        if lane.running is end.order and not lane.queued and not lane.down:
            self._idle.enter(lane)

    def _free(self, lane: Lane, end: _End) -> bool:
        """A lane has come to the end of what it did; whether that is a reason to ask."""
        world, order = self.world, end.order
        now = world.now
        del self._busy[lane.number]
        lane.running = None
        over: tuple[int, ...] = ()
        if isinstance(order, Load):
            self._residence.loaded(order, end.outcome)
        else:
            if self._on_device is not None:
                self._on_device[lane.device] -= 1
            if self._steps is not None:
                order, over = self._steps.end(lane, order, end.outcome)
        for watch in self._watches:
            watch.ran(lane, order, end.began, now, end.outcome)
        if lane.down:
            if self._steps is not None:
                self._steps.lose(lane.number)
        elif lane.queued:
            self._begin(lane, lane.queued.pop())
        else:
            self._idle.enter(lane)
        said: tuple[Sequence[int], ...] = ()
        if self._outputs is not None and isinstance(order, Batch) and end.outcome == OK:
            said = tuple([self._outputs.of(world, part) for part in order.parts])
        scores: tuple[Sequence[Sequence[float]], ...] = ()
        if said and self._weighs and self._outputs is not None and isinstance(order, Batch):
            scores = tuple([self._outputs.scores_of(world, part) for part in order.parts])
        done = Ended(order, end.outcome, now - end.began, end.operator, said, over, scores)
        orders = self.router.ended(world, done)
        if orders is STAY:
            return False
        if orders:
            self._do(orders)
        return True

    def _cut(self, number: int, outcome: str) -> None:
        end = self._busy.get(number)
        if end is not None:
            end.valid = False
            end.outcome = outcome
            self._free(self.world.lanes[number], end)

    def _interrupt(self, number: int) -> None:
        end = self._busy.get(number)
        if end is None or not isinstance(end.order, Batch) or end.outcome == INTERRUPTED:
            return
        at, operator = 0 if self._steps is None else self._steps.border(number), 0
        if not at:
            at, operator = self.physics.next_border(end.order, end.began, end.at, self.world.now)
        if operator or 0 < at < end.at:
            end.valid = False
            cut = self._busy[number] = _End(end.order, end.began, at, INTERRUPTED, operator)
            self._push(at, number, cut)

    # ------------------------------------------------------------------ lanes

    def turn(self, number: int, at: int, *, up: bool, drains: bool = False) -> None:
        """A lane comes or goes at a time up to which all has happened; what runs on one that goes
        has failed, unless it `drains`: then it ends what it began. Memory is lost with the lane
        that runs batches."""
        self.world.now = at
        lane = self.world.lanes[number]
        if lane.down != up:
            return
        lane.down = not up
        if up and lane.running is None:  # else once it has drained
            self._idle.enter(lane)
        elif not up:
            self._idle.leave(lane.number)
        lost, lane.queued = lane.queued, []
        if not up:
            if not drains:
                self._cut(number, FAILED)
                self._residence.lose(lane)
            if self._steps is not None and lane.running is None:
                self._steps.lose(number)
            for order in lost:
                self._do(self.router.ended(self.world, Ended(order, FAILED, 0)))
        news = News(up=(number,)) if up else News(down=(number,))
        self._do(self.router.told(self.world, news))
        if self._idle.lanes:
            self._ask()
