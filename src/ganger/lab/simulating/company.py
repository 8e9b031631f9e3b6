"""Which models shared GPUs in a run, in which class, for how long and how fast."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from ganger.core.books.ledger import members
from ganger.core.events import Batch
from ganger.core.kernel import Kernel
from ganger.core.plan import Placement, Plan
from ganger.core.state.jobs import Phase
from ganger.core.units import HOUR
from ganger.lab.ahead.company import standing
from ganger.lab.result import Together


class _Span(NamedTuple):
    """A job in one company, from `since` on: what it does, and how fast."""

    since: int
    kind: tuple[str, str, str]
    rate: float
    gpus: int


class CompanyRecorder:
    """A journal that adds up the time of jobs that compute on the same GPUs."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self._where: dict[int, Placement] = {}
        self._on: dict[tuple[int, int], set[int]] = {}
        """By node and device: the jobs that compute there."""
        self._spans: dict[int, _Span] = {}
        self._sums: dict[tuple[str, str, str], list[float]] = {}
        self._jobs: dict[tuple[str, str, str], set[int]] = {}

    def append(self, revision: int, batch: Batch, plan: Plan | None, memory: Any) -> None:
        """Take in one step: only the jobs that it names, and those beside them, can differ."""
        steps: Iterable[Any] = (*batch.events, *(plan.actions if plan is not None else ()))
        named = {job for step in steps if (job := getattr(step, "job", -1)) >= 0}
        changed = set(named)
        for job in named:
            before, now = self._where.get(job, ()), self._held(job)
            if before == now:
                continue
            for device in _devices(before):
                self._on[device].discard(job)
                changed |= self._on[device]
            for device in _devices(now):
                changed |= self._on.setdefault(device, set())
                self._on[device].add(job)
            self._where[job] = now
        for job in changed:
            self._end(job, batch.at)
            self._begin(job, batch.at)

    def _held(self, job: int) -> Placement:
        """What the job computes on."""
        ledger = self._kernel.ledger
        if job in ledger.asleep or job not in ledger.holds:
            return ()
        return ledger.holds[job][1]

    def _begin(self, job: int, now: int) -> None:
        jobs = self._kernel.jobs
        if jobs.phase[job] != Phase.RUNNING:
            return
        others = set[int]().union(*(self._on[at] for at in _devices(self._where.get(job, ()))))
        others.discard(job)
        if others:
            beside = " + ".join(sorted(self._model(other) for other in others))
            kind = self._model(job), standing(self._kernel, job), beside
            self._spans[job] = _Span(now, kind, float(jobs.rate[job]), int(jobs.size[job]))

    def _model(self, job: int) -> str:
        jobs = self._kernel.jobs
        return jobs.models[int(jobs.model[job])] or "-"

    def _end(self, job: int, now: int) -> None:
        span = self._spans.pop(job, None)
        if span is None or now <= span.since:
            return
        sums = self._sums.setdefault(span.kind, [0.0, 0.0])
        sums[0] += (now - span.since) * span.gpus
        sums[1] += (now - span.since) * span.gpus * span.rate
        self._jobs.setdefault(span.kind, set()).add(job)

    def close(self, now: int) -> list[Together]:
        """The run is over, at `now`: the companies there were, the longest first."""
        for job in list(self._spans):
            self._end(job, now)
        rows = [
            Together(*kind, len(self._jobs[kind]), time / HOUR, work / time)
            for kind, (time, work) in self._sums.items()
        ]
        return sorted(rows, key=lambda row: (-row.gpu_hours, row[:3]))


def _devices(placement: Placement) -> Iterator[tuple[int, int]]:
    return ((slot.node, device) for slot in placement for device in members(slot.devices))
