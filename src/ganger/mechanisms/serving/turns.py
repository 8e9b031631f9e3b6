"""Whose turn it is among requests that wait for one engine: by arrival, or by what tenants had."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import Any, Protocol

from msgspec import Struct

from ganger.core.serving.world import World


class Line(Struct):
    """Requests that wait, in groups; in each the one that came first goes first."""

    groups: dict[int, list[int]] = {}
    """Heaps; none is empty."""

    def push(self, group: int, row: int) -> None:
        """A request begins to wait."""
        heappush(self.groups.setdefault(group, []), row)

    def pop(self, group: int) -> int:
        """The first of a group goes."""
        rows = self.groups[group]
        row = heappop(rows)
        if not rows:
            del self.groups[group]
        return row


class Turns(Protocol):
    """Orders the groups of a line."""

    @property
    def moves(self) -> bool:
        """Whether the order changes while nobody comes or goes."""

    def begin(self, world: World) -> Any:
        """The memory to begin with."""

    def group(self, world: World, row: int) -> int:
        """Which group a request waits in."""

    def come(self, world: World, memory: Any, row: int, kind: bool) -> None:
        """A new request is about to wait; `kind`: of a token model."""

    def waits(self, world: World, memory: Any, row: int, kind: bool) -> None:
        """A request waits, for the first time or again."""

    def first(self, memory: Any, line: Line, kind: bool) -> int:
        """The group whose turn it is."""

    def taken(self, world: World, memory: Any, row: int, kind: bool, cost: float) -> None:
        """A request, whose input costs so much, waits no more."""

    def made(self, world: World, memory: Any, rows: Sequence[int], count: int) -> None:
        """Each of these requests was given so many tokens of output."""

    def last(self, world: World, running: Sequence[int]) -> int:
        """Which position gives up its cache first."""


@dataclass(frozen=True)
class Arrival:
    """First come, first served. `before`: tenants whose requests go before those of the next, and
    of all others."""

    before: tuple[str, ...] = ()
    moves: bool = False

    def begin(self, world: World) -> None:
        """Nothing."""

    def group(self, world: World, row: int) -> int:
        """The place of its tenant."""
        if not self.before:
            return 0
        tenant = world.tenants[world.requests.tenant[row - world.requests.base]]
        return self.before.index(tenant) if tenant in self.before else len(self.before)

    def come(self, world: World, memory: Any, row: int, kind: bool) -> None:
        """Nothing."""

    def waits(self, world: World, memory: Any, row: int, kind: bool) -> None:
        """Nothing."""

    def first(self, memory: Any, line: Line, kind: bool) -> int:
        """The foremost tenants."""
        return min(line.groups)

    def taken(self, world: World, memory: Any, row: int, kind: bool, cost: float) -> None:
        """Nothing."""

    def made(self, world: World, memory: Any, rows: Sequence[int], count: int) -> None:
        """Nothing."""

    def last(self, world: World, running: Sequence[int]) -> int:
        """Of the hindmost tenants the one that came last."""
        return max(
            range(len(running)), key=lambda at: (self.group(world, running[at]), running[at])
        )


class Counters(Struct):
    """What tenants had, by (of token models, tenant); how many of their requests wait anywhere; the
    tenant whose last waiting request was taken last."""

    had: dict[tuple[bool, int], float] = {}
    waiting: dict[tuple[bool, int], int] = {}
    left: dict[bool, int] = {}


@dataclass(frozen=True)
class LeastServed:
    """The tenant that had least so far: a virtual token counter.

    (Sheng et al.: Fairness in Serving Large Language Models, OSDI 2024, algorithm 2.) An input
    token counts `read`, an output token `write`, divided by the weight of the tenant (1 where
    `weights` does not say). A tenant of which no request waited is lifted, when one comes, to the
    least among those that wait, or to the tenant that was the last to wait: what it did not ask for
    before, it does not get later. Requests to other models count the time that their inputs take in
    the largest batch.
    """

    read: float = 1.0
    write: float = 2.0
    weights: dict[str, float] = field(default_factory=dict)
    moves: bool = True

    def begin(self, world: World) -> Counters:
        """Nobody had anything."""
        return Counters()

    def group(self, world: World, row: int) -> int:
        """Its tenant."""
        return world.requests.tenant[row - world.requests.base]

    def come(self, world: World, memory: Any, row: int, kind: bool) -> None:
        """Lift the counter of its tenant, if none of its requests waits."""
        key = kind, self.group(world, row)
        if not memory.waiting.get(key):
            others = [
                memory.had[each]
                for each, count in memory.waiting.items()
                if count and each[0] == kind
            ]
            left = memory.left.get(kind, key[1])
            least = min(others) if others else memory.had.get((kind, left), 0.0)
            memory.had[key] = max(memory.had.get(key, 0.0), least)

    def waits(self, world: World, memory: Any, row: int, kind: bool) -> None:
        """Its tenant has one more that waits."""
        key = kind, self.group(world, row)
        memory.waiting[key] = memory.waiting.get(key, 0) + 1

    def first(self, memory: Any, line: Line, kind: bool) -> int:
        """The tenant that had least; of two the one whose request came first."""
        return min(line.groups, key=lambda each: (memory.had[kind, each], line.groups[each][0]))

    def taken(self, world: World, memory: Any, row: int, kind: bool, cost: float) -> None:
        """Count the input."""
        tenant = self.group(world, row)
        self._count(world, memory, (kind, tenant), self.read * cost if kind else cost)
        memory.waiting[kind, tenant] -= 1
        if not memory.waiting[kind, tenant]:
            memory.left[kind] = tenant

    def made(self, world: World, memory: Any, rows: Sequence[int], count: int) -> None:
        """Count the output."""
        for row in rows:
            self._count(world, memory, (True, self.group(world, row)), self.write * count)

    def _count(self, world: World, memory: Any, key: tuple[bool, int], cost: float) -> None:
        weight = self.weights.get(world.tenants[key[1]], 1.0) if self.weights else 1.0
        memory.had[key] += cost / weight

    def last(self, world: World, running: Sequence[int]) -> int:
        """The one that was taken last."""
        return len(running) - 1
