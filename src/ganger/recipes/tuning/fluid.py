"""Fluid: every trial of a search on as much of the GPUs as it is of the work that is left."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from math import floor
from statistics import fmean
from typing import Annotated, TypeAlias

from ganger.core.protocols import Policy
from ganger.core.state.facts import Curve
from ganger.core.units import WHOLE
from ganger.core.view import View
from ganger.mechanisms.common.reconcile import Want, towards
from ganger.mechanisms.placement.place import PACK
from ganger.mechanisms.tuning.asynchronous import Promote, StopBelow
from ganger.mechanisms.tuning.racing import Divided, Judge, Race, Racing, Rungs, ToTheEnd, Verdict
from ganger.mechanisms.tuning.trials import NEXT_REPORT, Mode, Portion, may_start
from ganger.recipes.parameters import Within
from ganger.recipes.registry import Count, Paper, Positive, recipe
from ganger.recipes.tuning.baselines import Eta

FLUID = Paper(
    "Fluid: Resource-aware Hyperparameter Tuning Engine",
    "Yu et al.",
    "MLSys",
    2021,
    "makespan, utilisation",
)
Packed: TypeAlias = Annotated[int, Within(1, 16)]
"""So many trials may share a GPU."""


class Tuner(Enum):
    """Which trials go on."""

    ALL = "all"
    STOP = "stop"
    PROMOTE = "promote"


def widths(heights: Sequence[float], gpus: int, packed: int, most_gpus: int) -> list[float]:
    """How many of so many GPUs each trial of a group has, by how long each takes on one: its part
    of them, rounded down, up to `most_gpus`; where that is none, one of `packed` parts of a GPU."""
    total = sum(heights)
    parts = [floor(height / total * gpus + 1e-9) if total else 0 for height in heights]
    return [float(min(part, most_gpus)) or 1 / packed for part in parts]


@dataclass(frozen=True)
class Profiled:
    """A trial is judged as `judge` says; and where it reports first, it is known how long its
    epochs take."""

    inner: Judge

    @property
    def begins(self) -> float:
        """The first report."""
        return NEXT_REPORT

    def judge(self, race: Race, job: int, goal: float, curve: Curve) -> Verdict:
        """Nothing becomes of a trial where it reports first."""
        if goal > NEXT_REPORT:
            return self.inner.judge(race, job, goal, curve)
        return self.inner.begins

    def resumes(self, race: Race) -> tuple[int, float] | None:
        """As the judge says."""
        return self.inner.resumes(race)


@dataclass(frozen=True)
class ByHeight:
    """Divides the GPUs of a search between its trials by how long each would take on one GPU until
    it is judged next. They are divided anew when the group changes: a trial begins, leaves, goes on
    from where it was judged, or has reported so that it is known how long its epochs take."""

    packed: int
    most_gpus: int
    dynamic: bool

    def slots(self, gpus: int) -> int:
        """How many trials run at once."""
        return gpus * self.packed

    def divide(self, race: Race) -> bool:
        """Draw what each trial of the race has; whether all run."""
        view, before = race.view, race.divided
        jobs, gpus = sorted(race.goals), int(view.at.size[view.within])
        heights = self._heights(race, jobs)
        if before.among != race.goals or before.gpus != gpus:
            each = [heights[job] for job in jobs]
            given = dict(zip(jobs, widths(each, gpus, self.packed, self.most_gpus), strict=True))
            if not self.dynamic:
                given |= {job: width for job, width in before.widths.items() if job in given}
            race.divided = Divided(dict(race.goals), gpus, given)
        jobs.sort(key=lambda job: (-heights[job], job))
        leaving = [job for job in view.active.tolist() if job not in race.goals]
        towards(view, self._wants(view, jobs, race.divided.widths), PACK, leaving)
        return all(view.draft.holds(job) is not None for job in jobs)

    def _heights(self, race: Race, jobs: Sequence[int]) -> dict[int, float]:
        """How long each takes on one GPU until it is judged next, microseconds; of one that has not
        reported the mean of the others."""
        view = race.view
        known = {}
        for job in jobs:
            curve = view.trials.get(job)
            if curve is not None and curve.last > 0:
                each = max(view.work(job), 1.0) / curve.last
                known[job] = each * max(race.goals[job] - curve.last, NEXT_REPORT)
        mean = fmean(known.values()) if known else 1.0
        return {job: known.get(job, mean) for job in jobs}

    def _wants(self, view: View, jobs: Sequence[int], given: dict[int, float]) -> list[Want]:
        """What is wanted for each that may have it, in this order: whole GPUs, then parts."""
        mine = [job for job in jobs if view.draft.holds(job) is not None or may_start(view, job)]
        shapes = {job: view.draft.shape(job) for job in mine}
        parts = [job for job in mine if given[job] < 1 and shapes[job].least <= 1]
        whole = [
            Want(job, min(max(round(given[job]), shapes[job].least), shapes[job].most))
            for job in mine
            if job not in parts
        ]
        share = WHOLE // self.packed
        return whole + [
            Want(job, 1, share=share, beside=tuple(each for each in unit if each != job))
            for unit in self._units(view, parts)
            for job in unit
        ]

    def _units(self, view: View, jobs: Sequence[int]) -> list[list[int]]:
        """Those that share a GPU: such as do already, with others where there is room."""
        units: dict[tuple[int, int], list[int]] = {}
        for job in jobs:
            held = view.draft.holds(job)
            if held and held[0].share:
                units.setdefault((held[0].node, held[0].devices), []).append(job)
        shared = list(units.values())
        new = [job for job in jobs if not any(job in unit for unit in shared)]
        for unit in shared:
            room = self.packed - len(unit)
            unit += new[:room]
            del new[:room]
        return shared + [new[at : at + self.packed] for at in range(0, len(new), self.packed)]


def _judge(tuner: Tuner, rungs: Rungs) -> Judge:
    if tuner is Tuner.ALL:
        return ToTheEnd(rungs.longest)
    return Promote(rungs) if tuner is Tuner.PROMOTE else StopBelow(rungs)


@recipe(
    FLUID,
    reconstructed="how long a trial takes is measured on its epochs so far, and before its first"
    " report taken to be the others' mean; that GPUs are divided anew whenever the group changes is"
    " from memory of the paper",
)
def fluid(
    trials: Count = 27,
    tuner: Tuner = Tuner.ALL,
    eta: Eta = 3,
    first: Positive = 1.0,
    epochs: Positive = 81.0,
    packed: Packed = 2,
    most_gpus: Count = 8,
    dynamic: bool = True,
    mode: Mode = Mode.MIN,
) -> Policy:
    """Every trial has as much of the GPUs as it is of the work of all: several short ones share
    one, a long one trains on many.

    Up to `packed` trials share a GPU, and one trains on up to `most_gpus`. Of n GPUs a trial has
    its part of the time that all would take on one GPU until each is judged next, rounded down;
    where that is none, a part of one GPU. `dynamic`: GPUs are divided anew whenever a trial begins,
    leaves, is judged, or has shown how long its epochs take; else a trial keeps what it had first.
    `tuner`: which trials go on: all to their end, or as `tune.asha` says, by `eta` and `first`.
    """
    judge = Profiled(_judge(tuner, Rungs(first, eta, epochs)))
    divider = ByHeight(packed, most_gpus, dynamic)
    return Racing("fluid", judge, trials, mode, Portion(), divider=divider)
