"""POP: exact where the parts are copies, close where jobs are many, never above the best."""

from __future__ import annotations

import numpy as np
import pytest

from ganger.solve.division.programme import Answer, Floats, Ints, Shares, proportional, shares
from ganger.solve.division.shares import max_min
from ganger.solve.pop import Deal, partitioned
from solve.instances import violation


def value(posed: Shares, pace: Floats, parts: int, deal: Deal, seed: int = 0) -> float:
    """The smallest normalised throughput that POP reaches; its x must be feasible."""

    def solve(part: Shares, rows: Ints, fraction: Floats) -> Answer:
        return max_min(part, pace[rows] * fraction)

    x = partitioned(posed, parts, solve, deal, seed)
    assert violation(posed, x) <= 1e-6
    return float((posed.effective(x) / pace).min())


def test_copies_of_an_instance_in_as_many_parts_lose_nothing() -> None:
    """One copy in each part: stratified dealing finds that by itself for like jobs."""
    rate = np.array([[10.0, 30, 80], [50, 65, 70], [20, 55, 60]]).repeat(4, axis=0)
    posed = shares(rate, np.ones(12), np.array([8.0, 4, 4]))
    pace = proportional(posed)

    def copy(part: Shares, rows: Ints, fraction: Floats) -> Answer:
        return max_min(part, pace[rows])

    best = max_min(posed, pace).value
    one = shares(rate[::4], np.ones(3), np.array([2.0, 1, 1]))
    assert max_min(one, proportional(one)).value == pytest.approx(best)
    assert partitioned(posed, 1, copy) == pytest.approx(max_min(posed, pace).x)


@pytest.mark.parametrize("deal", list(Deal))
def test_random_groups_of_many_jobs_are_within_2_percent(deal: Deal) -> None:
    rng = np.random.default_rng(0)
    posed = shares(rng.lognormal(0, 0.5, (4000, 3)), np.ones(4000), np.full(3, 300.0))
    pace = proportional(posed)
    best, reached = max_min(posed, pace).value, value(posed, pace, 4, deal)
    assert 0.98 * best <= reached <= best * (1 + 1e-6)


def test_replicating_large_gangs_saves_what_dealing_them_out_loses() -> None:
    """One gang of 8 among many single jobs on 16 GPUs, in 4 parts of 4."""
    scale = np.append(np.ones(40), 8.0)
    posed = shares(np.ones((41, 1)), scale, np.array([16.0]))
    pace = np.append(np.full(40, 0.1), 1.0)
    assert value(posed, pace, 4, Deal.REPLICATED) > 1.2 * value(posed, pace, 4, Deal.STRATIFIED)
