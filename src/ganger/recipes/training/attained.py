"""The attained-service family: what a job has had decides, not what it will want."""

from __future__ import annotations

from enum import Enum

from ganger.core.protocols import Policy
from ganger.core.units import HOUR, MINUTE, SECOND
from ganger.mechanisms.admit import Walk
from ganger.mechanisms.order import Levels, Quanta, attained_service, attained_time, first_start
from ganger.mechanisms.place import PACK, ConsolidateIf, skewed_model
from ganger.mechanisms.queue import QueuePolicy
from ganger.recipes.registry import Duration, Paper, recipe

TIRESIAS = Paper(
    "Tiresias: A GPU Cluster Manager for Distributed Deep Learning",
    "Gu et al.",
    "NSDI",
    2019,
    "JCT",
)


class Attained(Enum):
    """What counts as attained."""

    SERVICE = "service"
    TIME = "time"


@recipe(TIRESIAS)
def las(
    attained: Attained = Attained.SERVICE, quantum: Duration = 10 * MINUTE, walk: Walk = Walk.SKIP
) -> Policy:
    """Least attained service first, in its pure form: executed time x GPUs (2-D) or time (1-D).

    Compared in whole quanta (GPU-time for 2-D), so that equals take turns instead of thrashing.
    """
    formula = attained_service if attained is Attained.SERVICE else attained_time
    return QueuePolicy("las", Quanta(quantum, formula), walk, preempt=True)


@recipe(Paper("Multi-level feedback queue", "Corbato et al.", "AFIPS", 1962, "JCT"))
def mlfq(
    thresholds: tuple[Duration, ...] = (1 * HOUR, 10 * HOUR), walk: Walk = Walk.SKIP
) -> Policy:
    """A multi-level feedback queue on executed time; first come, first served inside a queue."""
    return QueuePolicy("mlfq", Levels(thresholds, attained_time), walk, preempt=True)


@recipe(TIRESIAS)
def tiresias(
    thresholds: tuple[Duration, ...] = (3250 * SECOND, 7200 * SECOND, 18000 * SECOND),
    starvation: float | None = None,
    consolidate: bool = True,
    walk: Walk = Walk.SKIP,
    min_run: Duration = 0,
) -> Policy:
    """Tiresias-L: discretised two-dimensional least attained service.

    Attained service is GPUs x executed time; the queues' thresholds (GPU-time) are the public
    simulator's. Inside a queue jobs go by their first start, so that a running job is not
    preempted by its equal. `starvation` is the paper's PROMOTEKNOB. With `consolidate`, models
    whose tensor sizes are skewed insist on the fewest nodes; others take any free GPUs.
    """
    return QueuePolicy(
        "tiresias",
        Levels(thresholds, attained_service, (first_start,), starvation),
        walk,
        preempt=True,
        place=ConsolidateIf(wants=skewed_model) if consolidate else PACK,
        min_run=min_run,
    )
