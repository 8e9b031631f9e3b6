"""Divisions of time from inside: `interior` on the rows of `programme`, by their structure.

A job's columns meet those of others only in the kinds of machines and in the level t, so that a
step is a small block for each job and a system of as many unknowns as there are kinds, and one
more. Equal jobs are one block with a weight: the path treats them alike, and so does the answer.
No step is left to BLAS, so that the answer does not depend on the type of the processor.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from scipy import sparse

from ganger.solve.division.classes import classes
from ganger.solve.division.programme import Floats, Ints, Shares
from ganger.solve.interior import REFINED, Factored, Line, followed

ROUGH = 1e-14
"""A solution that is further off, as a part of the largest number asked for, is refined."""


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
    return _Entries(*[*parts, level]), np.concatenate([part.ravel() for part in rows]), by_column


def _root(sizes: Floats) -> Floats:
    return np.where(sizes < 1e-6, 1.0, np.sqrt(sizes))


class _Blocks:
    """The scaled rows as a system (`interior.System`)."""

    def __init__(self, entries: _Entries, size: Floats, rises: bool) -> None:
        self.entries, self.size, self.rises = entries, size, rises
        n, k = self.shape = entries.own.shape
        by_job = np.repeat(size, k)
        self.of_rows = np.concatenate([by_job, np.ones(k), size, size])
        self.of_columns = np.append(by_job, 1.0) if rises else by_job
        self.kinds = slice(n * k, n * k + k)
        self._rows, self._back = self._matrices()

    def _matrices(self) -> tuple[Any, Any]:
        """G; and G' by the weights of rows, over those of columns."""
        of, (n, k) = self.entries, self.shape
        by_row, by_column, shape = _pattern(n, k, self.rises)
        level = of.level[:, None] if self.rises else np.zeros((n, 0))
        values = [
            of.own.ravel(), (self.size[:, None] * of.kind).T.ravel(), of.time.ravel(),
            np.concatenate([of.speed, level], axis=1).ravel(),
        ]  # fmt: skip
        back = np.stack([of.own, of.kind, of.time, of.speed], axis=2).ravel()
        if self.rises:
            back = np.concatenate([back, self.size * of.level])
        rows = sparse.csr_array((np.concatenate(values), *by_row), shape=shape)
        return rows, sparse.csr_array((back, *by_column), shape=shape[::-1])

    def split(self, z: Floats) -> tuple[Floats, Floats, Floats, Floats]:
        """What is by job and kind, by kind, and by job twice."""
        n, k = self.shape
        end = n * k
        return z[:end].reshape(n, k), z[end : end + k], z[end + k : end + k + n], z[end + k + n :]

    def times(self, x: Floats) -> Floats:
        """G x."""
        return np.asarray(self._rows @ x)

    def back(self, z: Floats) -> Floats:
        """G' z."""
        return np.asarray(self._back @ z)

    def factored(self, scaling: Line | None) -> Factored:
        """By elimination of one job after the other."""
        twice = np.ones(len(self.of_rows)) if scaling is None else scaling.twice
        return _Eliminated(self, twice)


class _Eliminated:
    """Factored: each job's block inverted, and the kinds and t after that."""

    def __init__(self, system: _Blocks, twice: Floats) -> None:
        self.system, self.twice = system, twice
        of, k = system.entries, system.shape[1]
        own, kind, time, speed = system.split(twice)
        by_speed = of.speed / speed[:, None]
        block = of.time[:, :, None] * (of.time / time[:, None])[:, None, :]
        block += of.speed[:, :, None] * by_speed[:, None, :]
        block[:, range(k), range(k)] += of.own**2 / own
        with np.errstate(all="ignore"):  # `solve` sees it
            self._eliminate(block, by_speed, kind, speed)

    def _eliminate(self, block: Floats, by_speed: Floats, kind: Floats, speed: Floats) -> None:
        system, of, (n, k) = self.system, self.system.entries, self.system.shape
        self.inverse = _inverted(block)
        size = k + system.rises
        # What one more unit of each kind's price, and of t, does to a job's columns.
        outer = np.zeros((n, k, size))
        outer[:, range(k), range(k)] = of.kind
        if system.rises:
            outer[:, :, k] = by_speed * of.level[:, None]
        self.moved = np.einsum("ijl,ilr->ijr", self.inverse, outer)
        self.outer = outer * system.size[:, None, None]
        rest = -np.einsum("ijr,ijs->rs", self.outer, self.moved)
        rest[range(k), range(k)] -= kind
        if system.rises:
            rest[k, k] += np.einsum("i,i->", system.size * of.level, of.level / speed)
        self.rest = _inverted(rest[None])[0]

    def solve(self, wanted: Floats) -> Floats:
        """The solution for each column of right-hand sides."""
        columns, twice = len(self.system.of_columns), self.twice[:, None]
        found, enough, before = self._once(wanted), ROUGH * np.abs(wanted).max(), np.inf
        for _ in range(REFINED):
            x, z = found[:columns], found[columns:]
            off = wanted - np.concatenate([self.system.back(z), self.system.times(x) - twice * z])
            worst = float(np.abs(off).max())
            if not np.isfinite(worst):
                raise ArithmeticError("the system is singular")
            if worst <= enough or worst > before / 2:
                break
            found, before = found + self._once(off), worst
        return found

    def _once(self, wanted: Floats) -> Floats:
        system, (n, k), kinds = self.system, self.system.shape, self.system.kinds
        columns, twice = len(system.of_columns), self.twice[:, None]
        right = wanted[columns:]
        due = right / twice
        due[kinds] = 0.0  # their prices are unknowns of their own
        due = wanted[:columns] + system.back(due)
        own = np.einsum("ijl,ilc->ijc", self.inverse, due[: n * k].reshape(n, k, -1))
        outer = -np.einsum("ijr,ijc->rc", self.outer, own)
        outer[:k] += right[kinds]
        if system.rises:
            outer[k] += due[-1]
        shared = np.einsum("rs,sc->rc", self.rest, outer)
        own -= np.einsum("ijr,rc->ijc", self.moved, shared)
        found = np.empty_like(wanted)
        found[: n * k] = own.reshape(n * k, -1)
        found[n * k : columns] = shared[k:]
        found[columns:] = (system.times(found[:columns]) - right) / twice
        found[columns:][kinds] = shared[:k]
        return found


@lru_cache(maxsize=64)
def _pattern(
    n: int, k: int, rises: bool
) -> tuple[tuple[Ints, Ints], tuple[Ints, Ints], tuple[int, int]]:
    """Where the entries of G and of G' are, row by row, and the shape of G."""
    count, jobs = n * k, np.arange(n)
    of_job = np.arange(count).reshape(n, k)
    level = np.full((n, int(rises)), count)
    columns = [
        of_job.ravel(), of_job.T.ravel(), of_job.ravel(),
        np.concatenate([of_job, level], axis=1).ravel(),
    ]  # fmt: skip
    lengths = [np.full(count, 1), np.full(k, n), np.full(n, k), np.full(n, k + rises)]
    rows = np.broadcast_to(
        np.stack([np.zeros(n, int), jobs, jobs], axis=1)[:, None, :], (n, k, 3)
    ) + np.array([0, count + k, count + k + n])
    rows[:, :, 0] = count + np.arange(k)
    back = np.concatenate([of_job[:, :, None], rows], axis=2).ravel()
    back_lengths = np.full(count, 4)
    if rises:
        back = np.concatenate([back, count + k + n + jobs])
        back_lengths = np.append(back_lengths, n)
    return (
        (np.concatenate(columns), _starts(np.concatenate(lengths))),
        (back, _starts(back_lengths)),
        (count + k + 2 * n, count + rises),
    )


def _starts(lengths: Ints) -> Ints:
    return np.concatenate([[0], np.cumsum(lengths)])


def _inverted(blocks: Floats) -> Floats:
    """The inverse of each (k, k) matrix, by Gauss and Jordan, pivots in their order."""
    inverse = blocks.copy()
    for at in range(blocks.shape[-1]):
        pivot = inverse[:, at, at].copy()
        inverse[:, at, at] = 1.0
        row = inverse[:, at, :] / pivot[:, None]
        factor = inverse[:, :, at].copy()
        factor[:, at] = 0.0
        inverse[:, :, at] = 0.0
        inverse -= factor[:, :, None] * row[:, None, :]
        inverse[:, at, :] = row
    return inverse
