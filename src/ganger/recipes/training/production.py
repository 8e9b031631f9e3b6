"""Queues of production clusters: virtual clusters, and shortest predicted service."""

from __future__ import annotations

from ganger.core.protocols import Policy
from ganger.core.spec import Locality
from ganger.mechanisms.admit import Quotas, Walk
from ganger.mechanisms.order import FIRST_COME, SHORTEST_SERVICE
from ganger.mechanisms.place import ConsolidateIf
from ganger.mechanisms.queue import QueuePolicy
from ganger.recipes.registry import Paper, recipe

YARN = Paper(
    "Apache Hadoop YARN: Yet Another Resource Negotiator",
    "Vavilapalli et al.",
    "SoCC",
    2013,
    "fairness",
)
HELIOS = Paper(
    "Characterization and Prediction of Deep Learning Workloads in Large-Scale GPU Datacenters",
    "Hu et al.",
    "SC",
    2021,
    "JCT",
)


@recipe(YARN, reconstructed="locality as in the public Tiresias simulator: one switch, or wait")
def yarn_cs(within: Locality = Locality.RACK, walk: Walk = Walk.TENANT) -> Policy:
    """The capacity scheduler as production clusters use it: a FIFO queue for every tenant.

    A tenant (virtual cluster) holds at most its quota of the cluster file; its head blocks its
    own queue and nobody else's. Nothing is preempted. A gang that fits a node waits for one;
    a larger one waits for GPUs `within` one rack, even for ever if no rack has so many.
    """
    return QueuePolicy(
        "yarn-cs", FIRST_COME, walk, place=ConsolidateIf(within=within), quotas=Quotas()
    )


@recipe(
    HELIOS,
    needs="durations",
    reconstructed="a ridge regression of our own takes the place of gradient boosting",
)
def helios(walk: Walk = Walk.STRICT) -> Policy:
    """QSSF: the least GPUs x predicted duration first, without preemption (section 4.2).

    The head of the queue blocks, as in the public simulator. The paper's predictor, 0.1 x what
    the same user's like jobs took + 0.9 x a regression, is the oracle that `--knows history`
    gives; with another oracle the same order follows its durations.
    """
    return QueuePolicy("helios", SHORTEST_SERVICE, walk)
