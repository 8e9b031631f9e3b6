"""Recipes that share GPUs in time and in space."""

from __future__ import annotations

from typing import Annotated, Any, TypeAlias

from ganger.core.protocols import Policy
from ganger.core.units import MINUTE
from ganger.core.view import View
from ganger.mechanisms.ordering.order import Formula, attained_service, remaining_service
from ganger.mechanisms.sharing.grouping import WINDOW, GroupPolicy
from ganger.mechanisms.sharing.time_slices import TimeSlices
from ganger.recipes.registry import Paper, Period, Within, recipe
from ganger.recipes.training.sharing.gandiva import ByAffinity, PairsThatPay

GANDIVA = Paper(
    "Gandiva: Introspective Cluster Scheduling for Deep Learning",
    "Xiao et al.",
    "OSDI",
    2018,
    "utilization",
)


MURI = Paper(
    "Multi-resource Interleaving for Deep Learning Training",
    "Zhao et al.",
    "SIGCOMM",
    2022,
    "JCT, makespan",
)
Members: TypeAlias = Annotated[int, Within(1, 4)]
"""Jobs in a group."""
Looked: TypeAlias = Annotated[int, Within(1, WINDOW)]
"""Jobs of one shape that are grouped at a time."""
ASSUMED = (
    "which jobs are grouped at a time, and that they are only while GPUs are too few, is as in the"
    " public simulator; a group must do more than one job at a time; among equals, jobs that share"
    " GPUs already stay together"
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

    A job that waits gets the turn of a job of as many GPUs, or where no such turn ends, of one of
    more. Where only smaller jobs compute it waits until enough of them have ended, which may be
    long.
    """
    pairs = PairsThatPay(quantum) if pack else None
    return TimeSlices("gandiva", quantum, ByAffinity(), pairs)


@recipe(
    MURI,
    needs="durations, throughputs",
    reconstructed=ASSUMED,
    wants=("models that share GPUs",),
)
def muri_s(group: Members = 4, every: Period = 6 * MINUTE, window: Looked = WINDOW) -> Policy:
    """Muri-S: jobs that use different resources at different times share GPUs in groups of up to
    `group`; the shortest remaining service goes first.

    An iteration of a job uses storage and CPU, GPU and network in turn (`stages` of its model's
    profile). In a group these are shifted against each other, so that no two jobs use one resource
    at a time. A group's efficiency is the share of the resources that it keeps busy. Each `every`,
    while jobs ask for more GPUs than there are, the pairs of jobs of equal GPU count with the
    largest total efficiency are found (exact maximum-weight matching), then pairs of pairs. At most
    `window` jobs of one GPU count are matched at a time, those that go first.

    Where pairs were measured, or only utilisation is stated, the speeds in a group follow from
    that. `group=1` is the order alone, without any sharing. A job that asks for CPUs, host memory
    or GPU memory beside its GPUs shares with nobody.
    """
    return GroupPolicy("muri-s", remaining_service, every, group, window)


@recipe(MURI, needs="throughputs", reconstructed=ASSUMED, wants=("models that share GPUs",))
def muri_l(
    group: Members = 4,
    every: Period = 6 * MINUTE,
    window: Looked = WINDOW,
    quantum: Period = 10 * MINUTE,
) -> Policy:
    """Muri-L: as `muri-s`, without knowing how long jobs take: the least attained service first.

    Attained service is GPUs x executed time, compared in whole `quantum`s.
    """
    return GroupPolicy("muri-l", in_quanta(quantum), every, group, window)


def in_quanta(quantum: int) -> Formula:
    """Attained service in whole quanta (microseconds x GPUs)."""

    def quanta(view: View, ids: Any) -> Any:
        return attained_service(view, ids) // quantum

    return quanta
