"""The learned family: what jobs were seen to do decides where the next ones go."""

from __future__ import annotations

from ganger.core.protocols import Policy
from ganger.core.units import HOUR, MINUTE
from ganger.recipes.registry import Count, Paper, Part, Period, recipe
from ganger.recipes.training.learned.rifling import Rifling


@recipe(
    Paper(
        "RIFLING: A reinforcement learning-based GPU scheduler for deep learning research and"
        " development platforms",
        "Chen et al.",
        "Software: Practice and Experience",
        2022,
        "makespan",
    ),
    needs="throughputs",
    reconstructed="states, actions and reward are ours, after the abstract: the head of the queue"
    " starts close together if it can; whether it is split or waits is learned; its rate over that"
    " alone counts, less nodes that it could do without",
    wants=("links",),
)
def rifling(
    groups: Count = 2,
    regroup: Period = HOUR,
    patience: Period = 10 * MINUTE,
    discount: Part = 0.9,
    epsilon: Part = 0.3,
    rate: Part = 0.1,
    fragmentation: Part = 0.1,
) -> Policy:
    """First come, first served. Where the next job fits only split over more nodes than it needs, a
    table says whether it starts or waits; the rates at which split jobs ran have taught it.

    Jobs are grouped by how much of their speed they keep when split (K-means into `groups`, anew
    every `regroup`). States are the group, the running jobs of each group and the free GPUs; a wait
    loses `discount` every `patience`. It begins with an empty table, learns while it runs, and
    tries any action with a chance that begins at `epsilon` and falls. The table is its memory, so a
    restarted daemon goes on with it.
    """
    return Rifling("rifling", groups, regroup, discount, patience, epsilon, rate, fragmentation)
