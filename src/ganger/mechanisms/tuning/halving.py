"""Successive halving: all trials run a little, the best of them run longer, and so on."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

import msgspec

from ganger.core.plan import AskAt, Plan, Reason, Spawn
from ganger.core.state.jobs import Phase
from ganger.core.units import NEVER
from ganger.core.view import View
from ganger.mechanisms.placement.place import PACK, Placer
from ganger.mechanisms.tuning.trials import (
    CHANGES,
    Line,
    Mode,
    Portion,
    badness,
    broke,
    may_start,
    resize,
    search_of,
    trial_of,
    why_waiting,
)

_RUNNING, _FINISHED = int(Phase.RUNNING), int(Phase.FINISHED)
ENDLESS: Final = float(NEVER)
"""More epochs than any trial trains."""


class Staged(Protocol):
    """How many GPUs there are in each rung."""

    @property
    def most_gpus(self) -> int:
        """The most that a trial has."""

    def width(self, view: View, rung: int) -> int:
        """What each trial of the rung has."""

    def grant(self, view: View, rung: int) -> int:
        """What they have together."""


class HalvingMemory(msgspec.Struct):
    """How far a search is."""

    rung: int
    trials: list[int]
    """The trials that are still in the race, by row."""
    granted: int = -1
    """The last rung for which the search had, or has asked for, its GPUs."""


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
        self.line = Line()
        return trials

    def to_look_at(self, view: View, trials: list[int], *, all_there: bool) -> Sequence[int]:
        """The trials of which something may have changed; `all_there`: also such as do not race
        yet."""
        if self.trials is trials:
            return sorted(set(view.changed))
        self.begin(trials)
        sets = (view.pending, view.paused, view.active) if all_there else ()
        return sorted({*trials, *(job for ids in sets for job in ids.tolist())})


@dataclass(frozen=True)
class SuccessiveHalving:
    """Rung k ends when all its trials have reported at `first` x `eta`^k epochs or have ended: the
    best of them, one in `eta`, go on, the others are retired. A trial that reaches the end of its
    rung before the others is set aside, with its work. The last one trains to its end. None trains
    for more than `longest` epochs: a rung that ends there is the last one, and its trials end with
    it.

    A search that has fewer children than `trials` asks for so many more, `each` on its portion.
    A trial that broke down, or never reported, is the worst; one that breaks down ends. Of equal
    ones the earlier is better.
    """

    name: str
    trials: int
    eta: int
    first: float
    mode: Mode
    each: Portion
    longest: float = ENDLESS
    one_by_one: bool = False
    """Whether trials are asked for where there is room, so that a searcher has heard of others."""
    place: Placer = PACK
    staged: Staged | None = None
    """How many GPUs there are in each rung, if that is planned."""
    orders = (Spawn,)

    def decide(self, view: View, memory: HalvingMemory | None) -> tuple[Plan, HalvingMemory]:
        """What runs inside the grant of one search. Raises InvariantError outside of any."""
        parent = search_of(view, self.name)
        rung, trials = (memory.rung, memory.trials) if memory else (0, [])
        found = view.cached(_Rung)
        look = found.to_look_at(view, trials, all_there=not rung)
        late = [job for job in look if job not in found.members] if not rung else ()
        if late:  # until the first rung ends, those that were asked for may still come
            look = trials = found.begin(sorted([*trials, *late]))
        self._see(view, look, found, rung)
        wanted = self._wanted(view, found, trials, begins=memory is None) if not rung else 0
        if wanted:
            widest = self.staged.most_gpus if self.staged is not None else 0
            view.draft.act(Spawn(parent, trial_of(view, parent, self.each, widest), wanted))
        coming = wanted + view.spawning.get(parent, 0)
        while self._halves(trials, rung) and not (found.open or coming):
            look = trials = found.begin(self._promote(view, trials, rung))
            rung += 1
            self._see(view, look, found, rung)
        self._set_aside(view, look, trials, rung)
        width, granted = 0, memory.granted if memory is not None else -1
        if self.staged is not None:
            width = self.staged.width(view, rung)
            if granted < rung and view.at.size[parent] != self.staged.grant(view, rung):
                why = [self._why_waiting(trials, rung, width)]
                plan = view.draft.plan(why, wake=view.now + 1, until=CHANGES)
                return plan, HalvingMemory(rung, trials, rung)
            self._widen(view, found.open, width)
            granted = rung
        all_run = found.line.start(view, self.place, found.open.__contains__, self.each, width)
        reasons = [] if all_run else [self._why_waiting(trials, rung, width)]
        return view.draft.plan(reasons, until=CHANGES), HalvingMemory(rung, trials, granted)

    def _why_waiting(self, trials: list[int], rung: int, width: int) -> Reason:
        """Why trials of the rung do not run."""
        return why_waiting(
            "SuccessiveHalving",
            width or self.each.part,
            rung_trials=len(trials),
            rung_end_epochs=self._goal(trials, rung),
        )

    def over(self, view: View, memory: HalvingMemory) -> bool:
        """Whether no trial is left to run."""
        phase = view.at.phase
        waits = view.spawning.get(view.within, 0) or not memory.trials
        return not waits and all(phase[job] >= _FINISHED for job in memory.trials)

    def wants(self, view: View, memory: HalvingMemory) -> int | None:
        """The GPUs of the rung, where that is planned."""
        return None if self.staged is None else self.staged.grant(view, memory.rung)

    def _widen(self, view: View, trials: Iterable[int], width: int) -> None:
        """Trials that came here without a stop get the GPUs that the others get, once those are
        there."""
        at, draft = view.at, view.draft
        for job in sorted(trials):
            runs = at.phase[job] == _RUNNING and draft.holds(job) is not None
            if runs and at.size[job] != width:
                resize(view, job, width, self.place)

    def _wanted(self, view: View, found: _Rung, trials: list[int], *, begins: bool) -> int:
        """How many trials to ask for now, in the first rung."""
        coming = view.spawning.get(view.within, 0)
        missing = self.trials - len(trials) - coming
        if self.one_by_one:
            room = self.each.fit(int(view.at.size[view.within]))
            return max(min(missing, room - len(found.open) - coming), 0)
        return max(missing, 0) if begins else 0

    def _halves(self, trials: list[int], rung: int) -> bool:
        """Whether some of these trials go on from this rung and others do not."""
        return len(trials) > 1 and self.first * self.eta**rung < self.longest

    def _goal(self, trials: list[int], rung: int) -> float:
        """The epoch at which the rung ends."""
        return self.first * self.eta**rung if self._halves(trials, rung) else self.longest

    def _reached(self, view: View, job: int, goal: float) -> bool:
        """Whether the trial, which is not over, has done all that its rung wants of it."""
        curve = view.trials.get(job)
        return curve is not None and (curve.final or curve.last >= goal or broke(curve))

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
        return badness(curve.reached(self.first * self.eta**rung), self.mode)

    def _see(self, view: View, look: Sequence[int], found: _Rung, rung: int) -> None:
        """Which of `look` have reached the end of the rung, and which wait to be started."""
        phases, goal = view.at.phase, self._goal(found.trials or [], rung)
        for job in look:
            if job not in found.members:
                continue
            if phases[job] >= _FINISHED or (goal < ENDLESS and self._reached(view, job, goal)):
                found.open.discard(job)
                continue
            found.open.add(job)
            if may_start(view, job):
                found.line.add(job)

    def _set_aside(self, view: View, look: Sequence[int], trials: list[int], rung: int) -> None:
        """Of those of `look` that race: set aside what has reached the end of the rung, or retire
        it at the end of the last, and be asked about the others when they have."""
        goal, phases, asks = self._goal(trials, rung), view.at.phase, view.at.asks_at
        found = view.cached(_Rung)
        for job in look:
            if job in found.members and phases[job] < _FINISHED:
                if job not in found.open and phases[job] == _RUNNING:
                    ends = goal >= self.longest or broke(view.trials[job])
                    (view.draft.retire if ends else view.draft.pause)(job)
                elif job not in found.open and goal >= self.longest and may_start(view, job):
                    view.draft.retire(job)  # it ran on past the last rung before it was set aside
                curve = view.trials.get(job)
                passed = asks[job] <= (curve.last if curve is not None else 0.0)
                if asks[job] > goal or (passed and asks[job] < goal):  # else a limit asks before
                    view.draft.act(AskAt(job, goal))
