"""Aryl's half for training: what jobs need, then what they can use."""

from __future__ import annotations

from ganger.core.protocols import Policy
from ganger.mechanisms.sizing.elastic import Elastic
from ganger.mechanisms.sizing.target import TargetPolicy
from ganger.recipes.registry import Paper, recipe
from ganger.recipes.training.elasticity.two_phases import BesideLoans, Decreasing, two_phases

ARYL = Paper(
    "Aryl: An Elastic Cluster Scheduler for Deep Learning",
    "Li et al.",
    "arXiv",
    2022,
    "JCT, queueing delay, utilisation",
)


@recipe(
    ARYL,
    needs="durations, throughputs",
    reconstructed="from the abstract and a survey: a job that runs keeps its least, and the sizes"
    " are decided anew at each arrival and completion",
    wants=("elastic jobs",),
)
def aryl() -> Policy:
    """In two phases: what jobs need at least, the shortest first; then what is left, where it takes
    most off completion times, by a multiple-choice knapsack.

    Placed by best fit, the largest job first. Beside services that lend nodes (`--sharing aryl`) a
    job has what it needs at least on the other nodes, and what it has beyond that on loan; one that
    must not be preempted is never on loan.
    """
    return TargetPolicy("aryl", Decreasing(Elastic(two_phases)), place=BesideLoans())
