"""Genetic search over allocations: a population of matrices, jobs x nodes, of GPU counts.

One generation: parents by tournament, crossover of whole rows (a job's place), mutation, repair,
and the best of parents and children survive, so that the best is never lost. All individuals are
one array; the budget is in counts; all randomness comes from the generator handed in.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from ganger.core.errors import BadInput

Counts = NDArray[np.int16]
"""(individuals, jobs, nodes) GPUs."""
Scores = NDArray[np.float64]
Fitness = Callable[[Counts], Scores]
"""The value of every individual; larger is better."""


class Space(NamedTuple):
    """What is allowed: `room[n]` GPUs on node n; a job runs on `least[j]` to `most[j]` GPUs or not
    at all, only where `may[j, n]`; at most one job that spans nodes touches a node if `apart`."""

    room: NDArray[np.int16]
    least: NDArray[np.int16]
    most: NDArray[np.int16]
    may: NDArray[np.bool_]
    apart: bool = True


class Population(msgspec.Struct, frozen=True):
    """A population as plain data, for a policy's memory. `jobs`: whose the rows are; `counts`:
    individuals x jobs x nodes as little-endian int16, best individual first."""

    jobs: list[int] = []
    nodes: int = 0
    counts: bytes = b""
    version: int = 1

    @classmethod
    def of(cls, jobs: list[int], counts: Counts) -> Population:
        """Pack `counts`."""
        return cls(jobs, counts.shape[2], counts.astype("<i2").tobytes())

    def rows(self, jobs: list[int], nodes: int) -> Counts:
        """The individuals with a row for each of `jobs`; new jobs hold nothing."""
        if self.version != 1:
            raise BadInput(f"population version {self.version}", mend="this build reads 1")
        if self.nodes != nodes or not self.jobs:
            return np.zeros((0, len(jobs), nodes), np.int16)
        old = np.frombuffer(self.counts, "<i2").reshape(-1, len(self.jobs), nodes)
        where = {job: row for row, job in enumerate(self.jobs)}
        out = np.zeros((len(old), len(jobs), nodes), np.int16)
        for row, job in enumerate(jobs):
            if job in where:
                out[:, row] = old[:, where[job]]
        return out


@dataclass(frozen=True)
class Genetic:
    """The search: how many individuals, for how many generations, and how often a cell of a child
    is drawn anew (`mutation`, times one over the number of nodes)."""

    population: int = 100
    generations: int = 100
    mutation: float = 1.0

    def run(
        self, seeds: Counts, fitness: Fitness, space: Space, rng: np.random.Generator
    ) -> tuple[Counts, Scores]:
        """The last population and its scores, best first. `seeds` are repaired and always in the
        first population, which is filled up with their mutants."""
        if not seeds.shape[1] or not seeds.shape[2]:
            return seeds[:1], np.zeros(len(seeds[:1]))
        people = repair(seeds.astype(np.int16), space, rng)[: self.population]
        missing = self.population - len(people)
        if missing:
            copies = people[rng.integers(len(people), size=missing)]
            people = np.concatenate([people, self._mutants(copies, space, rng)])
        scores = fitness(people)
        for _ in range(self.generations):
            mothers, fathers = (self._winners(scores, rng) for _ in range(2))
            children = crossover(people[mothers], people[fathers], rng)
            children = self._mutants(children, space, rng)
            people = np.concatenate([people, children])
            scores = np.concatenate([scores, fitness(children)])
            kept = _survivors(people, scores, self.population)
            people, scores = people[kept], scores[kept]
        return people, scores

    def _winners(self, scores: Scores, rng: np.random.Generator) -> NDArray[np.int64]:
        """A binary tournament for each place."""
        pairs = rng.integers(len(scores), size=(2, self.population))
        best: NDArray[np.int64] = np.where(scores[pairs[0]] >= scores[pairs[1]], pairs[0], pairs[1])
        return best

    def _mutants(self, people: Counts, space: Space, rng: np.random.Generator) -> Counts:
        """Some cells drawn anew; in every second individual one job is placed anew, compactly."""
        size, jobs, nodes = people.shape
        drawn = rng.random(people.shape, np.float32) < self.mutation / nodes
        cells = (rng.random(people.shape, np.float32) * (space.room + 1)).astype(np.int16)
        people = np.where(drawn, cells, people)
        first: NDArray[np.int64] = rng.integers(jobs, size=(size,))
        rows = compact(first, space, rng)
        again = np.flatnonzero(rng.random(size) < 0.5)
        people[again, first[again]] = rows[again]
        return repair(people, space, rng, np.where(np.isin(np.arange(size), again), first, -1))


def crossover(mothers: Counts, fathers: Counts, rng: np.random.Generator) -> Counts:
    """Each job's row from one parent or the other."""
    return np.where(rng.random(mothers.shape[:2])[:, :, None] < 0.5, mothers, fathers)


def compact(jobs: NDArray[np.int64], space: Space, rng: np.random.Generator) -> Counts:
    """For every entry of `jobs` a row of that job: a random size on as few nodes as it takes, in
    a random order of nodes. (len(jobs), nodes)."""
    low, high = space.least[jobs].astype(np.int64), space.most[jobs].astype(np.int64)
    size = low + (rng.random(len(jobs)) * (high - low + 1)).astype(np.int64)
    room = np.where(space.may[jobs], space.room, 0)
    order = rng.random(room.shape).argsort(axis=1)
    return _clipped(room, order, np.minimum(size, 32767).astype(np.int16)[:, None], axis=1)


def repair(
    people: Counts, space: Space, rng: np.random.Generator, first: NDArray[np.int64] | None = None
) -> Counts:
    """The nearest allowed individuals, cutting at random: never more on a node than its room, on
    a job than its most, or less than its least; `first`: per individual a job that goes before
    all others (-1: none)."""
    size, jobs, _ = people.shape
    people = np.where(space.may, people, 0)
    rank = rng.random((size, jobs), np.float32)
    if first is not None:
        chosen = np.flatnonzero(first >= 0)
        rank[chosen, first[chosen]] = -1.0
    if space.apart:
        people = _apart(people, rank)
    people = _clipped(people, rank.argsort(axis=1)[:, :, None], space.room, axis=1)
    totals = people.sum(axis=2)
    if (totals > space.most).any():
        order = rng.random((size, 1, people.shape[2]), np.float32).argsort(axis=2)
        people = _clipped(people, order, space.most[:, None], axis=2)
        totals = people.sum(axis=2)
    people[totals < space.least] = 0
    return people


def _clipped(counts: Counts, order: NDArray[np.int64], limit: Counts, axis: int) -> Counts:
    """`counts` cut so that no sum along `axis` exceeds `limit`, those late in `order` first."""
    order = np.broadcast_to(order, counts.shape)
    sums = np.take_along_axis(counts, order, axis).cumsum(axis=axis, dtype=np.int32)
    sums = np.minimum(sums, limit).astype(np.int16)
    cut = np.diff(sums, axis=axis, prepend=np.int16(0))
    out = np.empty_like(counts)
    np.put_along_axis(out, order, cut, axis)
    return out


def _apart(people: Counts, rank: NDArray[np.float32]) -> Counts:
    """On each node only the first by `rank` of the jobs that span nodes."""
    held = people > 0
    spans = held & (held.sum(axis=2) > 1)[:, :, None]
    if not (spans.sum(axis=1) > 1).any():
        return people
    ranks = np.where(spans, rank[:, :, None], np.float32(2.0))
    keeps = ranks == ranks.min(axis=1, keepdims=True)
    return np.where(spans & ~keeps, np.int16(0), people)


def _survivors(people: Counts, scores: Scores, size: int) -> NDArray[np.int64]:
    """The best `size`, each matrix once while there are enough; ties by the earlier."""
    order = np.argsort(-scores, kind="stable")
    flat = people.reshape(len(people), -1).astype(np.float64)
    marks = flat @ np.sqrt(np.arange(1.0, flat.shape[1] + 1.0))
    _, once = np.unique(marks[order], return_index=True)
    fresh = np.zeros(len(order), np.bool_)
    fresh[once] = True
    ranked = np.concatenate([order[fresh], order[~fresh]])[:size]
    return ranked[np.argsort(-scores[ranked], kind="stable")]
