"""MIG: the slices of a device, where they may lie, and which of them exist.

A device has slots of memory, side by side. A slice takes some that follow each other, from one of
the slots where a slice of its size may start (NVIDIA's table of placements). It cannot be moved
while a job uses it. So what fits depends on where the others lie, not on a sum.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple, TypeAlias

from ganger.core.books.share import Part
from ganger.core.units import WHOLE


class Slice(NamedTuple):
    """A kind of slice: how many of the device's compute and memory slots it has, and at which slots
    of memory it may start."""

    compute: int
    memory: int
    starts: tuple[int, ...]


Taken: TypeAlias = Mapping[int, int]
"""Of a device: by the slot at which a slice starts, how many slots it takes."""
Device: TypeAlias = tuple[int, int]
"""Node, and number in it."""
Lying: TypeAlias = dict[Device, tuple[int, int]]
"""By device, where a job's slice starts there, and how many slots it takes."""
KNOB: Final = "mig"
"""The knob of a Tune that says where a job's slices lie: `node:device:start:slots` for each."""
_SEVEN: Final = (
    Slice(1, 1, (0, 1, 2, 3, 4, 5, 6)),
    Slice(1, 2, (0, 2, 4, 6)),
    Slice(2, 2, (0, 2, 4)),
    Slice(3, 4, (0, 4)),
    Slice(4, 4, (0,)),
    Slice(7, 8, (0,)),
)
MIG_SLICES: Final[dict[str, tuple[Slice, ...]]] = {
    "A100": _SEVEN,
    "H100": _SEVEN,
    "H200": _SEVEN,
    "A30": (Slice(1, 1, (0, 1, 2, 3)), Slice(2, 2, (0, 2)), Slice(4, 4, (0,))),
}
"""By GPU type: its slices, ascending; the last one is the whole device."""


def mig_slice(part: Part, gpu_type: str, memory: int) -> Slice | None:
    """The smallest slice of `gpu_type` (with `memory` MiB in all) that holds `part`."""
    slices = MIG_SLICES.get(gpu_type, ())
    for each in slices:
        whole = slices[-1]
        if part.compute * whole.compute <= each.compute * WHOLE and (
            part.memory * whole.memory <= each.memory * memory
        ):
            return each
    return None


def place(wanted: Slice, taken: Taken, gpu_type: str) -> int:
    """The slot at which `wanted` starts beside `taken`; -1 where it does not fit. Of several the
    one after which most slices of all kinds could still start, the last of equals."""
    used = _used(taken)
    able = [start for start in wanted.starts if not used & _mask(start, wanted.memory)]
    if not able:
        return -1
    kinds = MIG_SLICES[gpu_type]

    def worth(start: int) -> tuple[int, int]:
        then = used | _mask(start, wanted.memory)
        return sum(not then & _mask(at, kind.memory) for kind in kinds for at in kind.starts), start

    return max(able, key=worth)


def _mask(start: int, memory: int) -> int:
    return ((1 << memory) - 1) << start


def _used(taken: Taken) -> int:
    used = 0
    for start, memory in taken.items():
        used |= _mask(start, memory)
    return used


def written(slices: Lying) -> str:
    """Slices as the knob has them."""
    return " ".join(
        f"{n}:{device}:{at}:{size}" for (n, device), (at, size) in sorted(slices.items())
    )


def read(knob: object) -> Lying:
    """What `written` wrote; nothing for what is not there."""
    slices: Lying = {}
    for row in str(knob or "").split():
        node, device, at, size = map(int, row.split(":"))
        slices[node, device] = at, size
    return slices


class Instances:
    """The slices that exist on each device, in use or not. One stays until another needs its
    slots."""

    def __init__(self) -> None:
        self.existing: dict[Device, dict[int, int]] = {}

    def need(self, device: Device, start: int, memory: int) -> bool:
        """See to it that this slice exists on the device; whether that changes anything."""
        existing = self.existing.setdefault(device, {})
        if existing.get(start) == memory:
            return False
        mask = _mask(start, memory)
        for other in [at for at, size in existing.items() if _mask(at, size) & mask]:
            del existing[other]
        existing[start] = memory
        return True
