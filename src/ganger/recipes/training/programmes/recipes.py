"""Whole decisions as one programme: matching jobs to machines, containers to servers."""

from __future__ import annotations

from enum import Enum

from ganger.core.errors import BadInput
from ganger.core.protocols import Policy
from ganger.mechanisms.sizing.target import TargetPolicy
from ganger.recipes.registry import Amount, Count, Paper, Part, recipe
from ganger.recipes.training.programmes.allox import MatchingPolicy, of_poorest_users, oldest
from ganger.recipes.training.programmes.dorm import Containers


class Entrants(Enum):
    """Of what the fraction alpha enters the matching."""

    USERS = "users"
    """Of the users who wait, those with the least GPU time so far."""
    JOBS = "jobs"
    """Of the jobs that wait, the oldest."""


ENTRANTS = {Entrants.USERS: of_poorest_users, Entrants.JOBS: oldest}


@recipe(
    Paper(
        "AlloX: Compute Allocation in Hybrid Clusters",
        "Le et al.",
        "EuroSys",
        2020,
        "JCT, fairness",
    ),
    needs="durations, throughputs",
    reconstructed="GPU types stand for the paper's CPUs and GPUs; gangs, which the paper does not"
    " have, stand in one line for their whole GPU time; the window; what alpha leaves idle is used",
    wants=("GPU types",),
)
def allox(alpha: Part = 1.0, entrants: Entrants = Entrants.USERS, window: Count = 200) -> Policy:
    """Min-cost matching of waiting jobs to (GPU, place in its line) for the least mean completion
    time: the k-th last job of a line costs k times its run time on that type. Nothing is preempted.

    Only the fraction `alpha` of users that have had the least enters (section 4.3), or of jobs,
    the oldest; with 1 jobs may starve. At most `window` jobs are matched at once.
    """
    if not 0 < alpha <= 1 or window < 1:
        raise BadInput(
            f"alpha {alpha}, window {window}",
            where="allox",
            mend="give an alpha above 0 and up to 1, a window of 1 or more",
        )
    return MatchingPolicy("allox", ENTRANTS[entrants], alpha, window)


@recipe(
    Paper(
        "Towards Distributed Machine Learning in Shared Clusters: A Dynamically-Partitioned"
        " Approach",
        "Sun et al.",
        "SMARTCOMP",
        2017,
        "fairness, utilization",
    ),
    reconstructed="the forms of the two bounds, and their values; servers of one GPU type are"
    " pooled in the programme, and a job starts on the type where it can have most; a job that"
    " cannot be admitted within the bounds waits; where containers are alike the programme is"
    " solved by rule, nearly exactly where the bound on fairness binds",
    wants=("elastic jobs",),
)
def dorm(theta1: Amount = 0.2, theta2: Part = 0.2, window: Count = 50) -> Policy:
    """At each arrival and completion a mixed-integer programme sizes every job, in containers, for
    the largest total use of GPUs, CPUs and host memory.

    Subject to: the sum over jobs of |dominant share - DRF share| is at most `theta1`, and at most
    the fraction `theta2` of running jobs is changed, rounded up. A running job keeps its least. At
    most `window` waiting jobs take part.
    """
    if theta1 < 0 or not 0 <= theta2 <= 1 or window < 1:
        raise BadInput(
            f"theta1 {theta1}, theta2 {theta2}, window {window}",
            where="dorm",
            mend="give theta1 0 or more, theta2 0 to 1, a window of 1 or more",
        )
    return TargetPolicy("dorm", Containers(theta1, theta2, window))
