"""The attempts that run: what each has done of its work, at what speed it goes on, and what is
filed to happen to it."""

from __future__ import annotations

from heapq import heapify, heappush
from math import ceil

import numpy as np
from numpy.typing import NDArray

from ganger.core.events import AnyEvent, Failed, Finished, Progressed, Submitted
from ganger.core.plan import Placement
from ganger.core.state.jobs import Declared
from ganger.core.units import NEVER
from ganger.sim.evaluation import Evaluates, Evaluations
from ganger.sim.pace import Pace
from ganger.sim.physics import Physics
from ganger.sim.rows import Rows

FINISH, FAIL, PACE = (kind.rank for kind in (Finished, Failed, Progressed))
TELL = Submitted.rank
"""An evaluation; arrivals are not in the heap."""
SUSPENSION = 1 << 20
"""Attempts count below this; the suspensions of an attempt count in multiples of it."""
SLACK = 1000
"""The heap is swept when more than half of it, and so many entries, may be void."""


class Attempts:
    """One row a job, and the heap: an entry per thing that is going to happen, (time, rank, job or
    node, attempt). An entry whose attempt (with its suspensions) is no longer the job's present one
    is void.

    A job's time limit counts its computing time, over all attempts whose work is kept. An attempt
    that begins from nothing begins its limit anew, as one that Slurm requeues does.
    """

    def __init__(
        self,
        declared: Declared,
        duration: NDArray[np.int64],
        physics: Physics,
        evaluations: Evaluates | None = None,
    ) -> None:
        self.now = 0
        self.physics, self.leaving = physics, physics.costs.finish
        self.rows = Rows()
        self.rows.extend(declared.n, total=duration[: declared.n])
        self.evaluations = evaluations or Evaluations(declared, physics.profiles)
        self.heap: list[tuple[int, int, int, int]] = []
        self.instant: list[AnyEvent] = []
        """What has happened at this very instant, beside what the heap holds."""
        self.on_node: dict[int, set[int]] = {}
        """The jobs on each node, of those that were placed."""
        self.where: dict[int, Placement] = {}
        self.counted: dict[int, int] = {}
        """By job with a limit: the computing time of earlier attempts that the limit counts."""
        self.paced: dict[int, tuple[Pace, NDArray[np.float64]]] = {}
        """Running jobs whose speed changes with progress, and their speed from each start on."""
        self._void = 0
        """How many attempts were stopped since the heap was swept: so many ends are void."""
        self.look(declared)

    def look(self, declared: Declared) -> None:
        """Take hold of what the jobs declare and of their rows; again whenever they grew."""
        self.declared = declared
        limited = (declared.limit[: declared.n] < NEVER).any()
        self.limit = declared.cells("limit") if limited else None
        cells = self.rows.cells
        self.did, self.total, self.alive = cells("did"), cells("total"), cells("alive")
        self.began, self.rate = cells("began"), cells("rate")
        self.evaluations.look(declared)
        self.evaluates = bool(self.evaluations)

    def go(self, job: int, at: int) -> None:
        """The attempt computes from `at` on: file its end."""
        self.began[job] = at
        total = self.total[job]
        if total < NEVER:
            if job in self.paced:
                self._file_pace(job, at)
            else:
                rate = self.rate[job]
                left = total - self.did[job]
                takes = left if rate == 1.0 else left / rate
                ends = at + ceil(takes) + self.leaving
                heappush(self.heap, (ends, FINISH, job, self.alive[job]))
            if self.evaluates:
                self.file_evaluation(job)
        if self.limit is not None and self.limit[job] < NEVER:
            heappush(self.heap, (self.limit_at(job, at), FAIL, job, self.alive[job]))

    def limit_at(self, job: int, at: int) -> int:
        """When the job reaches its limit if it computes from `at` on."""
        assert self.limit is not None
        left: int = self.limit[job] - self.counted.get(job, 0)
        return at + max(left, 0)

    def halt(self, job: int) -> None:
        """The attempt stops computing: book what it did, and for how long."""
        ran = self.now - self.began[job]
        if ran > 0:
            did, total = self.did[job] + ran * self.rate[job], self.total[job]
            self.did[job] = did if did < total else float(total)
            if self.limit is not None:
                self.counted[job] = self.counted.get(job, 0) + ran

    def done(self, job: int) -> float:
        """The work of the job that is booked; NEVER if it has no end."""
        return self.did[job] if self.total[job] < NEVER else float(NEVER)

    def done_by_now(self, job: int) -> float:
        """Work done, with what the attempt has not booked yet."""
        computed = max(self.now - self.began[job], 0) * self.rate[job]
        return self.did[job] + computed  # type: ignore[no-any-return]

    def place(self, job: int, placement: Placement) -> None:
        """The job holds `placement` from now on."""
        self.where[job] = placement
        for slot in placement:
            self.on_node.setdefault(slot.node, set()).add(job)

    def forget(self, job: int) -> None:
        """The job holds nothing more."""
        for slot in self.where.pop(job, ()):
            self.on_node[slot.node].discard(job)

    def file_evaluation(self, job: int) -> None:
        """File the job's next evaluation at the speed that it has."""
        share = self.done_by_now(job) / max(self.total[job], 1)
        own = self.total[job], self.did[job], self.rate[job], self.began[job]
        at = self.evaluations.file(job, share, *own)
        if at < NEVER:
            heappush(self.heap, (at, TELL, job, self.alive[job]))

    def evaluate(self, job: int, attempt: int, events: list[AnyEvent]) -> None:
        """The job evaluates its model, if this is when it does at its present speed."""
        if self.evaluations.at.get(job) == self.now:
            share = self.done_by_now(job) / max(self.total[job], 1)
            events.append(self.evaluations.tell(job, attempt, share))
            self.file_evaluation(job)

    def stopped(self) -> None:
        """One more attempt was stopped; forget the ends that will not come once they are many."""
        self._void += 1
        if self._void <= len(self.heap) // 2 + SLACK:
            return
        alive, heap = self.alive, self.heap
        ends = FINISH, TELL
        heap[:] = [each for each in heap if each[1] not in ends or alive[each[2]] == each[3]]
        heapify(heap)
        self._void = 0

    # ------------------------------------------------------------------ changing speed

    def speed_on(self, job: int, placement: Placement) -> float:
        """The speed on `placement` now, of a job whose speed may change with progress."""
        declared, physics = self.declared, self.physics
        paced = physics.pace(declared, job, placement)
        if paced is None or self.total[job] >= NEVER:
            return physics.rate(declared, job, placement)
        self.paced[job] = paced
        pace, speeds = paced
        return float(speeds[pace.at(self._share(job))])

    def _share(self, job: int) -> float:
        return self.did[job] / max(self.total[job], 1)  # type: ignore[no-any-return]

    def _file_pace(self, job: int, at: int) -> None:
        """File the end, or the next change of speed if that comes first."""
        pace, speeds = self.paced[job]
        now = pace.at(self._share(job))
        left, rank = self.total[job] - self.did[job], FINISH
        if now + 1 < len(pace.starts):
            left, rank = left - float(1.0 - pace.starts[now + 1]) * self.total[job], PACE
        takes = max(ceil(left / float(speeds[now])), rank == PACE)
        takes += self.leaving if rank == FINISH else 0
        heappush(self.heap, (at + takes, rank, job, self.alive[job]))

    def change_pace(self, job: int, attempt: int, events: list[AnyEvent]) -> None:
        """The job has come to where its speed changes."""
        self.halt(job)
        self.began[job] = self.now
        pace, speeds = self.paced[job]
        self.rate[job] = float(speeds[pace.at(self._share(job))])
        events.append(Progressed(job, attempt, self.done(job), self.rate[job]))
        self._file_pace(job, self.now)
        if self.evaluates:
            self.file_evaluation(job)
