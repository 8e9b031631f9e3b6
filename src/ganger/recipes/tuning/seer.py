"""SEER: as many trials as a budget and a deadline allow, fewer and wider from round to round."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import combinations_with_replacement
from typing import Annotated, NamedTuple, TypeAlias

import msgspec

from ganger.core.errors import BadInput
from ganger.core.plan import Plan, Spawn
from ganger.core.profiles import Profile
from ganger.core.protocols import Policy
from ganger.core.state.jobs import Phase
from ganger.core.units import HOUR, SECOND
from ganger.core.view import View
from ganger.mechanisms.placement.place import PACK
from ganger.mechanisms.tuning.trials import (
    CHANGES,
    Line,
    Mode,
    Portion,
    badness,
    broke,
    resize,
    search_of,
    trial_of,
    why_waiting,
)
from ganger.recipes.parameters import Within
from ganger.recipes.registry import Amount, Count, Paper, Period, Positive, recipe
from ganger.recipes.tuning.baselines import Eta

SEER = Paper(
    "Elastic Hyperparameter Tuning on the Cloud",
    "Dunlap et al.",
    "SoCC",
    2021,
    "best metric, cost, deadlines",
)
Few: TypeAlias = Annotated[int, Within(1, 8)]
"""Of more rounds the plan would take too long to find."""
_RUNNING, _FINISHED = int(Phase.RUNNING), int(Phase.FINISHED)


class Round(NamedTuple):
    """How many trials train, and on how many GPUs each."""

    trials: int
    width: int


class Wanted(NamedTuple):
    """What is planned for: `budget` in GPUs x rounds, `progress` in rounds on one GPU, the most
    trials that begin and GPUs at once, and how much faster a trial is on 1, 2, 4, ... GPUs."""

    rounds: int
    eta: int
    budget: float
    progress: float
    trials: int
    gpus: int
    scaling: tuple[float, ...]


@cache
def planned(wanted: Wanted) -> tuple[Round, ...]:
    """The rounds that begin with the most trials, so that the last ones have made the progress that
    is wanted, within the budget; of these the ones with the most progress, then the cheapest. Empty
    if not even one trial has made that progress within the budget."""
    widths = [1 << power for power in range(len(wanted.scaling))]
    speed = dict(zip(widths, wanted.scaling, strict=True))
    every = list(combinations_with_replacement(widths, wanted.rounds))
    for begun in range(min(wanted.trials, wanted.gpus), 0, -1):
        counts = [math.ceil(begun / wanted.eta**at) for at in range(wanted.rounds)]
        if sum(counts) > wanted.budget + 1e-9:
            continue
        best: tuple[float, float, tuple[int, ...]] | None = None
        for each in every:
            held = [count * width for count, width in zip(counts, each, strict=True)]
            progress = sum(speed[width] for width in each)
            if sum(held) > wanted.budget + 1e-9 or max(held) > wanted.gpus:
                continue
            if progress < wanted.progress - 1e-9:
                continue
            option = (-progress, float(sum(held)), each)
            best = option if best is None else min(best, option)
        if best is not None:
            return tuple(map(Round, counts, best[2]))
    return ()


class RoundsMemory(msgspec.Struct, frozen=True):
    """When the first round began, which one it is, and the trials in it, by row."""

    begun: int
    round: int = 0
    trials: list[int] = []
    granted: int = -1
    """The last round for which the search had, or has asked for, its GPUs."""


@dataclass(frozen=True)
class Rounds:
    """Rounds of equal length up to the deadline. With each one only the best trials go on, on as
    many GPUs as was planned, and the search has no more GPUs than they need."""

    name: str
    trials: int
    rounds: int
    eta: int
    deadline: int
    gpu_hours: float
    progress: float
    most_gpus: int
    mode: Mode
    orders = (Spawn,)

    def decide(self, view: View, memory: RoundsMemory | None) -> tuple[Plan, RoundsMemory]:
        """What runs inside the grant of one search. Raises InvariantError outside of any."""
        search = search_of(view, self.name)
        plan = self._plan(view)
        if memory is None:
            memory = RoundsMemory(view.now)
            if plan:
                trial = trial_of(view, search, Portion(), self.most_gpus)
                view.draft.act(Spawn(search, trial, plan[0].trials))
        at, trials = memory.round, memory.trials
        if not at:
            came = {job for job in view.pending.tolist() if view.at.within[job] == view.within}
            trials = sorted({*trials, *came})
        while at < len(plan) and view.now >= self._end(view, memory.begun, at):
            at += 1
            best = sorted(trials, key=lambda job: (self._badness(view, job), job))
            keeps = set(best[: plan[at].trials] if at < len(plan) else ())
            for job in trials:
                if job not in keeps and view.at.phase[job] < _FINISHED:
                    view.draft.retire(job)
            trials = sorted(keeps)
        asked, memory = memory.granted, RoundsMemory(memory.begun, at, trials, at)
        if at >= len(plan):
            return view.draft.plan(until=CHANGES), memory
        if asked < at and view.at.size[search] != self.wants(view, memory):
            why = why_waiting("Rounds", plan[at].width, round_trials=len(trials))
            return view.draft.plan([why], view.now + 1, CHANGES), memory
        waits = self._run(view, trials, plan[at].width)
        why = why_waiting(
            "Rounds",
            plan[at].width,
            round_trials=len(trials),
            round_ends_at_s=self._end(view, memory.begun, at) / SECOND,
        )
        reasons = [why] if waits else []
        return view.draft.plan(reasons, self._end(view, memory.begun, at), CHANGES), memory

    def over(self, view: View, memory: RoundsMemory) -> bool:
        """Whether the last round is, or no trial is left."""
        if memory.round >= len(self._plan(view)):
            return True
        phase = view.at.phase
        remains = any(phase[job] < _FINISHED for job in memory.trials)
        return bool(memory.trials) and not remains

    def wants(self, view: View, memory: RoundsMemory) -> int | None:
        """The GPUs of the round."""
        plan = self._plan(view)
        if memory.round >= len(plan):
            return None
        return plan[memory.round].trials * plan[memory.round].width

    def _run(self, view: View, trials: Sequence[int], width: int) -> bool:
        """Run these on so many GPUs each; whether some wait."""
        line, at, draft = Line(), view.at, view.draft
        for job in trials:
            if at.phase[job] == _RUNNING and draft.holds(job) is not None:
                curve = view.trials.get(job)
                if curve is not None and broke(curve):
                    draft.retire(job)
                elif at.size[job] != width:
                    resize(view, job, width, PACK)
            elif at.phase[job] < _FINISHED:
                line.add(job)
        return not line.start(view, PACK, set(trials).__contains__, Portion(), width)

    def _badness(self, view: View, job: int) -> float:
        """What the trial reported last."""
        curve = view.trials.get(job)
        if curve is None or not curve.values or view.at.phase[job] > _FINISHED:
            return math.inf
        return badness(curve.values[-1], self.mode)

    def _end(self, view: View, begun: int, number: int) -> int:
        """When a round ends: all are as long as each other, from the first decision on."""
        return begun + (self._length(view, begun) * (number + 1)) // self.rounds

    def _length(self, view: View, begun: int) -> int:
        return int(view.jobs.submitted[view.within]) + self.deadline - begun

    def refuse(self, gpus: int, profile: Profile) -> None:
        """Raise BadInput if a search that asks for so many GPUs can plan nothing."""
        if not self._planned(gpus, profile):
            hours = self.deadline / HOUR
            raise BadInput(
                f"not one trial comes as far as {self.progress or self.rounds:g} rounds on one GPU"
                f" in {self.gpu_hours:g} GPU-hours and {hours:.3g} h",
                where="seer",
                mend="give it more GPU-hours, or ask for less `progress`",
            )

    def _plan(self, view: View) -> tuple[Round, ...]:
        return self._planned(int(view.at.gpus[view.within]), view.oracle.profile(""))

    def _planned(self, gpus: int, profile: Profile) -> tuple[Round, ...]:
        widths = range(self.most_gpus.bit_length())
        scaling = tuple(profile.speedup(1 << power, 1) for power in widths)
        length = self.deadline / self.rounds / HOUR
        budget = self.gpu_hours / length
        return planned(
            Wanted(
                self.rounds,
                self.eta,
                budget,
                self.progress or self.rounds,
                self.trials,
                gpus,
                scaling,
            )
        )


@recipe(
    SEER,
    reconstructed="the schedule is ours: the paper's abstract says that many trials begin and that"
    " parallelism varies among the survivors so that they train enough by the deadline; what was"
    " planned is not planned again",
)
def seer(
    trials: Count = 100,
    deadline: Period = 4 * HOUR,
    gpu_hours: Positive = 32.0,
    rounds: Few = 4,
    eta: Eta = 2,
    progress: Amount = 0.0,
    most_gpus: Count = 8,
    mode: Mode = Mode.MIN,
) -> Policy:
    """As many trials as `gpu_hours` and the `deadline` allow, of which one in `eta` goes on from
    round to round, on more GPUs, so that the last ones train enough.

    `rounds` of equal length end with the deadline. Planned before: the most trials to begin with
    (up to `trials`, and to the GPUs that the search asks for) and 1, 2, 4, ... GPUs for each in
    each round, up to `most_gpus` and never fewer than before, so that the budget holds and the
    last ones come as far as in `progress` rounds on one GPU (0: as in all rounds). The search has
    no more GPUs than the trials of a round. Where nothing can be planned the search is refused.
    """
    return Rounds("seer", trials, rounds, eta, deadline, gpu_hours, progress, most_gpus, mode)
