"""Which nodes on loan are taken back: those whose return preempts the fewest jobs.

A job that can do without what it has on a node shrinks, and is not preempted.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from itertools import combinations
from typing import Final

EXACT_MOST: Final = 12
"""Of more nodes than that not every set of them is tried."""


@dataclass(frozen=True)
class Tenancy:
    """Which jobs are on the nodes that may be taken back. `here`: by node, the GPUs there by job;
    `spare`: by job, how many GPUs it can do without."""

    here: Mapping[int, Mapping[int, int]]
    spare: Mapping[int, int]

    def preempted(self, nodes: Collection[int]) -> set[int]:
        """The jobs that lose more than they can do without if these nodes go."""
        lost: dict[int, int] = {}
        for node in nodes:
            for job, gpus in self.here[node].items():
                lost[job] = lost.get(job, 0) + gpus
        return {job for job, gpus in lost.items() if gpus > self.spare.get(job, 0)}


def greedy(tenancy: Tenancy, gpus: Mapping[int, int], wanted: int) -> list[int]:
    """Nodes with `wanted` GPUs or more in all, or all there are, one after the other: the next is
    the one of the least cost, of equals the one with the fewest jobs that go. A job costs 1 over
    the number of nodes that it is on and that may still be taken, on each of them; nothing if it
    shrinks, or has to go for a node before. (Aryl, arXiv 2202.07896.)"""
    spare, gone = dict(tenancy.spare), set[int]()
    remain, chosen = sorted(tenancy.here), list[int]()
    while wanted > 0 and remain:
        span: dict[int, int] = {}
        for node in remain:
            for job in tenancy.here[node]:
                span[job] = span.get(job, 0) + 1

        def cost(node: int, span: Mapping[int, int] = span) -> tuple[float, int, int]:
            jobs = tenancy.here[node].items()
            go = [job for job, held in jobs if job not in gone and held > spare.get(job, 0)]
            return round(sum(1 / span[job] for job in go), 9), len(go), node

        node = min(remain, key=cost)
        for job, held in tenancy.here[node].items():
            if held > spare.get(job, 0):
                gone.add(job)
            else:
                spare[job] -= held
        remain.remove(node)
        chosen.append(node)
        wanted -= gpus[node]
    return chosen


def exact(tenancy: Tenancy, gpus: Mapping[int, int], wanted: int) -> list[int]:
    """As `greedy`, by trying every set of nodes: the fewest preempted jobs, then the fewest nodes,
    then the lowest. Of more than `EXACT_MOST` nodes it is what `greedy` says."""
    nodes = sorted(tenancy.here)
    if len(nodes) > EXACT_MOST or sum(gpus[node] for node in nodes) <= wanted:
        return greedy(tenancy, gpus, wanted)
    best: tuple[int, int, tuple[int, ...]] | None = None
    for count in range(len(nodes) + 1):
        for some in combinations(nodes, count):
            if sum(gpus[node] for node in some) >= wanted:
                rank = len(tenancy.preempted(some)), count, some
                best = rank if best is None or rank < best else best
    assert best is not None, "all of them have more GPUs than that"
    return list(best[2])
