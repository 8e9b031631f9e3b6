"""Other kinds of resources: parts of GPUs, nodes that may vanish, CPUs somewhere else."""

from __future__ import annotations

from ganger.core.protocols import Policy
from ganger.core.share import Sharing
from ganger.mechanisms.admit import Walk
from ganger.mechanisms.auxiliary import RemoteInput
from ganger.mechanisms.order import FIRST_COME
from ganger.mechanisms.place import Revocable
from ganger.mechanisms.queue import QueuePolicy
from ganger.mechanisms.share import Parts
from ganger.recipes.registry import Paper, recipe
from ganger.recipes.training.baselines import LECTURE

INGESTION = Paper(
    "Understanding Data Storage and Ingestion for Large-Scale Deep Recommendation Model Training",
    "Zhao et al.",
    "ISCA",
    2022,
    "throughput",
)


@recipe(LECTURE)
def space_sharing(mode: Sharing = Sharing.MPS, walk: Walk = Walk.SKIP) -> Policy:
    """First come, first served, with several jobs on one GPU where the hardware allows it.

    A job that asks for a share goes to the fullest device where it may sit: `mps` needs memory
    and thread percentages to add up, `mig` rounds each job up to a partition, `time` needs
    memory to add up. Jobs that slow each other down are not modelled here.
    """
    return QueuePolicy("space-sharing", FIRST_COME, walk, place=Parts(mode=mode))


@recipe(LECTURE, reconstructed="the notice before a revocation is not used")
def spot(label: str = "spot", prefer: bool = True, walk: Walk = Walk.SKIP) -> Policy:
    """First come, first served; only jobs that checkpoint may use nodes that can be revoked.

    Nodes labelled `label` can be taken away. A job on them loses what it did since its last
    checkpoint and starts again elsewhere. `prefer`: such jobs take these nodes first.
    """
    return QueuePolicy("spot", FIRST_COME, walk, place=Revocable(label=label, prefer=prefer))


@recipe(
    INGESTION,
    needs="throughputs",
    reconstructed="one rate for all jobs; the simulator does not slow starved jobs down yet",
)
def cpu_disaggregation(
    rate: float = 1000.0,
    local: float = 600.0,
    worker: float = 100.0,
    pool: int = 1000,
    walk: Walk = Walk.STRICT,
) -> Policy:
    """Input pipelines on remote CPUs: ceil((rate - local) / worker) workers for every GPU's need.

    `rate`: samples/s that a GPU consumes; `local`: samples/s from its own host; `worker`:
    samples/s of one of `pool` remote workers. A job's throughput is the smaller of what its GPUs
    can do and what it is supplied. GPUs are given first come, first served.
    """
    return RemoteInput(
        QueuePolicy("cpu-disaggregation", FIRST_COME, walk), rate, local, worker, pool
    )
