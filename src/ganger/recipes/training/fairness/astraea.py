"""Long-term GPU-time fairness: what a tenant and its jobs have used over what they deserved."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import msgspec
import numpy as np
from numpy.typing import NDArray

from ganger.core.state.table import Ids
from ganger.core.view import View
from ganger.mechanisms.common.reconcile import Want, among, competitors
from ganger.mechanisms.fairness.lease import Room, of_live
from ganger.mechanisms.ordering.admit import Quotas

_UNUSED = 1e-9
_NOTHING = 0.0, 0.0


class Account(msgspec.Struct, frozen=True, array_like=True):
    """One tenant. `past`: (used, deserved) GPU-time of each interval of the window, the latest
    last; `holds`, `due`: GPUs that it has and deserves now; `each`: the integral over time of what
    one of its jobs of weight 1 deserved."""

    past: tuple[tuple[float, float], ...] = ((0.0, 0.0),)
    holds: float = 0.0
    due: float = 0.0
    each: float = 0.0
    one: float = 0.0
    """GPUs that a job of weight 1 deserves now."""

    @property
    def ltgf(self) -> float:
        """Used over deserved GPU-time within the window; 0 for one that never deserved any."""
        used, due = (sum(column) for column in zip(*self.past, strict=True))
        return used / due if due > 0 else 0.0


_NOBODY = Account()


class Accounts(msgspec.Struct, frozen=True):
    """All tenants by code, until when they are kept, and what each live job's tenant's `each` was
    when it arrived."""

    tenants: dict[int, Account]
    until: int
    arrived: dict[int, float] = {}


@dataclass(frozen=True)
class LongTermFairness:
    """The tenant that has used least of what it deserved goes first, and of its jobs likewise.

    A tenant deserves the smaller of its demand and its quota (tenants without one share what no
    quota claims), a job its weight's part of the quota. LTGF counts over `window` intervals of
    `interval` microseconds. First every tenant is served up to its quota, then what is left goes
    beyond. Jobs that have waited longer than `starving` precede all.
    """

    interval: int
    window: int
    starving: int
    quotas: Quotas = field(default_factory=Quotas)

    def account(self, view: View, notes: Accounts | None) -> Accounts:
        """Use and due of all tenants, up to now."""
        notes = notes or Accounts({}, view.now)
        spans = list(self._spans(notes.until, view.now))
        tenants = {code: self._book(account, spans) for code, account in notes.tenants.items()}
        each = lambda job: tenants.get(view.at.tenant[job], _NOBODY).each  # noqa: E731
        return Accounts(tenants, view.now, of_live(view, notes.arrived, each))

    def _spans(self, start: int, end: int) -> Iterator[tuple[int, bool]]:
        """(microseconds, whether a new interval follows) of the pieces of [start, end)."""
        edge = (start // self.interval + 1) * self.interval
        if (end - edge) // self.interval > self.window:  # all that went before is out of sight
            yield end - start, True
            return
        while edge <= end:
            yield edge - start, True
            start, edge = edge, edge + self.interval
        yield end - start, False

    def _book(self, account: Account, spans: list[tuple[int, bool]]) -> Account:
        past, each = account.past, account.each
        for lasting, over in spans:
            used, due = past[-1]
            last = used + account.holds * lasting, due + account.due * lasting
            past = (*past[:-1], last, _NOTHING) if over else (*past[:-1], last)
            each += account.one * lasting
        return Account(past[-self.window :], account.holds, account.due, each, account.one)

    def settle(self, view: View, notes: Accounts) -> Accounts:
        """What everybody holds and deserves from now on."""
        jobs, holds = view.jobs, view.ledger.holds
        ids = np.fromiter(notes.arrived, np.int64, len(notes.arrived))
        holding = np.fromiter(holds, np.int64, len(holds))
        tenant, most = jobs.tenant[ids], len(jobs.tenants)
        quota = self._quota(view, tenant)
        demand = np.bincount(tenant, jobs.gpus[ids], most).tolist()
        weight = np.bincount(tenant, jobs.weight[ids], most).tolist()
        size = np.where(jobs.size[holding] > 0, jobs.size[holding], jobs.gpus[holding])
        held = np.bincount(jobs.tenant[holding], size, most).tolist()
        tenants: dict[int, Account] = {}
        for code in {*notes.tenants, *quota}:
            before = notes.tenants.get(code, _NOBODY)
            share, total = quota.get(code, 0.0), weight[code]
            due, one = min(demand[code], share), share / total if total > 0 else 0.0
            tenants[code] = Account(before.past, held[code], due, before.each, one)
        return Accounts(tenants, notes.until, notes.arrived)

    def _quota(self, view: View, tenant: NDArray[np.int32]) -> dict[int, float]:
        """GPUs that each tenant of live jobs (theirs are given) is entitled to."""
        live = np.flatnonzero(np.bincount(tenant)).tolist()
        limits = self.quotas.limits(view)
        others = sum(code not in limits for code in live)
        left = max(view.ledger.total - sum(limits.values()), 0)
        share = left / max(others, 1)
        return {code: float(limits.get(code, share)) for code in live}

    def job_ltgf(self, view: View, ids: Ids, notes: Accounts) -> NDArray[np.float64]:
        """Of each job: used GPU-time over its weight's part of what its tenant was due, at most
        what it asked for."""
        jobs = view.jobs
        since = np.array(
            [
                notes.tenants.get(view.at.tenant[job], _NOBODY).each - notes.arrived[job]
                for job in ids.tolist()
            ]
        )
        asked = jobs.gpus[ids] * (view.now - jobs.submitted[ids]).astype(np.float64)
        due = np.minimum(jobs.weight[ids] * since, asked)
        found: NDArray[np.float64]
        found = np.where(due > 0, view.attained(ids) / np.maximum(due, _UNUSED), 0.0)
        return found

    def choose(self, view: View, ids: Ids, room: Room, notes: Accounts) -> list[Want]:
        """Starving jobs, then tenants up to their quotas, then beyond, each time the least LTGF."""
        jobs, wants = view.jobs, list[Want]()
        if len(ids) == 1:
            return room.alone(int(ids[0]))
        # Whoever finds no room at first finds none later.
        most = room.most
        able = ids[jobs.gpus[ids] <= most]
        if not len(able):
            return wants
        quota = self._quota(view, jobs.tenant[competitors(view)])
        order = able[np.lexsort((able, self.job_ltgf(view, able, notes).round(9)))].tolist()
        queues: dict[int, list[int]] = {}
        for job in order:
            queues.setdefault(view.at.tenant[job], []).append(job)
        contested = set(ids.tolist())
        kept = np.array([job for job in view.ledger.holds if job not in contested], np.int64)
        held = np.bincount(jobs.tenant[kept], jobs.size[kept], minlength=len(jobs.tenants))
        used = {code: float(held[code]) for code in queues}
        taken: set[int] = set()

        def take(job: int, within: float) -> None:
            nonlocal most
            code, gpus = view.at.tenant[job], view.at.gpus[job]
            if job in taken or gpus > most or used[code] + gpus > within:
                return
            want = room.take(job, gpus)
            if want is not None:
                wants.append(want)
                taken.add(job)
                used[code] += gpus
                most = room.most

        if self.starving:
            waited = view.now - jobs.pending_since[able]
            late = able[(waited > self.starving) & among(able, view.pending)]
            for job in sorted(late.tolist(), key=lambda job: (view.at.pending_since[job], job)):
                take(job, float("inf"))
        tenants = sorted(queues, key=lambda code: (self._level(notes, code), code))
        for beyond in (False, True):
            for code in tenants:
                for job in queues[code] if most else ():
                    take(job, float("inf") if beyond else quota[code])
        return wants

    def _level(self, notes: Accounts, code: int) -> float:
        return round(notes.tenants.get(code, _NOBODY).ltgf, 9)
