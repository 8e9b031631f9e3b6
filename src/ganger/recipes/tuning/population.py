"""Population based training."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, floor
from typing import Annotated, TypeAlias

from ganger.core.protocols import Policy
from ganger.core.state.facts import Curve
from ganger.mechanisms.tuning.racing import Leaves, Race, Racing, Verdict
from ganger.mechanisms.tuning.trials import Mode, broke
from ganger.recipes.parameters import Within
from ganger.recipes.registry import Count, Paper, Positive, recipe
from ganger.recipes.tuning.baselines import Share, portion

Fraction: TypeAlias = Annotated[float, Within(0.01, 0.5)]
"""A part of the population."""

PBT = Paper(
    "Population Based Training of Neural Networks",
    "Jaderberg et al.",
    "arXiv:1711.09846",
    2017,
    "best metric",
)


@dataclass(frozen=True)
class Exploit:
    """Every `every` epochs a trial is compared with all that have come there: one of the worst
    `part` ends, and a copy of one of the best `part` takes its place, which a random number
    chooses."""

    every: float
    part: float
    longest: float

    @property
    def begins(self) -> float:
        """The first comparison."""
        return min(self.every, self.longest)

    def judge(self, race: Race, job: int, goal: float, curve: Curve) -> Verdict:
        """Whether the trial goes on, or makes place for a copy of a better one."""
        last = curve.last
        if last >= self.longest or (curve.final and not broke(curve)):
            return Leaves.OVER
        place = max(floor(last / self.every + 1e-9), 1)
        after = min((place + 1) * self.every, self.longest)
        if broke(curve):
            return self._replace(race, job, place)
        if curve.epochs[0] > place * self.every:  # a copy that has just begun
            return after
        rank, count = race.came(job, place - 1, race.badness(curve, place * self.every))
        if count - rank <= floor(self.part * count):
            return self._replace(race, job, place)
        return after

    def resumes(self, race: Race) -> None:
        """None is ever set aside."""

    def _replace(self, race: Race, job: int, place: int) -> Verdict:
        """The trial ends for a copy of a good one, if one has come as far."""
        best = race.best(place - 1, max(ceil(self.part * race.count(place - 1)), 1))
        if best:
            number = int(race.view.rng(f"copy {job}").integers(len(best)))
            race.copies.append((best[number], place * self.every))
        return Leaves.OVER


@recipe(
    PBT,
    name="tune.pbt",
    reconstructed="trials are compared with those that came to the same epoch before them, so that"
    " none waits; simulated, a copy goes on along the curve of its own configuration from the epoch"
    " of the copied trial on, since no table says what a change of parameters on the way does",
)
def pbt(
    trials: Count = 10,
    every: Positive = 4.0,
    part: Fraction = 0.2,
    epochs: Positive = 81.0,
    mode: Mode = Mode.MIN,
    gpus: Count = 1,
    share: Share = 1.0,
) -> Policy:
    """Population based training: `trials` train side by side, and every `every` epochs one that is
    among the worst `part` ends. A copy of one of the best `part` takes its place: it goes on from
    what that one had saved, with parameters near those of that one.

    A trial that breaks down is replaced in the same way. All end after `epochs` epochs.
    """
    return Racing("tune.pbt", Exploit(every, part, epochs), trials, mode, portion(gpus, share))
