"""Queues of production clusters: virtual clusters, and shortest predicted service."""

from __future__ import annotations

from typing import Annotated

from ganger.core.books.share import Sharing
from ganger.core.protocols import Policy
from ganger.core.spec import Locality
from ganger.core.units import MINUTE
from ganger.estimate.forecast import forecast
from ganger.mechanisms.fairness.virtual_clusters import VirtualClusters
from ganger.mechanisms.ordering.admit import Quotas, Walk
from ganger.mechanisms.ordering.order import FIRST_COME, SHORTEST, SHORTEST_SERVICE
from ganger.mechanisms.ordering.queue import QueuePolicy
from ganger.mechanisms.placement.delay_scheduling import Relaxing
from ganger.mechanisms.placement.place import ConsolidateIf, Sampled
from ganger.mechanisms.provisioning.provision import EnergySaving, PowerSaver
from ganger.mechanisms.sharing.share import ReserveAndPack
from ganger.recipes.registry import (
    Amount,
    Count,
    Duration,
    Many,
    Name,
    Paper,
    Part,
    Period,
    Within,
    recipe,
)

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


@recipe(
    YARN,
    reconstructed="locality: one node, or one switch for gangs larger than a node, or wait; the"
    " public Tiresias simulator moreover gives such gangs idle nodes only",
    wants=("quotas",),
)
def yarn_cs(within: Locality = Locality.RACK, walk: Walk = Walk.TENANT) -> Policy:
    """The capacity scheduler as production clusters use it: a FIFO queue for every tenant.

    A tenant (virtual cluster) holds at most its quota of the cluster file; its head blocks its
    own queue and nobody else's. Nothing is preempted. A gang that fits a node waits for one;
    a larger one waits for GPUs `within` one rack, even for ever if no rack has so many.
    """
    return QueuePolicy(
        "yarn-cs", FIRST_COME, walk, place=ConsolidateIf(within=within), quotas=Quotas()
    )


@recipe(HELIOS, needs="durations")
def helios(walk: Walk = Walk.STRICT) -> Policy:
    """QSSF: the least GPUs x predicted duration first, without preemption (section 4.2).

    The head of the queue blocks, as in the public simulator. The paper's predictor, 0.1 x the mean
    of what the same user's like jobs took + 0.9 x gradient boosting, is the oracle that
    `--knows history` gives, and the mean alone `--knows rolling`; with another oracle the same
    order follows its durations.
    """
    return QueuePolicy("helios", SHORTEST_SERVICE, walk)


@recipe(
    HELIOS,
    needs="durations",
    reconstructed="the forecast: yesterday's load curve moved to today's level, where the paper"
    " boosts trees; waiting jobs count as using nodes, and wake them at once",
    wants=("idle nodes",),
)
def helios_ces(
    buffer: Many = 5, hold: Many = 12, falls: Amount = 1.0, every: Period = 10 * MINUTE
) -> Policy:
    """QSSF, and Cluster Energy Saving beside it: idle nodes are switched off.

    Every `every`: more nodes used than on wakes as many and `buffer`, and for `hold` bins none is
    switched off. Nodes beyond used + `buffer` go off once use has fallen by `falls` below its mean
    of the last hour and the next three hours are forecast as much lower again.
    """
    saving = EnergySaving(buffer, hold, falls)
    return PowerSaver(QueuePolicy("helios-ces", SHORTEST_SERVICE), forecast, saving, every)


@recipe(
    Paper(
        "Analysis of Large-Scale Multi-Tenant GPU Clusters for DNN Training Workloads",
        "Jeon et al.",
        "ATC",
        2019,
        "JCT",
    ),
    reconstructed="how long each tier is insisted on; which job is evicted first; that a job"
    " which does not fit is passed by others of its tenant",
    wants=("quotas",),
)
def philly(
    node_wait: Duration = 5 * MINUTE,
    rack_wait: Duration = 5 * MINUTE,
    full: Part = 0.9,
    min_run: Duration = 0,
) -> Policy:
    """Virtual clusters with quotas that may be exceeded while others leave GPUs idle.

    The tenant that uses least of its quota goes first. Gangs want one node for `node_wait`, one
    rack for `rack_wait` more, then take any GPUs. Once `full` of the cluster is held,
    jobs of tenants over their quotas are preempted for jobs within theirs. Waiting for a share
    (AssocGrpGRES) and waiting for a place (Resources) are distinguished, as the paper does.
    """
    place = Relaxing(node_wait=node_wait, rack_wait=rack_wait)
    return VirtualClusters("philly", place, full, min_run)


@recipe(
    Paper(
        "FfDL: A Flexible Multi-tenant Deep Learning Platform",
        "Jayaram et al.",
        "Middleware",
        2019,
        "JCT",
    ),
    reconstructed="the chances of the sampling; the platform's own code is not public in this part",
)
def ffdl(
    samples: Count = 5, bias: Annotated[float, Within(0, 100)] = 3.0, walk: Walk = Walk.STRICT
) -> Policy:
    """Gangs, first come, first served within quotas, packed by biased sampling.

    Of `samples` random assignments, drawn with a bias towards full nodes, the one on the fewest
    nodes is taken. Learners start together or not at all.
    """
    place = Sampled(samples=samples, bias=bias)
    return QueuePolicy("ffdl", FIRST_COME, walk, place=place, quotas=Quotas())


BEST_OF_PAI = ("V100", "V100-32GB", "V100M32", "V100M16")


@recipe(
    Paper(
        "MLaaS in the Wild: Workload Analysis and Scheduling in Large-Scale Heterogeneous GPU"
        " Clusters",
        "Weng et al.",
        "NSDI",
        2022,
        "JCT, utilisation",
    ),
    needs="durations",
    reconstructed="jobs that share a GPU do not slow each other down",
    wants=("parts of GPUs", "GPU types"),
)
def ali_mlaas(
    reserved: tuple[Name, ...] = BEST_OF_PAI,
    walk: Walk = Walk.SKIP,
) -> Policy:
    """Shortest predicted job first, GPUs shared by parts, the best GPUs reserved.

    Parts of a GPU go to the fullest device that has room. GPUs of the types `reserved` are for jobs
    that demand them; all others are packed on the rest (reserving-and-packing). Types other than
    the default, which are PAI's, must be those of the cluster. The paper predicts by user, group
    and GPUs: `--knows group` does so.
    """
    stated = reserved != BEST_OF_PAI
    place = ReserveAndPack(mode=Sharing.TIME, high=reserved, stated=stated)
    return QueuePolicy("ali-mlaas", SHORTEST, walk, place=place)
