"""Fair shares: of machines, of the dominant resource, of finishing times, through a hierarchy."""

from __future__ import annotations

from enum import Enum

from ganger.core.errors import BadInput
from ganger.core.protocols import Policy
from ganger.core.units import HOUR, MINUTE, SECOND
from ganger.mechanisms.fairness.fair import FairPolicy, Inside, Owner, Tree, demands, gpu_demands
from ganger.mechanisms.fairness.lease import LeasePolicy
from ganger.mechanisms.ordering.admit import Walk
from ganger.mechanisms.rounds.objectives import WATER_FILLED
from ganger.mechanisms.rounds.program import (
    EqualShares,
    FinishTimeFairness,
    Hierarchical,
    Programme,
)
from ganger.mechanisms.rounds.rounds import RoundPolicy
from ganger.recipes.registry import Count, Duration, Paper, Part, Period, recipe
from ganger.recipes.training.fairness.astraea import LongTermFairness
from ganger.recipes.training.fairness.gandiva_fair import Stride
from ganger.recipes.training.fairness.themis import Auction

GAVEL = Paper(
    "Heterogeneity-Aware Cluster Scheduling Policies for Deep Learning Workloads",
    "Narayanan et al.",
    "OSDI",
    2020,
    "JCT, fairness, makespan, cost",
)
THEMIS = Paper(
    "Themis: Fair and Efficient GPU Cluster Scheduling", "Mahajan et al.", "NSDI", 2020, "fairness"
)


class Resources(Enum):
    """What counts in an owner's share."""

    ALL = "all"
    GPUS = "gpus"


@recipe(
    Paper("Dominant Resource Fairness", "Ghodsi et al.", "NSDI", 2011, "fairness"),
    wants=("tenants",),
)
def drf(
    owner: Owner = Owner.USER, resources: Resources = Resources.ALL, walk: Walk = Walk.SKIP
) -> Policy:
    """Dominant resource fairness: the owner with the smallest dominant share starts its next job.

    A share is the largest of an owner's fractions of the cluster's GPUs, CPUs and host memory
    (section 4), over the tenant's weight. `walk=strict` ends the round at the first job that does
    not fit, as algorithm 1 does; by default other owners go on.
    """
    demand = demands if resources is Resources.ALL else gpu_demands
    return FairPolicy("drf", owner, demand, walk=walk)


@recipe(GAVEL, name="max-min", needs="throughputs")
def max_min(heterogeneous: bool = True, every: Period = 360 * SECOND, fill: bool = True) -> Policy:
    """Weighted max-min fairness: raise the smallest share as far as it goes, then the next.

    Homogeneous: water-filling of GPUs by weight, at most the gang each. Heterogeneous: of
    throughput over that of equal time on all GPUs, lexicographically (Gavel, section 4.1).
    Gangs get their shares as fractions of time in rounds of `every`.
    """
    allocator = Programme(WATER_FILLED) if heterogeneous else EqualShares()
    return RoundPolicy("max-min", allocator, every, fill=fill)


@recipe(
    THEMIS,
    needs="durations",
    reconstructed="Gavel's form of the objective; Themis' own auction is another recipe",
)
def ftf(agnostic: bool = False, every: Period = 360 * SECOND, fill: bool = True) -> Policy:
    """Finish-time fairness: minimise the largest rho = T_shared / T_independent.

    T_independent is the time with a 1/n of the cluster, integrated over the changing n (Gavel,
    section 4.2). `agnostic`: all GPU types are held to be alike.
    """
    return RoundPolicy("ftf", FinishTimeFairness(agnostic), every, fill=fill)


@recipe(GAVEL, needs="throughputs", wants=("tenants",))
def hierarchical(
    inside: Inside = Inside.FAIRNESS,
    agnostic: bool = False,
    every: Period = 360 * SECOND,
    fill: bool = True,
) -> Policy:
    """Weights flow from the organisation to its tenants to their jobs (Gavel, section 4.3).

    Inside a tenant, `fairness` divides by job weight and `fifo` gives all to the oldest job that
    can use more. Water-filling: raise all, freeze the bottlenecks, hand their weight on. They
    are read off the dual prices, where the paper solves an integer programme.
    """
    return RoundPolicy("hierarchical", Hierarchical(Tree(inside), agnostic), every, fill=fill)


@recipe(
    THEMIS,
    needs="durations",
    reconstructed="an application is one job and makes one bid, for the gang it asks for, anywhere,"
    " where the paper's bids for every useful subset of the GPUs on offer; the hidden payment is"
    " taken from jobs that may shrink; lease and fairness knob",
)
def themis(lease: Period = 20 * MINUTE, fairness: Part = 0.8) -> Policy:
    """GPUs are leased; at the end of a lease they are auctioned among the jobs with the worst
    finish-time fairness.

    The part 1 - `fairness` of the contestants with the largest rho bids; the winners are those with
    the largest product of 1 / rho. A job that may shrink keeps only what its presence costs the
    others (hidden payment). Left-overs go to the rest at random.
    """
    if not 0.0 <= fairness < 1.0:
        raise BadInput(f"fairness {fairness}", where="themis", mend="give 0 to below 1")
    return LeasePolicy("themis", Auction(fairness, lease), lease)


@recipe(
    Paper(
        "Balancing Efficiency and Fairness in Heterogeneous GPU Clusters for Deep Learning",
        "Chaudhary et al.",
        "EuroSys",
        2020,
        "fairness",
    ),
    needs="throughputs",
    reconstructed="one stride queue per GPU type where the paper splits it by server and balances"
    " load by migration; the two fastest types are traded; where tickets come from",
    wants=("tenants",),
)
def gandiva_fair(
    quantum: Period = MINUTE, trading: bool = True, owner: Owner = Owner.USER
) -> Policy:
    """Users get GPU time in proportion to their tickets, gang by gang, quantum by quantum.

    A user's tickets are the weight of its tenant (in the cluster file) times the weight of its jobs
    (in the trace), on average over its live jobs; `owner=tenant` shares among tenants instead.

    Stride scheduling: the user with the least pass goes first, and a pass grows with the GPU time
    received over tickets. A gang that does not fit keeps its place. With `trading` users whose jobs
    gain little from fast GPUs sell them for more slow ones to those that gain most, at the
    second-highest speedup.
    """
    return LeasePolicy("gandiva-fair", Stride(trading, owner), quantum)


@recipe(
    Paper(
        "Astraea: A Fair Deep Learning Scheduler for Multi-Tenant GPU Clusters",
        "Ye et al.",
        "TPDS",
        2021,
        "fairness",
    ),
    reconstructed="ties inside a tenant go by submission, not by conditional finishing probability;"
    " no over-commitment beyond idle GPUs; leases end on ticks of a tenth of their length",
    wants=("tenants",),
)
def astraea(
    lease: Period = 30 * MINUTE, window: Count = 24, starving: Duration = 4 * HOUR
) -> Policy:
    """Long-term GPU-time fairness: at the end of each lease, the tenant that used least of what it
    deserved goes first, and inside it the job that did.

    A tenant deserves its quota as far as it demands it, counted over `window` leases. All tenants
    are served up to their quotas before anybody goes beyond. Jobs that have waited longer than
    `starving` precede all.
    """
    contest = LongTermFairness(lease, window, starving)
    return LeasePolicy("astraea", contest, lease)
