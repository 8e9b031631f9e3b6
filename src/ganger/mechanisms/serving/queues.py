"""Requests that wait: first come, first served, or the earliest deadline first."""

from __future__ import annotations

from heapq import heappop, heappush
from typing import Protocol

from msgspec import Struct

from ganger.core.serving.world import World


class Queue(Protocol):
    """Requests (and tasks) of one model that wait for the same lanes."""

    model: int
    group: int

    def __len__(self) -> int: ...

    def push(self, world: World, numbers: range | list[int]) -> None:
        """Requests begin to wait."""

    @property
    def head(self) -> int:
        """The request that would go first. Asked only while one waits."""

    def key(self, world: World) -> int:
        """By which the head goes before those of other queues. Asked only while one waits."""

    def pop(self, count: int) -> list[int]:
        """Take so many off the head."""

    def upcoming(self) -> list[int]:
        """All that wait, in the order in which they go."""


class Fifo(Struct):
    """First come, first served."""

    model: int
    group: int
    rows: list[int] = []
    first: int = 0

    def __len__(self) -> int:
        return len(self.rows) - self.first

    def push(self, world: World, numbers: range | list[int]) -> None:
        """Requests begin to wait."""
        self.rows.extend(numbers)

    @property
    def head(self) -> int:
        """The request that came first."""
        return self.rows[self.first]

    def key(self, world: World) -> int:
        """The request that came first, of a task its own."""
        head = self.rows[self.first]
        return head if head >= 0 else world.tasks[head].request

    def pop(self, count: int) -> list[int]:
        """Take so many off the head."""
        first = self.first
        taken = self.rows[first : first + count]
        self.first = first = first + count
        if first > 1024 and 2 * first > len(self.rows):
            del self.rows[:first]
            self.first = 0
        return taken

    def upcoming(self) -> list[int]:
        """All that wait, in the order in which they go."""
        return self.rows[self.first :]


class Earliest(Struct):
    """The earliest deadline first; at equal deadlines the one that came first. An entry begins with
    the deadline and ends with the number; that of a task has its request between them."""

    model: int
    group: int
    heap: list[tuple[int, ...]] = []

    def __len__(self) -> int:
        return len(self.heap)

    def push(self, world: World, numbers: range | list[int]) -> None:
        """Requests begin to wait."""
        deadline_of, tasks = world.deadline_of, world.tasks
        for number in numbers:
            if number >= 0:
                heappush(self.heap, (deadline_of(number), number))
            else:
                heappush(self.heap, (deadline_of(number), tasks[number].request, number))

    @property
    def head(self) -> int:
        """The request that is due first."""
        return self.heap[0][-1]

    def key(self, world: World) -> int:
        """When it is due."""
        return self.heap[0][0]

    def pop(self, count: int) -> list[int]:
        """Take so many off the head."""
        return [heappop(self.heap)[-1] for _ in range(min(count, len(self.heap)))]

    def upcoming(self) -> list[int]:
        """All that wait, in the order in which they go."""
        return [entry[-1] for entry in sorted(self.heap)]
