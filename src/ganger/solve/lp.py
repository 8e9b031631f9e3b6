"""Linear programmes by HiGHS' dual simplex: one thread, no random start, no clock."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linprog

Floats = NDArray[np.float64]

_INFEASIBLE = 2


class Solution(NamedTuple):
    """An optimal vertex. `duals[r]`: what one more unit of `limits[r]` would gain, never < 0."""

    x: Floats
    value: float
    duals: Floats


def maximise(
    gain: Floats, rows: Any, limits: Floats, upper: Floats | None = None
) -> Solution | None:
    """The x with the largest `gain @ x` under `rows @ x <= limits` and `0 <= x <= upper`.

    `rows` may be dense or sparse. None if no x is feasible; ArithmeticError if the solver gives
    up or the programme is unbounded.
    """
    above = np.full(len(gain), np.inf) if upper is None else upper
    bounds: Any = np.column_stack([np.zeros(len(gain)), above])
    result: Any = linprog(-gain, rows, limits, bounds=bounds, method="highs-ds")
    if result.status == _INFEASIBLE:
        return None
    if result.status:
        raise ArithmeticError(f"linear programme: {result.message}")
    return Solution(
        np.maximum(np.asarray(result.x), 0.0),
        -float(result.fun),
        np.maximum(-np.asarray(result.ineqlin.marginals), 0.0),
    )
