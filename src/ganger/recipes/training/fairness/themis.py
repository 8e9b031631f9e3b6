"""Themis' auction: free GPUs go where finish-time fairness gains most, and bidders pay for it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, exp, log

import msgspec
import numpy as np
from numpy.typing import NDArray

from ganger.core.state.table import Ids
from ganger.core.units import HOUR
from ganger.core.view import View
from ganger.mechanisms.common.reconcile import Want
from ganger.mechanisms.fairness.lease import Room, of_live
from ganger.solve.knapsack import knapsack


def winners(gains: Sequence[float], gpus: Sequence[int], free: int) -> list[int]:
    """The jobs that win: the set with the largest product of gains (log gains add up) that fits."""
    return knapsack(gains, gpus, free)


def kept_share(
    gains: Sequence[float], gpus: Sequence[int], free: int, winner: int, won: Sequence[int]
) -> float:
    """What part of its GPUs `winner`, one of the jobs that `won`, keeps, the rest being its hidden
    payment: the product of the others' values with it there over that without it (partial
    allocation)."""
    with_it = sum(gains[i] for i in won if i != winner)
    others = [i for i in range(len(gains)) if i != winner]
    without = winners([gains[i] for i in others], [gpus[i] for i in others], free)
    return exp(with_it - sum(gains[others[i]] for i in without))


class Competition(msgspec.Struct, frozen=True):
    """The integral of the number of competing jobs over time (job x microseconds), until when, how
    many now, and its value when each live job arrived."""

    total: float
    until: int
    jobs: int = 0
    arrived: dict[int, float] = {}


@dataclass(frozen=True)
class Auction:
    """What is free is offered to the part 1 - `fairness` of the bidders with the worst finish-time
    fairness rho; the set with the largest product of 1 / rho wins.

    rho = (elapsed + remaining) / T_independent, with 1 / N of the cluster, N the mean number of
    competitors over the job's life. A loser's rho is that of one `lease` later. A winner whose size
    may shrink keeps the part that `kept_share` leaves it. What is left goes to the others at
    random.
    """

    fairness: float
    lease: int

    def account(self, view: View, notes: Competition | None) -> Competition:
        """Integrate the number of competitors up to now."""
        notes = notes or Competition(0.0, view.now)
        total = notes.total + notes.jobs * (view.now - notes.until)
        arrived = of_live(view, notes.arrived, lambda _: total)
        return Competition(total, view.now, len(arrived), arrived)

    def settle(self, view: View, notes: Competition) -> Competition:
        """Nothing more."""
        return notes

    def rho(self, view: View, ids: Ids, notes: Competition, later: int = 0) -> NDArray[np.float64]:
        """Of jobs that run from `later` microseconds on as they ask; unknown lengths are hours."""
        jobs = view.jobs
        told = view.oracle.duration(view, ids)
        told = np.maximum(np.where(np.isnan(told), float(HOUR), told), 1.0)
        left = np.maximum(told - view.work(ids), 1.0)
        age = (view.now - jobs.submitted[ids]).astype(np.float64)
        shared = age + later + left
        since = notes.total - np.array([notes.arrived[job] for job in ids.tolist()])
        mean = np.where(age > 0, since / np.maximum(age, 1.0), notes.jobs)
        share = max(view.ledger.total, 1) / np.maximum(mean, 1.0)
        alone = told * np.maximum(jobs.gpus[ids] / share, 1.0)
        found: NDArray[np.float64] = shared / alone
        return found

    def choose(self, view: View, ids: Ids, room: Room, notes: Competition) -> list[Want]:
        """Hold the auction; the rest get what is left in random order."""
        if len(ids) == 1:
            return room.alone(int(ids[0]))
        if view.jobs.gpus[ids].min() > room.total:
            return []
        rho = self.rho(view, ids, notes)
        order = np.lexsort((ids, -rho.round(9)))
        offered = order[: ceil(round((1.0 - self.fairness) * len(ids), 9)) or 1]
        gains = [
            log(value)
            for value in (self.rho(view, ids[offered], notes, self.lease) / rho[offered]).tolist()
        ]
        gpus = view.jobs.gpus[ids[offered]].tolist()
        free = room.total
        won = winners(gains, gpus, free)
        wants: list[Want] = []
        for i in won:
            job, size = int(ids[offered[i]]), gpus[i]
            shape = view.draft.shape(job)
            least = shape.least
            if len(shape.roles) == 1 and least < size:
                size = max(int(kept_share(gains, gpus, free, i, won) * size + 1e-9), least)
            want = room.take(job, _whole(view, job, size))
            if want is not None:
                wants.append(want)
        taken = {want.job for want in wants}
        left = [
            gpus
            for job, gpus in zip(ids.tolist(), view.jobs.gpus[ids].tolist(), strict=True)
            if job not in taken
        ]
        if min(left, default=room.total + 1) > room.total:
            return wants
        for job in ids[view.rng("left over").permutation(len(ids))].tolist():
            if job not in taken and view.at.gpus[job] <= room.total:
                want = room.take(job, view.at.gpus[job])
                if want is not None:
                    wants.append(want)
        return wants


def _whole(view: View, job: int, gpus: int) -> int:
    """The largest size of `job` that has no more than `gpus`."""
    shape = view.draft.shape(job)
    unit = max(shape.roles[0].needs.gpus, 1)
    return shape.gpus - -(-(shape.gpus - gpus) // unit) * unit
