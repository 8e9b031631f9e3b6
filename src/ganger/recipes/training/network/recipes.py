"""The network family: what jobs move between nodes decides. Without links in the cluster file the
terms of sharing them change nothing."""

from __future__ import annotations

from enum import Enum

from ganger.core.protocols import Policy
from ganger.core.units import MINUTE
from ganger.mechanisms.network.terms import LinkTerms
from ganger.mechanisms.ordering.admit import Walk
from ganger.mechanisms.ordering.order import FIRST_COME, SMALLEST_REMAINING_SERVICE
from ganger.mechanisms.ordering.queue import QueuePolicy
from ganger.mechanisms.sizing.elastic import Elastic
from ganger.mechanisms.sizing.target import TargetPolicy
from ganger.recipes.registry import Count, Paper, Part, Period, Positive, recipe
from ganger.recipes.training.network.gains import by_coflow, by_gain
from ganger.recipes.training.network.rings import EmbeddedRing, by_utility
from ganger.recipes.training.network.workload import LeastWorkload, shortest_first


@recipe(
    Paper(
        "JPAS: Job-progress-aware flow scheduling for deep learning clusters",
        "Zhou et al.",
        "JNCA",
        2020,
        "JCT",
    ),
    reconstructed="jobs start first come, first served, as the paper chooses no GPUs; the curve is"
    " that of Optimus; jobs with fewer than three reports have the highest priority",
    wants=("links",),
)
def jpas(levels: Count = 4, interval: Period = MINUTE, walk: Walk = Walk.SKIP) -> Policy:
    """Every `interval` the jobs whose accuracy is predicted to gain most until the next have the
    highest of `levels` priorities on links: their transfers go first, others take what they leave.

    It decides about links only; GPUs go first come, first served.
    """
    queue = QueuePolicy("jpas", FIRST_COME, walk)
    return LinkTerms(queue, by_gain(levels, interval), interval)


@recipe(
    Paper(
        "Efficient Online Scheduling for Coflow-Aware Machine Learning Clusters",
        "Li et al.",
        "TCC",
        2020,
        "JCT",
    ),
    reconstructed="the weight of the first job, which the abstract does not state; the bytes of a"
    " coflow are those of the job's profile",
    wants=("links",),
)
def parrot(most: Part = 0.9, walk: Walk = Walk.SKIP) -> Policy:
    """The job whose coflows (the pushes and pulls of a step) have attained least bytes is taken for
    the one with least to go: it has `most` of a shared link, the others divide the rest.

    The flows of one coflow go in proportion, so that all end together. It decides about links only;
    GPUs go first come, first served.
    """
    heavy = min(most, 0.999)
    return LinkTerms(QueuePolicy("parrot", FIRST_COME, walk), by_coflow(heavy), MINUTE)


class Beside(Enum):
    """Beside which transfers a job's transfer may begin on a link."""

    DUAL = "dual"
    """AdaDUAL: beside one with much more to go."""
    ALONE = "alone"
    """Beside none: SRSF(1)."""
    TWO = "two"
    """Beside one: SRSF(2)."""


@recipe(
    Paper(
        "Communication Contention Aware Scheduling of Multiple Deep Learning Training Jobs",
        "Wang et al.",
        "arXiv 2002.10105",
        2020,
        "JCT",
    ),
    name="ada-srsf",
    needs="durations",
    reconstructed="GPUs are exclusive, so workload is counted by node; a transfer waits only where"
    " a link cannot hold it beside the others. Which job waits for which shows with --by-step only",
    wants=("links",),
)
def ada_srsf(
    kappa: Count = 1, beside: Beside = Beside.DUAL, preempt: bool = False, walk: Walk = Walk.SKIP
) -> Policy:
    """Shortest remaining service first; jobs of up to `kappa` GPUs go to the nodes with the least
    remaining workload, larger ones to as few nodes as can hold them.

    A transfer of M2 bytes begins beside one that has M1 to go only where M2 / M1 is less than
    b / (2 (b + eta)), with eta / b the `contention` of the cluster file, and never beside two. Of
    transfers that wait those of the job with the shortest remaining service begin first.
    """
    place = LeastWorkload(kappa=kappa)
    order = SMALLEST_REMAINING_SERVICE
    queue = QueuePolicy("ada-srsf", order, walk, preempt=preempt, place=place)
    return LinkTerms(queue, shortest_first(beside.value), MINUTE)


@recipe(
    Paper(
        "GADGET: Online Resource Optimization for Scheduling Ring-All-Reduce Learning Jobs",
        "Yu et al.",
        "INFOCOM",
        2022,
        "utilization",
    ),
    needs="throughputs",
    reconstructed="the utility is the logarithm of the work done; each ring reserves the same"
    " bandwidth; the step time is the profile's",
    wants=("elastic jobs", "links"),
)
def gadget(interval: Period = 10 * MINUTE, reserve: Positive = 0.1) -> Policy:
    """Every `interval` each next GPU goes to the job whose utility, concave in the work done, grows
    most by it; a ring is embedded in as few nodes as can hold it, within a rack before across, and
    only over links with `reserve` GB/s left each way.
    """
    place = EmbeddedRing(reserve=reserve)
    return TargetPolicy("gadget", Elastic(by_utility), every=interval, place=place)
