"""Deadlines that are promised only if they can be kept, and best effort beside them (Chronus,
SoCC 2021): time is cut into leases, and a promise is a set of leases before the deadline.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import msgspec
import numpy as np

from ganger.core.events import CAPACITY_FREED, CAPACITY_LOST, COMMANDED, QUEUED, WOKE
from ganger.core.plan import Plan, Reason
from ganger.core.state.jobs import Phase
from ganger.core.state.table import Ids
from ganger.core.units import NEVER, SECOND
from ganger.core.view import View
from ganger.mechanisms.common.reasons import decides_at
from ganger.mechanisms.common.reconcile import Want, cells_of, competitors, staying, towards
from ganger.mechanisms.placement.place import PACK, Placer
from ganger.mechanisms.rounds.program import Problem, pose, work_left
from ganger.solve.division.programme import Floats, Ints, Mask
from ganger.solve.integral import fill_backwards, pack_leases

_CHANGES = CAPACITY_FREED | CAPACITY_LOST | COMMANDED | QUEUED | WOKE
HORIZON = 1000
"""Later deadlines count as this many leases ahead."""
SMALL = 2000
"""Jobs x leases up to which the integer programme is asked where the fast check says no."""


class PromiseMemory(msgspec.Struct):
    """When the present lease ends (microseconds), the GPU type on which each accepted job was
    promised its leases, and which jobs were refused."""

    due: int
    accepted: dict[int, str] = {}
    refused: list[int] = []


class _Asked(NamedTuple):
    """What jobs need: work left; leases by (job, type); GPUs; leases until the deadline."""

    problem: Problem
    left: Floats
    leases: Floats
    gpus: Ints
    deadline: Ints


@dataclass(frozen=True)
class PromisePolicy:
    """Decides at the end of every lease of `length` microseconds.

    A job that came with a deadline is accepted if all accepted jobs can have their leases in time,
    in order of submission after those that were accepted before. The accepted run in the leases
    that their packing says, as late as can be; jobs of best effort take what is left of the lease,
    the shortest first; what is left of that goes to accepted jobs ahead of time. A refused job
    becomes best effort, and so does an accepted job that is later than was believed. In between,
    jobs that fit start on GPUs that become free.
    """

    name: str
    length: int
    place: Placer = PACK

    def decide(self, view: View, memory: PromiseMemory | None) -> tuple[Plan, PromiseMemory]:
        """Judge and pack when a lease ends, or where nothing runs; else fill."""
        memory = memory or PromiseMemory(view.now)
        jobs = competitors(view)
        apart = (view.jobs.gpus[jobs] == 0) | (view.jobs.within[jobs] >= 0)
        if view.now >= memory.due or not len(view.active):
            asked = self._ask(view, jobs[~apart])
            accepted, refused, wants = self._lease(view, asked, memory)
            memory = PromiseMemory(view.now + self.length, accepted, refused)
            wants += [
                Want(job, view.at.gpus[job] or view.draft.shape(job).roles[0].size)
                for job in jobs[apart].tolist()
            ]
            towards(view, wants, self.place)
        elif len(view.pending) and view.ledger.free:
            asked = self._ask(view, jobs[~apart & (view.jobs.phase[jobs] == Phase.PENDING)])
            order = _by_length(asked, np.arange(len(asked.left)))
            first = [int(asked.problem.ids[at]) for at in order.tolist()]
            first.sort(key=lambda job: job not in memory.accepted)
            self._fill(view, [*first, *jobs[apart].tolist()], memory)
        elif len(view.pending):
            self._fill(view, jobs[apart].tolist(), memory)
        waits = any(view.draft.holds(job) is None for job in view.pending.tolist())
        wake = memory.due if len(jobs) else NEVER
        reasons = []
        if waits:
            evidence = {"lease_s": self.length / SECOND} | decides_at(wake)
            reasons.append(Reason("Priority", "PromisePolicy", evidence=evidence, until=_CHANGES))
        return view.draft.plan(reasons, wake, _CHANGES), memory

    def _ask(self, view: View, ids: Ids) -> _Asked:
        problem = pose(view, ids)
        left = work_left(view, problem.ids)
        with np.errstate(divide="ignore"):
            lasts = np.where(problem.shares.rate > 0, left[:, None] / problem.shares.rate, np.inf)
        ahead = (view.jobs.deadline[problem.ids] - view.now) // self.length
        return _Asked(
            problem,
            left,
            np.ceil(lasts / self.length),
            view.jobs.gpus[problem.ids].astype(np.int64),
            np.clip(ahead, 0, HORIZON).astype(np.int64),
        )

    def _lease(
        self, view: View, asked: _Asked, memory: PromiseMemory
    ) -> tuple[dict[int, str], list[int], list[Want]]:
        """Who is accepted and who refused from now on, and who runs in the coming lease."""
        ids, types = asked.problem.ids, asked.problem.types
        free = self._free(view, asked)
        dated = view.jobs.deadline[ids] < NEVER
        stays = self._stays(view, ids)
        rows: list[list[int]] = [[] for _ in types]
        runs: list[Mask] = [np.zeros((0, free.shape[1]), np.bool_)] * len(types)
        refused = [job for job in memory.refused if job in set(ids.tolist())]
        dated &= ~stays & ~np.isin(ids, refused)
        judged: list[int] = np.flatnonzero(dated).tolist()
        judged.sort(key=lambda at: int(ids[at]) not in memory.accepted)
        promised = [memory.accepted.get(int(ids[at])) for at in judged]
        accepted: dict[int, str] = {}
        for kind, name in enumerate(types):  # all who were promised something at once, if possible
            kept = [
                at
                for at, known in zip(judged, promised, strict=True)
                if known == name and asked.leases[at, kind] <= asked.deadline[at]
            ]
            packed = _pack(asked, kept, kind, free[kind])
            if packed is not None:
                rows[kind], runs[kind] = kept, packed
                accepted |= {int(ids[at]): name for at in kept}
        for at, known in zip(judged, promised, strict=True):
            job = int(ids[at])
            for kind, name in enumerate(types) if job not in accepted else ():
                if known not in (None, name) or asked.leases[at, kind] > asked.deadline[at]:
                    continue
                packed = _pack(asked, [*rows[kind], at], kind, free[kind])
                if packed is not None:
                    rows[kind].append(at)
                    runs[kind] = packed
                    accepted[job] = name
                    break
            if job not in accepted:
                refused.append(job)
        left = free[:, 0].copy() if free.shape[1] else np.zeros(len(types), np.int64)
        wants = [Want(int(ids[at]), view.at.size[int(ids[at])]) for at in np.flatnonzero(stays)]
        now = [
            (at, kind)
            for kind in range(len(types))
            for at, runs_at in zip(rows[kind], runs[kind], strict=True)
            if runs_at[0]
        ]
        best = np.array(
            [at for at in np.flatnonzero(~stays).tolist() if int(ids[at]) not in accepted], np.int64
        )
        early = {at for at, _ in now}
        ahead = [at for kind in rows for at in kind if at not in early]
        for at, kind in now:
            left[kind] -= asked.gpus[at]
            wants.append(Want(int(ids[at]), int(asked.gpus[at]), types[kind]))
        for at in [*_by_length(asked, best).tolist(), *ahead]:
            for kind, name in enumerate(types):
                if (
                    asked.leases[at, kind] < np.inf
                    and asked.gpus[at] <= left[kind]
                    and (accepted.get(int(ids[at]), name) == name)
                ):
                    left[kind] -= asked.gpus[at]
                    wants.append(Want(int(ids[at]), int(asked.gpus[at]), name))
                    break
        return accepted, refused, wants

    def _stays(self, view: View, ids: Ids) -> Mask:
        """Who keeps what it holds whatever is decided."""
        holds = np.array([view.draft.holds(job) is not None for job in ids.tolist()], np.bool_)
        return holds & staying(view, ids)

    def _free(self, view: View, asked: _Asked) -> Ints:
        """GPUs of every type by lease, (types, leases), beside those of jobs that stay."""
        ids, types = asked.problem.ids, asked.problem.types
        dated = asked.deadline[view.jobs.deadline[ids] < NEVER]
        ahead = max(int(dated.max(initial=1)), 1)
        free = np.zeros((len(types), ahead), np.int64)
        for cell in view.ledger.cells:
            if cell.gpu_type in types:
                free[types.index(cell.gpu_type)] += cell.total
        for at in np.flatnonzero(self._stays(view, ids)).tolist():
            held = view.draft.holds(int(ids[at]))
            assert held is not None, "a job that stays holds devices"
            kind = types.index(view.ledger.cell_of[held[0].node].gpu_type)
            until = int(min(asked.leases[at, kind], ahead))
            free[kind, :until] -= view.at.size[int(ids[at])]
        return np.maximum(free, 0)

    def _fill(self, view: View, order: list[int], memory: PromiseMemory) -> None:
        """Start who fits."""
        for job in order:
            if view.draft.holds(job) is not None:
                continue
            ledger = view.ledger
            if ledger.lacks(view.draft.shape(job)):
                continue
            cells = cells_of(ledger, view, job, memory.accepted.get(job, ""))
            found = self.place.find(view, ledger, job, cells)
            if found is not None:
                view.draft.start(job, found)


def _by_length(asked: _Asked, rows: Ints) -> Ints:
    """The shortest first, then as submitted."""
    return rows[np.lexsort((rows, asked.left[rows]))]


def _pack(asked: _Asked, rows: list[int], kind: int, free: Ints) -> Mask | None:
    """Who of `rows` runs in which lease, all before their deadlines; None if that cannot be, by
    the fast check, or by the programme where that is small."""
    gpus, deadline = asked.gpus[rows], asked.deadline[rows]
    leases = asked.leases[rows, kind].astype(np.int64)
    runs = fill_backwards(gpus, leases, deadline, free)
    if runs.any(axis=1).all():
        return runs
    if len(rows) * len(free) <= SMALL:
        found = pack_leases(gpus, leases, deadline, np.ones(len(rows)), free, nodes=50)
        if found.runs.any(axis=1).all():
            return found.runs
    return None
