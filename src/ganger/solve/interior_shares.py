"""Divisions of time from inside: `interior` on the rows of `programme`, by their structure.

A job's columns meet those of others only in the kinds of machines and in the level t, so that a
step is a small block for each job and a system of as many unknowns as there are kinds, and one
more. Equal jobs are one block with a weight: the path treats them alike, and so does the answer.
No step is left to BLAS, so that the answer does not depend on the type of the processor.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ganger.solve.classes import classes
from ganger.solve.interior import Factored, _Line, followed
from ganger.solve.programme import Floats, Shares

REFINED = 1
"""How often a solution is refined."""

def highest(posed: Shares, pace: Floats) -> Floats:
    """Where an interior-point method ends that looks for the largest t with eff >= pace t."""
    return _ended(posed._replace(rate=posed.rate / pace[:, None]), np.zeros(len(pace)), rises=True)


def feasible(posed: Shares, floor: Floats) -> Floats:
    """Where it ends that looks for any x with eff >= floor."""
    return _ended(posed, floor, rises=False)


def _ended(posed: Shares, floor: Floats, *, rises: bool) -> Floats:
    merged = classes([posed.rate, posed.scale, posed.limit, floor])
    few, n, k = posed.part(merged.first), len(merged.first), len(posed.capacity)
    scale, by_row, by_column = _equilibrated(few, rises)
    system = _Blocks(scale, merged.size, rises)
    cost = np.zeros(n * k + rises)
    most = np.concatenate([np.zeros(n * k), posed.capacity, few.limit, -floor[merged.first]])
    if rises:
        cost[-1] = -1.0
    x = (followed(system, cost / by_column, most / by_row) / by_column)[: n * k]
    return np.clip(x.reshape(n, k), 0.0, 1.0)[merged.of]


@dataclass(frozen=True)
class _Entries:
    """The rows that are not 0, by job and kind: x >= 0, machines of a kind, time, throughput; and
    t's part in the throughput of each job."""

    own: Floats
    kind: Floats
    time: Floats
    speed: Floats
    level: Floats


def _equilibrated(posed: Shares, rises: bool) -> tuple[_Entries, Floats, Floats]:
    """Entries with the largest of rows and columns near 1, by three rounds of Ruiz' scaling."""
    n, k = posed.rate.shape
    each = np.ones((n, k))
    parts = [-each, posed.scale[:, None] * each, each, -posed.rate]
    level = np.ones(n) if rises else np.zeros(n)
    rows = [np.ones((n, k)), np.ones((1, k)), np.ones((n, 1)), np.ones((n, 1))]
    columns, last = np.ones((n, k)), 1.0
    for _ in range(3):
        sizes = [np.abs(part) for part in parts]
        speed = np.maximum(sizes[3].max(axis=1), level)
        row = [sizes[0], sizes[1].max(axis=0)[None, :], sizes[2].max(axis=1)[:, None]]
        row = [_root(part) for part in (*row, speed[:, None])]
        column = _root(np.maximum.reduce(sizes))
        top = float(_root(level.max(keepdims=True))[0])
        parts = [part / by / column for part, by in zip(parts, row, strict=True)]
        level = level / row[3][:, 0] / top
        rows = [old * by for old, by in zip(rows, row, strict=True)]
        columns, last = columns * column, last * top
    by_column = np.append(columns, last) if rises else columns.ravel()
    return _Entries(*parts, level), np.concatenate([part.ravel() for part in rows]), by_column


def _root(sizes: Floats) -> Floats:
    return np.where(sizes < 1e-6, 1.0, np.sqrt(sizes))


class _Blocks:
    """The scaled rows as a system (`interior.System`)."""

    def __init__(self, entries: _Entries, size: Floats, rises: bool) -> None:
        self.entries, self.size, self.rises = entries, size, rises
        self.shape = n, k = entries.own.shape
        by_job = np.repeat(size, k)
        self.of_rows = np.concatenate([by_job, np.ones(k), size, size])
        self.of_columns = np.append(by_job, 1.0) if rises else by_job
        self.kind = size[:, None] * entries.kind
        self.level = size * entries.level

    def split(self, z: Floats) -> tuple[Floats, Floats, Floats, Floats]:
        """What is by job and kind, by kind, and by job twice."""
        n, k = self.shape
        end = n * k
        return z[:end].reshape(n, k), z[end : end + k], z[end + k : end + k + n], z[end + k + n :]

    def times(self, x: Floats) -> Floats:
        """G x."""
        n, k = self.shape
        of, by = self.entries, x[: n * k].reshape(n, k)
        speed = np.einsum("ij,ij->i", of.speed, by)
        if self.rises:
            speed += of.level * x[-1]
        kinds = np.einsum("ij,ij->j", self.kind, by)
        time = np.einsum("ij,ij->i", of.time, by)
        return np.concatenate([(of.own * by).ravel(), kinds, time, speed])

    def back(self, z: Floats) -> Floats:
        """G' z."""
        of, (own, kind, time, speed) = self.entries, self.split(z)
        by = of.own * own + of.kind * kind + of.time * time[:, None] + of.speed * speed[:, None]
        if not self.rises:
            return by.ravel()
        return np.append(by, np.einsum("i,i->", self.level, speed))

    def factored(self, scaling: _Line | None) -> Factored:
        """By elimination of one job after the other."""
        twice = np.ones(len(self.of_rows)) if scaling is None else scaling.twice
        return _Eliminated(self, twice)


class _Eliminated:
    """Factored: each job's block inverted, and the kinds and t after that."""

    def __init__(self, system: _Blocks, twice: Floats) -> None:
        self.system, self.twice = system, twice
        of, (n, k) = system.entries, system.shape
        own, kind, time, speed = system.split(twice)
        by_speed = of.speed / speed[:, None]
        block = of.time[:, :, None] * (of.time / time[:, None])[:, None, :]
        block += of.speed[:, :, None] * by_speed[:, None, :]
        block[:, range(k), range(k)] += of.own**2 / own
        self.inverse = _inverted(block)
        size = k + system.rises
        # What one more unit of each kind's price, and of t, does to a job's columns.
        self.outer = np.zeros((n, k, size))
        self.outer[:, range(k), range(k)] = of.kind
        if system.rises:
            self.outer[:, :, k] = by_speed * of.level[:, None]
        self.moved = np.einsum("ijl,ilr->ijr", self.inverse, self.outer)
        rest = -np.einsum("i,ijr,ijs->rs", system.size, self.outer, self.moved)
        rest[range(k), range(k)] -= kind
        if system.rises:
            rest[k, k] += np.einsum("i,i->", system.level, of.level / speed)
        self.rest = _inverted(rest[None])[0]

    def solve(self, wanted: Floats) -> Floats:
        """The solution for a right-hand side."""
        columns = len(self.system.of_columns)
        found = self._once(wanted)
        for _ in range(REFINED):
            x, z = found[:columns], found[columns:]
            off = np.concatenate([self.system.back(z), self.system.times(x) - self.twice * z])
            found = found + self._once(wanted - off)
        return found

    def _once(self, wanted: Floats) -> Floats:
        system, (n, k) = self.system, self.system.shape
        columns = len(system.of_columns)
        top, right = wanted[:columns], wanted[columns:]
        due = top + system.back(right / self.twice)
        by = due[: n * k].reshape(n, k)
        # The kinds' part of `due` is taken back: their prices are unknowns of their own.
        kind = right[n * k : n * k + k]
        by = by - system.entries.kind * (kind / self.twice[n * k : n * k + k])
        own = np.einsum("ijl,il->ij", self.inverse, by)
        outer = -np.einsum("i,ijr,ij->r", system.size, self.outer, own)
        outer[:k] += kind
        if system.rises:
            outer[k] += due[-1]
        shared = np.einsum("rs,s->r", self.rest, outer)
        by = own - np.einsum("ijr,r->ij", self.moved, shared)
        x = np.append(by, shared[k]) if system.rises else by.ravel()
        z = (system.times(x) - right) / self.twice
        z[n * k : n * k + k] = shared[:k]
        return np.concatenate([x, z])


def _inverted(blocks: Floats) -> Floats:
    """The inverse of each (k, k) matrix, by Gauss and Jordan, pivots in their order."""
    k = blocks.shape[-1]
    inverse = blocks.copy()
    for at in range(k):
        pivot = inverse[:, at, at].copy()
        inverse[:, at, at] = 1.0
        inverse[:, at, :] /= pivot[:, None]
        for other in range(k):
            if other != at:
                factor = inverse[:, other, at].copy()
                inverse[:, other, at] = 0.0
                inverse[:, other, :] -= factor[:, None] * inverse[:, at, :]
    return inverse
