"""The marginal-gain family: jobs grow and shrink, and each next GPU goes where it helps most."""

from __future__ import annotations

from enum import Enum

from ganger.core.protocols import Policy
from ganger.core.units import NEVER, SECOND
from ganger.mechanisms.elastic import Elastic, by_afs, by_attained_afs, by_greedy, by_total
from ganger.mechanisms.realise import TargetPolicy
from ganger.recipes.registry import Duration, Paper, recipe


class Lengths(Enum):
    """What AFS takes for a job's length."""

    REMAINING = "l"
    """AFS-L: remaining work over throughput."""
    ATTAINED = "p"
    """AFS-P: attained service."""


@recipe(
    Paper(
        "Optimus: An Efficient Dynamic Resource Scheduler for Deep Learning Clusters",
        "Peng et al.", "EuroSys", 2018, "JCT",
    ),
    needs="durations, throughputs",
    reconstructed="all-reduce workers stand for parameter servers and workers",
)  # fmt: skip
def optimus(interval: Duration = 600 * SECOND) -> Policy:
    """Every `interval` each job gets its least in order of arrival, then each next worker goes to
    the job whose predicted remaining time falls most per GPU (sections 4.1 and 4.2).

    Placed by ascending size on the fewest nodes. The remaining epochs and the speed function come
    from the oracle; the paper's own fits of both are in `estimate.fits`. Reconstructed: a job has
    one kind of task, the worker, whose dominant resource is the GPU. Between two intervals nothing
    changes, unless the cluster is empty.
    """
    allocator = Elastic(by_greedy, small_first=True)
    return TargetPolicy("optimus", allocator, every=interval, on_events=False)


@recipe(
    Paper(
        "Elastic Resource Sharing for Distributed Deep Learning",
        "Hwang et al.", "NSDI", 2021, "JCT",
    ),
    needs="durations, throughputs",
    reconstructed="the order in which the two-job rule is folded over the jobs",
)  # fmt: skip
def afs(lengths: Lengths = Lengths.REMAINING) -> Policy:
    """Apathetic Future Share: GPUs go one by one to the job that the two-job rule prefers, at each
    arrival and completion (section 4.2).

    The rule weighs the relative gain of the longer job after its next GPU against that of the
    shorter job before it. `lengths`: l for remaining work over throughput (AFS-L), p for attained
    service (AFS-P). Reconstructed: the rule is folded over the jobs in order of submission.
    """
    rule = by_afs if lengths is Lengths.REMAINING else by_attained_afs
    return TargetPolicy("afs", Elastic(rule))


@recipe(
    Paper(
        "Effective Elastic Scaling of Deep Learning Workloads",
        "Saxena et al.", "MASCOTS", 2020, "utilisation",
    ),
    needs="throughputs",
    reconstructed="batch sizes are fixed; what does not fit is cut first come, first served",
)  # fmt: skip
def elastic_scaling(interval: Duration = NEVER) -> Policy:
    """Sizes of the largest total speedup, exactly, by dynamic programming (section V).

    Jobs are admitted first come, first served while each can have its least. Decided at each
    arrival and completion, and every `interval` where one is given. Reconstructed: the batch size
    is fixed, so that a job's speedup is a function of its GPUs alone.
    """
    return TargetPolicy("elastic-scaling", Elastic(by_total), every=interval)
