"""Sia's cluster decision (SOSP 2023, section 3): every job gets one configuration, a number of GPUs
of one type, by a 0-1 programme over the goodput that each would have there.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np

from ganger.core.allocation import Allocation
from ganger.core.books.ledger import Cell
from ganger.core.plan import Placement
from ganger.core.spec import Shape
from ganger.core.state.table import Ids
from ganger.core.units import NEVER
from ganger.core.view import View
from ganger.mechanisms.common.believed import believed_speed
from ganger.mechanisms.common.speed_cache import SpeedCache, Width, answers
from ganger.mechanisms.sizing.elastic import resizable
from ganger.recipes.training.goodput.pollux import after_restart
from ganger.solve.choice import choose
from ganger.solve.division.programme import Floats, Ints


class Options(NamedTuple):
    """What may be chosen. Option o lets job `row[o]` run on `gpus[o]` GPUs of cell `cell[o]` at
    `speed[o]`; `kept[o]` is what a change leaves of that (1 for what the job has now)."""

    row: Ints
    cell: Ints
    gpus: Ints
    speed: Floats
    kept: Floats


def value(options: Options, power: float, wait: float) -> Floats:
    """What each option adds to the objective over letting its job wait.

    Speeds count in multiples of the job's slowest option, to the `power`; a job that waits costs
    `wait`. With a negative power the sum of the powers is minimised (section 3.3). The restart
    factor scales the speed, not its power, so that with a negative power it deters, too.
    """
    slowest = np.full(int(options.row.max(initial=-1)) + 1, np.inf)
    np.minimum.at(slowest, options.row, options.speed)
    speed = np.maximum(options.speed / slowest[options.row] * options.kept, 1e-9) ** power
    gain: Floats = wait + (speed if power > 0 else -speed)
    return gain


def sizes(shape: Shape, cell: Cell, most: int) -> list[int]:
    """GPUs on which a job of `shape` may run in `cell`: powers of two within a node, whole nodes
    beyond, up to `most`; and what it asks for, which is all for a shape that cannot change."""
    low, high = shape.least, min(shape.most, cell.total)
    if not shape.is_plain or low == shape.most:
        return [shape.gpus] if shape.gpus <= cell.total else []
    inside = [1 << k for k in range(cell.widest.bit_length())]
    whole = range(cell.widest, cell.total + 1, max(cell.widest, 1))
    found = {low, shape.gpus, *inside, *whole}
    return sorted(n for n in found if low <= n <= high and (n <= most or n == low))


@dataclass(frozen=True)
class Configurations:
    """Allocates by the programme. `power` and `wait`: p and lambda; `restart`: what a change costs,
    microseconds; `growth`: how many times its present GPUs a job may get at once; `nodes`: the
    budget of the search, and `gap`: how far from the best it may stop."""

    power: float
    wait: float
    restart: int
    growth: int = 2
    nodes: int = 200
    gap: float = 1e-4

    def allocate(self, view: View, ids: Ids) -> Allocation:
        """A row for every job that is to run, the largest first, so that they find whole nodes."""
        ids = resizable(view, ids)
        ids = ids[view.jobs.gpus[ids] > 0]
        cells, draft = view.ledger.cells, view.draft
        held = [draft.holds(job) or () for job in ids.tolist()]
        options = self._options(view, ids, held)
        up, cell_of = view.ledger.up, view.ledger.cell_of
        many = [cell.free for cell in cells]
        for placement in held:
            for slot in placement:
                if up[slot.node]:
                    many[cell_of[slot.node].index] += slot.devices.bit_count()
        free = np.array(many, np.float64)
        take = np.zeros((len(options.row), len(cells)))
        take[np.arange(len(options.row)), options.cell] = options.gpus
        found = choose(
            value(options, self.power, self.wait),
            options.row,
            take,
            free,
            nodes=self.nodes,
            gap=self.gap,
        )
        chosen = np.flatnonzero(found.taken)
        chosen = chosen[np.lexsort((options.row[chosen], -options.gpus[chosen]))]
        columns = (ids[options.row[chosen]], options.cell[chosen], options.gpus[chosen])
        allocation = Allocation()
        for job, cell, gpus in zip(*(column.tolist() for column in columns), strict=True):
            allocation.add((job,), cells[cell].gpu_type, gpus, 1.0)
        return allocation

    def lasts(self, view: View, ids: Ids) -> int:
        """Until when each of `ids` likes best what it has, if all do; else now.

        A change counts (age - restarts x cost) / (age + cost), which grows: to a speed q times its
        own a job changes from an age of cost x (1 + q x restarts) / (q - 1) on.
        """
        ids = resizable(view, ids)
        ids = ids[view.jobs.gpus[ids] > 0]
        held = [view.draft.holds(job) or () for job in ids.tolist()]
        if not (view.oracle.steady and self.restart and all(held)):
            return view.now
        options = self._options(view, ids, held)
        own, most = np.zeros(len(ids)), np.zeros(len(ids))
        stays = options.kept == 1.0
        own[options.row[stays]] = options.speed[stays]
        np.maximum.at(most, options.row, options.speed)
        faster = most > own
        if not own.all():
            return view.now
        if not faster.any():
            return NEVER
        times = most[faster] / own[faster]
        age = self.restart * (1.0 + times * view.jobs.restarts[ids[faster]]) / (times - 1.0)
        due = view.jobs.submitted[ids[faster]] + age * (1.0 - 1e-9)
        return max(int(min(due.min(), NEVER)), view.now)

    def _options(self, view: View, ids: Ids, held: list[Placement]) -> Options:
        """All that the jobs of `ids` could get, by job."""
        again, jobs = after_restart(view, ids, self.restart), view.jobs
        size, cell_of = jobs.size[ids], view.ledger.cell_of
        here = np.array([cell_of[each[0].node].index if each else -1 for each in held], np.int64)
        kinds, of = np.unique((jobs.shape[ids].astype(np.int64) << 32) + size, return_inverse=True)
        able = [self._able(view, kind >> 32, kind & 0xFFFFFFFF) for kind in kinds.tolist()]
        every, many = np.concatenate([np.zeros((0, 2), np.int64), *able]), [len(a) for a in able]
        counts, begins = np.array(many, np.int64), np.cumsum([0, *many])
        row = np.repeat(np.arange(len(ids)), counts[of])
        ends = counts[of].cumsum()
        what = every[np.arange(len(row)) + (begins[of] - ends + counts[of])[row]]
        cell, gpus = what[:, 0], what[:, 1]
        stays = (here[row] < 0) | ((cell == here[row]) & (gpus == size[row]))
        return Options(
            row, cell, gpus, _speeds(view, ids, row, cell, gpus), np.where(stays, 1.0, again[row])
        )

    def _able(self, view: View, code: int, now: int) -> Ints:
        """Where and on how many GPUs a job of a shape that has `now` may run: (cell, GPUs)."""
        shape = view.jobs.shapes[code]
        return _able(view, code, self.growth * now or max(shape.least, 1))


class _Configurations:
    """What `_able` found, by shape, most GPUs and cells (index, GPUs, widest node)."""

    __slots__ = ("found",)

    def __init__(self) -> None:
        self.found: dict[tuple[int, int, tuple[tuple[int, int, int], ...]], Ints] = {}


def _able(view: View, code: int, most: int) -> Ints:
    """Where and on how many GPUs a job of a shape may run: rows of (cell, GPUs)."""
    cells, shape = view.ledger.cells_for(view.jobs.shapes[code]), view.jobs.shapes[code]
    known = view.cached(_Configurations).found
    key = code, most, tuple((cell.index, cell.total, cell.widest) for cell in cells)
    if key not in known:
        found = [(cell.index, many) for cell in cells for many in sizes(shape, cell, most)]
        known[key] = np.array(found, np.int64).reshape(-1, 2)
    return known[key]


class _ConfigurationSpeeds(SpeedCache):
    """Throughput (goodput) by cell and GPUs."""


def _speeds(view: View, ids: Ids, row: Ints, cell: Ints, gpus: Ints) -> Floats:
    """Throughput (goodput) of every option."""
    there = tuple([(each.gpu_type, each.widest) for each in view.ledger.cells])
    width = len(there), int(gpus.max(initial=1))
    rows, of = answers(view, _ConfigurationSpeeds, ids, there, width, partial(_told, view))
    return np.maximum(rows[of[row], cell, gpus - 1], 1e-12)


def _told(view: View, ids: Ids, width: Width) -> Floats:
    """Throughput of each job in each cell on 1, 2, ... GPUs, on as few nodes as it takes."""
    out, gpus = np.empty((len(ids), *width)), np.arange(1, width[1] + 1)
    for each in view.ledger.cells:
        nodes = -(-gpus // max(each.widest, 1))
        out[:, each.index] = believed_speed(view, ids[:, None], each.gpu_type, gpus, nodes)
    return out
