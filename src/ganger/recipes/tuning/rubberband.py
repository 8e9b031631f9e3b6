"""RubberBand: successive halving on as many rented GPUs as each rung is worth."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import product
from typing import Annotated, NamedTuple, TypeAlias

from ganger.core.protocols import Policy
from ganger.core.units import NEVER, SECOND
from ganger.core.view import View
from ganger.mechanisms.tuning.halving import SuccessiveHalving
from ganger.mechanisms.tuning.trials import Mode, Portion
from ganger.recipes.parameters import Within
from ganger.recipes.registry import Count, Duration, Paper, Positive, recipe
from ganger.recipes.tuning.baselines import Eta

RUBBERBAND = Paper(
    "RubberBand: Cloud-based Hyperparameter Tuning",
    "Misra et al.",
    "EuroSys",
    2021,
    "cost, deadlines",
)


Spread: TypeAlias = Annotated[float, Within(0, 10)]
"""Of a normal distribution."""


class Stage(NamedTuple):
    """A rung: how many trials, and how long each trains on one GPU (any unit of time)."""

    trials: int
    work: float


@dataclass(frozen=True)
class Rungs:
    """What is planned for: the stages, how much faster a trial is on 1, 2, 3, ... GPUs, the most
    GPUs, the most that one trial has, what a start takes, in the unit of the stages, and the spread
    of stragglers: a trial takes 1 + |z| times as long, z normal with that."""

    stages: tuple[Stage, ...]
    scaling: tuple[float, ...]
    gpus: int
    most_gpus: int
    startup: float = 0.0
    stragglers: float = 0.0

    def width(self, trials: int, gpus: int) -> int:
        """The GPUs of each trial if they share `gpus` evenly: a power of two."""
        each = max(min(gpus // trials, self.most_gpus), 1)
        return 1 << (each.bit_length() - 1)

    def takes(self, stage: Stage, gpus: int) -> float:
        """How long the stage takes, one wave of trials after the other if there are too many; each
        lasts as long as the slowest of its trials does on average."""
        faster = self.scaling[min(self.width(stage.trials, gpus), len(self.scaling)) - 1]
        waves = math.ceil(stage.trials / gpus)
        slowest = 1.0
        if self.stragglers:
            slowest += self.stragglers * farthest(min(stage.trials, gpus))
        return waves * (self.startup + stage.work * slowest / faster)

    def choices(self, stage: Stage) -> list[int]:
        """Numbers of GPUs that a stage can use to the full, ascending."""
        waves = {math.ceil(stage.trials / count) for count in range(1, stage.trials + 1)}
        even = {stage.trials << power for power in range(self.most_gpus.bit_length())}
        return sorted(each for each in waves | even if each <= self.gpus)

    def time(self, plan: Sequence[int]) -> float:
        """How long all stages take."""
        return sum(map(self.takes, self.stages, plan))

    def cost(self, plan: Sequence[int]) -> float:
        """GPUs x time."""
        return sum(
            gpus * self.takes(stage, gpus) for stage, gpus in zip(self.stages, plan, strict=True)
        )

    def static(self, limit: float) -> int:
        """The number of GPUs at which the search costs least if it never changes, within the limit
        of time; the fastest where none is within it."""
        every = range(1, self.gpus + 1)
        plans = {gpus: [gpus] * len(self.stages) for gpus in every}
        within = [gpus for gpus in every if self.time(plans[gpus]) <= limit]
        if not within:
            return min(every, key=lambda gpus: (self.time(plans[gpus]), gpus))
        return min(within, key=lambda gpus: (self.cost(plans[gpus]), self.time(plans[gpus])))

    def greedy(self, limit: float) -> list[list[int]]:
        """The plans from the static one on, each with fewer GPUs in the stage in which that saves
        most for the time that it takes, while the limit holds. The last one is the best."""
        first = self.static(limit)
        path = [[self._within(stage, first) for stage in self.stages]]
        while True:
            now = path[-1]
            best, chosen = 0.0, None
            for at, stage in enumerate(self.stages):
                fewer = [each for each in self.choices(stage) if each < now[at]]
                if not fewer:
                    continue
                plan = [*now[:at], fewer[-1], *now[at + 1 :]]
                saved, longer = self.cost(now) - self.cost(plan), self.time(plan) - self.time(now)
                if saved > 0 and self.time(plan) <= limit and saved > best * max(longer, 1e-12):
                    best, chosen = saved / max(longer, 1e-12), plan
            if chosen is None:
                return path
            path.append(chosen)

    def _within(self, stage: Stage, gpus: int) -> int:
        return max((each for each in self.choices(stage) if each <= gpus), default=1)

    def cheapest(self, limit: float) -> list[int] | None:
        """The best plan of all, by trying each; None if none is within the limit."""
        every = product(*map(self.choices, self.stages))
        within = [list(plan) for plan in every if self.time(plan) <= limit]
        return min(within, key=self.cost, default=None)


@cache
def farthest(count: int) -> float:
    """The mean of the largest of so many |z|, z standard normal: the integral of the probability
    that it is beyond x."""
    step = 1 / 256
    beyond = (1.0 - math.erf(at * step / math.sqrt(2)) ** count for at in range(1, 10 * 256))
    return round(step * (0.5 + math.fsum(beyond)), 6)


def stages(trials: int, eta: int, first: float, epochs: float, epoch: float) -> tuple[Stage, ...]:
    """The rungs of successive halving, if an epoch takes `epoch` on one GPU."""
    planned_for, count, before, goal = list[Stage](), trials, 0.0, min(first, epochs)
    while True:
        goal = epochs if count == 1 else min(goal, epochs)
        planned_for.append(Stage(count, (goal - before) * epoch))
        if goal >= epochs:
            return tuple(planned_for)
        count, before, goal = max(count // eta, 1), goal, goal * eta


@cache
def planned(rungs: Rungs, limit: float, *, elastic: bool) -> tuple[int, ...]:
    """The GPUs of each rung."""
    if not elastic:
        return (rungs.static(limit),) * len(rungs.stages)
    return tuple(rungs.greedy(limit)[-1])


@dataclass(frozen=True)
class Plan:
    """Successive halving of these stages, planned with what is believed of scaling."""

    stages: tuple[Stage, ...]
    most_gpus: int
    deadline: int
    startup: int
    elastic: bool
    stragglers: float = 0.0

    def width(self, view: View, rung: int) -> int:
        """An even part of the GPUs of the rung."""
        at = min(rung, len(self.stages) - 1)
        return self._rungs(view).width(self.stages[at].trials, self.grant(view, rung))

    def grant(self, view: View, rung: int) -> int:
        """What was planned."""
        limit = math.inf if self.deadline >= NEVER else float(self.deadline)
        return planned(self._rungs(view), limit, elastic=self.elastic)[
            min(rung, len(self.stages) - 1)
        ]

    def _rungs(self, view: View) -> Rungs:
        gpus = int(view.at.gpus[view.within])
        profile = view.oracle.profile("")
        scaling = tuple(profile.speedup(each, 1) for each in range(1, self.most_gpus + 1))
        startup, slow = float(self.startup), self.stragglers
        return Rungs(self.stages, scaling, gpus, self.most_gpus, startup, slow)


@recipe(
    RUBBERBAND,
    reconstructed="the planner takes each epoch to last as long as `epoch` says, and a wave of"
    " trials as long as the slowest of them does on average, where the paper simulates its plan"
    " many times; trials have 1, 2, 4, ... GPUs; a search that has begun is not planned again; all"
    " of it but its measures and its up to 2 times lower cost is from memory of the paper",
)
def rubberband(
    trials: Count = 27,
    deadline: Duration | None = None,
    epoch: Duration = 60 * SECOND,
    startup: Duration = 0,
    eta: Eta = 3,
    first: Positive = 1.0,
    epochs: Positive = 81.0,
    most_gpus: Count = 8,
    elastic: bool = True,
    mode: Mode = Mode.MIN,
    stragglers: Spread = 0.0,
) -> Policy:
    """Successive halving at the least cost by a deadline: how many GPUs each rung has is planned
    before the search begins, and those that a rung does not need are given back.

    The plan begins with the number of GPUs that is cheapest if it never changes, up to what the
    search asks for. Then, again and again, that rung gets fewer in which this saves the most for
    the time that it costs, while the `deadline` holds. The trials of a rung share its GPUs evenly,
    up to `most_gpus` each. `epoch`: how long one takes on one GPU; `startup`: how long a trial
    takes to begin a rung. `elastic=false`: the number of GPUs that is cheapest if it never
    changes.
    `stragglers`: trials are believed to take 1 + |z| times as long, z normal with this spread.
    """
    end = NEVER if deadline is None else deadline
    rungs = stages(trials, eta, first, epochs, float(epoch))
    plan = Plan(rungs, most_gpus, end, startup, elastic, stragglers)
    return SuccessiveHalving("rubberband", trials, eta, first, mode, Portion(), epochs, staged=plan)
