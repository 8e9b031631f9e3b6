"""Gavel (Narayanan et al., OSDI 2020): any objective, made aware of GPU types, in rounds."""

from __future__ import annotations

from enum import Enum

from ganger.core.errors import BadInput
from ganger.core.protocols import Policy
from ganger.core.units import SECOND
from ganger.mechanisms.rounds.objectives import (
    FIRST_COME,
    MOST_EVEN,
    SHORTEST_MAKESPAN,
    WATER_FILLED,
    LargestSum,
    equal_parts,
)
from ganger.mechanisms.rounds.program import FinishTimeFairness, FirstFit, Programme
from ganger.mechanisms.rounds.program import Objective as Solve
from ganger.mechanisms.rounds.rounds import Allocator, Remembering, RoundPolicy
from ganger.recipes.registry import Count, Duration, Paper, Period, recipe
from ganger.recipes.training.fairness.recipes import GAVEL
from ganger.recipes.training.gavel.interior_point import Centred, CentredProgramme
from ganger.recipes.training.gavel.pop import Partitioned
from ganger.recipes.training.gavel.simulator_rounds import BarrierRounds, Ways
from ganger.recipes.training.gavel.space_sharing import (
    PairFinishTimeFairness,
    PairObjective,
    PairProgramme,
)
from ganger.recipes.training.gavel.standing_types import StandingTypes
from ganger.solve.pop import Deal


class Objective(Enum):
    """What is optimised."""

    MAX_MIN = "max-min"
    """The smallest normalised throughput: the LAS analogue (section 4.1)."""
    WATER_FILLING = "water-filling"
    """The same, then the second smallest, and so on (section 4.3)."""
    FIFO = "fifo"
    MAKESPAN = "makespan"
    MAX_SUM = "max-sum"
    COST = "cost"
    FTF = "ftf"
    ISOLATED = "isolated"
    """1/n of every type for each of n jobs: what sharing is compared with."""


IN_PAIRS: dict[Objective, PairObjective] = {
    Objective.MAX_MIN: MOST_EVEN,
    Objective.WATER_FILLING: WATER_FILLED,
    Objective.FIFO: FIRST_COME,
    Objective.MAKESPAN: SHORTEST_MAKESPAN,
    Objective.MAX_SUM: LargestSum(),
    Objective.COST: LargestSum(priced=True),
}
PROGRAMMES: dict[Objective, Solve] = {**IN_PAIRS, Objective.ISOLATED: equal_parts}

CENTRED = {
    Objective.MAX_MIN: Centred.MAX_MIN,
    Objective.MAKESPAN: Centred.MAKESPAN,
    Objective.FTF: Centred.FTF,
}


@recipe(
    GAVEL,
    needs="throughputs",
    reconstructed="what a programme leaves undecided goes where it does most; makespan is one"
    " programme in 1/T instead of a bisection; pairs that gain nothing are left out",
    wants=("GPU types",),
    durations_with={"objective": (Objective.FTF, Objective.MAKESPAN), "deadlines": (True,)},
)
def gavel(
    objective: Objective = Objective.MAX_MIN,
    agnostic: bool = False,
    deadlines: bool = False,
    space_sharing: bool = False,
    every: Period = 360 * SECOND,
    fill: bool = True,
    compatible: bool = False,
    in_order: bool = False,
    centred: bool = False,
    whole_steps: bool = False,
    barrier: bool = False,
    patience: Duration = 0,
    counters: bool = False,
    by_type: bool = False,
    left_over: bool = False,
    held_back: bool = False,
    dropped: bool = False,
    shuffled: bool = False,
) -> Policy:
    """A linear programme divides every GPU type's time among jobs; rounds make it true.

    In each round (job, type) pairs run by allocation over fraction of time received. `agnostic`:
    the same objective with all types held to be alike. `fill`: free GPUs go to waiting jobs
    between rounds; without it a round lasts to its end, as in the paper. `ftf` and `makespan`
    need durations too. `deadlines`: `max-sum` and `cost` first give jobs with a deadline what it
    takes to meet it. `space_sharing`: two gangs of one size may have the same GPUs, where the
    throughput of both together was measured (section 3.1).

    `compatible` turns on all that the public simulator does otherwise than the paper and that moves
    its figures; each can be had by itself. `in_order`: FIFO without a programme; where it is
    `agnostic`, too, on types that jobs keep, which is the public `fifo` (the other: `fifo_perf`).
    `centred`: of all best answers the one that an interior-point method ends in. The others are
    those of `simulator_rounds.Ways`, beside this file; `compatible` sets `shuffled` and `left_over`
    only where the objective has them.
    """
    allocator: Allocator | Remembering = FinishTimeFairness(agnostic)
    fifo = objective is Objective.FIFO
    if fifo and (in_order or compatible):
        allocator = StandingTypes() if agnostic else FirstFit()
    elif objective in CENTRED and (centred or compatible):
        allocator = CentredProgramme(CENTRED[objective], agnostic)
    elif deadlines:
        allocator = Programme(_in_time(objective), agnostic)
    elif objective in PROGRAMMES:
        allocator = Programme(PROGRAMMES[objective], agnostic)
    ways = Ways(
        whole_steps or compatible,
        barrier or compatible,
        patience or 1920 * SECOND * compatible,
        counters or compatible,
        by_type or compatible,
        left_over or (compatible and not fifo),
        held_back or compatible,
        dropped or compatible,
        shuffled or (compatible and (agnostic or objective is Objective.ISOLATED)),
    )
    if space_sharing:
        if any(ways) or agnostic or deadlines or centred or in_order:
            raise BadInput(
                "space_sharing goes with an objective, `every` and `fill` alone",
                where="gavel",
                mend="leave the others out",
            )
        return RoundPolicy("gavel", _in_pairs(objective), every, fill=fill, pairs=True)
    if any(ways):
        return BarrierRounds("gavel", allocator, every, ways)
    return RoundPolicy("gavel", allocator, every, fill=fill)


def _in_pairs(objective: Objective) -> Allocator | Remembering:
    """The objective for jobs that may share GPUs."""
    if objective is Objective.ISOLATED:
        raise BadInput("isolated jobs share no GPU", where="gavel", mend="leave space_sharing out")
    if objective is Objective.FTF:
        return PairFinishTimeFairness(agnostic=False)
    return PairProgramme(IN_PAIRS[objective])


def _in_time(objective: Objective) -> LargestSum:
    """The objective with rows for deadlines."""
    if objective not in (Objective.MAX_SUM, Objective.COST):
        raise BadInput(
            f"no deadlines with {objective.value}", where="gavel", mend="use max-sum or cost"
        )
    return LargestSum(priced=objective is Objective.COST, deadlines=True)


@recipe(
    Paper(
        "Solving Large-Scale Granular Resource Allocation Problems Efficiently with POP",
        "Narayanan et al.",
        "SOSP",
        2021,
        "fairness, JCT",
    ),
    needs="throughputs",
    reconstructed="the parts are solved one after the other",
    wants=("GPU types",),
    durations_with={"objective": (Objective.MAKESPAN,)},
)
def pop(
    objective: Objective = Objective.MAX_MIN,
    parts: Count = 4,
    deal: Deal = Deal.RANDOM,
    every: Period = 360 * SECOND,
    fill: bool = True,
) -> Policy:
    """Partitioned optimisation: jobs are dealt at random to `parts` small programmes, each with
    that part of every GPU type, and the answers are put side by side (sections 3 and 4).

    A wrapper over `gavel`'s objectives but for `ftf`. `deal=stratified` spreads like jobs evenly;
    `replicated` also puts gangs wider than a part into all parts (section 4.2).
    """
    if objective not in PROGRAMMES or parts < 1:
        raise BadInput(
            f"no {objective.value} in {parts} parts",
            where="pop",
            mend=f"parts are 1 or more, objectives {', '.join(each.value for each in PROGRAMMES)}",
        )
    return RoundPolicy("pop", Partitioned(PROGRAMMES[objective], parts, deal), every, fill=fill)
