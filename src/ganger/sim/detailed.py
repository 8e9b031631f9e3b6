"""The simulator with what few runs need: rescale protocols, neighbours that slow each other, jobs
in pairs on the same GPUs, and CPUs and host memory that make jobs faster or slower."""

from __future__ import annotations

from collections.abc import Iterable
from heapq import heappush
from math import ceil
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ganger.core.events import AnyEvent, Failed, Finished, Progressed, Released, Started
from ganger.core.plan import Placement, Resize, Tune
from ganger.core.spec import OnPreempt
from ganger.core.state.jobs import Declared
from ganger.core.units import NEVER, WHOLE
from ganger.sim.engine import SUSPENSION, Simulator
from ganger.sim.physics import Physics
from ganger.sim.rows import Outage

_FINISH, _FAIL, _START, _PACE = Finished.rank, Failed.rank, Started.rank, Progressed.rank
_KILL = int(OnPreempt.KILL)


def simulator(
    declared: Declared, duration: NDArray[np.int64], physics: Physics,
    outages: Iterable[Outage] = (),
) -> Simulator:  # fmt: skip
    """The engine that `physics` needs: the plain one wherever it will do."""
    models = [physics.profiles.default, *physics.profiles.models.values()]
    crowds = any(
        model.disturbed or model.sensitivity is not None
        or (model.measured is not None and model.measured.beside)
        for model in models
    )  # fmt: skip
    detailed = crowds or physics.protocol.pause is not None
    return (Detailed if detailed else Simulator)(declared, duration, physics, outages)


class Detailed(Simulator):
    """Jobs whose speed changes while they run: after a rescale, and as neighbours come and go.

    A job's speed is its level (what its placement allows, or what it had before it grew) over the
    slow-down by its neighbours, times the factor of its supply with CPUs and host memory, and times
    its part beside those that share its GPUs. Jobs that choose their batch size know none of them.
    """

    whole = False

    def __init__(
        self, declared: Declared, duration: NDArray[np.int64], physics: Physics,
        outages: Iterable[Outage] = (),
    ) -> None:  # fmt: skip
        super().__init__(declared, duration, physics, outages)
        self._uniform = False
        if self._on_node is None:
            self._on_node = {}
        self._level: dict[int, float] = {}
        self._grown: dict[int, float] = {}
        """By job that still computes at its old level: the level that it will have."""
        self._supply: dict[int, float] = {}
        self._limited: dict[int, int] = {}
        """By job that computes: when it reaches its limit."""
        self._awaited: set[int] = set()
        """Jobs whose Started is filed and has not happened."""
        self._pause: int | None = None
        self._before = 0.0

    # ------------------------------------------------------------------ rescaling

    def _resize(self, action: Resize) -> None:
        job, protocol = action.job, self._physics.protocol
        computes = self._alive[job] % SUSPENSION == action.attempt - 1
        computes &= self._began[job] <= self.now and job not in self._awaited
        if protocol.pause is None or not computes or self._on_preempt[job] == _KILL:
            super()._resize(action)
            return
        self._before = self._level[job]
        self._halt(job)
        near = self._neighbours(job)
        self._alive[job] = 0
        self._forget(job)
        self._instant.append(Released(job, action.attempt - 1, self._done(job)))
        self._refresh(near, self._instant)
        self._pause = protocol.pause
        self._start(job, action.attempt, action.placement, action.waits)
        self._pause, self._before = None, 0.0

    def _start_cost(self, job: int, attempt: int) -> int:
        return super()._start_cost(job, attempt) if self._pause is None else self._pause

    def _start(self, job: int, attempt: int, placement: Placement, waits: tuple[int, ...]) -> None:
        self._grown.pop(job, None)
        super()._start(job, attempt, placement, waits)
        self._awaited.discard(job)
        if self._began[job] > self.now:
            self._awaited.add(job)
        level, ready = self._rate[job], self._physics.protocol.ready
        if ready and 0 < self._before < level and job not in self._paced:
            self._grown[job] = level
            level = self._before
        self._level[job] = level
        self._supply[job] = self._physics.supply(self._declared, job, placement, {})
        self._refresh([job, *self._neighbours(job)], self._instant)
        if job in self._grown:
            until = self._began[job] + ready
            heappush(self._heap, (until, _PACE, job, -self._alive[job] % SUSPENSION))

    def _happen(self, rank: int, subject: int, token: int, events: list[AnyEvent]) -> None:
        if rank == _PACE and token == -self._alive[subject] % SUSPENSION:
            level = self._grown.pop(subject, None)
            if level is not None and self._alive[subject]:
                self._level[subject] = level
                self._refresh([subject], events)
            return
        if rank == _START and self._alive[subject] == token:
            self._awaited.discard(subject)
        super()._happen(rank, subject, token, events)

    # ------------------------------------------------------------------ supply

    def _tune(self, action: Tune) -> None:
        """What a running attempt is given of CPUs and host memory, per GPU."""
        job, placement = action.job, self._where.get(action.job)
        if placement is not None and self._alive[job] % SUSPENSION == action.attempt:
            knobs = {name: float(value) for name, value in action.knobs.items()
                     if not isinstance(value, str)}  # fmt: skip
            supply = self._physics.supply(self._declared, job, placement, knobs)
            self._supply[job] = supply
            self._refresh([job], self._instant)

    # ------------------------------------------------------------------ neighbours

    def _neighbours(self, job: int) -> list[int]:
        assert self._on_node is not None
        where = self._where.get(job, ())
        if len(where) == 1 and len(self._on_node[where[0].node]) == 1:
            return []
        near = {other for slot in where for other in self._on_node[slot.node]}
        return sorted(near - {job})

    def _slowdown(self, job: int) -> float:
        """The factor by which those on its nodes make the job's steps longer."""
        declared = self._declared
        mine = self._physics.profiles.of(declared.models[declared.model[job]]).disturbed
        factor = 1.0
        for other in self._neighbours(job) if mine else ():
            factor *= mine.get(declared.models[declared.model[other]], 1.0)
        return factor

    def _part(self, job: int) -> float:
        """What sharing its GPUs leaves of the job's speed: as measured beside each other job, or
        where that is not known the thousandths that it takes."""
        mine, declared = self._where[job], self._declared
        model = declared.models[declared.model[job]]
        told = self._physics.profiles.of(model).measured
        kind = self._physics.nodes.type_specs[self._physics.nodes.gpu_type[mine[0].node]].name
        gpus, part = sum(slot.devices.bit_count() for slot in mine), 1.0
        for other in self._neighbours(job):
            if any(
                slot.node == theirs.node and slot.devices & theirs.devices
                for slot in mine for theirs in self._where[other]
            ):  # fmt: skip
                beside = declared.models[declared.model[other]]
                measured = told.part(beside, kind, gpus) if told is not None else 0.0
                part *= measured or mine[0].share / WHOLE
        return part

    def _refresh(self, jobs: Iterable[int], events: list[AnyEvent]) -> None:
        """Bring the speed of those that hold GPUs up to date."""
        for job in jobs:
            if self._alive[job] and job not in self._paced:
                rate = self._level[job] / self._slowdown(job) * self._supply[job]
                if self._where[job] and self._where[job][0].share:
                    rate *= self._part(job)
                if rate != self._rate[job]:
                    self._set_rate(job, rate, events)

    def _set_rate(self, job: int, rate: float, events: list[AnyEvent]) -> None:
        attempt, began = self._alive[job] % SUSPENSION, self._began[job]
        awaited = job in self._awaited
        if not awaited and began < NEVER:
            self._halt(job)
            self._began[job] = began = max(began, self.now)
        self._rate[job] = rate
        if began == NEVER:
            return  # suspended: it will go on at this speed
        self._alive[job] += SUSPENSION  # what was filed for it is void
        if awaited:
            heappush(self._heap, (began, _START, job, self._alive[job]))
        elif not self._told(job, attempt, rate):
            events.append(Progressed(job, attempt, self._done(job), rate))
        if self._total[job] < NEVER:
            ends = began + ceil((self._total[job] - self._did[job]) / rate) + self._leaving
            heappush(self._heap, (ends, _FINISH, job, self._alive[job]))
            if self._evaluates:
                self._file_evaluation(job)
        if job in self._limited:
            heappush(self._heap, (self._limited[job], _FAIL, job, self._alive[job]))

    def _told(self, job: int, attempt: int, rate: float) -> bool:
        """Whether a Started of this instant could be given the right speed."""
        for at, event in enumerate(self._instant):
            if type(event) is Started and event.job == job and event.attempt == attempt:
                self._instant[at] = Started(job, attempt, rate)
                return True
        return False

    # ------------------------------------------------------------------ who comes and goes

    def _go(self, job: int, at: int) -> None:
        super()._go(job, at)
        self._limited.pop(job, None)
        if self._limit is not None and self._limit[job] < NEVER:
            self._limited[job] = self._limit_at(job, at)

    def _end(self, job: int, attempt: int, events: list[AnyEvent]) -> None:
        near = self._neighbours(job)
        super()._end(job, attempt, events)
        self._refresh(near, events)

    def _stop(self, job: int, attempt: int, *, over: bool = False) -> None:
        near = self._neighbours(job)
        super()._stop(job, attempt, over=over)
        self._refresh(near, self._instant)

    def _fail(self, job: int, attempt: int, events: list[AnyEvent], **how: Any) -> None:
        near = self._neighbours(job)
        super()._fail(job, attempt, events, **how)
        self._refresh(near, events)
