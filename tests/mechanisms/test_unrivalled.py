"""When there is nothing to divide: everybody has all the time where it gains most."""

from __future__ import annotations

import numpy as np
import pytest

from ganger.mechanisms.rounds.program import unrivalled
from ganger.solve.division.programme import Shares


def posed(rate: list[list[float]], capacity: list[float]) -> Shares:
    """Jobs of two GPUs each, on as many types of GPUs."""
    jobs, types = len(rate), len(capacity)
    return Shares(
        np.array(rate), np.full(jobs, 2.0), np.array(capacity), np.ones(jobs), np.arange(types)
    )


@pytest.mark.parametrize(
    ("rate", "capacity", "expected"),
    [
        ([[3.0, 1.0], [1.0, 2.0]], [2.0, 2.0], [[1.0, 0.0], [0.0, 1.0]]),
        ([[3.0, 1.0], [2.0, 1.0]], [4.0, 0.0], [[1.0, 0.0], [1.0, 0.0]]),
        ([[3.0, 1.0], [2.0, 1.0]], [3.0, 9.0], None),
        ([[3.0, 3.0], [2.0, 1.0]], [4.0, 4.0], None),
        ([[3.0, 1.0], [0.0, 0.0]], [4.0, 4.0], None),
    ],
    ids=["apart", "room for both", "no room", "as good on either type", "gains nowhere"],
)
def test_all_have_what_is_best_for_them_where_there_is_room_and_no_other_answer(
    rate: list[list[float]], capacity: list[float], expected: list[list[float]] | None
) -> None:
    shares = posed(rate, capacity)
    found = unrivalled(shares, shares.rate)
    assert (None if found is None else found.tolist()) == expected
