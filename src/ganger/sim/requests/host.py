"""Services in the simulator: their replicas are lanes, and requests are served one by one.

A replica that has started loads its model and is then a lane of its service's plane. One that is
stopped ends the batch that it has begun; one that is lost does not. How services do is reported
after each window, and which replicas their routers give back; nothing else of the requests reaches
the kernel.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from math import ceil
from typing import Final

import numpy as np

from ganger.core.events import Accepted, AnyEvent, Failed, Finished, Released, Served, Started
from ganger.core.plan import AnyAction, Placement, Resize, Resume, Start, Stop, Suspend
from ganger.core.serving.memory import restored, stored
from ganger.core.serving.verbs import Batch, Load
from ganger.core.serving.world import ANSWERED, OPEN, Lane, World
from ganger.core.spec import Kind
from ganger.core.state.jobs import Declared
from ganger.core.units import NEVER, SECOND
from ganger.sim.load import workers
from ganger.sim.requests.plane import Plane

ENDED = "the service ended"
PIECE: Final = SECOND // 8
"""Microseconds of the shortest pieces of a window in which arrivals are counted; others are twice
as long, four times, ..., up to the window."""
_UNLIMITED: Final = NEVER // 2
"""A request that has more microseconds has no deadline."""
_REASONS: Final = 16
"""So many reasons why requests were dropped are told apart, those of most first."""


@dataclass
class Requested:
    """The requests of one service. `plane`: over lanes that are all down, enough of every type;
    `load`: microseconds that a replica loads before it answers; `says`: the class that its model
    gives each input, where that was recorded; `beside`: the same requests to the same replicas
    under another router, of which nothing is reported."""

    plane: Plane
    load: int
    says: Sequence[int] | None = None
    beside: Plane | None = None


class _Window:
    """What is counted of one service since the last report."""

    def __init__(self, world: World, says: Sequence[int] | None) -> None:
        self._world, self._says = world, says
        self._counted = 0
        """The first request that is not in `pieces`."""
        self.clear(0)

    def clear(self, now: int) -> None:
        """A window begins."""
        self.since = now
        self.reasons: dict[str, int] = {}
        self.labelled = self.correct = 0
        self.pieces = np.zeros(0, np.int64)
        """How many requests came, by piece."""
        self.slo = NEVER
        """The least microseconds that any of them has."""
        self.answered = self.late = self.dropped = self.batches = self.executed = 0
        self.busy = self.up = self.open = 0
        """Microseconds: of lanes that ran, of lanes that were up, of requests that were open."""
        self.latencies: list[int] = []
        self.by_lane: dict[int, int] = {}
        """Microseconds that each lane ran."""

    def over(self, rows: Collection[int], outcome: int, at: int) -> None:
        """Requests are over."""
        requests = self._world.requests
        for row in rows:
            since = max(requests.arrival[row - requests.base], self.since)
            self.open += max(at - since, 0)
        if outcome != ANSWERED:
            self.dropped += len(rows)
            reason = self._world.reasons[outcome - 2]
            self.reasons[reason] = self.reasons.get(reason, 0) + len(rows)
            return
        self.answered += len(rows)
        if self._says is not None:
            self._judge(rows, self._says)
        for row in rows:
            self.latencies.append(at - requests.arrival[row - requests.base])
            self.late += at > requests.deadline[row - requests.base]

    def _judge(self, rows: Collection[int], says: Sequence[int]) -> None:
        """Compare what the model was recorded to say with the labels of requests that have one."""
        requests = self._world.requests
        for row in rows:
            label, given = (
                column[row - requests.base] for column in (requests.label, requests.input)
            )
            if label >= 0 and given >= 0:
                self.labelled += 1
                self.correct += says[given % len(says)] == label

    def count(self, until: int) -> None:
        """Count the requests before this row by when they came."""
        requests = self._world.requests
        some = slice(self._counted - requests.base, until - requests.base)
        self._counted = until
        came = np.array(requests.arrival[some], np.int64)
        given = np.array(requests.deadline[some], np.int64) - came
        self.slo = min(self.slo, int(given.min(initial=NEVER)))
        at = (came - self.since) // PIECE
        counts = np.bincount(at, minlength=len(self.pieces))
        counts[: len(self.pieces)] += self.pieces
        self.pieces = counts

    def details(self, now: int, arrived: int) -> dict[str, float]:
        """Why requests were dropped, how often the model was right, how unevenly requests came;
        those before row `arrived` have come."""
        self.count(arrived)
        reasons = sorted(self.reasons.items(), key=lambda item: (-item[1], item[0]))[:_REASONS]
        judged = {"labelled": float(self.labelled), "correct": float(self.correct)}
        return {
            **{f"dropped:{reason}": float(count) for reason, count in reasons},
            **(judged if self._says is not None else {}),
            **({"slo": self.slo / SECOND} if self.slo < _UNLIMITED else {}),
            **self.peaks(now),
        }

    def peaks(self, now: int) -> dict[str, float]:
        """The most requests that came in a piece of the window, for pieces of each length."""
        count = max((now - self.since) // PIECE, 1)
        pieces = np.pad(self.pieces[:count], (0, max(count - len(self.pieces), 0)))
        pieces[-1] += self.pieces[count:].sum()  # what came as the window ended
        peaks, length = dict[str, float](), 1
        while length <= count:
            sums = np.add.reduceat(pieces, range(0, count, length))
            peaks[f"most_in_{length * PIECE / SECOND:g}s"] = float(sums.max())
            length *= 2
        return peaks

    def ongoing(self, now: int, arrived: int) -> float | None:
        """How many requests were open on average until now, of those before row `arrived`."""
        requests = self._world.requests
        still = sum(
            now - max(requests.arrival[at], self.since)
            for at in range(arrived - requests.base)
            if requests.outcome[at] == OPEN
        )
        span = now - self.since
        return (self.open + still) / span if span else None

    def ran(self, lane: Lane, order: Batch | Load, began: int, ended: int, outcome: str) -> None:
        """A lane was busy."""
        took = ended - max(began, self.since)
        self.busy += took
        self.by_lane[lane.number] = self.by_lane.get(lane.number, 0) + took
        steps = order.steps if isinstance(order, Batch) else 1
        self.batches += steps
        self.executed += (
            steps * sum(len(part.tasks) for part in order.parts if not part.last)
            if isinstance(order, Batch)
            else 0
        )

    def settled(self, world: World, count: int) -> None:
        """They were counted when they were over; when they came, now that they are forgotten."""
        if world.requests.base + count > self._counted:
            self.count(world.requests.base + count)


class _Service:
    """One service: its plane, its replicas, its window."""

    def __init__(self, requested: Requested) -> None:
        self.plane, self.load = requested.plane, requested.load
        self._planes = [each for each in (requested.plane, requested.beside) if each is not None]
        self.world = requested.plane.world
        self.window = _Window(self.world, requested.says)
        self.world.heard = self.window.over
        self.plane.watch(self.window)
        self.retires = requested.plane.router.can.retires
        self.given: dict[int, int] = {}
        """Lanes that the router gave back, and when."""
        self.plane.on_retire = lambda lane: self.given.__setitem__(lane, self.world.now)
        self.lanes: dict[int, list[int]] = {}
        """By job: its lanes, also those that are still loading."""
        self.loaded: dict[int, int] = {}
        """When each lane was up last."""
        self.changed = 0
        self.total_up = 0
        """Microseconds that lanes were up, added up."""
        self.over = False
        self.came = 0
        """How many requests had come when the window began."""

    @property
    def up(self) -> int:
        """How many lanes answer."""
        return sum(not lane.down for lane in self.world.lanes)

    def pass_time(self, now: int) -> None:
        """Serve until `now`."""
        if now > self.changed:
            passed = self.up * (now - self.changed)
            self.window.up += passed
            self.total_up += passed
            self.changed = now
            for plane in self._planes:
                plane.advance(now)

    def turn(self, lane: int, now: int, *, up: bool, drains: bool = False) -> None:
        """A lane comes or goes."""
        for plane in self._planes:
            plane.turn(lane, now, up=up, drains=drains)

    def begin(self, job: int, types: Sequence[str]) -> list[int]:
        """A replica starts on devices of these types: the lanes that it will be."""
        taken = {lane for lanes in self.lanes.values() for lane in lanes}
        found: list[int] = []
        for type_ in types:
            found += [
                next(
                    lane.number
                    for lane in self.world.lanes
                    if lane.type == type_ and lane.number not in taken and lane.number not in found
                )
            ]
        self.lanes[job] = found
        return found

    def end(self, now: int, job: int, *, drains: bool) -> None:
        """A replica takes nothing more; it ends what it began, if it `drains`."""
        for lane in () if self.over else self.lanes.pop(job, ()):
            self.given.pop(lane, None)
            self.pass_time(now)
            self.turn(lane, now, up=False, drains=drains)

    def close(self, now: int) -> None:
        """The service is over: nothing more is answered."""
        if not self.over:
            self.over = True
            self.pass_time(now)
            for plane in self._planes:
                plane.close(now, ENDED)

    def finish(self) -> None:
        """The simulation is over, and so is the service."""
        for plane in self._planes:
            plane.advance()
            plane.finish()

    def given_back(self, service: int) -> list[int]:
        """The replicas, as jobs, that the router gave back and has not used again."""
        lanes = self.world.lanes
        back = {
            lane
            for lane, at in self.given.items()
            if lanes[lane].running is None and lanes[lane].since <= at
        }
        return [
            job
            for job, mine in sorted(self.lanes.items())
            if job != service and back.issuperset(mine)
        ]

    def busy(self, service: int, now: int) -> dict[int, float]:
        """By replica that is up, the part of its time in the window in which it ran batches."""
        lanes, since = self.world.lanes, self.window.since
        shares: dict[int, float] = {}
        for job, mine in sorted(self.lanes.items()):
            up = sum(now - max(self.loaded[at], since) for at in mine if not lanes[at].down)
            if job == service or not up:
                continue
            ran = sum(self.window.by_lane.get(at, 0) for at in mine)
            ran += sum(now - max(lanes[at].since, since) for at in mine if lanes[at].running)
            shares[job] = min(ran / up, 1.0)
        return shares

    def figures(self, now: int) -> dict[str, float | None]:
        """What the window that ends now was like."""
        window, arrived = self.window, self.plane.arrived
        running = sum(
            now - max(lane.since, window.since)
            for lane in self.world.lanes
            if lane.running is not None
        )
        every = sorted(window.latencies)
        found: dict[str, float | None] = {
            "arrivals": float(arrived - self.came),
            "answered": float(window.answered),
            "late": float(window.late),
            "dropped": float(window.dropped),
            "queue": float(self.world.open),
            "ongoing": window.ongoing(now, arrived),
            "replicas": float(self.up),
            "busy": (window.busy + running) / window.up if window.up else None,
            "batch": window.executed / window.batches if window.batches else None,
            "p50": _quantile(every, 0.5),
            "p99": _quantile(every, 0.99),
            **window.details(now, arrived),
        }
        if self.retires:
            found |= {"wanted": float(self.world.wanted), "given_back": None}
        self.came = arrived
        window.clear(now)
        return found


def _quantile(every: list[int], share: float) -> float | None:
    return every[ceil(share * len(every)) - 1] / SECOND if every else None


class Requesting:
    """A host: services by name whose requests are served, reported each `window` (microseconds)
    while there are any; `type_of` gives the type of a node's devices. With `validate` routers go on
    after each window from what they remember as it would be stored: so that is plain, and all of
    it. With `remembers` each window is reported with that."""

    def __init__(
        self,
        declared: Declared,
        services: Mapping[str, Requested],
        window: int,
        type_of: Callable[[int], str],
        *,
        validate: bool = False,
        remembers: bool = False,
    ) -> None:
        self._window, self._type_of, self._validate = window, type_of, validate
        self._remembers = remembers
        self._services = {
            job: _Service(services[declared.name(job)])
            for job in range(declared.n)
            if declared.kind[job] == Kind.SERVE and declared.name(job) in services
        }
        self._names = {declared.name(job): job for job in self._services}
        self._service_of = {job: job for job in self._services}
        for job in range(declared.n):
            if int(declared.parent[job]) in self._services:
                self._service_of[job] = int(declared.parent[job])
        self._placed: dict[int, Placement] = {}
        self._coming: list[tuple[int, int, int, int]] = []
        """A heap of (when, service, job, lane): replicas that load."""
        self._next = window if self._services else NEVER

    def next_time(self) -> int:
        """The end of the window, or the moment at which a replica has loaded."""
        return min(self._next, self._coming[0][0] if self._coming else NEVER)

    def advance(self, now: int) -> list[AnyEvent]:
        """Replicas have loaded; the window ends."""
        while self._coming and self._coming[0][0] <= now:
            _, job, replica, lane = heappop(self._coming)
            service = self._services[job]
            if lane in service.lanes.get(replica, ()) and not service.over:
                service.pass_time(now)
                service.loaded[lane] = now
                service.turn(lane, now, up=True)
        if now < self._next:
            return []
        since = now - self._window
        some = [(job, each) for job, each in sorted(self._services.items()) if not each.over]
        for _, service in some:
            service.pass_time(now)
        self._next = now + self._window if self._goes_on() else NEVER
        return self._report(now, since, some)

    def _report(self, now: int, since: int, some: Sequence[tuple[int, _Service]]) -> list[AnyEvent]:
        """How some services did in the window that ends now."""
        told: list[tuple[int, dict[str, float | None]]] = []
        routers: dict[int, bytes] = {}
        for job, service in some:
            busy, back = service.busy(job, now), service.given_back(job)
            told.append((job, service.figures(now)))
            if self._remembers or self._validate:
                memory = stored(service.world.memory)
            if self._remembers:
                routers[job] = memory
            if self._validate:
                service.world.memory = restored(memory)
            told += [
                (
                    each,
                    {"busy": busy.get(each), **({"given_back": 1.0} if each in back else {})},
                )
                for each in sorted({*busy, *back})
            ]
        if not told:
            return []
        names = dict.fromkeys(name for _, figures in told for name in figures)
        columns = {name: tuple(figures.get(name) for _, figures in told) for name in names}
        return [Served(since, tuple(job for job, _ in told), columns, routers)]

    def _goes_on(self) -> bool:
        """Whether requests are still to come, or to be answered by replicas that there are."""
        return any(
            service.plane.next_time < NEVER or (service.lanes and service.world.open)
            for service in self._services.values()
            if not service.over
        )

    def happened(self, now: int, events: Sequence[AnyEvent]) -> list[AnyEvent]:
        """Replicas come, begin and end. Of a service that is over it is reported how it did since
        its last window."""
        over = [
            (event.job, self._services[event.job])
            for event in events
            if isinstance(event, Finished) and event.job in self._services
        ]
        over = [(job, each) for job, each in over if not each.over and each.window.since < now]
        for _, service in over:
            service.pass_time(now)
        last = self._report(now, max((each.window.since for _, each in over), default=now), over)
        for event in events:
            if isinstance(event, Accepted) and event.spec.parent in self._names:
                self._service_of[event.job] = self._names[event.spec.parent]
            elif isinstance(event, Started):
                self._begin(now, event.job)
            elif isinstance(event, Finished | Failed | Released):
                self._end(now, event.job, drains=isinstance(event, Finished))
                if event.job in self._services and isinstance(event, Finished):
                    self._services[event.job].close(now)
        return last

    def planned(self, now: int, actions: Sequence[AnyAction]) -> None:
        """Replicas that are to stop take nothing more."""
        for action in actions:
            if isinstance(action, Start | Resize):
                self._placed[action.job] = action.placement
            if isinstance(action, Stop | Suspend | Resize):
                self._end(now, action.job, drains=True)
            elif isinstance(action, Resume):
                self._begin(now, action.job)

    def _begin(self, now: int, job: int) -> None:
        service = self._services.get(self._service_of.get(job, -1))
        placement = self._placed.get(job, ())
        if service is None or service.over or job in service.lanes or not placement:
            return
        service.pass_time(now)
        types = [
            self._type_of(slot.node)
            for slot in placement
            if not slot.role
            for _ in range(slot.workers)
        ]
        assert len(types) == workers(placement)
        for lane in service.begin(job, types):
            heappush(self._coming, (now + service.load, self._service_of[job], job, lane))
        if self._next == NEVER:
            self._next = (now // self._window + 1) * self._window

    def _end(self, now: int, job: int, *, drains: bool) -> None:
        service = self._services.get(self._service_of.get(job, -1))
        if service is not None:
            service.end(now, job, drains=drains)

    def total_up(self, job: int) -> int:
        """Microseconds that replicas of a service were up, added up."""
        return self._services[job].total_up

    def close(self, now: int) -> None:
        """The simulation is over: what still waits is refused."""
        for service in self._services.values():
            service.close(now)
            service.finish()
