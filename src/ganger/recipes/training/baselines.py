"""The queues that every paper compares itself with."""

from __future__ import annotations

from enum import Enum

from ganger.core.protocols import Policy
from ganger.mechanisms.ordering.admit import Walk
from ganger.mechanisms.ordering.order import (
    EARLIEST_DEADLINE,
    FIRST_COME,
    SHORTEST,
    SHORTEST_REMAINING,
    SMALLEST_REMAINING_SERVICE,
    By,
    priority_largest,
    priority_smallest,
)
from ganger.mechanisms.ordering.queue import QueuePolicy
from ganger.recipes.registry import Duration, Paper, recipe

LECTURE = Paper("Cluster Scheduling", "CS229s lecture", objective="JCT")


class Highest(Enum):
    """Which end of the scale goes first."""

    LARGEST = "largest"
    SMALLEST = "smallest"


@recipe(LECTURE)
def fifo(walk: Walk = Walk.STRICT) -> Policy:
    """First come, first served: gangs start whole, nothing is preempted.

    The strict walk stops at the first job that does not fit (head-of-line blocking).
    """
    return QueuePolicy("fifo", FIRST_COME, walk)


@recipe(LECTURE, needs="durations")
def sjf(walk: Walk = Walk.STRICT) -> Policy:
    """Shortest job first, without preemption: when GPUs free up, the shortest starts."""
    return QueuePolicy("sjf", SHORTEST, walk)


@recipe(LECTURE, needs="durations")
def srtf(walk: Walk = Walk.SKIP, min_run: Duration = 0) -> Policy:
    """Shortest remaining time first: a shorter job preempts a longer one.

    Optimal for the mean JCT on one machine, not on several with arrivals, nor for gangs.
    """
    return QueuePolicy("srtf", SHORTEST_REMAINING, walk, preempt=True, min_run=min_run)


@recipe(LECTURE, needs="durations")
def srsf(walk: Walk = Walk.SKIP, min_run: Duration = 0) -> Policy:
    """Shortest remaining service first: remaining time x GPUs, preemptive (Tiresias, section 3)."""
    return QueuePolicy("srsf", SMALLEST_REMAINING_SERVICE, walk, preempt=True, min_run=min_run)


@recipe(LECTURE, wants=("priorities",))
def priority(
    highest: Highest = Highest.LARGEST, preempt: bool = True, walk: Walk = Walk.SKIP
) -> Policy:
    """Static priority, then first come.

    `highest` says which number goes first: the lecture's table labels 1 as highest but prints the
    figures of 4 as highest; both readings are here.
    """
    key = priority_largest if highest is Highest.LARGEST else priority_smallest
    return QueuePolicy("priority", By((key,)), walk, preempt=preempt)


@recipe(
    Paper("Earliest deadline first", "Liu and Layland", "JACM", 1973, "deadline"),
    wants=("deadlines",),
)
def edf(preempt: bool = True, walk: Walk = Walk.SKIP) -> Policy:
    """Earliest deadline first; jobs without a deadline come last, first come first served."""
    return QueuePolicy("edf", EARLIEST_DEADLINE, walk, preempt=preempt)
