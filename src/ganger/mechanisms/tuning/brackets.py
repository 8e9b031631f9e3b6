"""Hyperband: successive halving several times, with ever fewer trials that train ever longer."""

from __future__ import annotations

import math
from dataclasses import dataclass

import msgspec

from ganger.core.plan import Plan, Spawn
from ganger.core.view import View
from ganger.mechanisms.placement.place import PACK, Placer
from ganger.mechanisms.tuning.halving import HalvingMemory, SuccessiveHalving
from ganger.mechanisms.tuning.trials import Mode, Portion


def brackets(longest: float, eta: int, first: float) -> list[tuple[int, float]]:
    """How many trials each bracket starts, and after how many epochs these are first judged, as in
    algorithm 1 of the paper. `longest` stands for the budget R, `first` for one unit of it."""
    last = math.floor(math.log(longest / first, eta) + 1e-9) if longest > first else 0
    return [
        (math.ceil((last + 1) / (s + 1) * eta**s - 1e-9), longest / eta**s)
        for s in range(last, -1, -1)
    ]


class HyperbandMemory(msgspec.Struct, frozen=True):
    """Which bracket is run, and how far it is."""

    bracket: int
    inner: HalvingMemory | None


@dataclass(frozen=True)
class Hyperband:
    """The brackets of `brackets`, one after the other, all of them `rounds` times; each is
    successive halving whose last rung ends at `longest` epochs."""

    name: str
    longest: float
    eta: int
    first: float
    rounds: int
    mode: Mode
    each: Portion
    searcher: str = ""
    """The searcher that belongs to the recipe and learns from what trials report, if one does."""
    place: Placer = PACK
    orders = (Spawn,)

    @property
    def trials(self) -> int:
        """How many trials there are in all."""
        return self.rounds * sum(count for count, _ in brackets(self.longest, self.eta, self.first))

    def decide(self, view: View, memory: HyperbandMemory | None) -> tuple[Plan, HyperbandMemory]:
        """What runs inside the grant of one search. Raises InvariantError outside of any."""
        bracket, inner = (memory.bracket, memory.inner) if memory is not None else (0, None)
        ended = inner is not None and self._halving(bracket).over(view, inner)
        if ended and bracket + 1 < self._count:  # nothing is left of its trials
            bracket, inner = bracket + 1, None
        plan, inner = self._halving(bracket).decide(view, inner)
        return plan, HyperbandMemory(bracket, inner)

    def over(self, view: View, memory: HyperbandMemory) -> bool:
        """Whether the last bracket is over."""
        if memory.bracket + 1 < self._count or memory.inner is None:
            return False
        return self._halving(memory.bracket).over(view, memory.inner)

    @property
    def _count(self) -> int:
        return self.rounds * len(brackets(self.longest, self.eta, self.first))

    def _halving(self, bracket: int) -> SuccessiveHalving:
        """The successive halving of that bracket."""
        rows = brackets(self.longest, self.eta, self.first)
        count, judged = rows[bracket % len(rows)]
        return SuccessiveHalving(
            self.name,
            count,
            self.eta,
            judged,
            self.mode,
            self.each,
            self.longest,
            one_by_one=bool(self.searcher),
            place=self.place,
        )
