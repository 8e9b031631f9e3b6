"""What machines draw: by type of GPU, idle and under load, and by node."""

from __future__ import annotations

from typing import Final, NamedTuple

from ganger.core.spec import GpuType, NodeSpec

ASSUMED_WATTS: Final = 300.0
"""Of a GPU at full load, of a type of which nobody states it."""
ASSUMED_IDLE: Final = 0.15
"""The part of its watts at full load that an idle GPU draws, where nobody states it."""
ASSUMED_HOST: Final = 200.0
"""Watts of a node beside its GPUs, where nobody states them."""


class Watts(NamedTuple):
    """What one kind of machine draws under load and idle, and where the two figures come from:
    `card` (the maker of the board), `measured`, `stated` (by the cluster file) or `assumed`."""

    what: str
    load: float
    idle: float
    load_from: str
    idle_from: str


def watts_of(gpu: GpuType) -> Watts:
    """What a GPU of a type draws."""
    load, source = (gpu.watts, gpu.watts_from) if gpu.watts > 0 else (ASSUMED_WATTS, "assumed")
    if gpu.idle_watts >= 0:
        return Watts(gpu.name, load, min(gpu.idle_watts, load), source, gpu.watts_from)
    return Watts(gpu.name, load, ASSUMED_IDLE * load, source, "assumed")


def idle_watts(group: NodeSpec, kind: Watts) -> float:
    """Watts of a node of a group, with GPUs of that kind, on which nothing computes."""
    return (ASSUMED_HOST if group.watts < 0 else group.watts) + group.gpus * kind.idle
