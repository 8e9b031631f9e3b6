"""Schedules that evolve: none gives what is not there, and a population follows its jobs."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from ganger.recipes.training.elasticity.ones import Offer, Schedules, filled

FRESH, WAITS = 1 << 15, (1 << 15) + 1


@given(st.integers(0, 2**32 - 1), st.integers(1, 12), st.integers(1, 40))
def test_schedules_are_filled_with_what_there_is(seed: int, jobs: int, capacity: int) -> None:
    rng = np.random.default_rng(seed)
    low, unit = rng.integers(1, 4, jobs), rng.integers(1, 3, jobs)
    high = low + rng.integers(0, 5, jobs)
    rank = np.where(rng.random(jobs) < 0.3, FRESH, WAITS + np.arange(jobs)).astype(np.uint16)
    offer = Offer(np.zeros((jobs, 9)), low, high, unit, rank, capacity)
    people = rng.integers(0, 9, (5, jobs))
    found = filled(people, offer, rng)
    runs = found > 0
    assert ((found * unit).sum(axis=1) <= capacity).all()
    assert (found[runs] >= np.broadcast_to(low, found.shape)[runs]).all()
    assert (found <= high).all()
    before = np.where(people >= low, np.minimum(people, high), 0)
    room = (np.maximum(before, low) * unit).sum(axis=1) <= capacity
    assert (found >= before)[room].all(), "nobody loses where there is room for all"
    grown = (found == high) | ~runs
    idle = capacity - (found * unit).sum(axis=1)
    assert (grown.all(axis=1) | (idle < jobs * unit.max())).all(), "what is left is odd pieces"


def test_who_never_ran_comes_before_who_waits_and_the_cheapest_of_those_first() -> None:
    one = np.ones(4, np.int64)
    rank = np.array([WAITS + 1, WAITS, FRESH, WAITS + 2], np.uint16)
    for capacity, least in ((1, [0, 0, 0, 1]), (2, [0, 0, 1, 1]), (3, [0, 1, 1, 1])):
        offer = Offer(np.zeros((4, 2)), one, one, one, rank, capacity)
        runs = filled(np.array([[0, 0, 0, 1]]), offer, np.random.default_rng(0))
        assert runs.tolist() == [least], "who runs goes on"


def test_a_population_follows_its_jobs() -> None:
    columns = np.array([[8, 9, 7], [1, 2, 3], [4, 5, 6]], "<i4")
    kept = Schedules([2, 5, 9], columns.tobytes(), due=0)
    limits, people = kept.of(np.array([1, 5, 9, 12]), 2)
    assert limits.tolist() == [0, 9, 7, 0]
    assert people.tolist() == [[0, 2, 3, 0], [0, 5, 6, 0]]
    assert not any(each.any() for each in Schedules().of(np.array([3]), 2))
