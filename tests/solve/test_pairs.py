"""Space sharing by classes: the same optimum as with a column for every pair."""

from __future__ import annotations

import numpy as np
import pytest

from ganger.solve.division.lexicographic import water_filling
from ganger.solve.division.pairs import Pairs, PairsPool, max_min_pairs, max_sum_pairs, merge
from ganger.solve.division.programme import proportional, shares
from soaking import many
from solve.instances import NEED, largest_level, pair_rows, pairs, solve, water_levels


@pytest.mark.parametrize(
    "seeds", [range(120), pytest.param(range(1000, 1000 + many(2000)), marks=pytest.mark.soak)]
)
def test_max_min_agrees_with_every_pair_written_down(seeds: range) -> None:
    for seed in seeds:
        posed, weight = pairs(seed)
        pace = weight * proportional(posed.alone) / posed.alone.scale
        merged = merge(posed, [pace])
        answer = max_min_pairs(merged.posed, pace[merged.jobs.first])
        x = merged.expand(answer.x)
        known = largest_level(*pair_rows(posed), pace, 0 * pace)
        assert answer.value == pytest.approx(known, rel=NEED), seed
        assert (posed.throughput(x) / pace).min() == pytest.approx(known, rel=NEED), seed
        assert posed.busy(x).max() <= 1 + NEED
        assert (posed.used(x) <= posed.alone.capacity * (1 + NEED)).all()
        assert answer.gap <= NEED, seed


def test_max_sum_agrees_too() -> None:
    for seed in range(60):
        posed, _ = pairs(seed)
        rows, limits, eff = pair_rows(posed)
        merged = merge(posed, [])
        few = merged.posed
        answer = max_sum_pairs(few, few.alone.rate, few.rate_first + few.rate_second)
        known = solve(np.asarray(eff.sum(axis=0), np.float64).ravel(), rows, limits)
        assert answer.value == pytest.approx(known, rel=NEED), seed
        assert posed.throughput(merged.expand(answer.x)).sum() == pytest.approx(known, rel=NEED)
        assert answer.gap <= NEED, seed


def test_water_filling_over_pairs() -> None:
    for seed in range(15):
        posed, weight = pairs(seed)
        unit = weight * proportional(posed.alone) / posed.alone.scale
        merged = merge(posed, [unit])
        pool = PairsPool(merged.posed)
        filled = water_filling(pool, posed.alone.capacity, unit[merged.jobs.first])
        eff = posed.throughput(merged.expand(filled.answer.x))
        known = water_levels(*pair_rows(posed), unit, lambda free: np.ones(len(free)))
        level = np.minimum(np.sort(eff / unit), np.sort(known / unit))
        assert level == pytest.approx(np.sort(known / unit), rel=1e-4), seed


def test_jobs_alike_are_one_class_and_pairs_too() -> None:
    """Six equal jobs that can all share: one class of jobs, one of pairs."""
    first, second = np.triu_indices(6, 1)
    rate = np.full((15, 1), 0.75)
    posed = Pairs(
        shares(np.ones((6, 1)), np.ones(6), np.array([2.0])), first, second, rate, rate, np.ones(6)
    )
    merged = merge(posed, [])
    assert merged.jobs.size.tolist() == [6]
    assert merged.pairs.size.tolist() == [15]
    answer = max_min_pairs(merged.posed, np.ones(1))
    assert answer.value == pytest.approx(2 * 1.5 / 6)


def test_a_job_with_fewer_partners_is_no_member_of_the_class() -> None:
    rate = np.full((2, 1), 0.75)
    posed = Pairs(
        shares(np.ones((3, 1)), np.ones(3), np.array([1.0])),
        np.array([0, 1]),
        np.array([1, 2]),
        rate,
        rate,
        np.ones(3),
    )
    assert sorted(merge(posed, []).jobs.size.tolist()) == [1, 2]
