"""Fair shares: what each owner has, what each deserves, and the ledger of finish-time fairness."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from heapq import heapify, heappop, heappush
from typing import TypeAlias

import msgspec
import numpy as np
from numpy.typing import NDArray

from ganger.core.events import CAPACITY_FREED, CAPACITY_LOST, COMMANDED, QUEUED, WOKE
from ganger.core.plan import Plan, Reason
from ganger.core.spec import TenantSpec
from ganger.core.state.table import Ids
from ganger.core.view import View
from ganger.mechanisms.ordering.admit import Walk
from ganger.mechanisms.ordering.blocked_classes import Entry
from ganger.mechanisms.ordering.order import FIRST_COME, Order
from ganger.mechanisms.ordering.queue_index import QueueIndex, StandingIndex
from ganger.mechanisms.placement.place import PACK, Placer
from ganger.solve.division import hierarchy

Floats = NDArray[np.float64]
_CHANGES = CAPACITY_FREED | CAPACITY_LOST | COMMANDED | WOKE | QUEUED
_PLACE, _PARENT, _OWNER = 8, 40, 80
"""Where in the number of a class its shape begins, its parent, and its owner."""
_SHAPES, _LIKE = (1 << _PARENT - _PLACE) - 1, (1 << _OWNER) - 1
Demand: TypeAlias = Callable[[View, Ids], Floats]
"""What each job takes of each resource, as a fraction of the cluster: (jobs, resources)."""


class Owner(Enum):
    """The user or the tenant to which a job's use is charged."""

    USER = "user"
    TENANT = "tenant"


class _Demands:
    """What each shape takes, by code, of a cluster of so many `nodes`."""

    __slots__ = ("nodes", "shapes")

    def __init__(self) -> None:
        self.nodes = -1
        self.shapes: Floats = np.zeros((0, 3))


def demands(view: View, ids: Ids) -> Floats:
    """GPUs, CPUs and host memory, each as a fraction of what the cluster has of it."""
    nodes, shapes = view.nodes, view.jobs.shapes
    known = view.cached(_Demands)
    if known.nodes != nodes.n or len(known.shapes) != len(shapes):
        n = nodes.n
        total = np.array(
            [nodes.gpus[:n].sum(), nodes.cpus[:n].sum(), nodes.memory[:n].sum()], float
        )
        asked = np.array([_asked(view, code) for code in range(len(shapes))], float)
        known.nodes = n
        known.shapes = asked.reshape(-1, 3) / np.where(total > 0, total, np.inf)
    taken: Floats = known.shapes[view.jobs.shape[ids]]
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


def owners(view: View, owner: Owner) -> NDArray[np.int32]:
    """By job, the code of its owner."""
    return view.jobs.user if owner is Owner.USER else view.jobs.tenant


def tenant_weights(view: View, tenants: int) -> Floats:
    """By code of the first `tenants` tenants, the weight that the cluster's spec gives it (1 for
    one that it does not name)."""
    weights = np.ones(tenants)
    for tenant in view.nodes.spec.tenants:
        code = view.jobs.tenants.find(tenant.name)
        if 0 <= code < tenants:
            weights[code] = tenant.weight
    return weights


@dataclass(frozen=True)
class FairPolicy:
    """Progressive filling: the owner with the smallest weighted dominant share starts its next
    job, until nothing fits. Nothing is preempted.

    `order`: an owner's own jobs. `walk`: STRICT stops at the first job that does not fit, as the
    paper's algorithm does; SKIP lets other owners and later jobs pass. Ties go to the owner named
    first in the trace.
    """

    name: str
    owner: Owner
    demand: Demand
    walk: Walk
    order: Order = FIRST_COME
    place: Placer = PACK

    def decide(self, view: View, memory: None) -> tuple[Plan, None]:
        """Fill once."""
        pending = self._index(view).pending
        queues, full = dict[int, list[tuple[Entry, int]]](), set[int]()
        met = set[int]()
        for kind in list(pending.heaps):
            head, like = pending.head(kind), kind & _LIKE
            if head is None:
                continue
            if like not in met:
                met.add(like)
                if self._hopeless(view, head[-1]):
                    full.add(like)
            if like not in full:
                queues.setdefault(kind >> _OWNER, []).append((head, kind))
        use = self._use(view, max(queues, default=0))
        weights = self._weights(view, len(use))
        turns = [(_level(use[code], weights[code]), code) for code in queues]
        heapify(turns)
        while turns:
            _, code = heappop(turns)
            heads = queues[code] = [head for head in queues[code] if head[1] & _LIKE not in full]
            if not heads:
                continue
            first = min(heads)
            (*_, job), kind = first
            heads.remove(first)
            if self._start(view, job):
                del pending.entry[job]
                use[code] += self.demand(view, np.array([job]))[0]
                if (head := pending.head(kind)) is not None:
                    heads.append((head, kind))
            else:
                full.add(kind & _LIKE)
                if self.walk is Walk.STRICT:
                    break
            heappush(turns, (_level(use[code], weights[code]), code))
        shapes = sorted({like >> _PLACE & _SHAPES for like in full})
        every, strict = view.jobs.shapes.values, self.walk is Walk.STRICT
        reasons = [_reason(code, every[code].gpus, strict) for code in shapes]
        return view.draft.plan(reasons, until=_CHANGES), None

    def _index(self, view: View) -> QueueIndex:
        """Waiting jobs by owner and by who is placed alike."""
        standing = view.cached(StandingIndex)
        index = standing.index
        if index is None:
            index = standing.index = QueueIndex(view, self.order, self)
        else:
            index.update(view)
        return index

    def _hopeless(self, view: View, job: int) -> bool:
        """Whether too little is free anywhere for all who are placed like `job`. A strict walk has
        to meet the first of them in its turn."""
        if self.walk is Walk.STRICT or self.place.sizes or view.at.within[job] >= 0:
            return False
        return view.ledger.lacks(view.draft.shape(job))

    @property
    def timed(self) -> bool:
        """Whether anybody is placed otherwise as time goes by."""
        return self.place.patient

    def class_of(self, view: View, job: int) -> int:
        """The owner of a waiting job and how it is placed, as one number."""
        at, place = view.at, self.place.kind(view, job)
        like: int = (at.within[job] + 1) << _PARENT | at.shape[job] << _PLACE | place
        return int(owners(view, self.owner)[job]) << _OWNER | like

    def until(self, view: View, job: int) -> int:
        """When the job's patience ends."""
        return self.place.relaxes(view, job)

    def _use(self, view: View, most: int) -> Floats:
        active = view.active
        charged = owners(view, self.owner)[active]
        taken = self.demand(view, active)
        use = np.zeros((max(most, int(charged.max(initial=0))) + 1, taken.shape[1]))
        np.add.at(use, charged, taken)
        return use

    def _weights(self, view: View, owners: int) -> Floats:
        return tenant_weights(view, owners) if self.owner is Owner.TENANT else np.ones(owners)

    def _start(self, view: View, job: int) -> bool:
        placement = self.place.find(view, view.ledger, job)
        if placement is None:
            return False
        view.draft.start(job, placement)
        return True


@lru_cache(maxsize=4096)
def _reason(shape: int, gpus: int, strict: bool) -> Reason:
    """Why jobs of a shape wait: said again and again."""
    evidence = {"asked_gpus": float(gpus), "may_pass": float(not strict)}
    return Reason("Resources", "FairPolicy", shape, evidence=evidence, until=_CHANGES)


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

    inside: Inside

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
            np.array(mine, np.int64)[owner],
            jobs.weight[ids],
        )


def _enter(name: str, spec: dict[str, TenantSpec], number: dict[str, int]) -> int:
    """The tenant's row, entered after its parents."""
    if name not in number:
        if name in spec:
            _enter(spec[name].parent, spec, number)
        number[name] = len(number)
    return number[name]


# ---------------------------------------------------------------------- finish-time fairness


class Notes(msgspec.Struct, frozen=True):
    """What finish-time fairness knows of `jobs` (ascending). `columns`: three runs of little-endian
    float64, the isolated time so far, the work done by then, and the speed alone since then; other
    allocators have numbers of their own there. `draws`: random numbers drawn so far."""

    jobs: list[int] = []
    columns: bytes = b""
    draws: int = 0

    def of(self, ids: Ids) -> tuple[NDArray[np.bool_], Floats]:
        """Which of `ids` are known, and the columns of all, (3, jobs); those of others say
        nothing."""
        jobs = np.array(self.jobs, np.int64)
        columns = np.frombuffer(self.columns, "<f8").reshape(3, -1)
        if not len(jobs):
            return np.zeros(len(ids), np.bool_), np.zeros((3, len(ids)))
        at = np.minimum(np.searchsorted(jobs, ids), len(jobs) - 1)
        return jobs[at] == ids, columns[:, at]


def integrate_isolated(view: View, ids: Ids, alone: Floats, notes: Notes) -> Notes:
    """The notes of `ids` (ascending) brought up to now; those of others are forgotten.

    Called whenever the set of competitors changes, so that the speed alone is constant between
    two calls: the sum is the integral over a time-varying isolated throughput.
    """
    work = view.work(ids)
    known, (past, before, then) = notes.of(ids)
    before, then = np.where(known, before, work), np.where(known, then, alone)
    past = np.where(known, past, 0.0) + np.maximum(work - before, 0.0) / then
    return Notes(ids.tolist(), np.concatenate([past, work, alone]).astype("<f8").tobytes())
