"""Which lane a request waits at, decided when it comes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from ganger.core.serving.world import World


class Dispatch(Protocol):
    """Chooses among the lanes that could run a request."""

    def choose(
        self, world: World, row: int, turn: int, lanes: Sequence[int], load: Sequence[int]
    ) -> int:
        """One of `lanes`, which rise; `turn` counts the requests of this model before; `load` is by
        lane: the inputs that wait there or run."""


@dataclass(frozen=True)
class RoundRobin:
    """One after the other."""

    def choose(
        self, world: World, row: int, turn: int, lanes: Sequence[int], load: Sequence[int]
    ) -> int:
        """The next in turn."""
        return lanes[turn % len(lanes)]


@dataclass(frozen=True)
class LeastLoaded:
    """The lane with the least to do; among equals the first."""

    def choose(
        self, world: World, row: int, turn: int, lanes: Sequence[int], load: Sequence[int]
    ) -> int:
        """The least loaded."""
        if len(lanes) == len(load):  # all that there are
            return load.index(min(load))
        return min(lanes, key=load.__getitem__)


@dataclass(frozen=True)
class PowerOfTwo:
    """The less loaded of two that are drawn at random.

    (Mitzenmacher: The power of two choices in randomized load balancing, TPDS 2001.)
    """

    def choose(
        self, world: World, row: int, turn: int, lanes: Sequence[int], load: Sequence[int]
    ) -> int:
        """The less loaded of two different lanes."""
        if len(lanes) == 1:
            return lanes[0]
        first = int(world.draw(row) * len(lanes))
        second = int(world.draw(row, 1) * (len(lanes) - 1))
        one, other = lanes[first], lanes[second + (second >= first)]
        return one if load[one] <= load[other] else other
