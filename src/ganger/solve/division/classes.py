"""Jobs whose numbers are all equal are one class: solved once, with as many machines each.

Exact, for the programmes are convex and do not tell such jobs apart: the mean over the members of
a solution is a solution that treats them alike.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


class Classes(NamedTuple):
    """`first[c]` is a member of class c, `of[i]` the class of i, `size[c]` its size."""

    first: Ints
    of: Ints
    size: Floats


def classes(columns: list[Floats]) -> Classes:
    """Which rows are equal in all `columns`, each (n,) or (n, m); in order of first member."""
    flat = np.concatenate([part.T if part.ndim == 2 else part[None] for part in columns])
    mixed = np.add.reduce(_weights(len(flat)) * flat, axis=0)
    found = _grouped(mixed)
    if len(found.first) < len(mixed) and not (flat[:, found.first[found.of]] == flat).all():
        return _grouped(np.unique(flat.T, axis=0, return_inverse=True)[1])
    return found


@lru_cache(maxsize=64)
def _weights(count: int) -> Floats:
    return np.random.default_rng(0).random((count, 1))


def _grouped(keys: NDArray[np.float64] | Ints) -> Classes:
    _, first, of, count = np.unique(
        keys, return_index=True, return_inverse=True, return_counts=True
    )
    order = np.argsort(first)
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order))
    return Classes(first[order], rank[of.ravel()], count[order].astype(np.float64))
