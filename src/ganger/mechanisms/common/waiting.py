"""What a waiting job waits for, worked out from the tables and the books when somebody asks.

A `Reason` keeps what only the mechanism knows. What everybody can see is found here: what is free
where, which of the jobs that run release what and when, and what would have to happen.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from ganger.core.books.ledger import Ledger
from ganger.core.events import (
    CAPACITY_FREED,
    CAPACITY_LOST,
    COMMANDED,
    EVALUATED,
    PROGRESSED,
    QUEUED,
    ROUTED,
    SERVED,
    STARTED,
    WOKE,
)
from ganger.core.plan import Placement, Reason
from ganger.core.protocols import Policy
from ganger.core.spec import Locality, Shape
from ganger.core.state.jobs import Phase
from ganger.core.state.table import Ids
from ganger.core.units import NEVER, SECOND, WHOLE
from ganger.core.view import View
from ganger.mechanisms.common.budgets import Budgets
from ganger.mechanisms.common.two_level import TwoLevel
from ganger.mechanisms.ordering.periodic import Periodic
from ganger.mechanisms.ordering.queue import QueuePolicy
from ganger.mechanisms.provisioning.notice import Heeding

CHANGES: Final = {
    CAPACITY_FREED: "GPUs become free",
    CAPACITY_LOST: "GPUs are lost",
    STARTED: "a job begins to run",
    PROGRESSED: "a job reports progress",
    QUEUED: "a job enters the queue",
    COMMANDED: "somebody gives an order",
    WOKE: "a time comes at which the recipe decides",
    EVALUATED: "a trial reports",
    SERVED: "a service reports how it did",
    ROUTED: "a service gets other routes",
}
"""The kinds of change (bits of `core/events`), in words."""

MECHANISMS: Final = {
    "QueuePolicy": "the ordered queue",
    "Fleets": "the line of replicas that a plan of fleets wants",
    "GSlice": "the line of replicas that shares of devices are for",
    "MigServing": "the line of replicas that slices of devices are for",
    "Scaling": "the line of replicas",
    "SuccessiveHalving": "successive halving",
    "Racing": "the race between trials",
    "Rounds": "the rounds of a search",
    "Tenants": "the order of a search's users",
    "GroupPolicy": "the rounds of groups",
    "FairPolicy": "progressive filling by shares",
    "VirtualClusters": "the tenants' virtual clusters",
    "LeasePolicy": "the contest for leases",
    "RoundPolicy": "the rounds that share time",
    "BarrierRounds": "the rounds that share time",
    "TargetPolicy": "the sizes that the allocator wants",
    "SkipPolicy": "delay scheduling",
    "Periodic": "the interval between decisions",
    "Evolving": "the schedule that evolved best",
    "GoodputPolicy": "the search for goodput",
    "TimeIndexed": "the time-indexed programme",
    "CellPolicy": "the tenants' cells",
    "MatchingPolicy": "the matching of jobs to GPUs",
    "PromisePolicy": "the leases promised before deadlines",
    "TimeSlices": "the turns on GPUs",
    "Budgets": "the budgets of tenants",
    "MarketPolicy": "the market of GPUs by slot",
    "Rifling": "what was learned of waiting",
    "Starting": "choices of what starts next",
    "Placing": "choices of nodes",
    "Growing": "choices of sizes",
    "RentingPolicy": "the machines that can be rented",
}
"""What refuses, in words, by `Reason.by`."""


_RULES: Final = {"may_pass", "min_run_s"}
"""The evidence that is of a whole queue, not of the job that was refused."""


class Room(NamedTuple):
    """What a node that a shape may use has free. `cpus` in thousandths of a core, `memory` in MiB;
    `lacks`: what it has too little of: for the whole gang where that must be in one node, else for
    a worker."""

    node: int
    gpus: int
    cpus: int
    memory: int
    lacks: tuple[str, ...]


class Release(NamedTuple):
    """What a job that holds devices gives back. `latest`: when its time limit ends, `expected`:
    when it is believed to end, microseconds; NEVER where that is not known."""

    job: int
    gpus: int
    nodes: tuple[int, ...]
    latest: int
    expected: int

    @property
    def at(self) -> int:
        """The better of both."""
        return min(self.latest, self.expected)


def reason_for(reasons: Iterable[Reason], shape: int, tenant: int, within: int) -> Reason | None:
    """Why jobs of that shape, tenant and grant wait: the most specific reason; None: no reason."""
    said = [
        one
        for one in reasons
        if one.within == within and one.shape in (shape, -1) and one.tenant in (tenant, -1)
    ]
    return max(said, key=lambda one: (one.shape >= 0) + (one.tenant >= 0), default=None)


def reason_behind(reasons: Iterable[Reason], within: int) -> Reason | None:
    """Why jobs of that grant wait that have no reason of their own: others wait before them, and
    what refused those has not reached these. They start when those may; None: no job waits."""
    first = [reason for reason in reasons if reason.within == within]
    if not first:
        return None
    rules = {key: value for key, value in first[0].evidence.items() if key in _RULES}
    until = 0
    for reason in first:
        until |= reason.until
    return Reason("Priority", first[0].by, evidence=rules, until=until, within=within)


def reserved_at(reasons: Iterable[Reason], within: int) -> int:
    """For when backfilling has reserved GPUs for the first of the queue; NEVER if it has not."""
    times = [
        round(one.evidence["reserved_at_s"] * SECOND)
        for one in reasons
        if one.within == within and "reserved_at_s" in one.evidence
    ]
    return min(times, default=NEVER)


def ranks(policy: Policy, within: int) -> Callable[[View, int], Ids] | None:
    """How the policy that decides over the cluster, or (`within` not -1) inside a grant, says which
    waiting jobs come before one; None if it has no fixed order."""
    if isinstance(policy, TwoLevel):
        return ranks(policy.outer if within < 0 else policy.inner, -1)
    if isinstance(policy, Periodic):
        return ranks(policy.policy, within)
    if isinstance(policy, Budgets):
        return ranks(policy.inner, within)
    if isinstance(policy, Heeding):
        return ranks(policy.inner, within)
    return policy.ahead if isinstance(policy, QueuePolicy) else None


def why_beside(
    policy: Policy, view: View, memory: Any, job: int, others: Sequence[int]
) -> dict[str, float]:
    """The numbers by which the policy has put a job beside others on the same GPUs: of what decides
    over the cluster, or of where that places jobs; empty where it says none."""
    while True:
        for part in (policy, getattr(policy, "place", None)):
            numbers = getattr(part, "why_beside", None)
            if numbers is not None:
                return dict(numbers(view, memory, job, others))
        for name in ("outer", "training", "policy", "inner"):
            if hasattr(policy, name):
                policy, memory = getattr(policy, name), None
                break
        else:
            return {}


def changes_in(until: int) -> list[str]:
    """The kinds of change in words."""
    return [words for bit, words in CHANGES.items() if until & bit]


def in_one_node(shape: Shape) -> bool:
    """Whether all of it has to be in one node."""
    return shape.locality <= Locality.NODE or sum(role.size for role in shape.roles) == 1


def rooms(ledger: Ledger, shape: Shape) -> list[Room]:
    """What is free on the nodes that are up and that `shape` may use: first those with the most of
    the GPUs that it asks for, of these the one that lacks the fewest other things."""
    whole, asked = in_one_node(shape), [0, 0, 0]
    for role in shape.roles:
        workers = role.size if whole else min(role.size, 1)
        own = role.needs.gpus if role.needs.share == WHOLE else 0
        for at, each in enumerate((own, role.needs.cpus, role.needs.memory)):
            asked[at] = asked[at] + workers * each if whole else max(asked[at], workers * each)
    labels, sets, of = set(shape.labels), ledger.nodes.label_sets, ledger.nodes.labels
    found = []
    for cell in ledger.cells_for(shape):
        for node in cell.nodes:
            if not ledger.up[node] or not labels <= set(sets[of[node]]):
                continue
            has = ledger.free_count[node], ledger.free_cpus[node], ledger.free_memory[node]
            lacks = [
                name
                for name, need, have in zip(("GPUs", "CPUs", "memory"), asked, has, strict=True)
                if need > have
            ]
            found.append(Room(node, *has, tuple(lacks)))
    most = max(shape.gpus, 1)
    return sorted(found, key=lambda room: (-min(room.gpus, most), len(room.lacks), room.node))


def releases(view: View, ledger: Ledger, shape: Shape) -> list[Release]:
    """What the jobs release that hold something on a node that `shape` may use, the first first."""
    usable = {room.node for room in rooms(ledger, shape)}
    holders = {
        job: placement
        for job, (_, placement) in ledger.holds.items()
        if any(slot.node in usable and (slot.devices or not shape.gpus) for slot in placement)
    }
    ids = np.array(list(holders), np.int64)
    ends = zip(_latest(view, ids), _expected(view, ids), strict=True)
    found = [
        Release(job, _gpus(placement), tuple(dict.fromkeys(slot.node for slot in placement)), *end)
        for (job, placement), end in zip(holders.items(), ends, strict=True)
    ]
    return sorted(found, key=lambda each: (each.at, each.job))


def enough(ledger: Ledger, shape: Shape, ends: Sequence[Release]) -> list[Release]:
    """Those of `ends`, taken in their order, that let `shape` fit once they are over; empty where
    all of them do not, or where it fits as it is. The books are as before."""
    mark = ledger.mark()
    try:
        if ledger.find(shape) is not None:
            return []
        for count, each in enumerate(ends, 1):
            ledger.give(each.job)
            place = ledger.find(shape)
            if place is None:
                continue
            there = {slot.node for slot in place}
            needed = [one for one in ends[:count] if there.intersection(one.nodes)]
            ledger.rollback(mark)
            for one in needed:
                ledger.give(one.job)
            return needed if ledger.find(shape) is not None else list(ends[:count])
        return []
    finally:
        ledger.rollback(mark)


def _gpus(placement: Placement) -> int:
    return sum(slot.devices.bit_count() for slot in placement)


def _latest(view: View, ids: Ids) -> list[int]:
    """When the time limits of jobs that run end."""
    jobs = view.jobs
    limited = (jobs.limit[ids] < NEVER) & np.isin(
        jobs.phase[ids], [Phase.STARTING, Phase.RUNNING, Phase.STOPPING]
    )
    left = np.maximum(jobs.limit[ids] - np.asarray(view.ran(ids)), 0)
    ends: list[int] = np.where(limited, view.now + left, NEVER).tolist()
    return ends


def _expected(view: View, ids: Ids) -> list[int]:
    """When jobs that run are believed to end: by the oracle, else by the user's estimate."""
    jobs = view.jobs
    told = np.array(view.oracle.duration(view, ids), np.float64)
    told = np.where(np.isnan(told), jobs.estimate[ids].astype(np.float64), told)
    left = told - np.asarray(view.work(ids))
    rate = np.where(jobs.rate[ids] > 0, jobs.rate[ids], 1.0)
    known = (jobs.phase[ids] == Phase.RUNNING) & (told < NEVER) & (left > 0)
    ends: list[int] = (
        np.where(
            known, np.minimum(view.now + np.ceil(np.where(known, left, 0.0) / rate), NEVER), NEVER
        )
        .astype(np.int64)
        .tolist()
    )
    return ends
