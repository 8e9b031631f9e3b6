"""Fair shares: of machines, of the dominant resource, of finishing times, through a hierarchy."""

from __future__ import annotations

from enum import Enum

from ganger.core.protocols import Policy
from ganger.core.units import SECOND
from ganger.mechanisms.admit import Walk
from ganger.mechanisms.fair import FairPolicy, Inside, Owner, Tree, demands, gpu_demands
from ganger.mechanisms.program import (
    EqualShares,
    FinishTimeFairness,
    Hierarchical,
    Programme,
    water_filled,
)
from ganger.mechanisms.realise import RoundPolicy
from ganger.recipes.registry import Duration, Paper, recipe

GAVEL = Paper(
    "Heterogeneity-Aware Cluster Scheduling Policies for Deep Learning Workloads",
    "Narayanan et al.",
    "OSDI",
    2020,
    "JCT, fairness, makespan, cost",
)
THEMIS = Paper("Themis: Fair and Efficient GPU Cluster Scheduling", "Mahajan et al.", "NSDI", 2020)


class Resources(Enum):
    """What counts in an owner's share."""

    ALL = "all"
    GPUS = "gpus"


@recipe(Paper("Dominant Resource Fairness", "Ghodsi et al.", "NSDI", 2011, "fairness"))
def drf(
    owner: Owner = Owner.USER, resources: Resources = Resources.ALL, walk: Walk = Walk.SKIP
) -> Policy:
    """Dominant resource fairness: whoever has the smallest dominant share starts its next job.

    A share is the largest of an owner's fractions of the cluster's GPUs, CPUs and host memory
    (section 4), over the tenant's weight. `walk=strict` ends the round at the first job that does
    not fit, as algorithm 1 does; by default other owners go on.
    """
    demand = demands if resources is Resources.ALL else gpu_demands
    return FairPolicy("drf", owner, demand, walk=walk)


@recipe(GAVEL, name="max-min", needs="throughputs")
def max_min(
    heterogeneous: bool = True, every: Duration = 360 * SECOND, fill: bool = True
) -> Policy:
    """Weighted max-min fairness: raise the smallest share as far as it goes, then the next.

    Homogeneous: water-filling of GPUs by weight, at most the gang each. Heterogeneous: of
    throughput over that of equal time on all GPUs, lexicographically (Gavel, section 4.1).
    Gangs get their shares as fractions of time in rounds of `every`.
    """
    allocator = Programme(water_filled) if heterogeneous else EqualShares()
    return RoundPolicy("max-min", allocator, every, fill=fill)


@recipe(
    THEMIS,
    needs="durations",
    reconstructed="Gavel's form of the objective; Themis' own auction is another recipe",
)
def ftf(agnostic: bool = False, every: Duration = 360 * SECOND, fill: bool = True) -> Policy:
    """Finish-time fairness: minimise the largest rho = T_shared / T_independent.

    T_independent is the time with a 1/n of the cluster, integrated over the changing n (Gavel,
    section 4.2). `agnostic`: all GPU types are held to be alike.
    """
    return RoundPolicy("ftf", FinishTimeFairness(agnostic), every, fill=fill)


@recipe(GAVEL, needs="throughputs")
def hierarchical(
    inside: Inside = Inside.FAIRNESS,
    agnostic: bool = False,
    every: Duration = 360 * SECOND,
    fill: bool = True,
) -> Policy:
    """Weights flow from the organisation to its tenants to their jobs (Gavel, section 4.3).

    Inside a tenant, `fairness` divides by job weight and `fifo` gives all to the oldest job that
    can use more. Water-filling: raise all, freeze the bottlenecks, hand their weight on. They
    are read off the dual prices, where the paper solves an integer programme.
    """
    return RoundPolicy("hierarchical", Hierarchical(Tree(inside), agnostic), every, fill=fill)
