"""Jobs to machines and places in line by least total completion time (AlloX, EuroSys 2020)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import ceil

import numpy as np

from ganger.core.events import CAPACITY_FREED, CAPACITY_LOST, COMMANDED, QUEUED, WOKE
from ganger.core.plan import Plan, Reason
from ganger.core.state.table import Ids
from ganger.core.view import View
from ganger.mechanisms.common.reconcile import cells_of
from ganger.mechanisms.placement.place import PACK, Placer
from ganger.mechanisms.rounds.program import Floats, pose, work_left
from ganger.solve.matching import Assigned, assign

_CHANGES = CAPACITY_FREED | CAPACITY_LOST | COMMANDED | QUEUED | WOKE
Entrants = Callable[[View, Ids, float], Ids]
"""Who of the waiting jobs (ascending) enters the matching, given the fraction alpha."""


def of_poorest_users(view: View, ids: Ids, alpha: float) -> Ids:
    """Jobs of the fraction alpha of waiting users that have had the least GPU time."""
    if alpha == 1:
        return ids
    users = view.jobs.user
    everyone = np.arange(view.jobs.n)
    had = np.bincount(users[: view.jobs.n], view.attained(everyone).astype(np.float64))
    waiting = np.unique(users[ids])
    order = waiting[np.argsort(had[waiting], kind="stable")]
    return ids[np.isin(users[ids], order[: ceil(alpha * len(order))])]


def oldest(view: View, ids: Ids, alpha: float) -> Ids:
    """The fraction alpha of jobs that were submitted first."""
    return ids[: ceil(alpha * len(ids))]


@dataclass(frozen=True)
class MatchingPolicy:
    """At every change, waiting jobs are matched to GPUs and places in their lines, and the job that
    is first in the line of a free GPU starts, for good.

    The k-th last job in a line costs k times its run time there; the GPUs of a type that are taken
    count as free after the mean time left of the jobs that hold them. A gang of n stands in one
    line for n times its run time. `entrants` and `alpha` keep jobs from starving: only jobs that
    enter are matched; the others are matched to what that leaves idle, unless a job that entered
    waits for room. `window`: at most so many are matched at once, the first submitted.
    """

    name: str
    entrants: Entrants
    alpha: float
    window: int
    place: Placer = PACK

    def decide(self, view: View, memory: None) -> tuple[Plan, None]:
        """Match, then start."""
        waiting = view.pending
        apart = (view.jobs.gpus[waiting] == 0) | (view.jobs.within[waiting] >= 0)
        for job in waiting[apart].tolist():
            self._start(view, job, "")
        lined = waiting[~apart]
        if view.ledger.free and len(lined):
            entered = self.entrants(view, lined, self.alpha)[: self.window]
            others = lined[~np.isin(lined, entered)][: self.window]
            if not self._match(view, entered) and view.ledger.free and len(others):
                self._match(view, others)
        waits = any(view.draft.holds(job) is None for job in waiting.tolist())
        evidence = {"window_jobs": float(self.window), "entered_part": self.alpha}
        reasons = [Reason("Resources", "MatchingPolicy", evidence=evidence, until=_CHANGES)]
        reasons = reasons if waits else []
        return view.draft.plan(reasons, until=_CHANGES), None

    def _match(self, view: View, ids: Ids) -> bool:
        """Start those of `ids` who are first in line at a free GPU; whether some of them did not
        fit."""
        problem = pose(view, ids)
        if not len(problem.ids):
            return False
        left, rate = work_left(view, problem.ids), problem.shares.rate
        lasts = np.full((len(problem.ids), 2 * len(problem.types)), np.inf)
        count, ready = self._machines(view, problem.types)
        with np.errstate(divide="ignore"):
            once = np.where(rate > 0, left[:, None] / rate, np.inf) * problem.shares.scale[:, None]
        lasts[:, ::2], lasts[:, 1::2] = once, once
        lasts[:, count == 0] = np.inf
        found = assign(lasts, count, ready)
        blocked = False
        for at in _first_in_line(found, len(problem.types)):
            job, kind = int(problem.ids[at]), problem.types[found.group[at] // 2]
            blocked |= not self._start(view, job, kind)
        return blocked

    def _machines(self, view: View, types: tuple[str, ...]) -> tuple[Ids, Floats]:
        """Free and taken GPUs of each type in turn, and the microseconds until they are free."""
        count, ready = np.zeros(2 * len(types), np.int64), np.zeros(2 * len(types))
        ends: list[list[float]] = [[] for _ in types]
        for cell in view.ledger.cells:
            if cell.gpu_type:
                at = 2 * types.index(cell.gpu_type)
                count[at] += cell.free
                count[at + 1] += cell.total - cell.free
        active = np.array(list(view.ledger.holds), np.int64)
        rates = np.where(view.jobs.rate[active] > 0, view.jobs.rate[active], 1.0)
        for job, end in zip(active.tolist(), work_left(view, active) / rates, strict=True):
            held = view.ledger.holds[job][1]  # nothing, of a service: its replicas have it
            kind = view.ledger.cell_of[held[0].node].gpu_type if held else ""
            if kind:
                ends[types.index(kind)].append(float(end))
        ready[1::2] = [np.mean(each) if each else 0.0 for each in ends]
        return count, ready

    def _start(self, view: View, job: int, kind: str) -> bool:
        ledger = view.ledger
        found = self.place.find(view, ledger, job, cells_of(ledger, view, job, kind))
        if found is not None:
            view.draft.start(job, found)
        return found is not None


def _first_in_line(found: Assigned, types: int) -> list[int]:
    """Jobs that are to run first on a free machine, by row: each line's largest place."""
    first: dict[tuple[int, int], int] = {}
    for at in np.flatnonzero(found.group % 2 == 0).tolist():
        line = int(found.group[at]), int(found.machine[at])
        if line not in first or found.place[at] > found.place[first[line]]:
            first[line] = at
    return sorted(first.values())
