"""Cynthia (ICPP 2019): the cheapest numbers of workers and servers by a model of a step."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import inf
from typing import NamedTuple

import numpy as np
from scipy.optimize import nnls

from ganger.core.errors import BadInput
from ganger.mechanisms.provisioning.rentals import Demand, Free, Rental, rentals, widths
from ganger.mechanisms.provisioning.servers import (
    Serving,
    Sync,
    counts,
    machines_for,
    room,
    server_kinds,
    speed_of,
)


@dataclass(frozen=True)
class ByModel:
    """Workers and servers by Cynthia's model of a step, for a job that should be done within `goal`
    seconds. A step of workers that wait for each other takes as long as the longer of computing and
    communication, of others their sum. A job without servers is looked at by its speeds.

    Of each kind of machine and number of servers those numbers of workers are looked at that could
    be in time if they only computed, up to the first one at which the servers are the bottleneck.
    `stated`: with as many servers as the profile states.
    """

    sync: Sync = Sync.BSP
    per_core: float = 0.0
    goal: float = inf
    stated: bool = False

    def __call__(self, free: Sequence[Free], demand: Demand) -> Iterator[Rental]:
        """What it chooses among."""
        steps = demand.profile.steps
        if steps is None or not demand.served:
            yield from rentals(free, demand)
            return
        serving = Serving(steps, self.sync, self.per_core)
        for kind in free:
            if kind[0].gpus:
                for server in server_kinds(free, kind[0]):
                    for servers in counts(steps, server[1], stated=self.stated):
                        yield from self._with(serving, demand, kind, server, servers)

    def _with(
        self, serving: Serving, demand: Demand, kind: Free, server: Free, servers: int
    ) -> Iterator[Rental]:
        instance, speed = kind[0], speed_of(kind[0], demand)
        passes = serving.passes(server[0], servers)
        sizes = widths(demand.least, demand.limit, instance.gpus, room(kind, server, servers))
        for workers in self._bounded(serving, demand, speed, passes, sizes):
            seconds = serving.seconds(demand, workers, self.step(serving, workers, speed, passes))
            machines = machines_for(workers, instance)
            yield Rental(instance, machines, workers, seconds, server[0], servers)

    def step(self, serving: Serving, workers: int, speed: float, passes: float) -> float:
        """Seconds between two exchanges."""
        computing, exchange = serving.computing(workers, speed), serving.exchanging(workers, passes)
        return max(computing, exchange) if self.sync is Sync.BSP else computing + exchange

    def _bounded(
        self, serving: Serving, demand: Demand, speed: float, passes: float, sizes: Sequence[int]
    ) -> list[int]:
        """The numbers of workers between the two bounds; all up to the bottleneck where none could
        be in time, so that what comes nearest is known."""
        kept = list[int]()
        for workers in sizes:
            kept.append(workers)
            if serving.exchanging(workers, passes) >= serving.computing(workers, speed):
                break
        in_time = [
            workers
            for workers in kept
            if serving.seconds(demand, workers, serving.computing(workers, speed)) <= self.goal
        ]
        return in_time or kept


class LossModel(NamedTuple):
    """The loss after k epochs: b0 / k + b1. `spread`: the standard error of the epochs that it
    gives, as a part of them."""

    b0: float
    b1: float
    spread: float

    def epochs(self, loss: float) -> float:
        """After how many epochs the loss is reached; inf where it never is."""
        return self.b0 / (loss - self.b1) if loss > self.b1 and self.b0 > 0 else inf


def fit_loss_model(epochs: Sequence[float], losses: Sequence[float]) -> LossModel:
    """The model nearest to what a run reported, both numbers not negative. Raises BadInput below
    three points."""
    if len(epochs) < 3:
        raise BadInput(f"{len(epochs)} losses", mend="a loss curve needs three points")
    values = np.asarray(losses, np.float64)
    rows = np.stack([1.0 / np.asarray(epochs, np.float64), np.ones(len(values))], axis=1)
    (b0, b1), _ = nnls(rows, values)
    falls = values - b1
    off = (rows[:, 0] * b0)[falls > 0] / falls[falls > 0] - 1.0
    spread = float(np.sqrt(np.sum(off**2) / max(len(off) - 2, 1))) if len(off) else 0.0
    return LossModel(float(b0), float(b1), spread)
