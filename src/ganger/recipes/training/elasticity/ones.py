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
from ganger.mechanisms.common.reasons import decides_at
from ganger.mechanisms.common.reconcile import Sizes, competitors, towards_sizes
from ganger.mechanisms.placement.place import PACK, Placer
from ganger.mechanisms.sizing.elastic import Market, market
from ganger.mechanisms.sizing.marginal_gain import Floats, Ints
from ganger.mechanisms.sizing.resizing import asked, held

_CHANGES = CAPACITY_FREED | CAPACITY_LOST | COMMANDED | QUEUED | WOKE
PASSES = 3
"""How often those who did not fit behind somebody larger are looked at again."""
_FRESH = 1 << 15
"""Ranks below are those of who runs."""
_LAST = (1 << 16) - 1
Schedule = NDArray[np.int64]
"""Schedules x jobs: steps of each job, 0 for none."""


class Schedules(msgspec.Struct, frozen=True):
    """The population as plain data: of each of `jobs` (ascending) its limit, then its steps in each
    schedule, the best first, in `columns` of little-endian int32; when an epoch ends."""

    jobs: list[int] = []
    columns: bytes = b""
    due: int = 0

    def of(self, ids: Ints, population: int) -> tuple[Ints, Schedule]:
        """Limits, and schedules, of the jobs of `ids`; 0 where nothing is known."""
        out = np.zeros((1 + population, len(ids)), np.int64)
        if self.jobs:
            known = np.array(self.jobs)
            at = np.minimum(known.searchsorted(ids), len(known) - 1)
            there = np.flatnonzero(known[at] == ids)
            out[:, there] = np.frombuffer(self.columns, "<i4").reshape(-1, len(known))[:, at[there]]
        return out[0], out[1:]


class Offer(msgspec.Struct, frozen=True):
    """What schedules divide. `cost[j, n]`: GPU-time that job j still takes on n steps; `low`,
    `high`: its steps where it runs; `unit`: GPUs a step; `rank`: its turn where it does not run,
    from `_FRESH` on."""

    cost: Floats
    low: Ints
    high: Ints
    unit: Ints
    rank: NDArray[np.uint16]
    capacity: int


@dataclass(frozen=True)
class Evolving:
    """Keeps `population` schedules and improves them by up to `rounds` generations at every change
    and every `epoch` microseconds; the best one is put in force.

    A generation: parents by chance, each job's size from either; with the chance `mutation` one job
    is evicted; then every schedule is filled. A running job keeps its least, jobs that never ran
    get theirs next, then waiting jobs in order of the GPU-time they would take; then a job that ran
    keeps what it had as far as that is left, and running jobs grow up to their limits. The
    schedules with the least GPU-time still to come for running jobs survive. It ends early after
    `patience` generations in a row without a better best one; 0: it never does. A job's limit is
    what it asks for, and doubles with each epoch in which it ran.
    """

    name: str
    population: int
    rounds: int
    mutation: float
    epoch: int
    patience: int
    place: Placer = PACK

    def decide(self, view: View, memory: Schedules | None) -> tuple[Plan, Schedules]:
        """Evolve, then go towards the best schedule."""
        memory = memory or Schedules(due=view.now + self.epoch)
        ids, over, due = competitors(view), 0, memory.due
        has = view.jobs.gpus[ids] > 0
        shop, wanted = market(view, ids[has]), []
        if view.now >= due:
            over = (view.now - due) // self.epoch + 1
            due += over * self.epoch
        limits, people = memory.of(shop.ids, self.population)
        if len(shop.ids):
            limits = self._limits(view, shop, limits, over)
            people = self._evolve(view, shop, limits, people)
            runs = people[0] > 0
            wanted.append((shop.ids[runs], (people[0] * shop.units)[runs]))
        if not has.all():  # who has no GPUs competes with nobody
            others = market(view, ids[~has])
            wanted.append((others.ids, others.most * others.units))
        if wanted:
            towards_sizes(view, Sizes(*map(np.concatenate, zip(*wanted, strict=True))), self.place)
        columns = np.concatenate([limits[None], people]).astype("<i4")
        memory = Schedules(shop.ids.tolist(), columns.tobytes(), due)
        changes = len(view.pending) or bool((limits < shop.most).any())
        wake = due if changes else NEVER
        reasons = [Reason("Resources", "Evolving", evidence=decides_at(wake), until=_CHANGES)]
        reasons = reasons if len(view.pending) else []
        return view.draft.plan(reasons, wake, _CHANGES), memory

    def _limits(self, view: View, shop: Market, told: Ints, over: int) -> Ints:
        """The most steps of each job now that so many epochs are over."""
        limits = np.where(told > 0, told, asked(view, shop))
        doubles = np.where(held(view, shop) > 0, min(over, 20), 0)
        return np.asarray(np.minimum(limits << doubles, shop.most))

    def _evolve(self, view: View, shop: Market, limits: Ints, people: Schedule) -> Schedule:
        """The population after all generations, the best schedule first."""
        high, many = np.maximum(limits, shop.least), len(shop.ids)
        if shop.has_room(high):
            return np.broadcast_to(high, people.shape)  # nobody competes
        offer, rng = self._offer(view, shop, high), view.rng("evolve")
        people = filled(np.concatenate([held(view, shop)[None], people]), offer, rng)
        score = scores(people, offer)
        best, tried = score.min(), 0
        for _ in range(self.rounds):
            parents = rng.integers(len(people), size=(2, self.population))
            either = rng.integers(2, size=(self.population, many), dtype=np.bool_)
            children = np.where(either, people[parents[0]], people[parents[1]])
            evicted = rng.random(self.population) < self.mutation
            children[evicted, rng.integers(many, size=self.population)[evicted]] = 0
            children = filled(children, offer, rng)
            people = np.concatenate([people, children])
            score = np.concatenate([score, scores(children, offer)])
            kept = np.argsort(score, kind="stable")[: self.population]
            people, score = people[kept], score[kept]
            tried = 0 if score[0] < best else tried + 1
            best = score[0]
            if tried and tried == self.patience:
                break
        return people

    def _offer(self, view: View, shop: Market, high: Ints) -> Offer:
        curves = shop.curves
        step = np.arange(1, curves.speed.shape[1] + 1)
        gpus = step * curves.units[:, None]
        cost = np.zeros((len(shop.ids), len(step) + 1))
        cost[:, 1:] = gpus * shop.work[:, None] / curves.speed
        cost[:, 1:][step > curves.most[:, None]] = np.inf
        alone = cost[np.arange(len(cost)), curves.least].argsort(kind="stable").argsort()
        later = np.minimum(_FRESH + 1 + alone, _LAST)
        rank = np.where(view.jobs.first_start[shop.ids] < 0, _FRESH, later).astype(np.uint16)
        return Offer(cost, curves.least, high, curves.units, rank, shop.capacity)


def scores(people: Schedule, offer: Offer) -> Floats:
    """Of each schedule the GPU-time still to come for the jobs that run (least remaining
    utilisation first)."""
    jobs, steps = offer.cost.shape
    costs: Floats = offer.cost.ravel().take(people + np.arange(jobs) * steps).sum(axis=1)
    return costs.round(3)


def filled(people: Schedule, offer: Offer, rng: np.random.Generator) -> Schedule:
    """The nearest schedules in which few GPUs are idle that somebody could use."""
    sizes = np.minimum(people, offer.high)
    sizes *= sizes >= offer.low
    # Who runs comes first, in any order; then who never ran; then who waits, the cheapest first.
    # Ranks have 16 bits, of which numpy sorts a row in linear time.
    turn = (rng.random(sizes.shape, np.float32) * _FRESH).astype(np.uint16)
    order = np.where(sizes > 0, turn, offer.rank).argsort(axis=1, kind="stable")
    cells = order + np.arange(len(sizes))[:, None] * sizes.shape[1]
    low, unit, high = offer.low[order], offer.unit[order], offer.high[order]
    need, left = low * unit, np.full((len(sizes), 1), offer.capacity)
    got = np.zeros(sizes.shape, np.bool_)
    for _ in range(PASSES):
        asks = np.where(got | (need > left), 0, need)
        fits = (asks > 0) & (asks.cumsum(axis=1) <= left)
        got |= fits
        left = left - (fits * need).sum(axis=1, keepdims=True)
        if got.all() or not fits.any():
            break
    gets = np.where(got, low, 0)
    for goal in (np.maximum(sizes.ravel().take(cells), low), high):
        asks = np.where(got, (goal - gets) * unit, 0)
        given = np.diff(np.minimum(asks.cumsum(axis=1), left), axis=1, prepend=0)
        more = given // unit
        gets += more
        left = left - (more * unit).sum(axis=1, keepdims=True)
    out = np.empty_like(sizes)
    out.ravel()[cells] = gets
    return out
