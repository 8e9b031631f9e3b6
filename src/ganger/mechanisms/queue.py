"""The ordered queue: walk the waiting jobs in order, start who fits, preempt who comes later.

The rule, in full (the object reference in the tests says the same in a few lines): take waiting
jobs in order of key. One that fits starts. If it does not and the policy preempts, running jobs
that come after it are evicted, the last one first, until it fits; those evicted are then
restored where they were, the first one first, if their devices are still free, and otherwise stand
in line again. If it still does not fit, nothing is evicted, and the walk rule says who may pass.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from heapq import heapify, heappop, heappush, heapreplace

from ganger.core.events import (
    CAPACITY_FREED,
    CAPACITY_LOST,
    COMMANDED,
    QUEUED,
    STARTED,
    WOKE,
)
from ganger.core.ledger import Ledger
from ganger.core.plan import Placement, Plan, Reason
from ganger.core.units import NEVER
from ganger.core.view import View
from ganger.mechanisms.admit import Quotas, Walk
from ganger.mechanisms.backfill import Reservations
from ganger.mechanisms.index import Entry, QueueIndex
from ganger.mechanisms.order import FIRST_COME, Moves, Order
from ganger.mechanisms.place import PACK, Placer

_UNLESS_BEHIND = CAPACITY_FREED | CAPACITY_LOST | COMMANDED | WOKE
_ANY_CHANGE = _UNLESS_BEHIND | QUEUED
_ONLY_NEW = QUEUED | COMMANDED
_EVICTED = -1
"""The class of those who were evicted in this walk and stand in line again, each for itself."""


@dataclass(frozen=True)
class QueuePolicy:
    """A policy that is an ordered queue.

    `min_run`: microseconds a job runs before it may be preempted. `quotas`: limits on what each
    tenant holds. `depth`: how many waiting jobs a conservative walk gives a reservation.
    """

    name: str
    order: Order = FIRST_COME
    walk: Walk = Walk.STRICT
    preempt: bool = False
    place: Placer = PACK
    quotas: Quotas | None = None
    min_run: int = 0
    depth: int = 1000

    def decide(self, view: View, memory: None) -> tuple[Plan, None]:
        """Walk the queue once."""
        index = view.scratch.get("queue")
        if index is None:
            index = QueueIndex(view, self.order, self, preempt=self.preempt)
            view.scratch["queue"] = index
        else:
            index.update(view)
        return _Pass(self, view, index).run(), None

    def class_of(self, view: View, job: int) -> int:
        """Jobs of one class fit or do not fit alike; a strict walk needs no classes."""
        if self.walk is Walk.STRICT and self.quotas is None:
            return 0
        jobs = view.jobs
        if self.walk is Walk.TENANT:
            return int(jobs.tenant[job])
        tenant = int(jobs.tenant[job]) if self.quotas is not None else 0
        rule = self.place.kind(view, job)
        return (
            (int(jobs.shape[job]) << 80) | (tenant << 50) | (rule << 45)
            | (int(jobs.parent[job]) + 1)
        )  # fmt: skip

    @property
    def timed(self) -> bool:
        """Whether keys jump or patience ends while nothing else happens."""
        return self.place.patient or self.order.moves is Moves.STEPS

    def until(self, view: View, job: int) -> int:
        """When the job's key jumps, or its patience with where it would be placed ends."""
        jump = self.order.until(view, job) if self.order.moves is Moves.STEPS else NEVER
        return min(jump, self.place.relaxes(view, job)) if self.place.patient else jump

    def but(self, **changes: object) -> QueuePolicy:
        """The same with some parts exchanged."""
        return replace(self, **changes)  # type: ignore[arg-type]


class _Pass:
    """One walk down the queue."""

    __slots__ = (
        "draft", "evicted", "heads", "index", "limits", "may_evict", "pending", "policy",
        "reasons", "used", "view", "wake",
    )  # fmt: skip

    def __init__(self, policy: QueuePolicy, view: View, index: QueueIndex) -> None:
        self.policy, self.view, self.draft, self.index = policy, view, view.draft, index
        self.pending = index.pending
        self.heads: list[tuple[Entry, int]] = []
        self.reasons: list[Reason] = []
        self.wake = NEVER
        self.evicted: dict[int, Placement] = {}
        self.may_evict = policy.preempt
        quotas = policy.quotas
        self.used: dict[int, int] = {}
        self.limits: dict[int, int] = {}
        if quotas is not None:
            self.used, self.limits = quotas.used(view), quotas.limits(view)

    def run(self) -> Plan:
        """The plan."""
        for kind in self.pending.heaps:
            head = self.pending.head(kind)
            if head is not None:
                self.heads.append((head, kind))
        if len(self.heads) > 1:
            heapify(self.heads)
        blocked = self._walk()
        if blocked and self.policy.walk in (Walk.EASY, Walk.CONSERVATIVE):
            self._backfill()
        if not self.pending.entry:
            return self.draft.plan(self.reasons, NEVER, _ONLY_NEW)
        until = _ANY_CHANGE
        if blocked and self.policy.order.arrival and self.policy.walk is Walk.STRICT:
            until = _UNLESS_BEHIND
        if self.policy.timed:
            self.wake = min(self.wake, self.index.next_jump())
        if self.policy.preempt and (self.policy.timed or self.index.starting):
            until |= STARTED  # who starts can be evicted from then on, and its key begins to move
        return self.draft.plan(self.reasons, self.wake, until)

    def _walk(self) -> bool:
        """Start whom the walk lets start; True if somebody who could be placed first waits."""
        heads, skips = self.heads, self.policy.walk in (Walk.SKIP, Walk.TENANT)
        while heads:
            entry, kind = heads[0]
            job = int(entry[-1])
            if self.limits and self._over_quota(job):
                heappop(heads)
            elif self._start(job, entry):
                self._next(kind)
            elif kind != _EVICTED and not skips:
                self._wait(job)
                return True
            else:
                self._wait(job)
                heappop(heads)
        return False

    def _next(self, kind: int) -> None:
        """Bring the next of a class to its head; the present head has started."""
        head = None if kind == _EVICTED else self.pending.head(kind)
        if head is None:
            heappop(self.heads)
        else:
            heapreplace(self.heads, (head, kind))

    def _over_quota(self, job: int) -> bool:
        tenant = int(self.view.jobs.tenant[job])
        limit = self.limits.get(tenant)
        if limit is None or self.used.get(tenant, 0) + int(self.view.jobs.gpus[job]) <= limit:
            return False
        self._wait(job, "AssocGrpGRES")
        return True

    def _wait(self, job: int, code: str = "Resources") -> None:
        """Note why the job's class waits."""
        self.reasons.append(Reason(code, "queue", int(self.view.jobs.shape[job])))

    # ------------------------------------------------------------------ starting

    def _start(self, job: int, entry: Entry) -> bool:
        """Start `job` on free devices, or on those of jobs that come after it."""
        ledger = self.draft.ledger_of(job)
        if ledger is None:
            return False
        placement = self.policy.place.find(self.view, ledger, job)
        if placement is None:
            return self.may_evict and self._evict_for(job, entry, ledger)
        self._book(job, placement)
        return True

    def _book(self, job: int, placement: Placement) -> None:
        self.draft.start(job, placement)
        if self.evicted:
            self.evicted.pop(job, None)
        self.pending.entry.pop(job, None)
        if self.policy.preempt:
            self.index.starting.add(job)
        if self.limits:
            tenant = int(self.view.jobs.tenant[job])
            self.used[tenant] = self.used.get(tenant, 0) + int(self.view.jobs.gpus[job])

    # ------------------------------------------------------------------ preempting

    def _evict_for(self, job: int, entry: Entry, ledger: Ledger) -> bool:
        """Evict from the end of the order until `job` fits; put back whoever can stay."""
        view, draft, running = self.view, self.draft, self.index.running
        mark, gone, spared = draft.mark(), dict[int, Placement](), list[int]()
        cells = ledger.cells_for(draft.shape(job))
        need = draft.shape(job).gpus
        placement = None
        while placement is None:
            victim = running.pop_last(view, entry)
            if victim is None:
                break
            if not self._evictable(victim, ledger, {cell.index for cell in cells}):
                spared.append(victim)
                continue
            gone[victim] = draft.stop(victim)
            if any(cell.free >= need for cell in cells):
                placement = self.policy.place.find(view, ledger, job)
        for victim in spared:
            self.index.file(view, victim)
        if placement is None:
            draft.rollback(mark)
            for victim in gone:
                self.index.file(view, victim)
            if not gone and not spared:
                self.may_evict = False  # nobody comes after this one, so after no later one either
            return False
        self._book(job, placement)
        self._put_back(gone, ledger)
        return True

    def _evictable(self, victim: int, ledger: Ledger, cells: set[int]) -> bool:
        view, min_run = self.view, self.policy.min_run
        held = ledger.holds.get(victim)
        if held is None or ledger.cell_of[held[1][0].node].index not in cells:
            return False
        if min_run:
            end = int(view.jobs.since[victim]) + min_run
            if view.now < end:
                self.wake = min(self.wake, end)
                return False
        return True

    def _put_back(self, gone: dict[int, Placement], ledger: Ledger) -> None:
        """Restore those whose devices are still free, the first in order first."""
        for victim in reversed(gone):
            placement = gone[victim]
            if ledger.is_free(self.draft.shape(victim), placement):
                self.draft.restore(victim, placement)
                self.index.file(self.view, victim)
            else:
                self.evicted[victim] = placement
                key = (*self.policy.order.key(self.view, victim), victim)
                heappush(self.heads, (key, _EVICTED))

    # ------------------------------------------------------------------ backfilling

    def _backfill(self) -> None:
        """Let those behind the blocked head start if they delay no reservation."""
        view = self.view
        depth = 1 if self.policy.walk is Walk.EASY else self.policy.depth
        reserved, blocked = Reservations(view), set[int]()
        for job in self.pending.in_order({kind for _, kind in self.heads} - {_EVICTED}):
            ledger = self.draft.ledger_of(job)
            if ledger is None or (self.limits and self._over_quota(job)):
                continue
            kind = self.policy.class_of(view, job)
            placement = None
            if kind not in blocked:
                placement = self.policy.place.find(view, ledger, job)
                if placement is None:
                    blocked.add(kind)
            if placement is not None:
                cell = ledger.cell_of[placement[0].node]
                if reserved.start_now(job, cell):
                    self._book(job, placement)
                    continue
            if depth:
                depth -= 1
                reserved.reserve(job)
