"""A live plane in this process, over real lanes, and a watch that lets no rule be broken."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import uvloop

from ganger.core.serving.router import Router
from ganger.core.serving.verbs import Batch, Load
from ganger.core.serving.world import Lane, World
from ganger.core.units import NEVER
from ganger.lab.serving.live import Machine, available_cores, prepared
from ganger.serving.crew import Crew
from ganger.serving.plane import LivePlane, Watch
from ganger.serving.tickets import Ticket
from ganger.workloads.models.reading import read_models


class Seen:
    """Watches: no lane does two things at once, memory is never exceeded, what runs is resident,
    and every request ends once, not before it came."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.until = [0] * len(world.lanes)
        self.over: list[Ticket] = []
        self.batches: list[tuple[int, int]] = []
        """(model, requests)."""
        self.reasons: set[str] = set()
        self.loads = 0
        self.figures: Watch | None = None
        """Looks on as well."""

    def ran(
        self, lane: Lane, order: Batch | Load, began: int, ended: int, tickets: Sequence[Ticket]
    ) -> None:
        if self.figures is not None:
            self.figures.ran(lane, order, began, ended, tickets)
        assert began >= self.until[lane.number], "a lane does two things at once"
        assert ended >= began
        self.until[lane.number] = ended
        for store in self.world.stores:
            assert 0 <= store.used <= store.capacity
            inside = [*store.resident, *store.loading]
            assert store.used == sum(self.world.models[each].bytes for each in inside)
        if isinstance(order, Load):
            self.loads += 1
            return
        assert order.reason
        self.reasons.add(order.reason)
        for part in order.parts:
            known = self.world.latencies(part.model, lane)
            assert known is not None
            assert part.items <= known.largest
            if lane.store >= 0:
                assert part.model in self.world.stores[lane.store].resident
            self.batches.append((part.model, len(part.tasks)))

    def settled(self, ticket: Ticket) -> None:
        if self.figures is not None:
            self.figures.settled(ticket)
        assert ticket not in self.over, "a request ends twice"
        assert ticket.ended >= ticket.arrival
        self.over.append(ticket)


class Bench:
    """A plane with its lanes, inside an event loop."""

    def __init__(self, file: Path, recipe: str | Router, machine: Machine, limit: int = 10_000):
        loop = asyncio.get_running_loop()
        self.served = prepared(read_models(file), recipe, machine)
        self.world = self.served.world

        def deliver(done: Callable[[Any], None], result: Any) -> None:
            loop.call_soon_threadsafe(done, result)

        models = self.served.models[: len(self.world.models)]
        self.crew = Crew(models, self.world.lanes, available_cores(), machine.threads, deliver)
        self.seen = Seen(self.world)
        self.plane = LivePlane(self.world, self.served.router, self.crew, loop, self.seen, limit)
        if not self.world.stores:
            self.crew.load_all()

    def ask(self, model: int, x: Any, within: int = NEVER) -> asyncio.Future[Ticket]:
        """Submit a request whose only input is x: the ticket, once it is over."""
        future: asyncio.Future[Ticket] = asyncio.get_running_loop().create_future()
        signature = self.served.models[model].signature
        feeds = {signature.inputs[0].name: np.asarray(x)}
        due = min(self.plane.now() + within, NEVER)
        ticket = Ticket(model, feeds, signature.items(feeds), due, 0, future.set_result)
        assert self.plane.submit(ticket)
        return future

    def close(self) -> None:
        self.crew.close()


def run(story: Callable[[], Any]) -> Any:
    """Play a story in the event loop that a server has."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(story())
