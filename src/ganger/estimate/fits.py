"""The curve fitted to what has been observed of the loss over steps (Optimus, EuroSys 2018, section
3.1), by non-negative least squares. Pure and deterministic.
"""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar, nnls

from ganger.core.errors import BadInput

Floats = NDArray[np.floating[Any]]


class LossCurve(msgspec.Struct, frozen=True):
    """Loss after k steps (or epochs): 1 / (b0 k + b1) + b2, all non-negative."""

    b0: float
    b1: float
    b2: float

    def at(self, k: Any) -> Floats:
        """The loss after `k` steps; infinite where the curve says so."""
        with np.errstate(divide="ignore"):
            return np.asarray(1.0 / (self.b0 * np.asarray(k, np.float64) + self.b1) + self.b2)

    def steps_until(self, change: float, window: int = 1) -> int:
        """The first k from which the loss falls by less than `change`, as a share of the loss at
        the first step, over `window` steps: Optimus' convergence (0.05 over 10 epochs)."""
        if not self.b0:
            return 0
        scale = float(self.at(1)) * change
        low, high = 0, 1
        while self._fall(high, window) >= scale:
            high *= 2
        while low < high:
            k = (low + high) // 2
            low, high = (k + 1, high) if self._fall(k, window) >= scale else (low, k)
        return low

    def _fall(self, k: int, window: int) -> float:
        return float(self.at(max(k, 0.5)) - self.at(k + window))


def fit_loss(steps: Floats, losses: Floats) -> LossCurve:
    """The non-negative curve nearest to `losses` after `steps`.

    For a given b2, 1 / (loss - b2) is linear in k; b2 itself is searched between 0 and the lowest
    loss. Raises BadInput below three points.
    """
    steps, losses = np.asarray(steps, np.float64), np.asarray(losses, np.float64)
    if len(steps) < 3:
        raise BadInput(f"{len(steps)} losses", mend="a loss curve needs three points")
    lowest = float(losses.min())

    def given(b2: float) -> tuple[float, float, float]:
        """b0, b1 and the squared error of the loss itself, with weights that undo 1/x."""
        above = losses - b2
        weight = above**2
        rows = np.stack([steps, np.ones_like(steps)], axis=1) * weight[:, None]
        (b0, b1), _ = nnls(rows, above)
        with np.errstate(divide="ignore"):
            error = 1.0 / (b0 * steps + b1) - above
        return float(b0), float(b1), float(np.minimum(error**2, 1e300).sum())

    ceiling = lowest * (1.0 - 1e-9)
    grid = np.linspace(0.0, ceiling, 65)
    errors = [given(b2)[2] for b2 in grid.tolist()]
    near = int(np.argmin(errors))
    bounds = float(grid[max(near - 1, 0)]), float(grid[min(near + 1, 64)])
    found = minimize_scalar(
        lambda b2: given(float(b2))[2], bounds=bounds, method="bounded", options={"xatol": 1e-12}
    )
    b2 = float(found.x) if float(found.fun) < errors[near] else float(grid[near])
    b0, b1, _ = given(b2)
    return LossCurve(b0, b1, b2)
