"""The least that requests to a token model take of a lane, however their steps are batched.

A step reads n tokens of prompts, and gives s sequences their next token. With C tokens of those in
the cache it takes at least start(s) + context C + what n tokens add. That time is shared out among
the requests: each of the s bears start(s) / s and `context` for each of its own tokens, each token
that is read what it adds. Every way to share it out (a **measure**) gives a bound, and the least of
them holds:

- *batch*: the start is shared among as many sequences as the cache has room for; or, of a request
  whose tokens must come quickly, among as many as it can afford: the mean step of an output in time
  is no longer than the time that it has for each token.
- *cache*: the start is shared by the tokens in the cache, which hold no more than has room there.
- *both*: where a table says what prompts take, small pieces of them cost nothing beside decoding.
  But a step takes at least as long as each of its two halves alone, so also some part of the one
  and the rest of the other: such parts that a token costs as much in either half.
- *first*: prompts alone, by when the first token has to be there.

A token that is given up and computed anew only adds to that. Times: microseconds.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ganger.core.serving.tokens import Times

F64 = NDArray[np.float64]
I64 = NDArray[np.int64]
BATCH, CACHE, BOTH, FIRST = range(4)
"""The measures."""
MEASURES: Final = 4
_SEQUENCES: Final = 4096
"""Steps of more sequences are thought to take as long as one of so many."""
_ROUNDED: Final = 0.5
"""Steps take whole microseconds."""
MANY: Final = 1 << 40
"""Sequences, where the number of requests is not known."""


class Limits(NamedTuple):
    """Of each request, microseconds: until all has to be there, until the first token, and for each
    further one."""

    whole: F64
    first: F64
    each: F64


class Needs(NamedTuple):
    """Of each request: by measure, what it takes of a lane at least; the time until the first token
    of one that is alone, and from there to the last."""

    cost: F64
    first: F64
    rest: F64


class Lane:
    """One token model on one type of lane. `room`: tokens that its cache has room for, -1 for no
    limit; `requests`: no step has more sequences."""

    def __init__(self, times: Times, room: int, requests: int = MANY) -> None:
        self._room = room
        largest = max(requests, 1)
        if room >= 0:
            largest = min(largest, max(room, 1))
        some = min(largest, _SEQUENCES)
        lines = [times.line(count) for count in range(1, some + 1)]
        start = np.maximum([line.start for line in lines], 1.0) - _ROUNDED
        share = start / np.arange(1, some + 1)
        rows = _rows(times, largest)
        self._context = min((context for *_, context in rows), default=0.0)
        if largest > some:
            share[-1] = min(share[-1], _beyond(times))
        self._least = float(share.min())
        """Of a token, in the largest batch."""
        self._alone = float(start.min())
        self._hull = _hull(start, np.minimum.accumulate(share))
        counts = np.arange(1, some + 1)
        begins = min((base for _, base, _, _ in rows), default=float(start.min()) + _ROUNDED)
        self._base = max(min(begins - _ROUNDED, float(start.min())), 0.0)
        self._slope = max(float(((start - self._base) / counts).min()), 0.0)
        if largest > some:
            self._slope = min(self._slope, _beyond(times))
        """A step of s sequences takes at least `base` + `slope` s."""
        self._table = times.prefill_table is not None
        if times.prefill_table is None:
            base, each, self._squared = times.prefill
            self._begins = max(base - _ROUNDED, 0.0)
            self._reads = max(each - (_ROUNDED if base < _ROUNDED else 0.0), 0.0)
            self._whole = 0.0
        else:
            x, y = (np.array(each, np.float64) for each in times.prefill_table)
            self._begins, self._squared, self._reads = max(float(y[0]) - _ROUNDED, 0.0), 0.0, 0.0
            slope = (y[-1] - y[-2]) / (x[-1] - x[-2]) if len(x) > 1 else 0.0
            self._whole = max(min(float(((y - _ROUNDED) / x).min()), float(slope)), 0.0)
            """Of a token that is read, where steps do nothing else."""

    def needs(self, prompt: I64, output: I64, limits: Limits, *, one_type: bool) -> Needs:
        """Of requests with so many tokens. Where they may move between types of lanes (not
        `one_type`), what tokens take does not depend on how many were before them, so that parts
        of a request are parts of its cost on every type."""
        reads, further = prompt.astype(np.float64), (output - 1).astype(np.float64)
        first, rest = self._fastest(reads, further)
        behind = further * reads + (further * (further - 1) / 2 if one_type else 0.0)
        given = np.maximum(further, 1.0)
        time = np.minimum(limits.whole - first, limits.each * given)
        afford = (time - self._context * behind) / given
        again = self._read(reads, self._least, self._context)
        longest = self._context * (reads + further)
        least = np.full(len(reads), self._least)
        if one_type:
            paced = self._paced(afford)
            sure = (again >= paced + longest) & (first >= afford)
            least = np.where(sure, np.maximum(paced, self._least), least)
        batch = self._decoded(least, self._context, behind, further, reads, again)
        cost = np.zeros((MEASURES, len(reads)))
        cost[BATCH] = again + batch
        cost[CACHE] = cost[BATCH] if self._room < 0 else self._by_cache(reads, further, behind)
        cost[BOTH], cost[FIRST] = cost[BATCH], again
        if self._table:
            part = self._least / max(self._least + self._whole, 1e-300)
            read = part * self._whole * reads
            dear = self._least * (reads + 1)
            least = np.full(len(reads), self._least)
            given = self._decoded(least, self._context, behind, further, reads, dear)
            cost[BOTH], cost[FIRST] = read + (1 - part) * given, read
        return Needs(cost, first, rest)

    def _fastest(self, reads: F64, further: F64) -> tuple[F64, F64]:
        """Microseconds until the first token and from there to the last, alone."""
        if self._table:
            each = min(self._whole, self._alone)
            first = np.maximum(self._begins, each * reads)
            step = (self._begins, 0.0)
        else:
            first = self._begins + _least_of(
                (self._reads + self._squared, 2 * self._squared),
                (self._alone, self._context),
                np.zeros(len(reads)),
                reads,
            )
            step = (self._begins + self._reads, self._reads)
        rest = _least_of((self._alone, self._context), step, reads, reads + further)
        return first, rest

    def _read(self, reads: F64, least: float, context: float) -> F64:
        """What prompts take: each token as one that is read, or as a step gives it."""
        return _least_of(
            (self._reads + self._squared, 2 * self._squared),
            (least, context),
            np.zeros(len(reads)),
            reads,
        )

    def _decoded(
        self, each: F64, context: float, behind: F64, further: F64, reads: F64, again: F64
    ) -> F64:
        """What further tokens take; or, where that is less, to read everything anew for each."""
        plain = each * further + context * behind
        dear = each + context * (reads + further) > again
        return np.where(dear, further * np.minimum(each + context * reads, again), plain)

    def _by_cache(self, reads: F64, further: F64, behind: F64) -> F64:
        """Where the start of a step is shared by the tokens in the cache."""
        context = self._context + self._base / max(self._room, 1)
        again = self._read(reads, self._slope, context)
        each = np.full(len(reads), self._slope)
        return again + self._decoded(each, context, behind, further, reads, again)

    def _paced(self, afford: F64) -> F64:
        """What a token takes of a lane, if steps take no longer than that on average."""
        x, y = self._hull
        return np.interp(afford, x, y)


def _rows(times: Times, largest: int) -> list[tuple[float, float, float, float]]:
    """What is stated of steps that have up to so many sequences; nothing where there is a table."""
    rows, below = [], 0.0
    for row in times.decode if times.decode_table is None else ():
        if below < largest:
            rows.append(row)
        below = row[0]
    return rows


def _beyond(times: Times) -> float:
    """What a sequence adds to a step at least, in however large a batch."""
    if times.decode_table is None:
        return min(each for _, _, each, _ in times.decode)
    x, y = times.decode_table
    return (y[-1] - y[-2]) / (x[-1] - x[-2]) if len(x) > 1 else 0.0


def _hull(x: F64, y: F64) -> tuple[F64, F64]:
    """The corners of the largest convex function below the points, which falls."""
    order = np.lexsort((y, x))
    corners: list[tuple[float, float]] = []
    for at in order.tolist():
        point = float(x[at]), float(y[at])
        if corners and point[1] >= corners[-1][1]:
            continue
        while len(corners) > 1 and _above(corners[-2], corners[-1], point):
            corners.pop()
        corners.append(point)
    x, y = np.array(corners).T
    return x, y


def _above(
    before: tuple[float, float], middle: tuple[float, float], after: tuple[float, float]
) -> bool:
    """Whether the middle lies on or above the line between the two others."""
    rise, run = after[1] - before[1], after[0] - before[0]
    return (middle[1] - before[1]) * run >= rise * (middle[0] - before[0])


def _least_of(line: tuple[float, float], other: tuple[float, float], begin: F64, end: F64) -> F64:
    """The sum of the lesser of two lines (at 0, slope) over the whole numbers from `begin` until
    before `end`."""
    low, high = (line, other) if line[::-1] > other[::-1] else (other, line)
    steep = low[1] - high[1]
    # the steeper is the lesser one up to where they cross
    if steep > 0:
        cross = np.clip(np.floor((high[0] - low[0]) / steep) + 1, begin, np.maximum(end, begin))
    else:
        cross = begin if low[0] >= high[0] else np.maximum(end, begin)
    return _sum(low, begin, cross) + _sum(high, cross, np.maximum(end, begin))


def _sum(line: tuple[float, float], begin: F64, end: F64) -> F64:
    count = end - begin
    return line[0] * count + line[1] * (begin + end - 1) * count / 2
