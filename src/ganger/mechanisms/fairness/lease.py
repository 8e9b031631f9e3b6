"""Leases: GPUs are lent for a time, and at its end the job that holds them competes with those that
wait.

A lease begins when a job gets its GPUs. It ends at the first tick of a common clock (ten to a
lease) after its length, and a job that wins again keeps what it has; one that is still starting
keeps it to the next end. Jobs that must not be preempted, or would lose their work, hold for good.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Protocol

import msgspec
import numpy as np

from ganger.core.events import CAPACITY_FREED, CAPACITY_LOST, COMMANDED, QUEUED, WOKE
from ganger.core.plan import Placement, Plan, Reason
from ganger.core.protocols import revived
from ganger.core.state.jobs import Phase
from ganger.core.state.table import Ids
from ganger.core.units import NEVER, SECOND
from ganger.core.view import View
from ganger.mechanisms.common.reasons import decides_at
from ganger.mechanisms.common.reconcile import Want, cells_of, staying
from ganger.mechanisms.placement.place import PACK, Placer

_CHANGES = CAPACITY_FREED | CAPACITY_LOST | COMMANDED | QUEUED | WOKE
_PENDING, _STOPPING = int(Phase.PENDING), int(Phase.STOPPING)
TICKS = 10
"""Ends of leases fall on so many moments of each length."""


class Room:
    """GPUs by cell that are free or whose lease is over."""

    def __init__(self, view: View, expired: Iterable[int]) -> None:
        self._view = view
        self.free = {cell.index: cell.free for cell in view.ledger.cells}
        self.cell_of: dict[int, int] = {}
        for job in expired:
            cell = view.ledger.cell_of[view.ledger.holds[job][1][0].node].index
            self.cell_of[job] = cell
            self.free[cell] += int(view.jobs.size[job])
        self.total = sum(self.free.values())
        """All that is left."""

    @property
    def most(self) -> int:
        """The largest job that there is room for in some cell."""
        return max(self.free.values(), default=0)

    def take(self, job: int, gpus: int, gpu_type: str = "") -> Want | None:
        """Set `gpus` aside for `job`, on what it holds if possible; None if there is not room."""
        cells = cells_of(self._view.ledger, self._view, job, gpu_type)
        cells = sorted(cells, key=lambda cell: cell.index != self.cell_of.get(job, -1))
        for cell in cells:
            if self.free[cell.index] >= gpus:
                self.free[cell.index] -= gpus
                self.total -= gpus
                return Want(job, gpus, cell.gpu_type)
        return None

    def alone(self, job: int) -> list[Want]:
        """`take` all that `job` asks for, which competes with nobody."""
        want = self.take(job, self._view.at.gpus[job])
        return [] if want is None else [want]


def of_live(view: View, known: dict[int, float], new: Callable[[int], float]) -> dict[int, float]:
    """What is `known` of the jobs that live, and what is `new` for those of which nothing is. Jobs
    that came or went are looked for among those that changed, unless the numbers say otherwise."""
    phase, changed = view.at.phase, set(view.changed)
    live = {job for job in changed if _PENDING <= phase[job] <= _STOPPING}
    come = {job for job in live if job not in known}
    gone = {job for job in changed - live if job in known}
    if len(known) + len(come) - len(gone) != len(view.pending) + len(view.ledger.holds):
        live = {*view.pending.tolist(), *view.active.tolist()}
        come, gone = live - known.keys(), known.keys() - live
    if gone or come:
        known = known | {job: new(job) for job in sorted(come)}
        for job in gone:
            del known[job]
    return known


class Contest(Protocol):
    """Says which jobs get what is free. Notes are plain data, part of the policy's memory, and are
    never changed in place."""

    def account(self, view: View, notes: Any) -> Any:
        """The notes (None at first) brought up to now, before anything is decided."""
        ...

    def choose(self, view: View, ids: Ids, room: Room, notes: Any) -> list[Want]:
        """The winners among `ids` (ascending), the first one first; takes from `room`."""
        ...

    def settle(self, view: View, notes: Any) -> Any:
        """The notes after the plan was drawn."""
        ...


class LeaseMemory(msgspec.Struct):
    """What the contest keeps; `due`: the end of a lease at which to be asked, microseconds."""

    notes: Any
    due: int


@dataclass(frozen=True)
class LeasePolicy:
    """Lends GPUs for `length` microseconds to the winners of `contest`. What the winners leave is
    kept by the jobs that had it, then goes to jobs that fit, first come, first served."""

    name: str
    contest: Contest
    length: int
    place: Placer = PACK

    def decide(self, view: View, memory: LeaseMemory | None) -> tuple[Plan, LeaseMemory]:
        """Hold a contest if somebody waits and something is to be had."""
        account = self.contest.account
        notes = None if memory is None else revived(memory.notes, account, "notes")
        notes = account(view, notes)
        if len(view.pending):
            # A real engine wakes us a little late.
            expired = self._expired(view, min(view.now, NEVER if memory is None else memory.due))
            if expired or view.ledger.free or not view.jobs.gpus[view.pending].all():
                self._hold(view, expired, notes)
        notes = self.contest.settle(view, notes)
        waiting = any(view.draft.holds(job) is None for job in view.pending.tolist())
        wake = NEVER
        if waiting:
            holding = self._lent(view, np.array(list(view.ledger.holds), np.int64))
            wake = int(self._ends(view, holding, view.now).min(initial=NEVER))
        reasons = []
        if waiting:
            evidence = {"lease_s": self.length / SECOND} | decides_at(wake)
            reasons.append(Reason("Priority", "LeasePolicy", evidence=evidence, until=_CHANGES))
        plan = view.draft.plan(reasons, wake, _CHANGES)
        return plan, LeaseMemory(notes, wake)

    def _lent(self, view: View, ids: Ids) -> Ids:
        """Those of `ids` whose GPUs are on lease."""
        return ids[(view.jobs.gpus[ids] > 0) & ~staying(view, ids)]

    def _expired(self, view: View, since: int) -> list[int]:
        """Who runs on a lease that ended in [since, now]."""
        tick = self._tick
        if not self.length % tick and view.now // tick == (since - 1) // tick:
            return []
        held = self._lent(view, view.active[view.jobs.phase[view.active] == Phase.RUNNING])
        expired: list[int] = held[self._ends(view, held, since - 1) <= view.now].tolist()
        return expired

    @property
    def _tick(self) -> int:
        return max(self.length // TICKS, 1)

    def _ends(self, view: View, ids: Ids, after: int) -> Ids:
        """When the leases of `ids` next end after a time; those that begin now count from now."""
        tick = self._tick
        began = np.where(view.jobs.phase[ids] == Phase.PENDING, view.now, view.jobs.held_since[ids])
        first = -(-(began + self.length) // tick) * tick
        later = np.maximum((after - first) // self.length + 1, 0)
        ends: Ids = first + later * self.length
        return ends

    def _hold(self, view: View, expired: list[int], notes: Any) -> None:
        """Lend out what is free or expired."""
        ids = np.sort(np.concatenate([view.pending, np.array(expired, np.int64)]))
        wants = self.contest.choose(view, ids, Room(view, expired), notes)
        chosen = {want.job: want for want in wants}
        stopped: dict[int, Placement] = {}
        for job in expired:
            want = chosen.get(job)
            if want is None or not self._has(view, want):
                stopped[job] = view.draft.stop(job)
        for want in wants:
            if want.job in stopped or want.job not in expired:
                self._start(view, want, stopped.pop(want.job, None))
        for job, placement in stopped.items():
            if view.ledger.is_free(view.draft.shape(job), placement):
                view.draft.restore(job, placement)
        self._fill(view)

    def _has(self, view: View, want: Want) -> bool:
        cell = view.ledger.cell_of[view.ledger.holds[want.job][1][0].node]
        return bool(view.jobs.size[want.job] == want.gpus) and want.gpu_type in ("", cell.gpu_type)

    def _start(self, view: View, want: Want, held: Placement | None = None) -> bool:
        """Place a winner; a job that `held` GPUs keeps them if there is no other room."""
        ledger = view.ledger
        cells = cells_of(ledger, view, want.job, want.gpu_type)
        placement = self.place.find(view, ledger, want.job, cells, want.gpus)
        if placement is not None:
            view.draft.start(want.job, placement)
        elif held is not None and ledger.is_free(view.draft.shape(want.job), held):
            view.draft.restore(want.job, held)
        return placement is not None

    def _fill(self, view: View) -> None:
        """Whoever fits on what is left."""
        full: set[int] = set()
        for job in view.pending.tolist():
            shape = view.at.shape[job]
            if shape in full or view.draft.holds(job) is not None:
                continue
            lacks = view.ledger.lacks(view.draft.shape(job))
            if lacks or not self._start(view, Want(job, view.at.gpus[job])):
                full.add(shape)
