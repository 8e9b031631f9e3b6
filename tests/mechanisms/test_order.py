"""Keys of an order: one number per formula, and what is not known comes last."""

from __future__ import annotations

from math import inf, nan
from typing import Any

import pytest

from bench import Bench
from ganger.core.units import NEVER
from ganger.mechanisms.ordering.order import By
from worlds import job


@pytest.mark.parametrize(
    ("numbers", "key"),
    [((), ()), ((2.0,), (2.0,)), ((nan,), (inf,)), ((2.0, 1.0), (2.0, 1.0)),
     ((nan, 1.0), (inf, 1.0)), ((1.0, nan, 3.0), (1.0, inf, 3.0))],
)  # fmt: skip
def test_a_key_has_a_number_per_formula(numbers: tuple[float, ...], key: Any) -> None:
    view = Bench(job("a")).kernel.view
    formulas = tuple(lambda view, job, number=number: number for number in numbers)
    order = By(formulas)
    assert order.key(view, 0) == key
    assert order.until(view, 0) == NEVER
    assert order.passes(view, 0, 1.0) == NEVER
