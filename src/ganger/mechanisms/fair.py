"""Fair shares: who has what, who deserves what, and the ledger of finish-time fairness."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from heapq import heapify, heappop, heappush
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from ganger.core.events import CAPACITY_FREED, CAPACITY_LOST, COMMANDED, QUEUED, WOKE
from ganger.core.plan import Plan, Reason
from ganger.core.spec import TenantSpec
from ganger.core.table import Ids
from ganger.core.view import View
from ganger.mechanisms.admit import Walk
from ganger.mechanisms.order import FIRST_COME, Order
from ganger.mechanisms.place import PACK, Placer
from ganger.solve import hierarchy

Floats = NDArray[np.float64]
_CHANGES = CAPACITY_FREED | CAPACITY_LOST | COMMANDED | WOKE | QUEUED
Demand: TypeAlias = Callable[[View, Ids], Floats]
"""What each job takes of each resource, as a fraction of the cluster: (jobs, resources)."""


class Owner(Enum):
    """To whom a job's use is charged."""

    USER = "user"
    TENANT = "tenant"


def demands(view: View, ids: Ids) -> Floats:
    """GPUs, CPUs and host memory, each as a fraction of what the cluster has of it."""
    nodes = view.nodes
    n = nodes.n
    total = np.array([nodes.gpus[:n].sum(), nodes.cpus[:n].sum(), nodes.memory[:n].sum()], float)
    asked = np.array([_asked(view, code) for code in range(len(view.jobs.shapes))], float)
    per_shape = asked.reshape(-1, 3) / np.where(total > 0, total, np.inf)
    taken: Floats = per_shape[view.jobs.shape[ids]]
    return taken


def _asked(view: View, code: int) -> tuple[float, int, int]:
    roles = view.jobs.shapes[code].roles
    return (
        sum(role.size * role.needs.gpus * role.needs.share / 1000 for role in roles),
        sum(role.size * role.needs.cpus for role in roles),
        sum(role.size * role.needs.memory for role in roles),
    )


def gpu_demands(view: View, ids: Ids) -> Floats:
    """GPUs alone."""
    return demands(view, ids)[:, :1]


@dataclass(frozen=True)
class FairPolicy:
    """Progressive filling: the owner with the smallest weighted dominant share starts its next
    job, until nothing fits. Nothing is preempted.

    `order`: an owner's own jobs. `walk`: STRICT stops at the first job that does not fit, as the
    paper's algorithm does; SKIP lets other owners and later jobs pass. Ties go to the owner named
    first in the trace.
    """

    name: str
    owner: Owner = Owner.USER
    demand: Demand = demands
    order: Order = FIRST_COME
    walk: Walk = Walk.SKIP
    place: Placer = PACK

    def decide(self, view: View, memory: None) -> tuple[Plan, None]:
        """Fill once."""
        queues = self._queues(view)
        owners = view.jobs.user if self.owner is Owner.USER else view.jobs.tenant
        use = self._use(view, owners, max(queues, default=0))
        weights = self._weights(view, len(use))
        heap = [(_level(use[code], weights[code]), code) for code in queues]
        heapify(heap)
        full: set[tuple[int, int]] = set()
        reasons: list[Reason] = []
        while heap:
            _, code = heappop(heap)
            job = queues[code].pop()
            kind = int(view.jobs.shape[job]), self.place.kind(view, job)
            if kind not in full and self._start(view, job):
                use[code] += self.demand(view, np.array([job]))[0]
            else:
                if kind not in full:
                    reasons.append(Reason("Resources", "fair", kind[0]))
                if self.walk is Walk.STRICT:
                    break
                full.add(kind)
            if queues[code]:
                heappush(heap, (_level(use[code], weights[code]), code))
        return view.draft.plan(reasons, until=_CHANGES), None

    def _queues(self, view: View) -> dict[int, list[int]]:
        """Waiting jobs by owner, the next one last."""
        pending = np.sort(view.pending).tolist()
        pending.sort(key=lambda job: self.order.key(view, job))
        owners = view.jobs.user if self.owner is Owner.USER else view.jobs.tenant
        queues: dict[int, list[int]] = {}
        for job in reversed(pending):
            queues.setdefault(int(owners[job]), []).append(job)
        return queues

    def _use(self, view: View, owners: NDArray[np.int32], most: int) -> Floats:
        active = view.active
        charged = owners[active]
        taken = self.demand(view, active)
        use = np.zeros((max(most, int(charged.max(initial=0))) + 1, taken.shape[1]))
        np.add.at(use, charged, taken)
        return use

    def _weights(self, view: View, owners: int) -> Floats:
        weights = np.ones(owners)
        if self.owner is Owner.TENANT:
            for tenant in view.nodes.spec.tenants:
                code = view.jobs.tenants.find(tenant.name)
                if 0 <= code < owners:
                    weights[code] = tenant.weight
        return weights

    def _start(self, view: View, job: int) -> bool:
        ledger = view.draft.ledger_of(job)
        placement = None if ledger is None else self.place.find(view, ledger, job)
        if placement is None:
            return False
        view.draft.start(job, placement)
        return True


def _level(use: Floats, weight: float) -> float:
    """A share, rounded so that equal shares are equal."""
    return round(float(use.max(initial=0.0)) / weight, 9)


# ---------------------------------------------------------------------- trees of tenants


class Inside(Enum):
    """How a tenant's share is divided among its own jobs."""

    FAIRNESS = "fairness"
    """By the jobs' weights."""
    FIFO = "fifo"
    """All to the oldest that can still use more."""


@dataclass(frozen=True)
class Tree:
    """Weights that flow from the organisation through tenants to jobs (Gavel, section 4.3).

    A tenant's weight is its part of its parent's among those that still have live jobs; jobs
    that sit beside sub-tenants count together as one more of weight 1.
    """

    inside: Inside = Inside.FAIRNESS

    def over(self, view: View, ids: Ids) -> hierarchy.Tree:
        """The tree as arrays, with the jobs of `ids` in it."""
        jobs, spec = view.jobs, {tenant.name: tenant for tenant in view.nodes.spec.tenants}
        codes, owner = np.unique(jobs.tenant[ids], return_inverse=True)
        number = {"": 0}
        mine = [_enter(jobs.tenants[int(code)], spec, number) for code in codes.tolist()]
        known = [spec.get(name) for name in number]
        return hierarchy.Tree(
            np.array([number[tenant.parent] if tenant else 0 for tenant in known]),
            np.array([tenant.weight if tenant else 1.0 for tenant in known]),
            np.full(len(number), self.inside is Inside.FIFO),
            np.array(mine, np.int64)[owner], jobs.weight[ids],
        )  # fmt: skip


def _enter(name: str, spec: dict[str, TenantSpec], number: dict[str, int]) -> int:
    """The tenant's row, entered after its parents."""
    if name not in number:
        if name in spec:
            _enter(spec[name].parent, spec, number)
        number[name] = len(number)
    return number[name]


# ---------------------------------------------------------------------- finish-time fairness


def rho(shared: float, independent: float) -> float:
    """Finish-time fairness: time taken over the time it would have taken alone on a 1/n."""
    return shared / independent


Notes: TypeAlias = dict[int, tuple[float, float, float]]
"""By job: isolated time so far, the work done by then, the speed alone since then."""


def integrate_isolated(view: View, ids: Ids, alone: Floats, notes: Notes) -> Notes:
    """The notes of `ids` brought up to now; those of others are forgotten.

    Called whenever the set of competitors changes, so that the speed alone is constant between
    two calls: the sum is the integral over a time-varying isolated throughput.
    """
    work = view.work(ids)
    booked: Notes = {}
    for job, done, speed in zip(ids.tolist(), work.tolist(), alone.tolist(), strict=True):
        past, before, then = notes.get(job, (0.0, done, speed))
        booked[job] = (past + max(done - before, 0.0) / then, done, speed)
    return booked
