"""One kind of machines in one column: no programme, every answer in closed form.

Throughput then costs everybody machines at one rate, so that what all ask for together is one sum:
a level is where the sum meets the machines there are, and the largest total of gains is a
fractional knapsack, filled in order of gain per machine (Dantzig, Operations Research 5(2), 1957).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ganger.solve.division.classes import classes
from ganger.solve.division.programme import TINY, Floats, Ints, Shares, dot
from ganger.solve.highs import Infeasible

SPARE = 1e-9
"""A part of the machines, or of what a job can do, by which floors may be too high: rounding."""
ALIKE = 11
"""Digits to which gains per machine are told apart."""


class Sole(NamedTuple):
    """`cost[i]`: machines for each unit of throughput, 0 where i cannot run; `cap[i]`: the most it
    could do with all the time that it may have; `capacity`: machines."""

    cost: Floats
    cap: Floats
    capacity: float

    def within(self, eff: Floats) -> bool:
        """Whether everybody can have `eff` at once."""
        return bool((eff <= self.cap).all()) and dot(self.cost, eff) <= self.capacity

    def rest(self, floor: Floats) -> float:
        """Machines that are left beside the floors. Raises Infeasible if they cannot be had."""
        high = floor * (1 - SPARE) > self.cap
        if high.any():
            raise Infeasible(np.flatnonzero(high))
        left = self.capacity - dot(self.cost, floor)
        if left < -SPARE * self.capacity:
            raise Infeasible(np.flatnonzero(floor > 0))
        return max(left, 0.0)


def sole(posed: Shares) -> Sole | None:
    """The only kind of machines, if there is but one, in one column."""
    if posed.rate.shape[1] != 1 or len(posed.capacity) != 1 or not (posed.scale > 0).all():
        return None
    rate = posed.rate[:, 0]
    cost = np.where(rate > 0, posed.scale / np.maximum(rate, TINY), 0.0)
    return Sole(cost, posed.fastest(), float(posed.capacity[0]))


def time_for(posed: Shares, eff: Floats) -> Floats:
    """The (n, 1) shares of time that give `eff`."""
    x: Floats = np.where(posed.rate > 0, eff[:, None] / np.maximum(posed.rate, TINY), 0.0)
    return x


def level(one: Sole, pace: Floats, floor: Floats) -> tuple[float, float, Floats]:
    """The largest t with eff >= floor + pace t, the price of a machine in t, and what one more unit
    of throughput asked of each costs. Raises Infeasible."""
    left, moves = one.rest(floor), pace > 0
    alone = float(((one.cap - floor)[moves] / pace[moves]).min())
    each = dot(one.cost, pace)
    price = 1 / max(each, TINY)
    asked = moves | (floor > 0)
    return max(min(alone, left * price), 0.0), price, np.where(asked, one.cost * price, 0.0)


def knapsack(posed: Shares, one: Sole, gain: Floats, floor: Floats) -> tuple[Floats, float, Floats]:
    """The (n, 1) shares of the largest sum of gains with eff >= floor, the price of a machine, and
    what one more unit of throughput asked of each costs. Equal jobs get equal shares; of classes
    with the same gain per machine the one met first goes first. Raises Infeasible."""
    left, x = one.rest(floor), time_for(posed, floor)
    per_machine, room = gain[:, 0] / posed.scale, posed.limit - x[:, 0]
    price = 0.0
    if left <= SPARE * one.capacity:  # nothing is left to choose
        price = float(np.where(room > SPARE, per_machine, 0.0).max(initial=0.0))
    else:
        merged = classes([posed.rate, posed.scale, posed.limit, floor, gain])
        for kind in _best_first(per_machine[merged.first]).tolist():
            first = merged.first[kind]
            machines = float(posed.scale[first] * merged.size[kind])
            part = min(float(room[first]), left / machines)
            x[merged.of == kind] += part
            left -= part * machines
            if part < room[first]:
                price = float(per_machine[first])
                break
    asked = (floor > 0) & (posed.rate[:, 0] > 0)
    worth = np.maximum(price * posed.scale - gain[:, 0], 0.0) / np.maximum(posed.rate[:, 0], TINY)
    return x, price, np.where(asked, worth, 0.0)


def _best_first(per_machine: Floats) -> Ints:
    """Those that gain, in order of gain per machine; ties but for rounding in order of number."""
    gaining = np.flatnonzero(per_machine > 0)
    return gaining[np.argsort(-np.round(np.log(per_machine[gaining]), ALIKE), kind="stable")]
