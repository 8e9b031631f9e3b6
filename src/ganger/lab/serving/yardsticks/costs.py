"""What an input costs of a device at least, by the time that its request has.

A batch that takes longer than a request has cannot answer it in time. So of the batches of b inputs
that take l(b), those count of which a part p(b) takes no longer than that: an input that is in time
costs l(b) / (b p(b)), whatever else is in its batch.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from ganger.core.serving.answering import sigma_of
from ganger.core.serving.world import Known, Latencies, Pipeline
from ganger.mechanisms.serving.pipeline import salt_of

F64 = NDArray[np.float64]
I64 = NDArray[np.int64]
_SURE: Final = 6.0
"""Standard deviations beyond which nothing is a matter of chance."""
_STEP: Final = 0.002
"""Times are told apart to this part of them, and rounded up."""
_APART: Final = 64
"""So many different times are told apart to the microsecond."""
_KNOWN: Final = 1 << 16
_WORD: Final = (1 << 64) - 1


class Cost:
    """Of a model on a type of device where a device does `times` as much as with one batch at a
    time, and latencies have this part of their measured spread (`noise`)."""

    def __init__(self, known: Known, latencies: Latencies, times: float, noise: float) -> None:
        mean = np.array(latencies.mean[1:], np.float64)
        self._mean = mean
        self._each = mean / np.arange(1, len(mean) + 1) / times
        self._sigma = np.array(
            [
                noise * sigma_of(p99 / each) if each else 0.0
                for each, p99 in zip(latencies.mean[1:], latencies.p99[1:], strict=True)
            ]
        )
        self.least = float(self._each.min())
        self._known: dict[float, float] = {}
        self._enough = 0.0  # a batch that ends at a border of its model may go on in another one
        if not known.borders:
            best = int(self._each.argmin())
            self._enough = float(mean[best] * np.exp(_SURE * self._sigma[best]))

    def of(self, slack: F64) -> F64:
        """Microseconds of an input of requests that have so many; infinite where no batch can be in
        time."""
        costs = np.full(len(slack), self.least)
        short = np.flatnonzero(slack < self._enough)
        if not len(short):
            return costs
        some, at = np.unique(slack[short], return_inverse=True)
        if len(some) > _APART:
            steps = np.ceil(np.log(np.maximum(some, 1.0)) / np.log1p(_STEP))
            whole, step = np.unique(steps, return_inverse=True)
            some, at = np.exp(whole * np.log1p(_STEP)), step[at]
        costs[short] = np.array([self._at(each) for each in some.tolist()])[at]
        return costs

    def _at(self, slack: float) -> float:
        if slack not in self._known:
            if len(self._known) >= _KNOWN:
                self._known.clear()
            able = self._in_time(slack)
            costs = self._each[able > 0] / able[able > 0]
            self._known[slack] = float(costs.min(initial=np.inf))
        return self._known[slack]

    def _in_time(self, slack: float) -> F64:
        """By size, the part of batches that take no longer."""
        sure = np.where(self._mean <= slack, 1.0, 0.0)
        spread = self._sigma > 0
        if slack <= 0 or not spread.any():
            return sure
        sigma = np.where(spread, self._sigma, 1.0)
        with np.errstate(divide="ignore"):
            off = np.log(slack / self._mean) / sigma + sigma / 2
        unsure = spread & (np.abs(off) < _SURE)
        sure = np.where(spread, off > 0, sure).astype(np.float64)
        if unsure.any():
            from scipy.special import ndtr  # only where chance decides

            sure[unsure] = ndtr(off[unsure])
        return sure


def items_of(pipeline: Pipeline, items: I64, rows: I64, seed: int | None) -> I64:
    """How many items of each stage (columns) requests of these numbers have; without a seed those
    that there are whatever the lot says."""
    stages = pipeline.stages
    counts = np.zeros((len(items), len(stages)), np.int64)
    for at, stage in enumerate(stages):
        if not stage.after:
            counts[:, at] = items
        for to, mean in stage.feeds:
            more = 0.0 if seed is None else _lots(seed, rows, salt_of(len(stages), at, to))
            handed = np.minimum(counts[:, at] * mean + more, 1e12).astype(np.int64)
            counts[:, to] = np.maximum(counts[:, to], handed)
    return counts


def _lots(seed: int, rows: I64, salt: int) -> F64:
    """`World.draw` of many requests."""
    at = rows.astype(np.uint64) * np.uint64(0xD1342543DE82EF95)
    at = at + np.uint64((seed * 0x9E3779B97F4A7C15 + salt + 1) & _WORD)
    at = (at ^ at >> np.uint64(30)) * np.uint64(0xBF58476D1CE4E5B9)
    at = (at ^ at >> np.uint64(27)) * np.uint64(0x94D049BB133111EB)
    lots: F64 = (at ^ at >> np.uint64(31)).astype(np.float64) / float(1 << 64)
    return lots


def together(costs: F64) -> F64:
    """Of the stages of requests (request, stage, type; nan where a stage has no items) what the
    whole costs on every type. Whatever part of each stage is done on which type, `shared` makes
    parts of the whole of them, and no type does so many at less than the cost here; with one type
    it is what the stages cost."""
    runs = np.isfinite(costs)
    part = np.where(runs, costs, 0.0)
    part = part / np.maximum(part.sum(axis=1, keepdims=True), 1e-300)
    shared = part.sum(axis=2) / np.maximum(runs.sum(axis=2), 1)
    shared = np.maximum(shared, 1e-12)
    shared = np.where(np.isnan(costs).all(axis=2), 0.0, shared)
    shared = shared / np.maximum(shared.sum(axis=1, keepdims=True), 1e-300)
    with np.errstate(divide="ignore", invalid="ignore"):
        whole = costs / shared[:, :, None]
    least: F64 = np.where(np.isnan(whole), np.inf, whole).min(axis=1)
    return least


def slacks(pipeline: Pipeline, alone: F64, slack: F64) -> tuple[F64, F64]:
    """The time that each stage (columns) of requests has, and the least that all take: `alone`,
    by request and stage, what one takes at least (0 where it has no items)."""
    count = len(pipeline.stages)
    ahead, behind = np.zeros_like(alone), np.zeros_like(alone)
    for at in range(count):
        for to, _ in pipeline.stages[at].feeds:
            ahead[:, to] = np.maximum(ahead[:, to], ahead[:, at] + alone[:, at])
    for at in range(count - 1, -1, -1):
        for to, _ in pipeline.stages[at].feeds:
            behind[:, at] = np.maximum(behind[:, at], behind[:, to] + alone[:, to])
    whole = (ahead + alone + behind).max(axis=1)
    return slack[:, None] - ahead - behind, whole
