"""Fleets: which devices serve, as lanes and stores."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from ganger.core.errors import BadInput
from ganger.core.serving.world import Lane, Store
from ganger.core.units import shown

MOST: Final = 100_000
_PART = re.compile(r"([A-Za-z0-9_. -]+?)\s*:\s*(\d{1,9})")
_MIB: Final = 1 << 20


@dataclass(frozen=True)
class Fleet:
    """How many devices of which type, in the order in which they were named."""

    devices: tuple[tuple[str, int], ...]

    def __str__(self) -> str:
        return "+".join(f"{name}:{count}" for name, count in self.devices)

    @property
    def size(self) -> int:
        """All devices."""
        return sum(count for _, count in self.devices)

    def lanes(
        self, memory: dict[str, int] | None, streams: int = 1
    ) -> tuple[list[Lane], list[Store]]:
        """So many lanes for each device; with `memory` (MiB by type) also a store and a lane that
        copies models into it."""
        types = [name for name, count in self.devices for _ in range(count)]
        lanes = [
            Lane(at, types[at // streams], device=at // streams)
            for at in range(len(types) * streams)
        ]
        if memory is None:
            return lanes, []
        for lane in lanes:
            lane.store = lane.device
        lanes += [
            Lane(len(lanes) + at, name, device=at, store=at, copies=True)
            for at, name in enumerate(types)
        ]
        return lanes, [Store(at, memory[name] * _MIB) for at, name in enumerate(types)]


def read_fleet(text: str) -> Fleet:
    """`T4:4` or `T4:4+L4:2`. Raises BadInput."""
    mend = "write TYPE:COUNT, like T4:4 or T4:4+L4:2"
    found: dict[str, int] = {}
    for part in text.split("+"):
        match = _PART.fullmatch(part.strip())
        if match is None:
            raise BadInput(f"{shown(part)} is not a part of a fleet", where="--fleet", mend=mend)
        name, count = match[1].strip(), int(match[2])
        if name in found:
            raise BadInput(f"{name} is named twice", where="--fleet", mend="add its counts up")
        found[name] = count
    if not 1 <= sum(found.values()) <= MOST:
        raise BadInput(f"{sum(found.values())} devices", where="--fleet", mend=f"give 1 to {MOST}")
    return Fleet(tuple((name, count) for name, count in found.items() if count))


def price_of(type_: str, prices: Mapping[str, float]) -> float:
    """Of a GPU for an hour. Raises BadInput where none is stated."""
    if type_ not in prices:
        raise BadInput(
            f"no price for {type_ or 'GPUs without a type'}",
            where="prices",
            mend="give the price of a GPU for an hour, for every type",
        )
    return prices[type_]
