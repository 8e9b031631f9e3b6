"""Iterations in turn: who is in which lane, what memory that needs, and how fast it is."""

from __future__ import annotations

from itertools import chain

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ganger.core.profiles import Memory
from ganger.estimate.sharing.lanes import IterationLane, needed, seated, speeds
from ganger.estimate.sharing.rates import Tenant

SALUS = Memory(2000, 6000)


def test_the_cards_five_jobs_share_a_lane_and_a_sixth_does_not_fit() -> None:
    assert seated([SALUS] * 5, 16_000, 4) == ((0, 1, 2, 3, 4),)
    assert seated([SALUS] * 6, 16_000, 4) is None
    assert seated([SALUS] * 2, 16_000, 4) == ((0,), (1,))
    assert seated([SALUS] * 2, 16_000, 1) == ((0, 1),)
    assert seated([], 16_000, 4) is None


def test_jobs_that_need_most_within_an_iteration_are_together() -> None:
    """1 + 1 for two lanes of the large and the small ones; any other way needs more."""
    mixed = [Memory(0, need) for need in (900, 100, 800, 200)]
    assert seated(mixed, 1100, 2) == ((0, 2), (3, 1))
    assert seated(mixed, 1099, 2) == ((0, 2, 3, 1),)
    assert needed([[mixed[0], mixed[2]], [mixed[1], mixed[3]]]) == 1100


def test_speeds_in_lanes_by_hand() -> None:
    """0.4 and 0.8 in equal turns use 0.6; beside one that requests half of the GPU a lane of 0.6
    has 0.5."""
    lane = IterationLane((0.4, 0.8), (1.0, 1.0))
    assert lane.shares == (0.5, 0.5)
    assert lane.demand == pytest.approx(0.6)
    assert speeds([lane]) == (((0.5, 0.5),), ())
    ours, theirs = speeds([lane], [Tenant(1.0, 0.5)])
    assert ours[0] == pytest.approx((0.5 * 0.5 / 0.6,) * 2)
    assert theirs == pytest.approx((0.5,))
    assert speeds([IterationLane((0.4,), (0.0,))])[0] == ((0.0,),)


@given(
    st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50)), min_size=1, max_size=12),
    st.integers(1, 300),
    st.integers(1, 5),
)
def test_everybody_has_one_seat_and_memory_suffices(
    drawn: list[tuple[int, int]], size: int, most: int
) -> None:
    memories = [Memory(*each) for each in drawn]
    seats = seated(memories, size, most)
    in_one = sum(keeps for keeps, _ in drawn) + max(takes for _, takes in drawn)
    assert (seats is None) == (in_one > size), "who does not fit in one lane fits nowhere"
    if seats is not None:
        assert sorted(chain(*seats)) == list(range(len(drawn)))
        assert len(seats) <= most
        assert needed([[memories[at] for at in lane] for lane in seats]) <= size
        sizes = [len(lane) for lane in seats]
        assert max(sizes) - min(sizes) <= 1


@given(
    st.lists(
        st.lists(st.tuples(st.integers(1, 10), st.integers(0, 4)), min_size=1, max_size=4),
        min_size=1,
        max_size=4,
    )
)
def test_no_more_of_a_gpu_is_used_than_there_is_and_of_a_lane_one_job_at_a_time(
    drawn: list[list[tuple[int, int]]],
) -> None:
    lanes = [
        IterationLane(tuple(d / 10 for d, _ in lane), tuple(float(t) for _, t in lane))
        for lane in drawn
    ]
    ours, _ = speeds(lanes)
    assert all(sum(rates) <= 1 + 1e-9 for rates in ours)
    used = sum(
        d * rate
        for lane, rates in zip(lanes, ours, strict=True)
        for d, rate in zip(lane.demands, rates, strict=True)
    )
    assert used <= 1 + 1e-9
