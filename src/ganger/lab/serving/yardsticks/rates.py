"""What devices can do at best: what requests cost on them at least, and which could be in time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ganger.core.serving.world import Known, Pipeline
from ganger.core.units import NEVER
from ganger.lab.serving.yardsticks.costs import Cost, items_of, slacks, together
from ganger.lab.serving.yardsticks.tokens import (
    BATCH,
    BOTH,
    CACHE,
    FIRST,
    MANY,
    MEASURES,
    Lane,
    Limits,
)

_FREE: Final = 1e-6
"""Microseconds of what costs nothing."""
F64 = NDArray[np.float64]
I64 = NDArray[np.int64]
Flags = NDArray[np.bool_]


class Asked(NamedTuple):
    """Requests as arrays: what is asked for, and by when (`due`; of a token model also by when the
    `first` token), in microseconds; `row`: their numbers in the run."""

    arrival: I64
    due: I64
    first: I64
    model: I64
    items: I64
    prompt: I64
    output: I64
    row: I64

    def take(self, rows: Flags | I64 | slice) -> Asked:
        """Some of them."""
        return Asked(*(column[rows] for column in self))


class Talking(NamedTuple):
    """What bounds depend on where token models answer. `rooms`: by type of device, bytes for their
    caches, where that is limited; `requests`: how many there are, if that is known; `slo_ttft`,
    `slo_tpot`: microseconds that an answer in time takes at most to its first token, and for each
    further one."""

    rooms: Mapping[str, int] = {}
    requests: int = MANY
    slo_ttft: int = NEVER
    slo_tpot: int = NEVER


_SILENT: Final = Talking()


class Rates:
    """What devices can do at best. `each`: by what is asked for and type of device, microseconds of
    an input (infinite where it does not run; of a token model a request of the usual lengths);
    `counts`: devices by type, of which `most` run at a time. `variants`: by what is asked for, the
    models that can answer; `streams`: batches that run on a device at once. Of those that run, the
    i-th that began has at least i - 1 beside it. `pipelines`: asked for by the last codes; `share`:
    of each device; `shares`: all of which there may be, and then devices are counted whole, and a
    microsecond of a part counts as that part of one; `divides`: whether requests may be cut that a
    batch could hold; `noise`: how much of the measured spread latencies have; `lots`: the seed of
    the run, by which stages hand on whole numbers of items (None: only those count that there are
    whatever it is)."""

    def __init__(
        self,
        known: Sequence[Known],
        devices: Sequence[tuple[str, int]],
        variants: Sequence[Sequence[int]],
        streams: int = 1,
        pipelines: Sequence[Pipeline] = (),
        share: float = 1.0,
        *,
        shares: Sequence[float] = (),
        at_once: int = 0,
        divides: bool = False,
        talking: Talking = _SILENT,
        noise: float = 0.0,
        lots: int | None = None,
    ) -> None:
        self.counts = np.array([count for _, count in devices], np.float64)
        self.at_once = float(at_once or self.counts.sum())
        self.each = np.full((len(variants), len(devices)), np.inf)
        self._known, self._types = known, [name for name, _ in devices]
        self._talking = talking
        self._plain = self.each.copy()
        """Of what is no token model on that type."""
        self._costs: list[list[tuple[int, float, Cost]]] = []
        """By what is asked for: the same by type, what part of a device counts, and by the time
        that there is."""
        parts = [(each, each) for each in shares] or [(share, 1.0)]
        self._pipelines, self._lots = pipelines, lots
        self._floor: list[F64] = []
        self._whole: list[int] = []
        """By what is asked for: requests of up to so many inputs are never cut."""
        for at, models in enumerate(variants):
            self._costs.append([])
            floor, largest = np.full(1, np.inf), 0
            for model, (column, name), (each, part) in product(
                models, enumerate(self._types), parts
            ):
                latencies = known[model].latencies.get((name, each))
                if latencies is None:
                    continue
                times = _together(known[model].beside.get((name, each), ()), streams)
                cost = Cost(known[model], latencies, times, noise)
                self.each[at, column] = min(self.each[at, column], part * cost.least)
                if name not in known[model].tokens:
                    self._plain[at, column] = min(self._plain[at, column], part * cost.least)
                    self._costs[at].append((column, part, cost))
                mean = np.array(latencies.mean, np.float64)
                floor = np.pad(floor, (0, max(len(mean) - len(floor), 0)), constant_values=np.inf)
                np.minimum(floor[: len(mean)], mean, out=floor[: len(mean)])
                largest = min(largest or latencies.largest, latencies.largest)
            self._floor.append(floor)
            self._whole.append(0 if divides else largest)
        self._speakers = [
            tuple(model for model in models if known[model].tokens) for models in variants
        ]
        self._first_pipeline = len(variants) - len(pipelines)
        for at, pipeline in enumerate(pipelines, self._first_pipeline):
            self._add(at, pipeline)

    @property
    def speaks(self) -> bool:
        """Whether token models may be asked."""
        return any(self._speakers)

    def _add(self, at: int, pipeline: Pipeline) -> None:
        """A pipeline as one model: what those items cost that there are in any case."""
        single = np.ones(1, np.int64)
        items = items_of(pipeline, single, single, None)
        cost, least = self._staged(pipeline, items, np.full(1, np.inf))
        self.each[at] = self._plain[at] = cost[0]
        self._floor[at] = np.array([0.0, least[0]])

    def _staged(self, pipeline: Pipeline, items: I64, slack: F64) -> tuple[F64, F64]:
        """What requests with so many `items` of the stages cost on every type, and the least time
        that they take. A stage of a token model costs nothing here."""
        alone = np.zeros(items.shape)
        costs = np.full((*items.shape, len(self._types)), np.nan)
        for at, stage in enumerate(pipeline.stages):
            if not self._speakers[stage.model]:
                least = float(self._floor[stage.model][1:].min(initial=np.inf))
                alone[:, at] = np.where(items[:, at] > 0, least, 0.0)
        times, whole = slacks(pipeline, alone, slack)
        for at, stage in enumerate(pipeline.stages):
            some = items[:, at] > 0
            if self._speakers[stage.model]:
                free = np.where(np.isfinite(self.each[stage.model]), _FREE, np.inf)
                costs[some, at] = items[some, at, None] * free
            else:
                each = self._cost_of(stage.model, times[some, at])
                costs[some, at] = items[some, at, None] * each
        return together(costs), whole

    def _cost_of(self, code: int, slack: F64) -> F64:
        """By request that has so much time, and by type, what an input costs of what is no token
        model."""
        costs = np.full((len(slack), len(self._types)), np.inf)
        for column, part, cost in self._costs[code]:
            costs[:, column] = np.minimum(costs[:, column], part * cost.of(slack))
        return costs

    def costs(self, asked: Asked) -> F64:
        """Microseconds of all inputs of requests (rows) on each type (columns), without token
        models."""
        every = np.empty((len(asked.model), len(self._types)))
        slack = (asked.due - asked.arrival).astype(np.float64)
        for code in np.unique(asked.model).tolist():
            here = np.flatnonzero(asked.model == code)
            if code >= self._first_pipeline:
                every[here] = self._stages_of(code, asked.take(here))[0]
            else:
                every[here] = self._cost_of(code, slack[here]) * asked.items[here, None]
        return every

    def _stages_of(self, code: int, asked: Asked) -> tuple[F64, F64]:
        """The same of requests for a pipeline, and the least time that each takes."""
        pipeline = self._pipelines[code - self._first_pipeline]
        items = items_of(pipeline, asked.items, asked.row, self._lots)
        rows = np.column_stack((items, asked.due - asked.arrival))
        some, at = np.unique(rows, axis=0, return_inverse=True)
        cost, least = self._staged(pipeline, some[:, :-1], some[:, -1].astype(np.float64))
        return cost[at.ravel()], least[at.ravel()]

    def rate(self, model: int) -> float:
        """Inputs a microsecond, of as many devices as may run, the fastest first."""
        return self.rate_at(self.each[model])

    def rate_at(self, each: F64) -> float:
        """The same of what takes so many microseconds on each type."""
        free, total = self.at_once, 0.0
        for column in np.argsort(each, kind="stable").tolist():
            some = min(float(self.counts[column]), free)
            total, free = total + some / float(each[column]), free - some
        return total

    def dated(self, asked: Asked) -> Asked:
        """With the deadlines that follow from the times that tokens may take."""
        first, each = self._talking.slo_ttft, self._talking.slo_tpot
        if first == NEVER or not self.speaks:
            return asked
        here = np.array([bool(some) for some in self._speakers])[asked.model]
        by = np.where(here, asked.arrival + first, NEVER)
        due = asked.due
        if each < NEVER:
            due = np.where(here, np.minimum(due, by + (each + 1) * (asked.output - 1)), due)
        return asked._replace(due=due, first=by)

    def possible(self, asked: Asked) -> Flags:
        """Which requests could be in time alone. One that is larger than some batch may be cut, and
        its parts may run beside each other."""
        able = np.empty(len(asked.model), np.bool_)
        slack = asked.due - asked.arrival
        for code in np.unique(asked.model).tolist():
            here = np.flatnonzero(asked.model == code)
            if self._speakers[code]:
                able[here] = self._spoken(code, asked.take(asked.model == code))[1]
                continue
            if code >= self._first_pipeline:
                able[here] = slack[here] >= self._stages_of(code, asked.take(here))[1]
                continue
            floor = self._floor[code]
            whole = asked.items[here] <= self._whole[code]
            single = floor[np.minimum(asked.items[here], len(floor) - 1)]
            least = np.where(whole, single, floor[1:].min(initial=np.inf))
            able[here] = slack[here] >= least
        return able

    def measures(self, asked: Asked) -> list[tuple[Asked, F64]]:
        """The ways in which what requests take may be counted, each with what every request costs
        on every type: the bound is the least that any of them gives."""
        plain = self.costs(asked)
        if not self.speaks:
            return [(asked, plain)]
        costs = [plain.copy() for _ in range(MEASURES)]
        for code in np.unique(asked.model).tolist():
            if self._speakers[code]:
                here = asked.model == code
                cost, _ = self._spoken(code, asked.take(here))
                for measure in range(MEASURES):
                    costs[measure][here] = np.minimum(plain[here], cost[measure])
        some = [(asked, costs[measure]) for measure in (BATCH, CACHE, BOTH)]
        if self._talking.slo_ttft < NEVER:
            some.append((asked._replace(due=np.minimum(asked.due, asked.first)), costs[FIRST]))
        return some

    def _spoken(self, code: int, asked: Asked) -> tuple[F64, Flags]:
        """Of requests to a token model: what they cost by measure, request and type, and which
        could be in time alone."""
        count, known = len(asked.model), self._known
        cost = np.full((MEASURES, count, len(self._types)), np.inf)
        slack = (asked.due - asked.arrival).astype(np.float64)
        able = slack >= np.min(self._plain[code], initial=np.inf)
        talking = self._talking
        first, each = float(talking.slo_ttft), talking.slo_tpot + 0.5
        limits = Limits(slack, np.full(count, first), np.full(count, each))
        runs = [
            (model, column)
            for model in self._speakers[code]
            for column, name in enumerate(self._types)
            if name in known[model].tokens and self.counts[column]
        ]
        one_type = len(runs) == 1 and not np.isfinite(self._plain[code]).any()
        begins = goes_on = np.full(count, np.inf)
        for model, column in runs:
            name, size = self._types[column], known[model].cache_bytes
            room = talking.rooms.get(name, -1)
            tokens = room // size if room >= 0 and size else -1
            lane = Lane(known[model].tokens[name], tokens, talking.requests)
            needs = lane.needs(asked.prompt, asked.output, limits, one_type=one_type)
            cost[:, :, column] = np.minimum(cost[:, :, column], needs.cost)
            begins, goes_on = np.minimum(begins, needs.first), np.minimum(goes_on, needs.rest)
        able |= (
            (begins + goes_on <= slack + 0.5 * asked.output)
            & (begins <= limits.first)
            & (goes_on <= (limits.each + 0.5) * (asked.output - 1))
        )
        return cost, able


def _together(beside: Sequence[float], streams: int) -> float:
    """How many times as much a device does with so many batches at once."""
    if not beside:
        return 1.0
    return 1.0 + sum(1 / beside[min(at, len(beside) - 1)] for at in range(streams - 1))
