"""Constraints, and Pareto fronts."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ganger.core.errors import BadInput
from ganger.core.tuning.goals import Constraint, feasible, front, read_constraint


@pytest.mark.parametrize(
    ("text", "metric", "bound", "least"),
    [
        ("latency <= 50ms", "latency", 0.05, False),
        ("params<=1e6", "params", 1e6, False),
        (" val/acc >= 0.9 ", "val/acc", 0.9, True),
        ("took <= 2m", "took", 120.0, False),
        ("loss >= -1.5E-3", "loss", -0.0015, True),
    ],
)
def test_a_constraint_is_read_and_written_again(
    text: str, metric: str, bound: float, least: bool
) -> None:
    found = read_constraint(text, "here")
    assert (found.metric, found.least) == (metric, least)
    assert found.bound == pytest.approx(bound)
    assert read_constraint(str(found), "here") == found


@pytest.mark.parametrize(
    "text", ["", "latency", "a < 3", "a <= ", "a == 1", "<= 1", "a<=1.2.3", "a<=1e999", "a b<=1",
             "a;b<=1", "a<=1 parsec", "a" * 129 + "<=1"],
)  # fmt: skip
def test_what_is_no_constraint_is_refused(text: str) -> None:
    with pytest.raises(BadInput, match="is not a valid constraint"):
        read_constraint(text, "here")


def test_a_bound_is_kept_at_the_bound_and_by_no_metric_that_is_missing() -> None:
    most, least = Constraint("a", 2.0), Constraint("b", 1.0, least=True)
    assert feasible((most, least), {"a": 2.0, "b": 1.0})
    assert not feasible((most, least), {"a": 2.1, "b": 1.0})
    assert not feasible((most, least), {"a": 2.0, "b": 0.9})
    assert not feasible((most,), {"a": math.nan})
    assert not feasible((most,), None)
    assert feasible((), None)


def test_a_front_by_hand() -> None:
    """Accuracy and latency: the second is beaten by the first, the fifth is as good as the
    first, and the sixth broke down."""
    points = [(0.9, 10.0), (0.8, 11.0), (0.7, 5.0), (0.95, 30.0), (0.9, 10.0), (math.nan, 1.0)]
    assert front(points, ["max", "min"]) == [0, 2, 3, 4]
    assert front([], ["min"]) == []


SMALL = st.integers(0, 3).map(float)


@given(st.lists(st.tuples(SMALL, SMALL, SMALL), max_size=12))
def test_a_front_is_what_nothing_dominates(points: list[tuple[float, ...]]) -> None:
    """As its definition says it."""

    def dominates(one: tuple[float, ...], other: tuple[float, ...]) -> bool:
        own = (one[0], -one[1], one[2])
        its = (other[0], -other[1], other[2])
        return own != its and all(a <= b for a, b in zip(own, its, strict=True))

    wanted = [
        at for at, each in enumerate(points) if not any(dominates(other, each) for other in points)
    ]
    assert front(points, ["min", "max", "min"]) == wanted
