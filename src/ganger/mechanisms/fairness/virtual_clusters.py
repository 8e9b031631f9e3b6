"""Virtual clusters: tenants with quotas that may use what others leave, and give it back."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from ganger.core.events import CAPACITY_FREED, CAPACITY_LOST, COMMANDED, QUEUED, STARTED, WOKE
from ganger.core.plan import Plan, Reason
from ganger.core.spec import OnPreempt
from ganger.core.state.jobs import Phase
from ganger.core.units import NEVER
from ganger.core.view import View
from ganger.mechanisms.ordering.admit import Quotas
from ganger.mechanisms.placement.place import Placer

_CHANGES = CAPACITY_FREED | CAPACITY_LOST | COMMANDED | QUEUED | WOKE


@dataclass(frozen=True)
class VirtualClusters:
    """The tenant that uses the least of its quota starts its next job; a tenant may exceed its
    quota.

    Once `full` of the GPUs are held, a job within its tenant's quota that does not fit evicts jobs
    of tenants over theirs: of the one furthest over first, and of its jobs the last started. Inside
    a tenant jobs go first come, first served, and one that does not fit is passed. Tenants without
    a quota share what there is as one whole, and count as within it.
    """

    name: str
    place: Placer
    full: float
    min_run: int
    quotas: Quotas = field(default_factory=Quotas)

    def decide(self, view: View, memory: None) -> tuple[Plan, None]:
        """Fill by fair share, then take back for those within their quotas."""
        return _Filling(self, view).run(), None


class _Filling:
    """One decision."""

    def __init__(self, policy: VirtualClusters, view: View) -> None:
        self.policy, self.view, self.draft = policy, view, view.draft
        self.limits, self.used = policy.quotas.limits(view), policy.quotas.used(view)
        self.total = max(view.ledger.total, 1)
        self.wake = NEVER
        self.queues: dict[tuple[int, int], deque[int]] = {}
        jobs, pending = view.jobs, view.pending
        rows = (pending.tolist(), jobs.tenant[pending].tolist(), jobs.shape[pending].tolist())
        for job, tenant, shape in zip(*rows, strict=True):
            self.queues.setdefault((tenant, shape), deque()).append(job)

    def run(self) -> Plan:
        """The plan."""
        waiting = dict(self.queues)
        reasons: list[Reason] = []
        while waiting:
            tenant, shape = min(waiting, key=self._turn)
            job = waiting[tenant, shape][0]
            if self._start(job, tenant) or self._reclaim(job, tenant):
                waiting[tenant, shape].popleft()
                if not waiting[tenant, shape]:
                    del waiting[tenant, shape]
                continue
            del waiting[tenant, shape]
            reasons.append(self._reason(job, tenant))
            self.wake = min(self.wake, self.policy.place.relaxes(self.view, job))
        until = _CHANGES | (STARTED if reasons and self.limits else 0)
        return self.draft.plan(reasons, self.wake, until)

    def _reason(self, job: int, tenant: int) -> Reason:
        """Why the tenant's jobs like `job` wait."""
        gpus, used = float(self.view.at.gpus[job]), float(self.used.get(tenant, 0))
        evidence = {"asked_gpus": gpus, "used_gpus": used}
        if tenant in self.limits:
            evidence["quota_gpus"] = float(self.limits[tenant])
        until = _CHANGES | (STARTED if self.limits else 0)
        shape = self.view.at.shape[job]
        return Reason(self._code(job, tenant), "VirtualClusters", shape, tenant, evidence, until)

    def _turn(self, kind: tuple[int, int]) -> tuple[float, int]:
        return self._level(kind[0]), self.queues[kind][0]

    def _level(self, tenant: int) -> float:
        """Use over quota (of all GPUs for a tenant that has none)."""
        return round(self.used.get(tenant, 0) / max(self.limits.get(tenant, self.total), 1e-3), 9)

    def _code(self, job: int, tenant: int) -> str:
        """Why it waits: its tenant's share is used up, or the GPUs that are free lie badly."""
        limit = self.limits.get(tenant, self.total)
        if self.used.get(tenant, 0) + self.view.at.gpus[job] > limit:
            return "AssocGrpGRES"
        return "Resources"

    def _start(self, job: int, tenant: int) -> bool:
        ledger = self.view.ledger
        if ledger.lacks(self.draft.shape(job)):
            return False
        placement = self.policy.place.find(self.view, ledger, job)
        if placement is None:
            return False
        self.draft.start(job, placement)
        self.used[tenant] = self.used.get(tenant, 0) + self.view.at.gpus[job]
        return True

    def _reclaim(self, job: int, tenant: int) -> bool:
        """Evict from those over their quotas until `job` fits; undone if it never does."""
        need, ledger = self.view.at.gpus[job], self.view.ledger
        if not self.limits or self._code(job, tenant) != "Resources" or not need:
            return False
        if ledger.free > (1.0 - self.policy.full) * self.total:
            return False
        mark, before = self.draft.mark(), dict(self.used)
        for victim in self._victims(tenant):
            owner = self.view.at.tenant[victim]
            if self.used[owner] <= self.limits[owner]:
                continue
            self.draft.stop(victim)
            self.used[owner] -= self.view.at.size[victim]
            if self._start(job, tenant):
                return True
        self.draft.rollback(mark)
        self.used = before
        return False

    def _victims(self, tenant: int) -> list[int]:
        """Running jobs that may be evicted, those of the tenant furthest over its quota first."""
        view, jobs = self.view, self.view.jobs
        active = view.active
        may = (jobs.phase[active] == Phase.RUNNING) & (jobs.tenant[active] != tenant)
        may &= jobs.on_preempt[active] != OnPreempt.NEVER
        may &= view.now - jobs.began[active] >= self.policy.min_run
        found = [
            job
            for job in active[may].tolist()
            if self.draft.holds(job) is not None
            and self._level(view.at.tenant[job]) > 1
            and view.at.tenant[job] in self.limits
        ]
        return sorted(
            found, key=lambda job: (-self._level(view.at.tenant[job]), -view.at.began[job], -job)
        )
