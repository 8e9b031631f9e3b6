"""Fleets: which devices serve, as lanes and stores."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from ganger.core.errors import BadInput
from ganger.core.serving.router import Router
from ganger.core.serving.world import Known, Lane, Store
from ganger.core.units import HOUR, SECOND, shown
from ganger.lab.serving.tokens import apart, rooms_of
from ganger.workloads.models.profiles import Models

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


def give_caches(
    lanes: Sequence[Lane], known: Sequence[Known], models: Models, router: Router
) -> None:
    """Tell lanes how much room they have for caches of token models. Raises BadInput where lanes of
    a device would share one, or models are loaded into it."""
    rooms = rooms_of(models, [lane.type for lane in lanes])
    for lane in lanes:
        if not any(lane.type in each.tokens for each in known):
            continue
        if router.can.streams > 1 or lane.store >= 0:
            raise BadInput(
                f"{router.name} cannot share the memory of {lane.type} with the caches of token"
                " models",
                where=router.name,
                mend="use another recipe, or devices on which all models fit",
            )
        lane.cache = rooms.get(lane.type, -1)


def memory_of(
    known: Sequence[Known], models: Models, fleet: Fleet, router: Router
) -> dict[str, int] | None:
    """MiB by type where memory is watched: where all sizes are stated and not all models fit.
    Raises BadInput where the recipe cannot load models."""
    sizes = {name: models.devices.get(name, 0) for name, _ in fleet.devices}
    there = [model.bytes for model in known if model.latencies]
    need = sum(there)
    if not all(sizes.values()) or not all(there):
        return None
    tight = [name for name, mib in sizes.items() if mib << 20 < need]
    if not tight:
        return None
    most = max(sizes.values())
    for model in known:
        if model.bytes > most << 20:
            raise BadInput(
                f"{model.name!r} needs {model.bytes / (1 << 30):.2f} GiB, and no device of {fleet}"
                " has so much",
                where=models.source,
                mend="leave it out, or take a larger device",
            )
    if not router.can.loads:
        raise BadInput(
            f"the models need {need / (1 << 30):.2f} GiB, {tight[0]} has"
            f" {sizes[tight[0]] / 1024:.2f}",
            where=router.name,
            mend="use a recipe that loads models, such as clockwork or cache.lru, or give it a"
            " cache, as in serve.triton(cache=lru)",
        )
    return sizes


def check_beside(known: Sequence[Known], fleet: Fleet, router: Router) -> None:
    """Complain where nobody measured what batches beside each other take. Raises BadInput."""
    for model in known:
        for type_, share in model.latencies:
            if (type_, share) not in model.beside:
                raise BadInput(
                    f"{router.name} runs batches beside each other, and what that costs"
                    f" {model.name!r} on {type_} is not known",
                    where=str(fleet),
                    mend="add `beside` to its latency in the models file",
                )


def billed(
    metrics: dict[str, float | int | None], fleet: Fleet, prices: Mapping[str, float]
) -> dict[str, float | int | None]:
    """The same with `cost`: of all devices for as long as the run was, and that of a million
    requests in time. Raises BadInput where a type has no price."""
    if not prices:
        return metrics
    cost = 0.0
    for name, count in fleet.devices:
        together, device = apart(name)
        price = prices[name] if name in prices else together * price_of(device, prices)
        cost += price * count * (metrics["span_seconds"] or 0.0) * SECOND / HOUR
    in_time = (metrics["answered"] or 0) - (metrics["late"] or 0)
    return {
        **metrics,
        "cost": cost,
        "cost_per_million_in_time": cost / in_time * 1e6 if in_time else None,
    }
