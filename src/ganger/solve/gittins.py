"""The Gittins index of a job whose size is drawn from an empirical distribution."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def gittins_index(sizes: Floats, age: float, step: float | None = None) -> float:
    """sup_D P(S - a <= D | S > a) / E[min(S - a, D) | S > a] at age a; `sizes` ascending.

    The supremum is reached at one of the sizes. `step`: that D alone, as the public Tiresias
    simulator does. 0 where no size exceeds the age.
    """
    left = sizes[np.searchsorted(sizes, age, "right") :] - age
    n = len(left)
    if not n:
        return 0.0
    if step is not None:
        return float(np.count_nonzero(left <= step) / np.minimum(left, step).sum())
    done = np.searchsorted(left, left, "right")
    spent = np.cumsum(left)[done - 1] + (n - done) * left
    return float((done / spent).max())
