"""What no recipe can exceed: a bound on the requests that a fleet can answer in time.

The relaxation: work is divisible and preemptible, an input costs the least that it costs in any
batch that can be in time (`costs`), all lanes may work on one request, and the part of a request
that was done by its deadline counts. A request that could not be in time even alone on an idle lane
counts nothing. Times are expected ones: a run with noise may be a little above it by luck. Of a
pipeline no stage waits for another; it has as many items as in the run. What requests to token
models take at least: `tokens`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from heapq import heappop, heappush
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ganger.core.errors import InvariantError
from ganger.core.units import NEVER, SECOND
from ganger.lab.serving.yardsticks.rates import Asked, Rates

WINDOW: Final = 10_000
"""Requests of one linear programme."""
COARSE: Final = 1_000_000
"""The same of a log that is so long that its windows are read from a table."""
_SLICES: Final = 64
"""Pieces of time of one; what a request's time touches of a piece, it may use."""
_VARIABLES: Final = 100_000
_DONE: Final = 1e-9
_FREE: Final = 1e-6
"""Microseconds of what costs nothing."""
_ALIKE: Final = 0.01
"""Where there are more than `_APART`, costs are told apart to this part of them, and rounded
down."""
_APART: Final = 64
_COLUMNS: Final = {"items": 1, "prompt": 0, "output": 0}
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


def bounded(
    chunks: Iterator[Columns], rates: Rates, *, coarse: bool = False, begins: int = 0
) -> Bound:
    """Of requests in order of arrival, as columns of the plane. Exact for the relaxation while they
    are of one model, bring one input each, and cost alike; a linear programme for every WINDOW of
    them else, or for every COARSE window. No device runs before `begins` (microseconds)."""
    bounding = Bounding(rates, coarse=coarse, begins=begins)
    for chunk in chunks:
        bounding.add(asked_of(chunk, bounding.requests))
    return bounding.bound()


class Bounding:
    """Finds it while requests come."""

    def __init__(self, rates: Rates, *, coarse: bool, begins: int) -> None:
        self._rates, self._begins = rates, begins
        self.requests, self._in_time, self._first, self._last = 0, 0.0, 0, 0
        self._single = self._alike = not rates.speaks and not coarse
        """Whether all are of one model and bring one input each; and cost the same."""
        self._whole: _Fluid | None = None
        """Those of the one model, as if each had all the time that a batch takes."""
        self._fluid: _Fluid | None = None
        """Those that cost the same, where that is more."""
        self._cost: F64 = np.zeros(0)
        self._waiting: list[Asked] = []
        self._solved = 0.0
        self._window = COARSE if coarse else WINDOW

    def add(self, asked: Asked) -> None:
        """More of them, in order."""
        if not len(asked.arrival):
            return
        rates = self._rates
        asked = rates.dated(asked)
        self._first = self._first if self.requests else int(asked.arrival[0])
        self._last = int(asked.arrival[-1])
        self.requests += len(asked.arrival)
        asked = asked._replace(arrival=np.maximum(asked.arrival, self._begins))
        able, dated = rates.possible(asked), np.minimum(asked.due, asked.first) < NEVER
        self._in_time += float((able & ~dated).sum())
        rows = asked.take(able & dated)
        if not len(rows.model) or self._flow(rows):
            return
        waiting, window = [*self._waiting, rows], self._window
        while sum(len(each.model) for each in waiting) >= window:
            every = _joined(waiting)
            self._solved += _programme(every.take(slice(0, window)), rates)
            waiting = [every.take(slice(window, None))]
        self._waiting = waiting

    def _flow(self, rows: Asked) -> bool:
        """Serve them the earliest deadline first; whether that is all that is needed, since those
        so far cost the same."""
        rates, model = self._rates, int(rows.model[0])
        code = model if self._whole is None else self._whole.model
        self._single = self._single and bool((rows.items == 1).all() and (rows.model == code).all())
        if self._alike:
            costs = rates.costs(rows) if self._single else np.zeros((1, 0))
            first = costs[0] if self._whole is None else self._cost
            self._alike = self._single and bool((costs == first).all())
            if not self._alike and self._fluid is None and self._whole is not None:
                self._fluid = self._whole.fork()
        arrivals, dues = rows.arrival.tolist(), rows.due.tolist()
        if self._alike and self._whole is None:
            self._cost = costs[0]
            if (self._cost > rates.each[model]).any():
                self._fluid = _Fluid(model, rates.rate_at(self._cost))
        if self._alike and self._fluid is not None:
            self._fluid.come(arrivals, dues)
        if self._single:
            self._whole = self._whole or _Fluid(model, rates.rate(model))
            self._whole.come(arrivals, dues)
        return self._alike

    def bound(self) -> Bound:
        """Of all that came."""
        solved = self._solved
        if any(len(each.model) for each in self._waiting):
            solved += _programme(_joined(self._waiting), self._rates)
        if self._fluid is not None:
            solved += self._fluid.finish()
        if self._single and self._whole is not None:
            whole = self._whole.finish()
            solved = whole if self._alike and self._fluid is None else min(whole, solved)
        in_time = self._in_time + solved
        return Bound(self.requests, in_time, (self._last - self._first) / SECOND)


def asked_of(chunk: Columns, before: int) -> Asked:
    """The columns of a chunk, those that it lacks as they are where nobody states them; `before`:
    how many requests came before it."""
    count = len(chunk["arrival"])
    stated = [
        np.array(chunk.get(name, [blank] * count), np.int64) for name, blank in _COLUMNS.items()
    ]
    return Asked(
        np.array(chunk["arrival"], np.int64),
        np.array(chunk.get("deadline", [NEVER] * count), np.int64),
        np.full(count, NEVER),
        np.array(chunk["model"], np.int64),
        *[*stated, np.arange(before, before + count)],
    )


def _joined(some: Sequence[Asked]) -> Asked:
    return Asked(*(np.concatenate(columns) for columns in zip(*some, strict=True)))


class _Fluid:
    """The earliest deadline first, at `rate` requests a microsecond: no other order serves more of
    the requests by their deadlines."""

    def __init__(self, model: int, rate: float) -> None:
        self.model, self._rate = model, rate
        self._now, self._came, self._lost = 0.0, 0, 0.0
        self._open: list[tuple[int, float]] = []

    def fork(self) -> _Fluid:
        """Another one that is as far, and goes on by itself."""
        other = copy(self)
        other._open = self._open.copy()
        return other

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
            ends, cut = self._now + part / rate, min(due, until)
            left = part - max(min(ends, cut) - self._now, 0.0) * rate
            self._now = max(self._now, min(ends, cut))
            if ends <= cut or left <= _DONE:  # late in a log a moment may pass without a tick
                continue
            if cut < due:
                heappush(waiting, (due, left))
            else:
                self._lost += left  # it is too late for this one
        self._now = max(self._now, until)


def _programme(asked: Asked, rates: Rates) -> float:
    """The most of these requests that can be in time: the least by any measure."""
    bounds = []
    for some, costs in rates.measures(asked):
        dated = some.due < NEVER
        solved = _solved(some.take(dated), rates, costs[dated]) if dated.any() else 0.0
        bounds.append(solved + float((~dated).sum()))
    return min(bounds)


def _kinds(cost: F64) -> tuple[I64, F64]:
    """Which requests cost alike, and what the kinds cost by type."""
    each, kind = np.unique(cost, axis=0, return_inverse=True)
    if len(each) <= _APART:
        return kind.ravel(), each
    with np.errstate(divide="ignore", invalid="ignore"):
        steps = np.floor(np.log(np.maximum(cost, _FREE)) / np.log1p(_ALIKE))
    rough = np.where(np.isfinite(cost), steps, np.inf)
    kinds, kind = np.unique(rough, axis=0, return_inverse=True)
    return kind.ravel(), np.exp(kinds * np.log1p(_ALIKE))


def _solved(asked: Asked, rates: Rates, costs: F64) -> float:
    """The most that can be in time, with time in pieces; requests that cost alike and may use the
    same pieces are one row."""
    kind, each = _kinds(costs)
    begins, ends = int(asked.arrival.min()), int(asked.due.max())
    pieces = _SLICES
    while True:
        width = max((ends - begins) / pieces, 1.0)
        first = ((asked.arrival - begins) / width).astype(np.int64).clip(0, pieces - 1)
        last = np.ceil((asked.due - begins) / width).astype(np.int64) - 1
        last = last.clip(first, pieces - 1)
        code, count = np.unique((kind * pieces + first) * pieces + last, return_counts=True)
        kinds, begin = np.divmod(code // pieces, pieces)
        span = code % pieces - begin + 1
        if pieces == 1 or span.sum() * len(rates.counts) <= _VARIABLES:
            break
        pieces //= 2
    cost = each[kinds]
    begin = np.repeat(begin, span) + np.arange(span.sum()) - np.repeat(np.cumsum(span) - span, span)
    return _most(np.repeat(np.arange(len(span)), span), begin, cost, count, (pieces, width), rates)


def _most(
    of: I64, piece: I64, each: F64, count: I64, time: tuple[int, float], rates: Rates
) -> float:
    """The programme: so much of the rows that there are `count` of, in pieces of time. `of`,
    `piece`: which row may use which; `each`: what a request of a row costs on each type; `time`:
    how many pieces, of how many microseconds."""
    from scipy.optimize import linprog  # a third of a second, for those that ask for a bound
    from scipy.sparse import coo_array

    (pieces, width), types = time, len(rates.counts)
    of, piece = np.repeat(of, types), np.repeat(piece, types)
    type_ = np.tile(np.arange(types), len(of) // types)
    cost = each[of, type_]
    runs = np.isfinite(cost)
    of, piece, type_, cost = of[runs], piece[runs], type_[runs], cost[runs]
    at = np.arange(len(of))
    rows = [of, len(count) + piece * types + type_]
    columns, values = [at, at], [np.ones(len(of)), cost]
    capacity = [count.astype(np.float64), np.tile(rates.counts * width, pieces)]
    upper = np.full(len(of), np.inf)
    if rates.at_once < rates.counts.sum():  # how many of which type run is chosen for each piece
        places = np.arange(pieces * types)
        rows += [len(count) + places, len(count) + len(places) + places // types]
        columns += [len(of) + places] * 2
        values += [np.full(len(places), -width), np.ones(len(places))]
        capacity = [capacity[0], np.zeros(len(places)), np.full(pieces, rates.at_once)]
        upper = np.concatenate((upper, np.tile(rates.counts, pieces)))
    limits: Any = coo_array(
        (np.concatenate(values), (np.concatenate(rows), np.concatenate(columns))),
        shape=(sum(map(len, capacity)), len(upper)),
    ).tocsr()
    gain = np.where(np.arange(len(upper)) < len(of), -1.0, 0.0)
    bounds: Any = np.stack((np.zeros(len(upper)), upper), axis=1)
    at_most: Any = np.concatenate(capacity)
    solved = linprog(gain, A_ub=limits, b_ub=at_most, bounds=bounds, method="highs")
    if solved.fun is None:
        raise InvariantError(f"the bound was not found: {solved.message}")
    return -float(solved.fun)
