"""How fast jobs move their gradients in the mean, where they share links: the fluid grain.

A job computes, then moves, again and again. What it asks of links in the mean is its bytes over the
seconds of a step. These depend on the rate at which it moves, and that rate on the other jobs that
move then: the answer is a fixed point. Among few jobs it is that of a chain with a state for each
set of jobs that move at once, between which it goes at the max-min rates of the set; whatever the
distribution of the times, its means are these for one shared link (Baskett et al., JACM 1975), and
nearly these for trees (benchmarks/links.py measures it). Among more jobs each has a chain with
those that it meets most, and the rest are there for the part of the time for which they move.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ganger.core.books.links import Transfer
from ganger.solve.flows.max_min import Crossings, max_min

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

EXACT = 7
"""So many jobs have one chain."""
NEAREST = 3
"""Among more, each has a chain with so many others."""
MANY = 60
"""Of more than so many jobs all are there for a part of the time."""
ROUNDS = 2
TRIES = 60
SLOWEST = 1e-3
"""No job is slowed to less of its speed: others may have priority for a long time."""
CLOSE = 1e-6


class Mover(NamedTuple):
    """A job that moves gradients: what it moves, its weight, and its priority, higher first."""

    transfer: Transfer
    weight: float = 1.0
    priority: int = 0

    @property
    def size(self) -> float:
        """GB a step."""
        return len(self.transfer.phases) * self.transfer.size

    @property
    def compute(self) -> float:
        """Seconds of a step in which nothing is moved, never quite none."""
        return max(self.transfer.compute, 1e-6 * self.size / self.transfer.cap)


def step_times(movers: Sequence[Mover], capacity: Floats, contention: float = 0.0) -> Floats:
    """Mean seconds of a step of each; `capacity` by link, GB/s, of which k that move at once have
    k / (k + (k - 1) contention)."""
    company = _Company(movers, capacity, contention)
    everybody = np.arange(len(movers))
    if len(movers) <= EXACT:
        return company.chain(everybody, np.zeros(len(movers)))
    steps = company.means()
    if len(movers) > MANY:
        return steps
    near = company.nearest(steps)
    for _ in range(ROUNDS):
        moves = 1.0 - company.compute / steps
        met = [company.chain(group, moves)[0] for group in near]
        steps = np.sqrt(steps * met)
    return steps


class _Company:
    """Jobs that share links, as columns; of the links only those that they cross."""

    def __init__(self, movers: Sequence[Mover], capacity: Floats, contention: float) -> None:
        paths = [each.transfer.path for each in movers]
        self._lengths = np.array([len(path) for path in paths])
        self._starts = np.cumsum(self._lengths) - self._lengths
        link = np.array([link for path in paths for link, _ in path], np.int64)
        used, self._link = np.unique(link, return_inverse=True)
        self._part = np.array([part for path in paths for _, part in path])
        self._capacity, self._contention = capacity[used], contention
        self.compute = np.array([each.compute for each in movers])
        self._size = np.array([each.size for each in movers])
        self._cap = np.array([each.transfer.cap for each in movers])
        self._weight = np.array([each.weight for each in movers])
        self._priority = np.array([each.priority for each in movers])

    def _rates(self, scene: Ints, who: Ints, presence: Floats) -> Floats:
        """The rates of flows of the jobs `who`, in order of scenes, which know nothing of each
        other. `presence`: by flow the part of the time for which its job moves; it has that part of
        its weight and cap."""
        rates = np.zeros(len(who))
        room = np.tile(self._capacity, int(scene[-1]) + 1)
        if self._contention:
            flow, _, link = self._crossed(who, scene)
            movers = np.bincount(link, presence[flow], len(room))
            room /= 1.0 + self._contention * np.maximum(1.0 - 1.0 / np.maximum(movers, 1.0), 0.0)
        for priority in np.unique(self._priority[who])[::-1]:
            own = np.flatnonzero(self._priority[who] == priority)
            job = who[own]
            flow, entry, link = self._crossed(job, scene[own])
            crossings = Crossings(flow, link, self._part[entry], len(room))
            weights, caps = presence[own] * self._weight[job], presence[own] * self._cap[job]
            rates[own] = max_min(crossings, room, weights, caps)[0]
            room = np.maximum(room - crossings.load(rates[own]), 0.0)
        return rates

    def _crossed(self, job: Ints, scene: Ints) -> tuple[Ints, Ints, Ints]:
        """By crossing the flow, the entry of its job's path, and the link of its scene."""
        lengths = self._lengths[job]
        flow = np.repeat(np.arange(len(job)), lengths)
        first = np.repeat(np.cumsum(lengths) - lengths, lengths)
        entry = self._starts[job][flow] + np.arange(len(flow)) - first
        return flow, entry, self._link[entry] + len(self._capacity) * scene[flow]

    def chain(self, group: Ints, moves: Floats) -> Floats:
        """Mean seconds of a step of the jobs of `group`, whose chain is solved; the others move for
        the part `moves` of the time."""
        n = len(group)
        rest = np.setdiff1d(np.flatnonzero(moves > 0), group)
        on = (np.arange(1 << n)[:, None] >> np.arange(n)) & 1
        scene, at = np.nonzero(np.hstack([on, np.ones((1 << n, len(rest)), np.int64)]))
        presence = np.concatenate([np.ones(n), moves[rest]])[at]
        rates = np.zeros((1 << n, n + len(rest)))
        rates[scene, at] = self._rates(scene, np.concatenate([group, rest])[at], presence)
        leaves = rates[:, :n] / self._size[group]
        flow = np.zeros((1 << n, 1 << n))
        states = np.arange(1 << n)
        for member in range(n):
            off, bit = states[on[:, member] == 0], 1 << member
            flow[off + bit, off] = 1.0 / self.compute[group[member]]
            flow[off, off + bit] = leaves[off + bit, member]
        flow[states, states] = -flow.sum(axis=0)
        flow[0] = 1.0
        shares = np.linalg.solve(flow, np.eye(1, 1 << n)[0])
        steps: Floats = 1.0 / np.maximum(shares @ leaves, SLOWEST * leaves.max(axis=0))
        return steps

    def means(self) -> Floats:
        """Mean seconds of a step where everybody but oneself moves for a part of the time."""
        n = len(self.compute)
        few = n <= MANY
        scene, who = np.repeat(np.arange(n), n), np.tile(np.arange(n), n)
        if not few:
            scene, who = np.zeros(n, np.int64), np.arange(n)
        self_ = np.flatnonzero(scene == who) if few else who
        rates = self._cap
        for _ in range(TRIES):
            takes = self._size / rates
            moves = takes / (self.compute + takes)
            presence = moves[who]
            if few:
                presence[self_] = 1.0
            next_rates = self._rates(scene, who, presence)[self_] / presence[self_]
            next_rates = np.maximum(next_rates, SLOWEST * self._cap)
            change = np.abs(next_rates - rates).max() / rates.max()
            rates = np.sqrt(rates * next_rates)
            if change < CLOSE:
                break
        steps: Floats = self.compute + self._size / rates
        return steps

    def nearest(self, steps: Floats) -> list[Ints]:
        """By job itself and those that take most of a link of its own."""
        n = len(steps)
        job = np.repeat(np.arange(n), self._lengths)
        asks = self._part * (self._size / steps)[job] / self._capacity[self._link]
        table = np.zeros((n, len(self._capacity)))
        table[job, self._link] = asks
        crossed = table > 0
        meets = np.array([(table * crossed[at]).max(axis=1) for at in range(n)])
        np.fill_diagonal(meets, np.inf)
        return [np.argsort(-row, kind="stable")[: NEAREST + 1] for row in meets]
