"""Parts of a GPU: which jobs may share a device, by the way in which it is shared."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import NamedTuple

from ganger.core.units import WHOLE


class Sharing(Enum):
    """How one device serves several jobs."""

    TIME = "time"
    """The driver gives slices of time; memory is common."""
    MPS = "mps"
    """Kernels run side by side, each within a percentage of the threads; memory is common."""
    MIG = "mig"
    """Partitions of fixed sizes with memory and compute of their own."""


class Part(NamedTuple):
    """What one job wants of a device: thousandths of its compute, MiB of its memory."""

    compute: int
    memory: int


MPS_CLIENTS = 48
"""NVIDIA's limit since Volta."""


def may_share(mode: Sharing, parts: Sequence[Part], memory: int) -> bool:
    """Whether `parts` may be on one device with `memory` MiB together, where it has no slices."""
    if sum(part.memory for part in parts) > memory:
        return False
    if mode is Sharing.MPS and len(parts) > MPS_CLIENTS:
        return False
    return sum(part.compute for part in parts) <= WHOLE
