"""What keeps a job on hold besides people: a time that has not come, jobs that are not over,
ceilings.

`dependencies` and `limits` say when a job is released. A policy never sees a job on hold, so that
none can exceed a limit.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable

from ganger.core.kernel import Kernel
from ganger.core.state.jobs import Jobs, Phase
from ganger.core.units import NEVER
from ganger.service.jobs.dependencies import Condition, Dependencies
from ganger.service.jobs.job_facts import JobFacts
from ganger.service.jobs.limits import Group, Limits


class Holds:
    """The closed gates. A job on hold is released when all of its own are open; room below its
    ceilings is taken last."""

    def __init__(self) -> None:
        self.begin: dict[int, int] = {}
        """Begin times, on the wall clock."""
        self.ahead = 0
        """By how much the wall clock is ahead of the time of steps: somebody has set it since."""
        self.held: set[int] = set()
        """Jobs that a person holds."""
        self.ceilings = Limits()
        self._conditions: dict[int, Dependencies] = {}
        """Those that do not hold yet, by who waits for them."""
        self._watched: dict[tuple[int, bool], list[int]] = {}
        """Who waits for a row to be over, or (true) to have begun."""
        self._opens: dict[int, int] = {}
        """From when on a job's conditions will hold, where they wait for nothing else."""
        self._needs: dict[int, tuple[dict[Group, int], int]] = {}
        """What a job will take when its other gates are open, and its priority."""
        self._line: list[tuple[int, int]] = []
        self._begins: list[tuple[int, int]] = []
        self._ready: list[int] = []
        self._never: list[int] = []

    def again(self) -> None:
        """Forget all but what people hold and the ceilings, to have every gate closed again."""
        held, ahead, most = self.held, self.ahead, self.ceilings.most
        self.__init__()  # type: ignore[misc]
        self.held, self.ahead, self.ceilings.most = held, ahead, most

    def close(self, job: int, facts: JobFacts, kernel: Kernel, now: int) -> None:
        """The job is on hold: close the gates that `facts` name, or let it go if none is."""
        if self.is_early(facts.begin, now):
            self.begin[job] = facts.begin
            heapq.heappush(self._begins, (facts.begin, job))
        jobs, waits_for = kernel.jobs, facts.waits_for
        needs = self.ceilings.needs_of(job, facts.array, kernel)
        if needs:  # what waits for others takes no room from those that could run
            self._needs[job] = needs, int(jobs.priority[job])
            if before := tuple(jobs.after.get(job, ())):
                over = Condition("over", before)
                waits_for = Dependencies((*waits_for.every, over), waits_for.either)
        if not waits_for:
            self._try(job)
            return
        self._conditions[job] = waits_for
        for watched in waits_for.open_ended(jobs):
            self._watched.setdefault(watched, []).append(job)
        self._look(job, jobs, now)

    def newcomers(self, jobs: Iterable[tuple[int, JobFacts]], kernel: Kernel, now: int) -> None:
        """Close the gates of new jobs, or count those that have none."""
        for job, facts in jobs:
            if job in kernel.on_hold:
                self.close(job, facts, kernel, now)
            elif self.ceilings.most:
                self.ceilings.take(job, self.ceilings.needs_of(job, facts.array, kernel))

    def is_early(self, begin: int, now: int) -> bool:
        """Whether a begin time is still to come."""
        return begin > now + self.ahead

    def _look(self, job: int, jobs: Jobs, now: int) -> None:
        """See whether the conditions of a job hold, will hold, or never can."""
        at = self._conditions[job].opens(jobs)
        if at == NEVER:
            self._never.append(job)
        elif at is not None and at > now:
            self._opens[job] = at
            heapq.heappush(self._line, (at, job))
        elif at is not None:
            self._met(job)

    def _met(self, job: int) -> None:
        self._opens.pop(job, None)
        del self._conditions[job]
        self._try(job)

    def _try(self, job: int) -> None:
        """Release the job if nothing keeps it any more."""
        if self.reason(job):
            return
        needs, priority = self._needs.get(job, ({}, 0))
        if self.ceilings.admit(job, needs, priority):
            self._needs.pop(job, None)
            self._ready.append(job)

    def next(self, ahead: int) -> int:
        """When to look again at the latest, the wall clock being `ahead` now."""
        self.ahead = ahead
        if self._ready or self._never:
            return 0
        while self._line and self._opens.get(self._line[0][1]) != self._line[0][0]:
            heapq.heappop(self._line)
        while self._begins and self.begin.get(self._begins[0][1]) != self._begins[0][0]:
            heapq.heappop(self._begins)
        return min(
            self._line[0][0] if self._line else NEVER,
            self._begins[0][0] - self.ahead if self._begins else NEVER,
        )

    def opened(self, now: int) -> list[tuple[int, str]]:
        """Jobs to `release`, since their last gate is open now, and to `cancel`, since one will
        never open; each is named once."""
        found, self._ready = set(self._ready), []
        while self._line and self._line[0][0] <= now:
            at, job = heapq.heappop(self._line)
            if self._opens.get(job) == at:
                self._met(job)
        while self._begins and not self.is_early(self._begins[0][0], now):
            at, job = heapq.heappop(self._begins)
            if self.begin.get(job) == at:
                del self.begin[job]
                self._try(job)
        found |= set(self._ready)
        never, self._ready, self._never = sorted(set(self._never)), [], []
        told = [(job, "release") for job in sorted(found) if not self.reason(job)]
        return told + [(job, "cancel") for job in never]

    def notice(self, kernel: Kernel, touched: Iterable[int]) -> None:
        """See which jobs began or are over since, for which others wait; `touched` are the step's
        jobs."""
        phases, first_start = kernel.jobs.phase, kernel.jobs.first_start
        happened = [
            (row, begin)
            for row, begin in self._watched
            if phases[row] >= Phase.FINISHED or (begin and first_start[row] >= 0)
        ]
        for job in dict.fromkeys(job for key in happened for job in self._watched.pop(key)):
            if phases[job] >= Phase.FINISHED:
                self._conditions.pop(job, None)
            elif job in self._conditions:
                self._look(job, kernel.jobs, kernel.now)
        ended = [row for row in touched if phases[row] >= Phase.FINISHED]
        for row in ended:
            self.begin.pop(row, None)
            self._opens.pop(row, None)
            self._conditions.pop(row, None)
            self._needs.pop(row, None)
        for job in self.ceilings.over(ended):
            self._needs.pop(job, None)
            self._ready.append(job)

    def let_go(self, job: int) -> None:
        """A person released the job."""
        self.held.discard(job)
        self._try(job)

    def rank(self, job: int, priority: int) -> None:
        """The job has another priority."""
        if job in self._needs:
            self._needs[job] = self._needs[job][0], priority
        self.ceilings.rank(job, priority)

    def raised(self, group: Group, most: int) -> None:
        """Another ceiling over jobs that are counted already."""
        for job in self.ceilings.raised(group, most):
            self._needs.pop(job, None)
            self._ready.append(job)

    def rescaled(self, job: int, array: int, kernel: Kernel) -> None:
        """A service may have other numbers of replicas."""
        needs = self.ceilings.needs_of(job, array, kernel)
        for each in self.ceilings.retake(job, needs):
            self._needs.pop(each, None)
            self._ready.append(each)

    def reason(self, job: int) -> str:
        """Slurm's word for what keeps `job` on hold, "" if nothing does."""
        return "JobHeldUser" if job in self.held else self.besides_people(job)

    def besides_people(self, job: int) -> str:
        """The same, whether or not a person holds it."""
        if job in self._conditions:
            return "Dependency"
        if job in self.begin:
            return "BeginTime"
        return self.ceilings.reason(job)
