"""The ordered queue's bookkeeping: heaps that let a decision touch only what it changes.

All of it is cache. It is rebuilt from the view whenever it is missing, and nothing in it may make
a plan differ from one decided with a fresh index (checked in `validate` mode at every step).
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heappop, heappush
from typing import Protocol

from ganger.core.jobs import Phase
from ganger.core.spec import OnPreempt
from ganger.core.units import NEVER
from ganger.core.view import View
from ganger.mechanisms.order import Moves, Order

Entry = tuple[float, ...]
"""A key with the job's number at its end."""

_PENDING, _STARTING, _RUNNING = int(Phase.PENDING), int(Phase.STARTING), int(Phase.RUNNING)


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
        self._order, self._classes = order, classes
        self.heaps: dict[int, list[Entry]] = {}
        self.entry: dict[int, Entry] = {}

    def add(self, view: View, job: int) -> Entry:
        """File a waiting job, again if its key changed."""
        entry = self.entry[job] = (*self._order.key(view, job), job)
        kind = self._classes.class_of(view, job)
        heap = self.heaps.get(kind)
        if heap is None:
            heap = self.heaps[kind] = []
        heappush(heap, entry)
        return entry

    def head(self, kind: int) -> Entry | None:
        """The first of a class, or None if it is empty."""
        heap, current = self.heaps[kind], self.entry
        while heap:
            entry = heap[0]
            if current.get(int(entry[-1])) is entry:
                return entry
            heappop(heap)
        return None

    def in_order(self, kinds: set[int]) -> Iterator[int]:
        """The waiting jobs of `kinds`, first one first. Slow: for walks that must see them all."""
        current = self.entry
        entries = (e for kind in kinds for e in self.heaps[kind] if current.get(int(e[-1])) is e)
        for entry in sorted(entries):
            yield int(entry[-1])


class Running:
    """Jobs that could be preempted, the last in order on top."""

    def __init__(self, order: Order) -> None:
        self._order = order
        self._heap: list[Entry] = []
        self.entry: dict[int, Entry] = {}

    def add(self, view: View, job: int) -> Entry:
        """File a running job, again if its key changed."""
        entry = self.entry[job] = self._negated(view, job)
        heappush(self._heap, entry)
        return entry

    def _negated(self, view: View, job: int) -> Entry:
        return (*[-part for part in self._order.key(view, job)], -job)

    def pop_last(self, view: View, before: Entry) -> int | None:
        """Take out and return the job last in order, if it comes after `before`; else None.

        Keys that improve while a job runs are stored as they were; an entry on top is brought up
        to date before it is believed (the true last one is never above its stored place).
        """
        heap, current = self._heap, self.entry
        threshold = tuple([-part for part in before])
        while heap:
            entry = heap[0]
            job = -int(entry[-1])
            if current.get(job) is not entry:
                heappop(heap)
                continue
            if entry >= threshold:
                return None
            if self._order.moves is Moves.IMPROVES:
                fresh = self._negated(view, job)
                if fresh > entry:
                    heappop(heap)
                    current[job] = fresh
                    heappush(heap, fresh)
                    continue
            heappop(heap)
            del current[job]
            return job
        return None


class QueueIndex:
    """Both heaps, kept level with the view, and the times at which keys jump."""

    def __init__(self, view: View, order: Order, classes: Classes, *, preempt: bool) -> None:
        self._classes, self._preempt = classes, preempt
        self._timed = classes.timed
        self._due: list[tuple[int, int, Entry]] = []
        self.pending = Pending(order, classes)
        self.running = Running(order)
        self.starting: set[int] = set()
        """Jobs told to start that do not execute yet: not to be evicted so far."""
        for job in (*view.pending.tolist(), *view.active.tolist()):
            self.file(view, job)

    def file(self, view: View, job: int) -> None:
        """Put one job where its phase says."""
        phase = view.jobs.phase[job]
        if phase == _STARTING:
            self.starting.add(job)
        else:
            self.starting.discard(job)
        if phase == _PENDING:
            if self._preempt:
                self.running.entry.pop(job, None)
            entry = self.pending.add(view, job)
        else:
            if job in self.pending.entry:
                del self.pending.entry[job]
            if not self._preempt:
                return
            self.running.entry.pop(job, None)
            if phase != _RUNNING or view.jobs.on_preempt[job] == OnPreempt.NEVER:
                return
            entry = self.running.add(view, job)
        if not self._timed:
            return
        at = self._classes.until(view, job)
        if at < NEVER:
            heappush(self._due, (at, job, entry))

    def update(self, view: View) -> None:
        """Take in what changed since the last decision, and every key that has jumped."""
        phases, waiting, preempt = view.jobs.phase, self.pending.entry, self._preempt
        for job in view.changed:
            if preempt or job in waiting or phases[job] == _PENDING:
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
