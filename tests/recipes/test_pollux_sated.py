"""Where there is room for everybody, each rule gives what it would have given by going through."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ganger.core.units import HOUR
from ganger.mechanisms.sizing.elastic import (
    Classes,
    Market,
    Rule,
    by_afs,
    by_attained_afs,
    by_greedy,
    by_total,
    until_sated,
)
from ganger.mechanisms.sizing.marginal_gain import exact
from ganger.mechanisms.sizing.resizing import asked, by_least_loss, by_levels, held, into_idle

WIDTH = 6


@st.composite
def markets(draw: st.DrawFn) -> tuple[Any, Market]:
    """Up to six jobs with curves that rise, rest and rise again, some of whom run."""
    rows = []
    for _ in range(draw(st.integers(1, 4))):
        least = draw(st.integers(1, 3))
        most = draw(st.integers(least, WIDTH))
        steps = draw(st.lists(st.sampled_from([0.0, 0.25, 1.0]), min_size=WIDTH, max_size=WIDTH))
        speed = 1.0 + np.cumsum([0.0, *steps[1:]])
        speed[most:] = speed[most - 1]
        rows.append([least, most, draw(st.sampled_from([1, 1, 2])), *speed])
    of = np.array(draw(st.lists(st.integers(0, len(rows) - 1), min_size=1, max_size=6)))
    classes = Classes(np.array(rows), draw(st.integers(6, 60)))
    ids, curves = np.arange(len(of)), classes.curves
    steps = [draw(st.integers(0, int(curves.most[kind]))) for kind in of.tolist()]
    sizes = np.where(np.array(steps) >= curves.least[of], steps, 0) * curves.units[of]
    left = np.array(draw(st.lists(st.integers(1, 9), min_size=len(of), max_size=len(of)))) * 1e9
    jobs = SimpleNamespace(
        size=sizes, gpus=curves.least[of] * curves.units[of], first_start=np.full(len(of), -1)
    )
    view: Any = SimpleNamespace(
        jobs=jobs, now=10 * HOUR, remaining=lambda ids: left[ids], attained=lambda ids: left[ids]
    )
    market = Market(view, ids, classes, of)
    if not market.has_room(held(view, market)):
        jobs.size = np.zeros(len(of), np.int64)
    return view, market


def plainly_by_total(view: Any, market: Market) -> Any:
    """The programme itself."""
    speed = market.curves.speed
    return exact(market.curves._replace(speed=speed / speed[:, :1]), market.capacity)[0]


LEVELS = by_levels((HOUR,), 2)


@pytest.mark.parametrize(
    ("rule", "whole"),
    [
        (until_sated(by_greedy), by_greedy),
        (until_sated(by_afs), by_afs),
        (until_sated(by_attained_afs), by_attained_afs),
        (by_total, plainly_by_total),
        (until_sated(by_least_loss, held), by_least_loss),
        (until_sated(into_idle), into_idle),
        (until_sated(LEVELS, asked), LEVELS),
    ],
    ids=["greedy", "afs", "attained", "total", "least-loss", "idle", "levels"],
)
def test_the_short_way_ends_where_the_long_one_does(rule: Rule, whole: Rule) -> None:
    seen = []

    @given(markets())
    def agree(case: tuple[Any, Market]) -> None:
        view, market = case
        sizes = whole(view, market)
        assert rule(view, market).tolist() == sizes.tolist()
        seen.append(market.has_room(market.grown(market.least)))

    agree()
    assert any(seen)
    assert not all(seen)


def test_what_is_said_of_a_curve_is_worked_out_once_by_class() -> None:
    classes = Classes(np.array([[1, 2, 1, 1.0, 1.5], [1, 2, 1, 1.0, 1.0]]), 8)
    asked: list[int] = []

    def rule(curves: Any) -> Any:
        asked.append(len(curves.least))
        return curves.most

    of: Callable[[Any], Any] = np.array
    for _ in range(3):
        market = Market(SimpleNamespace(), of([0, 1, 2]), classes, of([0, 1, 1]))  # type: ignore[arg-type]
        assert market.each(rule).tolist() == [2, 2, 2]
        assert market.grown(market.least).tolist() == [2, 1, 1]
    assert asked == [2]
