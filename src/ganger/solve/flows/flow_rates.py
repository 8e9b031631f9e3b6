"""Rates of flows that come and go: what one of them changes is found from what it touches."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence
from heapq import heapify, heappop, heapreplace
from typing import NamedTuple

from ganger.solve.flows.bottlenecks import Bottlenecks

NEAR = 1e-11
"""Levels and loads that differ by less, as a part of them, are one."""
FEW = 60
"""Of more flows that may change, all from the first level that changes on are filled again."""
KEPT = 0.9
"""A link stays among those that are looked at first while it is so full."""
AGAIN = 16
"""Where changes concern many, one in so many is tried as one that concerns few."""
CAP = -1
"""What stops a flow that has all that it asks for."""


class Flow(NamedTuple):
    """A flow: its links with the part of its rate that passes each, its weight (above 0), the most
    that it asks for, and its priority: flows of a higher one have what they ask for first."""

    path: tuple[tuple[int, float], ...]
    weight: float = 1.0
    cap: float = math.inf
    priority: int = 0


class FlowRates:
    """Max-min fair rates of the flows that there are, by priority and weight.

    An allocation is max-min fair if each flow has a link that is full and on which no other flow
    has more per weight. After a change only flows whose link this no longer holds for are filled
    again, then those whose link it ceases to hold for by that, until it holds everywhere. Where
    these are many, the levels of all full links are solved for (`Bottlenecks`); where that does not
    come to an end, filling goes on from the first level that changes, on the links that were full
    before and those that would carry too much. All of it gives what filling from nothing gives.
    """

    def __init__(self, capacity: Iterable[float]) -> None:
        self.capacity = list(capacity)
        n = len(self.capacity)
        self.flows: dict[int, Flow] = {}
        self.rates: dict[int, float] = {}
        self.stopper: dict[int, int] = {}
        """By flow the link that stops it, or `CAP`."""
        self._level: dict[int, float] = {}
        self._on: list[dict[int, float]] = [{} for _ in range(n)]
        self._used, self._room, self._demand = [0.0] * n, [0.0] * n, [0.0] * n
        self._every, self._hot = [True] * n, [False] * n
        """All links; those that were full when many flows were last filled."""
        self._columns: Bottlenecks | None = None
        """From the first change on that concerned many flows."""
        self._mixed = False
        self._many, self._skip = 0, 0
        """After how many changes it is tried again whether one concerns few; how many of them are
        still to come."""
        self._priorities: dict[int, int] = {}

    def load(self, link: int) -> float:
        """What passes a link."""
        return sum(part * self.rates[number] for number, part in self._on[link].items())

    def on(self, link: int) -> Collection[int]:
        """The flows that cross a link."""
        return self._on[link]

    def change(
        self,
        add: Iterable[tuple[int, Flow]] = (),
        remove: Iterable[int] = (),
        capacity: Iterable[tuple[int, float]] = (),
    ) -> None:
        """What comes and goes at one instant, by the flows' own numbers, and links that are as wide
        as that from now on. What goes does so first, so that a flow may come again as another."""
        touched: dict[int, None] = {}
        new: dict[int, None] = {}
        first = math.inf
        for link, width in capacity:
            self.capacity[link], touched[link], first = width, None, 0.0
        for number in remove:
            gone = self.flows.pop(number)
            rate = self.rates.pop(number)
            del self.stopper[number]
            first = min(first, self._level.pop(number))
            if self._columns is not None:
                self._columns.drop(number)
            self._count(gone.priority, -1)
            for link, part in gone.path:
                touched[link] = None
                del self._on[link][number]
                self._used[link] -= part * rate
        for number, flow in add:
            path = tuple(each for each in flow.path if self.capacity[each[0]] < math.inf)
            self.flows[number] = flow = flow._replace(path=path)
            self._count(flow.priority, 1)
            for link, part in path:
                self._on[link][number] = part
                touched[link] = None
            self.rates[number], self.stopper[number], self._level[number] = 0.0, CAP, math.inf
            if self._columns is not None:
                self._columns.put(number, path, flow.weight, flow.cap)
            new[number] = None
        if len(self._priorities) > 1:
            self._by_priority()
            return
        if self._mixed:
            self._mixed, first = False, 0.0
        elif self._many and self._skip:
            self._skip -= 1
        elif self._repair(dict(new), dict(touched)):
            self._many = 0
            return
        else:
            self._many = min(2 * self._many + 1, AGAIN)
            self._skip = self._many - 1
        if self._balance():
            return
        if first:
            first = min([first, *map(self._first, touched)])
        self._from_level(first)

    def _count(self, priority: int, more: int) -> None:
        self._priorities[priority] = self._priorities.get(priority, 0) + more
        if not self._priorities[priority]:
            del self._priorities[priority]

    # ------------------------------------------------------------------ filling some flows

    def _repair(self, again: dict[int, None], touched: dict[int, None]) -> bool:
        """Fill the flows of `again`, and those that follow from that; False where they are many."""
        flows, rates, level_of = self.flows, self.rates, self._level
        before = {number: (rates[number], level_of[number]) for number in again}
        while len(again) <= FEW:
            self._fill(again, self._every)
            follow = self._follow(again, touched)
            if not follow:
                return True
            again |= follow
            for number in follow:
                before[number] = rates[number], level_of[number]
                for link, _ in flows[number].path:
                    touched[link] = None
        for number, (rate, level) in before.items():
            rates[number], level_of[number] = rate, level
        for link in touched:
            self._used[link] = self.load(link)
        return False

    def _fill(self, again: Iterable[int], seen: Sequence[bool]) -> None:
        """Progressive filling of some flows in the room that the others leave on the links `seen`;
        what the links carry is left as it was."""
        flows, rates, stopper, level_of = self.flows, self.rates, self.stopper, self._level
        room, demand, used, capacity = self._room, self._demand, self._used, self.capacity
        wanted: dict[int, None] = {}
        capped: list[tuple[float, int]] = []
        for number in again:
            path, weight, cap, _ = flows[number]
            rate = rates[number]
            if cap < math.inf or not path:
                capped.append((cap / weight, number))
            for link, part in path:
                if seen[link]:
                    if link not in wanted:
                        wanted[link] = None
                        room[link], demand[link] = capacity[link] - used[link], 0.0
                    room[link] += part * rate
                    demand[link] += part * weight
        capped.sort()
        heap = [(room[link] / demand[link], link) for link in wanted]
        heapify(heap)
        rising, next_cap, floor = set(again), 0, 0.0
        while rising and (heap or next_cap < len(capped)):
            while next_cap < len(capped) and capped[next_cap][1] not in rising:
                next_cap += 1
            if next_cap < len(capped) and (not heap or capped[next_cap][0] <= heap[0][0]):
                level, number = capped[next_cap]
                link, stops = CAP, [number]
            elif not heap:
                break
            else:
                level, link = heap[0]
                stops = [number for number in self._on[link] if number in rising]
                if not stops:
                    heappop(heap)
                    continue
                risen = room[link] / demand[link]
                if risen > level:  # levels only rise while others stop
                    heapreplace(heap, (risen, link))
                    continue
                heappop(heap)
            floor = level = max(level, floor)
            rising.difference_update(stops)
            for number in stops:
                path, weight, cap, _ = flows[number]
                rates[number] = rate = level * weight if link != CAP else cap
                stopper[number], level_of[number] = link, level
                for other, part in path:
                    if seen[other]:
                        room[other] -= part * rate
                        demand[other] -= part * weight
        for number in rising:  # nothing that is seen stops these
            rates[number], stopper[number], level_of[number] = math.inf, CAP, math.inf

    def _follow(self, again: dict[int, None], touched: dict[int, None]) -> dict[int, None]:
        """The other flows on links that were touched for which what stops them has changed."""
        rates, stopper, level_of = self.rates, self.stopper, self._level
        follow: dict[int, None] = {}
        for link in touched:
            used, peak_level, held, on = 0.0, 0.0, math.inf, self._on[link]
            for number, part in on.items():
                used += part * rates[number]
                level = level_of[number]
                if level > peak_level:
                    peak_level = level
                if stopper[number] == link and number in again:
                    held = level
            self._used[link] = used
            full = used >= self.capacity[link] * (1.0 - NEAR)
            bound, least = held * (1.0 + NEAR), peak_level * (1.0 - NEAR)
            for number in on:
                level = level_of[number]
                unfair = (not full or level < least) and stopper[number] == link
                if (unfair or level > bound) and number not in again:
                    follow[number] = None
        return follow

    # ------------------------------------------------------------------ filling many

    def _balance(self) -> bool:
        """All rates from which link stops whom; False where that is not solved."""
        if self._columns is None:
            self._columns = Bottlenecks(len(self.capacity))
            for number, (path, weight, cap, _) in self.flows.items():
                self._columns.put(number, path, weight, cap)
            stops = ((link, self._level[each]) for each, link in self.stopper.items())
            self._columns.assume(each for each in stops if each[0] != CAP)
        solved = self._columns.solve(self.capacity, NEAR)
        if solved is None:
            return False
        self.rates = dict(zip(solved.numbers, solved.rates, strict=True))
        self._level = dict(zip(solved.numbers, solved.levels, strict=True))
        self.stopper = dict(zip(solved.numbers, solved.stopper, strict=True))
        self._used = solved.used
        return True

    def _first(self, link: int) -> float:
        """The level from which on a link may stop other flows than it did, if one came to it."""
        levels = []
        coming = 0.0
        for number, part in self._on[link].items():
            flow = self.flows[number]
            if self._level[number] < math.inf:
                levels.append((self._level[number], part * flow.weight))
            else:
                coming += part * flow.weight
        if not coming:
            return math.inf
        levels.sort()
        room, demand = self.capacity[link], coming + sum(wanted for _, wanted in levels)
        for level, wanted in levels:
            if level * demand >= room:
                break
            room -= level * wanted
            demand -= wanted
        return room / demand

    def _from_level(self, first: float) -> None:
        """Fill all flows again that were not stopped before the level `first`."""
        flows, rates, hot, capacity = self.flows, self.rates, self._hot, self.capacity
        bound = first * (1.0 - NEAR)
        again = [number for number, level in self._level.items() if level >= bound]
        before = [rates[number] for number in again]
        while True:
            self._fill(again, hot)
            used = self._used.copy()
            for number, rate in zip(again, before, strict=True):
                more = rates[number] - rate
                if more:
                    for link, part in flows[number].path:
                        used[link] += part * more
            over = [
                link
                for link, load in enumerate(used)
                if load > capacity[link] * (1.0 + NEAR) and not hot[link]
            ]
            if not over:
                break
            for link in over:
                hot[link] = True
            rates.update(zip(again, before, strict=True))
        self._used = used
        self._hot = [
            warm and load >= KEPT * limit
            for warm, load, limit in zip(hot, used, capacity, strict=True)
        ]

    def _by_priority(self) -> None:
        """Fill all flows, those of higher priority first."""
        self._mixed = True
        self._used = [0.0] * len(self.capacity)
        self.rates = dict.fromkeys(self.flows, 0.0)
        for priority in sorted(self._priorities, reverse=True):
            some = [number for number, flow in self.flows.items() if flow.priority == priority]
            self._fill(some, self._every)
            for number in some:
                for link, part in self.flows[number].path:
                    self._used[link] += part * self.rates[number]
