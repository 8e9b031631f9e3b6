"""Recipes whose jobs share GPUs by running iterations in turn."""

from __future__ import annotations

from enum import Enum
from typing import Annotated, TypeAlias

from ganger.core.protocols import Policy
from ganger.core.view import View
from ganger.mechanisms.ordering.admit import Walk
from ganger.mechanisms.ordering.order import FIRST_COME, By, priority_largest
from ganger.mechanisms.ordering.queue import QueuePolicy
from ganger.mechanisms.sharing.lanes import ByLanes, LanePolicy, Turns
from ganger.recipes.registry import Paper, Part, Within, recipe
from ganger.recipes.training.sharing.lane_scores import InLanes, InPart

SALUS = Paper(
    "Salus: Fine-Grained GPU Sharing Primitives for Deep Learning Applications",
    "Yu and Chowdhury",
    "MLSys",
    2020,
    "utilization, JCT",
)
Company: TypeAlias = Annotated[int, Within(1, 20)]
"""Jobs on the same GPUs."""
LANES_MAX = 4
"""So many iterations run side by side on a GPU that is packed."""


class Iterations(Enum):
    """Which iterations run on a GPU that several jobs share."""

    PACK = "pack"
    FAIR = "fair"
    ROUND_ROBIN = "round_robin"
    PREEMPT = "preempt"


SALUS_TURNS = {Iterations.ROUND_ROBIN: Turns.ITERATION, Iterations.PREEMPT: Turns.FIRST}


@recipe(
    SALUS,
    needs="throughputs",
    reconstructed="Salus divides one GPU; which of several a job goes to is ours: free ones first,"
    " then those on which steps are expected to be least longer. Only jobs of equal GPU count"
    " share, and all of their GPUs; lanes divide the GPU's time by use, and a lane uses on average"
    f" what its jobs do; at most {LANES_MAX} lanes, filled evenly",
    wants=("models that share GPUs",),
)
def salus(
    iterations: Iterations = Iterations.PACK, share: Company = 8, walk: Walk = Walk.SKIP
) -> Policy:
    """Salus: what a model keeps stays in the memory of the GPU, what it needs within an iteration
    is used by one job after the other; so many jobs share a GPU, and a switch costs nothing.

    The jobs of one lane run iterations in turn. A job may come if all that persists (`persistent`
    of the model's `memory`) and the largest part for an iteration (`ephemeral`) of each lane fit;
    at most `share` jobs are on a GPU. `iterations`: `pack` opens as many lanes as memory allows,
    which compute side by side. The others have one lane: `fair` gives all jobs equal time,
    `round_robin` one iteration each, and under `preempt` only the job of the highest priority
    computes, of those alike the one that is expected to end first, and the others wait between two
    iterations. With it, jobs wait for GPUs in that order, too; else first come, first served.

    Only jobs share that ask for whole GPUs and nothing else, may be preempted, and whose model's
    memory and use of a GPU are known (for `round_robin` how long an iteration takes, too).
    """
    pack, first = iterations is Iterations.PACK, iterations is Iterations.PREEMPT
    score = InLanes(LANES_MAX if pack else 1, timed=iterations is Iterations.ROUND_ROBIN)
    place = ByLanes(score=score, bound=share, together=share, empty_first=True)
    order = By((priority_largest, View.remaining)) if first else FIRST_COME
    queue = QueuePolicy("salus", order, walk, place=place)
    return LanePolicy(queue, place, SALUS_TURNS.get(iterations, Turns.TIME), order)


@recipe(
    Paper(
        "JigSaw: Structured Partial Backpropagation for Efficient Deep Learning Training",
        "Kumar et al.",
        "DistributedML",
        2021,
        "JCT, utilization",
    ),
    needs="throughputs",
    reconstructed="from the abstract: one worker in turn does all layers, the others the same"
    " fraction of them; which jobs share is as in salus. Neither memory nor communication of"
    " partial workers is less; what training loses is the `loss` of the model's `passes`, a"
    " parameter that nobody has measured",
    wants=("models that share GPUs",),
)
def jigsaw(
    fraction: Part = 0.5,
    gain: Annotated[float, Within(1, 2)] = 1.05,
    share: Company = 2,
    walk: Walk = Walk.SKIP,
) -> Policy:
    """JigSaw: jobs of as many GPUs run steps in turn on the same ones, and in each step all but one
    worker of each back-propagate through a `fraction` of the layers only.

    The full workers of different jobs are on different GPUs, and go on to the next one after each
    step. So a job that has to wait for its full worker leaves the others' GPUs to other jobs. A job
    goes beside others if no GPUs are free for it, all memory fits as in `salus`, and they do
    together at least `gain` times what one alone does, lost steps counted; at most `share` jobs are
    on a GPU. A job that is alone does all layers.

    Only jobs share that ask for whole GPUs and nothing else, may be preempted, and whose model's
    memory, iteration, use of a GPU and `passes` are known.
    """
    score = InPart(1, timed=True, fraction=fraction)
    place = ByLanes(score=score, bound=1 / gain, together=share, empty_first=True)
    queue = QueuePolicy("jigsaw", FIRST_COME, walk, place=place)
    return LanePolicy(queue, place, Turns.ITERATION, backward=fraction)
