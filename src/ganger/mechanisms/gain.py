"""Marginal gain: who profits most from the next GPU. Curves in, sizes out.

A curve is an array of throughputs at 1, 2, ... GPUs; `work` is what is left, in the unit that
throughput counts. All rules give every job its least first, shortest job first.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Curve = NDArray[np.float64]


def greedy(
    curves: Sequence[Curve], work: Sequence[float], capacity: int, least: Sequence[int]
) -> list[int]:
    """Sizes by Optimus' rule (EuroSys 2018, section 4.1): each next GPU goes to the job whose
    predicted remaining time falls most; none is given where nothing falls."""
    sizes = _start(curves, work, capacity, least)
    left = capacity - sum(sizes)
    while left:
        gains = [
            work[i] / curve[n - 1] - work[i] / curve[n] if 0 < n < len(curve) else 0.0
            for i, (curve, n) in enumerate(zip(curves, sizes, strict=True))
        ]
        best = int(np.argmax(gains)) if gains else -1
        if best < 0 or gains[best] <= 0:
            return sizes
        sizes[best] += 1
        left -= 1
    return sizes


def _start(
    curves: Sequence[Curve], work: Sequence[float], capacity: int, least: Sequence[int]
) -> list[int]:
    """Everybody's least, those with the least work first, while there is room."""
    sizes = [0] * len(curves)
    for i in sorted(range(len(curves)), key=lambda i: (work[i], i)):
        if least[i] <= capacity:
            sizes[i] = least[i]
            capacity -= least[i]
    return sizes
