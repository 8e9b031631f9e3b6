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
_AMPERE = ((1, 1), (2, 2), (3, 4), (4, 4), (7, 8))
MIG_SLICES: dict[str, tuple[tuple[int, int], ...]] = {
    "A100": _AMPERE,
    "H100": _AMPERE,
    "H200": _AMPERE,
    "A30": ((1, 1), (2, 2), (4, 4)),
}
"""By GPU type: the partitions as (compute slices, memory slices), ascending; the last one is the
whole device. Which sizes may lie beside which is taken as 'both sums fit'."""


def mig_slice(part: Part, gpu_type: str, memory: int) -> tuple[int, int] | None:
    """The smallest partition of `gpu_type` (with `memory` MiB in all) that holds `part`."""
    slices = MIG_SLICES.get(gpu_type, ())
    for compute, gigabytes in slices:
        whole = slices[-1]
        if part.compute * whole[0] <= compute * WHOLE and part.memory * whole[1] <= (
            gigabytes * memory
        ):
            return compute, gigabytes
    return None


def may_share(mode: Sharing, parts: Sequence[Part], gpu_type: str, memory: int) -> bool:
    """Whether `parts` may be on one device of `gpu_type` with `memory` MiB together."""
    if mode is Sharing.MIG:
        slices = [mig_slice(part, gpu_type, memory) for part in parts]
        given = [one for one in slices if one is not None]
        whole = MIG_SLICES.get(gpu_type, ((0, 0),))[-1]
        return len(given) == len(parts) and all(
            sum(one[axis] for one in given) <= whole[axis] for axis in (0, 1)
        )
    if sum(part.memory for part in parts) > memory:
        return False
    if mode is Sharing.MPS and len(parts) > MPS_CLIENTS:
        return False
    return sum(part.compute for part in parts) <= WHOLE
