"""Markets: jobs are let in where what they are worth is more than what they take from others."""

from __future__ import annotations

from functools import partial
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from ganger.core.errors import BadInput
from ganger.core.protocols import Policy
from ganger.core.units import HOUR, MINUTE, NEVER
from ganger.core.view import View
from ganger.mechanisms.market.admission import MarketPolicy
from ganger.recipes.registry import Amount, Count, Duration, Paper, Period, recipe

Floats = NDArray[np.float64]


def by_time(
    times: tuple[int, ...], values: tuple[float, ...], view: View, job: int, done: Floats
) -> Floats:
    """By the points that a user states: linear between, level before and beyond; times the job's
    weight."""
    worth: Floats = float(view.jobs.weight[job]) * np.interp(done, times, values)
    return worth


def fading(half: int, view: View, job: int, done: Floats) -> Floats:
    """The weight of a job, and less the later it is done: half of it at its deadline, or after
    `half` if it has none, in a sigmoid."""
    deadline = int(view.jobs.deadline[job])
    middle = max(deadline - int(view.jobs.submitted[job]), 1) if deadline < NEVER else half
    worth: Floats = float(view.jobs.weight[job]) / (
        1.0 + np.exp(np.clip(4.0 * (done / middle - 1.0), -50, 50))
    )
    return worth


def until_deadline(view: View, job: int, done: Floats) -> Floats:
    """The weight of a job that is done by its deadline, else nothing."""
    allowed = float(view.jobs.deadline[job] - view.jobs.submitted[job])
    return np.where(done <= allowed, float(view.jobs.weight[job]), 0.0)


@recipe(
    Paper(
        "Online Job Scheduling in Distributed Machine Learning Clusters",
        "Bao et al.",
        "INFOCOM",
        2018,
        "utilization",
    ),
    needs="durations, throughputs",
    reconstructed="GPUs stand for workers and parameter servers; the least and the most utility of"
    " a GPU in a slot are those of the jobs so far; jobs not let in have what is left over",
    wants=("elastic jobs",),
)
def oasis(
    slot: Period = 10 * MINUTE,
    horizon: Count = 144,
    half: Period = 8 * HOUR,
    times: tuple[Duration, ...] = (),
    values: tuple[Amount, ...] = (),
) -> Policy:
    """Each job is offered its best plan of GPUs by slot at prices that rise with use, and is let in
    if its utility at completion is more than that costs.

    The utility fades with the time since submission: half of the job's weight at its deadline, or
    after `half`. Or it is the user's own, linear between `times` with `values`. The reason of jobs
    that wait says by how much the best schedule may be better (`competitive_bound`), if the paper's
    assumptions hold.
    """
    if len(times) != len(values) or any(b <= a for a, b in pairwise(times)):
        mend = "give ascending times, and a value for each"
        raise BadInput(f"{len(times)} times, {len(values)} values", where="oasis", mend=mend)
    utility = partial(by_time, times, values) if times else partial(fading, half)
    return MarketPolicy("oasis", utility, slot, horizon)


@recipe(
    Paper(
        "Online Scheduling of Heterogeneous Distributed Machine Learning Jobs",
        "Zhang et al.",
        "MobiHoc",
        2020,
        "JCT",
    ),
    needs="durations, throughputs",
    reconstructed="as of oasis; a job without a deadline may be done at the end of the horizon",
    wants=("GPU types", "deadlines"),
)
def aonline(slot: Period = 10 * MINUTE, horizon: Count = 144) -> Policy:
    """Each job has the cheapest plan by its deadline, of whichever GPU types, and is let in if its
    weight is more than that costs at prices that rise with use.

    As slower types are mostly cheaper, fast ones go to jobs that would be late.
    """
    return MarketPolicy("aonline", until_deadline, slot, horizon)
