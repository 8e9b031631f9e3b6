"""A plane as one would write it first: an object a request, every event by itself, no ranges."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from msgspec.structs import replace

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
    Retire,
    Stay,
    Wait,
)
from ganger.core.serving.world import Known, Lane, Pipeline, Store, World
from ganger.lab.serving.yardsticks.future import Future
from ganger.sim.requests.physics import Physics
from serving.rig import Asked, Ran, columns
from serving.talk import Talk, whole

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
    talk: Talk | None = None
    first: list[int] = field(default_factory=list)


class Naive:
    """Asks the router whenever anything happens."""

    def __init__(
        self,
        router: Router,
        models: Sequence[Known],
        lanes: Sequence[Lane],
        asked: Sequence[Asked],
        stores: Sequence[Store],
        seed: int,
        pipelines: Sequence[Pipeline] = (),
    ) -> None:
        self.world = World(
            models, lanes, stores, pipelines=pipelines, seed=seed, tenants=("", *"abcdefgh")
        )
        self.router, self.physics = router, Physics(models, noise=1.0, seed=seed)
        self.asked = sorted(asked, key=lambda one: one.at)
        self.busy: list[Busy] = []
        self.waits: set[int] = set()
        self.ran: list[Ran] = []
        if router.can.foresees:
            self.world.future = Future.of(iter([columns(self.asked)]))
        self.outputs = [one.output for one in self.asked]
        self.world.steps_done = self.steps_done
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
                if busy.talk is not None and busy in self.busy and not busy.talk.end(world):
                    if not busy.talk.cut:
                        busy.until = now + busy.talk.begin(world)
                        continue
                    busy.outcome = INTERRUPTED
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
                while world.cut:
                    self.cut_steps(world.cut.pop(0))
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
            elif not isinstance(order, Retire | Stay):  # the lanes of this plane stay
                raise InvariantError(str(order))

    def begin(self, order: Batch | Load) -> None:
        """A lane begins."""
        world, lane = self.world, self.world.lanes[order.lane]
        if isinstance(order, Load):
            store = world.stores[lane.store]
            store.used += world.models[order.model].bytes
            store.loading.add(order.model)
            took = self.physics.load_micros(order.model)
        elif world.models[order.parts[0].model].tokens:
            self.talks(lane, order)
            return
        else:
            beside = sum(
                isinstance(each.order, Batch) and each.lane.device == lane.device
                for each in self.busy
            )
            took = self.physics.micros(order, lane, beside)
        lane.running, lane.since = order, world.now
        self.busy.append(Busy(lane, order, world.now, world.now + took))

    def talks(self, lane: Lane, order: Batch) -> None:
        """A lane begins with a batch of a token model."""
        world = self.world
        lane.running, lane.since = order, world.now
        if not order.parts[0].tokens:
            took, first = whole(world, order, lane, self.outputs)
            first = [world.now + each for each in first]
            self.busy.append(Busy(lane, order, world.now, world.now + took, first=first))
            return
        times = world.models[order.parts[0].model].tokens[lane.type]
        talk = Talk(times, lane, order, self.outputs)
        until = world.now + talk.begin(world)
        self.busy.append(Busy(lane, order, world.now, until, talk=talk))

    def steps_done(self, lane: int) -> int:
        """What is over of what runs on a lane."""
        return next(
            (
                busy.talk.done
                for busy in self.busy
                if busy.lane.number == lane and busy.talk is not None
            ),
            0,
        )

    def cut_steps(self, lane: int) -> None:
        """What a lane runs ends with this step, or this segment; at once where one has just
        ended."""
        if all(each.talk is None for each in self.busy if each.lane.number == lane):
            self.cut(Interrupt(lane))
        for busy in [each for each in self.busy if each.lane.number == lane and each.talk]:
            assert busy.talk is not None
            talk = busy.talk
            if talk.done and talk.since == self.world.now:
                busy.outcome = INTERRUPTED
                self.free(busy)
            talk.cut = True

    def cut(self, order: Cancel | Interrupt) -> None:
        """What runs ends now, or at the next border."""
        for busy in self.busy:
            if busy.lane.number != order.lane:
                continue
            if isinstance(order, Cancel):
                busy.outcome = CANCELLED
                self.free(busy)
            elif isinstance(busy.order, Batch) and busy.outcome != INTERRUPTED:
                at, operator = self.physics.next_border(
                    busy.order, busy.began, busy.until, self.world.now
                )
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
        over: tuple[int, ...] = ()
        if busy.talk is not None:
            order, over = replace(busy.talk.order, steps=busy.talk.done), busy.talk.over
        elif busy.first and isinstance(order, Batch):
            for task, at in zip(order.parts[0].tasks, busy.first, strict=True):
                row = task if task >= 0 else world.tasks[task].request
                world.requests.made[row] = self.outputs[row]
                world.requests.first[row] = world.requests.first[row] or at
        if isinstance(order, Load):
            store = world.stores[busy.lane.store]
            store.loading.discard(order.model)
            store.resident[order.model] = world.now
        else:
            self.ran += [
                Ran(
                    busy.lane.number,
                    part.model,
                    tuple(part.tasks),
                    busy.began / MS,
                    world.now / MS,
                    busy.outcome,
                    order.steps,
                    tuple(part.tokens),
                )
                for part in order.parts
            ]
        done = Ended(order, busy.outcome, world.now - busy.began, busy.operator, (), over)
        self.do(self.router.ended(world, done))
