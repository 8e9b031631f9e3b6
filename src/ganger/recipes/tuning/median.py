"""The median stopping rule."""

from __future__ import annotations

from dataclasses import dataclass

from ganger.core.protocols import Policy
from ganger.core.state.facts import Curve
from ganger.mechanisms.tuning.halving import ENDLESS
from ganger.mechanisms.tuning.racing import Leaves, Race, Racing, Verdict
from ganger.mechanisms.tuning.trials import Mode, badness, broke
from ganger.recipes.registry import Count, Paper, Positive, recipe
from ganger.recipes.tuning.baselines import Epochs, Share, portion

VIZIER = Paper(
    "Google Vizier: A Service for Black-Box Optimization",
    "Golovin et al.",
    "KDD",
    2017,
    "best metric",
)


@dataclass(frozen=True)
class BelowMedian:
    """A trial is judged after `grace` epochs and then every `every`. It ends if the best that it
    has reported is worse than the median, over all others that have come as far, of the mean of
    what they had reported by then. With fewer than `least` others it goes on."""

    grace: float
    every: float
    least: int
    longest: float

    @property
    def begins(self) -> float:
        """The first judgement."""
        return min(self.grace, self.longest)

    def judge(self, race: Race, job: int, goal: float, curve: Curve) -> Verdict:
        """Whether the trial keeps up with the others."""
        if broke(curve) or goal >= self.longest:
            return Leaves.OVER
        reported = [badness(value, race.mode) for value in curve.values]
        place = round((goal - self.grace) / self.every)
        others = race.ranked(place)
        race.came(job, place, sum(reported) / len(reported))
        if len(others) >= self.least and min(reported) > _median(others):
            return Leaves.OVER
        return min(goal + self.every, self.longest)

    def resumes(self, race: Race) -> None:
        """None is ever set aside."""


def _median(ranked: list[float]) -> float:
    half = len(ranked) // 2
    return ranked[half] if len(ranked) % 2 else (ranked[half - 1] + ranked[half]) / 2


@recipe(
    VIZIER,
    name="tune.median",
    reconstructed="the paper compares with completed trials; here those count that have come as"
    " far, as in Ray Tune, since few are completed where most are stopped",
)
def stopping(
    trials: Count = 27,
    grace: Positive = 1.0,
    every: Positive = 1.0,
    least: Count = 5,
    epochs: Epochs = None,
    mode: Mode = Mode.MIN,
    gpus: Count = 1,
    share: Share = 1.0,
) -> Policy:
    """The median stopping rule: after `grace` epochs, and then every `every`, a trial ends if the
    best that it has reported is worse than the median over the others of their mean up to there.

    With fewer than `least` others that have come as far none is stopped.
    """
    rule = BelowMedian(grace, every, least, epochs or ENDLESS)
    return Racing("tune.median", rule, trials, mode, portion(gpus, share))
