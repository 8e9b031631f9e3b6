"""The marginal-gain family: jobs grow and shrink, and each next GPU goes where it helps most."""

from __future__ import annotations

from enum import Enum
from functools import partial
from typing import Annotated

from ganger.core.protocols import Policy
from ganger.core.units import MINUTE, NEVER, SECOND
from ganger.mechanisms.placement.place import ConsolidateIf
from ganger.mechanisms.sizing.elastic import (
    Elastic,
    by_afs,
    by_attained_afs,
    by_greedy,
    by_total,
    until_sated,
)
from ganger.mechanisms.sizing.resizing import (
    asked,
    by_knapsack,
    by_least_loss,
    by_levels,
    held,
    hourly,
    into_idle,
    next_level,
    patience_ends,
    patiently,
    up_to_knee,
)
from ganger.mechanisms.sizing.target import TargetPolicy
from ganger.recipes.registry import (
    Count,
    Duration,
    Many,
    Paper,
    Part,
    Period,
    Positive,
    Within,
    recipe,
)
from ganger.recipes.training.elasticity.ones import Evolving
from ganger.recipes.training.elasticity.singularity import Gathering, Spliced, by_promise


class Lengths(Enum):
    """What AFS takes for a job's length."""

    REMAINING = "l"
    """AFS-L: remaining work over throughput."""
    ATTAINED = "p"
    """AFS-P: attained service."""


@recipe(
    Paper(
        "Optimus: An Efficient Dynamic Resource Scheduler for Deep Learning Clusters",
        "Peng et al.",
        "EuroSys",
        2018,
        "JCT",
    ),
    needs="durations, throughputs",
    reconstructed="all-reduce workers stand for parameter servers and workers; speeds are the"
    " oracle's, where the paper fits a function of servers and workers to profiled points",
    wants=("elastic jobs",),
)
def optimus(interval: Period = 600 * SECOND) -> Policy:
    """Every `interval` each job gets its least in order of arrival, then each next worker goes to
    the job whose predicted remaining time falls most per GPU (sections 4.1 and 4.2).

    Placed by ascending size on the fewest nodes. The remaining epochs and the speed function come
    from the oracle: with `--knows losses` the epochs are the paper's own fit (section 3.1). A job
    has one kind of task, the worker, whose dominant resource is the GPU. Between two intervals
    nothing changes, unless the cluster is empty.
    """
    allocator = Elastic(until_sated(by_greedy), small_first=True)
    return TargetPolicy("optimus", allocator, every=interval, on_events=False)


@recipe(
    Paper(
        "Elastic Resource Sharing for Distributed Deep Learning",
        "Hwang et al.",
        "NSDI",
        2021,
        "JCT",
    ),
    needs="durations, throughputs",
    reconstructed="the two-job rule is folded over the jobs as a tournament",
    wants=("elastic jobs",),
)
def afs(lengths: Lengths = Lengths.REMAINING) -> Policy:
    """Apathetic Future Share: GPUs go one by one to the job that the two-job rule prefers, at each
    arrival and completion (section 4.2).

    The rule weighs the relative gain of the longer job after its next GPU against that of the
    shorter job before it. `lengths`: l for remaining work over throughput (AFS-L), p for attained
    service (AFS-P). Reconstructed: the rule, which need not be
    transitive, decides between neighbours in order of length, the longest first, then between the
    winners, and so on.
    """
    rule = by_afs if lengths is Lengths.REMAINING else by_attained_afs
    return TargetPolicy("afs", Elastic(until_sated(rule)))


@recipe(
    Paper(
        "Effective Elastic Scaling of Deep Learning Workloads",
        "Saxena et al.",
        "MASCOTS",
        2020,
        "utilisation",
    ),
    needs="throughputs",
    reconstructed="a job's batch size is fixed, where the paper chooses it with the GPUs; what does"
    " not fit is cut first come, first served",
    wants=("elastic jobs",),
)
def elastic_scaling(interval: Period = NEVER) -> Policy:
    """Sizes of the largest total speedup, exactly, by dynamic programming (section V).

    Jobs are admitted first come, first served while each can have its least. Decided at each
    arrival and completion, and every `interval` where one is given. A job's speedup is a function
    of its GPUs alone.
    """
    return TargetPolicy("elastic-scaling", Elastic(by_total), every=interval)


@recipe(
    Paper(
        "MARBLE: A Multi-GPU Aware Job Scheduler for Deep Learning on HPC Systems",
        "Han et al.",
        "CCGrid",
        2020,
        "utilisation, JCT",
    ),
    needs="throughputs",
    reconstructed="the tolerance that makes a knee",
    wants=("elastic jobs",),
)
def marble(tolerance: Part = 0.15) -> Policy:
    """First come, first served, each job on the GPUs at the knee of its scalability curve.

    The knee is the least size within `tolerance` of the best throughput. Where fewer are free a job
    starts on those, and grows up to its knee later, so that several share a multi-GPU node. A job
    that fits on a node never spans two.
    """
    return TargetPolicy("marble", Elastic(up_to_knee(tolerance)), place=ConsolidateIf())


@recipe(
    Paper(
        "An Efficient and Non-Intrusive GPU Scheduling Framework for Deep Learning Training"
        " Systems",
        "Wang et al.",
        "SC",
        2020,
        "utilisation, JCT",
    ),
    needs="durations, throughputs",
    wants=("elastic jobs",),
)
def non_intrusive() -> Policy:
    """A job that arrives gets its least size from the job that loses least; what becomes free goes
    where remaining time falls most.

    Sizes change at arrivals and completions only, step by step from what runs. The paper's side-car
    makes that cheap: `--rescale side-car`.
    """
    return TargetPolicy("non-intrusive", Elastic(until_sated(by_least_loss, held)))


@recipe(
    Paper(
        "DRAGON: A Dynamic Scheduling and Scaling Controller for Managing Distributed Deep Learning"
        " Jobs in Kubernetes Cluster",
        "Lin et al.",
        "CLOSER",
        2019,
        "utilisation, JCT",
    ),
    reconstructed="the job furthest above its least size shrinks first, where the authors look at"
    " the distance from the parameter server",
    wants=("elastic jobs",),
)
def dragon(patience: Duration = 30 * SECOND, quiet: Duration = 60 * SECOND) -> Policy:
    """First come, first served with passing; running jobs shrink for the head once it has waited
    for `patience`, and grow when nothing was done for `quiet` and GPUs are idle.

    Jobs start at the size they ask for, are shrunk towards their least only as far as the head
    needs for its own least, and grow up to their most.
    """
    wakes = partial(patience_ends, patience, quiet)
    return TargetPolicy("dragon", Elastic(patiently(patience, quiet), wakes=wakes))


@recipe(
    Paper(
        "Elan: Towards Generic and Efficient Elastic Training for Deep Learning",
        "Xie et al.",
        "ICDCS",
        2020,
        "utilisation, JCT",
    ),
    needs="throughputs",
    reconstructed="which job grows first; batch sizes are fixed",
    wants=("elastic jobs",),
)
def elan() -> Policy:
    """First come, first served with backfilling by size; elastic jobs shrink to let others in and
    grow into idle GPUs.

    The least size of every job comes first, running jobs before waiting ones; then each GPU goes
    where it adds most speedup. The paper's IO-free replication makes that cheap:
    `--rescale io-free`.
    """
    return TargetPolicy("elan", Elastic(until_sated(into_idle)))


@recipe(
    Paper(
        "EDL: Elastic Deep Learning on Multi-Tenant GPU Clusters",
        "Wu et al.",
        "TPDS",
        2022,
        "utilisation, JCT",
    ),
    needs="throughputs",
    reconstructed="the thresholds of the queues are those of Tiresias' public simulator; the data"
    " pipeline, which hands out blocks of the input so that each sample is used once an epoch, is"
    " left out, as are the replacing of stragglers and profiling by rescaling",
    wants=("elastic jobs",),
)
def edl(
    thresholds: tuple[Duration, ...] = (3250 * SECOND, 7200 * SECOND, 18000 * SECOND),
    many: Many = 10,
) -> Policy:
    """Elastic-Tiresias: Tiresias' queues say which jobs run; when more than `many` jobs wait, those
    below the top queue shrink to their least; what is left goes where it adds most speedup.

    The paper's stop-free scaling makes that cheap: `--rescale stop-free`.
    """
    rule = until_sated(by_levels(thresholds, many), asked)
    return TargetPolicy("edl", Elastic(rule, wakes=partial(next_level, thresholds)))


@recipe(
    Paper(
        "Online Evolutionary Batch Size Orchestration for Scheduling Deep Learning Workloads in GPU"
        " Clusters",
        "Bian et al.",
        "SC",
        2021,
        "utilisation, JCT",
    ),
    needs="durations, throughputs",
    reconstructed="schedules say how many GPUs a job gets, not which; the oracle's remaining work"
    " stands for the predicted progress; an epoch is a time; no batch sizes are chosen: a job's"
    " limit in GPUs grows as the paper's limit of its batch size does",
    wants=("elastic jobs",),
)
def ones(
    population: Count = 16,
    rounds: Count = 10,
    mutation: Part = 0.3,
    epoch: Period = 60 * SECOND,
    patience: Annotated[int, Within(0, 10_000)] = 1,
) -> Policy:
    """A population of schedules that evolves online: jobs near their end keep their GPUs, new jobs
    always get some.

    At every change and every `epoch` the schedules are refreshed, crossed, mutated and filled for
    `rounds` generations, and the one with the least GPU-time still to come for
    running jobs is put in force. A job may grow to what it asks for, and twice as far after each
    epoch. Ours, not the paper's: it ends early after `patience` generations in a row that found no
    better one (0: after all `rounds`).
    """
    return Evolving("ones", population, rounds, mutation, epoch, patience)


@recipe(
    Paper(
        "A Sum-of-Ratios Multi-Dimensional-Knapsack Decomposition for DNN Resource Scheduling",
        "Yu et al.",
        "INFOCOM",
        2021,
        "JCT",
    ),
    needs="durations, throughputs",
    reconstructed="the algorithm is known from its abstract; jobs have workers only, so that its"
    " inner problem, a sum of ratios over workers and parameter servers, is left out; the utility;"
    " jobs that were not picked get their least",
    wants=("elastic jobs",),
)
def smd(slot: Period = 600 * SECOND, epsilon: Positive = 0.05, effort: Count = 1) -> Policy:
    """Every `slot`, each job names the size that serves it best, and a knapsack over GPUs, CPUs and
    host memory picks the jobs whose completion is worth most.

    The size is the least within `epsilon` of the fastest; the utility falls with the time from
    submission to expected completion. Few jobs are picked with `effort` tried out first (Frieze and
    Clarke's scheme), many by one linear programme.
    """
    rule = by_knapsack(hourly, epsilon, effort)
    return TargetPolicy("smd", Elastic(rule), every=slot, on_events=False)


@recipe(
    Paper(
        "Singularity: Planet-Scale, Preemptive and Elastic Scheduling of AI Workloads",
        "Shukla et al.",
        "arXiv",
        2022,
        "utilisation",
    ),
    reconstructed="which job gives way to which: the authors publish the mechanisms and what the"
    " tiers are promised; the tier is the sign of a job's priority; a promise counts from"
    " submission on, not hour by hour; one cluster, not several regions; training only",
    wants=("elastic jobs", "priorities"),
)
def singularity(
    premium: Part = 0.95,
    standard: Part = 0.7,
    interval: Period = 5 * MINUTE,
    level: Period = 6 * MINUTE,
) -> Policy:
    """Singularity: tiers are promised a part of the GPUs that they ask for, and jobs with slack are
    spliced onto fewer, preempted, or moved for those that lack it.

    Jobs of positive priority are premium, of priority 0 standard, of negative basic, which is
    promised nothing. A job keeps all its workers: on 1/k of the GPUs that it asks for, but no fewer
    than its least, k of them take turns on each. Jobs that lack more than a `level` of what they
    were promised get all they ask for. Then those without slack and all that run have their least,
    and these grow, those with the least slack first; others start on what is left. That is decided
    at arrivals, completions and every `interval`. Where nothing else changes, a job that is slower
    for being on several nodes moves to one that has room.

    What that costs is a protocol of the engine: `--rescale device-proxy`. Under others a job on
    fewer GPUs has fewer workers.
    """
    rule = by_promise(premium, standard, level)
    return Gathering(TargetPolicy("singularity", Spliced(rule), every=interval))
