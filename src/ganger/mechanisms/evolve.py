"""Genetic search over allocations: a population of matrices, jobs x nodes, of GPU counts.

One generation: parents by tournament, crossover of whole rows (a job's place), mutation, repair,
and the best of parents and children survive, so that the best is never lost. All individuals are
one array, of which only the cells that are not 0 are worked on. The budget is in counts; all
randomness comes from the generator handed in.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

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
    """The search: how many individuals, for how many generations, and how many cells of a child
    are drawn anew on average (`mutation`; a cell is one job on one node)."""

    population: int = 50
    generations: int = 40
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
        scores, marks = fitness(people), _marks(people)
        for _ in range(self.generations):
            mothers, fathers = (self._winners(scores, rng) for _ in range(2))
            children = crossover(people, mothers, fathers, rng)
            children = self._mutants(children, space, rng)
            people = np.concatenate([people, children])
            scores = np.concatenate([scores, fitness(children)])
            marks = np.concatenate([marks, _marks(children)])
            kept = _survivors(marks, scores, self.population)
            people, scores, marks = people[kept], scores[kept], marks[kept]
        return people, scores

    def _winners(self, scores: Scores, rng: np.random.Generator) -> NDArray[np.int64]:
        """A binary tournament for each place."""
        pairs = rng.integers(len(scores), size=(2, self.population))
        second = scores[pairs[0]] < scores[pairs[1]]
        best: NDArray[np.int64] = pairs[second.astype(np.int64), np.arange(self.population)]
        return best

    def _mutants(self, people: Counts, space: Space, rng: np.random.Generator) -> Counts:
        """Some cells drawn anew; in every second individual one job is placed anew, compactly."""
        size, jobs, nodes = people.shape
        drawn = rng.integers(people.size, size=rng.poisson(self.mutation * size))
        room = space.room[drawn % nodes].astype(np.int64)
        people.reshape(-1)[drawn] = (rng.random(len(drawn)) * (room + 1)).astype(np.int16)
        again = np.flatnonzero(rng.random(size) < 0.5)
        first = np.full(size, -1, np.int64)
        first[again] = rng.integers(jobs, size=len(again))
        people[again, first[again]] = compact(first[again], space, rng)
        return repair(people, space, rng, first)


def crossover(
    people: Counts, mothers: NDArray[np.int64], fathers: NDArray[np.int64], rng: np.random.Generator
) -> Counts:
    """Each job's row from one parent or the other."""
    jobs, nodes = people.shape[1:]
    from_mother = rng.random((len(mothers), jobs), np.float32) < 0.5
    parent = np.where(from_mother, mothers[:, None], fathers[:, None])
    rows = people.reshape(-1, nodes).take(parent * jobs + np.arange(jobs), axis=0)
    return np.asarray(rows)


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
    size, jobs, nodes = people.shape
    cells = np.flatnonzero(people != 0)  # the few cells that are not 0 are all the work there is
    row, node = np.divmod(cells, nodes)
    allowed = space.may[row % jobs, node]
    cells, row, node = cells[allowed], row[allowed], node[allowed]
    counts = people.reshape(-1)[cells].astype(np.int64)
    rank = rng.integers(1, 1 << 31, (size, jobs))
    if first is not None:
        chosen = np.flatnonzero(first >= 0)
        rank[chosen, first[chosen]] = 0
    column = row // jobs * nodes + node
    order = np.argsort((column << 31) + rank.reshape(-1)[row])
    cells, row, column = cells[order], row[order], column[order]
    counts = counts[order]
    if space.apart:
        spans = np.bincount(row, minlength=size * jobs)[row] > 1
        counts[spans & (_running(spans, column) > 1)] = 0
    counts = _cut(counts, column, space.room[column % nodes])
    job = row % jobs
    totals = np.bincount(row, counts, size * jobs)[row]
    over = np.flatnonzero(totals > space.most[job])
    if len(over):
        mixed = over[np.lexsort((rng.random(len(over)), row[over]))]
        counts[mixed] = _cut(counts[mixed], row[mixed], space.most[job[mixed]])
        totals = np.bincount(row, counts, size * jobs)[row]
    counts[totals < space.least[job]] = 0
    out = np.zeros(people.shape, np.int16)
    out.reshape(-1)[cells] = counts
    return out


def _running(values: NDArray[Any], group: NDArray[np.int64]) -> NDArray[np.int64]:
    """Sums so far within each group, of entries sorted by group."""
    sums = values.cumsum(dtype=np.int64)
    if not len(sums):
        return sums
    begins = np.concatenate([[0], np.flatnonzero(group[1:] != group[:-1]) + 1])
    lasts = np.append(begins[1:], len(group))
    return np.asarray(sums - np.repeat(sums[begins] - values[begins], lasts - begins))


def _cut(counts: NDArray[np.int64], group: NDArray[np.int64], limit: Counts) -> NDArray[np.int64]:
    """`counts`, sorted by group, cut so that no group's sum exceeds its limit, late ones first."""
    return np.clip(limit - (_running(counts, group) - counts), 0, counts)


def _clipped(counts: Counts, order: NDArray[np.int64], limit: Counts, axis: int) -> Counts:
    """`counts` cut so that no sum along `axis` exceeds `limit`, those late in `order` first."""
    order = np.broadcast_to(order, counts.shape)
    sums = np.take_along_axis(counts, order, axis).cumsum(axis=axis, dtype=np.int32)
    sums = np.minimum(sums, limit).astype(np.int16)
    cut = np.diff(sums, axis=axis, prepend=np.int16(0))
    out = np.empty_like(counts)
    np.put_along_axis(out, order, cut, axis)
    return out


def _marks(people: Counts) -> Scores:
    """A number for each individual, the same for equal ones alone (but for rounding)."""
    flat = people.reshape(len(people), -1)
    who, cell = np.divmod(np.flatnonzero(flat != 0), flat.shape[1])
    return np.asarray(np.bincount(who, flat[who, cell] * np.sqrt(cell + 1.0), len(people)))


def _survivors(marks: Scores, scores: Scores, size: int) -> NDArray[np.int64]:
    """The best `size`, each individual once while there are enough; ties by the earlier."""
    order = np.argsort(-scores, kind="stable")
    _, once = np.unique(marks[order], return_index=True)
    fresh = np.zeros(len(order), np.bool_)
    fresh[once] = True
    ranked = np.concatenate([order[fresh], order[~fresh]])[:size]
    return ranked[np.argsort(-scores[ranked], kind="stable")]
