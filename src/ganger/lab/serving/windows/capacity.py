"""What a fleet keeps up with under a recipe, from a short run of more than that."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

import numpy as np

from ganger.lab.serving.windows.table import LEAST
from ganger.workloads.requests.columns import Chunk, Requests

_OVERLOAD: Final = 1.5
"""Requests come so many times as fast as any recipe could answer them."""


def capacity_of(
    requests: Requests,
    cost: Callable[[str], float],
    answered: Callable[[Requests, float], tuple[dict[str, float], float]],
) -> float:
    """The part of all devices that is the least that the answers of an overloaded second need.

    `cost`: of a name, the microseconds that an item needs of all devices together at least;
    `answered`: serves some requests that come so many times as fast, and gives by name what part of
    them was answered, and in how many microseconds. Raises BadInput.
    """
    some = _first(requests, LEAST)
    rows = some.gather()
    if not len(rows):
        return 1.0
    items = np.ones(len(rows)) if rows.items is None else rows.items.astype(np.float64)
    work = np.bincount(rows.model, items)
    by_name = {
        requests.models[code]: float(work[code]) * cost(requests.models[code])
        for code in np.flatnonzero(work).tolist()
    }
    whole, span = sum(by_name.values()), int(rows.arrival[-1] - rows.arrival[0])
    if not whole or not span:
        return 1.0
    parts, took = answered(some, max(_OVERLOAD * span / whole, 1e-9))
    done = sum(work * parts.get(name, 0.0) for name, work in by_name.items())
    return max(done / took, 1e-9) if took else 1.0


def _first(requests: Requests, count: int) -> Requests:
    """So many of the requests."""

    def produce(some: Requests) -> Iterator[Chunk]:
        missing = count
        for chunk in requests.chunks(count):
            some.remarks = requests.remarks
            yield chunk.take(slice(0, missing))
            missing -= len(chunk)
            if missing <= 0:
                return

    return Requests(produce, requests.name, requests.source, requests.models, requests.tenants)
