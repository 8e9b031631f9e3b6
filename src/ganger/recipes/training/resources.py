"""Other kinds of resources: parts of GPUs, nodes that may vanish, CPUs somewhere else."""

from __future__ import annotations

from enum import Enum

from ganger.core.books.share import Sharing
from ganger.core.protocols import Policy
from ganger.core.units import SECOND
from ganger.mechanisms.host_resources.remote_input import RemoteInput
from ganger.mechanisms.host_resources.supply import BySupply, Division, SupplyPolicy
from ganger.mechanisms.ordering.admit import Walk
from ganger.mechanisms.ordering.order import (
    FIRST_COME,
    SHORTEST_REMAINING,
    Order,
    Quanta,
    attained_service,
)
from ganger.mechanisms.ordering.queue import QueuePolicy
from ganger.mechanisms.placement.place import Revocable
from ganger.mechanisms.provisioning.notice import Heeding
from ganger.mechanisms.sharing.share import Parts
from ganger.mechanisms.sharing.slices import SlicedPolicy, Slices
from ganger.recipes.registry import Many, Name, Paper, Period, Positive, recipe
from ganger.recipes.training.baselines import LECTURE

INGESTION = Paper(
    "Understanding Data Storage and Ingestion for Large-Scale Deep Recommendation Model Training",
    "Zhao et al.",
    "ISCA",
    2022,
    "throughput",
)


@recipe(LECTURE, wants=("parts of GPUs",))
def space_sharing(mode: Sharing = Sharing.MPS, walk: Walk = Walk.SKIP) -> Policy:
    """First come, first served, with several jobs on one GPU where the hardware allows it.

    A job that asks for a share goes to the fullest device where it may sit: `mps` needs memory
    and thread percentages to add up, `time` needs memory to add up. `mig` rounds each job up to a
    slice of the device, which starts where NVIDIA's table of placements lets it start, beside those
    of jobs that run, and stays there. Jobs that slow each other down are not modelled here.
    """
    if mode is Sharing.MIG:
        return SlicedPolicy(QueuePolicy("space-sharing", FIRST_COME, walk, place=Slices()))
    return QueuePolicy("space-sharing", FIRST_COME, walk, place=Parts(mode=mode))


REVOCABLE = "spot"


@recipe(LECTURE, wants=("revocable nodes",))
def spot(label: Name = REVOCABLE, prefer: bool = True, walk: Walk = Walk.SKIP) -> Policy:
    """First come, first served; only jobs that checkpoint may use nodes that can be revoked.

    Nodes labelled `label` can be taken away; those of the spot market of a cluster file have the
    label `spot`. With notice of that, such a job saves and leaves at once; else it loses what
    it did since its last checkpoint. It starts again elsewhere. `prefer`: such jobs take these
    nodes first. A label other than the default must be on a node of the cluster.
    """
    place = Revocable(label=label, prefer=prefer, stated=label != REVOCABLE)
    return Heeding(QueuePolicy("spot", FIRST_COME, walk, place=place))


@recipe(
    INGESTION,
    needs="throughputs",
    reconstructed="the oracle's table of speed by CPUs stands for measured rates; the network"
    " between workers and GPUs is free",
    wants=("CPUs",),
)
def cpu_disaggregation(
    cores: Positive = 4.0,
    pool: Many = 1000,
    walk: Walk = Walk.STRICT,
) -> Policy:
    """Input pipelines on remote CPUs: a job whose hosts have too few CPUs to feed its GPUs gets as
    many remote workers as make up for that.

    GPUs are given first come, first served. A job's throughput is the smaller of what its GPUs can
    do and what it is supplied: its model's `sensitivity` says how fast it runs with how many CPUs
    per GPU, and where those of its own node fall short, ceil(lacking / `cores`) of `pool` remote
    workers of `cores` each prepare the rest, for those that came first. It changes the runs of
    models with a `sensitivity` in their profile, on nodes that state their CPUs.
    """
    return RemoteInput(QueuePolicy("cpu-disaggregation", FIRST_COME, walk), cores * 1000, pool)


class First(Enum):
    """Which job goes first."""

    FIFO = "fifo"
    SRTF = "srtf"
    LAS = "las"


@recipe(
    Paper(
        "Looking Beyond GPUs for DNN Scheduling on Multi-Tenant Clusters",
        "Mohan et al.",
        "OSDI",
        2022,
        "JCT",
    ),
    needs="durations, throughputs",
    reconstructed="the oracle's table stands for the optimistic profiling; jobs are preempted after"
    " a round of their own, not of the cluster; OPT divides where GPUs were placed, moving nobody",
    wants=("CPUs",),
)
def synergy(
    division: Division = Division.TUNE, order: First = First.SRTF, every: Period = 300 * SECOND
) -> Policy:
    """CPUs and host memory by sensitivity: a job gets what its GPUs can use of them if its nodes
    have it, and never less than its GPUs' part.

    GPUs go by `order`; a gang is placed where its demand fits beside the others', else by best fit.
    `tune`: in order of submission each job gets all it wants, or falls back to its GPUs' part and
    leaves what it does not need. `opt`: an integer programme over the jobs' tables for the largest
    sum of speeds (section 4). Needs nodes that state CPUs and memory. Only `order=srtf` reads
    durations.
    """
    keys: dict[First, Order] = {
        First.FIFO: FIRST_COME,
        First.SRTF: SHORTEST_REMAINING,
        First.LAS: Quanta(every, attained_service),
    }
    queue = QueuePolicy(
        "synergy",
        keys[order],
        Walk.SKIP,
        preempt=order is not First.FIFO,
        place=BySupply(),
        min_run=every,
    )
    return SupplyPolicy(queue, division)
