"""Nexus as a recipe."""

from __future__ import annotations

from enum import Enum
from typing import Annotated, TypeAlias

from ganger.core.serving.router import Router
from ganger.core.units import SECOND
from ganger.recipes.registry import Paper, Part, Period, Positive, Within, recipe
from ganger.recipes.serving.nexus.planning import Planning
from ganger.recipes.serving.nexus.router import Nexus

NEXUS = Paper(
    "Nexus: A GPU Cluster Engine for Accelerating DNN-Based Video Analysis",
    "Shen et al.",
    "SOSP",
    2019,
    "SLO, throughput",
)

Segments: TypeAlias = Annotated[int, Within(2, 200)]
"""Into which time is cut; the work to split it grows with the square."""


class Cycle(Enum):
    """How often a lane that sessions share begins a batch of each."""

    DUTY = "duty"
    EXECUTION = "execution"


@recipe(
    NEXUS,
    needs="latencies",
    reconstructed="pre- and post-processing take no time; rates are not"
    " stated by users: until they were measured, a session is served by all lanes in turn, and the"
    " weight of the last second in a rate is ours; the lanes of a fleet that the plan could spare"
    " are used (`fill`), and types of lanes are packed apart, each for what it can do of the load;"
    " a lane of one session does not wait for its cycle; a query of which stages are joined is"
    " split by what they take",
)
def nexus(
    epoch: Period = 30 * SECOND,
    soonest: Period = 10 * SECOND,
    overload: Positive = 1.05,
    profile: Positive = 1.15,
    weight: Part = 0.2,
    cycle: Cycle = Cycle.DUTY,
    fill: bool = True,
    segments: Segments = 50,
) -> Router:
    """Sessions are packed onto lanes by their rates; a lane runs a batch of each in turn.

    A session is a model with an SLO. One that fills lanes has them alone, in the largest batch of
    which two in a row keep the SLO. What is left of sessions shares lanes: each batch is as large
    as what comes in a duty cycle, and all batches of a lane fit into its cycle. Requests that would
    make a batch small are dropped early. A pipeline's SLO is split into `segments`, so that it
    needs the fewest lanes. There is a new plan every `epoch`; after `soonest` already, where a
    session is new or a lane has more than `overload` of its time to do. Plans count on `profile`
    times the latency that was measured. With `fill` all lanes are used, for as many times the
    measured rates as they can serve. `cycle=execution`: a cycle is as long as its batches take, as
    in the public code, and a lane that could wait does not.

    Models that begin with the same layers (by the `operators` of the models file) are one session
    for each SLO: a batch runs these layers once, and then what each model has of its own.
    """
    planning = Planning(epoch, soonest, overload, weight, cycle is Cycle.EXECUTION, fill, segments)
    return Nexus(planning, profile)
