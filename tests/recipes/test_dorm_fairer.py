"""Dorm's changes one by one, by hand: who gives containers up, and who gets them."""

from __future__ import annotations

import numpy as np
import pytest

from ganger.recipes.training.programmes.dorm import (
    Applications,
    _by_span,
    _each_alone,
    _each_cell,
    _fairer,
)
from ganger.solve.division.programme import Floats


def applications(
    each: list[float], now: list[int], least: list[int], most: list[int]
) -> Applications:
    """Jobs of one cell whose containers take a part of the GPUs and nothing else."""
    needs = np.zeros((len(each), 3))
    needs[:, 0] = each
    cell, weight = np.zeros(len(each), np.int64), np.ones(len(each))
    return Applications(needs, np.array(least), np.array(most), np.array(now), cell, weight)


def fairer(apps: Applications, fair: list[float], loss: float) -> list[int]:
    """What they have after the changes towards their fair shares."""
    got: list[int] = _fairer(apps, apps.now, np.array(fair), loss).tolist()
    return got


def test_who_is_above_its_share_keeps_its_least() -> None:
    """The first is three containers above its share and the second three below; only one of them
    is above the first's least of three."""
    apps = applications([0.125, 0.125], [4, 1], [3, 1], [8, 8])
    assert fairer(apps, [0.125, 0.5], 0.0) == [3, 2]
    apps = applications([0.125, 0.125], [4, 1], [1, 1], [8, 8])
    assert fairer(apps, [0.125, 0.5], 0.0) == [1, 4]


def test_what_nobody_can_take_is_given_up_where_that_mends_most() -> None:
    """The first is 1/8 of the cluster above its share, the second 1/2. The bound allows 1/8, so
    that the second's two containers are enough and the first keeps what it has."""
    apps = applications([0.125, 0.25], [4, 4], [1, 1], [8, 8])
    assert fairer(apps, [0.375, 0.5], 0.125) == [4, 2]
    assert fairer(apps, [0.375, 0.5], 0.0) == [3, 2]
    assert fairer(apps, [0.375, 0.5], 0.625) == [4, 4]


def test_the_widest_span_is_dealt_to_first_and_of_equals_the_furthest_off() -> None:
    span, off = np.array([2, 3, 3]), np.array([0.9, 0.1, 0.5])
    assert [_by_span(span, off, amount).tolist() for amount in (2, 4, 7, 9)] == [
        [0, 0, 2],
        [0, 1, 3],
        [1, 3, 3],
        [2, 3, 3],
    ]


@pytest.mark.parametrize(("now", "least", "most"), [(1, 2, 4), (5, 2, 4)])
def test_a_job_outside_its_bounds_is_left_to_the_programme(now: int, least: int, most: int) -> None:
    room: Floats = np.array([[1.0, 1.0, 1.0]])
    inside = applications([0.125, 0.125], [2, 2], [2, 1], [4, 4])
    assert _each_cell(inside, room, np.array([0.5, 0.5])) is not None
    apps = applications([0.125, 0.125], [now, 2], [least, 1], [most, 4])
    assert _each_cell(apps, room, np.array([0.5, 0.5])) is None


def test_who_has_its_most_is_no_doubt_where_a_thousand_wait() -> None:
    """What a change by one would gain it is never asked for."""
    apps = applications([0.002] * 1200, [1] + [0] * 1199, [1] * 1200, [1] * 1200)
    best = _each_alone(apps, np.full((1, 3), 3.0))
    assert best is not None
    assert best.tolist() == [1] * 1200
