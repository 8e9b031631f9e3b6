"""What a model takes of the memory of its hosts."""

from __future__ import annotations

import msgspec


class HostUse(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The traffic of a model with the memory of its hosts. `bandwidth`: GB/s that it moves at speed
    1, for each GPU, or for each core of a job without GPUs. `bound`: the part of its time, above 0
    and at most 1, in which it waits for that when it has all that it wants (1: it streams)."""

    bandwidth: float
    bound: float = 1.0
