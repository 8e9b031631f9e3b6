"""Max-min fair rates of very many flows, from which link stopped which flow before a change.

A flow has the least level among the links of its path that are full, times its weight, or its cap.
Which link stops which flow states a linear system for the levels: every such link is just full. Its
answer says which link stops which flow. Where that is what was assumed, and no other link carries
too much, the rates are max-min fair (Bertsekas and Gallager, Data Networks, section 6.5.2). When
one flow changes, the levels of many links change, but few flows are stopped by another link than
before, so a few rounds do.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

ROUNDS = 16
LINKS = 1000
"""A system of more links is not solved: filling takes less."""


class Rates(NamedTuple):
    """What flows have, in order of `numbers`: rates, the levels at which they are stopped, and by
    which link (-1: by their cap). `used`: what each link carries."""

    numbers: list[int]
    rates: list[float]
    levels: list[float]
    stopper: list[int]
    used: list[float]


class Bottlenecks:
    """The flows that there are, as columns, and the level of each full link."""

    def __init__(self, links: int) -> None:
        self._links = links
        self._column: dict[int, int] = {}
        self._free = list[int]()
        self._level = np.full(links + 1, math.inf)
        self._number = np.zeros(0, np.int64)
        """By column the flow's number, -1: none."""
        self._paths, self._parts = np.zeros((0, 0), np.int64), np.zeros((0, 0))
        """By position on the path and column. Where there is none, a link that never fills."""
        self._weight, self._cap = np.zeros(0), np.zeros(0)
        self._stop = np.zeros(0, np.int64)
        """By column the position on the path of the link that stops the flow."""
        self._grow(64, 4)

    def _grow(self, columns: int, width: int) -> None:
        """Room for so many flows with so many links each; where no flow is, nothing is asked."""
        paths, parts = np.full((width, columns), self._links), np.zeros((width, columns))
        weight, cap = np.ones(columns), np.zeros(columns)
        stop, number = np.zeros(columns, np.int64), np.full(columns, -1)
        links, before = self._paths.shape
        paths[:links, :before], parts[:links, :before] = self._paths, self._parts
        weight[:before], cap[:before] = self._weight, self._cap
        stop[:before], number[:before] = self._stop, self._number
        self._paths, self._parts, self._weight, self._cap = paths, parts, weight, cap
        self._stop, self._number = stop, number
        self._free += range(columns - 1, before - 1, -1)

    def put(
        self, number: int, path: Sequence[tuple[int, float]], weight: float, cap: float
    ) -> None:
        """A flow comes."""
        width, columns = self._paths.shape
        if not self._free or len(path) > width:
            self._grow(columns if self._free else 2 * columns, max(width, len(path)))
        column = self._column[number] = self._free.pop()
        for at, (link, part) in enumerate(path):
            self._paths[at, column], self._parts[at, column] = link, part
        self._weight[column], self._cap[column] = weight, cap
        self._stop[column], self._number[column] = 0, number

    def drop(self, number: int) -> None:
        """A flow goes."""
        column = self._column.pop(number)
        self._free.append(column)
        self._paths[:, column], self._parts[:, column] = self._links, 0.0
        self._weight[column], self._cap[column], self._number[column] = 1.0, 0.0, -1

    def assume(self, levels: Iterable[tuple[int, float]]) -> None:
        """Rounds begin with these links full, at these levels."""
        self._level = np.full(self._links + 1, math.inf)
        for link, level in levels:
            self._level[link] = level

    def solve(self, capacity: Sequence[float], near: float) -> Rates | None:
        """The rates; None where some rounds do not lead to them. `near`: what differs by less, as
        a part of it, is one."""
        room, columns = np.array([*capacity, math.inf]), np.arange(len(self._cap))
        wanted = self._parts * self._weight
        stop, level, known = self._stop, self._level, False
        capped = np.zeros(len(columns), np.bool_)
        for _ in range(ROUNDS):
            at = level[self._paths]
            least = at.min(axis=0)
            moves = np.flatnonzero(at[stop, columns] > least * (1.0 + near))
            asks = (self._cap <= self._weight * least) & (self._cap < math.inf)
            lost = np.flatnonzero(~asks & np.isinf(least))
            same = known and not len(moves) and not len(lost) and bool((asks == capped).all())
            capped = asks
            if len(moves):
                stop = stop.copy()
                stop[moves] = at[:, moves].argmin(axis=0)
            if len(lost) and not self._choose(lost, stop, wanted, room):
                return None
            if not same:
                solved = self._levels(room, wanted, stop, capped, level)
                if solved is None:
                    return None
                level, known = solved, True
                continue
            rates = np.where(capped, self._cap, self._weight * least)
            used = self._sums(self._parts * rates)
            wrong = used > room * (1.0 + near)
            over = np.flatnonzero(wrong & np.isinf(level))
            short = (used < room * (1.0 - near)) & np.isfinite(level)
            if not short.any() and not wrong.any():
                self._stop, self._level = stop, level
                return self._rates(rates, np.where(capped, rates / self._weight, least), used)
            level, known = level.copy(), False
            self._add(over, level, least, room)
        return None

    def _sums(self, of: Floats) -> Floats:
        """By link."""
        sums = np.bincount(self._paths.ravel(), of.ravel(), self._links + 1)
        return sums.astype(np.float64, copy=False)

    def _choose(self, lost: Ints, stop: Ints, wanted: Floats, room: Floats) -> bool:
        """Flows on whose paths nothing is full are stopped where most is asked for; False where
        nothing can stop one."""
        share = room / np.maximum(self._sums(wanted), 1e-300)
        shares = share[self._paths[:, lost]]
        stop[lost] = shares.argmin(axis=0)
        return bool(np.isfinite(shares.min(axis=0)).all())

    def _levels(
        self,
        room: Floats,
        wanted: Floats,
        stop: Ints,
        capped: NDArray[np.bool_],
        before: Floats,
    ) -> Floats | None:
        """The levels at which the links that stop flows are just full; infinite for others. Those
        that fill first come first: what others have is then known, unless their order changes, and
        is what it was `before`."""
        by = self._paths[stop, np.arange(len(stop))]
        stops = np.zeros(self._links + 1, np.bool_)
        stops[by[~capped]] = True
        full = np.flatnonzero(stops)
        size = len(full)
        if size > LINKS:
            return None
        index = np.full(self._links + 1, size)
        index[full] = np.arange(size)
        crosses, wide = index[self._paths], size + 1
        entry = crosses * wide + np.where(capped, size, index[by])
        system = np.bincount(entry.ravel(), wanted.ravel(), wide * wide).reshape(wide, wide)
        rest = room[full]
        if capped.any():
            taken = self._parts * np.where(capped, self._cap, 0.0)
            rest -= np.bincount(crosses.ravel(), taken.ravel(), wide)[:size]
        system = system[:size, :size]
        guess = before[full]
        own = system.diagonal().copy()
        answer = np.where(np.isinf(guess), rest / np.maximum(system.sum(axis=1), own), guess)
        np.fill_diagonal(system, 0.0)
        for link in np.argsort(answer, kind="stable").tolist():
            risen = float(rest[link] - system[link].dot(answer)) / own[link]
            answer[link] = risen if risen > 0.0 else answer[link] / 2.0
        level = np.full(self._links + 1, math.inf)
        level[full] = answer
        return level

    def _add(self, over: Ints, level: Floats, least: Floats, room: Floats) -> None:
        """Levels of links that carry too much, as if all other links stayed as they are."""
        for link in over.tolist():
            at, column = np.nonzero(self._paths == link)
            weights = self._parts[at, column] * self._weight[column]
            tops = np.minimum(least[column], self._cap[column] / self._weight[column])
            order = np.argsort(tops)
            free, demand = float(room[link]), float(weights.sum())
            for top, weight in zip(tops[order].tolist(), weights[order].tolist(), strict=True):
                if top * demand >= free:
                    break
                free -= top * weight
                demand -= weight
            level[link] = free / demand

    def _rates(self, rates: Floats, levels: Floats, used: Floats) -> Rates:
        own = np.flatnonzero(self._number >= 0)
        by = np.where(self._cap[own] <= rates[own], -1, self._paths[self._stop[own], own])
        return Rates(
            self._number[own].tolist(),
            rates[own].tolist(),
            levels[own].tolist(),
            by.tolist(),
            used[:-1].tolist(),
        )
