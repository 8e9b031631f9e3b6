"""Hermes: GPUs for the trials that converge fastest."""

from __future__ import annotations

from dataclasses import dataclass

from ganger.core.protocols import Policy
from ganger.core.state.facts import Curve
from ganger.mechanisms.tuning.racing import Leaves, Race, Racing, Verdict
from ganger.mechanisms.tuning.trials import Mode, Portion, badness, broke
from ganger.recipes.registry import Count, Paper, Positive, recipe

HERMES = Paper(
    "A GPU Scheduling Framework to Accelerate Hyper-Parameter Optimization in Deep Learning"
    " Clusters",
    "Son et al.",
    "Electronics 10(3)",
    2021,
    "time to target",
)


@dataclass(frozen=True)
class ByConvergence:
    """Every `window` epochs a trial makes room for one that converges faster; those that never ran
    come first, for one window. How fast a trial converges is by how much what it reported fell
    over its last window; in the first one, from the worst that any trial reported first."""

    window: float
    longest: float
    mode: Mode
    trials: int

    @property
    def begins(self) -> float:
        """The end of the first window."""
        return min(self.window, self.longest)

    def judge(self, race: Race, job: int, goal: float, curve: Curve) -> Verdict:
        """Whether the trial goes on."""
        race.scores.pop(job, None)
        if broke(curve) or goal >= self.longest:
            return Leaves.OVER
        if not (race.rungs and job in race.rungs[0]):
            race.came(job, 0, badness(curve.values[0], self.mode))
        race.scores[job] = goal
        best = self._fastest_aside(race)
        mine = self._fall(race, job)
        if race.asked < self.trials or (best is not None and self._fall(race, best) > mine):
            return Leaves.ASIDE
        return min(goal + self.window, self.longest)

    def resumes(self, race: Race) -> tuple[int, float] | None:
        """A new one; else the one that was set aside and converges fastest."""
        best = self._fastest_aside(race)
        if best is None or race.asked < self.trials:
            return None
        return best, min(race.view.trials[best].last + self.window, self.longest)

    def _fastest_aside(self, race: Race) -> int | None:
        """Of equal ones the one that was set aside first."""
        aside = [job for job in race.scores if job not in race.goals and not race.is_over(job)]
        worst = race.ranked(0)[-1] if aside else None
        return max(aside, key=lambda job: self._fall(race, job, worst), default=None)

    def _fall(self, race: Race, job: int, worst: float | None = None) -> float:
        """By how much what the trial reports fell over its last window. `worst`: the worst that was
        ever reported first, if that is known already."""
        goal, curve = race.scores[job], race.view.trials[job]
        if goal <= self.window:
            worst = race.ranked(0)[-1] if worst is None else worst
            return worst - race.badness(curve, goal)
        return race.badness(curve, goal - self.window) - race.badness(curve, goal)


@recipe(
    HERMES,
    reconstructed="how fast a trial converges is our measure; in the paper each node has its own"
    " trials, here any trial may go on on any GPU of the search",
)
def hermes(
    trials: Count = 27,
    window: Positive = 1.0,
    epochs: Positive = 81.0,
    mode: Mode = Mode.MIN,
    gpus: Count = 1,
) -> Policy:
    """GPUs go to the trials that converge fastest, since good configurations show early: each new
    trial runs for a `window` of epochs, and after each window a trial is suspended if one that
    waits has improved by more in its last window.

    No trial is stopped before its end, and nothing needs to be known of trials.
    """
    return Racing(
        "hermes", ByConvergence(window, epochs, mode, trials), trials, mode, Portion(gpus)
    )
