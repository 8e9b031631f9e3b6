"""A plane as one would write it first: an object a request, every event by itself, no ranges."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ganger.core.errors import InvariantError
from ganger.core.serving.router import Router
from ganger.core.serving.verbs import (
    CANCELLED,
    INTERRUPTED,
    OK,
    Batch,
    Cancel,
    Do,
    Ended,
    Evict,
    Interrupt,
    Load,
    Stay,
    Wait,
)
from ganger.core.serving.world import Known, Lane, Store, World
from ganger.sim.requests.physics import Physics
from serving.rig import Asked, Ran, columns

MS = 1000


@dataclass
class Busy:
    """What a lane does, until when, and how that ends."""

    lane: Lane
    order: Batch | Load
    began: int
    until: int
    outcome: str = OK
    operator: int = 0


class Naive:
    """Asks the router whenever anything happens."""

    def __init__(
        self, router: Router, models: Sequence[Known], lanes: Sequence[Lane],
        asked: Sequence[Asked], stores: Sequence[Store], seed: int,
    ) -> None:  # fmt: skip
        self.world = World(models, lanes, stores, seed=seed)
        self.router, self.physics = router, Physics(models, noise=1.0, seed=seed)
        self.asked = sorted(asked, key=lambda one: one.at)
        self.busy: list[Busy] = []
        self.waits: set[int] = set()
        self.ran: list[Ran] = []
        self.world.memory = router.begin(self.world)

    def play(self) -> None:
        """All of it."""
        world, row = self.world, 0
        while True:
            times = [busy.until for busy in self.busy] + sorted(self.waits)
            times += [round(one.at * MS) for one in self.asked[row : row + 1]]
            if not times:
                break
            now = world.now = min(times)
            waited = now in self.waits
            self.waits.discard(now)
            over = [busy for busy in self.busy if busy.until == now]
            for busy in over:
                if busy in self.busy:
                    self.free(busy)
            came = 0
            while row + came < len(self.asked) and round(self.asked[row + came].at * MS) == now:
                came += 1
            for _ in range(came):
                world.requests.add(columns(self.asked[row : row + 1]))
                world.open += 1
                self.router.arrive(world, range(row, row + 1))
                row += 1
            idle = self.idle()
            if waited or ((over or came) and idle):
                self.waits.clear()
                self.do(self.router.next(world, idle))

    def idle(self) -> list[Lane]:
        """The lanes that do nothing."""
        return [lane for lane in self.world.lanes if lane.running is None]

    def do(self, orders: Sequence[Do]) -> None:
        """What the router orders."""
        world = self.world
        for order in orders:
            if isinstance(order, Batch | Load):
                self.begin(order)
            elif isinstance(order, Wait):
                self.waits = {order.until}
            elif isinstance(order, Evict):
                world.stores[order.store].resident.pop(order.model)
                world.stores[order.store].used -= world.models[order.model].bytes
            elif isinstance(order, Cancel | Interrupt):
                self.cut(order)
            elif not isinstance(order, Stay):
                raise InvariantError(str(order))

    def begin(self, order: Batch | Load) -> None:
        """A lane begins."""
        world, lane = self.world, self.world.lanes[order.lane]
        if isinstance(order, Load):
            store = world.stores[lane.store]
            store.used += world.models[order.model].bytes
            store.loading.add(order.model)
            took = self.physics.load_micros(order.model)
        else:
            beside = sum(isinstance(each.order, Batch) and each.lane.device == lane.device
                         for each in self.busy)  # fmt: skip
            took = self.physics.micros(order, lane, beside)
        lane.running, lane.since = order, world.now
        self.busy.append(Busy(lane, order, world.now, world.now + took))

    def cut(self, order: Cancel | Interrupt) -> None:
        """What runs ends now, or at the next border."""
        for busy in self.busy:
            if busy.lane.number != order.lane:
                continue
            if isinstance(order, Cancel):
                busy.outcome = CANCELLED
                self.free(busy)
            elif isinstance(busy.order, Batch) and busy.outcome != INTERRUPTED:
                at, operator = self.physics.next_border(busy.order, busy.began, busy.until,
                                                        self.world.now)  # fmt: skip
                if operator:
                    busy.until, busy.outcome, busy.operator = at, INTERRUPTED, operator
                    self.busy.remove(busy)
                    self.busy.append(busy)
            return

    def free(self, busy: Busy) -> None:
        """A lane has ended what it did."""
        world, order = self.world, busy.order
        self.busy.remove(busy)
        busy.lane.running = None
        if isinstance(order, Load):
            store = world.stores[busy.lane.store]
            store.loading.discard(order.model)
            store.resident[order.model] = world.now
        else:
            self.ran += [
                Ran(busy.lane.number, part.model, tuple(part.tasks), busy.began / MS,
                    world.now / MS, busy.outcome)
                for part in order.parts
            ]  # fmt: skip
        done = Ended(order, busy.outcome, world.now - busy.began, busy.operator)
        self.do(self.router.ended(world, done))
