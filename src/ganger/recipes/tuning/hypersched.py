"""HyperSched: the best model by a deadline, on trials that grow."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from statistics import median
from typing import Final

import numpy as np

from ganger.core.protocols import Policy
from ganger.core.state.facts import Curve
from ganger.core.units import NEVER
from ganger.mechanisms.tuning.racing import Leaves, Race, Racing, Rungs, Verdict
from ganger.mechanisms.tuning.trials import NEXT_REPORT, Mode, Portion, broke
from ganger.recipes.registry import Count, Duration, Paper, Positive, recipe
from ganger.recipes.tuning.baselines import Eta

HYPERSCHED = Paper(
    "HyperSched: Dynamic Resource Reallocation for Model Development on a Deadline",
    "Liaw et al.",
    "SoCC",
    2019,
    "best metric, deadlines",
)
GAIN: Final = 1.1
"""A trial must train for so many times what it would have without a change of size."""
SETTLED: Final = 5
"""A trial reports so often at a size before it gets another one."""


class Dealing(Enum):
    """Which trials get the GPUs that none asks for."""

    UNIFORM = "uniform"
    TOP = "top"
    SOFTMAX = "softmax"
    RANDOM = "random"
    NOBODY = "nobody"


@dataclass(frozen=True)
class AboveCutoffs:
    """At every report, a trial is compared at each rung that it has passed with all that have: it
    is set aside if it is worse than the best one in `eta`. `again`: also at rungs that it passed
    before; else only at one that it has just come to. Of those set aside, the best that is above
    all its cutoffs again may go on. The last trial of a race in which none begins any more is not
    set aside."""

    rungs: Rungs
    again: bool = True
    begins: float = NEXT_REPORT

    def judge(self, race: Race, job: int, goal: float, curve: Curve) -> Verdict:
        """Whether the trial is above its cutoffs by now."""
        race.timing = race.timing.reported(race.view, job)
        if broke(curve) or curve.last >= self.rungs.longest:
            return Leaves.OVER
        passed = len(_passed(race, job))
        rung = passed
        while self.rungs.epoch(rung) <= curve.last:
            race.came(job, rung, race.badness(curve, self.rungs.epoch(rung)))
            rung += 1
        ranks = range(0 if self.again else passed, rung)
        last = race.closed and len(race.goals) == 1
        if not last and any(self._below(race, job, each) for each in ranks):
            return Leaves.ASIDE
        return curve.last + NEXT_REPORT

    def resumes(self, race: Race) -> tuple[int, float] | None:
        """The best that was set aside and would not be now."""
        aside = [
            job
            for job in sorted(race.rungs[0] if race.rungs else ())
            if job not in race.goals
            and not race.is_over(job)
            and job in race.view.trials
            and not any(self._below(race, job, rung) for rung in _passed(race, job))
        ]
        if not aside:
            return None
        best = best_first(race, aside)[0]
        return best, race.view.trials[best].last + NEXT_REPORT

    def _below(self, race: Race, job: int, rung: int) -> bool:
        """Whether the trial is worse at that rung than one in `eta` of those that came there."""
        cutoff = np.percentile(race.ranked(rung), 100 / self.rungs.eta)
        return race.rungs[rung][job] > float(cutoff)


def _passed(race: Race, job: int) -> list[int]:
    """The rungs that the trial has passed."""
    return [rung for rung, came in enumerate(race.rungs) if job in came]


def best_first(race: Race, jobs: Sequence[int]) -> list[int]:
    """By the last rung that each has passed, and how good it was there."""

    def key(job: int) -> tuple[int, float, int]:
        passed = _passed(race, job)
        return -len(passed), race.rungs[passed[-1]][job] if passed else math.inf, job

    return sorted(jobs, key=key)


def last_start(longest: float, startup: float, step: float, eta: int, epochs: float) -> float:
    """How long before the deadline the last trial begins: what a new one needs to come to the rung
    after that of the one that has trained the `longest`, or to train to its end if that is less.
    All in one unit of time; `step`: of an epoch on the GPUs asked for."""
    return min(eta * (longest - startup), epochs * step)


def grows(remaining: float, startup: float, faster: float) -> bool:
    """Whether a trial trains for enough more by the deadline, in the time that is
    `remaining`, if it starts anew on GPUs on which it is so many times `faster`."""
    if math.isinf(remaining):
        return faster > GAIN
    return remaining > 0 and faster * (remaining - startup) > GAIN * remaining


@dataclass(frozen=True)
class ByDeadline:
    """Near the `deadline` no trial begins, and none that was set aside goes on. The GPUs of those
    that have left go to the others, by `dealing`."""

    rungs: Rungs
    gpus: int
    most_gpus: int
    deadline: int
    dealing: Dealing
    ends: bool
    """Whether trials cease to begin at all."""

    def closes(self, race: Race) -> bool:
        """Whether a trial that began now would come to nothing."""
        if not self.ends or self.deadline >= NEVER:
            return False
        view, curves = race.view, race.view.trials
        came = race.rungs[0] if race.rungs else ()
        steps = [view.work(job) / curves[job].last for job in came if job in curves]
        if not steps:
            return False
        startup, step = race.timing.startup, median(steps)
        longest = max(view.ran(job) for job in came) + startup
        return self._remaining(race) < last_start(
            longest, startup, step, self.rungs.eta, self.rungs.longest
        )

    def _remaining(self, race: Race) -> float:
        """Time to the deadline, microseconds."""
        if self.deadline >= NEVER:
            return math.inf
        return float(race.view.jobs.submitted[race.view.within] + self.deadline - race.view.now)

    def widths(self, race: Race, free: int) -> list[tuple[int, int]]:
        """The trials that are worth it grow."""
        running = best_first(race, race.runs())
        if not running or self.dealing is Dealing.NOBODY:
            return []
        view, remaining, startup = race.view, self._remaining(race), race.timing.startup
        size, model, models = view.at.size, view.at.model, view.jobs.models
        wanted = self._shares(race, running, free + sum(size[job] for job in running))
        grown = []
        for job in running:
            gpus = min(wanted[job], size[job] + free)
            if gpus <= size[job] or race.timing.reports.get(job, 0) < SETTLED:
                continue
            profile = view.oracle.profile(models[model[job]])
            if grows(remaining, startup, profile.speedup(gpus, size[job])):
                free -= gpus - size[job]
                grown.append((job, gpus))
        return grown

    def _shares(self, race: Race, best: Sequence[int], gpus: int) -> dict[int, int]:
        """How many of `gpus` each trial should have, the best first: what it asks for, and a part
        of the rest."""
        each = max(self.most_gpus, self.gpus) - self.gpus
        rest = gpus - self.gpus * len(best)
        if self.dealing is Dealing.TOP:
            parts = [rest] * len(best)
        elif self.dealing is Dealing.RANDOM:
            drawn = race.view.rng("deal").integers(len(best), size=max(rest, 0))
            parts = np.bincount(drawn, minlength=len(best)).tolist()
        else:
            weights = np.ones(len(best))
            if self.dealing is Dealing.SOFTMAX:
                curves = race.view.trials
                bads = np.array(
                    [
                        race.badness(curves[job], math.inf) if job in curves else math.inf
                        for job in best
                    ]
                )
                if bads.min() < math.inf:  # who has not reported has nothing beside who has
                    weights = np.exp(bads.min() - bads)
            parts = np.floor(rest * weights / weights.sum() + 1e-9).astype(int).tolist()
        shares = {}
        for job, part in zip(best, parts, strict=True):
            more = max(min(part, each, rest), 0)
            shares[job], rest = self.gpus + more, rest - more
        for job in best:
            more = max(min(rest, self.gpus + each - shares[job]), 0)
            if self.dealing is Dealing.UNIFORM:
                more = min(more, 1)
            shares[job], rest = shares[job] + more, rest - more
        return shares


@recipe(
    HYPERSCHED,
    reconstructed="starting up is the time from a decision until a trial computes; how much faster"
    " trials are on more GPUs is what the experiment states; no trial shrinks, which by the"
    " published rule none does",
)
def hypersched(
    trials: Count = 100,
    deadline: Duration | None = None,
    eta: Eta = 4,
    first: Positive = 1.0,
    epochs: Positive = 100.0,
    most_gpus: Count = 8,
    dealing: Dealing = Dealing.UNIFORM,
    again: bool = True,
    ends: bool = True,
    mode: Mode = Mode.MIN,
    gpus: Count = 1,
) -> Policy:
    """Successive halving without waiting that prepares for a deadline: near it no trial begins, and
    the GPUs of those that have left go to the ones that are left, up to `most_gpus` each.

    A trial is set aside once it is worse than the best one in `eta` at a rung that it has passed,
    at every report anew, and goes on if it is among them again. A trial grows only if it trains for
    1.1 times as much by the deadline with the time that a new start takes, and after five reports
    at one size. `dealing`: which trials get free GPUs: all evenly, the best one, all by the
    exponential of how good they are, or chance. Ablations: `dealing=nobody` (no trial grows),
    `ends=false` (trials begin until the end), `again=false` (judged only where a trial comes to a
    rung).
    """
    rungs = Rungs(first, eta, epochs)
    end = NEVER if deadline is None else deadline
    dealer = ByDeadline(rungs, gpus, max(most_gpus, gpus), end, dealing, ends)
    return Racing(
        "hypersched", AboveCutoffs(rungs, again), trials, mode, Portion(gpus), dealer=dealer
    )
