"""The ordered queue's bookkeeping: heaps that let a decision touch only what it changes.

All of it is cache. It is rebuilt from the view whenever it is missing, and nothing in it may make
a plan differ from one decided with a fresh index (checked in `validate` mode at every step).
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heapify, heappop, heappush, heapreplace
from typing import Protocol

from ganger.core.jobs import Phase
from ganger.core.spec import OnPreempt
from ganger.core.units import NEVER
from ganger.core.view import View
from ganger.mechanisms.blocked import Blocked, Entry
from ganger.mechanisms.order import Moves, Order

SLACK = 1000
"""A heap is swept when more than half of it, and so many entries, are out of date."""

# Plain numbers and module constants: looking an enum's member up costs as much as a heap push.
_PENDING, _STARTING, _RUNNING = int(Phase.PENDING), int(Phase.STARTING), int(Phase.RUNNING)
_UNTOUCHABLE, _IMPROVES = int(OnPreempt.NEVER), Moves.IMPROVES


class Classes(Protocol):
    """Who fits alike, and until when."""

    @property
    def timed(self) -> bool:
        """Whether keys or classes ever change by themselves."""
        ...

    def class_of(self, view: View, job: int) -> int:
        """The class of a waiting job."""
        ...

    def until(self, view: View, job: int) -> int:
        """When its key or its class changes by itself."""
        ...


class Pending:
    """Waiting jobs in order, apart by class: jobs of one class fit or do not fit alike."""

    def __init__(self, order: Order, classes: Classes) -> None:
        self._key, self._class_of = order.key, classes.class_of
        self.heaps: dict[int, list[Entry]] = {}
        self.entry: dict[int, Entry] = {}
        self.blocked = Blocked()

    def add(self, view: View, job: int) -> Entry:
        """File a waiting job, again if its key changed."""
        if job in self.entry:
            self.blocked.went(job)
        entry = self.entry[job] = (*self._key(view, job), job)
        kind = self._class_of(view, job)
        self.blocked.came(kind, entry)
        heap = self.heaps.get(kind)
        if heap is None:
            heap = self.heaps[kind] = []
        heappush(heap, entry)
        return entry

    def remove(self, job: int) -> None:
        """The job waits no longer."""
        del self.entry[job]
        self.blocked.went(job)

    def head(self, kind: int) -> Entry | None:
        """The first of a class, or None if it is empty; then the class is forgotten, so that
        decisions cost as much as there are classes that wait."""
        heap, current = self.heaps.get(kind), self.entry
        while heap:
            entry = heap[0]
            if current.get(entry[-1]) is entry:
                return entry
            heappop(heap)
        self.heaps.pop(kind, None)
        return None

    def in_order(self, kinds: set[int]) -> Iterator[int]:
        """The waiting jobs of `kinds`, first one first, at a cost that grows with how many are
        taken and not with how many wait. Nobody may be filed meanwhile."""
        heaps, current = self.heaps, self.entry
        front = [(heaps[kind][0], kind, 0) for kind in kinds if heaps[kind]]
        heapify(front)
        while front:
            entry, kind, at = heappop(front)
            heap = heaps[kind]
            for child in (2 * at + 1, 2 * at + 2):  # in a heap, only these can come next
                if child < len(heap):
                    heappush(front, (heap[child], kind, child))
            if current.get(entry[-1]) is entry:
                yield entry[-1]


class Running:
    """Jobs that could be preempted, the last in order on top."""

    def __init__(self, order: Order) -> None:
        self._key, self._improves = order.key, order.moves is _IMPROVES
        self._heap: list[Entry] = []
        self.entry: dict[int, Entry] = {}

    def add(self, view: View, job: int) -> Entry:
        """File a running job, again if its key changed."""
        entry = self.entry[job] = self._negated(view, job)
        heap = self._heap
        heappush(heap, entry)
        if len(heap) > 2 * len(self.entry) + SLACK:
            heap[:] = self.entry.values()
            heapify(heap)
        return entry

    def _negated(self, view: View, job: int) -> Entry:
        return (*[-part for part in self._key(view, job)], -job)

    def put_back(self, entry: Entry) -> None:
        """File again, as it was, what `pop_last` gave at this same instant."""
        self.entry[-entry[-1]] = entry
        heappush(self._heap, entry)

    def pop_last(self, view: View, threshold: Entry) -> Entry | None:
        """Take out and return the entry of the job last in order, if it is below `threshold`;
        else None. All parts of both are negated: who comes last has the smallest.

        Keys that improve while a job runs are stored as they were; an entry on top is brought up
        to date before it is believed (the true last one is never above its stored place).
        """
        heap, current = self._heap, self.entry
        while heap:
            entry = heap[0]
            job = -entry[-1]
            if current.get(job) is not entry:
                heappop(heap)
                continue
            if entry >= threshold:
                return None
            if self._improves:
                fresh = self._negated(view, job)
                if fresh > entry:
                    current[job] = fresh
                    heapreplace(heap, fresh)
                    continue
            heappop(heap)
            del current[job]
            return entry
        return None


class QueueIndex:
    """Both heaps, kept level with the view, and the times at which keys jump."""

    def __init__(self, view: View, order: Order, classes: Classes, *, preempt: bool) -> None:
        self._until, self._timed, self._preempt = classes.until, classes.timed, preempt
        self._due: list[tuple[int, int, Entry]] = []
        self.pending = Pending(order, classes)
        self.blocked = self.pending.blocked
        self.running = Running(order)
        self.starting: dict[int, Entry] = {}
        """Jobs told to start that do not execute yet, not to be evicted so far, and where they
        stood; () if that is not known."""
        for job in (*view.pending.tolist(), *view.active.tolist()):
            self.file(view, job)

    def file(self, view: View, job: int) -> None:
        """Put one job where its phase says."""
        at, running = view.at, self.running.entry
        phase = at.phase[job]
        entry = None
        if phase == _PENDING:
            entry = self.pending.add(view, job)
        elif job in self.pending.entry:
            self.pending.remove(job)
        if self._preempt:
            if phase == _RUNNING and at.on_preempt[job] != _UNTOUCHABLE:
                entry = self.running.add(view, job)
                stood = self.starting.get(job)
                if stood != ():
                    stands = tuple([-part for part in entry])
                    if stood is None or stands > stood:
                        self.blocked.moved(stands, at.size[job])
            elif job in running:
                del running[job]
            if phase == _STARTING:
                self.starting.setdefault(job, ())
            elif self.starting:
                self.starting.pop(job, None)
        if entry is None or not self._timed:
            return
        jumps = self._until(view, job)
        if jumps < NEVER:
            due = self._due
            heappush(due, (jumps, job, entry))
            if len(due) > 2 * (len(running) + len(self.pending.entry)) + SLACK:
                due[:] = [each for each in due if self._is_current(each[1], each[2])]
                heapify(due)

    def update(self, view: View) -> None:
        """Take in what changed since the last decision, and every key that has jumped."""
        phases, waiting, preempt = view.at.phase, self.pending.entry, self._preempt
        for job in view.changed:
            # Who runs or is over concerns a queue that never preempts only if it waited.
            if preempt or phases[job] == _PENDING or job in waiting:
                self.file(view, job)
        due = self._due
        while due and due[0][0] <= view.now:
            _, job, entry = heappop(due)
            if self._is_current(job, entry):
                self.file(view, job)

    def next_jump(self) -> int:
        """The next time a key jumps; NEVER if none will."""
        while self._due:
            at, job, entry = self._due[0]
            if self._is_current(job, entry):
                return at
            heappop(self._due)
        return NEVER

    def _is_current(self, job: int, entry: Entry) -> bool:
        return self.pending.entry.get(job) is entry or self.running.entry.get(job) is entry
