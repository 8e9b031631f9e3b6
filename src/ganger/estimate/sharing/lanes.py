"""Jobs on one GPU that run iterations in turn, in lanes (Salus, MLSys 2020).

What a job needs of memory from its first iteration to its last stays on the device. What it needs
within an iteration is free between two of them, so that the jobs of one lane use the same memory
for it, one iteration after the other. Several lanes compute side by side.

The simulator takes what is true from here, and recipes what they believe.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple, TypeAlias

from ganger.core.profiles import Memory
from ganger.estimate.sharing.rates import Tenant, divide

Seats: TypeAlias = tuple[tuple[int, ...], ...]
"""The jobs of each lane, by their number in a sequence."""


class IterationLane(NamedTuple):
    """The part of the GPU's time that each job of a lane uses alone, and how long each one's turn
    is, in any unit; 0: it waits between two iterations."""

    demands: tuple[float, ...]
    turns: tuple[float, ...]

    @property
    def shares(self) -> tuple[float, ...]:
        """The part of the lane's time that each has."""
        total = sum(self.turns)
        return tuple(turn / total if total else 0.0 for turn in self.turns)

    @property
    def demand(self) -> float:
        """What the lane uses of the GPU on average over a round of turns."""
        return sum(d * share for d, share in zip(self.demands, self.shares, strict=True))


def speeds(
    lanes: Sequence[IterationLane], beside: Sequence[Tenant] = ()
) -> tuple[tuple[tuple[float, ...], ...], tuple[float, ...]]:
    """What each job of each lane has of its speed alone, and the part of the device's time that
    each of the tenants `beside` has, which run no iterations in turn. Lanes divide the device as
    tenants do that request nothing."""
    demands = [lane.demand for lane in lanes]
    divided = divide([*beside, *map(Tenant, demands)])
    rates = [
        part / demand if demand else 0.0
        for part, demand in zip(divided[len(beside) :], demands, strict=True)
    ]
    ours = [
        tuple(share * rate for share in lane.shares)
        for lane, rate in zip(lanes, rates, strict=True)
    ]
    return tuple(ours), divided[: len(beside)]


def needed(lanes: Sequence[Sequence[Memory]]) -> float:
    """MiB that the jobs of these lanes need: all that persists, and of each lane the largest part
    that an iteration needs."""
    return sum(
        sum(memory.persistent for memory in lane) + max(memory.ephemeral for memory in lane)
        for lane in lanes
    )


def seated(memories: Sequence[Memory], size: int, lanes_max: int) -> Seats | None:
    """The jobs in as many lanes, up to `lanes_max`, as `size` MiB allow; None if not even one lane
    does. Those that need most within an iteration are together, as many in each lane."""
    order = sorted(range(len(memories)), key=lambda at: (-memories[at].ephemeral, at))
    for lanes in range(min(lanes_max, len(memories)), 0, -1):
        ends = [len(order) * lane // lanes for lane in range(lanes + 1)]
        cut = tuple(tuple(order[begin:end]) for begin, end in pairwise(ends))
        if needed([[memories[at] for at in lane] for lane in cut]) <= size:
            return cut
    return None
