"""Successive halving: all trials run a little, the best of them run longer, and so on."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from heapq import heappop, heappush
from typing import Final

import msgspec

from ganger.core.errors import InvariantError
from ganger.core.events import CAPACITY_FREED, COMMANDED, EVALUATED, QUEUED, STARTED
from ganger.core.plan import AskAt, Plan, Reason, Spawn
from ganger.core.spec import JobSpec, Kind, Role, Shape
from ganger.core.state.jobs import Phase
from ganger.core.units import NEVER
from ganger.core.view import View
from ganger.mechanisms.placement.place import PACK, Placer

_CHANGES: Final = CAPACITY_FREED | COMMANDED | EVALUATED | QUEUED | STARTED
_PENDING, _RUNNING, _FINISHED = int(Phase.PENDING), int(Phase.RUNNING), int(Phase.FINISHED)


class Mode(Enum):
    """Which values are better."""

    MIN = "min"
    MAX = "max"


class HalvingMemory(msgspec.Struct):
    """How far a search is."""

    rung: int
    trials: list[int]
    """The trials that are still in the race, by row."""


class _Rung:
    """What is known of the present rung. A cache, as which it goes when the search is given other
    GPUs: some that were to start then did not."""

    def __init__(self) -> None:
        self.trials: list[int] | None = None

    def begin(self, trials: list[int]) -> list[int]:
        """These race from now on; the same list."""
        self.trials = trials
        self.members = set(trials)
        self.open: set[int] = set()
        """Those that have not reached the end of the rung."""
        self.line: list[int] = []
        """A heap of trials that waited to be started when they were last looked at."""
        self.waits: set[int] = set()
        return trials

    def to_look_at(self, view: View, trials: list[int], *, all_there: bool) -> Sequence[int]:
        """The trials of which something may have changed; `all_there`: also such as do not race
        yet."""
        if self.trials is trials:
            return view.changed
        self.begin(trials)
        there = (view.pending, view.paused, view.active) if all_there else ()
        return sorted({*trials, *(job for ids in there for job in ids.tolist())})


@dataclass(frozen=True)
class SuccessiveHalving:
    """Rung k ends when all its trials have reported at `first` x `eta`^k epochs or have ended: the
    best of them, one in `eta`, go on, the others are retired. A trial that reaches the end of its
    rung before the others is set aside, with its work. The last one trains to its end.

    A search that has fewer children than `trials` asks for so many more, each on `gpus` GPUs.
    A trial that broke down, or never reported, is the worst. Of equal ones the earlier is better.
    """

    name: str
    trials: int
    eta: int
    first: float
    mode: Mode
    gpus: int
    place: Placer = PACK
    orders = (Spawn,)

    def decide(self, view: View, memory: HalvingMemory | None) -> tuple[Plan, HalvingMemory]:
        """What runs inside the grant of one search. Raises InvariantError outside of any."""
        parent = view.within
        if parent < 0:
            raise InvariantError(f"{self.name} divides what a job of kind tune holds, nothing else")
        rung, trials = (memory.rung, memory.trials) if memory else (0, [])
        found = view.cached(_Rung)
        look = found.to_look_at(view, trials, all_there=not rung)
        late = [job for job in look if job not in found.members] if not rung else ()
        if late:  # until the first rung ends, those that were asked for may still come
            look = trials = found.begin(sorted([*trials, *late]))
        if memory is None and self.trials > len(trials):
            view.draft.act(Spawn(parent, self._trial(view, parent), self.trials - len(trials)))
        self._see(view, look, found, rung)
        while len(trials) > 1 and not (found.open or view.spawning.get(parent)):
            look = trials = found.begin(self._promote(view, trials, rung))
            rung += 1
            self._see(view, look, found, rung)
        self._set_aside(view, look, trials, rung)
        reasons = self._start(view, found)
        return view.draft.plan(reasons, until=_CHANGES), HalvingMemory(rung, trials)

    def over(self, view: View, memory: HalvingMemory) -> bool:
        """Whether no trial is left to run."""
        phase = view.at.phase
        waits = view.spawning.get(view.within, 0) or not memory.trials
        return not waits and all(phase[job] >= _FINISHED for job in memory.trials)

    def _goal(self, trials: list[int], rung: int) -> float:
        """The epoch at which the rung ends."""
        return self.first * self.eta**rung if len(trials) > 1 else float(NEVER)

    def _reached(self, view: View, job: int, rung: int) -> bool:
        """Whether the trial, which is not over, has done all that its rung wants of it."""
        curve = view.trials.get(job)
        return curve is not None and (curve.final or curve.last >= self.first * self.eta**rung)

    def _promote(self, view: View, trials: list[int], rung: int) -> list[int]:
        """The best of the rung; the others are retired."""
        ranked = sorted(trials, key=lambda job: (self._badness(view, job, rung), job))
        best = max(len(trials) // self.eta, 1)
        for job in ranked[best:]:
            if view.at.phase[job] < _FINISHED:
                view.draft.retire(job)
        return sorted(ranked[:best])

    def _badness(self, view: View, job: int, rung: int) -> float:
        """What the trial reported last in its rung, the less the better."""
        curve = view.trials.get(job)
        if curve is None or view.at.phase[job] > _FINISHED:
            return math.inf
        value = curve.at(self.first * self.eta**rung)
        if math.isnan(value):
            return math.inf
        return value if self.mode is Mode.MIN else -value

    def _see(self, view: View, look: Sequence[int], found: _Rung, rung: int) -> None:
        """Which of `look` have reached the end of the rung, and which wait to be started."""
        phases = view.at.phase
        last = len(found.members) == 1
        for job in look:
            if job not in found.members:
                continue
            if phases[job] >= _FINISHED or (not last and self._reached(view, job, rung)):
                found.open.discard(job)
                continue
            found.open.add(job)
            if _may_start(view, job) and job not in found.waits:
                found.waits.add(job)
                heappush(found.line, job)

    def _set_aside(self, view: View, look: Sequence[int], trials: list[int], rung: int) -> None:
        """Of those of `look` that race: set aside who has reached the end of the rung, and be asked
        about the others when they have."""
        goal, phases, asks = self._goal(trials, rung), view.at.phase, view.at.asks_at
        found = view.cached(_Rung)
        for job in look:
            if job in found.members and phases[job] < _FINISHED:
                if job not in found.open and phases[job] == _RUNNING:
                    view.draft.pause(job)
                if asks[job] != goal:
                    view.draft.act(AskAt(job, goal))

    def _start(self, view: View, found: _Rung) -> list[Reason]:
        """Start those that wait while there is room, the earlier first; why the others wait."""
        while found.line:
            job = found.line[0]
            if job in found.open and _may_start(view, job):
                placement = self.place.find(view, view.ledger, job)
                if placement is None:
                    return [Reason("Resources", "SuccessiveHalving", until=_CHANGES)]
                view.draft.start(job, placement)
            found.waits.discard(heappop(found.line))
        return []

    def _trial(self, view: View, parent: int) -> JobSpec:
        """A trial of which nothing is said but what it may hold."""
        search = view.jobs.spec(parent)
        shape = Shape((Role(size=self.gpus),), search.shape.gpu_types, search.shape.pool)
        return JobSpec(
            name=f"{search.name}-trial",
            parent=search.name,
            kind=Kind.TRAIN,
            shape=shape,
            tenant=search.tenant,
            user=search.user,
            group=search.group,
            priority=search.priority,
            checkpoint=search.checkpoint,
            restore=search.restore,
        )


def _may_start(view: View, job: int) -> bool:
    """Whether the trial waits, or was set aside, and nobody holds it."""
    return view.at.phase[job] == _PENDING or view.is_paused(job)
