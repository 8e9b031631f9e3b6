"""How services do, window by window: what their replicas tell of themselves, and their fronts of
them, becomes facts, from which recipes decide how many there should be.

A front is a process of a user that spreads requests over the replicas of a service. It counts all
requests, also those that no replica got; so where it tells of a window, it alone is believed.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from math import isfinite
from typing import Final

import numpy as np

from ganger.core.events import Served
from ganger.core.kernel import Kernel
from ganger.core.spec import Kind
from ganger.core.state.jobs import Phase
from ganger.core.units import NEVER, SECOND
from ganger.engines.agent.protocol import Progress

SUMS: Final = ("arrivals", "answered", "late", "dropped")
"""What replicas count from their start on."""
LEVELS: Final = ("ongoing", "queue")
"""What they tell as it is now; a service has the sum of its replicas."""
LATENCIES: Final = ("p50", "p99")
"""In seconds; a service has those of its worst replica."""
EARLY: Final = SECOND
"""A service's window ends early at most once in so many microseconds."""
MOST: Final = 1e15
"""No figure of a window is larger: recipes count with products of them."""
BUSY: Final = "busy_seconds"
SPAN: Final = "seconds"
"""The time that a replica has told of: reports come a little late, so it is not the window's."""


class Front:
    """What the front of one service has reported."""

    def __init__(self, new: bool) -> None:
        """`new`: whether all that it has counted came since this daemon began."""
        self._new = new
        self._counts: dict[str, float] = {}
        self._sums: dict[str, float] = {}
        self._levels: dict[str, float] = {}
        self.window_ended = -1
        """When the service's window ended early, since the last one of all services."""
        self.due = NEVER
        """When it is to end early."""

    def take(self, figures: Mapping[str, float]) -> None:
        """Take what it has counted since its start, and its levels now. Where it has counted less
        than before, it was started again."""
        sums = {name: figures[name] for name in SUMS if name in figures}
        if any(now < self._counts.get(name, 0.0) for name, now in sums.items()):
            self._counts = {}
        for name, now in sums.items() if self._new else ():
            more = now - self._counts.get(name, 0.0)
            self._sums[name] = min(self._sums.get(name, 0.0) + more, MOST)
        self._new = True
        self._counts.update(sums)
        self._levels |= {name: value for name, value in figures.items() if name not in SUMS}

    def window(self) -> dict[str, float]:
        """What it reported since the window before; empty if nothing."""
        figures = {**self._sums, **self._levels}
        self._sums, self._levels, self.due = {}, {}, NEVER
        return figures


class Windows:
    """Windows of `every` microseconds for all services that run. What a front tells may come from
    any thread."""

    def __init__(self, every: int) -> None:
        self._every = every
        self._since = self._began = -1
        self._seen: dict[int, tuple[int, dict[str, float]]] = {}
        """By replica: its attempt, and what it had told when the last window ended."""
        self._fronts: dict[int, Front] = {}
        self._lock = threading.Lock()

    def next(self, serving: str, now: int) -> int:
        """When a window ends, the first of which begins now; never where no recipe decides over
        services."""
        if self._since < 0:
            self._since = self._began = now
        with self._lock:
            early = [front.due for front in self._fronts.values()]
        return min([self._since + self._every, *early]) if serving else NEVER

    def tell(self, service: int, figures: Mapping[str, float], kernel: Kernel, now: int) -> bool:
        """The front of a service that runs tells of it: of `SUMS`, `LEVELS` and `LATENCIES`, none
        negative nor more than `MOST`. Whether its window is to end early: a request waits, and
        there is no replica, nor one asked for."""
        jobs = kernel.jobs
        phases = jobs.phase[: jobs.n][jobs.parent[: jobs.n] == service]
        alone = not (phases < Phase.STOPPING).any() and not kernel.settings.spawning.get(service)
        with self._lock:
            front = self._fronts.get(service)
            if front is None:
                new = 0 <= self._began <= int(jobs.began[service])
                front = self._fronts[service] = Front(new)
            front.take(figures)
            if alone and any(figures.get(name, 0.0) > 0 for name in LEVELS):
                before = front.window_ended
                front.due = min(front.due, now if before < 0 else max(now, before + EARLY))
            return front.due < NEVER

    def ended(self, now: int, kernel: Kernel, progress: Mapping[int, Progress]) -> list[Served]:
        """The window ends, or that of services which cannot wait: events if any replica or front
        reported something new. A figure that none reported is not in them; the latencies are the
        worst replica's, the share of time in which they worked is always theirs."""
        jobs, whole = kernel.jobs, now >= self._since + self._every
        serves = jobs.kind[: jobs.n] == Kind.SERVE
        live = serves & (jobs.parent[: jobs.n] < 0) & (jobs.phase[: jobs.n] == Phase.RUNNING)
        windows = dict[int, dict[int, dict[str, float]]]()
        for service in np.flatnonzero(live).tolist():
            front = self._fronts.get(service)
            if not whole and (front is None or front.due > now):
                continue
            replicas = np.flatnonzero(jobs.parent[: jobs.n] == service).tolist()
            figures = self._figures(kernel, [row for row in replicas if row in progress], progress)
            since = self._since
            if front is not None:
                with self._lock:
                    figures = _believed(front.window(), figures)
                    since = max(since, front.window_ended)
                    front.window_ended = -1 if whole else now
            if figures:
                running = int((jobs.phase[replicas] == Phase.RUNNING).sum())
                windows.setdefault(since, {})[service] = _per_window(figures, running)
        with self._lock:
            self._fronts = {row: front for row, front in self._fronts.items() if live[row]}
        if whole:
            self._since = now
        return [_event(since, each) for since, each in sorted(windows.items())]

    def _figures(
        self, kernel: Kernel, replicas: list[int], progress: Mapping[int, Progress]
    ) -> dict[str, float]:
        """What the replicas of one service told of this window, together."""
        jobs, found = kernel.jobs, dict[str, float]()
        for row in replicas:
            attempt, now = progress[row].key.attempt, progress[row].served
            known = self._seen.get(row)
            self._seen[row] = attempt, now
            if known is None and jobs.began[row] < self._began:
                continue  # it ran before this daemon: what of that was told is not known
            before = known[1] if known is not None and known[0] == attempt else {}
            if now == before:
                continue
            for name in (*SUMS, BUSY, SPAN):
                if name in now:
                    more = max(now[name] - before.get(name, 0.0), 0.0)
                    found[name] = found.get(name, 0.0) + more
            if jobs.phase[row] != Phase.RUNNING:
                continue
            for name in LEVELS:
                if name in now:
                    found[name] = found.get(name, 0.0) + now[name]
            for name in LATENCIES:
                if name in now:
                    found[name] = max(found.get(name, 0.0), now[name])
        return {name: min(value, MOST) for name, value in found.items() if isfinite(value)}


def _event(since: int, services: dict[int, dict[str, float]]) -> Served:
    """The windows of services that began at the same time."""
    names = sorted({name for figures in services.values() for name in figures})
    rows = services.values()
    columns = {name: tuple(figures.get(name) for figures in rows) for name in names}
    return Served(since, tuple(services), columns)


def _believed(front: dict[str, float], replicas: dict[str, float]) -> dict[str, float]:
    """Of a service what its front told, and what of its replicas' it cannot know; where it told
    nothing, the replicas' figures."""
    if not front:
        return replicas
    return {name: replicas[name] for name in (BUSY, SPAN) if name in replicas} | front


def _per_window(figures: dict[str, float], running: int) -> dict[str, float]:
    """The same with the share of time in which the replicas worked, and how many there are."""
    worked, seconds = figures.pop(BUSY, None), figures.pop(SPAN, 0.0)
    if worked is not None and seconds > 0.0:
        figures["busy"] = min(worked / seconds, 1.0)
    return {**figures, "replicas": float(running)}
