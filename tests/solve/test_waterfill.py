"""Water-filling by hand, and against its definition."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from ganger.solve.waterfill import water_fill


def test_equal_jobs_share_equally() -> None:
    assert water_fill(100.0, np.ones(10), np.full(10, 100.0)).tolist() == [10.0] * 10


def test_one_capped_at_4_leaves_96_ninths_to_the_others() -> None:
    shares = water_fill(100.0, np.ones(10), np.array([4.0, *[100.0] * 9]))
    assert shares.tolist() == [4.0, *[96 / 9] * 9]


def test_weights() -> None:
    assert water_fill(12.0, np.array([1.0, 2, 3]), np.full(3, 100.0)).tolist() == [2.0, 4.0, 6.0]


def test_nobody_gets_more_than_the_cap_and_weight_0_gets_nothing() -> None:
    assert water_fill(12.0, np.array([1.0, 0.0]), np.full(2, 5.0)).tolist() == [5.0, 0.0]


@given(
    st.lists(st.tuples(st.floats(0.1, 10), st.floats(0.1, 50)), min_size=1, max_size=8),
    st.floats(0.5, 100),
)
def test_everybody_below_the_cap_stands_at_the_same_highest_level(
    jobs: list[tuple[float, float]], capacity: float
) -> None:
    weights, caps = np.array(jobs).T
    shares = water_fill(capacity, weights, caps)
    assert np.isclose(shares.sum(), min(capacity, caps.sum()))
    assert (shares <= caps + 1e-9).all()
    level = (shares / weights).max()
    below = shares < caps - 1e-9
    assert np.allclose((shares / weights)[below], level)
