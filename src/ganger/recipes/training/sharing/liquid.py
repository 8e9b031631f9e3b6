"""Liquid: places by predicted needs and by what workers say to each other."""

from __future__ import annotations

from typing import Annotated, TypeAlias

from ganger.core.protocols import Policy
from ganger.mechanisms.ordering.admit import Walk
from ganger.mechanisms.ordering.order import FIRST_COME
from ganger.mechanisms.ordering.queue import QueuePolicy
from ganger.recipes.registry import Amount, Count, Paper, Within, recipe
from ganger.recipes.training.sharing.regrouping import Fabric, Nearest, Regrouped
from ganger.recipes.training.sharing.scores import UseByForest

Company: TypeAlias = Annotated[int, Within(1, 4)]
"""Jobs on the same GPUs."""
Effort: TypeAlias = Annotated[int, Within(1, 100)]
"""Placements in a generation, or generations."""


@recipe(
    Paper(
        "Liquid: Intelligent Resource Estimation and Network-Efficient Scheduling for Deep Learning"
        " Jobs on Distributed GPU Clusters",
        "Gu et al.",
        "TPDS",
        2021,
        "JCT, utilization",
    ),
    needs="throughputs",
    reconstructed="what is predicted is use and memory of GPUs, by a forest that is trained on the"
    " synthetic generator `roofline`; CPUs are as requested; bandwidth is gradients over the time"
    " of a step, 1 GB/s where it is not known; no load in the cost of a place; jobs without"
    " parameter servers count all pairs of workers; data are not moved ahead. Only jobs of equal"
    " GPU count share, and all of their GPUs",
    wants=("models that share GPUs",),
)
def liquid(
    limit: Amount = 1.0,
    share: Company = 2,
    racks: Count = 4,
    batch: bool = True,
    population: Effort = 8,
    generations: Effort = 20,
    walk: Walk = Walk.SKIP,
) -> Policy:
    """Liquid: a job goes beside another where the predicted use of the GPUs is at most `limit` and
    the predicted memory fits; else on empty GPUs that are near to each other.

    The cost of a place is the bandwidth between each parameter server and each worker, times 0 on
    one node, 1 in one rack, 4 in one domain (`racks` racks that follow each other), else 40. With
    `batch`, jobs that start at once are placed together: a genetic search over which workers are
    together on a node begins with the places that the jobs found one by one, and takes the
    cheapest.
    """
    fabric = Fabric(racks)
    place = Nearest(score=UseByForest(), bound=limit, together=share, fabric=fabric)
    queue = QueuePolicy("liquid", FIRST_COME, walk, place=place)
    return Regrouped(queue, fabric, population, generations) if batch else queue
