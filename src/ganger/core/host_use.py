"""What a model takes of its hosts: memory bandwidth, cores and memory."""

from __future__ import annotations

from bisect import bisect_right

import msgspec


class HostUse(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The traffic of a model with the memory of its hosts. `bandwidth`: GB/s that it moves at speed
    1, for each GPU, or for each core of a job without GPUs. `bound`: the part of its time, above 0
    and at most 1, in which it waits for that when it has all that it wants (1: it streams)."""

    bandwidth: float
    bound: float = 1.0


class Sensitivity(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How much a job's speed depends on what feeds it: `speed[c][m]` with `cpus[c]` (thousandths of
    a core) and `memory[m]` (MiB of the host) per GPU, both ascending, relative to the supply at
    which its run time was taken. Linear between, level beyond, and below the fewest CPUs in
    proportion to them.
    """

    cpus: tuple[float, ...]
    memory: tuple[float, ...]
    speed: tuple[tuple[float, ...], ...]

    def at(self, cpus: float, memory: float) -> float:
        """Speed with so much per GPU."""
        short = min(cpus / self.cpus[0], 1.0) if self.cpus[0] > 0 else 1.0
        row, above = _between(self.cpus, cpus)
        column, right = _between(self.memory, memory)
        last, end = min(row + 1, len(self.cpus) - 1), min(column + 1, len(self.memory) - 1)
        here, there = self.speed[row], self.speed[last]
        low = here[column] + (here[end] - here[column]) * right
        high = there[column] + (there[end] - there[column]) * right
        return short * (low + (high - low) * above)

    def demand(self, part: float = 0.99) -> tuple[float, float]:
        """The fewest CPUs per GPU, and with them the least memory, that give `part` of the largest
        speed (Synergy, OSDI 2022, section 3.2)."""
        enough = part * max(map(max, self.speed))
        return next(
            (cpus, memory)
            for cpus, row in zip(self.cpus, self.speed, strict=True)
            for memory, speed in zip(self.memory, row, strict=True)
            if speed >= enough
        )


def _between(grid: tuple[float, ...], at: float) -> tuple[int, float]:
    """The grid point below `at`, and how far `at` is towards the next; inside the grid."""
    below = max(bisect_right(grid, at) - 1, 0)
    if below == len(grid) - 1:
        return below, 0.0
    return below, max((at - grid[below]) / (grid[below + 1] - grid[below]), 0.0)
