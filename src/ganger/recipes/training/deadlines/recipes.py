"""Deadlines: jobs with a time by which they should be done."""

from __future__ import annotations

from ganger.core.protocols import Policy
from ganger.core.units import MINUTE
from ganger.mechanisms.ordering.admit import Walk
from ganger.mechanisms.ordering.order import LEAST_ALLOWANCE
from ganger.mechanisms.ordering.queue import QueuePolicy
from ganger.mechanisms.placement.place import Sized
from ganger.mechanisms.sizing.elastic import cheapest_on_time
from ganger.recipes.registry import Paper, Period, recipe
from ganger.recipes.training.deadlines.chronus import PromisePolicy


@recipe(
    Paper(
        "Deep Learning Research and Development Platform: Characterizing and Scheduling with QoS"
        " Guarantees on GPU Clusters",
        "Chen et al.",
        "TPDS",
        2020,
        "deadline",
    ),
    needs="durations, throughputs",
    reconstructed="the oracle's throughput curve stands for the light profiling and its two models",
    wants=("deadlines",),
)
def genie(walk: Walk = Walk.SKIP) -> Policy:
    """GENIE: the job whose start can be put off least goes first, on the fewest GPUs that meet its
    deadline.

    The waiting allowance is deadline - now - predicted run time. Where no size meets the deadline,
    the fastest that is free is taken. Nothing is preempted; jobs without a deadline come last.
    """
    return QueuePolicy("genie", LEAST_ALLOWANCE, walk, place=Sized(choices=cheapest_on_time))


@recipe(
    Paper(
        "Chronus: A Novel Deadline-aware Scheduler for Deep Learning Training Jobs",
        "Gao et al.",
        "SoCC",
        2021,
        "deadline, JCT",
    ),
    needs="durations, throughputs",
    reconstructed="the oracle stands for the profiling of arrivals; a refused job runs as best"
    " effort; deadlines are strict; GPUs are packed, without the paper's local search",
    wants=("deadlines",),
)
def chronus(lease: Period = 20 * MINUTE) -> Policy:
    """Time is cut into leases. A job with a deadline is accepted if it and all accepted before it
    can have all their leases in time; jobs without one take what is left, the shortest first.

    The packing fills from the latest lease before each deadline backwards, the least slack first;
    where that fails for a few jobs a mixed-integer programme decides (section 4).
    """
    return PromisePolicy("chronus", lease)
