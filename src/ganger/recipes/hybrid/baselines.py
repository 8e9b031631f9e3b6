"""The yardsticks: two silos, services first, and services that make room for themselves."""

from __future__ import annotations

from ganger.mechanisms.common.planes import Planes
from ganger.mechanisms.hybrid.room import ServicesFirst
from ganger.mechanisms.hybrid.sharing import Sharing
from ganger.mechanisms.hybrid.silos import Silos
from ganger.recipes.registry import Many, Name, Paper, recipe

PRACTICE = Paper("Common practice")


@recipe(PRACTICE, name="hybrid.first")
def first() -> Sharing:
    """Services are asked first, and training gets what is left; neither preempts the other.

    What a run does where no rule for sharing is named.
    """
    return Sharing("hybrid.first", Planes)


@recipe(PRACTICE, name="hybrid.separate")
def separate(services: Name = "serving") -> Sharing:
    """Two silos: services on the nodes that are named for them, training on all others.

    `services`: the pool, or a label, of the nodes for services. Nothing moves between the two.
    """
    return Sharing(
        "hybrid.separate", lambda serving, training: Silos(serving, training, services), services
    )


@recipe(PRACTICE, name="hybrid.priorities")
def priorities(guarantee: Many = 0) -> Sharing:
    """One pool in which services preempt training: for a replica that has no room jobs are stopped,
    on the node where those are the fewest.

    `guarantee`: so many GPUs stay with training in any case.
    """
    return Sharing(
        "hybrid.priorities",
        lambda serving, training: ServicesFirst(serving, training, guarantee),
    )
