"""What became of requests, added up while they are forgotten: counts, latencies, work of lanes."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, TextIO

import numpy as np
from numpy.typing import NDArray

from ganger.core.serving.verbs import Batch, Load
from ganger.core.serving.world import ANSWERED, Lane, World
from ganger.core.units import NEVER, SECOND
from ganger.lab.serving.distribution import Latencies
from ganger.lab.serving.speech import Classes, Speech
from ganger.lab.serving.windows.stored import Counts

I64 = NDArray[np.int64]
BLOCK: Final = 64
"""So many requests that follow each other are counted together, for intervals."""

_PLAIN: Final = (
    "requests", "answered", "late", "batches", "executed", "loads", "preempted", "dropped", "busy",
    "right", "judged",
)  # fmt: skip
"""Attributes that are plain data."""
_COLUMNS: Final = (
    "request",
    "model",
    "arrival_seconds",
    "latency_seconds",
    "outcome",
    "answered_by",
    "ttft_seconds",
    "tpot_seconds",
)
"""Of the file that has a row for each request."""


class Tally:
    """Watches a plane. `right`: by model, whether it answers an input rightly (a recorded matrix),
    or how often it does; None where neither is known. `slo_ttft`, `slo_tpot`: microseconds that an
    answer of a token model in time takes at most to its first token, and for each further one."""

    def __init__(
        self,
        world: World,
        right: Sequence[NDArray[np.bool_] | float | None],
        per_request: TextIO | None = None,
        slo_ttft: int = NEVER,
        slo_tpot: int = NEVER,
    ) -> None:
        count = len(world.variants)
        self.requests = self.answered = self.late = self.batches = self.executed = 0
        self.dropped: dict[str, int] = {}
        self.latencies = Latencies()
        self.busy = [0] * len(world.lanes)
        self._world = world
        self._held = 0
        """Microseconds in which lanes were used that were given back since."""
        self.beyond = 0
        """Microseconds that passed besides those between the first and the last event."""
        self._used: dict[int, int] = {}
        """Lanes that are used, since their first batch."""
        self.loads = self.preempted = 0
        self._speaks = any(known.tokens for known in world.models)
        self.speech = Speech(slo_ttft, slo_tpot)
        self.classes = Classes(world)
        self.first, self.last = NEVER, 0
        self.by_model = np.zeros((3, count), np.int64)
        """Requests, those answered in time, those dropped; by what was asked for."""
        self._blocks = bytearray()
        """Of each block, how many were in time."""
        self._block = 0
        """The same of the block that is not full yet."""
        self.right = 0.0
        self.judged = True
        self._right = right
        self._rows = None if per_request is None else csv.writer(per_request)
        if self._rows is not None:
            self._rows.writerow(_COLUMNS)

    def ran(self, lane: Lane, order: Batch | Load, began: int, ended: int, outcome: str) -> None:
        """A lane was busy."""
        if ended > self.last:
            self.last = ended
        if isinstance(order, Load):
            self.loads += 1
            return
        number, steps = lane.number, order.steps
        self.busy[number] += ended - began
        if number not in self._used:
            self._used[number] = began
        self.batches += steps
        for part in order.parts:
            if not part.last:  # else others of the batch go on with them
                self.executed += steps * len(part.tasks)
        if order.drops:
            self.preempted += len(order.drops)

    def retired(self, lane: int) -> None:
        """The router gives a lane back: until it runs a batch again, it is not used."""
        if lane in self._used:
            self._held += self._world.now - self._used.pop(lane)

    def settled(self, world: World, count: int) -> None:
        """The first `count` rows are over."""
        if count:
            self.add(world, slice(0, count))

    def add(self, world: World, rows: slice) -> tuple[I64, NDArray[np.bool_], NDArray[np.bool_]]:
        """Rows at these positions are over. Of each: microseconds until it was, whether it was
        answered, and whether in time."""
        requests = world.requests
        arrival = np.array(requests.arrival[rows], np.int64)
        ended = np.array(requests.ended[rows], np.int64)
        outcome = np.frombuffer(bytes(requests.outcome[rows]), np.uint8)
        asked = np.array(requests.model[rows], np.int64)
        answered = outcome == ANSWERED
        deadline = np.array(requests.deadline[rows], np.int64)
        in_time = answered & (ended <= deadline)
        times: tuple[I64, I64] | None = None
        if self._speaks:
            times = self.speech.add(requests, rows, arrival, ended, answered)
            in_time &= self.speech.in_time(*times)
        self.first = min(self.first, int(arrival[0]))
        self.last = max(self.last, int(arrival[-1]), int(ended.max()))
        self._count_blocks(in_time)
        self.requests += len(arrival)
        self.answered += int(answered.sum())
        self.late += int((answered & ~in_time).sum())
        for code, number in enumerate(np.bincount(outcome).tolist()):
            if number and code > ANSWERED:
                reason = world.reasons[code - 2]
                self.dropped[reason] = self.dropped.get(reason, 0) + number
        models = len(world.variants)
        self.by_model += [
            np.bincount(asked[some], minlength=models) for some in (slice(None), in_time, ~answered)
        ]
        self.latencies.add((ended - arrival)[answered])
        slo = np.where(deadline < NEVER, deadline - arrival, NEVER)
        tenant = np.array(requests.tenant[rows], np.int64)
        self.classes.add([asked, tenant, slo], ended - arrival, (answered, in_time), times)
        self._judge(world, rows, in_time)
        if self._rows is not None:
            self._write(world, arrival, ended, outcome, asked, times)
        return ended - arrival, answered, in_time

    def add_like(self, other: Tally, requests: int) -> None:
        """Add so many requests that fared as those of another, which has some. Blocks in time and
        what lanes were used are not known of them."""
        part = requests / other.requests
        in_time = round((other.answered - other.late) * part)
        reasons = _shared_out(requests - round(other.answered * part), other.dropped)
        answered = requests - sum(reasons.values())
        self.requests += requests
        self.answered += answered
        self.late += max(answered - in_time, 0)
        for reason, count in reasons.items():
            self.dropped[reason] = self.dropped.get(reason, 0) + count
        self.by_model += np.rint(other.by_model * part).astype(np.int64)
        if other.latencies.count:
            self.latencies.add_like(other.latencies, answered)
        self.speech.add_like(other.speech, part)
        self.classes.add_like(other.classes, part)
        self.right += other.right * part
        self.judged = self.judged and other.judged
        for name in ("batches", "executed", "loads", "preempted"):
            setattr(self, name, getattr(self, name) + round(getattr(other, name) * part))
        self.busy = [
            mine + round(theirs * part) for mine, theirs in zip(self.busy, other.busy, strict=True)
        ]

    def stored(self) -> Counts:
        """What another tally can be made of, to be added like (`add_like`)."""
        coarse, classes = self.classes.stored()
        return Counts(
            **{name: getattr(self, name) for name in _PLAIN},
            latencies=self.latencies.stored(),
            by_model=self.by_model.tolist(),
            ttft=self.speech.ttft.stored(),
            tpot=self.speech.tpot.stored(),
            made=self.speech.made,
            coarse=coarse,
            classes=classes,
        )

    def restore(self, stored: Counts, tenant: Callable[[str], int]) -> None:
        """Become what was stored; `tenant` gives the code of one. Raises ValueError where that is
        of other models or lanes."""
        by_model = np.array(stored.by_model, np.int64)
        if by_model.shape != self.by_model.shape or len(stored.busy) != len(self.busy):
            raise ValueError("of other models or lanes")
        for name in _PLAIN:
            setattr(self, name, getattr(stored, name))
        self.by_model = by_model
        self.latencies.restore(stored.latencies)
        self.speech.restore(stored.ttft, stored.tpot, stored.made)
        self.classes.restore(stored.coarse, stored.classes, tenant)

    def _count_blocks(self, in_time: NDArray[np.bool_]) -> None:
        """Add to the block that has begun, then whole ones; what is left begins another."""
        first = min(-self.requests % BLOCK, len(in_time))
        self._block += int(in_time[:first].sum())
        if first and not (self.requests + first) % BLOCK:
            self._blocks.append(self._block)
            self._block = 0
        whole = (len(in_time) - first) // BLOCK * BLOCK
        counts = in_time[first : first + whole].reshape(-1, BLOCK).sum(axis=1)
        self._blocks += counts.astype(np.uint8).tobytes()
        self._block += int(in_time[first + whole :].sum())

    def in_time(self) -> list[tuple[int, int]]:
        """Of blocks of requests that follow each other: how many, and how many in time."""
        found = [(BLOCK, count) for count in self._blocks]
        left = self.requests % BLOCK
        return [*found, (left, self._block)] if left else found

    def _judge(self, world: World, rows: slice, in_time: NDArray[np.bool_]) -> None:
        requests = world.requests
        if world.said:
            in_time = in_time.copy()
            for at in np.flatnonzero(in_time).tolist():
                said = world.said.get(requests.base + rows.start + at)
                if said is not None:
                    in_time[at] = False
                    self.right += said == requests.label[rows.start + at]
        by = np.array(requests.by[rows], np.int64)[in_time]
        inputs = np.array(requests.input[rows], np.int64)[in_time]
        for model in np.unique(by).tolist():
            right = self._right[model] if model >= 0 else None
            here = inputs[by == model]
            if right is None:
                self.judged = False
            elif isinstance(right, float):
                self.right += right * len(here)
            else:
                known = here >= 0
                self.right += float(right[here[known] % len(right)].sum())
                self.right += float(right.mean()) * int((~known).sum())

    def _write(
        self,
        world: World,
        arrival: I64,
        ended: I64,
        outcome: Any,
        asked: I64,
        times: tuple[I64, I64] | None,
    ) -> None:
        assert self._rows is not None
        base, by = world.requests.base, world.requests.by
        for at in range(len(arrival)):
            code = int(outcome[at])
            said = "answered" if code == ANSWERED else world.reasons[code - 2]
            who = world.models[by[at]].name if by[at] >= 0 else ""
            self._rows.writerow(
                [
                    base + at,
                    world.asked(int(asked[at])),
                    f"{arrival[at] / SECOND:.6f}",
                    f"{(ended[at] - arrival[at]) / SECOND:.6f}",
                    said,
                    who,
                    *(
                        f"{each[at] / SECOND:.6f}" if each is not None and each[at] >= 0 else ""
                        for each in times or (None, None)
                    ),
                ]
            )

    def metrics(self, lanes: int) -> dict[str, float | int | None]:
        """All figures; None where there is none. `lanes`: how many there were all the time; 0 where
        they came and went."""
        span = max(self.last - self.first + self.beyond, 0) / SECOND
        in_time = self.answered - self.late
        used = self._held + sum(
            max(self.last - since, 0) + self.beyond for since in self._used.values()
        )
        p50, p95, p99, p999 = self.latencies.quantiles((0.5, 0.95, 0.99, 0.999))
        found: dict[str, float | int | None] = {
            "requests": self.requests,
            "answered": self.answered,
            "late": self.late,
            "dropped": self.requests - self.answered,
            "attainment": in_time / self.requests if self.requests else None,
            "goodput_per_second": in_time / span if span else None,
            "latency_mean_seconds": self.latencies.mean / SECOND,
            "latency_p50_seconds": p50 / SECOND,
            "latency_p95_seconds": p95 / SECOND,
            "latency_p99_seconds": p99 / SECOND,
            "latency_p999_seconds": p999 / SECOND,
            **self.speech.metrics(span),
            "preempted": self.preempted if self.speech.ttft.count else None,
            "batches": self.batches,
            "batch_mean": self.executed / self.batches if self.batches else None,
            "utilisation": sum(self.busy) / SECOND / span / lanes if span and lanes else None,
            "lanes_used_mean": used / SECOND / span if span and lanes else None,
            "effective_accuracy": self.right / self.requests
            if self.requests and self.judged
            else None,
            "loads": self.loads,
            "span_seconds": span,
        }
        return {name: None if value != value else value for name, value in found.items()}


def _shared_out(count: int, among: Mapping[str, int]) -> dict[str, int]:
    """So many in proportion: each the part below, and one more for those that are closest to it."""
    total = sum(among.values())
    if not total or count <= 0:
        return {}
    exact = {name: count * of / total for name, of in among.items()}
    parts = {name: int(part) for name, part in exact.items()}
    closest = sorted(exact, key=lambda name: parts[name] - exact[name])
    for name in closest[: count - sum(parts.values())]:
        parts[name] += 1
    return parts


@contextmanager
def written(path: Path | None) -> Iterator[TextIO | None]:
    """A file to write to, which takes the place of `path` if all goes well: what was there before
    is lost only to a whole one. None where there is no path."""
    if path is None:
        yield None
        return
    made = path.with_name(path.name + ".new")
    try:
        with made.open("w", newline="", encoding="utf-8") as out:
            yield out
        made.replace(path)
    except BaseException:
        made.unlink(missing_ok=True)
        raise
