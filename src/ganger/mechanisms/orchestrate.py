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
from ganger.mechanisms.realise import Sizes, competitors, towards_sizes
from ganger.mechanisms.resizing import asked, held

_CHANGES = CAPACITY_FREED | CAPACITY_LOST | COMMANDED | QUEUED | WOKE
PASSES = 3
"""How often those who did not fit behind somebody larger are looked at again."""
Schedule = NDArray[np.int64]
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
    low: Schedule
    high: Schedule
    unit: Schedule
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
            runs = sizes[0] > 0
            gpus = (sizes[0] * shop.units)[runs]
            towards_sizes(view, Sizes(shop.ids[runs], gpus), self.place)
            columns = map(tuple, sizes.T.tolist())
            kept = dict(zip(shop.ids.tolist(), columns, strict=True))
            memory = Schedules(kept, limits, due)
        else:
            memory = Schedules({}, {}, due)
        grows = any(
            limit < most for limit, most in zip(limits.values(), shop.most.tolist(), strict=True)
        )
        changes = len(view.pending) or grows
        reasons = [Reason("Resources", "evolving")] if len(view.pending) else []
        return view.draft.plan(reasons, due if changes else NEVER, _CHANGES), memory

    def _limits(self, view: View, shop: Market, memory: Schedules) -> tuple[dict[int, int], int]:
        """The most steps of each job by now, and the end of the present epoch."""
        over, due = 0, memory.due
        if view.now >= due:
            over = (view.now - due) // self.epoch + 1
            due += over * self.epoch
        usual, now = asked(view, shop), held(view, shop)
        columns = (shop.ids, usual, now, shop.most)
        rows = zip(*(column.tolist() for column in columns), strict=True)
        limits = {
            job: min(memory.limits.get(job, want) << (min(over, 20) if size else 0), most)
            for job, want, size, most in rows
        }
        return limits, due

    def _evolve(
        self, view: View, shop: Market, limits: dict[int, int], memory: Schedules
    ) -> Schedule:
        """The population after all rounds, the best schedule first."""
        ids = shop.ids.tolist()
        high = np.maximum(np.array([limits[job] for job in ids]), shop.least)
        if shop.has_room(high):
            return np.tile(high, (self.population, 1))  # nobody competes
        offer, rng = self._offer(view, shop, high), view.rng("evolve")
        old = [memory.sizes.get(job, (0,) * self.population) for job in ids]
        people = np.concatenate([np.array([held(view, shop)]), np.array(old).T])
        people = filled(people, offer, rng)
        for _ in range(self.rounds):
            parents = rng.integers(len(people), size=(2, self.population))
            either = rng.random((self.population, len(ids))) < 0.5
            children = np.where(either, people[parents[0]], people[parents[1]])
            evicted = rng.random(self.population) < self.mutation
            children[evicted, rng.integers(len(ids), size=self.population)[evicted]] = 0
            people = np.concatenate([people, filled(children, offer, rng)])
            best = np.argsort(scores(people, offer), kind="stable")
            people = people[best[: self.population]]
        return people

    def _offer(self, view: View, shop: Market, high: Schedule) -> Offer:
        curves = shop.curves
        step = np.arange(1, curves.speed.shape[1] + 1)
        gpus = step * curves.units[:, None]
        cost = np.zeros((len(shop.ids), len(step) + 1))
        cost[:, 1:] = gpus * shop.work[:, None] / curves.speed
        cost[:, 1:][step > curves.most[:, None]] = np.inf
        fresh = view.jobs.first_start[shop.ids] < 0
        return Offer(cost, curves.least, high, curves.units, fresh, shop.capacity)


def scores(people: Schedule, offer: Offer) -> NDArray[np.float64]:
    """Of each schedule the GPU-time still to come for the jobs that run (least remaining
    utilisation first)."""
    costs: NDArray[np.float64] = offer.cost[np.arange(people.shape[1]), people].sum(axis=1)
    return costs.round(3)


def filled(people: Schedule, offer: Offer, rng: np.random.Generator) -> Schedule:
    """The nearest schedules in which few GPUs are idle that somebody could use."""
    sizes = np.minimum(people, offer.high)
    sizes[sizes < offer.low] = 0
    runs, shape = sizes > 0, sizes.shape
    alone = offer.cost[np.arange(shape[1]), offer.low].argsort(kind="stable").argsort()
    # Who runs comes first, in any order; then who never ran; then who waits, the cheapest first.
    rank = np.where(runs, rng.random(shape), np.where(offer.fresh, 1.0, 2.0 + alone))
    order = rank.argsort(axis=1, kind="stable")
    need = np.broadcast_to(offer.low * offer.unit, shape)
    out, left = np.zeros(shape, np.int64), np.full(len(people), offer.capacity)
    for _ in range(PASSES):
        asks = np.take_along_axis(np.where(out > 0, 0, need), order, 1)
        asks = np.where(asks > left[:, None], 0, asks)
        fits = (asks > 0) & (asks.cumsum(axis=1) <= left[:, None])
        got = np.zeros(shape, np.bool_)
        np.put_along_axis(got, order, fits, 1)
        out = np.where(got, offer.low, out)
        left = left - (got * need).sum(axis=1)
    for goal in (np.maximum(sizes, offer.low), np.broadcast_to(offer.high, shape)):
        asks = np.where(out > 0, (goal - out) * offer.unit, 0)
        sums = np.take_along_axis(np.maximum(asks, 0), order, 1).cumsum(axis=1)
        given = np.diff(np.minimum(sums, left[:, None]), axis=1, prepend=0)
        more = np.zeros(shape, np.int64)
        np.put_along_axis(more, order, given, 1)
        more //= offer.unit
        out = out + more
        left = left - (more * offer.unit).sum(axis=1)
    return out
