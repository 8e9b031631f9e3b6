"""Fractions of time made true in rounds (Gavel, OSDI 2020, section 5)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import msgspec
import numpy as np

from ganger.core.allocation import Allocation, Share
from ganger.core.books.ledger import Cell
from ganger.core.events import (
    CAPACITY_FREED,
    CAPACITY_LOST,
    COMMANDED,
    QUEUED,
    WOKE,
    NodeDown,
    NodeUp,
    Withheld,
)
from ganger.core.plan import Plan, Reason
from ganger.core.state.jobs import Phase
from ganger.core.state.table import Ids
from ganger.core.units import NEVER, SECOND, WHOLE
from ganger.core.view import View
from ganger.mechanisms.common.reasons import decides_at
from ganger.mechanisms.common.reconcile import (
    STAYS,
    Want,
    among,
    cells_of,
    competitors,
    placed,
    sharable,
    towards,
)
from ganger.mechanisms.fairness.fair import Notes
from ganger.mechanisms.placement.place import PACK, Placer
from ganger.mechanisms.rounds.round_priority import rows_of, served

if TYPE_CHECKING:
    from typing_extensions import TypeIs

_STOPPING = int(Phase.STOPPING)
_ALL = 0.999
"""A part of the time that is as good as all of it."""
HALF = WHOLE // 2
"""What a job holds of each of its GPUs that lets one more in: with nobody there it has them all."""


class Allocator(Protocol):
    """Divides the cluster among jobs."""

    def allocate(self, view: View, ids: Ids) -> Allocation:
        """The allocation for the jobs of `ids` (ascending), all of which compete."""
        ...


class Remembering(Protocol):
    """An allocator whose answer depends on more of the past than the tables keep. `notes` are three
    numbers by job, part of the policy's memory; `remember` is called whenever the set of competing
    jobs has changed, and before an allocation."""

    def remember(self, view: View, ids: Ids, notes: Notes) -> Notes:
        """The notes brought up to now; `notes` itself is left alone."""
        ...

    def allocate_from(self, view: View, ids: Ids, notes: Notes) -> Allocation:
        """The allocation for the jobs of `ids` (ascending), all of which compete."""
        ...


def remembers(allocator: Allocator | Remembering) -> TypeIs[Remembering]:
    """Whether it is one."""
    return hasattr(allocator, "remember")


class RoundMemory(msgspec.Struct):
    """What the round mechanism remembers. Times in microseconds."""

    allocation: Allocation
    since: int
    """When the allocation was made; fractions received count from there."""
    next_round: int
    received: bytes
    """The time that each row of the allocation has received, little-endian int64; nothing: none
    has."""
    last: int
    """Until when `received` is up to date."""
    jobs: list[int]
    """Who was allocated for."""
    notes: Notes = Notes()
    """What a `Remembering` allocator keeps."""


@dataclass(frozen=True)
class RoundPolicy:
    """Time-shares an allocation in rounds of `every` microseconds.

    In each round (job, type) pairs run in order of allocation over fraction received (Gavel's
    priority), never a job twice, until no more fit; larger gangs are placed first. A job that
    keeps its place is not interrupted; jobs without GPUs always run. `fill`: between rounds,
    waiting jobs start on GPUs that became free. A change of the job set makes a new allocation,
    at the next round.

    How far off: the rule is Adams' method of apportionment. With jobs of one GPU no job is ever a
    round ahead of its fraction, so that after R rounds none of n jobs is off by n/R or more. With
    gangs on one type less is sure, for fractions that add up to its G GPUs may fit together in no
    round (two gangs of 2 and a job of 1 on 3 GPUs, 0.6 of the time each): a gang of g with fraction
    x has had at least (R b - s) / (b + G / x - g) of R rounds, where s GPUs are asked for by the
    others, b = G - g + d, and d divides G and all sizes. A job that is kept out sees b GPUs taken
    by those before it, and each of these is before it only until it has had its part of what x had.
    Gangs of the whole type so end no more than n - 1 rounds of their own x behind.

    `pairs`: rows of two jobs put both on the same GPUs. A job that may have another beside it holds
    half of its GPUs even when it is alone there, so that no job is interrupted when a partner
    comes.
    """

    name: str
    allocator: Allocator | Remembering
    every: int
    place: Placer = PACK
    fill: bool = True
    pairs: bool = False

    def decide(self, view: View, memory: RoundMemory | None) -> tuple[Plan, RoundMemory]:
        """At a round's boundary select anew, in between only fill what is free."""
        if memory is None:
            memory = RoundMemory(Allocation(), view.now, view.now, b"", view.now, [])
        idle = not len(view.active)
        boundary = idle or view.now >= memory.next_round
        # Who competes is asked only where it matters.
        asked = boundary or remembers(self.allocator)
        jobs = competitors(view) if asked else view.pending[:0]
        names = jobs.tolist()
        anew = boundary and (memory.jobs != names or not len(memory.allocation))
        memory = msgspec.structs.replace(memory) if anew else self._account(view, memory)
        if remembers(self.allocator) and _competition_changed(view, memory, names):
            memory.notes = self.allocator.remember(view, jobs, memory.notes)
        if anew:
            memory.allocation = self._allocate(view, jobs, memory)
            memory.since = memory.last = view.now
            memory.received, memory.jobs = b"", names
        if boundary:
            memory.next_round = view.now + self.every
            if self.pairs or not _as_wanted(view, memory.allocation, names):
                towards(view, self._select(view, memory, names), self.place)
        elif self.fill:
            self._fill(view, memory)
        wake = NEVER if _settled(view, memory) else memory.next_round
        until = CAPACITY_FREED | CAPACITY_LOST | QUEUED | COMMANDED | WOKE
        reasons = []
        if len(view.pending):
            evidence = {"round_s": self.every / SECOND} | decides_at(memory.next_round)
            reasons.append(Reason("Priority", "RoundPolicy", evidence=evidence, until=until))
        return view.draft.plan(reasons, wake, until), memory

    def _allocate(self, view: View, jobs: Ids, memory: RoundMemory) -> Allocation:
        if remembers(self.allocator):
            memory.notes = self.allocator.remember(view, jobs, memory.notes)
            return self.allocator.allocate_from(view, jobs, memory.notes)
        return self.allocator.allocate(view, jobs)

    def _account(self, view: View, memory: RoundMemory) -> RoundMemory:
        """Book the time that every running job has had on its type since the last call."""
        elapsed = view.now - memory.last
        if not elapsed:
            return msgspec.structs.replace(memory)
        before, rows = _received(memory), rows_of(view, memory.allocation)
        received = np.zeros(len(rows.jobs), "<i8") if before is None else before.copy()
        received[served(view, rows, sharing=self.pairs)] += elapsed
        return msgspec.structs.replace(memory, received=received.tobytes(), last=view.now)

    def _select(self, view: View, memory: RoundMemory, jobs: list[int]) -> list[Want]:
        """Who runs in the coming round, larger gangs first so that they find whole nodes."""
        at, ledger = view.at, view.ledger
        phase, on_preempt, shape = at.phase, at.on_preempt, at.shape
        free = {cell.index: cell.total for cell in ledger.cells}
        chosen: dict[int, Want] = {}
        fitting = dict[tuple[int, str], list[Cell]]()
        for job, (_, placement) in ledger.holds.items():
            if on_preempt[job] in STAYS and placement:  # a service holds nothing itself
                chosen[job] = Want(job, at.size[job])
                free[ledger.cell_of[placement[0].node].index] -= at.size[job]
        rows, shares = rows_of(view, memory.allocation), memory.allocation.rows
        most = max(free.values(), default=0)
        ranked = rows.ranked(_received(memory), max(view.now - memory.since, 1))
        for number in ranked.tolist():
            row = shares[number]
            gpus = row.gpus
            if gpus > most:
                if most <= 0:
                    break
                continue
            job = row.jobs[0]
            if job in chosen or phase[job] > _STOPPING:
                continue
            if rows.several and any(
                each in chosen or phase[each] > _STOPPING for each in row.jobs[1:]
            ):
                continue
            kind = shape[job], row.gpu_type
            if kind not in fitting:
                fitting[kind] = cells_of(ledger, view, job, row.gpu_type)
            for cell in fitting[kind]:
                if free[cell.index] >= gpus:
                    free[cell.index] -= gpus
                    if self.pairs:
                        chosen |= {want.job: want for want in self._wants(view, row)}
                    else:
                        chosen[job] = Want(job, gpus, row.gpu_type)
                    break
            else:
                most = max(free.values())
        without = [Want(job, 0) for job in jobs if not at.gpus[job]]
        return [*sorted(chosen.values(), key=_narrow), *without]

    def _fill(self, view: View, memory: RoundMemory) -> None:
        """Start who waits on what is free. One that finds no place answers for all its like."""
        at, most = view.at, max((cell.free for cell in view.ledger.cells), default=0)
        pending, jobs = view.pending, view.jobs
        able = pending[(jobs.gpus[pending] <= most) | (jobs.within[pending] >= 0)]
        if not len(able):
            return
        # Jobs are numbered as they come, so that most who wait are past all who have a row.
        late = not self.pairs and (not memory.jobs or able[0] > memory.jobs[-1])
        new = able if late else able[~among(able, np.array(memory.jobs, np.int64))]
        every = memory.allocation.rows
        numbers = np.zeros(0, np.int64) if late else self._ranked(view, memory, able)
        if self.pairs:
            shares = [every[number] for number in numbers.tolist()]
            shares += [Share((job,), "", at.gpus[job], 1.0) for job in new.tolist()]
            self._fill_pairs(view, shares)
            return
        rows = rows_of(view, memory.allocation)
        ids = np.concatenate([rows.first[numbers], new])
        gpus = np.concatenate([rows.gpus[numbers], jobs.gpus[new]])
        kind = np.concatenate([rows.kind[numbers], np.full(len(new), -1)])
        alike = (self._alike(view, ids) << 32) + (gpus << 8) + kind + 1
        left = np.arange(len(ids))
        while len(left):
            row = int(left[0])
            gpu_type = every[numbers[row]].gpu_type if row < len(numbers) else ""
            want = Want(int(ids[row]), int(gpus[row]), gpu_type)
            start = placed(view, want, self.place) is not None
            left = left[ids[left] != want.job if start else alike[left] != alike[row]]

    def _alike(self, view: View, ids: Ids) -> Ids:
        """Numbers of what a placement may depend on: jobs that are alike have the same."""
        known = view.cached(_Alike, view.jobs.capacity)
        if len(known.of) < view.jobs.capacity:
            known.cover(view.jobs.capacity)
        of, number = known.of, known.number
        at = view.at
        asked = ids if self.place.patient else ids[of[ids] < 0]  # patience ends, shapes stay
        for job in asked.tolist():
            key = at.shape[job], at.within[job], self.place.kind(view, job)
            of[job] = number.setdefault(key, len(number))
        return of[ids]

    def _fill_pairs(self, view: View, shares: Iterable[Share]) -> None:
        """The same where rows may have two jobs."""
        waiting, at = set(view.pending.tolist()), view.at
        full = set[tuple[int | str | tuple[int, ...], ...]]()
        for want in (want for row in shares for want in self._wants(view, row)):
            job = want.job
            alike = (
                at.shape[job],
                at.within[job],
                self.place.kind(view, job),
                want.gpus,
                want.gpu_type,
                want.beside,
            )
            if job not in waiting or alike in full:
                continue
            if placed(view, want, self.place):
                waiting.discard(job)
            else:
                full.add(alike)

    def _ranked(self, view: View, memory: RoundMemory, able: Ids) -> Ids:
        """The rows of those who are `able` to start, and of pairs of whom one waits, in order of
        what they are owed."""
        rows, every = rows_of(view, memory.allocation), memory.allocation.rows
        kept = among(rows.first, able)
        if rows.several:
            waiting = set(view.pending.tolist())
            for number, row in enumerate(every):
                if len(row.jobs) > 1:
                    kept[number] = not waiting.isdisjoint(row.jobs)
        return rows.ranked(_received(memory), max(view.now - memory.since, 1), kept)

    def _wants(self, view: View, row: Share) -> list[Want]:
        """What a row asks for, job by job."""
        job = row.jobs[0]
        if not self.pairs or not sharable(view, job):
            return [Want(job, row.gpus, row.gpu_type)]
        return [
            Want(
                each, row.gpus, row.gpu_type, share=HALF, beside=row.jobs[:at] + row.jobs[at + 1 :]
            )
            for at, each in enumerate(row.jobs)
        ]


class _Alike:
    """By job: the number of what its placement may depend on, -1 if not known; by such things their
    numbers."""

    __slots__ = ("number", "of")

    def __init__(self, jobs: int) -> None:
        self.cover(jobs)

    def cover(self, jobs: int) -> None:
        """Nothing is known of so many jobs."""
        self.of: Ids = np.full(jobs, -1)
        self.number: dict[tuple[int, ...], int] = {}


def _settled(view: View, memory: RoundMemory) -> bool:
    """Whether nobody waits, and those who were allocated for, all the time, are all there are."""
    if len(view.pending) or rows_of(view, memory.allocation).least <= _ALL:
        return False
    same: bool = memory.jobs == view.active.tolist()
    return same


def _as_wanted(view: View, allocation: Allocation, jobs: list[int]) -> bool:
    """Whether none of `jobs` waits, and all are to run all the time as they do."""
    rows, at = rows_of(view, allocation), view.at
    if len(view.pending) or rows.least <= _ALL or sorted(rows.jobs) != jobs:
        return False
    return len(served(view, rows, sharing=False)) == len(jobs) and all(
        at.size[row.jobs[0]] == row.gpus for row in allocation.rows
    )


def _narrow(want: Want) -> int:
    return -want.gpus


def _received(memory: RoundMemory) -> Ids | None:
    """Microseconds by row; None: none has anything."""
    return np.frombuffer(memory.received, "<i8") if memory.received else None


def _competition_changed(view: View, memory: RoundMemory, jobs: list[int]) -> bool:
    """Whether somebody came or went since the notes were taken, or a node did."""
    return jobs != memory.notes.jobs or any(
        isinstance(event, NodeDown | NodeUp | Withheld) for event in view.events
    )
