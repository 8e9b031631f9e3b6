"""Query analysis: how the SLO of a query is split over the models that it calls.

Nexus, SOSP 2019, section 6.2: the budgets that need the fewest GPUs, by dynamic programming.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ganger.core.serving.world import Pipeline


def is_tree(pipeline: Pipeline) -> bool:
    """Whether no stage has several that feed it."""
    return all(stage.after <= 1 for stage in pipeline.stages)


def budgets(
    pipeline: Pipeline, items: Sequence[float], total: int, throughput: Callable[[int, int], float]
) -> tuple[float, list[int]]:
    """The sum of items / throughput and the budget of each stage of a tree, in segments, so that no
    way from the first stage to a last one has more than `total` and the sum is least.

    `items`: of each stage; `throughput(stage, budget)`: what a GPU does with so much time, 0 where
    it is too little. The sum is infinite where `total` is too little. Among equal ones, stages that
    come first get more.
    """
    infinite = float("inf")
    count = len(pipeline.stages)
    costs: list[list[float]] = [[]] * count
    """By stage and time that is left at its begin: the least sum of it and all behind it."""
    chosen: list[list[int]] = [[]] * count
    for at in range(count - 1, -1, -1):
        feeds = [to for to, _ in pipeline.stages[at].feeds]
        own = [infinite]
        for budget in range(1, total + 1):
            does = throughput(at, budget)
            own.append(items[at] / does if does > 0 else infinite)
        behind = [sum(costs[to][left] for to in feeds) for left in range(total + 1)]
        best, which = [infinite], [0]
        for left in range(1, total + 1):
            if feeds:
                took = max(range(1, left + 1), key=lambda k: (-own[k] - behind[left - k], k))
            else:
                took = left
            best.append(own[took] + behind[left - took])
            which.append(took)
        costs[at], chosen[at] = best, which
    found = [0] * count
    left_at = [total] * count
    for at, stage in enumerate(pipeline.stages):
        found[at] = chosen[at][left_at[at]]
        for to, _ in stage.feeds:
            left_at[to] = left_at[at] - found[at]
    first = [at for at, stage in enumerate(pipeline.stages) if not stage.after]
    return sum(costs[at][total] for at in first), found
