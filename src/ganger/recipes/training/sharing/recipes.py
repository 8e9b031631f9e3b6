"""Recipes that share GPUs in time and in space."""

from __future__ import annotations

from ganger.core.protocols import Policy
from ganger.core.units import MINUTE
from ganger.mechanisms.sharing.time_slices import TimeSlices
from ganger.recipes.registry import Paper, Period, recipe
from ganger.recipes.training.sharing.gandiva import ByAffinity, PairsThatPay

GANDIVA = Paper(
    "Gandiva: Introspective Cluster Scheduling for Deep Learning",
    "Xiao et al.",
    "OSDI",
    2018,
    "utilization",
)


@recipe(
    GANDIVA,
    reconstructed="time slices, packing and affinity; no migration to defragment, no growing and"
    " shrinking; suspending and resuming take no time; pairs of one job after another instead of"
    " random ones",
)
def gandiva(quantum: Period = MINUTE, pack: bool = True) -> Policy:
    """More jobs than GPUs take turns of a `quantum`, so that every job runs early.

    A job that says how much GPU memory it keeps is suspended for the turns of others; any other is
    stopped. With `pack` two jobs of as many GPUs compute side by side if together they do more than
    one alone: that is tried, measured after a quantum, and undone where it does not pay. A job goes
    to a node that serves jobs of as many GPUs, else to an empty one.
    """
    pairs = PairsThatPay(quantum) if pack else None
    return TimeSlices("gandiva", quantum, ByAffinity(), pairs)
