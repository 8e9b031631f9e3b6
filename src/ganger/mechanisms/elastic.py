"""Elastic allocators: how large every job should be, by a gain rule over its throughput curve.

All read the curves from the oracle (`throughput`) and what is left from `view.remaining`; where
the oracle does not know, speed is taken as linear and all work as equal.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ganger.core.allocation import Allocation
from ganger.core.jobs import Phase
from ganger.core.spec import OnPreempt
from ganger.core.table import Ids
from ganger.core.units import NEVER
from ganger.core.view import View
from ganger.mechanisms.gain import Curve, afs, exact, greedy

_RESIZABLE = (int(Phase.PENDING), int(Phase.STARTING), int(Phase.RUNNING))


class Market(NamedTuple):
    """The jobs that may get any size now, and what there is to divide among them.

    `curves[i]`: throughput of job `ids[i]` at 1, 2, ... steps of `units[i]` GPUs; `least[i]`: its
    least steps; `work[i]`: microseconds left at throughput 1; `capacity`: GPUs. A job with GPUs in
    several roles is one step: it gets all it asks for, or nothing.
    """

    ids: Ids
    curves: list[Curve]
    work: NDArray[np.float64]
    least: list[int]
    units: list[int]
    capacity: int


Rule = Callable[[View, Market], list[int]]
"""Sizes in steps, 0 for none, for the jobs of a market."""


def resizable(view: View, ids: Ids) -> Ids:
    """Those of `ids` that may be started, resized or stopped now."""
    jobs, phase = view.jobs, view.jobs.phase[ids]
    may = np.isin(phase, _RESIZABLE)
    may &= (phase == Phase.PENDING) | (jobs.on_preempt[ids] != OnPreempt.NEVER)
    return ids[may]


def spare(view: View, movable: Ids) -> int:
    """GPUs that are free once all of `movable` have left; those being released count."""
    movable_set, held = set(movable.tolist()), 0
    for job in view.ledger.holds:
        if job in movable_set:
            held += int(view.jobs.size[job])
    return view.ledger.free + held


def market(view: View, ids: Ids) -> Market:
    """Curves and capacity for the resizable jobs of `ids`, on the GPU type that each prefers."""
    ids = resizable(view, ids)
    capacity = spare(view, ids)
    jobs = view.jobs
    shapes = jobs.shape[ids]
    curves: list[Curve] = [np.ones(1)] * len(ids)
    least, units = [1] * len(ids), [1] * len(ids)
    for code in np.unique(shapes).tolist():
        shape = jobs.shapes[code]
        first = shape.roles[0]
        unit, (low, high) = max(first.needs.gpus, 1), first.range
        if any(role.needs.gpus for role in shape.roles[1:]):
            unit, low, high = shape.gpus, 1, 1
        cells = view.ledger.cells_for(shape)
        room = max((cell.total for cell in cells), default=0)
        steps = max(min(high, min(capacity, room) // unit), low)
        gpus = unit * np.arange(1, steps + 1)
        widest = max((cell.widest for cell in cells), default=1)
        where = np.flatnonzero(shapes == code)
        rows = _speeds(view, ids[where], cells[0].gpu_type if cells else "", gpus, widest)
        for at, row in zip(where.tolist(), rows, strict=True):
            curves[at], least[at], units[at] = row, low, unit
    left = np.nan_to_num(view.remaining(ids), nan=1.0)
    return Market(ids, curves, np.maximum(left, 1.0), least, units, capacity)


def _speeds(
    view: View, ids: Ids, gpu_type: str, gpus: NDArray[np.int64], widest: int
) -> NDArray[np.float64]:
    """Throughput, one row per job and one column per size, packed on as few nodes as it takes.

    Positive, and never falling with size: more GPUs than help need not be used.
    """
    nodes = -(-gpus // max(widest, 1))
    answer = view.oracle.throughput(view, ids[:, None], gpu_type, gpus[None, :], nodes[None, :])
    if answer.shape != (len(ids), len(gpus)) or np.isnan(answer).any():
        answer = gpus[None, :] / np.maximum(view.jobs.gpus[ids], 1)[:, None]
    return np.maximum.accumulate(np.maximum(answer, 1e-12), axis=1)


def run_times(view: View, job: int) -> dict[int, float]:
    """Expected time left, microseconds, by the GPUs (in all) on which `job` could run."""
    ids = np.array([job])
    shape = view.draft.shape(job)
    first, (low, high) = shape.roles[0], shape.roles[0].range
    fixed = shape.gpus - first.size * first.needs.gpus
    sizes = fixed + first.needs.gpus * np.arange(low, high + 1)
    sizes = np.unique(sizes)
    cells = view.ledger.cells_for(shape)
    widest = max((cell.widest for cell in cells), default=1)
    rows = _speeds(view, ids, cells[0].gpu_type if cells else "", np.maximum(sizes, 1), widest)
    left = float(np.nan_to_num(view.remaining(ids), nan=1.0)[0])
    return {
        size: left / speed for size, speed in zip(sizes.tolist(), rows[0].tolist(), strict=True)
    }


def cheapest_on_time(view: View, job: int) -> list[int]:
    """Sizes of `job` in order of preference: the fewest GPUs that meet its deadline, and where none
    does the fastest (GENIE)."""
    times, end = run_times(view, job), int(view.jobs.deadline[job]) - view.now
    met = [size for size, time in times.items() if time <= end]
    late = sorted((size for size in times if size not in met), key=lambda size: (times[size], size))
    return met + late


def by_greedy(view: View, market: Market) -> list[int]:
    """Optimus: the next GPU where the predicted remaining time falls most."""
    return greedy(market.curves, market.work.tolist(), market.capacity, market.least, market.units)


def by_afs(view: View, market: Market) -> list[int]:
    """AFS-L: the two-job rule on remaining work."""
    work = market.work.tolist()
    return afs(market.curves, work, market.capacity, market.least, market.units)


def by_attained_afs(view: View, market: Market) -> list[int]:
    """AFS-P: the two-job rule on attained service."""
    attained = view.attained(market.ids).tolist()
    return afs(
        market.curves, attained, market.capacity, market.least, market.units, shrinking=False
    )


def by_total(view: View, market: Market) -> list[int]:
    """Saxena et al.: the largest sum of speedups over one worker, exactly, first come first."""
    curves = [curve / curve[0] for curve in market.curves]
    return exact(curves, market.capacity, market.least, market.units)[0]


@dataclass(frozen=True)
class Elastic:
    """Sizes by `rule`, as an allocation; jobs that must keep what they hold are left out.

    The rows come in order of submission, or (`small_first`, Optimus' order of placement) with the
    smallest first.
    """

    rule: Rule
    small_first: bool = False
    wakes: Callable[[View], int] = lambda view: NEVER
    """When the rule would decide otherwise although nothing happens."""

    def wake(self, view: View) -> int:
        """When it wants to be asked again at the latest."""
        return self.wakes(view)

    def allocate(self, view: View, ids: Ids) -> Allocation:
        """A row for every job that gets GPUs."""
        shop = market(view, ids)
        sizes = self.rule(view, shop)
        rows = [
            (job, size * unit)
            for job, size, unit in zip(shop.ids.tolist(), sizes, shop.units, strict=True)
            if size
        ]
        if self.small_first:
            rows.sort(key=lambda row: (row[1], row[0]))
        allocation = Allocation()
        for job, gpus in rows:
            allocation.add((job,), "", gpus, 1.0)
        return allocation
