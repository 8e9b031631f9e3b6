"""Containers by a mixed-integer programme: the most in use, within bounds on unfairness and on how
many jobs are disturbed (Dorm, SMARTCOMP 2017).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from ganger.core.allocation import Allocation
from ganger.core.spec import OnPreempt, Shape
from ganger.core.state.jobs import Phase
from ganger.core.state.table import Ids
from ganger.core.units import WHOLE
from ganger.core.view import View
from ganger.mechanisms.sizing.elastic import resizable
from ganger.solve.division.programme import Floats, Ints
from ganger.solve.dominant import dominant_shares
from ganger.solve.highs import maximise_whole, model

NODES = 200
_LAZY, _LOSS, _JOB, _CHANGE = 1e-3, 10.0, 100.0, 1000.0
"""Where a full cluster is worth 1 to 3: what a changed job costs, and a unit of unfairness beyond
the bound; what admitting a job is worth; what a changed job beyond the bound costs."""


class Applications(NamedTuple):
    """Jobs as rows. `needs`: (n, 3), what one container takes of GPUs, CPUs and memory, as
    fractions of the cluster; `least` and `most` containers; `now`: what they have, 0 for jobs that
    wait; `cell`: where they are, or would start; `weight`: of their shares."""

    needs: Floats
    least: Ints
    most: Ints
    now: Ints
    cell: Ints
    weight: Floats


def containers(apps: Applications, room: Floats, loss: float, changes: float) -> Ints:
    """How many containers each gets; 0 for jobs that must wait.

    `room`: (cells, 3) as fractions of the cluster. The sum of |share - DRF share| stays within
    `loss`, and of running jobs at most the fraction `changes` (rounded up) is changed. Where whole
    containers do not allow the first, the breach is as small as can be. A running job keeps its
    least. Where fairness asks for less use or more changes than that, the answer is nearly the
    best.
    """
    runs, dominant = apps.now > 0, apps.needs.max(axis=1)
    fair = dominant_shares(apps.needs, apps.weight, apps.most.astype(np.float64))
    allowed = float(ceil(changes * runs.sum() - 1e-9))

    def within(best: Ints) -> bool:
        unfair = float(np.abs(best * dominant - fair).sum())
        return unfair <= loss and int(np.count_nonzero(runs & (best != apps.now))) <= allowed

    best = _each_alone(apps, room)
    if best is None or not within(best):
        best = _each_cell(apps, room, fair)
        if best is not None:
            best = _fairer(apps, best, fair, loss)
    if best is not None and within(best):
        return best
    merged = by_class(apps, room, fair, loss, allowed)
    return by_job(apps, room, fair, loss, allowed) if merged is None else merged


def by_job(apps: Applications, room: Floats, fair: Floats, loss: float, allowed: float) -> Ints:
    """The programme with the containers of every job as its unknowns. `fair`: DRF shares;
    `allowed`: how many of the running jobs may be changed."""
    n, runs = len(apps.now), apps.now > 0
    now, least, most = (each.astype(np.float64) for each in (apps.now, apps.least, apps.most))
    dominant = apps.needs.max(axis=1)
    rows = _programme(apps, len(room), dominant)
    limits = np.concatenate([room.T.ravel(), fair, -fair, now, -now, [loss, allowed]])
    gain = np.concatenate(
        [
            apps.needs.sum(axis=1),
            np.zeros(n),
            np.where(runs, -_LAZY, _JOB),
            [-_LOSS, -_CHANGE],
        ]
    )
    upper = np.concatenate([most, np.full(n, np.inf), np.ones(n), np.full(2, np.inf)])
    whole = np.concatenate([np.ones(n), np.zeros(n), np.ones(n), np.zeros(2)]) > 0
    lower = np.concatenate([np.where(runs, least, 0.0), np.zeros(2 * n + 2)])
    off = np.abs(now * dominant - fair)
    start = np.concatenate([now, off, np.zeros(n), [max(off.sum() - loss, 0.0), 0.0]])
    posed = model(gain, rows, limits, upper=upper, integer=whole)
    found = maximise_whole(posed._replace(lower=lower), start, nodes=NODES, gap=1e-9)
    return np.round(found.x[:n]).astype(np.int64)


def _each_alone(apps: Applications, room: Floats) -> Ints | None:
    """What is best for each job by itself, where there is room for all that: its most, or what it
    has where more would not pay for the change. None if there is not, or if a second answer is so
    near that only the programme may choose."""
    runs, use = apps.now > 0, apps.needs.sum(axis=1)
    pays = (apps.most - apps.now) * use - _LAZY
    near = 1e-8 * (float((apps.most * use).sum()) + _JOB * np.count_nonzero(~runs))
    if (use <= near).any() or (runs & (apps.now < apps.least)).any():
        return None
    if (np.abs(pays[runs & (apps.most > apps.now)]) <= near).any():
        return None
    best = np.where(runs & (pays < 0), apps.now, apps.most)
    taken = np.zeros_like(room)
    np.add.at(taken, apps.cell, best[:, None] * apps.needs)
    return best if (taken <= room + 1e-12).all() else None


def _each_cell(apps: Applications, room: Floats, fair: Floats) -> Ints | None:
    """What is best without the two bounds, where all containers of a cell are alike; else None.

    All who wait get their least, and those who run are changed for that, or for what is left over,
    the fewest of them: those who can give or take most. Of equals, who is furthest from its share.
    """
    answer = np.zeros(len(apps.now), np.int64)
    for cell in np.unique(apps.cell).tolist():
        jobs = np.flatnonzero(apps.cell == cell)
        needs, now, least, most = (x[jobs] for x in (apps.needs, apps.now, apps.least, apps.most))
        one, waits = needs[0], now == 0
        if (needs != one).any() or not one.any() or (~waits & ((now < least) | (now > most))).any():
            return None
        gets, ideal = np.where(waits, least, now), fair[jobs] / one.max()
        left = int((room[cell][one > 0] / one[one > 0]).min() + 1e-9) - int(gets.sum())
        if left < 0:
            given = _by_span(np.where(waits, 0, now - least), gets - ideal, -left)
            if given.sum() < -left:
                return None
            gets -= given
        else:
            for limit in (np.clip(ideal.astype(np.int64), least, most), most):
                given = np.minimum(np.where(waits, limit - gets, 0).cumsum(), left)
                gets += np.diff(given, prepend=0)
                left -= int(given[-1])
            given = _by_span(np.where(waits, 0, most - now), ideal - gets, left)
            gets += np.where(given * one.sum() > _LAZY + 1e-9, given, 0)
        answer[jobs] = gets
    return answer


def _fairer(apps: Applications, gets: Ints, fair: Floats, loss: float) -> Ints:
    """`gets` with containers moved within a cell from jobs above their share to others below, or
    given up where no move helps, until the sum of what all are off is within `loss`: one change
    after the other, that which gains most by the programme's measure."""
    gets, one, floor = gets.copy(), apps.needs.max(axis=1), np.maximum(apps.least, 1)
    use = apps.needs.sum(axis=1)
    for _ in gets:
        off = gets * one - fair
        beyond = float(np.abs(off).sum()) - loss
        if beyond <= 0:
            break
        whole = np.trunc(off / one).astype(np.int64)
        gives = np.flatnonzero((whole > 0) & (gets > floor))
        takes = np.flatnonzero((whole < 0) & (gets > 0) & (gets < apps.most))
        most, each = np.minimum(whole, gets - floor)[gives], one[gives]
        many = np.minimum.outer(most, np.minimum(-whole, apps.most - gets)[takes])
        many *= apps.cell[gives][:, None] == apps.cell[takes]
        new = _LAZY * ((apps.now > 0) & (gets == apps.now))
        moved = _LOSS * np.minimum(2.0 * many * each[:, None], beyond)
        moved -= new[gives][:, None] + new[takes]
        freed = np.minimum(most, np.ceil(beyond / each - 1e-9).astype(np.int64))
        given_up = _LOSS * np.minimum(freed * each, beyond) - freed * use[gives] - new[gives]
        if moved.max(initial=0.0) > 0:
            giver, taker = np.unravel_index(int(moved.argmax()), moved.shape)
            gets[takes[taker]] += many[giver, taker]
            gets[gives[giver]] -= many[giver, taker]
        elif given_up.max(initial=0.0) > 0:
            giver = given_up.argmax()
            gets[gives[giver]] -= freed[giver]
        else:
            break
    return gets


def _by_span(span: Ints, off: Floats, amount: int) -> Ints:
    """`amount` dealt to those who can take most, as much as they can; of equals to the furthest
    off."""
    order = np.lexsort((-off, -span))
    given = np.zeros_like(span)
    given[order] = np.diff(np.minimum(span[order].cumsum(), amount), prepend=0)
    return given


def by_class(
    apps: Applications, room: Floats, fair: Floats, loss: float, allowed: float
) -> Ints | None:
    """An answer as good as that of `by_job`, by how many jobs of each class get how many
    containers; None where that is the larger programme. Jobs of a class are the same in all that
    counts; its earlier ones get more."""
    n, runs = len(apps.now), apps.now > 0
    if (runs & ((apps.now < apps.least) | (apps.now > apps.most))).any():
        return None
    alike = np.column_stack([apps.needs, apps.least, apps.most, apps.now, apps.cell, fair])
    _, first, of, jobs = np.unique(
        alike, axis=0, return_index=True, return_inverse=True, return_counts=True
    )
    many, waits = apps.most[first] - apps.least[first] + 1, apps.now[first] == 0
    options = many + waits
    if options.sum() >= 3 * n:
        return None
    # Option o: of class `of_class[o]`, `gets[o]` containers, or none for one that waits.
    of_class = np.repeat(np.arange(len(first)), options)
    number = np.arange(len(of_class)) - np.repeat(options.cumsum() - options, options)
    job = first[of_class]
    gets = apps.least[job] + number
    gets[number == many[of_class]] = 0
    needs, runs = apps.needs[job], runs[job]
    changed = runs & (gets != apps.now[job])
    unfair = np.abs(gets * needs.max(axis=1) - fair[job])
    gain = needs.sum(axis=1) * gets - _LAZY * changed + _JOB * (~runs & (gets > 0))
    rows = np.zeros((room.size + 2, len(gets) + 2))
    for k, need in enumerate(needs.T):
        rows[k * len(room) + apps.cell[job], np.arange(len(gets))] = need * gets
    rows[-2, :-2], rows[-1, :-2] = unfair, changed
    rows[-2, -2] = rows[-1, -1] = -1.0
    ones = np.zeros((len(first), len(gets) + 2))
    ones[of_class, np.arange(len(gets))] = 1.0
    stays = gets == apps.now[job]
    start = np.append(stays * jobs[of_class], [0.0, 0.0])
    start[-2] = max(float(unfair @ start[:-2]) - loss, 0.0)
    posed = model(
        np.append(gain, [-_LOSS, -_CHANGE]),
        sparse.csr_array(np.concatenate([rows, ones])),
        np.concatenate([room.T.ravel(), [loss, allowed], jobs]),
        least=np.concatenate([np.full(len(rows), -np.inf), jobs]),
        upper=np.append(jobs[of_class].astype(np.float64), [np.inf, np.inf]),
        integer=np.append(np.ones(len(gets)), [0.0, 0.0]) > 0,
    )
    found = maximise_whole(posed, start, nodes=NODES, gap=1e-9, plain=True)
    counts = np.round(found.x[:-2]).astype(np.int64)
    order = np.lexsort((-gets, of_class))
    most_first = np.repeat(gets[order], counts[order])
    answer = np.empty(n, np.int64)
    answer[np.argsort(of.ravel(), kind="stable")] = most_first
    return answer


def _programme(apps: Applications, cells: int, dominant: Floats) -> sparse.csr_array:
    """The rows of `containers`. Columns: containers; unfairness; admitted (or, of those who run,
    changed); two excesses."""
    n, runs = len(apps.now), apps.now > 0
    job, one = np.arange(n), np.ones(n)
    unfair, changed, first = n + job, 2 * n + job, apps.needs.shape[1] * cells
    tight = np.where(runs, -apps.most, apps.least).astype(np.float64)
    entries: list[tuple[Any, Any, Any]] = [
        *((k * cells + apps.cell, job, need) for k, need in enumerate(apps.needs.T)),
        (first + job, job, dominant), (first + job, unfair, -one),
        (first + n + job, job, -dominant), (first + n + job, unfair, -one),
        (first + 2 * n + job, job, one), (first + 2 * n + job, changed, -apps.most * 1.0),
        (first + 3 * n + job, job, -one), (first + 3 * n + job, changed, tight),
        (np.full(n, first + 4 * n), unfair, one),
        (np.full(n, first + 4 * n + 1), changed, runs * 1.0),
        (first + 4 * n + np.arange(2), 3 * n + np.arange(2), np.full(2, -1.0)),
    ]  # fmt: skip
    row, column, value = (np.concatenate(part) for part in zip(*entries, strict=True))
    kept = value != 0
    return sparse.csr_array(
        sparse.coo_array(
            (value[kept], (row[kept], column[kept])), shape=(first + 4 * n + 2, 3 * n + 2)
        )
    )


@dataclass(frozen=True)
class Containers:
    """Allocates by the programme of `containers`.

    Nodes of one cell are pooled. A job starts in a cell that has room for its least beside the
    least of all that come before it, of these in the first where it can have most beside what they
    have, and stays there; a job that finds none waits, and at most `window` of the waiting jobs
    take part. A job of several roles is one container, and jobs inside another's grant get what
    they ask for.
    """

    loss: float
    changes: float
    window: int

    def allocate(self, view: View, ids: Ids) -> Allocation:
        """A row for every job that gets anything."""
        movable = resizable(view, ids[view.jobs.gpus[ids] > 0])
        apart = view.jobs.within[movable] >= 0
        holds, cell_of = view.ledger.holds, view.ledger.cell_of
        runs = [job for job in movable[~apart].tolist() if job in holds]
        there = np.array([cell_of[holds[job][1][0].node].index for job in runs], np.int64)
        units = _units(view, np.array(runs, np.int64))
        now = np.maximum(view.jobs.size[runs] // units.gpus, 1)
        room = _free(view)
        spare = room.copy()
        np.add.at(room, there, now[:, None] * units.needs)
        left = room.copy()
        np.subtract.at(left, there, units.least[:, None] * units.needs)
        jobs, cells = runs[:], there.tolist()
        for job in movable[~apart & (view.jobs.phase[movable] == Phase.PENDING)].tolist():
            if len(jobs) == len(runs) + self.window:
                break
            unit = _unit_of(view, view.at.shape[job])
            takes = unit.least * unit.needs
            able = view.ledger.cells_for(view.draft.shape(job))
            found = [cell.index for cell in able if (takes <= left[cell.index] + 1e-9).all()]
            if found:
                # Where it can have most beside what the others have; the first of equals.
                many = [_many(spare[cell], unit) for cell in found]
                cell = found[many.index(max(many))]
                spare[cell] -= max(many) * unit.needs
                left[cell] -= takes
                jobs.append(job)
                cells.append(cell)
        held = np.append(now, np.zeros(len(jobs) - len(runs), np.int64))
        units = _units(view, np.array(jobs, np.int64))
        gpus = self._solve(view, jobs, units, held, np.array(cells, np.int64), room) * units.gpus
        allocation = Allocation()
        kinds = [cell.gpu_type for cell in view.ledger.cells]
        for job, cell, many_gpus in zip(jobs, cells, gpus.tolist(), strict=True):
            allocation.add((job,), kinds[cell], many_gpus, 1.0)
        for job in movable[apart].tolist():
            allocation.add((job,), "", view.at.gpus[job], 1.0)
        return allocation

    def _solve(
        self, view: View, jobs: list[int], units: _Units, held: Ints, cells: Ints, room: Floats
    ) -> Ints:
        if not jobs:
            return held
        needs, least = units.needs, units.least
        there = room.sum(axis=0)
        of_all = np.where(there > 0, there, np.inf)
        kills = (view.jobs.on_preempt[jobs] == OnPreempt.KILL) & (held > 0)
        fits = np.where(needs > 0, room[cells] / np.maximum(needs, 1e-300), np.inf).min(axis=1)
        most = np.maximum(np.minimum(units.most, np.floor(fits + 1e-9)), np.maximum(least, held))
        if (least == most).all():
            return np.maximum(least, held)  # no choice
        apps = Applications(
            needs / of_all,
            np.where(kills, held, least),
            np.where(kills, held, most).astype(np.int64),
            held,
            cells,
            view.jobs.weight[jobs],
        )
        return containers(apps, room / of_all, self.loss, self.changes)


class _Unit(NamedTuple):
    """What one container takes (GPUs, thousandths of a core, MiB), how many there may be, and the
    GPUs that each counts as."""

    needs: Floats
    least: int
    most: int
    gpus: int


class _Units(NamedTuple):
    """The same of several jobs, by row."""

    needs: Floats
    least: Ints
    most: Ints
    gpus: Ints


def _units(view: View, ids: Ids) -> _Units:
    codes, of = np.unique(view.jobs.shape[ids], return_inverse=True)
    every = [_unit_of(view, code) for code in codes.tolist()]
    columns = zip(*every, strict=True) if every else ([], [], [], [])
    needs, *counts = (np.array(column) for column in columns)
    least, most, gpus = (np.asarray(count, np.int64)[of] for count in counts)
    return _Units(needs.reshape(-1, 3)[of], least, most, gpus)


class _KnownUnits:
    """By shape: its container."""

    __slots__ = ("found",)

    def __init__(self) -> None:
        self.found: dict[int, _Unit] = {}


def _unit_of(view: View, code: int) -> _Unit:
    known = view.cached(_KnownUnits).found
    if code not in known:
        known[code] = _unit(view.jobs.shapes[code])
    return known[code]


def _unit(shape: Shape) -> _Unit:
    asked = np.array(
        [
            [role.needs.gpus * role.needs.share / WHOLE, role.needs.cpus, role.needs.memory]
            for role in shape.roles
        ],
        np.float64,
    )
    only = shape.roles[0]
    if len(shape.roles) == 1 and only.needs.gpus:
        return _Unit(asked[0], *only.range, only.needs.gpus)
    sizes = np.array([role.size for role in shape.roles], np.float64)
    return _Unit(np.einsum("r,rk->k", sizes, asked), 1, 1, shape.gpus)


def _many(room: Floats, unit: _Unit) -> int:
    """How many containers there is room for, its least at least."""
    asked = unit.needs > 0
    fits = float((room[asked] / unit.needs[asked]).min(initial=np.inf))
    return max(int(min(fits + 1e-9, unit.most)), unit.least)


def _free(view: View) -> Floats:
    """What is free now by cell: GPUs, thousandths of a core, MiB."""
    ledger = view.ledger
    free = np.zeros((len(ledger.cells), 3))
    for cell in ledger.cells:
        free[cell.index, 0] = cell.free
    here = np.array([cell.index for cell in ledger.cell_of], np.int64)
    up = np.array(ledger.up, np.bool_)
    for column, left in ((1, ledger.free_cpus), (2, ledger.free_memory)):
        free[:, column] = np.bincount(here, np.where(up, left, 0), len(free))
    return free
