"""How a model's speed and its power change with the clocks of its GPUs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from ganger.core.spec import GpuType

CORE_MHZ: Final = "core_mhz"
MEMORY_MHZ: Final = "memory_mhz"
"""Knobs of a Tune: the clocks of the GPUs that the attempt holds, from then on. A new attempt runs
at full clocks."""


class Clocks(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """With the multiprocessors at a part `core` of their full clock, and the memory at `memory` of
    its own, a step takes 1 + `time` x (1 - core) + `memory_time` x (1 - memory) times as long, and
    a GPU draws so much of its watts at full clocks: `watts` x core^3 + `memory_watts` x memory +
    the rest, which is the same at any clock. `watts` and `memory_watts` together are at most 1."""

    time: float = 0.0
    watts: float = 0.0
    memory_time: float = 0.0
    memory_watts: float = 0.0

    def slowing(self, core: float, memory: float = 1.0) -> float:
        """How many times as long a step takes."""
        return 1.0 + self.time * (1.0 - core) + self.memory_time * (1.0 - memory)

    def power(self, core: float, memory: float = 1.0) -> float:
        """The part of the watts at full clocks that a GPU draws."""
        fixed = 1.0 - self.watts - self.memory_watts
        return fixed + self.watts * core**3 + self.memory_watts * memory


UNMOVED: Final = Clocks()
"""Of a model of which nothing is known: neither its speed nor its power changes."""


def parts_of(kind: GpuType, knobs: Mapping[str, float | bool | str]) -> tuple[float, float]:
    """The parts of the full clocks of a type that knobs say; 1 where they say nothing of it, or the
    type states no clocks."""

    def part(name: str, clocks: tuple[float, ...]) -> float:
        set_to = float(knobs.get(name, 0.0))
        return min(max(set_to, clocks[0]) / clocks[-1], 1.0) if set_to > 0 and clocks else 1.0

    return part(CORE_MHZ, kind.clocks), part(MEMORY_MHZ, kind.memory_clocks)
