"""An online evolutionary search over schedules, whose population lives on from decision to decision
(ONES, SC 2021)."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec
import numpy as np
from numpy.typing import NDArray

from ganger.core.events import CAPACITY_FREED, CAPACITY_LOST, COMMANDED, QUEUED, WOKE
from ganger.core.plan import Plan, Reason
from ganger.core.units import NEVER
from ganger.core.view import View
from ganger.mechanisms.elastic import Market, market
from ganger.mechanisms.place import PACK, Placer
from ganger.mechanisms.realise import Want, competitors, towards
from ganger.mechanisms.resizing import asked, held

_CHANGES = CAPACITY_FREED | CAPACITY_LOST | COMMANDED | QUEUED | WOKE
Sizes = NDArray[np.int64]
"""Schedules x jobs: steps of each job, 0 for none."""


class Schedules(msgspec.Struct, frozen=True):
    """The population: by job its steps in each schedule, and its limit; when to evolve again."""

    sizes: dict[int, tuple[int, ...]] = {}
    limits: dict[int, int] = {}
    due: int = 0


class Offer(msgspec.Struct, frozen=True):
    """What schedules divide. `cost[j, n]`: GPU-time that job j still takes on n steps; `low`,
    `high`: its steps where it runs; `unit`: GPUs a step; `fresh`: jobs that never ran."""

    cost: NDArray[np.float64]
    low: Sizes
    high: Sizes
    unit: Sizes
    fresh: NDArray[np.bool_]
    capacity: int


@dataclass(frozen=True)
class Evolving:
    """Keeps `population` schedules and improves them by `rounds` generations at every change and
    every `epoch` microseconds; the best one is put in force.

    A generation: parents by chance, each job's size from either; with the chance `mutation` one job
    is evicted; then every schedule is filled. Who runs keeps its least, jobs that never ran get
    theirs next, then those who wait in order of the GPU-time they would take; then who ran keeps
    what it had as far as that is left, and who runs grows up to its limit. The schedules with the
    least GPU-time still to come for those who run survive. A job's limit is what it asks for, and
    doubles with each epoch in which it ran.
    """

    name: str
    population: int = 16
    rounds: int = 10
    mutation: float = 0.3
    epoch: int = 0
    place: Placer = PACK

    def decide(self, view: View, memory: Schedules | None) -> tuple[Plan, Schedules]:
        """Evolve, then go towards the best schedule."""
        memory = memory or Schedules(due=view.now + self.epoch)
        shop = market(view, competitors(view))
        limits, due = self._limits(view, shop, memory)
        if len(shop.ids):
            sizes = self._evolve(view, shop, limits, memory)
            rows = zip(shop.ids.tolist(), sizes[0].tolist(), shop.units, shop.least, strict=True)
            wants = [Want(job, size * unit, "", low * unit)
                     for job, size, unit, low in rows if size]  # fmt: skip
            towards(view, wants, self.place)
            columns = sizes.T.tolist()
            kept = {job: tuple(column)
                    for job, column in zip(shop.ids.tolist(), columns, strict=True)}  # fmt: skip
            memory = Schedules(kept, limits, due)
        else:
            memory = Schedules({}, {}, due)
        busy = len(view.active) or len(view.pending)
        reasons = [Reason("Resources", "evolving")] if len(view.pending) else []
        return view.draft.plan(reasons, due if busy else NEVER, _CHANGES), memory

    def _limits(self, view: View, shop: Market, memory: Schedules) -> tuple[dict[int, int], int]:
        """The most steps of each job by now, and the end of the present epoch."""
        over, due = 0, memory.due
        if view.now >= due:
            over = (view.now - due) // self.epoch + 1
            due += over * self.epoch
        usual, now = asked(view, shop), held(view, shop)
        rows = zip(shop.ids.tolist(), usual, now, shop.curves, strict=True)
        limits = {
            job: min(memory.limits.get(job, want) << (min(over, 20) if size else 0), len(curve))
            for job, want, size, curve in rows
        }
        return limits, due

    def _evolve(self, view: View, shop: Market, limits: dict[int, int], memory: Schedules) -> Sizes:
        """The population after all rounds, the best schedule first."""
        ids, rng = shop.ids.tolist(), view.rng("evolve")
        offer = self._offer(view, shop, limits)
        old = [memory.sizes.get(job, (0,) * self.population) for job in ids]
        people = np.concatenate([np.array([held(view, shop)]), np.array(old).T])
        people = np.array([fill(person, offer, rng) for person in people])
        for _ in range(self.rounds):
            parents = rng.integers(len(people), size=(2, self.population))
            either = rng.random((self.population, len(ids))) < 0.5
            children = np.where(either, people[parents[0]], people[parents[1]])
            evicted = rng.random(self.population) < self.mutation
            children[evicted, rng.integers(len(ids), size=self.population)[evicted]] = 0
            born = np.array([fill(child, offer, rng) for child in children])
            people = np.concatenate([people, born])
            best = np.argsort([score(person, offer) for person in people], kind="stable")
            people = people[best[: self.population]]
        return people

    def _offer(self, view: View, shop: Market, limits: dict[int, int]) -> Offer:
        most = max(len(curve) for curve in shop.curves)
        cost = np.full((len(shop.ids), most + 1), np.inf)
        rows = zip(shop.curves, shop.work.tolist(), shop.units, strict=True)
        for row, (curve, work, unit) in enumerate(rows):
            steps = np.arange(1, len(curve) + 1)
            cost[row, 1 : len(curve) + 1] = steps * unit * work / curve
        cost[:, 0] = 0.0
        low = np.array(shop.least)
        high = np.maximum(np.array([limits[job] for job in shop.ids.tolist()]), low)
        fresh = view.jobs.first_start[shop.ids] < 0
        return Offer(cost, low, high, np.array(shop.units), fresh, shop.capacity)


def score(person: Sizes, offer: Offer) -> float:
    """GPU-time still to come for the jobs that run (least remaining utilisation first)."""
    return round(float(offer.cost[np.arange(len(person)), person].sum()), 3)


def fill(person: Sizes, offer: Offer, rng: np.random.Generator) -> Sizes:
    """The nearest schedule in which no GPU is idle that somebody could use."""
    sizes = np.minimum(person, offer.high)
    sizes[sizes < offer.low] = 0
    out = np.zeros_like(sizes)
    left = offer.capacity
    alone = offer.cost[np.arange(len(sizes)), offer.low]
    runs = rng.permutation(np.flatnonzero(sizes))
    waits = sorted(np.flatnonzero(sizes == 0).tolist(), key=lambda i: (alone[i], i))
    fresh = np.flatnonzero(offer.fresh).tolist()
    for i in (*runs.tolist(), *fresh, *waits):
        take = int(offer.low[i] * offer.unit[i])
        if not out[i] and take <= left:
            out[i] = offer.low[i]
            left -= take
    order = [*runs.tolist(), *waits]
    for goal in (np.maximum(sizes, offer.low), offer.high):
        for i in order:
            more = min(int(goal[i] - out[i]), left // int(offer.unit[i])) if out[i] else 0
            if more > 0:
                out[i] += more
                left -= more * int(offer.unit[i])
    return out
