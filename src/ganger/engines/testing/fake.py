"""An engine for tests: no process runs, outcomes are scripted, time jumps to what is next."""

from __future__ import annotations

import threading
from collections.abc import Callable
from heapq import heappop, heappush
from operator import attrgetter

import msgspec

from ganger.core.events import (
    AnyEvent,
    Batch,
    Failed,
    Finished,
    Refused,
    Released,
    Started,
    Woke,
)
from ganger.core.plan import Plan, Resize, Resume, Start, Stop, Suspend
from ganger.core.units import NEVER, SECOND

_rank = attrgetter("rank")


class Script(msgspec.Struct, frozen=True, kw_only=True):
    """What becomes of one attempt. Times in microseconds after the order.

    It starts after `start` (or is refused then, if `refuse` says why), runs for `runs` (NEVER:
    until stopped), and finishes, or fails if `fails` says why (`final`: for good). When ordered to
    stop it is released after `stop` with `kept` work.
    """

    start: int = 1000
    runs: int = NEVER
    refuse: str = ""
    fails: str = ""
    final: bool = True
    stop: int = SECOND
    kept: float = 0.0


class FakeEngine:
    """Plays `script(job, attempt)` for each attempt. `post` may be called from any thread; a `poll`
    with nothing ahead returns None, or waits for a `post` if the engine is `patient`."""

    def __init__(
        self, script: Callable[[int, int], Script], *, now: int = 0, patient: bool = False
    ) -> None:
        self.now = now
        self.orders: list[object] = []
        """Every action that was ever applied, in order."""
        self.started: set[tuple[int, int]] = set()
        """(job, attempt) of all that ever ran."""
        self._script = script
        self._patient = patient
        self._heap: list[tuple[int, int, int, AnyEvent]] = []
        self._filed = 0
        self._alive: dict[int, int] = {}
        self._seen: dict[int, int] = {}
        self._left: dict[int, int] = {}
        self._since: dict[int, int] = {}
        self._ends: dict[int, AnyEvent] = {}
        self._free_at: dict[int, int] = {}
        self._posted: list[AnyEvent] = []
        self._nudged = False
        self._change = threading.Condition()

    def post(self, *events: AnyEvent) -> None:
        """Put events into the next batch."""
        with self._change:
            self._posted += events
            self._nudged = True
            self._change.notify()

    def poll(self, until: int) -> Batch | None:
        """The next instant at which something happens, or a Woke at `until`."""
        events = list[AnyEvent]()
        with self._change:
            self._drop_void()
            if self._patient and not self._heap and until >= NEVER:
                self._change.wait_for(lambda: self._nudged)
            posted, self._posted = self._posted, []
            nudged, self._nudged = self._nudged, False
        if not nudged:
            at = min(self._heap[0][0] if self._heap else NEVER, until)
            if at >= NEVER:
                return None
            self.now = max(self.now, at)
            while self._heap and self._heap[0][0] <= self.now:
                event = heappop(self._heap)[3]
                if self._counts(event):
                    events.append(event)
                    self._happened(event)
            if self.now >= until:
                events.append(Woke())
        return Batch(self.now, sorted(posted + events, key=_rank))

    @property
    def running(self) -> set[int]:
        """The jobs that run or will."""
        return set(self._alive)

    def _drop_void(self) -> None:
        while self._heap and not self._counts(self._heap[0][3]):
            heappop(self._heap)

    def _counts(self, event: AnyEvent) -> bool:
        """Whether what was filed still holds: ends of attempts that were stopped do not."""
        if isinstance(event, Started | Refused):
            return self._alive.get(event.job) == event.attempt
        if isinstance(event, Finished | Failed):
            return self._ends.get(event.job) is event
        return True

    def _happened(self, event: AnyEvent) -> None:
        if isinstance(event, Finished | Failed | Refused):
            del self._alive[event.job]
            self._ends.pop(event.job, None)
        elif isinstance(event, Started):
            self.started.add((event.job, event.attempt))
            self._go(event.job)

    def apply(self, plan: Plan, now: int) -> None:
        """Set the plan's actions going."""
        self.orders += plan.actions
        for action in plan.actions:  # who leaves, first: a start may wait for any of them
            if isinstance(action, Stop):
                self._stop(action.job, action.attempt)
            elif isinstance(action, Resize):
                self._stop(action.job, action.attempt - 1)
            elif isinstance(action, Suspend):
                self._halt(action.job)
            elif isinstance(action, Resume):
                self._go(action.job)
        for action in plan.actions:
            if isinstance(action, Start):
                self._start(action.job, action.attempt, action.waits)
            elif isinstance(action, Resize):
                self._start(action.job, action.attempt, (*action.waits, action.job))

    def _file(self, at: int, event: AnyEvent) -> None:
        self._filed += 1
        heappush(self._heap, (at, event.rank, self._filed, event))

    def _start(self, job: int, attempt: int, waits: tuple[int, ...]) -> None:
        if attempt <= self._seen.get(job, 0):
            return
        self._seen[job] = self._alive[job] = attempt
        script = self._script(job, attempt)
        self._left[job] = script.runs
        at = max([self.now, *(self._free_at.get(other, 0) for other in waits)]) + script.start
        if script.refuse:
            self._file(at, Refused(job, attempt, script.refuse))
        else:
            self._file(at, Started(job, attempt))

    def _go(self, job: int) -> None:
        attempt = self._alive[job]
        script = self._script(job, attempt)
        self._since[job] = self.now
        if self._left[job] < NEVER:
            end: AnyEvent = Finished(job, attempt)
            if script.fails:
                end = Failed(job, attempt, script.kept, script.fails, script.final)
            self._ends[job] = end
            self._file(self.now + self._left[job], end)

    def _halt(self, job: int) -> None:
        self._ends.pop(job, None)
        if self._left[job] < NEVER:
            self._left[job] -= self.now - self._since[job]

    def _stop(self, job: int, attempt: int) -> None:
        if self._alive.get(job) != attempt:
            return
        script = self._script(job, attempt)
        del self._alive[job]
        self._ends.pop(job, None)
        self._free_at[job] = self.now + script.stop
        self._file(self.now + script.stop, Released(job, attempt, script.kept))
