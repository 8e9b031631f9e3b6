"""A plan as the records of plans keep it: what a reason says beside its code and its shape is not
on record, so the words for it are those of the time at which the records were made."""

from __future__ import annotations

from typing import Any

import msgspec

from ganger.core.plan import Plan, Reason

THEN = {
    "QueuePolicy": "queue", "RoundPolicy": "rounds", "BarrierRounds": "rounds",
    "LeasePolicy": "lease", "TargetPolicy": "targets", "SkipPolicy": "delay", "FairPolicy": "fair",
    "VirtualClusters": "virtual clusters", "Evolving": "evolving", "GoodputPolicy": "goodput",
    "TimeIndexed": "time-indexed programme", "CellPolicy": "cells", "MatchingPolicy": "matching",
    "PromisePolicy": "leases", "TimeSlices": "time slices", "GroupPolicy": "groups",
    "MarketPolicy": "market", "Rifling": "learned", "RentingPolicy": "renting",
}  # fmt: skip
"""What each class called itself then."""


def recorded(plan: Plan | None) -> bytes:
    """The plan as JSON for a fingerprint."""
    if plan is None:
        return b"null"
    kept: dict[str, Any] = msgspec.structs.asdict(plan)
    kept["until"] &= 127  # the kinds of change that there were then
    # What is said between two intervals was not said then.
    kept["reasons"] = [_then(one) for one in plan.reasons if one.by != "Periodic"]
    return msgspec.json.encode(kept)


def _then(reason: Reason) -> dict[str, Any]:
    tenant = -1 if reason.by == "QueuePolicy" else reason.tenant
    return {
        "code": reason.code,
        "by": THEN[reason.by],
        "shape": reason.shape,
        "tenant": tenant,
        "evidence": {},
        "until": 127,
    }
