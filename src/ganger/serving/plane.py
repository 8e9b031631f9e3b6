"""The live plane: one router over real lanes, in real time, on one thread.

It is to a router what the simulated plane is: the same world, the same orders, the same news. Only
what a machine does differs. Time is microseconds since the plane began. What arrives during a turn
of the event loop is one range of requests, as the router may be handed any range.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Collection, Sequence
from itertools import takewhile
from typing import Any, Final, Protocol

from ganger.core.errors import InvariantError
from ganger.core.serving.idle import IdleLanes
from ganger.core.serving.residence import Residence
from ganger.core.serving.router import Router
from ganger.core.serving.verbs import (
    FAILED,
    OK,
    STAY,
    Batch,
    Do,
    Ended,
    Evict,
    Load,
    News,
    Retire,
    Truth,
    Wait,
)
from ganger.core.serving.world import ANSWERED, OPEN, Lane, World
from ganger.core.units import NEVER, SECOND
from ganger.serving.runtime import Failure, Feeds, Given
from ganger.serving.tickets import UNKNOWN, Classes, Ticket, columns

log = logging.getLogger("ganger.serving")
_KEEP: Final = 4096
"""Rows that are over are forgotten once there are so many."""
BROKEN: Final = "the recipe failed"
"""Why requests are dropped that a recipe lost by a fault of its own."""
_TICK: Final = SECOND // 1000
_REST_SECONDS: Final = 1.0
"""How long nothing is decided after a recipe failed."""


class Workers(Protocol):
    """Carries out orders: each ends with a call, by the thread of the plane."""

    def run(
        self, lane: int, model: int, jobs: Sequence[Feeds], done: Callable[[list[Given]], None]
    ) -> None:
        """Run requests for a model on a lane: what each was given, in order."""

    def load(self, lane: int, model: int, done: Callable[[Any], None]) -> None:
        """Load a model into the store of a lane: None, or a Failure."""

    def evict(self, store: int, model: int) -> None:
        """Forget a model in a store."""


class Watch(Protocol):
    """Looks on."""

    def ran(
        self, lane: Lane, order: Batch | Load, began: int, ended: int, tickets: Sequence[Ticket]
    ) -> None:
        """A lane was busy with these requests; those that were given up are not among them."""

    def settled(self, ticket: Ticket) -> None:
        """A request is over, or was given up (then it has neither outputs nor reasons)."""


class LivePlane:
    """Drives one router over requests as they come. It belongs to the thread of its event loop.

    `limit`: requests that may be under way; `clock`: nanoseconds that never fall.
    """

    def __init__(
        self,
        world: World,
        router: Router,
        workers: Workers,
        loop: asyncio.AbstractEventLoop,
        watch: Watch,
        limit: int = 10_000,
        clock: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self.world, self.router, self._workers, self._watch = world, router, workers, watch
        self._loop, self.limit, self._clock = loop, limit, clock
        self._origin = clock()
        self.classes = Classes()
        self._residence = Residence(world)
        self._tickets: dict[int, Ticket] = {}
        """By row; those that were given up are not there."""
        self._coming: list[Ticket] = []
        self._is_due = False
        self._idle = IdleLanes(world.lanes)
        self._arrived = 0
        self._wait_rows = self._wait_until = 0
        self._timer: asyncio.TimerHandle | None = None
        self._resting = False
        self.waiting = 0
        """Requests that are under way and were not given up."""
        self.failures = 0
        """How often the recipe failed."""
        world.heard = self._heard
        world.memory = router.begin(world)

    def now(self) -> int:
        """Microseconds since the plane began."""
        return (self._clock() - self._origin) // 1000

    # ------------------------------------------------------------------ requests

    def submit(self, ticket: Ticket) -> bool:
        """Take a request, which is decided upon before the event loop waits again; False where too
        many are under way already."""
        if self.waiting >= self.limit or self.world.open + len(self._coming) >= 2 * self.limit:
            return False
        ticket.arrival = self.now()
        self.waiting += 1
        self._coming.append(ticket)
        if not self._is_due:
            self._is_due = True
            self._loop.call_soon(self._turn)
        return True

    def give_up(self, ticket: Ticket) -> None:
        """Nobody wants the answer any more. What it brought is let go of at once, and a lane that
        has not begun with it spends no time on it. The router may have it in a queue for longer."""
        if ticket.ended >= 0:
            return
        ticket.ended, ticket.feeds = self.now(), None
        self.waiting -= 1
        self._tickets.pop(ticket.row, None)
        self._watch.settled(ticket)

    def overdue(self, before: int) -> list[Ticket]:
        """Requests that came before that time and are still under way."""
        late = takewhile(lambda ticket: ticket.arrival < before, self._tickets.values())
        return list(late)

    def hear(self, truth: Truth) -> None:
        """What is right of a request that is over, for a router that chooses among models."""
        if self.router.can.chooses and not self._resting:
            self._guarded(self._tell, News(truths=(truth,)))

    def _tell(self, news: News) -> None:
        self._catch_up()
        self._do(self.router.told(self.world, news))

    def _heard(self, rows: Collection[int], outcome: int, at: int) -> None:
        """The router says that requests are over."""
        for row in rows:
            ticket = self._tickets.pop(row, None)
            if ticket is None:
                continue
            if outcome != ANSWERED:
                ticket.reason = self.world.reasons[outcome - 2]
            elif ticket.outputs is None and not ticket.failure:
                requests = self.world.requests
                ticket.settle(requests.by[row - requests.base])
                ticket.class_ = self.world.said.get(row, UNKNOWN)
            self._settle(ticket)

    def _settle(self, ticket: Ticket) -> None:
        ticket.ended, ticket.feeds = self.now(), None
        self.waiting -= 1
        self._watch.settled(ticket)
        ticket.over(ticket)

    # ------------------------------------------------------------------ turns

    def _turn(self) -> None:
        """What has come since the last turn is handed to the router."""
        self._is_due = False
        coming, self._coming = self._coming, []
        if self._resting:
            self._drop(coming)
            return
        self._guarded(self._come, coming)

    def _come(self, coming: list[Ticket]) -> None:
        world = self.world
        self._catch_up()
        coming = [ticket for ticket in coming if ticket.ended < 0]
        if coming:
            requests = world.requests
            first, each_one_item = requests.end, requests.each_one_item
            for row, ticket in enumerate(coming, first):
                ticket.row = row
                self._tickets[row] = ticket
            requests.add(columns(coming))
            self._arrived = requests.end
            if each_one_item and not requests.each_one_item:
                self._wait_rows = 0  # what is waited for was counted in requests of one item
            world.open += len(coming)
            self.router.arrive(world, range(first, self._arrived))
            if self._idle.lanes and self._arrived >= self._wait_rows:
                self._ask()
        self._forget()

    def _guarded(self, step: Callable[..., None], *given: Any) -> None:
        """A fault of the recipe drops what is under way, and ends nothing else."""
        try:
            step(*given)
        except Exception:
            log.exception("%s failed; it begins anew", self.router.name)
            self.failures += 1
            self._resting = True
            self._drop([*self._tickets.values()])
            self._loop.call_later(_REST_SECONDS, self._again)

    def _drop(self, tickets: list[Ticket]) -> None:
        for ticket in tickets:
            if ticket.ended < 0:
                self._tickets.pop(ticket.row, None)
                ticket.reason = BROKEN
                self._settle(ticket)

    def _again(self) -> None:
        """Begin anew, once no lane runs anything."""
        world = self.world
        if any(lane.running is not None for lane in world.lanes):
            self._loop.call_later(_REST_SECONDS, self._again)
            return
        world.requests.drop_first(len(world.requests.arrival))
        world.tasks.clear()
        world.said.clear()
        world.open = self._wait_rows = self._wait_until = 0
        self._idle = IdleLanes(world.lanes)
        world.memory = self.router.begin(world)
        self._resting = False

    def _forget(self) -> None:
        """Rows that are over go, once there are many."""
        requests = self.world.requests
        if len(requests.outcome) < _KEEP:
            return
        count = requests.outcome.find(OPEN)
        count = len(requests.outcome) if count < 0 else count
        if count >= _KEEP // 2:
            for row in [row for row in self.world.said if row < requests.base + count]:
                del self.world.said[row]
            requests.drop_first(count)

    # ------------------------------------------------------------------ orders

    def _ask(self) -> None:
        self._wait_rows = self._wait_until = 0
        self._do(self.router.next(self.world, tuple(self._idle.lanes)))

    def _do(self, orders: Sequence[Do]) -> None:
        lanes, name = self.world.lanes, self.router.name
        for order in orders:
            if isinstance(order, Batch | Load):
                lane = lanes[order.lane]
                copies = isinstance(order, Load)
                if lane.down or lane.copies != copies:
                    raise InvariantError(f"lane {lane.number} cannot do {order!r}")
                if isinstance(order, Load):
                    self._residence.reserve(order)
                elif lane.store >= 0:
                    self._check(lane, order)
                if lane.running is None:
                    self._begin(lane, order)
                elif lane.ahead and not lane.queued:
                    lane.queued = [order]
                    self._idle.leave(lane.number)
                else:
                    raise InvariantError(f"lane {lane.number} runs a batch already")
            elif isinstance(order, Wait):
                self._wait(order)
            elif isinstance(order, Evict):
                self._residence.evict(order)
                self._workers.evict(order.store, order.model)
            elif not isinstance(order, Retire):  # a lane that is given back costs nothing here
                raise InvariantError(f"{name} orders {type(order).__name__}, which no lane can do")

    def _check(self, lane: Lane, order: Batch) -> None:
        for part in order.parts:
            if part.model not in self.world.stores[lane.store].resident:
                raise InvariantError(f"model {part.model} is not in store {lane.store}")

    def _wait(self, order: Wait) -> None:
        world = self.world
        if order.until <= world.now:
            raise InvariantError(f"{self.router.name} waits until {order.until}, now {world.now}")
        self._wait_until, self._wait_rows = order.until, self._arrived + order.rows
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if order.until < NEVER:
            self._time(order.until)

    def _time(self, until: int) -> None:
        """Ask again at that time. An event loop counts milliseconds."""
        ticks = -(-max(until - self.now(), 0) // _TICK)
        self._timer = self._loop.call_later(ticks * _TICK / SECOND, self._remind, until)

    def _remind(self, until: int) -> None:
        self._timer = None
        if self._wait_until != until or self._resting:
            return
        if self.now() < until:  # the loop was early by a part of its millisecond
            self._time(until)
        else:
            self._guarded(self._catch_up)

    def _catch_up(self) -> None:
        """The world's time becomes that of now. A router that waited for a time in between is asked
        first, in a world where it is just that time: some do things at certain times only."""
        world, now = self.world, self.now()
        while world.now < self._wait_until <= now:
            world.now = self._wait_until
            self._ask()
        world.now = max(world.now, now)

    # ------------------------------------------------------------------ lanes

    def _begin(self, lane: Lane, order: Batch | Load) -> None:
        world, number = self.world, lane.number
        now, began = world.now, self.now()
        lane.running, lane.since = order, now
        self._idle.leave(lane.number)
        if isinstance(order, Load):
            lane.due = now + world.models[order.model].load
            self._workers.load(number, order.model, lambda result: self._heed(lane, began, result))
        else:
            known = world.latencies(order.parts[0].model, lane)
            lane.due = now + (known.mean[order.parts[0].items] if known is not None else 0)
            self._run(lane, order, began)
        if lane.ahead:
            at = max(lane.due - lane.ahead - now, 0) / SECOND
            self._loop.call_later(at, self._offer, lane, order)

    def _run(self, lane: Lane, order: Batch, now: int) -> None:
        """Hand a batch to its lane: what of it is still wanted. Its parts run one after the
        other."""
        if len(order.parts) != 1:
            raise InvariantError(f"{self.router.name} runs several models as one, cut nowhere here")
        part, tasks = order.parts[0], self.world.tasks
        tickets: list[Ticket] = []
        jobs: list[Feeds] = []
        divides = self.router.can.divides
        places = []
        for at, number in enumerate(part.tasks):
            row = number if number >= 0 else tasks[number].request
            ticket = self._tickets.get(row)
            if ticket is None or ticket.feeds is None:
                continue
            feeds = ticket.feeds
            first = ticket.handed
            if divides and number < 0 and tasks[number].items < ticket.items:
                ticket.handed = first + tasks[number].items
                feeds = {name: each[first : ticket.handed] for name, each in feeds.items()}
            tickets.append(ticket)
            jobs.append(feeds)
            places.append((at, first))
        for ticket in tickets:
            if ticket.began < 0:
                ticket.began, ticket.batch, ticket.why = now, len(tickets), order.reason

        def done(given: list[Given]) -> None:
            self._ran(lane, order, now, tickets, places, given)

        if jobs:
            self._workers.run(lane.number, part.model, jobs, done)
        else:
            self._loop.call_soon(done, [])

    def _offer(self, lane: Lane, order: Batch | Load) -> None:
        """A busy lane asks for its next batch."""
        if lane.running is order and not lane.queued and not self._resting:
            self._idle.enter(lane)
            self._guarded(self._ask_now)

    def _ask_now(self) -> None:
        self._catch_up()
        self._ask()

    def _ran(
        self,
        lane: Lane,
        order: Batch,
        began: int,
        tickets: list[Ticket],
        places: list[tuple[int, int]],
        given: list[Given],
    ) -> None:
        """A batch is over; `places`: of its tasks that ran, with the first item of each. Where a
        model failed on a request, that request is answered so; for the router the batch was
        executed."""
        part, first_family = order.parts[0], len(self.world.models)
        divides = self.router.can.divides
        if isinstance(given, Failure):
            given = [given] * len(tickets)
        said = [UNKNOWN] * len(part.tasks)
        scores: list[Sequence[float]] = [()] * len(part.tasks)
        for (at, first), ticket, outputs in zip(places, tickets, given, strict=True):
            if ticket.model >= first_family:
                ticket.variants[part.model] = outputs
                ticket.said[part.model] = said[at] = self.classes.of(outputs)
                scores[at] = self.classes.scores(outputs) if self.router.can.weighs else ()
            elif isinstance(outputs, Failure):
                ticket.failure = outputs.why
            elif divides:
                ticket.pieces[first] = outputs
            else:
                ticket.outputs = outputs
        self._watch.ran(lane, order, began, self.now(), tickets)
        chooses = first_family < len(self.world.variants)
        self._free(lane, order, began, OK, (said,) if chooses else (), (scores,) if chooses else ())

    def _heed(self, lane: Lane, began: int, result: Any) -> None:
        """A load that failed is over a little later, so that it is not tried all the time."""
        if isinstance(result, Failure):
            self._loop.call_later(_REST_SECONDS, self._loaded, lane, began, result)
        else:
            self._loaded(lane, began, result)

    def _loaded(self, lane: Lane, began: int, result: Any) -> None:
        order = lane.running
        if not isinstance(order, Load):
            raise InvariantError(f"lane {lane.number} loaded a model unasked")
        outcome = OK
        if isinstance(result, Failure):
            log.error("%s is not loaded: %s", self.world.models[order.model].name, result.why)
            outcome = FAILED
        self._watch.ran(lane, order, began, self.now(), ())
        self._free(lane, order, began, outcome)

    def _free(
        self,
        lane: Lane,
        order: Batch | Load,
        began: int,
        outcome: str,
        said: tuple[Sequence[int], ...] = (),
        scores: tuple[Sequence[Sequence[float]], ...] = (),
    ) -> None:
        if self._resting:
            lost, lane.running, lane.queued = lane.queued, None, []
            if isinstance(order, Load):
                self._residence.loaded(order, outcome)
            for load in lost:
                if isinstance(load, Load):
                    self._residence.loaded(load, FAILED)
            return
        self._guarded(self._freed, lane, order, began, outcome, said, scores)

    def _freed(
        self,
        lane: Lane,
        order: Batch | Load,
        began: int,
        outcome: str,
        said: tuple[Sequence[int], ...],
        scores: tuple[Sequence[Sequence[float]], ...],
    ) -> None:
        world, took = self.world, max(self.now() - began, 1)
        self._catch_up()
        lane.running = None
        if isinstance(order, Load):
            self._residence.loaded(order, outcome)
        if lane.queued:
            self._begin(lane, lane.queued.pop())
        else:
            self._idle.enter(lane)
        done = Ended(order, outcome, took, outputs=said, scores=scores)
        orders = self.router.ended(world, done)
        if orders is not STAY:
            self._do(orders)
            if self._idle.lanes:
                self._ask()
        self._forget()
