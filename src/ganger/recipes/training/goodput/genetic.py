"""Genetic search over allocations: a population of matrices, jobs x nodes, of GPU counts.

One generation: parents by tournament, crossover of whole rows (a job's place), mutation, repair,
and the best of parents and children survive, so that the best is never lost. Of all individuals
only the cells that are not 0 are kept and worked on, so that a generation costs what the jobs hold,
however many nodes there are. The budget is in counts; all randomness comes from the generator
handed in.
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
Ints = NDArray[np.int64]
Scores = NDArray[np.float64]
RISES = 1e-3
"""What counts as better, as a part of the best."""


class People(NamedTuple):
    """`size` individuals, each jobs x nodes, by their cells that are not 0: `row[c]` is individual
    x jobs + job, `gpus[c]` what that job has on `node[c]`. In order of row, then node."""

    size: int
    jobs: int
    nodes: int
    row: Ints
    node: Ints
    gpus: Ints

    @classmethod
    def of(cls, counts: Counts) -> People:
        """From (individuals, jobs, nodes)."""
        size, jobs, nodes = counts.shape
        flat = counts.reshape(-1)
        cells = np.flatnonzero(flat != 0)
        row, node = divmod(cells, max(nodes, 1))
        return cls(size, jobs, nodes, row, node, flat[cells].astype(np.int64))

    def dense(self) -> Counts:
        """(individuals, jobs, nodes)."""
        out = np.zeros((self.size, self.jobs, self.nodes), np.int16)
        out.reshape(-1, self.nodes)[self.row, self.node] = self.gpus
        return out

    def rows(self, rows: Ints) -> People:
        """Individuals made of these rows, in this order."""
        many = np.bincount(self.row, minlength=self.size * self.jobs)
        begin, many = (many.cumsum() - many)[rows], many[rows]
        lasts = many.cumsum()
        at = np.repeat(begin - lasts + many, many) + np.arange(lasts[-1] if len(lasts) else 0)
        new = np.repeat(np.arange(len(rows)), many)
        size = len(rows) // max(self.jobs, 1)
        return People(size, self.jobs, self.nodes, new, self.node[at], self.gpus[at])

    def some(self, which: Ints) -> People:
        """Those individuals, in this order."""
        return self.rows((which[:, None] * self.jobs + np.arange(self.jobs)).reshape(-1))

    def head(self, size: int) -> People:
        """The first `size` individuals."""
        size = min(size, self.size)
        end = int(self.row.searchsorted(size * self.jobs))
        return self._replace(
            size=size, row=self.row[:end], node=self.node[:end], gpus=self.gpus[:end]
        )

    def join(self, other: People) -> People:
        """These, then those of `other`."""
        return People(
            self.size + other.size,
            self.jobs,
            self.nodes,
            np.concatenate([self.row, other.row + self.size * self.jobs]),
            np.concatenate([self.node, other.node]),
            np.concatenate([self.gpus, other.gpus]),
        )


Fitness = Callable[[People], Scores]
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
    """A population as plain data, for a policy's memory. `jobs`: whose the rows are; `cells`: rows,
    nodes and GPUs of `People` as three runs of little-endian int32, best individual first."""

    jobs: list[int] = []
    nodes: int = 0
    size: int = 0
    cells: bytes = b""
    version: int = 2

    @classmethod
    def of(cls, jobs: list[int], people: People) -> Population:
        """Pack `people`."""
        cells = np.concatenate([people.row, people.node, people.gpus]).astype("<i4")
        return cls(jobs, people.nodes, people.size, cells.tobytes())

    def rows(self, jobs: list[int], nodes: int) -> People:
        """The individuals with a row for each of `jobs`; new jobs hold nothing."""
        if self.version != 2:
            raise BadInput(f"population version {self.version}", mend="this build reads 2")
        if self.nodes != nodes or not self.jobs:
            return People.of(np.zeros((0, len(jobs), nodes), np.int16))
        row, node, gpus = np.frombuffer(self.cells, "<i4").reshape(3, -1).astype(np.int64)
        where = {job: new for new, job in enumerate(jobs)}
        to = np.array([where.get(job, -1) for job in self.jobs], np.int64)
        who, old = divmod(row, len(self.jobs))
        stays = np.flatnonzero(to[old] >= 0)
        row = (who * len(jobs) + to[old])[stays]
        stays = stays[order := np.argsort(row, kind="stable")]
        return People(self.size, len(jobs), nodes, row[order], node[stays], gpus[stays])


@dataclass(frozen=True)
class Genetic:
    """The search: how many individuals, for how many generations, and how many cells of a child
    are drawn anew on average (`mutation`; a cell is one job on one node). It ends early after
    `patience` places of jobs were tried, generation after generation (at least one), and the best
    did not rise by `RISES` of it; 0: it never does."""

    population: int
    generations: int
    mutation: float = 1.0
    patience: int = 0

    def run(
        self, seeds: People, fitness: Fitness, space: Space, rng: np.random.Generator
    ) -> tuple[People, Scores]:
        """The last population and its scores, best first. `seeds` are repaired and always in the
        first population, which is filled up with their mutants."""
        if not seeds.jobs or not seeds.nodes:
            seeds = seeds.head(1)
            return seeds, np.zeros(seeds.size)
        people = repair(seeds, space, rng).head(self.population)
        missing = self.population - people.size
        if missing:
            copies = people.some(rng.integers(people.size, size=missing))
            people = people.join(self._mutants(copies, space, rng))
        scores, marks = fitness(people), _marks(people)
        best, last = float(scores.max()), 0
        patience = max(self.patience // (self.population * people.jobs), 1)
        for done in range(self.generations):
            if self.patience and done - last >= patience:
                break
            mothers, fathers = (self._winners(scores, rng) for _ in range(2))
            children = crossover(people, mothers, fathers, rng)
            children = self._mutants(children, space, rng)
            people = people.join(children)
            scores = np.concatenate([scores, fitness(children)])
            marks = np.concatenate([marks, _marks(children)])
            kept = _survivors(marks, scores, self.population)
            people, scores, marks = people.some(kept), scores[kept], marks[kept]
            if scores[0] > best + RISES * abs(best):
                best, last = float(scores[0]), done + 1
        return people, scores

    def _winners(self, scores: Scores, rng: np.random.Generator) -> Ints:
        """A binary tournament for each place."""
        pairs = rng.integers(len(scores), size=(2, self.population))
        second = scores[pairs[0]] < scores[pairs[1]]
        best: Ints = pairs[second.astype(np.int64), np.arange(self.population)]
        return best

    def _mutants(self, people: People, space: Space, rng: np.random.Generator) -> People:
        """Some cells drawn anew; in every second individual one job is placed anew, compactly."""
        size, jobs, nodes = people[:3]
        drawn = rng.integers(size * jobs * nodes, size=rng.poisson(self.mutation * size))
        room = space.room[drawn % nodes].astype(np.int64)
        values = (rng.random(len(drawn)) * (room + 1)).astype(np.int64)
        again = np.flatnonzero(rng.random(size) < 0.5)
        first = np.full(size, -1, np.int64)
        first[again] = rng.integers(jobs, size=len(again))
        placed = compact(first[again], space, rng)
        return repair(
            _set(people, drawn, values, again * jobs + first[again], placed), space, rng, first
        )


def _set(people: People, cells: Ints, values: Ints, rows: Ints, placed: Counts) -> People:
    """`people` with other values in some cells (the last one counts), then other whole rows."""
    nodes, fresh = people.nodes, np.zeros(people.size * people.jobs, np.bool_)
    fresh[rows] = True
    there = people.row * nodes + people.node
    cells, last = np.unique(cells[::-1], return_index=True)
    values = values[::-1][last]
    kept = ~fresh[people.row]
    at = there.searchsorted(cells)
    hit = at < len(there)
    hit[hit] = there[at[hit]] == cells[hit]
    kept[at[hit]] = False
    new = (values != 0) & ~fresh[cells // nodes]
    which, node = np.nonzero(placed)
    row = np.concatenate([people.row[kept], cells[new] // nodes, rows[which]])
    node = np.concatenate([people.node[kept], cells[new] % nodes, node])
    gpus = np.concatenate([people.gpus[kept], values[new], placed[placed != 0].astype(np.int64)])
    order = np.argsort(row * nodes + node, kind="stable")
    return people._replace(row=row[order], node=node[order], gpus=gpus[order])


def crossover(people: People, mothers: Ints, fathers: Ints, rng: np.random.Generator) -> People:
    """Each job's row from one parent or the other."""
    from_mother = rng.random((len(mothers), people.jobs), np.float32) < 0.5
    parent = np.where(from_mother, mothers[:, None], fathers[:, None])
    return people.rows((parent * people.jobs + np.arange(people.jobs)).reshape(-1))


def compact(jobs: Ints, space: Space, rng: np.random.Generator) -> Counts:
    """For every entry of `jobs` a row of that job: a random size on as few nodes as it takes, in
    a random order of nodes. (len(jobs), nodes)."""
    low, high = space.least[jobs].astype(np.int64), space.most[jobs].astype(np.int64)
    size = low + (rng.random(len(jobs)) * (high - low + 1)).astype(np.int64)
    room = np.where(space.may[jobs], space.room, 0)
    order = rng.random(room.shape).argsort(axis=1)
    return _clipped(room, order, np.minimum(size, 32767).astype(np.int16)[:, None], axis=1)


def repair(
    people: People, space: Space, rng: np.random.Generator, first: Ints | None = None
) -> People:
    """The nearest allowed individuals, cutting at random: never more on a node than its room, on
    a job than its most, or less than its least; `first`: per individual a job that goes before
    all others (-1: none)."""
    size, jobs, nodes = people[:3]
    row, node, counts = people.row, people.node, people.gpus
    who, job = divmod(row, jobs)
    allowed = space.may[job, node]
    if not allowed.all():
        row, node, counts = row[allowed], node[allowed], counts[allowed]
        who, job = who[allowed], job[allowed]
    rank = rng.integers(1, 1 << 31, (size, jobs))
    if first is not None:
        chosen = np.flatnonzero(first >= 0)
        rank[chosen, first[chosen]] = 0
    rank = rank.reshape(-1)
    column, room = who * nodes + node, np.tile(space.room, size)
    spans = np.bincount(row)[row] > 1
    crowded = np.bincount(column, counts, size * nodes) > room
    if space.apart:
        crowded |= np.bincount(column, spans, size * nodes) > 1
    cells = np.flatnonzero(crowded[column])  # on all other nodes there is nothing to cut
    cells = cells[np.argsort((column[cells] << 31) + rank[row[cells]])]
    counts, place, few = counts.copy(), column[cells], counts[cells]
    if space.apart:
        few[spans[cells] & (_running(spans[cells], place) > 1)] = 0
    counts[cells] = _cut(few, place, room[place])
    most, totals = space.most[job], np.bincount(row, counts)[row]
    over = np.flatnonzero(totals > most)
    if len(over):
        over = over[np.argsort((column[over] << 31) + rank[row[over]])]
        mixed = over[np.lexsort((rng.random(len(over)), row[over]))]
        counts[mixed] = _cut(counts[mixed], row[mixed], most[mixed])
        totals = np.bincount(row, counts)[row]
    counts[totals < space.least[job]] = 0
    some = counts != 0
    return people._replace(row=row[some], node=node[some], gpus=counts[some])


def _running(values: NDArray[Any], group: Ints) -> Ints:
    """Sums so far within each group, of entries sorted by group."""
    sums = values.cumsum(dtype=np.int64)
    if not len(sums):
        return sums
    begins = np.concatenate([[0], np.flatnonzero(group[1:] != group[:-1]) + 1])
    lasts = np.append(begins[1:], len(group))
    return np.asarray(sums - np.repeat(sums[begins] - values[begins], lasts - begins))


def _cut(counts: Ints, group: Ints, limit: Counts) -> Ints:
    """`counts`, sorted by group, cut so that no group's sum exceeds its limit, late ones first."""
    return np.clip(limit - (_running(counts, group) - counts), 0, counts)


def _clipped(counts: Counts, order: Ints, limit: Counts, axis: int) -> Counts:
    """`counts` cut so that no sum along `axis` exceeds `limit`, those late in `order` first."""
    order = np.broadcast_to(order, counts.shape)
    sums = np.take_along_axis(counts, order, axis).cumsum(axis=axis, dtype=np.int32)
    sums = np.minimum(sums, limit).astype(np.int16)
    cut = np.diff(sums, axis=axis, prepend=np.int16(0))
    out = np.empty_like(counts)
    np.put_along_axis(out, order, cut, axis)
    return out


def _marks(people: People) -> Scores:
    """A number for each individual, the same for equal ones alone (but for rounding)."""
    who, job = divmod(people.row, people.jobs)
    cell = job * people.nodes + people.node
    return np.asarray(np.bincount(who, people.gpus * np.sqrt(cell + 1.0), people.size))


def _survivors(marks: Scores, scores: Scores, size: int) -> Ints:
    """The best `size`, each individual once while there are enough; ties by the earlier."""
    order = np.argsort(-scores, kind="stable")
    _, once = np.unique(marks[order], return_index=True)
    fresh = np.zeros(len(order), np.bool_)
    fresh[once] = True
    ranked = np.concatenate([order[fresh], order[~fresh]])[:size]
    return ranked[np.argsort(-scores[ranked], kind="stable")]
