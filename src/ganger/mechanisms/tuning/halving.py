"""Successive halving: all trials run a little, the best of them run longer, and so on."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum
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
_BLOCKED, _PENDING, _RUNNING, _STOPPING, _FINISHED = (
    int(phase)
    for phase in (Phase.BLOCKED, Phase.PENDING, Phase.RUNNING, Phase.STOPPING, Phase.FINISHED)
)


class Mode(Enum):
    """Which values are better."""

    MIN = "min"
    MAX = "max"


class HalvingMemory(msgspec.Struct):
    """How far a search is."""

    rung: int
    trials: list[int]
    """The trials that are still in the race, by row."""


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
        if not rung:  # until the first rung ends, those that were asked for may still come
            there = (view.pending, view.paused, view.active)
            trials = sorted({*trials, *(job for ids in there for job in ids.tolist())})
        if memory is None and self.trials > len(trials):
            view.draft.act(Spawn(parent, self._trial(view, parent), self.trials - len(trials)))
        elif not view.spawning.get(parent, 0):
            while len(trials) > 1 and all(self._reached(view, job, rung) for job in trials):
                trials, rung = self._promote(view, trials, rung), rung + 1
        return view.draft.plan(self._run(view, trials, rung), until=_CHANGES), HalvingMemory(
            rung, trials
        )

    def over(self, view: View, memory: HalvingMemory) -> bool:
        """Whether no trial is left to run."""
        phase = view.at.phase
        waits = view.spawning.get(view.within, 0) or not memory.trials
        return not waits and all(phase[job] >= _FINISHED for job in memory.trials)

    def _goal(self, trials: list[int], rung: int) -> float:
        """The epoch at which the rung ends."""
        return self.first * self.eta**rung if len(trials) > 1 else float(NEVER)

    def _reached(self, view: View, job: int, rung: int) -> bool:
        """Whether the trial has done all that its rung wants of it."""
        phase, curve = view.at.phase[job], view.trials.get(job)
        if phase >= _FINISHED:
            return True
        done = curve is not None and (curve.final or curve.last >= self.first * self.eta**rung)
        return done and phase != _STOPPING

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

    def _run(self, view: View, trials: list[int], rung: int) -> list[Reason]:
        """Set aside those that have reached the end of the rung, start the others while there is
        room; why some wait."""
        goal, waits = self._goal(trials, rung), list[int]()
        for job in trials:
            phase = view.at.phase[job]
            if len(trials) > 1 and self._reached(view, job, rung):
                if phase == _RUNNING:
                    view.draft.pause(job)
            elif phase in (_PENDING, _BLOCKED) and view.draft.holds(job) is None:
                waits.append(job)
            if phase < _FINISHED and view.at.asks_at[job] != goal:
                view.draft.act(AskAt(job, goal))
        for job in waits:
            placement = self.place.find(view, view.ledger, job)
            if placement is None:
                return [Reason("Resources", "SuccessiveHalving", until=_CHANGES)]
            view.draft.start(job, placement)
        return []

    def _trial(self, view: View, parent: int) -> JobSpec:
        """A trial of which nothing is said but what it may hold."""
        search = view.jobs.spec(parent)
        shape = Shape((Role(size=self.gpus),), search.shape.gpu_types, search.shape.pool)
        return JobSpec(
            name=f"{search.name}-trial", parent=search.name, kind=Kind.TRAIN, shape=shape,
            tenant=search.tenant, user=search.user, group=search.group, priority=search.priority,
            checkpoint=search.checkpoint, restore=search.restore,
        )  # fmt: skip
