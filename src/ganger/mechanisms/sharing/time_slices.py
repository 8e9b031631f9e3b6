"""Time slices: more jobs than GPUs, which take turns on them (Gandiva, OSDI 2018, section 3.1).

A job that says how much GPU memory it keeps is suspended for the turns of others and stays where it
is. Any other is stopped, which costs what its checkpoint costs.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heapreplace, nsmallest
from typing import Any, ClassVar, Final, NamedTuple, Protocol, TypeAlias

from ganger.core.books.ledger import members
from ganger.core.books.occupancy import may_doze
from ganger.core.events import CAPACITY_FREED, CAPACITY_LOST, COMMANDED, QUEUED, STARTED, WOKE
from ganger.core.plan import Placement, Plan, Reason, Resume, Suspend
from ganger.core.protocols import revived
from ganger.core.spec import Kind, Shape
from ganger.core.state.jobs import Phase
from ganger.core.units import NEVER, SECOND
from ganger.core.view import View
from ganger.mechanisms.common.holdings_delta import HoldingsDelta
from ganger.mechanisms.common.reasons import decides_at
from ganger.mechanisms.common.reconcile import STAYS
from ganger.mechanisms.placement.place import PACK, Placer
from ganger.mechanisms.sharing.crowds import Crowds, Device, Groups

TRIES: Final = 8
"""So many of those whose turn is over are looked at for the place of one job that waits."""
_RUNNING: Final = int(Phase.RUNNING)
_PENDING: Final = int(Phase.PENDING)
_TRAIN: Final = int(Kind.TRAIN)
_UNTIL: Final = QUEUED | STARTED | CAPACITY_FREED | CAPACITY_LOST | COMMANDED

Waits: TypeAlias = tuple[int, int]
"""Since when, and which job."""


class Packs(Protocol):
    """Which jobs may compute side by side on the same GPUs."""

    def follow(self, view: View, memory: Any, lost: Groups, stirred: Groups) -> None:
        """Of the groups of jobs that compute on the same devices, of which some has a part, those
        that are no more, and those that are new or of which a job changed."""

    def learn(self, view: View, memory: Any) -> Any:
        """What is known now: what was kept, and what `view` tells."""

    def placement(self, view: View, job: int, placement: Placement) -> Placement:
        """`placement` as the job is to hold it, so that another may come beside it."""

    def apart(self, view: View, memory: Any) -> list[int]:
        """Jobs that have to yield now, because of those beside them."""

    def may_pair(self, view: View, memory: Any, job: int) -> bool:
        """Whether the job may compute beside any other at all."""

    def partners(self, view: View, memory: Any, job: int) -> Iterable[int]:
        """All jobs that compute and beside which `job`, which waits, may; ascending."""

    def beside(self, view: View, memory: Any, job: int, others: list[int]) -> bool:
        """Whether `job`, which waits or sleeps, may compute beside `others`, which compute."""

    def why_beside(
        self, view: View, memory: Any, job: int, other: int
    ) -> tuple[tuple[str, float], ...]:
        """The numbers by which these two compute side by side."""

    def wake(self, view: View, memory: Any) -> int:
        """When it has to be asked again; NEVER if it need not be."""


@dataclass(frozen=True)
class TimeSlices:
    """First come, first served while there is room; beyond that, turns of a `quantum`
    (microseconds).

    The job that has waited longest for a turn, asleep or in the queue, gets the next one. Jobs in
    its way sleep, or stop, once they have computed for a quantum; turns end at whole multiples of
    it, so that all GPUs change at once. A job that waits takes the place of one of as many GPUs,
    else of more, and of these the one with the fewest asleep below it.
    """

    name: str
    quantum: int
    place: Placer = PACK
    packs: Packs | None = None
    orders: ClassVar[tuple[type, ...]] = (Suspend, Resume)

    def decide(self, view: View, memory: Any) -> tuple[Plan, Any]:
        """The turns that begin now."""
        turns, packs = _Turns(view, self), self.packs
        if packs is not None:
            turns.memory = revived(memory, packs.learn)
            turns.regroup()
            turns.memory = memory = packs.learn(view, turns.memory)
            for job in packs.apart(view, memory):
                turns.take_turn_from([job], keeps=True)
        for job in turns.waiting():
            if job in view.ledger.asleep:
                turns.resume(job)
            else:
                turns.start(job)
        wake = min(turns.wake, turns.next_turn())
        if packs is not None:
            turns.regroup()
            wake = min(wake, packs.wake(view, memory))
        return view.draft.plan(turns.reasons(), wake, _UNTIL), memory

    def why_beside(
        self, view: View, memory: Any, job: int, others: Sequence[int]
    ) -> tuple[tuple[str, float], ...]:
        """What the two did together when that was measured."""
        if self.packs is None or len(others) != 1:
            return ()
        tried = revived(memory, self.packs.learn)
        return self.packs.why_beside(view, tried, job, others[0])


class _Turns:
    """One decision: who computes where, who sleeps below, and when the next turn ends."""

    def __init__(self, view: View, slices: TimeSlices) -> None:
        self._view, self._slices = view, slices
        self.memory: Any = None
        self.wake = NEVER
        self._resumed: set[int] = set()
        self._refused: set[int] = set()
        """Shapes for which there was no place."""
        self._standing = view.cached(Standing)
        self._standing.follow(view, self.turn_ends)

    def regroup(self) -> None:
        """Tell which jobs compute together now."""
        if self._slices.packs is not None:
            self._slices.packs.follow(self._view, self.memory, *self._standing.regrouped())

    def _note(self, job: int, ends: int = NEVER) -> None:
        """The job computes where it is from now on, or sleeps."""
        self._standing.note(self._view, job, ends)

    def waiting(self) -> Iterator[int]:
        """The jobs that wait for a turn, the one that has waited longest first, but for those in
        the queue of a shape that found no place."""
        view, at = self._view, self._view.at
        sleeping = [job for job in view.ledger.asleep & view.resumable if view.is_active(job)]
        lines = self._standing.lines
        line: list[Waits] = sorted((at.since[job], job) for job in sleeping)
        heap = [(first[0], shape, 0, first) for shape, first in lines.items() if first]
        heap += [(line[0], -1, 0, line)] if line else []
        heapify(heap)
        while heap:
            (_, job), shape, at_now, line = heap[0]
            yield job
            if shape in self._refused or at_now + 1 == len(line):
                heappop(heap)
            else:
                heapreplace(heap, (line[at_now + 1], shape, at_now + 1, line))

    def turn_ends(self, job: int) -> int:
        """When a job will have computed for a quantum; NEVER for one that has not begun, or is not
        to be interrupted."""
        at = self._view.at
        if job in self._resumed:
            return self._after_a_quantum(self._view.now)
        if not self._view.is_active(job):
            return NEVER
        if at.phase[job] != _RUNNING or at.kind[job] != _TRAIN or at.on_preempt[job] in STAYS:
            return NEVER
        return self._after_a_quantum(at.began[job])

    def _after_a_quantum(self, time: int) -> int:
        quantum = self._slices.quantum
        return -(-time // quantum) * quantum + quantum

    def take_turn_from(self, jobs: Iterable[int], *, keeps: bool) -> None:
        """Their turn is over: with `keeps` they may keep the memory that they say they keep."""
        for job in jobs:
            self._yields(job, keeps=keeps)
            self._gave_way(job)

    def _gave_way(self, job: int) -> None:
        """The job computes no more where it did."""
        self._standing.gave_way(job, asleep=job in self._view.ledger.asleep)

    def _yields(self, job: int, *, keeps: bool) -> None:
        draft = self._view.draft
        if keeps and may_doze(draft.shape(job)):
            draft.suspend(job)
        else:
            draft.stop(job)

    def _in_the_way(self, holder: int) -> list[int]:
        """Who computes on any device that `holder` has."""
        return self._standing.on(self._standing.seen[holder].devices)

    def _may_join(self, job: int, others: list[int]) -> bool:
        packs = self._slices.packs
        return packs is not None and packs.beside(self._view, self.memory, job, others)

    def _all_had_theirs(self, jobs: list[int]) -> bool:
        """Whether the turns of all are over."""
        return max(self.turn_ends(job) for job in jobs) <= self._view.now

    def next_turn(self) -> int:
        """When the next turn ends of a job that computes over others; in a quantum where it is over
        and no job could take it."""
        now = self._view.now
        over = self._standing.on(self._standing.below)
        ends = min((self.turn_ends(job) for job in over), default=NEVER)
        return ends if ends > now else self._after_a_quantum(now)

    # ------------------------------------------------------------------ who gets a turn

    def resume(self, job: int) -> None:
        """A turn for a job that sleeps, if the jobs that compute there have had theirs."""
        others = self._in_the_way(job)
        if others and not self._may_join(job, others):
            if not self._all_had_theirs(others):
                return
            self.take_turn_from(others, keeps=True)
        if self._view.draft.resume(job):
            self._resumed.add(job)
            self._note(job, self.turn_ends(job))

    def start(self, job: int) -> None:
        """A place for a job that waits: a free one, one beside another job, or that of a job whose
        turn is over."""
        if not (self._on_free(job) or self._beside_another(job) or self._on_a_turn(job)):
            self._refused.add(self._view.at.shape[job])

    def _on_free(self, job: int) -> bool:
        placement = self._slices.place.find(self._view, self._view.ledger, job)
        if placement is None:
            return False
        self._start_on(job, placement)
        return True

    def _start_on(self, job: int, placement: Placement) -> None:
        packs = self._slices.packs
        if packs is not None:
            placement = packs.placement(self._view, job, placement)
        self._view.draft.start(job, placement)
        self._note(job)

    def _beside_another(self, job: int) -> bool:
        view, packs = self._view, self._slices.packs
        if packs is None or not packs.may_pair(view, self.memory, job):
            return False
        self.regroup()
        for other in packs.partners(view, self.memory, job):
            placement = view.ledger.holds[other][1]
            if self._may_join(job, self._in_the_way(other)) and view.ledger.is_free(
                view.draft.shape(job), placement
            ):
                self._start_on(job, placement)
                return True
        return False

    def _on_a_turn(self, job: int) -> bool:
        view, draft = self._view, self._view.draft
        over, ends = self._standing.due(max(view.at.gpus[job], 1), view.now)
        self.wake = min(self.wake, ends)
        keeps = may_doze(draft.shape(job))
        for other in over:
            others = self._in_the_way(other)
            if not self._all_had_theirs(others):
                continue
            mark = draft.mark()
            for each in others:
                self._yields(each, keeps=keeps)
            placement = self._slices.place.find(view, view.ledger, job)
            if placement is None:
                draft.rollback(mark)
                continue
            for each in others:
                self._gave_way(each)
            self._start_on(job, placement)
            return True
        return False

    def reasons(self) -> list[Reason]:
        """Why those in the queue wait: all that compute where they could are within their turns."""
        numbers = {"turn_s": self._slices.quantum / SECOND} | decides_at(self.wake)
        until = _UNTIL | WOKE
        return [
            Reason("Resources", "TimeSlices", shape, evidence=numbers, until=until)
            for shape in sorted(self._refused)
        ]


class Seen(NamedTuple):
    """What a job was last seen to do: what it held, the devices of that, whether it computed, or
    slept and waited for a turn, the GPUs that it had, and when its turn ends."""

    held: tuple[Shape, Placement]
    devices: tuple[Device, ...]
    computes: bool
    waits: bool
    size: int
    ends: int


class Standing:
    """Which jobs compute where, which sleep below, and which turns are over, as of the last
    decision. A cache: a decision looks at the jobs that changed."""

    __slots__ = (
        "_asleep",
        "_computing",
        "_crowds",
        "_delta",
        "_in_line",
        "_over",
        "_touched",
        "_turns",
        "_waiting",
        "below",
        "lines",
        "seen",
    )  # fmt: skip

    def __init__(self) -> None:
        self.seen: dict[int, Seen] = {}
        self.below: dict[Device, int] = {}
        """By device: how many sleep there and wait for a turn, where there are any."""
        self._computing: dict[Device, list[int]] = {}
        self._turns: dict[int, dict[int, set[int]]] = {}
        """By number of GPUs and end of their turns, those whose turns were not over."""
        self._over: dict[int, list[tuple[int, int]]] = {}
        """By number of GPUs, those whose turns were over: (when that was, job), ascending."""
        self._crowds = Crowds()
        self._touched: set[int] = set()
        self.lines: dict[int, list[Waits]] = {}
        """By shape, the jobs in the queue, the one that has waited longest first."""
        self._in_line: dict[int, tuple[int, Waits]] | None = None
        """By job in the queue: its shape, and how it stands there."""
        self._delta = HoldingsDelta()
        self._asleep: set[int] = set()
        self._waiting: set[int] = set()

    def follow(self, view: View, turn_ends: Callable[[int], int]) -> None:
        """Look at the jobs that changed since the last decision."""
        self._line_up(view)
        ledger = view.ledger
        gone, come = self._delta.changes(ledger)
        touched = self._touched
        touched.update(gone, (job for job, _ in come), view.changed)
        if ledger.asleep or self._asleep:
            asleep, waiting = set(ledger.asleep), ledger.asleep & view.resumable
            touched |= (asleep ^ self._asleep) | (waiting ^ self._waiting)
            self._asleep, self._waiting = asleep, waiting
        for job in touched:
            self._forget(job)
            if job in ledger.holds:
                self.note(view, job, turn_ends(job))
        self._touched = set()

    def _line_up(self, view: View) -> None:
        """Who came to the queue stands there, who left it does not."""
        at = view.at
        if self._in_line is None:
            self._in_line, changed = {}, view.pending.tolist()
        else:
            changed = [*view.changed, *self._touched]
        for job in changed:
            shape, standing = self._in_line.pop(job, (0, None))
            if standing is not None:
                line = self.lines[shape]
                del line[bisect_left(line, standing)]
            if at.phase[job] == _PENDING:
                shape, standing = at.shape[job], (at.pending_since[job], job)
                self._in_line[job] = shape, standing
                insort(self.lines.setdefault(shape, []), standing)

    def note(self, view: View, job: int, ends: int) -> None:
        """The job computes where it is, until its turn `ends`, or sleeps."""
        self._forget(job)
        self._touched.add(job)
        ledger, held = view.ledger, view.ledger.holds[job]
        devices = tuple([(slot.node, each) for slot in held[1] for each in members(slot.devices)])
        computes = job not in ledger.asleep
        waits = not computes and job in view.resumable  # else people want it to sleep
        seen = self.seen[job] = Seen(held, devices, computes, waits, view.at.size[job], ends)
        if computes:
            self._crowds.stir(devices)
        for device in devices if computes else ():
            self._computing.setdefault(device, []).append(job)
        for device in devices if waits else ():
            self.below[device] = self.below.get(device, 0) + 1
        if computes and ends < NEVER:
            self._turns.setdefault(seen.size, {}).setdefault(ends, set()).add(job)

    def gave_way(self, job: int, *, asleep: bool) -> None:
        """The job computes no more where it did; `asleep`: it waits there for its next turn."""
        seen = self.seen[job]
        self._forget(job)
        self._touched.add(job)
        if asleep:
            self.seen[job] = seen._replace(computes=False, waits=True)
            for device in seen.devices:
                self.below[device] = self.below.get(device, 0) + 1

    def _forget(self, job: int) -> None:
        seen = self.seen.pop(job, None)
        if seen is None:
            return
        if seen.waits:
            for device in seen.devices:
                self.below[device] -= 1
                if not self.below[device]:
                    del self.below[device]
        if not seen.computes:
            return
        self._crowds.stir(seen.devices)
        for device in seen.devices:
            self._computing[device].remove(job)
        over, turn = self._over.get(seen.size, []), (seen.ends, job)
        at = bisect_left(over, turn)
        if over[at : at + 1] == [turn]:
            del over[at]
        turns = self._turns.get(seen.size, {})
        if seen.ends in turns:
            turns[seen.ends].discard(job)
            if not turns[seen.ends]:
                del turns[seen.ends]

    def on(self, devices: Iterable[Device]) -> list[int]:
        """The jobs that compute on any of `devices`, ascending."""
        computing = self._computing
        return sorted({job for device in devices for job in computing.get(device, ())})

    def regrouped(self) -> tuple[Groups, Groups]:
        """Of the groups of jobs that compute on the same devices, of which some has a part, those
        that are no more since the last call, and those that are new or of which a job changed."""
        return self._crowds.changes(self._computing, self._shares)

    def _shares(self, job: int) -> bool:
        """Whether the job has a part of its devices."""
        return self.seen[job].held[1][0].share > 0

    def due(self, least: int, now: int) -> tuple[list[int], int]:
        """Of the jobs with `least` GPUs or more some whose turns are over: those with the fewest
        GPUs, of these those with the fewest asleep below them, and of these those whose turns were
        over first. And when the next turn of the others ends."""
        first, next_end = list[int](), NEVER
        for size in sorted(self._turns):
            if size < least:
                continue
            turns = self._turns[size]
            over = self._over.setdefault(size, [])
            for end in [end for end in turns if end <= now]:
                for job in turns.pop(end):
                    insort(over, (end, job))
            next_end = min(next_end, min(turns, default=NEVER))
            if len(first) < TRIES:
                ranked = over[:TRIES]
                if self.below:
                    ranked = nsmallest(TRIES, over, key=lambda turn: (self._deepest(turn[1]), turn))
                first += [job for _, job in ranked]
        return first[:TRIES], next_end

    def _deepest(self, job: int) -> int:
        """How many sleep below the job, on the device where these are most."""
        return max([self.below.get(device, 0) for device in self.seen[job].devices], default=0)
