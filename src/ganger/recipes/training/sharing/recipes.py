"""Recipes that share GPUs in time and in space."""

from __future__ import annotations

from typing import Annotated, Any, TypeAlias

from ganger.core.books.share import Sharing
from ganger.core.protocols import Policy
from ganger.core.units import MINUTE, SECOND
from ganger.core.view import View
from ganger.mechanisms.ordering.admit import Walk
from ganger.mechanisms.ordering.order import (
    FIRST_COME,
    SHORTEST,
    By,
    Formula,
    attained_service,
    priority_largest,
    remaining_service,
    service,
)
from ganger.mechanisms.ordering.queue import QueuePolicy
from ganger.mechanisms.sharing.grouping import WINDOW, GroupPolicy
from ganger.mechanisms.sharing.packing import Packed
from ganger.mechanisms.sharing.time_slices import TimeSlices
from ganger.mechanisms.sharing.two_classes import GuaranteedFirst, TwoClasses
from ganger.recipes.registry import Amount, Duration, Many, Paper, Part, Period, Within, recipe
from ganger.recipes.training.sharing.gandiva import ByAffinity, PairsThatPay
from ganger.recipes.training.sharing.kubeshare import ByScore, Tokens, largest_request, submitted
from ganger.recipes.training.sharing.lucid import JUMBO, ByLine, Lucid, Partitioned, SharingScore
from ganger.recipes.training.sharing.scores import LongestSlowdown, SumOfUse

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
KUBESHARE = Paper(
    "KubeShare: A Framework to Manage GPUs as First-Class and Shared Resources in Container Cloud",
    "Yeh et al.",
    "HPDC",
    2020,
    "utilization",
)
ANTMAN = Paper(
    "AntMan: Dynamic Scaling on GPU Clusters for Deep Learning",
    "Xiao et al.",
    "OSDI",
    2020,
    "utilization, JCT",
)
TGS = Paper(
    "Transparent GPU Sharing in Container Clouds for Deep Learning Workloads",
    "Wu et al.",
    "NSDI",
    2023,
    "utilization",
)
Busy: TypeAlias = Annotated[float, Within(0.01, 1)]
"""A part of a GPU's time."""
Beside: TypeAlias = Annotated[int, Within(1, 9)]
"""Opportunistic jobs on a GPU."""
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


COMPANY: TypeAlias = Annotated[int, Within(1, 4)]
"""Jobs on the same GPUs."""
USE = "predicted_use_of_a_GPU"
PACKED = (
    "only jobs of equal GPU count share, and all of their GPUs; GPU memory counts where a job"
    " states it or its model's graph tells it"
)


def _walk(skip: bool) -> Walk:
    return Walk.SKIP if skip else Walk.STRICT


@recipe(
    Paper(
        "Co-scheML: Interference-aware Container Co-scheduling Scheme Using Machine Learning"
        " Application Profiles for GPU Clusters",
        "Kim and Kim",
        "CLUSTER",
        2020,
        "JCT",
    ),
    needs="throughputs",
    reconstructed=f"from the abstract. {PACKED}. The random forest is trained on measured pairs of"
    " models whose use of the GPU is stated, and where these are fewer than 30 on the synthetic"
    " generator `product`; a pair that was measured itself is not predicted",
    wants=("models that share GPUs",),
)
def co_scheml(
    bound: Annotated[float, Within(1, 100)] = 1.5, share: COMPANY = 2, skip: bool = False
) -> Policy:
    """First come, first served: the head of the queue goes beside the jobs with which it is
    predicted to interfere least, if no step takes more than `bound` times as long as alone; else on
    empty GPUs; else it waits.

    A random forest predicts the slow-down of each of a pair from what both models use alone of
    every resource. At most `share` jobs are on a GPU. With `skip` those behind a head that waits
    may start.
    """
    place = Packed(score=LongestSlowdown(), bound=bound, together=share, harm="predicted_slow-down")
    return QueuePolicy("co-scheml", FIRST_COME, _walk(skip), place=place)


@recipe(
    Paper(
        "Towards GPU Utilization Prediction for Cloud Deep Learning",
        "Yeung et al.",
        "HotCloud",
        2020,
        "utilization",
    ),
    needs="throughputs",
    reconstructed=f"the paper is a predictor; the queue around it is ours. {PACKED}. The predictor"
    " is trained on the synthetic generator `roofline`; without a graph, use is as stated",
    wants=("models that share GPUs",),
)
def yeung(limit: Amount = 1.0, share: COMPANY = 4, skip: bool = False) -> Policy:
    """First come, first served: the head of the queue goes where the predicted use of the GPU is
    least, if the sum with its own is at most `limit` (1: all of a GPU); else on empty GPUs; else it
    waits.

    Use is predicted from the computation graph (`graph` of the model's profile) by boosted trees.
    At most `share` jobs are on a GPU. With `skip` those behind a head that waits may start.
    """
    place = Packed(score=SumOfUse(), bound=limit, together=share, harm=USE)
    return QueuePolicy("yeung", FIRST_COME, _walk(skip), place=place)


@recipe(
    Paper(
        "Horus: Interference-Aware and Prediction-Based Scheduling in Deep Learning Systems",
        "Yeung et al.",
        "TPDS",
        2021,
        "utilization, JCT",
    ),
    needs="throughputs",
    reconstructed=f"from the abstract. {PACKED}. The predictor is trained on the synthetic"
    " generator `roofline`; the weight of distance and the order of preference are ours",
    wants=("models that share GPUs",),
    durations_with={"shortest": (True,)},
)
def horus(
    limit: Amount = 1.0,
    exceed: bool = True,
    distance: Amount = 0.1,
    shortest: bool = False,
    share: COMPANY = 2,
    skip: bool = False,
) -> Policy:
    """As `yeung`, and where no GPUs are empty either, `exceed` lets a job go where the predicted
    use exceeds `limit` least.

    Every node beyond the first over which the jobs there are spread counts as `distance` more use.
    `shortest`: the shortest expected job goes first.
    """
    place = Packed(
        score=SumOfUse(),
        bound=limit,
        together=share,
        spread=distance,
        beyond=exceed,
        harm=USE,
    )
    order = SHORTEST if shortest else FIRST_COME
    return QueuePolicy("horus", order, _walk(skip), place=place)


@recipe(
    Paper(
        "Lucid: A Non-intrusive, Scalable and Interpretable Scheduler for Deep Learning Training"
        " Jobs",
        "Hu et al.",
        "ASPLOS",
        2023,
        "JCT",
    ),
    needs="durations, throughputs",
    reconstructed="what the profiler measures is what the oracle knows of the model; whole nodes"
    " are the partition, which stays as large; the forecast of the load is yesterday's"
    f" curve at today's level; no tuner. {PACKED}",
    wants=("models that share GPUs",),
)
def lucid(limit: Period = 200 * SECOND, partition: Part = 0.05, busy: Part = 0.8) -> Policy:
    """New jobs run for at most `limit` on a part of the nodes, where many end; the others go by
    estimated run time x GPUs, and in pairs while the forecast load is high.

    A pair needs equal GPU counts (at most 8), memory that fits, sharing scores (tiny 0, medium 1,
    jumbo 2) of at most 2 together, and the waiting job's estimated service at most twice the
    other's. The load is high while `busy` of all GPUs are forecast to be asked for. Only profiling
    is interrupted, and only jobs are profiled that save their state.

    The first `partition` of all nodes, rounded up, is for profiling, unless that were all of them.
    """
    place = Partitioned(
        score=SharingScore(),
        bound=JUMBO,
        together=2,
        empty_first=True,
        harm="sum_of_sharing_scores",
        partition=partition,
    )
    order = ByLine(formulas=(service,), place=place)
    return Lucid(name="lucid", order=order, walk=Walk.SKIP, place=place, limit=limit, busy=busy)


@recipe(
    ANTMAN,
    needs="throughputs",
    reconstructed="a job for which its tenant's quota or its GPUs do not suffice is opportunistic;"
    " gangs of these stay in one node; use of a GPU and peaks of memory are as profiles state, not"
    " as monitored; the controller finds its rate in a stated time",
    wants=("models that share GPUs",),
)
def antman(
    busy: Busy = 0.8, bound: Many = 16_384, beside: Beside = 1, settle: Duration = 10 * SECOND
) -> Policy:
    """AntMan: guaranteed jobs run as if they were alone, and opportunistic ones beside them get
    what is left of their GPUs.

    A job within its tenant's quota (without a quota any job) that finds GPUs free of guaranteed
    jobs is guaranteed. Any other is opportunistic: it starts on the GPUs of one node that are used
    least, if they are used for less than `busy` of the time, need less than `bound` MiB at their
    peaks (0: no bound) and have fewer than `beside` opportunistic jobs. It becomes guaranteed where
    it is once the quota allows that and no guaranteed job is on its GPUs.

    A guaranteed job keeps its speed. An opportunistic one has half of its part for `settle`, until
    the rate of its launches is found. What does not fit into the GPU of its memory lies on the host
    and is moved over PCIe 3.0 x16 in each iteration; that is done to models whose `memory` states
    how long an iteration takes. Jobs that ask for more than whole GPUs, or whose use of a GPU no
    profile states, share with nobody.
    """
    place = GuaranteedFirst(busy=busy, bound=bound, beside=beside)
    return TwoClasses("antman", place, "step-time", settle / SECOND, promotes=True)


@recipe(
    TGS,
    needs="throughputs",
    reconstructed="which jobs are production jobs, and where opportunistic ones go, is as in"
    " antman; the length of a period; production jobs launch as much all the time, so their"
    " reference is never lowered",
    wants=("models that share GPUs",),
)
def tgs(busy: Busy = 0.8, period: Duration = SECOND) -> Policy:
    """TGS: the rate of an opportunistic job's launches grows until the production job on its GPU
    has lost 3 % of its speed, and never for long beyond.

    Each `period` in which the production job has 97 % or more of its rate alone lets the other's
    rate grow: by half (slow start), later by 0.025 % of the GPU. Less than 97 %: the rate goes back
    by that half and the slow start is over, or it is cut by 8 %; 91 % or less: it is divided by 10
    and starts slowly again. Both have the average of that going up and down, and until it repeats
    itself the average so far. When the production job ends the rate grows by half until the GPU is
    full.

    A job that finds GPUs within its tenant's quota that no production job has is one. Any other is
    opportunistic until it ends, on GPUs that a production job uses for less than `busy` of the
    time, one a GPU. Memory that is too small is taken from opportunistic jobs, as in `antman`.
    """
    place = GuaranteedFirst(busy=busy, bound=0, beside=1)
    return TwoClasses("tgs", place, "arrival-rate", period / SECOND, promotes=False)


@recipe(
    KUBESHARE,
    reconstructed="one limit for all jobs; of those submitted at once the largest request first;"
    " tokens without delay; no distance within groups of pods, no affinity labels",
    wants=("parts of GPUs",),
)
def kubeshare(limit: Busy = 1.0, walk: Walk = Walk.SKIP) -> Policy:
    """KubeShare: a job that requests a part of a GPU always gets that part of its time, and more,
    up to `limit`, while the others there leave it.

    What is left goes to those with the least. That matters to models whose utilisation of `gpu` is
    stated: a job is as fast as its run time says with the part that it requests. Any other is taken
    to use what it requests. Requests and GPU memory of the jobs on a GPU add up to no more than
    there is.

    Jobs of a priority above 0 go first, and to the GPU that is requested least. Others go to the
    one that is requested most, so that GPUs stay free for jobs that need whole ones.
    """
    order = By((priority_largest, submitted, largest_request))
    queue = QueuePolicy("kubeshare", order, walk, place=ByScore(mode=Sharing.TIME))
    return Tokens(queue, limit)
