"""Spaces of hyper-parameters: values, points, grids, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ganger.core.errors import BadInput
from ganger.core.tuning.space import Parameter, Point, Space

LR = Parameter(low=1e-4, high=1e-1, log=True)
LAYERS = Parameter(type="integer", low=1, high=4)
UNITS = Parameter(type="integer", low=16, high=1024, log=True)
OPTIMIZER = Parameter(type="choice", values=("sgd", "adam"))
MOMENTUM = Parameter(low=0.0, high=0.9, when={"optimizer": ("sgd",)})
SPACE = Space(
    {"lr": LR, "layers": LAYERS, "units": UNITS, "optimizer": OPTIMIZER, "momentum": MOMENTUM}
)
units = st.floats(0, 1, exclude_max=True)


def test_a_value_on_each_scale() -> None:
    assert LR.value(0.5) == pytest.approx(10**-2.5)
    assert [LAYERS.value(unit) for unit in (0, 0.24, 0.26, 0.74, 0.76, 0.999)] == [1, 1, 2, 3, 4, 4]
    assert (UNITS.value(0.0), UNITS.value(0.9999999)) == (16, 1024)
    assert [OPTIMIZER.value(unit) for unit in (0, 0.49, 0.5, 0.99)] == ["sgd"] * 2 + ["adam"] * 2


def test_each_integer_of_a_range_is_as_likely() -> None:
    drawn = [LAYERS.value(at / 1000) for at in range(1000)]
    assert [drawn.count(each) for each in (1, 2, 3, 4)] == [250] * 4


@given(st.lists(units, min_size=5, max_size=5))
def test_every_point_lies_in_the_space_and_has_only_what_matters(places: list[float]) -> None:
    point = SPACE.point(places)
    assert SPACE.holds(point)
    assert ("momentum" in point) == (point["optimizer"] == "sgd")
    assert SPACE.check(point, "here") == point
    back = SPACE.units(point)
    assert all(-1e-9 <= unit <= 1 + 1e-9 for unit in back)
    assert back[0] == pytest.approx(places[0])


def test_what_is_missing_or_outside_is_not_in_the_space() -> None:
    good: Point = {"lr": 0.01, "layers": 2, "units": 64, "optimizer": "sgd", "momentum": 0.5}
    assert SPACE.holds(good)
    wrong: list[dict[str, Any]] = [
        {"lr": 0.2},
        {"lr": "0.01"},
        {"layers": 2.5},
        {"layers": True},
        {"optimizer": "lamb"},
        {"momentum": 0.95},
    ]
    for change in wrong:
        assert not SPACE.holds(good | change), change
    del good["momentum"]
    assert not SPACE.holds(good)
    assert SPACE.holds(good | {"optimizer": "adam"})


def test_a_grid_has_each_combination_once_and_the_last_parameter_fastest() -> None:
    space = Space(
        {
            "a": Parameter(low=0, high=1, grid=3),
            "o": OPTIMIZER,
            "momentum": Parameter(low=0, high=1, grid=2, when={"o": ("sgd",)}),
        }
    )
    assert [tuple(point.values()) for point in space.grid()] == [
        (a, *rest) for a in (0.0, 0.5, 1.0) for rest in (("sgd", 0.0), ("sgd", 1.0), ("adam",))
    ]
    assert LR.steps() == pytest.approx([1e-4, 10**-3.25, 10**-2.5, 10**-1.75, 1e-1])
    assert LAYERS.steps() == [1, 2, 3, 4]
    assert UNITS.steps() == [16, 45, 128, 362, 1024]
    assert Parameter(low=0, high=4, grid=1).steps() == [2.0]


def test_a_point_near_another_differs_by_a_fifth_or_is_drawn_anew() -> None:
    space = Space({"lr": LR, "o": OPTIMIZER})
    rng = np.random.default_rng(0)
    near = [space.near({"lr": 0.01, "o": "sgd"}, rng) for _ in range(400)]
    steps = [point["lr"] for point in near if point["lr"] in (0.01 * 0.8, 0.01 * 1.2)]
    assert 0.65 < len(steps) / 400 < 0.85
    assert 0.4 < steps.count(0.01 * 0.8) / len(steps) < 0.6
    assert all(space.holds(point) for point in near)
    assert LR.beside(0.095, up=True) == 0.1
    assert [LAYERS.beside(value, up=True) for value in (1, 3, 4)] == [1, 4, 4]


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({}, "space: it has no parameter"),
        ({"a": {"low": 2, "high": 1}}, "space: a: from 2 to 1"),
        ({"a": {"low": 0, "high": 1, "log": True}}, "space: a: low: low is 0 on a logarithmic"),
        ({"a": {"low": 0, "high": float("nan")}}, "space: a: from 0 to nan"),
        ({"a": {"low": -1e308, "high": 1.7e308}}, "beyond what numbers can tell"),
        ({"a": {"low": 5e-324, "high": 1e300, "log": True}}, "beyond what numbers can tell"),
        (
            {"a": {"low": 1e300, "high": 1.0000000000000002e300, "log": True}},
            "beyond what numbers can tell",
        ),
        ({f"p{at}": {} for at in range(1001)}, "space: 1,001 parameters (use at most 1,000)"),
        ({"a": {"type": "choice"}}, "space: a: values: its values are missing"),
        ({"a": {"type": "choice", "values": (1, 1)}}, "listed twice"),
        ({"a": {"type": "choice", "values": (1,), "log": True}}, "a choice has no scale"),
        ({"a": {"values": (1, 2)}}, "values of a parameter of type 'real'"),
        ({"a": {"type": "integer", "low": 0.5, "high": 2}}, "an end is not an integer"),
        ({"a": {"grid": -1}}, "space: a: grid: it is out of range"),
        ({"a": {"when": {"b": (1,)}}}, "'b' is not a parameter listed before"),
        ({"b": {}, "a": {"when": {"b": (7.0,)}}}, "space: a: when: b never has 7.0"),
        ({"b": {}, "a": {"when": {"b": ()}}}, "it names no value"),
    ],
)
def test_what_no_space_can_have_is_refused(parameters: dict[str, Any], message: str) -> None:
    with pytest.raises(BadInput) as refused:
        Space({name: Parameter(**each) for name, each in parameters.items()})
    assert message in str(refused.value)


@pytest.mark.parametrize(
    ("parameters", "steps", "size"),
    [(3, 101, "1,030,301"), (1, 100_000, ""), (1, 100_001, "100,001"), (19, 2, "524,288"),
     (1000, 100_000, r"more than 10\^15")],
)  # fmt: skip
def test_a_grid_that_is_too_large_is_refused(parameters: int, steps: int, size: str) -> None:
    """Its points, and the values of all points together; a size of 5,000 digits is not printed."""
    space = Space({f"p{at}": Parameter(grid=min(steps, 100_000)) for at in range(parameters)})
    if steps > 100_000:
        space = Space({"p": Parameter(type="choice", values=tuple(range(steps)))})
    if not size:
        assert len(space.grid()) == steps
        return
    with pytest.raises(BadInput, match=f"a grid of {size} points"):
        space.grid()


@pytest.mark.parametrize(
    ("point", "message"),
    [
        ({"x": 1}, "p: x: there is no such parameter"),
        ({"lr": 0.01}, "p: layers is missing"),
        ({"lr": 1.0}, "p: lr: 1.0 is not in the space"),
    ],
)
def test_a_point_that_is_not_in_the_space_is_refused(point: Any, message: str) -> None:
    with pytest.raises(BadInput) as refused:
        SPACE.check(point, "p")
    assert message in str(refused.value)
