"""Dual prices of GPUs by type and slot of time, and what a job would pay for being done when.

A unit of a resource of which a part z is taken costs L (U / L)^z: L at first, U once all of it is
taken, so that no job whose utility is at most U a unit takes what is not there (Bao et al.,
INFOCOM 2018, section IV). A job is let in if its utility at some completion is more than the
cheapest plan for that costs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ganger.solve.completion import cheapest

Floats = NDArray[np.float64]


class Choice(NamedTuple):
    """What a job may hold in a slot: so many GPUs of the type of that number, on which it does so
    many units of its work in a whole slot."""

    kind: int
    gpus: int
    gain: int


class Offer(NamedTuple):
    """The best a job can get: utility less cost, what it costs, the slot at whose end it is done,
    and what it holds in which slots; without a plan nothing pays."""

    payoff: float
    cost: float
    done: int
    plan: tuple[tuple[int, Choice], ...]


NOTHING = Offer(0.0, 0.0, -1, ())


def competitive(low: float, high: float) -> float:
    """The bound that is known beforehand: the best schedule has at most so many times the sum of
    utilities, if a GPU in a slot is worth from `low` to `high` and every job takes a small part of
    what there is (Bao et al., theorem 2: 2 max(1, ln U / L))."""
    return 2.0 * max(1.0, math.log(high / low))


class Prices:
    """The prices of some slots. `capacity`: GPUs by type; `used`: types x slots, taken so far;
    `low`, `high`: utility of a GPU in a slot, the least and the most."""

    def __init__(self, capacity: Floats, used: Floats, low: float, high: float) -> None:
        self.capacity, self.used, self.low, self.high = capacity, used, low, high
        self.slots = used.shape[1]

    def table(self) -> Floats:
        """Of one GPU more: types x slots."""
        part = self.used / np.maximum(self.capacity, 1e-9)[:, None]
        price: Floats = self.low * (self.high / self.low) ** part
        return price

    def offer(
        self, choices: Sequence[Choice], work: int, utility: Floats, *, beyond: bool = False
    ) -> Offer:
        """The plan with the largest payoff; `utility`: by completion slot. `beyond`: as if more
        could be taken than there is, at the same prices."""
        if not choices or work <= 0:
            return NOTHING
        kinds, gpus = np.array([each[:2] for each in choices]).T
        costs = self.table()[kinds] * gpus[:, None]
        if not beyond:
            free_gpus = self.capacity[kinds, None] - self.used[kinds]
            costs[free_gpus < gpus[:, None]] = np.inf
        plans = cheapest(costs.T, np.array([each.gain for each in choices]), work)
        payoff = utility[: self.slots] - plans.cost
        done = int(payoff.argmax())
        if not payoff[done] > 0.0:
            return NOTHING
        held = tuple((slot, choices[at]) for slot, at in enumerate(plans.until(done)) if at >= 0)
        return Offer(float(payoff[done]), float(plans.cost[done]), done, held)

    def take(self, offer: Offer) -> None:
        """The job has what its plan says; prices rise."""
        for slot, choice in offer.plan:
            self.used[choice.kind, slot] += choice.gpus

    def bound(self, payoffs: float) -> float:
        """No schedule has a larger sum of utilities: `payoffs` is the sum of what the jobs so far
        would have gained at the prices that each found, `beyond` what there was. (Prices and
        payoffs are a feasible point of the dual programme, as prices only rise.)"""
        return payoffs + float((self.table() * self.capacity[:, None]).sum())
