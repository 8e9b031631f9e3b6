"""What keeps a job on hold besides people: a time that has not come, jobs that are not over."""

from __future__ import annotations

import heapq

from ganger.core.jobs import Phase
from ganger.core.kernel import Kernel
from ganger.core.units import NEVER
from ganger.service.facts import Facts


class Gates:
    """The closed gates. A job on hold is released when all of its own are open."""

    def __init__(self) -> None:
        self.begin: dict[int, int] = {}
        self.held: set[int] = set()
        """Jobs that a person holds."""
        self._after: dict[int, set[int]] = {}
        self._waited_on: dict[int, list[int]] = {}
        self._line: list[tuple[int, int]] = []
        self._ready: list[int] = []

    def close(self, job: int, facts: Facts, kernel: Kernel, now: int) -> None:
        """The job is on hold: close the gates that `facts` name, or let it go if none is."""
        if facts.begin > now:
            self.begin[job] = facts.begin
            heapq.heappush(self._line, (facts.begin, job))
        phases = kernel.jobs.phase
        open_ended = {row for row in facts.after_any if phases[row] < Phase.FINISHED}
        if open_ended:
            self._after[job] = open_ended
            for row in open_ended:
                self._waited_on.setdefault(row, []).append(job)
        if not self.reason(job):
            self._ready.append(job)

    @property
    def next(self) -> int:
        """When to look again at the latest."""
        if self._ready:
            return 0
        while self._line and self.begin.get(self._line[0][1]) != self._line[0][0]:
            heapq.heappop(self._line)
        return self._line[0][0] if self._line else NEVER

    def opened(self, now: int) -> list[int]:
        """Jobs whose last gate is open now; each is told once."""
        found, self._ready = set(self._ready), []
        while self.next <= now:
            job = heapq.heappop(self._line)[1]
            del self.begin[job]
            found.add(job)
        return sorted(job for job in found if not self.reason(job))

    def notice(self, kernel: Kernel) -> None:
        """See who is over since, for whom others wait."""
        phases = kernel.jobs.phase
        for row in [row for row in self._waited_on if phases[row] >= Phase.FINISHED]:
            for job in self._waited_on.pop(row):
                self._after[job].discard(row)
                if not self._after[job]:
                    del self._after[job]
                    if not self.reason(job):
                        self._ready.append(job)

    def let_go(self, job: int) -> None:
        """A person released the job."""
        self.held.discard(job)
        if not self.reason(job):
            self._ready.append(job)

    def reason(self, job: int) -> str:
        """Slurm's word for what keeps `job` on hold, "" if nothing does."""
        if job in self.held:
            return "JobHeldUser"
        if job in self._after:
            return "Dependency"
        return "BeginTime" if job in self.begin else ""
