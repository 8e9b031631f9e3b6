"""How services do, window by window: what their replicas tell of themselves becomes facts, from
which recipes decide how many there should be."""

from __future__ import annotations

from collections.abc import Mapping
from math import isfinite
from typing import Final

import numpy as np

from ganger.core.events import Served
from ganger.core.kernel import Kernel
from ganger.core.spec import Kind
from ganger.core.state.jobs import Phase
from ganger.core.units import NEVER
from ganger.engines.agent.protocol import Progress

SUMS: Final = ("arrivals", "answered", "late", "dropped")
"""What replicas count from their start on."""
LEVELS: Final = ("ongoing", "queue")
"""What they tell as it is now; a service has the sum of its replicas."""
MOST: Final = 1e15
"""No figure of a window is larger: recipes count with products of them."""
BUSY: Final = "busy_seconds"
SPAN: Final = "seconds"
"""The time that a replica has told of: reports come a little late, so it is not the window's."""


class Windows:
    """Windows of `every` microseconds for all services that run."""

    def __init__(self, every: int) -> None:
        self._every = every
        self._since = self._began = -1
        self._seen: dict[int, tuple[int, dict[str, float]]] = {}
        """By replica: its attempt, and what it had told when the last window ended."""

    def next(self, serving: str, now: int) -> int:
        """When the window ends, the first of which begins now; never where no recipe decides over
        services."""
        if self._since < 0:
            self._since = self._began = now
        return self._since + self._every if serving else NEVER

    def ended(self, now: int, kernel: Kernel, progress: Mapping[int, Progress]) -> list[Served]:
        """The window ends: an event if any replica reported something new. A figure that none
        reported is not in it; the latencies are the worst replica's."""
        jobs, since, told = kernel.jobs, self._since, dict[int, dict[str, float]]()
        self._since = now
        serves = jobs.kind[: jobs.n] == Kind.SERVE
        live = serves & (jobs.parent[: jobs.n] < 0) & (jobs.phase[: jobs.n] == Phase.RUNNING)
        for service in np.flatnonzero(live).tolist():
            replicas = np.flatnonzero(jobs.parent[: jobs.n] == service).tolist()
            figures = self._figures(kernel, [row for row in replicas if row in progress], progress)
            if figures:
                running = int((jobs.phase[replicas] == Phase.RUNNING).sum())
                told[service] = _per_window(figures, running)
        if not told:
            return []
        names = sorted({name for figures in told.values() for name in figures})
        columns = {name: tuple(told[job].get(name) for job in told) for name in names}
        return [Served(since, tuple(told), columns)]

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
            for name in ("p50", "p99"):
                if name in now:
                    found[name] = max(found.get(name, 0.0), now[name])
        return {name: min(value, MOST) for name, value in found.items() if isfinite(value)}


def _per_window(figures: dict[str, float], running: int) -> dict[str, float]:
    """The same with the share of time in which the replicas worked, and how many there are."""
    worked, seconds = figures.pop(BUSY, None), figures.pop(SPAN, 0.0)
    if worked is not None and seconds > 0.0:
        figures["busy"] = min(worked / seconds, 1.0)
    return {**figures, "replicas": float(running)}
