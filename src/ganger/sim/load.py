"""Requests as a fluid: so many come a second, so many a replica answers, the others queue."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence

from ganger.core.events import Accepted, AnyEvent, Failed, Finished, Released, Served, Started
from ganger.core.plan import AnyAction, Placement, Resize, Resume, Start, Stop, Suspend
from ganger.core.profiles import Load
from ganger.core.spec import Kind
from ganger.core.state.jobs import Declared
from ganger.core.units import NEVER, SECOND


class _Service:
    """One service since `begins` (microseconds)."""

    def __init__(self, load: Load, begins: int) -> None:
        self.load = load
        self.times = [begins + round(time * SECOND) for time in load.times]
        self.ends = self.times[-1]
        self.workers: dict[int, int] = {}
        """By replica that runs, or the service itself: how many workers it has."""
        self.queue = 0.0
        self.now = begins
        self.clear()

    def clear(self) -> None:
        """A window begins."""
        self.since = self.now
        self.arrivals = self.answered = self.could = 0.0

    def advance(self, now: int) -> None:
        """Let time pass with the replicas that there are."""
        while self.now < now:
            row = bisect_right(self.times, self.now)
            until = min(now, self.times[row]) if row < len(self.times) else now
            rate = self.load.rates[row - 1] if 0 < row < len(self.times) else 0.0
            seconds = (until - self.now) / SECOND
            came, could = rate * seconds, sum(self.workers.values()) * self.load.each * seconds
            before = self.queue
            self.queue = max(before + came - could, 0.0)
            self.arrivals += came
            self.answered += before + came - self.queue
            self.could += could
            self.now = until

    def figures(self) -> dict[str, float | None]:
        """What the window that ends now was like."""
        return {
            "arrivals": self.arrivals,
            "answered": self.answered,
            "queue": self.queue,
            "replicas": float(len(self.workers)),
            "busy": self.answered / self.could if self.could else None,
        }


class Fluid:
    """A host: the load of services, and what their replicas make of it, reported as `Served` after
    each `window` (microseconds) until the last time of the load's table. Latency is not modelled.

    A service whose recipe runs it whole, as one gang, answers with the workers of its first role.
    """

    def __init__(self, declared: Declared, loads: Mapping[str, Load], window: int) -> None:
        self._window = window
        self._services = {
            job: _Service(loads[declared.name(job)], int(declared.submitted[job]))
            for job in range(declared.n)
            if declared.kind[job] == Kind.SERVE and declared.name(job) in loads
        }
        self._names = {declared.name(job): job for job in self._services}
        self._service_of = {job: job for job in self._services}
        for job in range(declared.n):
            if int(declared.parent[job]) in self._services:
                self._service_of[job] = int(declared.parent[job])
        self._workers: dict[int, int] = {}
        """By job of a service: the workers that it was last started with."""
        self._next = self._first()

    def _first(self) -> int:
        begins = min((each.now for each in self._services.values()), default=NEVER)
        return (begins // self._window + 1) * self._window if begins < NEVER else NEVER

    def next_time(self) -> int:
        """The end of the window."""
        return self._next

    def advance(self, now: int) -> list[AnyEvent]:
        """The window ends."""
        told: list[tuple[int, dict[str, float | None]]] = []
        for job, service in sorted(self._services.items()):
            if service.since < now:
                service.advance(now)
                told.append((job, service.figures()))
                service.clear()
        last = max((each.ends for each in self._services.values()), default=0)
        self._next = now + self._window if now < last else NEVER
        if not told:
            return []
        names = told[0][1]
        columns = {name: tuple(figures[name] for _, figures in told) for name in names}
        return [Served(now - self._window, tuple(job for job, _ in told), columns)]

    def happened(self, now: int, events: Sequence[AnyEvent]) -> list[AnyEvent]:
        """Replicas come, begin and end; that is reported with the window."""
        for event in events:
            if isinstance(event, Accepted) and event.spec.parent in self._names:
                self._service_of[event.job] = self._names[event.spec.parent]
            elif isinstance(event, Started):
                self._turn(now, event.job, self._workers.get(event.job, 0))
            elif isinstance(event, Finished | Failed | Released):
                self._turn(now, event.job, 0)
                if event.job in self._services and isinstance(event, Finished):
                    del self._services[event.job]
        return []

    def planned(self, now: int, actions: Sequence[AnyAction]) -> None:
        """Replicas that are to stop answer nothing more."""
        for action in actions:
            if isinstance(action, Start | Resize):
                self._workers[action.job] = workers(action.placement)
            if isinstance(action, Stop | Suspend | Resize):
                self._turn(now, action.job, 0)
            elif isinstance(action, Resume):
                self._turn(now, action.job, self._workers.get(action.job, 0))

    def _turn(self, now: int, job: int, number: int) -> None:
        """The job answers with so many workers from now on."""
        service = self._services.get(self._service_of.get(job, -1))
        if service is not None:
            service.advance(now)
            service.workers.pop(job, None)
            if number:
                service.workers[job] = number


def workers(placement: Placement) -> int:
    """The workers of the first role."""
    return sum(slot.workers for slot in placement if not slot.role)
