"""What a report draws of a run over time, in constant memory: equal windows that become longer as
the run does, latencies by model, and the batches of two short stretches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ganger.core.serving.verbs import Batch, Load
from ganger.core.serving.world import ANSWERED, Lane, World
from ganger.core.units import SECOND
from ganger.lab.serving.distribution import Latencies

I64 = NDArray[np.int64]
F64 = NDArray[np.float64]
WINDOWS: Final = 256
"""Most windows of a run; at the end at least half of them are in use."""
BATCHES: Final = 240
"""Batches (and loads) of a stretch that is drawn."""
MODELS: Final = 64
"""So many models have latencies of their own."""
_FEW: Final = 1 << 16
"""Latencies of a model that are kept one by one."""
_QUANTILES: Final = 200
_FIRST: Final = 1000
"""Microseconds of a window to begin with."""


class Box(NamedTuple):
    """What a lane did: microseconds; `size` 0 for a load of a model."""

    lane: int
    began: int
    ended: int
    model: int
    size: int
    reason: str
    outcome: str


@dataclass
class Watched:
    """What was seen. `width`: seconds of a window; `windows`: by name a number for each.

    arrivals, in_time (of those that arrived in it), open (requests in the system, mean), busy
    (lanes, mean), batches (that began in it), executed (requests in them). `within`: seconds, and
    the part of all requests that was answered in no more. `stretches`: by name, boxes in order of
    their begin. `lanes`: type and whether it copies.
    """

    width: float
    windows: dict[str, list[float]]
    within: tuple[list[float], list[float]]
    by_model: dict[str, dict[str, float | None]]
    stretches: dict[str, list[Box]]
    lanes: list[tuple[str, bool]]
    models: list[str] = field(default_factory=list)


class _Windows:
    """Sums by window of time; windows double when time outgrows them."""

    def __init__(self) -> None:
        self.width = _FIRST
        self.sums: dict[str, F64] = {}

    def reach(self, at: int) -> None:
        """There is a window for this moment."""
        while at >= self.width * WINDOWS:
            self.width *= 2
            for name, values in self.sums.items():
                halves = values.reshape(-1, 2).sum(axis=1)
                self.sums[name] = np.concatenate((halves, np.zeros(WINDOWS - len(halves))))

    def _of(self, name: str) -> F64:
        return self.sums.setdefault(name, np.zeros(WINDOWS))

    def count(self, name: str, at: I64, weights: NDArray[Any] | None = None) -> None:
        """Add 1, or a weight, to the window of each moment."""
        found = self._of(name)
        found += np.bincount(at // self.width, weights, minlength=WINDOWS)

    def lasted(self, name: str, began: I64, ended: I64) -> None:
        """Add to every window how many microseconds of these spans lie in it."""
        edges = np.arange(WINDOWS + 1, dtype=np.float64) * self.width
        found = self._of(name)
        found += np.diff(_before(edges, began) - _before(edges, ended))


def _before(edges: F64, moments: I64) -> F64:
    """Of each edge, how much later than the moments before it, added up."""
    moments = np.sort(moments)
    totals = np.concatenate(([0.0], np.cumsum(moments, dtype=np.float64)))
    passed = np.searchsorted(moments, edges)
    return edges * passed - totals[passed]


class Watching:
    """Watches a plane for a report."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._windows = _Windows()
        self._last: list[Box] = []
        self._first: list[Box] | None = None
        self._busiest: tuple[float, list[Box]] = (-1.0, [])
        self._latencies: dict[int, Latencies] = {}

    def ran(self, lane: Lane, order: Batch | Load, began: int, ended: int, outcome: str) -> None:
        """A lane was busy."""
        if isinstance(order, Load):
            box = Box(lane.number, began, ended, order.model, 0, "load", outcome)
        else:
            parts = order.parts
            size = sum(len(part.tasks) for part in parts if not part.last)
            box = Box(lane.number, began, ended, parts[0].model, size, order.reason, outcome)
        self._last.append(box)
        if len(self._last) == BATCHES:
            self._fold()

    def _fold(self) -> None:
        """Boxes that are full become sums; those of the first and the busiest stretch are kept."""
        boxes, self._last = self._last, []
        if not boxes:
            return
        if self._first is None:
            self._first = boxes
        span = max(box.ended for box in boxes) - min(box.began for box in boxes)
        rate = sum(box.size for box in boxes) / max(span, 1)
        if rate > self._busiest[0] and len(boxes) * 2 > BATCHES:
            self._busiest = (rate, boxes)
        runs = [box for box in boxes if box.size]
        began, ended, size = (
            np.array(column, np.int64)
            for column in (
                [box.began for box in runs],
                [box.ended for box in runs],
                [box.size for box in runs],
            )
        )
        if len(runs):
            self._windows.reach(int(ended.max()))
            self._windows.lasted("busy", began, ended)
            self._windows.count("batches", began)
            self._windows.count("executed", began, size)

    def settled(self, world: World, count: int) -> None:
        """The first `count` rows are over."""
        if not count:
            return
        requests = world.requests
        arrival, ended, deadline, asked = (
            np.array(column[:count], np.int64)
            for column in (requests.arrival, requests.ended, requests.deadline, requests.model)
        )
        answered = np.frombuffer(bytes(requests.outcome[:count]), np.uint8) == ANSWERED
        windows = self._windows
        windows.reach(int(max(ended.max(), arrival[-1])))
        windows.count("arrivals", arrival)
        windows.count("in_time", arrival[answered & (ended <= deadline)])
        windows.lasted("open", arrival, ended)
        for code in np.unique(asked).tolist():
            if code < MODELS:
                if code not in self._latencies:
                    self._latencies[code] = Latencies(_FEW)
                here = answered & (asked == code)
                self._latencies[code].add((ended - arrival)[here])

    def found(self, latencies: Latencies, requests: int) -> Watched:
        """What was seen of a run that is over; `latencies` of all that were answered, of so many
        `requests`."""
        self._fold()
        windows, world = self._windows, self._world
        used = int(np.flatnonzero(sum(windows.sums.values(), np.zeros(WINDOWS)))[-1]) + 1
        means = {"open", "busy"}
        stretches = {"the busiest stretch": self._busiest[1]}
        if self._first is not None and self._first is not self._busiest[1]:
            stretches = {"the beginning": self._first, **stretches}
        return Watched(
            windows.width / SECOND,
            {
                name: (values[:used] / (windows.width if name in means else 1)).tolist()
                for name, values in windows.sums.items()
            },
            _within(latencies, requests),
            {world.asked(code): _figures(each) for code, each in sorted(self._latencies.items())},
            {
                name: sorted(boxes, key=lambda box: (box.began, box.lane))
                for name, boxes in stretches.items()
                if boxes
            },
            [(lane.type, lane.copies) for lane in world.lanes],
            [model.name for model in world.models],
        )


def _within(latencies: Latencies, requests: int) -> tuple[list[float], list[float]]:
    """Points of the distribution of latencies; what was not answered keeps it below 1."""
    if not latencies.count:
        return [], []
    shares = np.linspace(0, 1, _QUANTILES).tolist()
    part = latencies.count / requests
    return (
        [value / SECOND for value in latencies.quantiles(shares)],
        [share * part for share in shares],
    )


def _figures(latencies: Latencies) -> dict[str, float | None]:
    shares: Sequence[float] = (0.5, 0.95, 0.99)
    names = ("latency_p50_seconds", "latency_p95_seconds", "latency_p99_seconds")
    return {
        name: None if value != value else value / SECOND
        for name, value in zip(names, latencies.quantiles(shares), strict=True)
    }
