"""MIG-Serving."""

from __future__ import annotations

from typing import Annotated

from ganger.core.protocols import Policy
from ganger.recipes.registry import Count, Paper, Part, Within, recipe
from ganger.recipes.serving.slices.policy import MigServing
from ganger.recipes.serving.slices.search import Search

Rounds = Annotated[int, Within(0, 10_000)]
"""Children of the genetic algorithm."""
Few = Annotated[int, Within(1, 64)]
MIG_SERVING = Paper(
    "Serving DNN Models with Multi-Instance GPUs: A Case of the Reconfigurable Machine Scheduling"
    " Problem",
    "Tan et al.",
    "arXiv 2109.11067",
    2021,
    "cost, SLO",
)


@recipe(
    MIG_SERVING,
    needs="latencies",
    reconstructed="scores, mutation and the order of a transition are from memory; a search ends"
    " after so many rounds, not by time; 4 and 3 sevenths of a device are allowed together, as"
    " drivers have it now; when slices are divided anew is ours",
)
def mig_serving(
    rounds: Rounds = 100,
    population: Few = 6,
    tries: Few = 4,
    spare: Part = 0.2,
    calm: Count = 3,
) -> Policy:
    """The fewest devices whose slices answer all services within their SLO.

    A slice of a device (MIG) answers as many requests a second as its largest batch within the SLO
    does (`share` in the models file), so which slices suit a service differs. Each service needs
    slices for the most that came in the last `calm` windows, and `spare` of that. Devices are first
    divided one after another, each as it adds most to loads that are still far from answered. Then
    a genetic algorithm improves on that: it keeps `population` deployments, and `rounds` times some
    devices of one are given up, and what lacks is filled up by the best of `tries` of a Monte-Carlo
    tree search (fewer rounds for more than two hundred services). Slices are divided anew when a
    service has too few, or fewer devices would do. New replicas load before old ones go, where
    devices are free; where none is, a service has less than it needs while slices are made anew.
    A model that was measured on no slice keeps as many replicas as it says.
    """
    return MigServing(Search(rounds, population, tries), spare, calm)
