"""Sets of devices and of nodes as bits of a Python integer."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache


@lru_cache(maxsize=65536)
def pick_devices(free: int, count: int, island: int) -> int:
    """`count` of the devices in the mask `free`: inside one island if one has room (the fullest
    such), else the lowest ones."""
    if island and count <= island:
        best, best_free = 0, 1 << 30
        window = (1 << island) - 1
        for shift in range(0, free.bit_length(), island):
            here = free & (window << shift)
            room = here.bit_count()
            if count <= room < best_free:
                best, best_free = here, room
        free = best or free
    chosen = 0
    for _ in range(count):
        low = free & -free
        chosen |= low
        free ^= low
    return chosen


def lowest(bits: int) -> int:
    """The number of the lowest set bit."""
    return (bits & -bits).bit_length() - 1


def members(bits: int) -> Iterator[int]:
    """The numbers of the set bits, ascending."""
    while bits:
        low = bits & -bits
        yield low.bit_length() - 1
        bits ^= low
