"""MLCloudPrice (DISPA 2020): jobs move to where a unit of their work is cheapest now, if that saves
more than the move costs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import inf
from typing import NamedTuple

import numpy as np

from ganger.core.units import HOUR, NEVER, SECOND
from ganger.core.view import View
from ganger.mechanisms.provisioning.rentals import Demand, Free, Rental, rentals
from ganger.mechanisms.provisioning.renting import Lease, Market, demand_of
from ganger.solve.knapsack import multi_knapsack


class Saving(NamedTuple):
    """A move of a job and how many USD it saves."""

    job: int
    rental: Rental
    dollars: float


@dataclass(frozen=True)
class Cheapest:
    """Machines by price over throughput at the prices of the moment, those first that are in time
    for the job's deadline. Every `every` microseconds jobs that run are offered what is free: the
    programme over all of them maximises what they save during the next `stay` microseconds, less
    their moves. A move takes `move` microseconds on the new machines, where the job does not say
    what a checkpoint and going on from it take."""

    every: int
    stay: int
    move: int

    def ranked(
        self, view: View, job: int, free: Sequence[Free], demand: Demand
    ) -> Iterator[Rental]:
        """By money for the whole job, those in time first."""
        deadline = int(view.jobs.deadline[job])
        rest = (deadline - view.now) / SECOND if deadline < NEVER else inf

        def key(each: Rental) -> tuple[bool, float, float]:
            return each.seconds > rest, unit_price(each, view.now), each.seconds

        yield from sorted((each for each in rentals(free, demand) if each.seconds < inf), key=key)

    def better(
        self, view: View, jobs: Sequence[int], market: Market
    ) -> Iterator[tuple[int, Rental]]:
        """The moves that save most together, on machines that are free."""
        moves = [move for job in jobs for move in self._moves(view, job, market)]
        if not moves:
            return
        rows = {job: at for at, job in enumerate(sorted({each.job for each in moves}))}
        kinds = {first: len(rows) + at for at, first in enumerate(market.by_kind)}
        demands = np.zeros((len(moves), len(rows) + len(kinds)))
        for at, each in enumerate(moves):
            demands[at, rows[each.job]] = 1.0
            demands[at, kinds[each.rental.instance.first]] = each.rental.machines
        room = [1.0] * len(rows) + [float(len(nodes)) for nodes in market.by_kind.values()]
        for chosen in multi_knapsack(
            np.array([each.dollars for each in moves]), demands, np.array(room)
        ):
            yield moves[chosen].job, moves[chosen].rental

    def _moves(self, view: View, job: int, market: Market) -> Iterator[Saving]:
        """Where a job could move so that it saves something, and is no later than it may be."""
        demand = demand_of(view, job)
        now = self._now(view, job, market, market.memory.leases[job], demand)
        if now is None:
            return
        jobs, deadline = view.jobs, int(view.jobs.deadline[job])
        stated = int(max(jobs.checkpoint[job], 0) + max(jobs.restore[job], 0))
        costs = (stated or self.move) / SECOND
        rest = (deadline - view.now) / SECOND if deadline < NEVER else inf
        for each in rentals(market.free(job), demand):
            if each.seconds == inf or (each.seconds + costs > rest >= now.seconds):
                continue
            part = min(1.0, self.stay / SECOND / each.seconds)
            here, elsewhere = (unit_price(rental, view.now) * part for rental in (now, each))
            paid = each.hourly(view.now) * costs * SECOND / HOUR
            if here - elsewhere - paid > 1e-9:
                yield Saving(job, each, here - elsewhere - paid)

    def _now(
        self, view: View, job: int, market: Market, lease: Lease, demand: Demand
    ) -> Rental | None:
        """What the job has, at today's prices; None where it is on machines of several kinds."""
        if lease.kind < 0:
            return None
        kind = market.whole.kind_of[lease.nodes[0]]
        machines, gpus = len(lease.nodes), int(view.at.size[job])
        return Rental(kind, machines, gpus, demand.takes(kind, gpus, machines))


def unit_price(rental: Rental, at: int) -> float:
    """USD for what is left of the job, in proportion to time: price over throughput."""
    return rental.hourly(at) * rental.seconds * SECOND / HOUR
