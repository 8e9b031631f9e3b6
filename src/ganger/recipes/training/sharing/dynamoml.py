"""DynamoML: parts of GPUs and elastic gangs on one cluster."""

from __future__ import annotations

from ganger.core.protocols import Policy
from ganger.core.units import MINUTE, SECOND
from ganger.mechanisms.sharing.parts_first import PartsFirst
from ganger.recipes.registry import Duration, Paper, recipe
from ganger.recipes.training.elasticity.recipes import dragon
from ganger.recipes.training.sharing.recipes import Busy, kubeshare


@recipe(
    Paper(
        "DynamoML: Dynamic Resource Management Operators for Machine Learning Workloads",
        "Chiang and Chou",
        "CLOSER",
        2021,
        "utilization, JCT",
    ),
    reconstructed="from the code of its parts, kubeshare and dragon; a job that waits for a part"
    " of a GPU lets others shrink after as long as one that waits for whole ones; replicas of"
    " services do not (they have a recipe of their own, --serving)",
    wants=("parts of GPUs", "elastic jobs"),
)
def dynamoml(
    parts: bool = True,
    scales: bool = True,
    limit: Busy = 1.0,
    patience: Duration = 30 * SECOND,
    quiet: Duration = MINUTE,
) -> Policy:
    """DynamoML: jobs that request parts of GPUs have them as under `kubeshare`, and jobs that ask
    for whole ones are scaled as under `dragon`, which also shrink for a job that has waited for a
    part for `patience`.

    Without `parts` it is dragon, and without `scales` kubeshare (without either, too).
    """
    fractions, elastic = kubeshare(limit=limit), dragon(patience=patience, quiet=quiet)
    if not scales:
        return fractions
    return PartsFirst(fractions, elastic, patience) if parts else elastic
