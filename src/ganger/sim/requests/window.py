"""What is counted of a service from one report to the next."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from ganger.core.serving.verbs import Batch, Load
from ganger.core.serving.world import ANSWERED, OPEN, Lane, World
from ganger.core.units import NEVER, SECOND

PIECE: Final = SECOND // 8
"""Microseconds of the shortest pieces of a window in which arrivals are counted; others are twice
as long, four times, ..., up to the window."""
_UNLIMITED: Final = NEVER // 2
"""A request that has more microseconds has no deadline."""
_REASONS: Final = 16
"""So many reasons why requests were dropped are told apart, those of most first."""

Figures = dict[str, float | None]


class Fared(NamedTuple):
    """What a window was like: its figures, and the part of its time in which each lane ran, of
    those that were up."""

    figures: Figures
    busy: Sequence[float]


class Held(Protocol):
    """The requests of a service, held back by windows: those of a window that is known from others
    never come, and its time does not pass for the service. Times are those of the simulation."""

    skipped: int
    """Microseconds that did not pass."""

    @property
    def more(self) -> bool:
        """Whether requests are held back."""

    def release(self, now: int) -> None:
        """Something changes at `now`: what was held back of the windows up to there comes."""

    def known(self, now: int, up: Sequence[Lane]) -> Fared | None:
        """A window ends. What it was like, with these lanes; or None, and its requests come."""

    def served(self, found: Fared) -> None:
        """The window that ended was served, and was like that."""

    def open(self, at: int) -> None:
        """The service is over, `at` by the clock of its planes: nothing is held back any more."""


class Window:
    """What is counted of one service since the last report."""

    def __init__(self, world: World, says: Sequence[int] | None) -> None:
        self._world, self._says = world, says
        self._counted = 0
        """The first request that is not in `pieces`."""
        self.clear(0)

    def clear(self, now: int) -> None:
        """A window begins."""
        self.since = now
        self.reasons: dict[str, int] = {}
        self.labelled = self.correct = 0
        self.pieces = np.zeros(0, np.int64)
        """How many requests came, by piece."""
        self.slo = NEVER
        """The least microseconds that any of them has."""
        self.answered = self.late = self.dropped = self.batches = self.executed = 0
        self.busy = self.up = self.open = 0
        """Microseconds: of lanes that ran, of lanes that were up, of requests that were open."""
        self.latencies: list[int] = []
        self.by_lane: dict[int, int] = {}
        """Microseconds that each lane ran."""

    def over(self, rows: Collection[int], outcome: int, at: int) -> None:
        """Requests are over."""
        requests = self._world.requests
        for row in rows:
            since = max(requests.arrival[row - requests.base], self.since)
            self.open += max(at - since, 0)
        if outcome != ANSWERED:
            self.dropped += len(rows)
            reason = self._world.reasons[outcome - 2]
            self.reasons[reason] = self.reasons.get(reason, 0) + len(rows)
            return
        self.answered += len(rows)
        if self._says is not None:
            self._judge(rows, self._says)
        for row in rows:
            self.latencies.append(at - requests.arrival[row - requests.base])
            self.late += at > requests.deadline[row - requests.base]

    def _judge(self, rows: Collection[int], says: Sequence[int]) -> None:
        """Compare what the model was recorded to say with the labels of requests that have one."""
        requests = self._world.requests
        for row in rows:
            label, given = (
                column[row - requests.base] for column in (requests.label, requests.input)
            )
            if label >= 0 and given >= 0:
                self.labelled += 1
                self.correct += says[given % len(says)] == label

    def count(self, until: int) -> None:
        """Count the requests before this row by when they came."""
        requests = self._world.requests
        some = slice(self._counted - requests.base, until - requests.base)
        self._counted = until
        came = np.array(requests.arrival[some], np.int64)
        given = np.array(requests.deadline[some], np.int64) - came
        self.slo = min(self.slo, int(given.min(initial=NEVER)))
        at = (came - self.since) // PIECE
        counts = np.bincount(at, minlength=len(self.pieces))
        counts[: len(self.pieces)] += self.pieces
        self.pieces = counts

    def details(self, now: int, arrived: int) -> dict[str, float]:
        """Why requests were dropped, how often the model was right, how unevenly requests came;
        those before row `arrived` have come."""
        self.count(arrived)
        reasons = sorted(self.reasons.items(), key=lambda item: (-item[1], item[0]))[:_REASONS]
        judged = {"labelled": float(self.labelled), "correct": float(self.correct)}
        return {
            **{f"dropped:{reason}": float(count) for reason, count in reasons},
            **(judged if self._says is not None else {}),
            **slo_of(self.slo),
            **self.peaks(now),
        }

    def peaks(self, now: int) -> dict[str, float]:
        """The most requests that came in a piece of the window, for pieces of each length."""
        return peaks_of(self.pieces, now - self.since)

    def ongoing(self, now: int, arrived: int) -> float | None:
        """How many requests were open on average until now, of those before row `arrived`."""
        requests = self._world.requests
        still = sum(
            now - max(requests.arrival[at], self.since)
            for at in range(arrived - requests.base)
            if requests.outcome[at] == OPEN
        )
        span = now - self.since
        return (self.open + still) / span if span else None

    def ran(self, lane: Lane, order: Batch | Load, began: int, ended: int, outcome: str) -> None:
        """A lane was busy."""
        took = ended - max(began, self.since)
        self.busy += took
        self.by_lane[lane.number] = self.by_lane.get(lane.number, 0) + took
        steps = order.steps if isinstance(order, Batch) else 1
        self.batches += steps
        self.executed += (
            steps * sum(len(part.tasks) for part in order.parts if not part.last)
            if isinstance(order, Batch)
            else 0
        )

    def settled(self, world: World, count: int) -> None:
        """They were counted when they were over; when they came, now that they are forgotten."""
        if world.requests.base + count > self._counted:
            self.count(world.requests.base + count)


def slo_of(least: int) -> dict[str, float]:
    """The least microseconds that a request of a window has, in seconds; nothing where none has a
    deadline."""
    return {"slo": least / SECOND} if least < _UNLIMITED else {}


def peaks_of(pieces: NDArray[np.int64], span: int) -> dict[str, float]:
    """The most requests that came in a piece of so many microseconds, for pieces of each length;
    `pieces`: how many came in each of the shortest."""
    count = max(span // PIECE, 1)
    padded = np.pad(pieces[:count], (0, max(count - len(pieces), 0)))
    padded[-1] += pieces[count:].sum()  # what came as the window ended
    peaks, length = dict[str, float](), 1
    while length <= count:
        sums = np.add.reduceat(padded, range(0, count, length))
        peaks[f"most_in_{length * PIECE / SECOND:g}s"] = float(sums.max())
        length *= 2
    return peaks
