"""Jobs whose numbers are all equal are one class: solved once, with as many machines each.

Exact, for the programmes are convex and do not tell such jobs apart: the mean over the members of
a solution is a solution that treats them alike.
"""

from __future__ import annotations

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
    flat = [part for column in columns for part in (column.T if column.ndim == 2 else [column])]
    weights = np.random.default_rng(0).random(len(flat))
    mixed = np.zeros(len(columns[0]))
    for weight, part in zip(weights, flat, strict=True):
        mixed += weight * part
    found = _grouped(mixed)
    if len(found.first) < len(mixed) and not all(
        np.array_equal(part, part[found.first][found.of]) for part in flat
    ):
        return _grouped(np.unique(np.column_stack(flat), axis=0, return_inverse=True)[1])
    return found


def _grouped(keys: NDArray[np.float64] | Ints) -> Classes:
    _, first, of, count = np.unique(
        keys, return_index=True, return_inverse=True, return_counts=True
    )
    order = np.argsort(first)
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order))
    return Classes(first[order], rank[of.ravel()], count[order].astype(np.float64))
