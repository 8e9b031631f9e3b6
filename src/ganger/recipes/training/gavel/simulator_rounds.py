"""Rounds as Gavel's public simulator holds them (OSDI 2020; its code as of January 2022).

The rounds of `rounds` and these share nothing but the allocation: here every deviation of that
simulator from the paper that moves its figures is a switch (`Ways`), so that published figures can
be met, and it can be seen what each is worth.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from operator import itemgetter
from typing import NamedTuple, TypeAlias

import msgspec
import numpy as np

from ganger.core.allocation import Allocation
from ganger.core.events import (
    CAPACITY_FREED,
    CAPACITY_LOST,
    COMMANDED,
    QUEUED,
    STARTED,
    WOKE,
    NodeDown,
    NodeUp,
    Woke,
)
from ganger.core.plan import Plan, Reason, Resume, Suspend
from ganger.core.state.jobs import Phase
from ganger.core.state.table import Ids
from ganger.core.units import NEVER, SECOND
from ganger.core.view import View
from ganger.mechanisms.common.python_random import shuffle
from ganger.mechanisms.common.reasons import decides_at
from ganger.mechanisms.common.reconcile import STAYS, cells_of, competitors
from ganger.mechanisms.fairness.fair import Notes
from ganger.mechanisms.placement.place import PACK, Placer
from ganger.mechanisms.rounds.program import allowed_on
from ganger.mechanisms.rounds.rounds import Allocator, Remembering, remembers
from ganger.recipes.training.gavel.simulator_pace import Pace

_DECLARED, _RUNNING, _SUSPENDED = int(Phase.DECLARED), int(Phase.RUNNING), int(Phase.SUSPENDED)
_STOPPING, _FINISHED = int(Phase.STOPPING), int(Phase.FINISHED)
_STARTING = int(Phase.STARTING)
_HOLD = (_STARTING, _RUNNING, _SUSPENDED)
_TYPES = ("v100", "p100", "k80")
"""Whose rounds are filled first; others follow in the cluster's order."""
ATTEMPTS = 5
"""So many failures in a row, and a job is dropped."""

Rank: TypeAlias = tuple[float, float, float, int, str]
_RANK = itemgetter(0, 1, 2)


class Ways(NamedTuple):
    """What the public simulator does, one by one.

    `whole_steps`: in a round a job does int(steps per second x round) steps and then waits.
    `barrier`: the next round begins when the last job of this one is through; GPUs freed before
    stay idle. `patience`: a new allocation at the earliest so many microseconds after the last.
    `counters`: priority is the fraction allocated over the job's part of all time given on the type
    since the last allocation, where each job begins with half a round; deficits of earlier
    allocations break ties. `by_type`: one type after the other is filled. `left_over`: what is left
    is given to jobs that fit, allocated there or not. `held_back`: jobs that came since the last
    allocation take GPUs in a round, and do not run; where no other job can, the next arrival is
    waited for, if any is to come (which no live policy could know). `dropped`: a job with fewer
    steps left than GPUs never ends: it is tried five times and dropped. `shuffled`: types in random
    order.
    """

    whole_steps: bool
    barrier: bool
    patience: int
    counters: bool
    by_type: bool
    left_over: bool
    held_back: bool
    dropped: bool
    shuffled: bool


class Turn(NamedTuple):
    """A job in a round: where, when its part of it ends (microseconds), and how that ends.

    `last`: with its last step. `fails`: it will have done nothing.
    """

    job: int
    gpu_type: str
    until: int
    last: bool = False
    fails: bool = False


class BarrierMemory(msgspec.Struct):
    """What these rounds remember. Times in microseconds, time received in seconds."""

    allocation: Allocation = msgspec.field(default_factory=Allocation)
    since: int = 0
    """When it was made; 0 also if the next one may be made at once."""
    jobs: list[int] = []
    """For whom."""
    turns: list[Turn] = []
    ends: int = 0
    """When the round ends at the latest."""
    counted: int = 0
    """From when on the time in the round counts: where the round before ended."""
    received: dict[str, dict[int, float]] = {}
    """By type and job, since the last allocation; all that take part are in it."""
    total: dict[str, float] = {}
    """By type, that of jobs that are gone included."""
    deficits: dict[str, dict[int, float]] = {}
    failures: dict[int, int] = {}
    """Failed rounds in a row, by job; `ATTEMPTS` for a dropped one."""
    changed: bool = True
    """Whether somebody came or went since the last allocation."""
    rounds: int = 0
    notes: Notes = Notes()


@dataclass(frozen=True)
class BarrierRounds:
    """Time-shares an allocation in rounds of `every` microseconds, in the given `ways`."""

    name: str
    allocator: Allocator | Remembering
    every: int
    ways: Ways
    place: Placer = PACK

    def decide(self, view: View, memory: BarrierMemory | None) -> tuple[Plan, BarrierMemory]:
        """Pause jobs that are through with their part of the round; when all are, begin the
        next."""
        memory = memory or BarrierMemory()
        if any(isinstance(event, NodeDown | NodeUp) for event in view.events):
            memory = msgspec.structs.replace(memory, changed=True)
        course = _course(view, memory)
        following = course.following(view)
        over = following == NEVER and not any(_goes_on(view, turn) for turn in memory.turns)
        if not self.ways.barrier:
            over = view.now >= memory.ends or not len(view.active)
        if over:
            memory = _copied(memory)
            self._settle(view, memory)
            self._begin(view, memory)
            if not memory.turns and self._stuck(view, memory):
                memory.since = 0
                view.draft.rollback()
                self._begin(view, memory)
            course = _course(view, memory)
            following = course.begun(view.now)
        elif self.ways.whole_steps:
            for turn in course.through(view):
                view.draft.act(Suspend(turn.job, view.at.attempt[turn.job]))
        if memory.turns and not self.ways.barrier:
            following = min(following, memory.ends)
        until = CAPACITY_FREED | CAPACITY_LOST | COMMANDED | WOKE
        if over or course.late:
            until |= STARTED
        if not memory.turns:
            until |= QUEUED
        reasons = []
        if len(view.pending):
            evidence = {"round_s": self.every / SECOND} | decides_at(following)
            reasons.append(Reason("Priority", "BarrierRounds", evidence=evidence, until=until))
        return view.draft.plan(reasons, following, until), memory

    def _stuck(self, view: View, memory: BarrierMemory) -> bool:
        """Whether jobs wait, none may run, and nothing will change that. The public simulator,
        which holds back newcomers, then waits for the next arrival as long as there is one."""
        if not any(memory.failures.get(job, 0) < ATTEMPTS for job in view.pending.tolist()):
            return False
        declared = np.flatnonzero(view.jobs.phase[: view.jobs.n] == _DECLARED).tolist()
        # Who waits for others may come without anybody being asked for it.
        coming = any(job not in view.jobs.after for job in declared)
        return memory.since > 0 and not (self.ways.held_back and coming)

    # ------------------------------------------------------------------ between rounds

    def _settle(self, view: View, memory: BarrierMemory) -> None:
        """Count what everybody had in the round that is over; forget those that are gone."""
        phase, at = view.at.phase, 0
        ended = [(self._ended(view, turn), turn) for turn in memory.turns]
        for end, turn in sorted(ended, key=lambda each: (-each[0], each[1].job)):
            at = max(at, end)
            if turn.fails:
                memory.failures[turn.job] = memory.failures.get(turn.job, 0) + 1
                memory.changed = True
                continue
            memory.failures.pop(turn.job, None)
            had = (end - memory.counted) / SECOND
            received = memory.received[turn.gpu_type]
            received[turn.job] = received.get(turn.job, 0.0) + had
            memory.total[turn.gpu_type] += had
        if memory.turns:
            memory.counted = at
        memory.turns = []
        kept = (*memory.received.values(), *memory.deficits.values())
        gone = [
            job for job in set().union(*kept) if phase[job] > _STOPPING or _dropped(memory, job)
        ]
        for job in gone:
            for by_job in kept:
                memory.changed |= by_job.pop(job, None) is not None

    def _ended(self, view: View, turn: Turn) -> int:
        finished = view.at.phase[turn.job] == _FINISHED
        return int(view.at.finished[turn.job]) if finished else min(turn.until, view.now)

    def _begin(self, view: View, memory: BarrierMemory) -> None:
        """Allocate if it is time, and choose who runs in the coming round."""
        types = self._types(view, memory)
        jobs = competitors(view)
        if memory.failures:
            jobs = jobs[[not _dropped(memory, job) for job in jobs.tolist()]]
        first, names = self.every / 2 / SECOND if self.ways.counters else 0.0, jobs.tolist()
        for kind in types:
            received = memory.received.setdefault(kind, {})
            memory.total.setdefault(kind, 0.0)
            for job in [job for job in names if job not in received]:
                received[job] = first
                memory.deficits.setdefault(kind, {})[job] = 0.0
                memory.changed = True
        due = view.now - memory.since >= self.ways.patience or not memory.since
        if memory.changed and due:
            self._allocate(view, memory, jobs, first)
        turns = self._choose(view, memory, types, jobs)
        memory.turns = self._draw(view, turns, jobs)
        memory.ends = view.now + self.every
        memory.rounds += 1

    def _allocate(self, view: View, memory: BarrierMemory, jobs: Ids, first: float) -> None:
        """A new allocation, and counters that begin anew."""
        elapsed = (view.now - memory.since) / SECOND
        due = {(row.jobs[0], row.gpu_type): row.amount * elapsed for row in memory.allocation.rows}
        for kind, received in memory.received.items():
            deficits, memory.total[kind] = memory.deficits.setdefault(kind, {}), 0.0
            for job in received:
                if self.ways.counters:
                    had = received[job] - first
                    deficits[job] = deficits.get(job, 0.0) + (due.get((job, kind), 0.0) - had)
                received[job] = first
                memory.total[kind] += first
        if remembers(self.allocator):
            memory.notes = self.allocator.remember(view, jobs, memory.notes)
            memory.allocation = self.allocator.allocate_from(view, jobs, memory.notes)
        else:
            memory.allocation = self.allocator.allocate(view, jobs)
        memory.since, memory.jobs, memory.changed = view.now, jobs.tolist(), False

    def _types(self, view: View, memory: BarrierMemory) -> list[str]:
        """The GPU types in the order in which they are filled."""
        found = dict.fromkeys(cell.gpu_type for cell in view.ledger.cells if cell.gpu_type)
        known = {name: at for at, name in enumerate(_TYPES)}
        types = sorted(found, key=lambda kind: known.get(kind.lower(), len(known)))
        if not self.ways.shuffled:
            return types
        return [types[at] for at in shuffle(view, memory.rounds, len(types))]

    # ------------------------------------------------------------------ who runs

    def _ranked(self, view: View, memory: BarrierMemory, types: list[str]) -> list[Rank]:
        """(priority, deficit, amount, job, type), the first to run first."""
        amounts: dict[str, dict[int, float]] = {kind: {} for kind in types}
        for row in memory.allocation.rows:
            amounts.setdefault(row.gpu_type, {})[row.jobs[0]] = row.amount
        elapsed = max((view.now - memory.since) / SECOND, 1e-6)
        ranked: list[Rank] = []
        for kind in types:
            total = memory.total[kind] if self.ways.counters else elapsed
            deficits, rows = memory.deficits.get(kind, {}), list[Rank]()
            received, of = memory.received[kind], amounts[kind]
            for job in sorted(received):
                amount = of.get(job, 0.0)
                part = received[job] / total if total and amount else 0.0
                due = amount / part if part > 0 else amount * 1e9
                rows.append((due, deficits.get(job, 0.0), amount, job, kind))
            rows.sort(key=_RANK, reverse=True)
            ranked += rows
        if not self.ways.by_type:
            ranked.sort(key=_RANK, reverse=True)
        return ranked

    def _choose(self, view: View, memory: BarrierMemory, types: list[str], jobs: Ids) -> list[Turn]:
        """The turns of the coming round."""
        free = dict.fromkeys(types, 0)
        for cell in view.ledger.cells:
            if cell.gpu_type:
                free[cell.gpu_type] += cell.total
        turns: list[Turn] = []
        chosen: set[int] = set()
        mine = set(view.active.tolist())
        for job, (_, placement) in view.ledger.holds.items():
            if view.at.size[job] and (job not in mine or _stays(view, job)):
                kind = view.ledger.cell_of[placement[0].node].gpu_type
                free[kind] -= int(view.at.size[job])
                if job in mine:  # else it is a replica of a service
                    chosen.add(job)
                    turns.append(Turn(job, kind, view.now + self.every))
        allocated, pace = set(memory.jobs), Pace(view, jobs)
        fits, column = allowed_on(view, jobs, types), {kind: at for at, kind in enumerate(types)}
        row = {job: at for at, job in enumerate(jobs.tolist())}
        gpus_of, phase, left = view.at.gpus, view.at.phase, sum(free.values())
        for due, _, _, job, kind in self._ranked(view, memory, types):
            room = free[kind]
            if not room or job in chosen or job not in row:  # people hold it, or it is over
                continue
            gpus = int(gpus_of[job])
            if gpus > room or not gpus or not pace.runs(job, kind):
                continue
            if not fits[row[job], column[kind]] or phase[job] == _STOPPING:
                continue
            if due <= 0 and not self.ways.left_over:
                continue
            free[kind] -= gpus
            left -= gpus
            chosen.add(job)
            if job in allocated or not self.ways.held_back:
                turns.append(self._turn(view, pace, job, kind))
            if not left:
                break
        return turns

    def _turn(self, view: View, pace: Pace, job: int, kind: str) -> Turn:
        """How long the job's part of the round is."""
        per_second, left = pace.steps(job, kind)
        length = self.every / SECOND
        if not self.ways.whole_steps:
            return Turn(job, kind, view.now + self.every, left / per_second <= length)
        steps = min(int(per_second * length), left)
        until = view.now + max(round(steps / per_second * SECOND), 1)
        fails = self.ways.dropped and steps < view.at.gpus[job]
        return Turn(job, kind, until, steps >= left and not fails, fails)

    def _draw(self, view: View, turns: list[Turn], jobs: Ids) -> list[Turn]:
        """Draw the way from what runs to `turns`; those that find no place are left out."""
        draft, phase = view.draft, view.at.phase
        wanted = {turn.job: turn for turn in turns if not turn.fails}
        kept: set[int] = set()
        for job in view.active.tolist():
            if phase[job] not in _HOLD:
                continue
            turn, held = wanted.get(job), draft.holds(job)
            kind = view.ledger.cell_of[held[0].node].gpu_type if held else ""
            if (turn is not None and turn.gpu_type == kind) or not view.at.gpus[job]:
                kept.add(job)
                if phase[job] == _SUSPENDED and job not in view.ledger.asleep:  # else people's wish
                    draft.act(Resume(job, view.at.attempt[job]))
            else:
                draft.stop(job)
        placed = [
            turn
            for turn in sorted(turns, key=lambda turn: -int(view.at.gpus[turn.job]))
            if turn.fails or turn.job in kept or self._start(view, turn.job, turn.gpu_type)
        ]
        for job in jobs[view.jobs.gpus[jobs] == 0].tolist():
            if job not in kept and phase[job] != _STOPPING:
                self._start(view, job, "")
        return placed

    def _start(self, view: View, job: int, kind: str) -> bool:
        ledger = view.ledger
        cells = cells_of(ledger, view, job, kind)
        placement = self.place.find(view, ledger, job, cells, int(view.at.gpus[job]))
        if placement is not None:
            view.draft.start(job, placement)
        return placement is not None


class _Course:
    """A round's turns in the order in which they end."""

    def __init__(self, turns: list[Turn]) -> None:
        self.turns = turns
        self._order = sorted(range(len(turns)), key=lambda at: turns[at].until)
        self._ends = [turns[at].until for at in self._order]
        self._seen, self._until = -1, 0
        """The revision at the last look, and when it was, microseconds."""
        self.late = False
        """Some should be through and have not begun."""

    def begun(self, now: int) -> int:
        """When the first turn ends, of those that do not end with their job; NEVER for none."""
        return min(
            (turn.until for turn in self.turns if turn.until > now and not turn.last), default=NEVER
        )

    def following(self, view: View) -> int:
        """The same of those that go on."""
        for at in self._order[bisect_right(self._ends, view.now) :]:
            turn = self.turns[at]
            if not turn.last and _goes_on(view, turn):
                return turn.until
        return NEVER

    def through(self, view: View) -> list[Turn]:
        """Those that are through with their turn and have to be paused, as they were chosen."""
        only = len(view.events) == 1 and type(view.events[0]) is Woke
        # What ended before was looked at when it did, and nothing has moved since.
        known = only and self._seen == view.revision - 1
        phase, found = view.at.phase, list[int]()
        begin = bisect_right(self._ends, self._until) if known else 0
        self.late &= known
        for at in self._order[begin : bisect_right(self._ends, view.now)]:
            turn = self.turns[at]
            if phase[turn.job] == _STARTING:
                self.late = True
            elif phase[turn.job] == _RUNNING and not turn.last and not _stays(view, turn.job):
                found.append(at)
        self._seen, self._until = view.revision, view.now
        return [self.turns[at] for at in sorted(found)]


class _StandingCourse:
    """The course of the last round that was looked at."""

    __slots__ = ("course",)

    def __init__(self) -> None:
        self.course: _Course | None = None


def _course(view: View, memory: BarrierMemory) -> _Course:
    """That of the round, made once."""
    standing = view.cached(_StandingCourse)
    known = standing.course
    if known is None or known.turns is not memory.turns:
        known = standing.course = _Course(memory.turns)
    return known


def _copied(memory: BarrierMemory) -> BarrierMemory:
    """A memory that may be written without touching the one given."""
    return msgspec.structs.replace(
        memory,
        received={kind: dict(of) for kind, of in memory.received.items()},
        total=dict(memory.total),
        failures=dict(memory.failures),
        deficits={kind: dict(of) for kind, of in memory.deficits.items()},
    )


def _goes_on(view: View, turn: Turn) -> bool:
    """Whether the job is not yet through with its turn."""
    if turn.fails:
        return view.now < turn.until
    phase = view.at.phase[turn.job]
    if phase not in _HOLD or phase == _SUSPENDED:
        return False
    return turn.last or view.now < turn.until or phase != _RUNNING


def _stays(view: View, job: int) -> bool:
    """Whether stopping the job would cost it all it did, or is not allowed."""
    return view.at.on_preempt[job] in STAYS and view.at.phase[job] in _HOLD


def _dropped(memory: BarrierMemory, job: int) -> bool:
    return memory.failures.get(job, 0) >= ATTEMPTS
