"""HyperDrive: slots for trials by the probability that they reach a target."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Final, TypeAlias

from ganger.core.protocols import Policy
from ganger.core.state.facts import Curve
from ganger.core.units import NEVER
from ganger.estimate.learning_curves import POINTS_LEAST, extrapolate
from ganger.mechanisms.tuning.racing import Leaves, Race, Racing, Verdict
from ganger.mechanisms.tuning.trials import Mode, Portion, badness, broke
from ganger.recipes.parameters import Within
from ganger.recipes.registry import Count, Duration, Paper, Positive, recipe

HYPERDRIVE = Paper(
    "HyperDrive: Exploring Hyperparameters with POP Scheduling",
    "Rasley et al.",
    "Middleware",
    2017,
    "time to target",
)
POOR: Final = 0.05
"""A trial ends whose probability to reach the target is less."""
UNKNOWN: Final = -1.0
"""The confidence in a trial that has reported too little."""
Value: TypeAlias = Annotated[float, Within(-1e8, 1e8)]
"""What trials report."""


def promising(confidences: Sequence[float], slots: int) -> float:
    """The confidence from which on a trial has a slot of its own. It is the one at which the slots
    that trials would have (one each) and those that they deserve (all `slots` times the confidence)
    are most at once; 2 if there is no trial."""
    best, chosen = 0.0, 2.0
    for count, confidence in enumerate(sorted(confidences, reverse=True), 1):
        value = min(float(count), slots * confidence)
        if value > best:
            best, chosen = value, confidence
    return chosen


@dataclass(frozen=True)
class ByConfidence:
    """A trial is judged every `every` epochs: its curve is extrapolated, and it ends if it will
    hardly reach `target`, or is beyond `kill` already. Promising ones, by `promising`, go on; the
    others take turns: each is set aside if another one waits, and those that never ran come
    first."""

    every: float
    longest: float
    target: float | None
    kill: float | None
    mode: Mode
    trials: int
    gpus: int
    deadline: int

    @property
    def begins(self) -> float:
        """The first judgement."""
        return min(self.every, self.longest)

    def judge(self, race: Race, job: int, goal: float, curve: Curve) -> Verdict:
        """Whether the trial ends, goes on, or makes room for another one."""
        race.scores.pop(job, None)  # from now on it is the last of those that take turns
        if self._reached(curve):
            race.end()
        if race.closed or broke(curve) or goal >= self.longest or self._killed(curve):
            return Leaves.OVER
        confidence = self._confidence(race, job, curve)
        if 0.0 <= confidence < POOR:
            return Leaves.OVER
        race.scores[job] = confidence
        if self._is_promising(race, job) or not self._waits(race):
            return min(goal + self.every, self.longest)
        return Leaves.ASIDE

    def resumes(self, race: Race) -> tuple[int, float] | None:
        """A promising trial; else a new one; else the first that was set aside."""
        aside = [job for job in self._known(race) if job not in race.goals]
        if not aside:
            return None
        best = min(aside, key=lambda job: -race.scores[job])
        if not self._is_promising(race, best):
            if race.asked < self.trials:
                return None
            best = aside[0]
        last = race.view.trials[best].last
        return best, min(last + self.every, self.longest)

    def _confidence(self, race: Race, job: int, curve: Curve) -> float:
        """The probability that the trial reaches the target by its end and the deadline."""
        if self.target is None or len(curve.epochs) < POINTS_LEAST:
            return UNKNOWN
        view, last = race.view, self.longest
        if self.deadline < NEVER:
            each = max(view.work(job) / curve.last, 1.0)
            remaining = int(view.jobs.submitted[view.within]) + self.deadline - view.now
            last = min(last, curve.last + max(remaining, 0) / each)
        future = extrapolate(curve.epochs, curve.values)
        below = future.below(self.target, last)
        return below if self.mode is Mode.MIN else 1.0 - below

    def _reached(self, curve: Curve) -> bool:
        """Whether the trial has reported the target."""
        if self.target is None:
            return False
        best = min(badness(value, self.mode) for value in curve.values)
        return best <= badness(self.target, self.mode)

    def _killed(self, curve: Curve) -> bool:
        """Whether the trial is no better than guessing."""
        if self.kill is None:
            return False
        return badness(curve.values[-1], self.mode) > badness(self.kill, self.mode)

    def _known(self, race: Race) -> dict[int, float]:
        """The confidence in each trial that has been judged and is not over, those that were judged
        longest ago first."""
        return {job: score for job, score in race.scores.items() if not race.is_over(job)}

    def _is_promising(self, race: Race, job: int) -> bool:
        """Whether the trial has a slot of its own."""
        known = [score for score in self._known(race).values() if score > 0.0]
        slots = int(race.view.at.size[race.view.within]) // self.gpus
        return race.scores[job] >= promising(known, slots)

    def _waits(self, race: Race) -> bool:
        """Whether some trial has no slot."""
        return race.asked < self.trials or any(job not in race.goals for job in self._known(race))


@recipe(
    HYPERDRIVE,
    reconstructed="curves are extrapolated by least squares over a grid of shapes instead of MCMC;"
    " how slots are divided is from memory of the paper; a trial makes room only where it is"
    " judged",
)
def hyperdrive(
    trials: Count = 100,
    target: Value | None = None,
    kill: Value | None = None,
    every: Positive = 5.0,
    epochs: Positive = 100.0,
    deadline: Duration | None = None,
    mode: Mode = Mode.MIN,
    gpus: Count = 1,
) -> Policy:
    """Slots for those trials that will probably reach a `target`, and turns for the others; the
    search ends when one has reached it.

    Every `every` epochs the curve of a trial is extrapolated. It ends if it reaches the target
    within `epochs` and before the `deadline` with a probability of less than 0.05, or if what it
    reports is worse than `kill`, such as what guessing gives. Of the others, those are promising
    whose confidence is at least the one at which the slots that trials would have (one each) and
    those that they deserve (all slots times the confidence) are most at once. They keep their
    slots. The others are suspended where they are judged, and take turns; new ones begin first.
    Without a target all take turns.
    """
    end = NEVER if deadline is None else deadline
    judge = ByConfidence(every, epochs, target, kill, mode, trials, gpus, end)
    return Racing("hyperdrive", judge, trials, mode, Portion(gpus))
