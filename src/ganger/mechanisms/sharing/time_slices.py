"""Time slices: more jobs than GPUs, which take turns on them (Gandiva, OSDI 2018, section 3.1).

A job that says how much GPU memory it keeps is suspended for the turns of others and stays where it
is. Any other is stopped, which costs what its checkpoint costs.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Protocol, TypeAlias

from ganger.core.books.ledger import members
from ganger.core.books.occupancy import may_doze
from ganger.core.events import CAPACITY_FREED, CAPACITY_LOST, COMMANDED, QUEUED, STARTED, WOKE
from ganger.core.plan import Placement, Plan, Reason, Resume, Suspend
from ganger.core.protocols import revived
from ganger.core.spec import Kind
from ganger.core.state.jobs import Phase
from ganger.core.units import NEVER
from ganger.core.view import View
from ganger.mechanisms.common.reasons import decides_at
from ganger.mechanisms.common.reconcile import STAYS
from ganger.mechanisms.placement.place import PACK, Placer

TRIES: Final = 8
"""So many of those whose turn is over are looked at for the place of one job that waits."""
_RUNNING: Final = int(Phase.RUNNING)
_TRAIN: Final = int(Kind.TRAIN)
_UNTIL: Final = QUEUED | STARTED | CAPACITY_FREED | CAPACITY_LOST | COMMANDED

Device: TypeAlias = tuple[int, int]
"""Node and number of the device in it."""
Groups: TypeAlias = list[tuple[int, ...]]


class Packs(Protocol):
    """Which jobs may compute side by side on the same GPUs. `groups`: the jobs that compute on
    the same devices, each group once."""

    def learn(self, view: View, memory: Any, groups: Groups) -> Any:
        """What is known now: what was kept, and what `view` tells."""

    def placement(self, view: View, job: int, placement: Placement) -> Placement:
        """`placement` as the job is to hold it, so that another may come beside it."""

    def apart(self, view: View, memory: Any, groups: Groups) -> list[int]:
        """Jobs that have to yield now, because of those beside them."""

    def may_pair(self, view: View, memory: Any, job: int) -> bool:
        """Whether the job may compute beside any other at all."""

    def beside(self, view: View, memory: Any, job: int, others: list[int]) -> bool:
        """Whether `job`, which waits or sleeps, may compute beside `others`, which compute."""

    def wake(self, view: View, memory: Any, groups: Groups) -> int:
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
            groups = turns.groups()
            turns.memory = memory = packs.learn(view, revived(memory, packs.learn), groups)
            for job in packs.apart(view, memory, groups):
                turns.take_turn_from([job], keeps=True)
        for job in turns.waiting():
            if job in view.ledger.asleep:
                turns.resume(job)
            else:
                turns.start(job)
        wake = min(turns.wake, turns.next_turn())
        if packs is not None:
            wake = min(wake, packs.wake(view, memory, turns.groups()))
        return view.draft.plan(turns.reasons(), wake, _UNTIL), memory


class _Turns:
    """One decision: who computes where, who sleeps below, and when the next turn ends."""

    def __init__(self, view: View, slices: TimeSlices) -> None:
        self._view, self._slices = view, slices
        self.memory: Any = None
        self.wake = NEVER
        self._mine = set(view.active.tolist())
        self._resumed: set[int] = set()
        self._refused: set[int] = set()
        """Shapes for which there was no place."""
        self._sizes: dict[int, list[int]] | None = None
        """By number of GPUs, those that computed on so many when this was first asked for."""
        self._computing: dict[Device, list[int]] = {}
        self._below: dict[Device, int] = {}
        """By device: how many sleep there and wait for a turn."""
        self._devices = view.cached(_Devices)
        for job in sorted(view.ledger.holds):
            self._note(job)

    def groups(self) -> Groups:
        """The jobs that compute on the same devices, each group once."""
        return list(dict.fromkeys(map(tuple, self._computing.values())))

    def _on(self, job: int) -> tuple[Device, ...]:
        """The devices that a job holds."""
        return self._devices.of(job, self._view.ledger.holds[job][1])

    def _note(self, job: int) -> None:
        """The job computes where it is from now on, or sleeps."""
        computing, below = self._computing, self._below
        if job not in self._view.ledger.asleep:
            for device in self._on(job):
                computing.setdefault(device, []).append(job)
        elif job in self._view.resumable:  # else people want it to sleep
            for device in self._on(job):
                below[device] = below.get(device, 0) + 1

    def waiting(self) -> list[int]:
        """The jobs that wait for a turn, the one that has waited longest first."""
        view, at = self._view, self._view.at
        asleep = [(at.since[job], job) for job in self._mine & view.ledger.asleep & view.resumable]
        line = [(at.pending_since[job], job) for job in view.pending.tolist()]
        return [job for _, job in sorted(asleep + line)]

    def turn_ends(self, job: int) -> int:
        """When a job will have computed for a quantum; NEVER for one that has not begun, or is not
        to be interrupted."""
        at = self._view.at
        if job in self._resumed:
            return self._after_a_quantum(self._view.now)
        if job not in self._mine:
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
        asleep = job in self._view.ledger.asleep
        for device in self._devices.last(job):
            self._computing[device].remove(job)
            if asleep:
                self._below[device] = self._below.get(device, 0) + 1

    def _yields(self, job: int, *, keeps: bool) -> None:
        draft = self._view.draft
        if keeps and may_doze(draft.shape(job)):
            draft.suspend(job)
        else:
            draft.stop(job)

    def _in_the_way(self, holder: int) -> list[int]:
        """Who computes on any device that `holder` has."""
        computing = self._computing
        return sorted({job for device in self._on(holder) for job in computing.get(device, ())})

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
        over = {
            job
            for device, below in self._below.items()
            if below
            for job in self._computing.get(device, ())
        }
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
            for device in self._on(job):
                self._below[device] -= 1
                self._computing.setdefault(device, []).append(job)

    def start(self, job: int) -> None:
        """A place for a job that waits: a free one, one beside another job, or that of a job whose
        turn is over."""
        shape = self._view.at.shape[job]
        if shape in self._refused:
            return
        if not (self._on_free(job) or self._beside_another(job) or self._on_a_turn(job)):
            self._refused.add(shape)

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

    def _of_size(self, least: int, most: int) -> list[int]:
        """Jobs that compute on so many GPUs, and began before this decision."""
        size, asleep = self._view.at.size, self._view.ledger.asleep
        if self._sizes is None:
            self._sizes = {}
            for other in sorted({each for jobs in self._computing.values() for each in jobs}):
                self._sizes.setdefault(size[other], []).append(other)
        holds, sizes = self._view.ledger.holds, self._sizes
        jobs = [job for gpus in sizes if least <= gpus <= most for job in sizes[gpus]]
        return [job for job in jobs if job in holds and job not in asleep]

    def _beside_another(self, job: int) -> bool:
        view, packs = self._view, self._slices.packs
        if packs is None or not packs.may_pair(view, self.memory, job):
            return False
        gpus = view.at.gpus[job]
        for other in self._of_size(gpus, gpus):
            placement = view.ledger.holds[other][1]
            if self._may_join(job, self._in_the_way(other)) and view.ledger.is_free(
                view.draft.shape(job), placement
            ):
                self._start_on(job, placement)
                return True
        return False

    def _on_a_turn(self, job: int) -> bool:
        view, draft = self._view, self._view.draft
        due: list[tuple[int, int, int, int]] = []
        for other in self._of_size(max(view.at.gpus[job], 1), NEVER):
            ends = self.turn_ends(other)
            if ends > view.now:
                self.wake = min(self.wake, ends)
                continue
            below = max(self._below.get(device, 0) for device in self._on(other))
            due.append((view.at.size[other], below, ends, other))
        keeps = may_doze(draft.shape(job))
        for *_, other in sorted(due)[:TRIES]:
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
        numbers, until = decides_at(self.wake), _UNTIL | WOKE
        return [
            Reason("Resources", "TimeSlices", shape, evidence=numbers, until=until)
            for shape in sorted(self._refused)
        ]


class _Devices:
    """The devices of what each job was last seen to hold."""

    __slots__ = ("_seen",)

    def __init__(self) -> None:
        self._seen: dict[int, tuple[Placement, tuple[Device, ...]]] = {}

    def of(self, job: int, placement: Placement) -> tuple[Device, ...]:
        """The devices of `placement`, which the job holds."""
        seen = self._seen.get(job)
        if seen is None or seen[0] is not placement:
            devices = [(slot.node, each) for slot in placement for each in members(slot.devices)]
            seen = self._seen[job] = placement, tuple(devices)
        return seen[1]

    def last(self, job: int) -> tuple[Device, ...]:
        """What the job was last seen to hold."""
        return self._seen[job][1]
