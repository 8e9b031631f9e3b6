"""What no recipe can exceed: a bound on the requests that a fleet can answer in time.

The relaxation: work is divisible and preemptible, an input costs the least that it costs in any
batch, all lanes may work on one request, and the part of a request that was done by its deadline
counts. A request that could not be in time even alone on an idle lane counts nothing. Latencies are
the means: a run with noise may be a little above it by luck. Of a pipeline only those items of its
stages count that there are whatever the lot says, and no stage waits for another.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from heapq import heappop, heappush
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ganger.core.errors import InvariantError
from ganger.core.serving.world import Known, Pipeline
from ganger.core.units import NEVER, SECOND
from ganger.mechanisms.serving.pipeline import rests

WINDOW: Final = 10_000
"""Requests of one linear programme."""
_SLICES: Final = 64
"""Pieces of time of one; what a request's time touches of a piece, it may use."""
_VARIABLES: Final = 100_000
_DONE: Final = 1e-9
_MANY: Final = 1e12
Columns = Mapping[str, Sequence[int]]
F64 = NDArray[np.float64]
I64 = NDArray[np.int64]


class Bound(NamedTuple):
    """`requests` that came, the most that can be in time, and the seconds in which they came."""

    requests: int
    in_time: float
    span_seconds: float

    @property
    def attainment(self) -> float:
        """As a part of all requests."""
        return min(self.in_time / self.requests, 1.0) if self.requests else 1.0

    @property
    def goodput_per_second(self) -> float | None:
        """As requests a second; None where all came at once."""
        return self.in_time / self.span_seconds if self.span_seconds else None


class Rates:
    """What devices can do at best. `each`: by what is asked for and type of device, microseconds of
    an input (infinite where it does not run); `counts`: devices by type. `variants`: by what is
    asked for, the models that can answer; `streams`: batches that run on a device at once. Of
    those that run, the i-th that began has at least i - 1 beside it. `pipelines`: asked for by the
    last codes; `share`: of each device."""

    def __init__(
        self,
        known: Sequence[Known],
        devices: Sequence[tuple[str, int]],
        variants: Sequence[Sequence[int]],
        streams: int = 1,
        pipelines: Sequence[Pipeline] = (),
        share: float = 1.0,
    ) -> None:
        self.counts = np.array([count for _, count in devices], np.float64)
        self.each = np.full((len(variants), len(devices)), np.inf)
        self._floor: list[F64] = []
        for at, models in enumerate(variants):
            found = [
                (
                    column,
                    np.array(known[model].latencies[name, share].mean, np.float64),
                    _together(known[model].beside.get((name, share), ()), streams),
                )
                for model in models
                for column, (name, _) in enumerate(devices)
                if (name, share) in known[model].latencies
            ]
            floor = np.full(max((len(mean) for _, mean, _ in found), default=1), np.inf)
            for column, mean, times in found:
                least = (mean[1:] / np.arange(1, len(mean))).min() / times
                self.each[at, column] = min(self.each[at, column], least)
                np.minimum(floor[: len(mean)], mean, out=floor[: len(mean)])
            self._floor.append(floor)
        for at, pipeline in enumerate(pipelines, len(variants) - len(pipelines)):
            self._add(at, pipeline)

    def _add(self, at: int, pipeline: Pipeline) -> None:
        """A pipeline as one model. Whatever part of each stage is done on which type, `shared`
        makes parts of the whole of them, and no type does so many at less than the cost here; with
        one type it is what the stages cost."""
        times = np.array(_certain(pipeline), np.float64)
        some = np.flatnonzero(times)
        cost = times[some, None] * self.each[[pipeline.stages[stage].model for stage in some]]
        runs = np.isfinite(cost)
        part = np.where(runs, cost, 0.0)
        part = part / np.maximum(part.sum(axis=0), 1e-300)
        shared = part.sum(axis=1) / np.maximum(runs.sum(axis=1), 1)
        shared = np.maximum(shared, 1e-12) / np.maximum(shared, 1e-12).sum()
        self.each[at] = (cost / shared[:, None]).min(axis=0)
        alone = [
            float(self._floor[stage.model][1:].min(initial=np.inf)) if count else 0.0
            for stage, count in zip(pipeline.stages, times, strict=True)
        ]
        self._floor[at] = np.array([0.0, max(rests(pipeline, alone))])

    def rate(self, model: int) -> float:
        """Inputs a microsecond, of all devices."""
        return float((self.counts / self.each[model]).sum())

    def possible(self, model: I64, items: I64, slack: I64) -> NDArray[np.bool_]:
        """Which requests could be in time alone. One that is larger than any batch may be cut."""
        found = np.empty(len(model), np.bool_)
        for code in np.unique(model).tolist():
            here = np.flatnonzero(model == code)
            floor = self._floor[code]
            inside = items[here] < len(floor)
            least = np.where(inside, floor[np.minimum(items[here], len(floor) - 1)], 0.0)
            found[here] = slack[here] >= least
        return found


def _certain(pipeline: Pipeline) -> list[int]:
    """Items of each stage, at least, for an item of a request."""
    found = [0 if stage.after else 1 for stage in pipeline.stages]
    for at, stage in enumerate(pipeline.stages):
        for to, items in stage.feeds:
            found[to] = max(found[to], int(min(found[at] * items, _MANY)))
    return found


def _together(beside: Sequence[float], streams: int) -> float:
    """How many times as much a device does with so many batches at once."""
    if not beside:
        return 1.0
    return 1.0 + sum(1 / beside[min(at, len(beside) - 1)] for at in range(streams - 1))


def bounded(chunks: Iterator[Columns], rates: Rates) -> Bound:
    """Of requests in order of arrival, as columns of the plane. Exact for the relaxation while they
    are of one model and bring one input each; a linear programme for every WINDOW of them else."""
    requests, in_time, first, last = 0, 0.0, 0, 0
    fluid: _Fluid | None = None
    left: list[I64] = []
    simple = True
    for chunk in chunks:
        arrival = np.array(chunk["arrival"], np.int64)
        model = np.array(chunk["model"], np.int64)
        due = np.array(chunk.get("deadline", [NEVER] * len(arrival)), np.int64)
        items = np.array(chunk.get("items", [1] * len(arrival)), np.int64)
        if not len(arrival):
            continue
        first = first if requests else int(arrival[0])
        last, requests = int(arrival[-1]), requests + len(arrival)
        in_time += float((due == NEVER).sum())
        able = (due < NEVER) & rates.possible(model, items, due - arrival)
        rows = np.stack((arrival, due, model, items))[:, able]
        if simple and (rows[3] == 1).all() and len(np.unique(rows[2])) <= 1:
            if rows.size and (fluid is None or fluid.model == rows[2, 0]):
                fluid = fluid or _Fluid(int(rows[2, 0]), rates.rate(int(rows[2, 0])))
                fluid.come(rows[0].tolist(), rows[1].tolist())
                continue
            if not rows.size:
                continue
        simple = False
        left.append(rows)
        while sum(each.shape[1] for each in left) >= WINDOW:
            every = np.concatenate(left, axis=1)
            in_time += _programme(every[:, :WINDOW], rates)
            left = [every[:, WINDOW:]]
    if fluid is not None:
        in_time += fluid.finish()
    rest = np.concatenate(left, axis=1) if left else np.zeros((4, 0), np.int64)
    if rest.shape[1]:
        in_time += _programme(rest, rates)
    return Bound(requests, in_time, (last - first) / SECOND)


class _Fluid:
    """The earliest deadline first, at `rate` requests a microsecond: no other order serves more of
    the requests by their deadlines."""

    def __init__(self, model: int, rate: float) -> None:
        self.model, self._rate = model, rate
        self._now, self._came, self._lost = 0.0, 0, 0.0
        self._open: list[tuple[int, float]] = []

    def come(self, arrivals: Sequence[int], deadlines: Sequence[int]) -> None:
        """More requests."""
        self._came += len(arrivals)
        for at, due in zip(arrivals, deadlines, strict=True):
            self._run(at)
            heappush(self._open, (due, 1.0))

    def finish(self) -> float:
        """What is served by its deadline in all."""
        self._run(NEVER)
        return self._came - self._lost

    def _run(self, until: float) -> None:
        """Serve until then."""
        waiting, rate = self._open, self._rate
        while waiting and self._now < until:
            due, part = heappop(waiting)
            ends = min(self._now + part / rate, due, until)
            left = part - max(ends - self._now, 0.0) * rate
            self._now = max(self._now, ends)
            if left <= _DONE:
                continue
            if ends < due:
                heappush(waiting, (due, left))
            else:
                self._lost += left  # it is too late for this one
        self._now = max(self._now, until)


def _programme(rows: I64, rates: Rates) -> float:
    """The most of these requests (arrival, deadline, model, items) that can be in time, with time
    in pieces; those of one model and size that may use the same pieces are one row."""
    from scipy.optimize import linprog  # a third of a second, for those that ask for a bound
    from scipy.sparse import coo_array

    arrival, due, model, items = rows
    begins, ends = int(arrival.min()), int(due.max())
    pieces = _SLICES
    while True:
        width = max((ends - begins) / pieces, 1.0)
        first = ((arrival - begins) / width).astype(np.int64).clip(0, pieces - 1)
        last = (np.ceil((due - begins) / width).astype(np.int64) - 1).clip(first, pieces - 1)
        groups, count = np.unique(np.stack((model, items, first, last)), axis=1, return_counts=True)
        span = groups[3] - groups[2] + 1
        if pieces == 1 or span.sum() * len(rates.counts) <= _VARIABLES:
            break
        pieces //= 2
    of = np.repeat(np.arange(len(span)), span)
    piece = np.arange(len(of)) - np.repeat(np.cumsum(span) - span, span) + groups[2][of]
    types = len(rates.counts)
    of, piece = np.repeat(of, types), np.repeat(piece, types)
    type_ = np.tile(np.arange(types), len(of) // types)
    cost = rates.each[groups[0][of], type_] * groups[1][of]
    runs = np.isfinite(cost)
    of, piece, type_, cost = of[runs], piece[runs], type_[runs], cost[runs]
    at = np.arange(len(of))
    capacity = len(count) + piece * types + type_
    limits: Any = coo_array(
        (
            np.concatenate((np.ones(len(of)), cost)),
            (np.concatenate((of, capacity)), np.concatenate((at, at))),
        ),
        shape=(len(count) + pieces * types, len(of)),
    ).tocsr()
    most: Any = np.concatenate((count, np.tile(rates.counts * width, pieces)))
    solved = linprog(np.full(len(of), -1.0), A_ub=limits, b_ub=most, method="highs")
    if solved.fun is None:
        raise InvariantError(f"the bound was not found: {solved.message}")
    return -float(solved.fun)
