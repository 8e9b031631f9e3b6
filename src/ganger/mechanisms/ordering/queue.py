"""The ordered queue: walk the waiting jobs in order, start jobs that fit, preempt jobs that come
later.

The rule, in full (the object reference in the tests says the same in a few lines): take waiting
jobs in order of key. One that fits starts. If it does not and the policy preempts, running jobs
that come after it are evicted, the last one first, until it fits; those evicted are then restored
where they were, the first one first, if their devices are still free, and otherwise stand in line
again. If it still does not fit, nothing is evicted, and the walk rule says which jobs may pass.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush, heapreplace
from types import MappingProxyType
from typing import TypeAlias

import msgspec
import numpy as np

from ganger.core.books.ledger import Cell, Ledger
from ganger.core.events import (
    CAPACITY_FREED,
    CAPACITY_LOST,
    COMMANDED,
    QUEUED,
    STARTED,
    WOKE,
)
from ganger.core.plan import Placement, Plan, Reason
from ganger.core.state.table import Ids
from ganger.core.units import NEVER, SECOND
from ganger.core.view import View
from ganger.mechanisms.ordering.admit import Quotas, UnderQuota, Walk
from ganger.mechanisms.ordering.backfill import Reservations
from ganger.mechanisms.ordering.blocked_classes import ANY_RETURN, Entry, by_shape, lacking
from ganger.mechanisms.ordering.order import FIRST_COME, Moves, Order
from ganger.mechanisms.ordering.queue_index import QueueIndex, StandingIndex, negated
from ganger.mechanisms.placement.place import PACK, Placer

_UNLESS_BEHIND = CAPACITY_FREED | CAPACITY_LOST | COMMANDED | WOKE
_ANY_CHANGE = _UNLESS_BEHIND | QUEUED
_ONLY_NEW = QUEUED | COMMANDED
_STRICT, _SKIP, _TENANT, _STEPS = Walk.STRICT, Walk.SKIP, Walk.TENANT, Moves.STEPS
_AS_IS: Mapping[int, int] = MappingProxyType({})
_BACKFILLING = (Walk.EASY, Walk.CONSERVATIVE)
_TENANTS = (1 << 30) - 1
"""The bits of a tenant in a class, from bit 50 on."""
_EVICTED = -1
"""The class of those who were evicted in this walk and stand in line again, each for itself."""
_Victim: TypeAlias = tuple[Entry, int, int]
"""A running job as it stands in line to be evicted: its entry, its cell, its GPUs."""


@dataclass(frozen=True, slots=True)  # in slots, since Python finds those soonest
class QueuePolicy:
    """A policy that is an ordered queue.

    `min_run`: microseconds a job runs before it may be preempted. `quotas`: limits on what each
    tenant holds. `depth`: how many waiting jobs a backfilling walk looks at in one decision.
    """

    name: str
    order: Order = FIRST_COME
    walk: Walk = Walk.STRICT
    preempt: bool = False
    place: Placer = PACK
    quotas: Quotas | None = None
    min_run: int = 0
    depth: int = 1000
    skips: bool = field(init=False, repr=False)
    """Whether jobs may pass one that cannot be placed, unless a quota or a tenant keeps them."""
    remembers: bool = field(init=False, repr=False)
    """Whether a class that was blocked need not be tried until something changed for it. Where the
    first blocked job decides over the others, all are looked at in order."""
    inherits: bool = field(init=False, repr=False)
    """Whether what blocks a head blocks every job of its class behind it: if all of them are placed
    alike, and no quota can be another reason to wait."""
    timed: bool = field(init=False, repr=False)
    """Whether keys jump or patience ends while nothing else happens."""
    stirs: int = field(init=False, repr=False)
    """The changes without which no job starts that could not start before."""
    rules: tuple[tuple[str, float], ...] = field(init=False, repr=False)
    """What a reason says of the rules of this queue."""

    def __post_init__(self) -> None:
        def settle(name: str, value: object) -> None:
            object.__setattr__(self, name, value)

        settle("skips", self.walk in (_SKIP, _TENANT))
        alone = self.skips or (self.walk is _STRICT and self.quotas is None)
        settle("remembers", alone and self.place.by_room)
        settle("inherits", self.remembers and self.walk is _SKIP and self.quotas is None)
        settle("timed", self.place.patient or self.order.moves is _STEPS)
        stirs = CAPACITY_FREED | COMMANDED | (WOKE if self.timed else 0)
        if self.preempt or self.walk in _BACKFILLING or not self.place.by_room:
            # What comes or goes moves reservations, frees more than it takes, or changes sizes.
            stirs |= CAPACITY_LOST | QUEUED | WOKE | (STARTED if self.preempt else 0)
        settle("stirs", stirs)
        rules: tuple[tuple[str, float], ...] = (("may_pass", float(self.walk is not _STRICT)),)
        if self.preempt and self.min_run:
            rules += (("min_run_s", self.min_run / SECOND),)
        settle("rules", rules)

    def decide(self, view: View, memory: None) -> tuple[Plan, None]:
        """Walk the queue once."""
        standing = view.cached(StandingIndex)
        index: QueueIndex | None = standing.index
        if index is None:
            index = standing.index = QueueIndex(
                view, self.order, self, preempt=self.preempt, listed=self.walk in _BACKFILLING
            )
        else:
            index.update(view)
        return _Pass(self, view, index).run(), None

    def class_of(self, view: View, job: int) -> int:
        """Jobs of one class fit or do not fit alike; a strict walk needs no classes."""
        if self.walk is _STRICT and self.quotas is None:
            return 0
        at = view.at
        if self.walk is _TENANT:
            return int(at.tenant[job])
        kind: int = (at.shape[job] << 80) | (at.within[job] + 1)
        if self.quotas is not None:
            kind |= at.tenant[job] << 50  # `_TENANTS` finds it again
        return kind | (self.place.kind(view, job) << 45)

    def ahead(self, view: View, job: int) -> Ids:
        """The waiting jobs that come before `job` by the order and compete with it."""
        key, ids = self.order.key, view.pending
        if self.walk is _TENANT:
            ids = ids[view.jobs.tenant[ids] == view.jobs.tenant[job]]
        mine = (*key(view, job), job)
        found = [each for each in ids.tolist() if (*key(view, each), each) < mine]
        return np.array(found, np.int64)

    def until(self, view: View, job: int) -> int:
        """When the job's key jumps, or its patience with where it would be placed ends."""
        jump = self.order.until(view, job) if self.order.moves is _STEPS else NEVER
        return min(jump, self.place.relaxes(view, job)) if self.place.patient else jump


class _Pass:
    """One walk down the queue. What few walks need has its initial value in the class, since one
    is made for every decision."""

    wake = NEVER
    hopeless, hopeless_in, hopeless_most = NEVER, list[Cell](), dict[int, int]()
    """No fewer GPUs than so many can be freed in those cells for whoever comes from here on."""
    most: Mapping[int, int] = _AS_IS
    """What each cell (by index) could have free at best for the last one that did not fit, if that
    is more than it has."""
    guarded: bool
    """Whether `most` counts GPUs of jobs that may not be evicted yet."""
    late = 0
    """GPUs of jobs that were told to start and cannot be evicted before they have."""

    def __init__(self, policy: QueuePolicy, view: View, index: QueueIndex) -> None:
        self.policy, self.view, self.draft, self.index = policy, view, view.draft, index
        self.pending, self.may_evict, self.gave_back = index.pending, policy.preempt, False
        self.heads: list[tuple[Entry, int]] = []
        self.reasons: list[Reason] = []
        self.under = policy.quotas.now(view) if policy.quotas is not None else None
        if policy.preempt:
            self.line: list[_Victim] = []
            self.evicted: dict[int, Placement] = {}
            """What those hold that this turn evicts."""
            self.kept: list[int] = []
            """Those of them that this turn gives back what they held: they notice nothing."""

    def run(self) -> Plan:
        """The plan."""
        policy, pending, heads = self.policy, self.pending, self.heads
        remembers = policy.remembers
        for kind in pending.blocked.due() if remembers else list(pending.heaps):
            head = pending.head(kind)
            if head is not None:
                heads.append((head, kind))
        if heads:
            self._walk()
        blocked = bool(pending.blocked.records) if remembers else bool(heads)
        if blocked and policy.walk in _BACKFILLING:
            self._backfill()
        if not pending.entry:
            return self.draft.plan(self.reasons, NEVER, _ONLY_NEW)
        until = _ANY_CHANGE
        if blocked and policy.walk is _STRICT and policy.order.arrival:
            until = _UNLESS_BEHIND
        if policy.timed:
            jump = self.index.next_jump(self.view)
            self.wake = min(self.wake, jump)
        if policy.preempt and (policy.timed or self.index.starting):
            until |= STARTED  # who starts can be evicted from then on, and its key begins to move
        reasons = pending.blocked.reasons
        if self.reasons:
            reasons = sorted(reasons + self.reasons, key=by_shape)
        return self.draft.plan(reasons, self.wake, until)

    def _walk(self) -> None:
        """Start whom the walk lets start. A strict walk leaves whoever blocks it in `heads`."""
        if len(self.heads) > 1:
            heapify(self.heads)
        if self.index.starting:
            sizes = self.view.at.size
            self.late = sum(sizes[job] for job in self.index.starting)
        heads, blocked, policy = self.heads, self.pending.blocked, self.policy
        known: Collection[int] = blocked.records if policy.inherits else ()
        while heads:
            entry, kind = heads[0]
            job = entry[-1]
            if self.under is not None and self._over_quota(job):
                heappop(heads)
                blocked.always(kind)
                continue
            if kind not in known or not blocked.keeps(kind, entry, self.view.at.shape[job]):
                if self._start(job, entry):
                    self._next(kind)
                    continue
                if kind != _EVICTED:
                    self._block(job, entry, kind)
            if kind != _EVICTED and not policy.skips:
                break
            heappop(heads)
        if policy.preempt:
            for entry, _, _ in self.line:
                self.index.running.put_back(entry)
            for job in self.kept:
                self.index.file(self.view, job)

    def _next(self, kind: int) -> None:
        """Bring the next of a class to its head; the present head has started."""
        if self.gave_back:
            self._look_again()
        head = None if kind == _EVICTED else self.pending.head(kind)
        if head is None:
            heappop(self.heads)
        else:
            heapreplace(self.heads, (head, kind))

    def _over_quota(self, job: int) -> bool:
        at, under = self.view.at, self.under
        evidence = under.exceeded(at.tenant[job], at.gpus[job]) if under is not None else None
        if evidence is not None:
            what = at.shape[job], at.tenant[job]
            stirs = self.policy.stirs
            self.reasons.append(Reason("AssocGrpGRES", "QueuePolicy", *what, evidence, stirs))
        return evidence is not None

    def _why(self, job: int) -> Reason:
        """Why the job's class waits for GPUs."""
        at, policy = self.view.at, self.policy
        rules = policy.rules + policy.place.why(self.view, job)
        return lacking(at.shape[job], at.gpus[job], policy.stirs, rules)

    def _wait(self, job: int) -> None:
        """Note that the job's class waits for GPUs."""
        self.reasons.append(self._why(job))

    def _block(self, job: int, entry: Entry, kind: int) -> None:
        """The head of `kind` cannot be placed; remember what would have to be given back first."""
        shape, blocked = self.draft.shape(job), self.pending.blocked
        counts = self.view.ledger.is_whole(shape)
        can_tell = counts or not self.policy.preempt
        if not self.policy.remembers or self.view.at.within[job] >= 0 or not can_tell:
            self._wait(job)
            blocked.always(kind)
            return
        need, lacks = self.view.at.gpus[job], dict[Cell, int]()
        for cell in self.view.ledger.cells_for(shape):
            if not counts:
                lacks[cell] = ANY_RETURN
                continue
            lacks[cell] = lack = need - self.late - self.most.get(cell.index, cell.free)
            if lack <= 0 and (self.late or self.guarded or self.policy.min_run):
                self._wait(job)
                blocked.always(kind)
                return
        blocked.file(kind, entry, self._why(job), lacks)

    def _look_again(self) -> None:
        """Evictions left more free than the one they were for has taken: classes behind it that
        were not to be tried may fit now, those before it at the next decision."""
        self.gave_back = False
        if not self.policy.remembers:
            return
        present = self.heads[0][0]
        for kind in self.pending.blocked.crossed():
            head = self.pending.head(kind)
            if head is None:
                continue
            if head > present:
                heappush(self.heads, (head, kind))
            else:
                self._wait(head[-1])
                self.pending.blocked.always(kind)

    # ------------------------------------------------------------------ starting

    def _start(self, job: int, entry: Entry) -> bool:
        """Start `job` on free devices, or on those of jobs that come after it."""
        ledger, place = self.view.ledger, self.policy.place
        if not ledger.lacks(self.draft.shape(job)) or place.sizes:
            placement = place.find(self.view, ledger, job)
            if placement is not None:
                self._book(job, entry, placement, ledger)
                return True
        self.most, self.guarded = _AS_IS, False
        return self.may_evict and self._evict_for(job, entry, ledger)

    def _book(self, job: int, entry: Entry, placement: Placement, ledger: Ledger) -> None:
        draft, pending, policy = self.draft, self.pending, self.policy
        pending.entry.pop(job, None)
        if policy.preempt and self.evicted and self.evicted.get(job) == placement:
            draft.restore(job, placement)
            self.kept.append(job)
        else:
            draft.start(job, placement)
            if policy.preempt:
                self.index.starting[job] = entry
            if policy.inherits and pending.blocked.records and ledger.is_whole(draft.shape(job)):
                cell = ledger.cell_of[placement[0].node]
                pending.blocked.took(entry, cell, self.view.at.gpus[job])
        if self.under is not None:
            tenant = self.view.at.tenant[job]
            self.under.take(tenant, self.view.at.gpus[job])
            if self.policy.remembers:
                self._now_over_quota(self.under, tenant, entry)

    def _now_over_quota(self, under: UnderQuota, tenant: int, present: Entry) -> None:
        """A job of the tenant started at `present`. Its blocked classes for which the quota is too
        small now wait for that: those behind from now on, those before from the next decision."""
        blocked, gpus = self.pending.blocked, self.view.at.gpus
        for kind, record in list(blocked.records.items()):
            mine = not record.tried and kind >> 50 & _TENANTS == tenant
            head = self.pending.head(kind) if mine else None
            if head is None or under.exceeded(tenant, gpus[head[-1]]) is None:
                continue
            if head > present:
                record.tried = True
                heappush(self.heads, (head, kind))
            else:
                self._wait(head[-1])
                blocked.always(kind)

    # ------------------------------------------------------------------ preempting

    def _evict_for(self, job: int, entry: Entry, ledger: Ledger) -> bool:
        """Evict from the end of the order until `job` fits; put back whoever can stay."""
        draft = self.draft
        cells, need = ledger.cells_for(draft.shape(job)), self.view.at.gpus[job]
        if need >= self.hopeless and cells == self.hopeless_in:
            self.most = self.hopeless_most
            return False
        self.index.catch_up(self.view)
        threshold = negated(entry)
        if self._victim(0, threshold, ledger) is None:
            self.may_evict = False  # nobody comes after this one, so after no later one either
            return False
        # What each cell would have free. Only when that is enough are the books touched: most
        # who wait cannot be helped by evicting all who come after them.
        room = {cell.index: cell.free for cell in cells}
        chosen: list[Entry] = []
        spared: list[tuple[int, int, int]] = []
        gone: list[tuple[Entry, Placement]] = []
        mark, seen, placement = draft.mark(), 0, None
        while placement is None:
            victim = self._victim(seen, threshold, ledger)
            if victim is None:
                break
            seen += 1
            one, where, size = victim
            if where not in room:
                continue
            if self.policy.min_run and (end := self._safe_until(-one[-1])) > self.view.now:
                spared.append((end, where, size))
                continue
            chosen.append(one)
            room[where] += size
            if room[where] < need:
                continue
            gone += [(each, draft.stop(-each[-1])) for each in chosen]
            chosen.clear()
            placement = self.policy.place.find(self.view, ledger, job)
        if placement is not None:
            self._book(job, entry, placement, ledger)
            self._put_back(gone, ledger)
            self.gave_back = True
            return True
        draft.rollback(mark)
        self._give_up(need, cells, room, spared)
        return False

    def _give_up(
        self, need: int, cells: list[Cell], room: dict[int, int], spared: list[tuple[int, int, int]]
    ) -> None:
        """Keep what an attempt in vain has shown. `spared`: until when, in which cell, how many
        GPUs of those who come later may not be taken yet."""
        for _, where, size in spared:
            room[where] += size
        self.most, self.guarded = room, bool(spared)
        if max(room.values(), default=0) < need:
            # Whoever comes later has fewer to evict, so needs this much in vain as well.
            self.hopeless, self.hopeless_in, self.hopeless_most = need, cells, room
        elif spared:
            self.wake = min(self.wake, min(spared)[0])

    def _victim(self, number: int, threshold: Entry, ledger: Ledger) -> _Victim | None:
        """The running job that is so many places before the last one in order, if its (negated)
        entry is below `threshold`. All that a walk looks at stand in `line` until it ends, since
        those after a later job are the first few of those after an earlier one."""
        line = self.line
        if number < len(line):
            return line[number] if line[number][0] < threshold else None
        entry = self.index.running.pop_last(self.view, threshold)
        if entry is None:
            return None
        job = -entry[-1]
        held = ledger.holds.get(job)
        some = held is not None and held[1]  # a service holds nothing itself
        where = ledger.cell_of[some[0].node].index if some else -1
        line.append((entry, where, self.view.at.size[job]))
        return line[number]

    def _safe_until(self, victim: int) -> int:
        """When the job may be preempted at the earliest."""
        began: int = self.view.at.began[victim]
        return began + self.policy.min_run

    def _put_back(self, gone: list[tuple[Entry, Placement]], ledger: Ledger) -> None:
        """Restore those whose devices are still free, the first in order first."""
        evicted: set[int] = set()
        for entry, placement in reversed(gone):
            victim = -entry[-1]
            if ledger.is_free(self.draft.shape(victim), placement):
                self.draft.restore(victim, placement)
            else:
                evicted.add(victim)
                self.evicted[victim] = placement
                stood = negated(entry)
                heappush(self.heads, (stood, _EVICTED))
                if self.policy.inherits and ledger.is_whole(self.draft.shape(victim)):
                    cell = ledger.cell_of[placement[0].node]
                    self.pending.blocked.left(stood, cell, self.view.at.size[victim])
        self.line = [victim for victim in self.line if -victim[0][-1] not in evicted]

    # ------------------------------------------------------------------ backfilling

    def _backfill(self) -> None:
        """Let those behind the blocked head start if they delay no reservation."""
        view, policy, easy = self.view, self.policy, self.policy.walk is Walk.EASY
        able = {kind for _, kind in self.heads if kind != _EVICTED and self._may_fit(kind)}
        if not able:
            return  # whatever is reserved, nobody could start
        reserved, head = Reservations(view), self.heads[0][0][-1]
        jobs = self.pending.in_order(policy.depth)
        if easy:
            self._promise(head, reserved.reserve(head))
            jobs = reserved.candidates(jobs)
        for job in jobs:
            if self.under is not None and self._over_quota(job):
                continue
            kind = policy.class_of(view, job)
            placement = policy.place.find(view, view.ledger, job) if kind in able else None
            if placement is None:
                able.discard(kind)
            elif reserved.start_now(job, view.ledger.cell_of[placement[0].node]):
                self._book(job, (), placement, view.ledger)
                continue
            if not able:
                return
            if not easy:
                reserved.reserve(job)

    def _promise(self, head: int, start: int) -> None:
        """Say in the head's reason, the last one so far, for when its GPUs are reserved."""
        if start < NEVER and self.reasons and self.reasons[-1].shape == self.view.at.shape[head]:
            last = self.reasons[-1]
            evidence = last.evidence | {"reserved_at_s": start / SECOND}
            self.reasons[-1] = msgspec.structs.replace(last, evidence=evidence)

    def _may_fit(self, kind: int) -> bool:
        """Whether there are GPUs enough for the class's jobs, wherever they are."""
        head = self.pending.head(kind)
        if head is None:
            return False
        ledger = self.view.ledger
        shape = self.draft.shape(head[-1])
        return not ledger.is_whole(shape) or any(
            cell.free >= shape.least for cell in ledger.cells_for(shape)
        )
