"""Backfilling: fill the gaps that a blocked queue leaves."""

from __future__ import annotations

from typing import Annotated

from ganger.core.protocols import Policy
from ganger.mechanisms.ordering.admit import Walk
from ganger.mechanisms.ordering.order import FIRST_COME
from ganger.mechanisms.ordering.periodic import every
from ganger.mechanisms.ordering.queue import QueuePolicy
from ganger.recipes.registry import Paper, Period, Within, recipe

EASY = Paper("The ANL/IBM SP Scheduling System", "Lifka", "JSSPP", 1995, "utilisation")


@recipe(EASY, needs="durations")
def backfill(
    walk: Walk = Walk.EASY,
    depth: Annotated[int, Within(1, 1_000_000)] = 1000,
    interval: Period | None = None,
) -> Policy:
    """First come, first served, with backfilling by expected durations.

    EASY: jobs behind the blocked head start if they do not delay its earliest start.
    Conservative: they must delay nobody ahead of them. Only the first `depth` waiting jobs are
    looked at in one decision (Slurm's bf_max_job_test), which is taken every `interval` if one is
    given (its bf_interval), and otherwise whenever something changes. Without an oracle the
    user's estimate counts, then the time limit.
    """
    return every(interval, QueuePolicy("backfill", FIRST_COME, walk, depth=depth))
