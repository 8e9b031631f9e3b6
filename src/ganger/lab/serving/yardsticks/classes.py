"""What no recipe can exceed for one class of requests: the bound as if nobody else asked.

Requests that are left out take nothing from the others, so what can be in time of a class alone is
never less than what can be of it beside others. All classes together may not reach what each may.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from ganger.core.serving.world import World
from ganger.core.units import NEVER, SECOND
from ganger.lab.serving.yardsticks.bound import Bound, Bounding, Columns, asked_of
from ganger.lab.serving.yardsticks.rates import Rates


class ClassKey(NamedTuple):
    """What requests of a class have in common: what they ask for, the tenant (None: any), and the
    microseconds until their deadline (NEVER: none; None: any)."""

    asked: str
    tenant: str | None
    slo: int | None


def keys_of(rows: Sequence[Mapping[str, Any]]) -> list[ClassKey]:
    """Of rows of `Classes`."""
    dated = any(row["slo_seconds"] is not None for row in rows)
    return [
        ClassKey(
            row["model"],
            row["tenant"],
            (NEVER if row["slo_seconds"] is None else round(row["slo_seconds"] * SECOND))
            if dated
            else None,
        )
        for row in rows
    ]


def bounded_by_class(
    chunks: Iterator[Columns],
    rates: Rates,
    world: World,
    classes: Collection[ClassKey],
    *,
    coarse: bool = False,
    begins: int = 0,
) -> tuple[Bound, dict[ClassKey, Bound]]:
    """Of all requests together, as `bounded`, and of each class alone."""
    every = Bounding(rates, coarse=coarse, begins=begins)
    alone = {key: Bounding(rates, coarse=coarse, begins=begins) for key in classes}
    codes = {world.asked(at): at for at in range(len(world.variants))}
    for chunk in chunks:
        asked = asked_of(chunk, every.requests)
        every.add(asked)
        tenant = np.array(chunk.get("tenant", [0] * len(asked.arrival)), np.int64)
        slo = np.where(asked.due < NEVER, asked.due - asked.arrival, NEVER)
        for key, bounding in alone.items():
            rows = asked.model == codes[key.asked]
            if key.tenant is not None:
                rows &= tenant == world.tenants.index(key.tenant)
            if key.slo is not None:
                rows &= slo == key.slo
            bounding.add(asked.take(rows))
    return every.bound(), {key: bounding.bound() for key, bounding in alone.items()}
