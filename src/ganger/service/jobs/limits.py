"""How much may be let into the queue at once: GPUs of a tenant, tasks of an array."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping
from typing import Final, TypeAlias

import msgspec

from ganger.core.kernel import Kernel
from ganger.core.spec import Shape
from ganger.core.state.jobs import Jobs, Phase
from ganger.service.durable.journal import Journal

CEILINGS: Final = "ceilings"
"""The setting that keeps them."""
_PRUNE_FROM = 64
Group: TypeAlias = tuple[str, str]
"""`("tenant", name)`, counted in thousandths of a GPU, or `("array", row of its first task)`,
counted in tasks."""

REASONS: Final = {"tenant": "AssocGrpGRES", "array": "JobArrayTaskLimit"}
"""Slurm's words for waiting below a ceiling."""


def demand(shape: Shape) -> int:
    """Thousandths of GPUs that a job of this shape may hold, at its largest."""
    return sum(
        role.range[1] * (role.needs.gpus * role.needs.share if role.needs.gpus else 0)
        for role in shape.roles
    )


def kept_ceilings(journal: Journal) -> dict[Group, int]:
    """The ceilings that a journal keeps."""
    return dict(
        msgspec.json.decode(journal.setting(CEILINGS) or "[]", type=list[tuple[Group, int]])
    )


def changed_ceilings(
    most: Mapping[Group, int], changes: Mapping[Group, int | None], jobs: Jobs
) -> dict[Group, int]:
    """`most` with changes; ceilings over arrays that are over are dropped when there are many."""
    if not changes:
        return dict(most)
    found = {**most, **changes}
    if len(found) > _PRUNE_FROM:
        arrays = set(jobs.array[: jobs.n][jobs.phase[: jobs.n] < Phase.FINISHED].tolist())
        names = {jobs.arrays[code] for code in arrays}
        found = {
            group: value
            for group, value in found.items()
            if group[0] != "array" or group in changes or str(int(group[1]) + 1) in names
        }
    return {group: value for group, value in found.items() if value is not None}


def begins(group: Group, first: int) -> bool:
    """Whether the group is an array of this very turn, whose first new job is `first`."""
    return group[0] == "array" and int(group[1]) >= first


class Limits:
    """Which jobs are let in below which ceiling, and which wait for room, by priority and
    submission.

    A job that is let in stays so until it is over: what is let in never exceeds a ceiling that was
    there before it, under any policy and after any preemption.
    """

    def __init__(self) -> None:
        self.most: dict[Group, int] = {}
        self._taken: dict[Group, int] = {}
        self._inside: dict[int, dict[Group, int]] = {}
        self._lines: dict[Group, list[tuple[int, int]]] = {}
        self._waits: dict[int, tuple[Group, int, dict[Group, int]]] = {}
        """By job that waits: below which ceiling, its rank there, what it needs."""

    def needs(self, tenant: str, array: int, shape: Shape) -> dict[Group, int]:
        """What a job takes of the groups that have a ceiling. A child takes nothing of its tenant's
        (""): its parent is counted with all that it may ever hold."""
        found: dict[Group, int] = {}
        if ("tenant", tenant) in self.most:
            found["tenant", tenant] = demand(shape)
        if array >= 0 and ("array", str(array)) in self.most:
            found["array", str(array)] = 1
        return found

    def needs_of(self, job: int, array: int, kernel: Kernel) -> dict[Group, int]:
        """What a job of the table takes."""
        if not self.most:
            return {}
        jobs = kernel.jobs
        tenant = jobs.tenants[jobs.tenant[job]] if jobs.parent[job] < 0 else ""
        return self.needs(tenant, array, jobs.shapes[jobs.shape[job]])

    def has_room(self, needs: Mapping[Group, int], also: Mapping[Group, int]) -> bool:
        """Whether a newcomer fits beside what is let in and `also`, with nobody before it."""
        return all(
            not self._lines.get(group)
            and self._taken.get(group, 0) + also.get(group, 0) + need <= self.most[group]
            for group, need in needs.items()
        )

    def take(self, job: int, needs: dict[Group, int]) -> None:
        """The job is in the queue, or runs."""
        if needs and job not in self._inside:
            self._inside[job] = needs
            for group, need in needs.items():
                self._taken[group] = self._taken.get(group, 0) + need

    def admit(self, job: int, needs: dict[Group, int], priority: int) -> bool:
        """Let the job in, or put it in line."""
        if job in self._inside or not needs:
            return True
        if job in self._waits:
            return False
        for group, need in needs.items():
            ahead = self._first(group)
            over = self._taken.get(group, 0) + need > self.most[group]
            if over or (ahead is not None and ahead < (-priority, job)):
                self._waits[job] = group, -priority, needs
                heapq.heappush(self._lines.setdefault(group, []), (-priority, job))
                return False
        self.take(job, needs)
        return True

    def _first(self, group: Group) -> tuple[int, int] | None:
        """The first in a line; who has left it, or has another rank now, is dropped."""
        line = self._lines.get(group, [])
        while line:
            rank, job = line[0]
            waits = self._waits.get(job)
            if waits is not None and waits[0] == group and waits[1] == rank:
                return line[0]
            heapq.heappop(line)
        return None

    def over(self, jobs: Iterable[int]) -> list[int]:
        """Jobs are over; the jobs that are let in for them."""
        freed: dict[Group, None] = {}
        for job in jobs:
            if self._waits.pop(job, None) is not None:
                continue
            for group, need in self._inside.pop(job, {}).items():
                self._taken[group] -= need
                freed[group] = None
        return self._fill(freed)

    def _fill(self, groups: Iterable[Group]) -> list[int]:
        found = []
        for group in groups:
            while (first := self._first(group)) is not None:
                job = first[1]
                _, rank, needs = self._waits[job]
                if self._taken.get(group, 0) + needs[group] > self.most[group]:
                    break
                heapq.heappop(self._lines[group])
                del self._waits[job]
                if self.admit(job, needs, -rank):  # or it waits below its other ceiling
                    found.append(job)
        return found

    def rank(self, job: int, priority: int) -> None:
        """Another priority for a job that may be waiting here."""
        waits = self._waits.get(job)
        if waits is not None:
            self._waits[job] = waits[0], -priority, waits[2]
            heapq.heappush(self._lines[waits[0]], (-priority, job))

    def retake(self, job: int, needs: dict[Group, int]) -> list[int]:
        """A job that is let in takes so much from now on; the jobs that are let in for the rest."""
        before = self._inside.get(job, {})
        for group, need in before.items():
            self._taken[group] += needs.get(group, 0) - need
        if before:
            self._inside[job] = {group: needs.get(group, 0) for group in before}
        return self._fill(before)

    def taken_by(self, job: int) -> dict[Group, int]:
        """What a job takes that is let in."""
        return self._inside.get(job, {})

    def raised(self, group: Group, most: int) -> list[int]:
        """Another ceiling over jobs that are counted already; the jobs that are let in now."""
        self.most[group] = most
        return self._fill([group])

    def waiting(self, group: Group) -> int:
        """How many wait below this ceiling."""
        return sum(waits[0] == group for waits in self._waits.values())

    def taken(self, group: Group) -> int:
        """What is let in below this ceiling."""
        return self._taken.get(group, 0)

    def reason(self, job: int) -> str:
        """Slurm's word for why the job waits here, "" if it does not."""
        waits = self._waits.get(job)
        return REASONS[waits[0][0]] if waits is not None else ""

    def inside(self, job: int) -> bool:
        """Whether the job was let in."""
        return job in self._inside
