"""Water-filling: divide one divisible good by weight, nobody above its cap."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def water_fill(capacity: float, weights: Floats, caps: Floats) -> Floats:
    """Weighted max-min shares: `min(caps, weights * level)` with the level that uses `capacity`.

    Exact: the level is solved for between two caps, not searched for. Those of weight 0 get
    nothing. If all caps together are within `capacity`, everybody gets the cap.
    """
    shares = np.zeros(len(weights))
    able = np.flatnonzero(weights > 0)
    if caps[able].sum() <= capacity:
        shares[able] = caps[able]
        return shares
    fills_at = caps[able] / weights[able]
    order = able[np.argsort(fills_at, kind="stable")]
    capped = np.concatenate([[0.0], np.cumsum(caps[order])[:-1]])
    above = np.cumsum(weights[order][::-1])[::-1]
    levels = (capacity - capped) / above
    first = int(np.argmax(levels < caps[order] / weights[order]))
    level = levels[first]
    shares[order[:first]] = caps[order[:first]]
    shares[order[first:]] = weights[order[first:]] * level
    return shares
