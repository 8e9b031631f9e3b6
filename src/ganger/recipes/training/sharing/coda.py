"""CODA: cores beside GPUs, for training and for jobs without GPUs."""

from __future__ import annotations

from ganger.core.protocols import Policy
from ganger.core.units import MINUTE
from ganger.mechanisms.ordering.admit import Walk
from ganger.mechanisms.ordering.order import FIRST_COME
from ganger.mechanisms.ordering.queue import QueuePolicy
from ganger.recipes.registry import Count, Paper, Part, Period, recipe
from ganger.recipes.training.sharing.arrays import Arrays
from ganger.recipes.training.sharing.coda_policy import CodaPolicy, Throttle


@recipe(
    Paper(
        "CODA: Improving Resource Utilization by Slimming and Co-locating DNN and CPU Jobs",
        "Zhao et al.",
        "ICDCS",
        2020,
        "utilization, JCT",
    ),
    needs="throughputs",
    reconstructed="from the abstract: one number of cores to start from, not one for each class of"
    " models; a job's speed stands for the utilisation of its GPUs; what models move of host memory"
    " is as the oracle says, in place of counters; half of the nodes are for small gangs, and three"
    " quarters of the cores of a node for jobs with GPUs; the last to borrow is the first to go",
    wants=("CPUs",),
)
def coda(
    start: Count = 2,
    every: Period = MINUTE,
    threshold: Part = 0.02,
    loss: Part = 0.05,
    reserved: Part = 0.75,
    large: Count = 4,
    part: Part = 0.5,
    throttle: Throttle = Throttle.BANDWIDTH,
    walk: Walk = Walk.SKIP,
) -> Policy:
    """CODA: each job gets as many cores per GPU as make it faster, jobs without GPUs take what is
    left, and are held back where their traffic with host memory slows training.

    First come, first served. A job with GPUs begins with `start` cores per GPU, and `every` so
    often has one more, while that adds `threshold` to its speed; if the first one does not, they
    are taken away while that costs less. Jobs of the same model (of the same user, where it is not
    named) then begin with what was found. Of the nodes with GPUs the last `part` are for gangs of
    `large` GPUs and more. Of their cores the part `reserved` is for jobs with GPUs: others may
    borrow them and are preempted when they are wanted, and cores beyond that go back when a job
    without GPUs needs them. Where what is moved would slow a job with GPUs by `loss`, jobs without
    them are held to less `bandwidth`, or to fewer `cores`. Jobs that state their own cores keep
    those. Nodes that do not state their CPUs are as under first come, first served, and those that
    do not state the bandwidth of their memory have enough.
    """
    place = Arrays(reserved=reserved, large=large, part=part)
    queue = QueuePolicy("coda", FIRST_COME, walk, place=place)
    return CodaPolicy(queue, place, start, every, threshold, loss, throttle)
