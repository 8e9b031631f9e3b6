"""The lanes of a request plane that have nothing to do."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable

from ganger.core.serving.world import Lane


class IdleLanes:
    """At first all of `lanes` that are not down; `lanes` are those that are idle now, by
    number."""

    __slots__ = ("_numbers", "lanes")

    def __init__(self, lanes: Iterable[Lane]) -> None:
        self.lanes = [lane for lane in lanes if not lane.down]
        self._numbers = [lane.number for lane in self.lanes]

    def enter(self, lane: Lane) -> None:
        """The lane is idle, if it is not already."""
        numbers = self._numbers
        at = bisect_left(numbers, lane.number)
        if at == len(numbers) or numbers[at] != lane.number:
            numbers.insert(at, lane.number)
            self.lanes.insert(at, lane)

    def leave(self, number: int) -> None:
        """The lane of that number is not idle, if it was."""
        numbers = self._numbers
        at = bisect_left(numbers, number)
        if at < len(numbers) and numbers[at] == number:
            del numbers[at], self.lanes[at]
