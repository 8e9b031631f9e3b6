"""The goodput family: jobs choose their batch size, the cluster chooses their GPUs."""

from __future__ import annotations

from ganger.core.protocols import Policy
from ganger.core.units import SECOND
from ganger.mechanisms.autoscale import Autoscaling
from ganger.mechanisms.evolve import Genetic
from ganger.mechanisms.goodput import GoodputPolicy
from ganger.recipes.registry import Duration, Paper, recipe


@recipe(
    Paper(
        "Pollux: Co-adaptive Cluster Scheduling for Goodput-Optimized Deep Learning",
        "Qiao et al.", "OSDI", 2021, "JCT, fairness",
    ),
    needs="throughputs",
    reconstructed="the operators of the genetic search, and the floor under a speedup",
)  # fmt: skip
def pollux(
    interval: Duration = 60 * SECOND,
    p: float = -1.0,
    population: int = 100,
    generations: int = 100,
    rescale: Duration = 30 * SECOND,
    autoscale: bool = False,
    low: float = 0.35,
    high: float = 0.65,
) -> Policy:
    """Every `interval` a genetic search gives each job GPUs on each node, for the largest power
    mean (`p`) of speedups, goodput over that of the fair share (section 4.2).

    A job's speedup counts max(age - rescale x restarts, 0) / (age + rescale) if it is
    re-allocated; a job gets at most twice the GPUs that it ever ran on; at most one job that spans
    nodes touches a node. Batch sizes follow the largest goodput (section 4.1), which the oracle
    tells by nodes and GPUs. With `autoscale` so many nodes are switched on that speedup over one
    GPU, per GPU, stays between `low` and `high`. Reconstructed: the operators of
    the search (the authors use NSGA-II, with one objective where the cluster's size is fixed), and
    a floor of 0.01 under each speedup.
    """
    search = Genetic(population, generations)
    policy = GoodputPolicy("pollux", search, interval, p, rescale)
    return Autoscaling(policy, low, high) if autoscale else policy
