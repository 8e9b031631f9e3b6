"""What keeps a job on hold besides people: a time that has not come, jobs that are not over,
ceilings."""

from __future__ import annotations

import heapq
from collections.abc import Iterable

from ganger.core.jobs import Phase
from ganger.core.kernel import Kernel
from ganger.core.units import NEVER
from ganger.service.ceilings import Ceilings, Group
from ganger.service.facts import Facts


class Gates:
    """The closed gates. A job on hold is released when all of its own are open; room below its
    ceilings is taken last."""

    def __init__(self) -> None:
        self.begin: dict[int, int] = {}
        self.held: set[int] = set()
        """Jobs that a person holds."""
        self.ceilings = Ceilings()
        self._after: dict[int, set[int]] = {}
        self._waited_on: dict[int, list[int]] = {}
        self._not_ok: dict[int, frozenset[int]] = {}
        """Rows that must end badly, by who waits for that."""
        self._needs: dict[int, tuple[dict[Group, int], int]] = {}
        """What a job will take when its other gates are open, and its priority."""
        self._line: list[tuple[int, int]] = []
        self._ready: list[int] = []
        self._never: list[int] = []

    def again(self) -> None:
        """Forget all but what people hold and the ceilings, to have every gate closed again."""
        held, most = self.held, self.ceilings.most
        self.__init__()  # type: ignore[misc]
        self.held, self.ceilings.most = held, most

    def close(self, job: int, facts: Facts, kernel: Kernel, now: int) -> None:
        """The job is on hold: close the gates that `facts` name, or let it go if none is."""
        if facts.begin > now:
            self.begin[job] = facts.begin
            heapq.heappush(self._line, (facts.begin, job))
        phases = kernel.jobs.phase
        needs = self.ceilings.needs_of(job, facts.array, kernel)
        before = {*facts.after_any, *facts.after_not_ok}
        if needs:  # what waits for others takes no room from those that could run
            self._needs[job] = needs, int(kernel.jobs.priority[job])
            before |= set(kernel.jobs.after.get(job, ()))
        if any(phases[row] == Phase.FINISHED for row in facts.after_not_ok):
            self._never.append(job)
            return
        if facts.after_not_ok:
            self._not_ok[job] = frozenset(facts.after_not_ok)
        open_ended = {row for row in before if phases[row] < Phase.FINISHED}
        if open_ended:
            self._after[job] = open_ended
            for row in open_ended:
                self._waited_on.setdefault(row, []).append(job)
        self._try(job)

    def _try(self, job: int) -> None:
        """Release the job if nothing keeps it any more."""
        if self.reason(job):
            return
        needs, priority = self._needs.get(job, ({}, 0))
        if self.ceilings.admit(job, needs, priority):
            self._needs.pop(job, None)
            self._ready.append(job)

    @property
    def next(self) -> int:
        """When to look again at the latest."""
        if self._ready or self._never:
            return 0
        while self._line and self.begin.get(self._line[0][1]) != self._line[0][0]:
            heapq.heappop(self._line)
        return self._line[0][0] if self._line else NEVER

    def opened(self, now: int) -> list[tuple[int, str]]:
        """Jobs to `release`, since their last gate is open now, and to `cancel`, since one will
        never open; each is told once."""
        found, self._ready = set(self._ready), []
        while self._line and self._line[0][0] <= now:
            begin, job = heapq.heappop(self._line)
            if self.begin.get(job) == begin:
                del self.begin[job]
                self._try(job)
        found |= set(self._ready)
        never, self._ready, self._never = sorted(set(self._never)), [], []
        told = [(job, "release") for job in sorted(found) if not self.reason(job)]
        return told + [(job, "cancel") for job in never]

    def notice(self, kernel: Kernel, touched: Iterable[int]) -> None:
        """See who is over since, for whom others wait; `touched` are the step's jobs."""
        phases = kernel.jobs.phase
        for row in [row for row in self._waited_on if phases[row] >= Phase.FINISHED]:
            for job in self._waited_on.pop(row):
                if phases[job] >= Phase.FINISHED:
                    self._after.pop(job, None)
                    continue
                if phases[row] == Phase.FINISHED and row in self._not_ok.get(job, ()):
                    self._never.append(job)
                    self._not_ok.pop(job)
                waits = self._after.get(job, set())
                waits.discard(row)
                if not waits and self._after.pop(job, None) is not None:
                    self._opened_after(job)
        ended = [row for row in touched if phases[row] >= Phase.FINISHED]
        for row in ended:
            self.begin.pop(row, None)
            self._needs.pop(row, None)
        for job in self.ceilings.over(ended):
            self._needs.pop(job, None)
            self._ready.append(job)

    def _opened_after(self, job: int) -> None:
        if job not in self._never:
            self._not_ok.pop(job, None)
            self._try(job)

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

    def reason(self, job: int) -> str:
        """Slurm's word for what keeps `job` on hold, "" if nothing does."""
        if job in self.held:
            return "JobHeldUser"
        if job in self._after:
            return "Dependency"
        if job in self.begin:
            return "BeginTime"
        return self.ceilings.reason(job)
