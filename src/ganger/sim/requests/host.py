"""Services in the simulator: their replicas are lanes, and requests are served one by one.

A replica that has started loads its model and is then a lane of its service's plane. One that is
stopped ends the batch that it has begun; one that is lost does not. How services do is reported
after each window, and which replicas their routers give back; nothing else of the requests reaches
the kernel.

Requests may be held back by windows (`Held`). Planes then have a clock of their own, which lacks
the windows that were known from others.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from math import ceil

from ganger.core.errors import BadInput
from ganger.core.events import Accepted, AnyEvent, Failed, Finished, Released, Served, Started
from ganger.core.plan import AnyAction, Placement, Resize, Resume, Start, Stop, Suspend
from ganger.core.serving.memory import restored, stored
from ganger.core.spec import Kind
from ganger.core.state.jobs import Declared
from ganger.core.units import NEVER, SECOND, WHOLE
from ganger.sim.load import workers
from ganger.sim.requests.plane import Plane
from ganger.sim.requests.window import Fared, Figures, Held, Window

ENDED = "the service ended"


@dataclass
class Requested:
    """The requests of one service. `plane`: over lanes that are all down, enough of every type, and
    where replicas may run one model each, of every type and model; `load`: microseconds that a
    replica of all models loads before it answers; `says`: the class that its model
    gives each input, where that was recorded; `beside`: the same requests to the same replicas
    under another router, of which nothing is reported; `held`: what hands the requests to both, if
    they are held back."""

    plane: Plane
    load: int
    says: Sequence[int] | None = None
    beside: Plane | None = None
    held: Held | None = None


class _Service:
    """One service: its plane, its replicas, its window."""

    def __init__(self, requested: Requested) -> None:
        self.plane, self.load, self._held = requested.plane, requested.load, requested.held
        self._planes = [each for each in (requested.plane, requested.beside) if each is not None]
        self.world = requested.plane.world
        self.window = Window(self.world, requested.says)
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
        bound = any(lane.only >= 0 for lane in self.world.lanes)
        names = [known.name for known in self.world.models] if bound else []
        self._bound = {name: at for at, name in enumerate(names)}
        """By the model that a replica names, the one that its lanes run only."""
        self.over = False
        self.came = 0
        """How many requests had come when the window began."""
        self.since = 0
        """When the window began."""
        self._known: Fared | None = None
        """What the window was like that ends now, if it is known from others."""

    @property
    def up(self) -> int:
        """How many lanes answer."""
        return sum(not lane.down for lane in self.world.lanes)

    @property
    def more(self) -> bool:
        """Whether requests are still to come, or to be answered by replicas that there are."""
        coming = self.plane.next_time < NEVER or (self._held is not None and self._held.more)
        return coming or bool(self.lanes and self.world.open)

    def here(self, now: int) -> int:
        """What the clock of the planes says."""
        return now if self._held is None else now - self._held.skipped

    def pass_time(self, now: int) -> None:
        """Serve until `now`."""
        if now > self.changed:
            if self._held is not None:
                self._held.release(now)
            passed = self.up * (now - self.changed)
            self.window.up += passed
            self.total_up += passed
            self.changed = now
            for plane in self._planes:
                if self._held is not None:
                    plane.resume()
                plane.advance(self.here(now))

    def end_window(self, now: int) -> None:
        """A window ends: serve it, unless what it was like is known from others."""
        if self._held is not None:
            up = [lane for lane in self.world.lanes if not lane.down]
            self._known = self._held.known(now, up)
        if self._known is None:
            self.pass_time(now)
            return
        self.total_up += self.up * (now - self.changed)
        self.changed = now

    def turn(self, lane: int, now: int, *, up: bool, drains: bool = False) -> None:
        """A lane comes or goes."""
        for plane in self._planes:
            plane.turn(lane, self.here(now), up=up, drains=drains)

    def load_of(self, model: str) -> int:
        """Microseconds that a replica loads that names this model."""
        only = self._bound.get(model, -1)
        return self.load if only < 0 else self.world.models[only].load

    def begin(self, job: int, types: Sequence[str], share: float, model: str) -> list[int]:
        """A replica that names this model starts on this share of devices of these types: the lanes
        that it will be. Raises BadInput where there are no lanes of that share."""
        only = self._bound.get(model, -1)
        taken = {lane for lanes in self.lanes.values() for lane in lanes}
        found: list[int] = []
        for type_ in types:
            free = (
                lane.number
                for lane in self.world.lanes
                if (lane.type, lane.share, lane.only) == (type_, share, only)
                and lane.number not in taken
                and lane.number not in found
            )
            lane = next(free, -1)
            if lane < 0:
                raise BadInput(
                    f"a replica on {share:g} of a {type_} answers nothing: its requests are run by"
                    " windows, where all replicas of a service have the same share",
                    where="--by-windows",
                    mend="leave it out",
                )
            found.append(lane)
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
            if self._held is not None:
                self._held.open(self.here(now))
            for plane in self._planes:
                plane.close(self.here(now), ENDED)
                plane.resume()

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

    def report(self, service: int, now: int) -> tuple[Figures, dict[int, float]]:
        """What the window that ends now was like; and by replica that is up, the part of its time
        in which it ran batches."""
        self.since = now
        lanes, here = self.world.lanes, self.here(now)
        up = [lane.number for lane in lanes if not lane.down]
        known, self._known = self._known, None
        if known is not None:
            shares = dict(zip(up, known.busy, strict=True))
            return known.figures, {
                job: sum(shares[at] for at in mine) / len(mine)
                for job, mine in sorted(self.lanes.items())
                if job != service and shares.keys() >= set(mine)
            }
        busy = {
            job: self._busy([at for at in mine if not lanes[at].down], mine, here)
            for job, mine in sorted(self.lanes.items())
            if job != service
        }
        each = [self._busy([at], [at], here) or 0.0 for at in up] if self._held is not None else []
        figures = self._figures(here)
        if self._held is not None:
            self._held.served(Fared(figures, each))
        return figures, {job: share for job, share in busy.items() if share is not None}

    def _busy(self, up: Sequence[int], mine: Sequence[int], here: int) -> float | None:
        """The part of the time that lanes were up in the window in which they ran, and those of
        `mine` that are not up any more; None if none was up."""
        lanes, since = self.world.lanes, self.window.since
        time = sum(here - max(self.loaded[at], since) for at in up)
        ran = sum(self.window.by_lane.get(at, 0) for at in mine)
        ran += sum(here - max(lanes[at].since, since) for at in mine if lanes[at].running)
        return min(ran / time, 1.0) if time else None

    def _figures(self, now: int) -> Figures:
        """The same of the service, by the clock of the planes."""
        window, arrived = self.window, self.plane.arrived
        running = sum(
            now - max(lane.since, window.since)
            for lane in self.world.lanes
            if lane.running is not None
        )
        every = sorted(window.latencies)
        found: Figures = {
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
        self._models = [declared.models[int(code)] for code in declared.model[: declared.n]]
        """By job."""
        self._shares = [
            declared.shapes[int(code)].roles[0].needs.share / WHOLE
            for code in declared.shape[: declared.n]
        ]
        """By job, of a device: of one of its workers."""
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
                service.loaded[lane] = service.here(now)
                service.turn(lane, now, up=True)
        if now < self._next:
            return []
        since = now - self._window
        some = [(job, each) for job, each in sorted(self._services.items()) if not each.over]
        for _, service in some:
            service.end_window(now)
        self._next = now + self._window if self._goes_on() else NEVER
        return self._report(now, since, some)

    def _report(self, now: int, since: int, some: Sequence[tuple[int, _Service]]) -> list[AnyEvent]:
        """How some services did in the window that ends now."""
        told: list[tuple[int, Figures]] = []
        routers: dict[int, bytes] = {}
        for job, service in some:
            back = service.given_back(job)
            figures, busy = service.report(job, now)
            told.append((job, figures))
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
        return any(each.more for each in self._services.values() if not each.over)

    def happened(self, now: int, events: Sequence[AnyEvent]) -> list[AnyEvent]:
        """Replicas come, begin and end. Of a service that is over it is reported how it did since
        its last window."""
        over = [
            (event.job, self._services[event.job])
            for event in events
            if isinstance(event, Finished) and event.job in self._services
        ]
        over = [(job, each) for job, each in over if not each.over and each.since < now]
        for _, service in over:
            service.pass_time(now)
        last = self._report(now, max((each.since for _, each in over), default=now), over)
        for event in events:
            if isinstance(event, Accepted):
                more = event.job + 1 - len(self._models)
                self._models += [""] * more
                self._shares += [1.0] * more
                self._models[event.job] = event.spec.model
                self._shares[event.job] = event.spec.shape.roles[0].needs.share / WHOLE
                if event.spec.parent in self._names:
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
        model = self._models[job]
        ready = now + service.load_of(model)
        for lane in service.begin(job, types, self._shares[job], model):
            heappush(self._coming, (ready, self._service_of[job], job, lane))
        if self._next == NEVER:
            self._next = (now // self._window + 1) * self._window

    def _end(self, now: int, job: int, *, drains: bool) -> None:
        service = self._services.get(self._service_of.get(job, -1))
        if service is not None:
            service.end(now, job, drains=drains)

    def shares(self, job: int) -> set[float]:
        """Of devices: those that replicas of a service had."""
        service = self._services[job]
        return {service.world.lanes[lane].share for lane in service.loaded}

    def total_up(self, job: int) -> int:
        """Microseconds that replicas of a service were up, added up."""
        return self._services[job].total_up

    def close(self, now: int) -> None:
        """The simulation is over: what still waits is refused."""
        for service in self._services.values():
            service.close(now)
            service.finish()
