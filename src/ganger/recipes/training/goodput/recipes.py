"""The goodput family: jobs choose their batch size, the cluster chooses their GPUs."""

from __future__ import annotations

from typing import Annotated

from ganger.core.errors import BadInput
from ganger.core.protocols import Policy
from ganger.core.units import SECOND
from ganger.mechanisms.sizing.target import TargetPolicy
from ganger.recipes.registry import (
    Amount,
    Count,
    Duration,
    Paper,
    Part,
    Period,
    Power,
    Within,
    recipe,
)
from ganger.recipes.training.goodput.autoscale import Autoscaling
from ganger.recipes.training.goodput.genetic import Genetic
from ganger.recipes.training.goodput.pollux import GoodputPolicy
from ganger.recipes.training.goodput.sia import Configurations


@recipe(
    Paper(
        "Pollux: Co-adaptive Cluster Scheduling for Goodput-Optimized Deep Learning",
        "Qiao et al.",
        "OSDI",
        2021,
        "JCT, fairness",
    ),
    needs="throughputs",
    reconstructed="the operators of the genetic search and its budget, and the floor under a"
    " speedup",
    wants=("elastic jobs",),
)
def pollux(
    interval: Period = 60 * SECOND,
    p: Power = -1.0,
    population: Count = 50,
    generations: Count = 40,
    patience: Annotated[int, Within(0, 10_000_000)] = 8000,
    rows: Count = 256,
    rescale: Duration = 30 * SECOND,
    autoscale: bool = False,
    low: Part = 0.35,
    high: Part = 0.65,
) -> Policy:
    """Every `interval` a genetic search gives each job GPUs on each node, for the largest power
    mean (`p`) of speedups, goodput over that of the fair share (section 4.2).

    A job's speedup counts max(age - rescale x restarts, 0) / (age + rescale) if it is
    re-allocated; a job gets at most twice the GPUs that it ever ran on; at most one job that spans
    nodes touches a node. Batch sizes follow the largest goodput (section 4.1), which the oracle
    tells by nodes and GPUs. With `autoscale` so many nodes are switched on that speedup over one
    GPU, per GPU, stays between `low` and `high`. Reconstructed: the operators of
    the search (the authors use NSGA-II, with one objective where the cluster's size is fixed), and
    a floor of 0.01 under each speedup. The paper has populations and generations of 100. Here a
    search begins with the last population and an individual that fills what is free, and ends once
    generations that tried `patience` places of jobs (a generation: `population` times the jobs)
    gained less than 0.1 % (0: after all `generations`). It is about at most `rows` jobs, of more
    about the first that wait and a draw of those that run. Where goodput does not change with time,
    searches that change nothing follow each other at 1, 1, 2, 4, 8 ... intervals, until something
    happens.
    """
    if low > high:
        raise BadInput(
            f"low {low:g} is above high {high:g}",
            where="pollux",
            mend="give a low that is at most high",
        )
    search = Genetic(population, generations, patience=patience)
    policy = GoodputPolicy("pollux", search, interval, p, rescale, rests=not autoscale, rows=rows)
    return Autoscaling(policy, low, high) if autoscale else policy


@recipe(
    Paper(
        "Sia: Heterogeneity-aware, Goodput-optimized ML-cluster Scheduling",
        "Jayaram Subramanya et al.",
        "SOSP",
        2023,
        "JCT, fairness",
    ),
    needs="throughputs",
    reconstructed="the oracle tells goodput on every GPU type, where the paper bootstraps it from"
    " one; jobs that move are packed, the others stay where they are",
    wants=("elastic jobs", "GPU types"),
)
def sia(
    interval: Period = 60 * SECOND,
    p: Power = -0.5,
    wait: Amount = 1.1,
    restart: Duration = 30 * SECOND,
) -> Policy:
    """Every `interval` a 0-1 programme gives each job one configuration: so many GPUs of one type.

    Powers of two inside a node, whole nodes beyond, at most twice what the job has, one GPU at
    first. A configuration counts goodput over that of the job's worst, times (age - restarts x
    `restart`) / (age + `restart`) if it is a change, to the power `p`; a job that waits costs
    `wait` (lambda). Jobs that cannot change size have one configuration per GPU type, and those
    that must not be preempted keep theirs (sections 3.3 and 3.4). The paper prints p = 0.5; its
    evaluation and its code take -0.5.
    """
    if not p:
        raise BadInput("p 0", where="sia", mend="give a power below or above 0")
    if wait <= (p < 0):
        raise BadInput(
            f"waiting at {wait:g} is cheaper than running",
            where="sia(wait)",
            mend=f"give more than {int(p < 0)}",
        )
    allocator = Configurations(p, wait, restart)
    return TargetPolicy("sia", allocator, interval, on_events=False)
