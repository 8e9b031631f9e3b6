"""The ordered queue's bookkeeping: heaps that let a decision touch only what it changes.

All of it is cache. It is rebuilt from the view whenever it is missing, and nothing in it may make
a plan differ from one decided with a fresh index (checked in `validate` mode at every step).
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterable
from heapq import heapify, heappop, heappush, heapreplace
from math import inf
from operator import neg
from typing import Protocol

from ganger.core.spec import OnPreempt
from ganger.core.state.jobs import Phase
from ganger.core.units import NEVER
from ganger.core.view import View
from ganger.mechanisms.ordering.blocked_classes import Blocked, Entry
from ganger.mechanisms.ordering.order import Moves, Order

SLACK = 1000
"""A heap is swept when more than half of it, and so many entries, are out of date."""

# Plain numbers and module constants: looking an enum's member up costs as much as a heap push.
_PENDING, _STARTING, _RUNNING = int(Phase.PENDING), int(Phase.STARTING), int(Phase.RUNNING)
_UNTOUCHABLE, _IMPROVES = int(OnPreempt.NEVER), Moves.IMPROVES


def negated(entry: Entry) -> Entry:
    """The entry that stands where `entry` does if all order is turned round. Short ones are nearly
    all there are, and three times as fast without a loop."""
    if len(entry) == 2:
        return -entry[0], -entry[1]
    if len(entry) == 3:
        return -entry[0], -entry[1], -entry[2]
    if len(entry) == 4:
        return -entry[0], -entry[1], -entry[2], -entry[3]
    return tuple(map(neg, entry))


class Classes(Protocol):
    """Which jobs fit alike, and until when."""

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

    def __init__(self, order: Order, classes: Classes, *, ranked: bool, listed: bool) -> None:
        self._key, self._class_of = order.key, classes.class_of
        self.heaps: dict[int, list[Entry]] = {}
        self.entry: dict[int, Entry] = {}
        self.blocked = Blocked()
        self._all: list[Entry] | None = [] if ranked else None
        self._list: list[Entry] | None = [] if listed else None

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
        if self._all is not None:
            heappush(self._all, entry)
            self._sweep(self._all)
        if self._list is not None:
            insort(self._list, entry)
            self._sweep(self._list)
        return entry

    def _sweep(self, entries: list[Entry]) -> None:
        """Forget who waits no longer (or not as it was) once that is most of them."""
        if len(entries) > 2 * len(self.entry) + SLACK:
            entries[:] = sorted(self.entry.values())  # sorted, so a heap too

    def remove(self, job: int) -> None:
        """The job waits no longer."""
        del self.entry[job]
        self.blocked.went(job)

    def head(self, kind: int) -> Entry | None:
        """The first of a class, or None if it is empty; then the class and what is known of it are
        forgotten, so that decisions cost as much as there are classes that wait."""
        heap, current = self.heaps.get(kind), self.entry
        while heap:
            entry = heap[0]
            if current.get(entry[-1]) is entry:
                return entry
            heappop(heap)
        self.heaps.pop(kind, None)
        if self.blocked.records:
            self.blocked.forget(kind)
        return None

    def first(self) -> Entry | None:
        """The first of all classes (`ranked` only)."""
        heap, current = self._all, self.entry
        assert heap is not None, "the classes are not ranked among each other"
        while heap:
            entry = heap[0]
            if current.get(entry[-1]) is entry:
                return entry
            heappop(heap)
        return None

    def in_order(self, most: int) -> list[int]:
        """The first waiting jobs, so many at most (`listed` only)."""
        entries, current, found = self._list, self.entry, list[int]()
        assert entries is not None, "the jobs are not listed"
        self._sweep(entries)
        for entry in entries:
            if current.get(entry[-1]) is entry:
                found.append(entry[-1])
                if len(found) == most:
                    break
        return found


class Running:
    """Jobs that could be preempted, the last in order on top."""

    def __init__(self, order: Order) -> None:
        self._key, self._improves = order.key, order.moves is _IMPROVES
        self._heap: list[Entry] = []
        self.entry: dict[int, Entry] = {}

    def add(self, view: View, job: int) -> Entry:
        """File a running job, again if its key changed."""
        entry = self.entry[job] = negated((*self._key(view, job), job))
        heap = self._heap
        heappush(heap, entry)
        if len(heap) > 2 * len(self.entry) + SLACK:
            heap[:] = self.entry.values()
            heapify(heap)
        return entry

    def put_back(self, entry: Entry) -> None:
        """File again, as it was, what `pop_last` gave at this same instant."""
        self.entry[-entry[-1]] = entry
        heappush(self._heap, entry)

    def pop_last(self, view: View, threshold: Entry) -> Entry | None:
        """Take out and return the entry of the job last in order, if it is below `threshold`; else
        None. All parts of both are negated: the job that comes last has the smallest.

        Keys that improve while a job runs are stored as they were; an entry on top is brought up
        to date before it is believed (the true last one is never above its stored place).
        """
        heap, current, improves, fresh = self._heap, self.entry, self._improves, ()
        while heap:
            entry = heap[0]
            job = -entry[-1]
            if current.get(job) is not entry:
                heappop(heap)
                continue
            if entry >= threshold:
                return None
            if improves and entry is not fresh:
                fresh = negated((*self._key(view, job), job))
                if fresh > entry:
                    current[job] = fresh
                    heapreplace(heap, fresh)
                    continue
            heappop(heap)
            del current[job]
            return entry
        return None


class QueueIndex:
    """Both heaps, kept level with the view, and the times at which keys jump.

    A running job that stands before all that wait can be evicted for none of them. Its jumps are
    *silent* until one takes it to the level (the first part of the key) of the first that waits:
    the policy is not woken for them, and its entry is brought up to date when a victim is looked
    for.
    """

    def __init__(
        self,
        view: View,
        order: Order,
        classes: Classes,
        *,
        preempt: bool = False,
        listed: bool = False,
    ) -> None:
        self._until, self._timed, self._preempt = classes.until, classes.timed, preempt
        self._passes = order.passes
        self._due: list[tuple[int, int, Entry]] = []
        self._when: dict[int, int] = {}
        """Per job the one time in `_due` that counts."""
        self._silent: list[tuple[int, int, Entry]] = []
        self._heard = -inf
        """The highest level for which jumps were silenced."""
        self.pending = Pending(order, classes, ranked=preempt and self._timed, listed=listed)
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
                if stood != () and self.blocked.records:
                    stands = negated(entry)
                    if stood is None or stands > stood:
                        self.blocked.moved(stands, at.size[job])
            elif job in running:
                del running[job]
            if phase == _STARTING:
                self.starting.setdefault(job, ())
            elif self.starting:
                self.starting.pop(job, None)
        if not self._timed:
            return
        jumps = NEVER if entry is None else self._until(view, job)
        if entry is None or jumps == NEVER:
            self._when.pop(job, None)
            return
        self._when[job] = jumps
        due = self._due
        heappush(due, (jumps, job, entry))
        if len(due) > 2 * (len(running) + len(self.pending.entry)) + SLACK:
            due[:] = [each for each in due if self._counts(*each)]
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
            jump = heappop(due)
            if self._counts(*jump):
                self.file(view, jump[1])

    def settle(self, view: View, jobs: Iterable[int]) -> None:
        """File running jobs anew whose place in the order changes with this decision."""
        for job in jobs:
            if job in self.running.entry:
                self.file(view, job)

    def next_jump(self, view: View) -> int:
        """The next time a key jumps that matters; NEVER if none will."""
        due = self._due
        first = self.pending.first() if due and self._preempt else None
        level = first[0] if first is not None else -inf
        if level < self._heard:
            self._speak_up(view)
        while due:
            at, job, entry = due[0]
            if not self._counts(at, job, entry):
                heappop(due)
                continue
            if -entry[0] >= level or job in self.pending.entry:
                return at
            passes = self._passes(view, job, level)
            if passes <= at:
                return at
            self._heard = max(self._heard, level)
            self._silence(at, job, entry)
            self._when[job] = passes
            heapreplace(due, (passes, job, entry))
        return NEVER

    def _silence(self, at: int, job: int, entry: Entry) -> None:
        silent = self._silent
        heappush(silent, (at, job, entry))
        if len(silent) > 2 * len(self.running.entry) + SLACK:
            first: dict[int, tuple[int, int, Entry]] = {}
            for each in sorted(silent):
                if self._is_current(each[1], each[2]):
                    first.setdefault(each[1], each)
            silent[:] = first.values()  # sorted, so a heap

    def _speak_up(self, view: View) -> None:
        """Somebody waits who comes before those for whom jumps were silenced."""
        self.catch_up(view)
        for at, job, entry in self._silent:
            if self._is_current(job, entry) and at < self._when[job]:
                self._when[job] = at
                heappush(self._due, (at, job, entry))
        self._silent.clear()
        self._heard = -inf

    def catch_up(self, view: View) -> None:
        """Bring the entries of all running jobs up to date."""
        silent = self._silent
        while silent and silent[0][0] <= view.now:
            _, job, entry = heappop(silent)
            if self._is_current(job, entry):
                self.file(view, job)

    def _counts(self, at: int, job: int, entry: Entry) -> bool:
        return self._when.get(job) == at and self._is_current(job, entry)

    def _is_current(self, job: int, entry: Entry) -> bool:
        return self.pending.entry.get(job) is entry or self.running.entry.get(job) is entry


class StandingIndex:
    """The index as the last decision left it, as a cache; None before the first."""

    __slots__ = ("index",)

    def __init__(self) -> None:
        self.index: QueueIndex | None = None
