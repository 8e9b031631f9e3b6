"""Deadlines: jobs with a time by which they should be done."""

from __future__ import annotations

from ganger.core.protocols import Policy
from ganger.mechanisms.admit import Walk
from ganger.mechanisms.elastic import cheapest_on_time
from ganger.mechanisms.order import LEAST_ALLOWANCE
from ganger.mechanisms.place import Sized
from ganger.mechanisms.queue import QueuePolicy
from ganger.recipes.registry import Paper, recipe


@recipe(
    Paper(
        "Deep Learning Research and Development Platform: Characterizing and Scheduling with QoS"
        " Guarantees on GPU Clusters",
        "Chen et al.", "TPDS", 2020, "deadline",
    ),
    needs="durations, throughputs",
    reconstructed="the oracle's throughput curve stands for the light profiling and its two models",
)  # fmt: skip
def genie(walk: Walk = Walk.SKIP) -> Policy:
    """GENIE: the job whose start can be put off least goes first, on the fewest GPUs that meet its
    deadline.

    The waiting allowance is deadline - now - predicted run time. Where no size meets the deadline,
    the fastest that is free is taken. Nothing is preempted; jobs without a deadline come last.
    """
    return QueuePolicy("genie", LEAST_ALLOWANCE, walk, place=Sized(choices=cheapest_on_time))
