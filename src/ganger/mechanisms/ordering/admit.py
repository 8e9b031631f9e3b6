"""Which jobs may enter at all, and how the queue is walked when its head does not fit."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

import numpy as np

from ganger.core.view import View


class Walk(Enum):
    """What happens behind a job that does not fit. In published simulators this choice alone
    changed average JCT twofold, so every recipe states it."""

    STRICT = "strict"
    """Nothing: head-of-line blocking."""
    SKIP = "skip"
    """Whoever fits goes ahead; a large gang may starve."""
    TENANT = "tenant"
    """Nothing of the same tenant: each tenant has a strict queue of its own."""
    EASY = "easy"
    """Whoever fits and does not delay the head's earliest start (Lifka, JSSPP 1995)."""
    CONSERVATIVE = "conservative"
    """Whoever fits and delays nobody ahead of it: all have a reservation."""


@dataclass(frozen=True)
class Quotas:
    """A tenant's jobs may hold no more GPUs than its quota; tenants without one are unlimited.

    `quotas` by tenant name; None takes them from the cluster's tenants.
    """

    quotas: tuple[tuple[str, int], ...] | None = None

    def limits(self, view: View) -> dict[int, int]:
        """The quota by tenant code."""
        quotas = self.quotas
        if quotas is None:
            quotas = tuple([(t.name, t.quota) for t in view.nodes.spec.tenants if t.quota >= 0])
        limits = {}
        for name, quota in quotas:
            code = view.jobs.tenants.find(name)
            if code >= 0:
                limits[code] = quota
        return limits

    def used(self, view: View) -> dict[int, int]:
        """GPUs held by tenant code."""
        active = view.active
        totals = np.bincount(view.jobs.tenant[active], view.jobs.size[active])
        return {code: int(total) for code, total in enumerate(totals) if total}

    def now(self, view: View) -> UnderQuota:
        """What is used of them before anything is drawn."""
        return UnderQuota(self.limits(view), self.used(view))


class UnderQuota:
    """Quotas, and what is used of them, in GPUs by tenant code, while a plan is drawn."""

    __slots__ = ("_limits", "_used")

    def __init__(self, limits: dict[int, int], used: dict[int, int]) -> None:
        self._limits, self._used = limits, used

    def take(self, tenant: int, gpus: int) -> None:
        """A job of the tenant has so many more."""
        self._used[tenant] = self._used.get(tenant, 0) + gpus

    def exceeded(self, tenant: int, gpus: int) -> dict[str, float] | None:
        """The numbers for a reason, if so many more exceed the tenant's quota."""
        limit, used = self._limits.get(tenant), self._used.get(tenant, 0)
        if limit is None or used + gpus <= limit:
            return None
        return {"asked_gpus": float(gpus), "used_gpus": float(used), "quota_gpus": float(limit)}
