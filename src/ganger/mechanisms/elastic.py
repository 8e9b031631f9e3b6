"""Elastic allocators: how large every job should be, by a gain rule over its throughput curve.

All read the curves from the oracle (`throughput`) and what is left from `view.remaining`; where
the oracle does not know, speed is taken as linear and all work as equal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ganger.core.fit import Cell
from ganger.core.jobs import Phase
from ganger.core.spec import OnPreempt, Shape
from ganger.core.table import Ids
from ganger.core.units import NEVER
from ganger.core.view import View
from ganger.mechanisms.gain import Curves, Floats, Ints, afs, exact, greedy
from ganger.mechanisms.realise import Sizes

_PENDING, _STARTING, _RUNNING = int(Phase.PENDING), int(Phase.STARTING), int(Phase.RUNNING)
_NEVER = int(OnPreempt.NEVER)
_MOST = float(np.finfo(np.float64).max)


class Market(NamedTuple):
    """The jobs that may get any size now, and what there is to divide among them.

    `curves`: what 1, 2, ... steps are worth to the jobs of `ids`; `work[i]`: microseconds left at
    throughput 1; `capacity`: GPUs. A job with GPUs in several roles is one step: it gets all it
    asks for, or nothing.
    """

    ids: Ids
    curves: Curves
    work: Floats
    capacity: int


Rule = Callable[[View, Market], Ints]
"""Sizes in steps, 0 for none, for the jobs of a market."""


def resizable(view: View, ids: Ids) -> Ids:
    """Those of `ids` that may be started, resized or stopped now."""
    jobs, phase = view.jobs, view.jobs.phase[ids]
    may = (phase == _STARTING) | (phase == _RUNNING)
    may &= jobs.on_preempt[ids] != _NEVER
    resizable: Ids = ids[may | (phase == _PENDING)]
    return resizable


def market(view: View, ids: Ids) -> Market:
    """Curves and capacity for the resizable jobs of `ids`, on the GPU type that each prefers.

    What they hold counts as free, and so does what is being released. GPUs that none of them may
    use do not.
    """
    ids, jobs = resizable(view, ids), view.jobs
    shape = jobs.shape[ids]
    codes = np.flatnonzero(np.bincount(shape))
    within = {cell.index: cell.free for code in codes.tolist() for cell in _cells(view, code)}
    capacity = sum(within.values()) + int(jobs.size[ids].sum())
    kinds: list[_Kind] = []
    offers = np.ones((int(codes.max(initial=0)) + 1, 4), np.int64)
    for code in codes.tolist():
        low, steps, kind = _offer(view, code, capacity)
        if kind not in kinds:
            kinds.append(kind)
        offers[code] = low, steps, kind.unit, kinds.index(kind)
    least, most, units, alike = np.ascontiguousarray(offers[shape].T)
    speed = _curves(view, ids, most, alike, kinds)
    width = speed.shape[1]
    if (most < width).any():
        step = np.arange(1, width + 1)
        speed = speed[np.arange(len(ids))[:, None], np.minimum(step, most[:, None]) - 1]
    left = np.minimum(np.fmax(view.remaining(ids), 1.0), _MOST)  # 1 where nothing is known
    return Market(ids, Curves(speed, least, most, units), left, capacity)


class _Kind(NamedTuple):
    """What the speeds of jobs of one shape are asked for: GPU type, GPUs of the widest node, GPUs
    a step."""

    gpu_type: str
    widest: int
    unit: int


class _Known:
    """Curves of jobs, where the oracle's answers never change. Few are different: `row[job]` says
    which of `speed` is the job's (-1: not asked for yet), known for so many `steps`."""

    def __init__(self, jobs: int) -> None:
        self.row = np.full(jobs, -1, np.int64)
        self.speed, self.steps = np.ones((0, 1)), np.zeros(0, np.int64)
        self._number: dict[tuple[int, bytes], int] = {}

    def keep(self, ids: Ids, most: Ints, speed: Floats) -> None:
        """Curves of `ids`, each as far as its `most`."""
        for i, (job, steps) in enumerate(zip(ids.tolist(), most.tolist(), strict=True)):
            key = steps, speed[i, :steps].tobytes()
            number = self._number.setdefault(key, len(self._number))
            if number == len(self.speed):
                width = max(self.speed.shape[1], steps)
                wider = np.ones((number + 1, width))
                wider[:number, : self.speed.shape[1]] = self.speed
                wider[number, :steps] = speed[i, :steps]
                self.speed, self.steps = wider, np.append(self.steps, steps)
            self.row[job] = number


def _curves(view: View, ids: Ids, most: Ints, alike: Ints, kinds: list[_Kind]) -> Floats:
    """Speeds at 1 to the most steps of anybody, each to be believed up to the job's own `most`.
    `alike`: which of the `kinds` a job is of."""
    if not view.oracle.steady:
        return _told(view, ids, most, alike, kinds)
    room = view.jobs.capacity
    known: _Known | None = view.scratch.get("curves")
    if known is None or len(known.row) < room:
        known = view.scratch["curves"] = _Known(room)
    rows = known.row[ids]
    new = rows < 0
    new[~new] = known.steps[rows[~new]] < most[~new]
    if new.any():
        asked = ids[new]
        known.keep(asked, most[new], _told(view, asked, most[new], alike[new], kinds))
        rows = known.row[ids]
    return known.speed[rows, : int(most.max(initial=1))]


def _told(view: View, ids: Ids, most: Ints, alike: Ints, kinds: list[_Kind]) -> Floats:
    """`_curves`, from the oracle."""
    step = np.arange(1, int(most.max(initial=1)) + 1)
    speed = np.ones((len(ids), len(step)))
    for number, (gpu_type, widest, unit) in enumerate(kinds):
        rows = alike == number
        longest = step[: most[rows].max(initial=0)]
        if len(longest):
            speed[rows, : len(longest)] = _speeds(view, ids[rows], gpu_type, unit * longest, widest)
    return speed


def pools(view: View, ids: Ids) -> list[Ids]:
    """`ids` by the GPUs that they may use: two jobs are in one pool if there is a kind of GPUs that
    both may use, or a chain of such jobs between them. A job of one pool cannot make room for one
    of another; within one, all count on all its GPUs. Jobs without GPUs are in none with others."""
    shape = view.jobs.shape[ids]
    codes = tuple(np.flatnonzero(np.bincount(shape)).tolist())
    known = view.scratch.setdefault("pools", {})
    if codes not in known:
        known[codes] = _apart(view, codes)
    found: list[list[int]] = known[codes]
    if len(found) == 1:
        return [ids]
    return [ids[np.isin(shape, pool)] for pool in found]


def _apart(view: View, every: Iterable[int]) -> list[list[int]]:
    """Codes of shapes by pool."""
    found: list[tuple[set[int], set[int]]] = []
    for code in every:
        cells, codes = {cell.index for cell in _cells(view, code)}, {code}
        if not view.jobs.shapes[code].gpus:
            cells.clear()
        for other in [one for one in found if one[0] & cells]:
            found.remove(other)
            cells, codes = cells | other[0], codes | other[1]
        found.append((cells, codes))
    return [list(codes) for _, codes in found]


def _cells(view: View, code: int) -> list[Cell]:
    """Where jobs of a shape may be."""
    return view.ledger.cells_for(view.jobs.shapes[code])


def _offer(view: View, code: int, capacity: int) -> tuple[int, int, _Kind]:
    """Of a shape: its least and most steps; its first GPU type, its widest node, GPUs a step."""
    known = view.scratch.setdefault("offers", {})
    if code not in known:
        known[code] = *_steps(view.jobs.shapes[code]), _cells(view, code)
    unit, low, high, cells = known[code]
    room = max((cell.total for cell in cells), default=0)
    widest = max((cell.widest for cell in cells), default=1)
    steps = max(min(high, min(capacity, room) // unit), low)
    return low, steps, _Kind(cells[0].gpu_type if cells else "", widest, unit)


def _steps(shape: Shape) -> tuple[int, int, int]:
    """GPUs a step, and the fewest and the most steps, of a shape."""
    first = shape.roles[0]
    if any(role.needs.gpus for role in shape.roles[1:]):
        return shape.gpus, 1, 1
    return max(first.needs.gpus, 1), *first.range


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


def by_greedy(view: View, market: Market) -> Ints:
    """Optimus: the next GPU where the predicted remaining time falls most."""
    return greedy(market.curves, market.work, market.capacity)


def by_afs(view: View, market: Market) -> Ints:
    """AFS-L: the two-job rule on remaining work."""
    return afs(market.curves, market.work, market.capacity)


def by_attained_afs(view: View, market: Market) -> Ints:
    """AFS-P: the two-job rule on attained service."""
    attained = view.attained(market.ids).astype(np.float64)
    return afs(market.curves, attained, market.capacity, shrinking=False)


def by_total(view: View, market: Market) -> Ints:
    """Saxena et al.: the largest sum of speedups over one worker, exactly, first come first."""
    speed = market.curves.speed
    return exact(market.curves._replace(speed=speed / speed[:, :1]), market.capacity)[0]


@dataclass(frozen=True)
class Elastic:
    """Sizes by `rule`, in each of the `pools`; jobs that must keep what they hold are left out.

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

    def sizes(self, view: View, ids: Ids) -> Sizes:
        """A size for every job that gets GPUs."""
        found = [self._of_pool(view, pool) for pool in pools(view, ids)] or [Sizes(ids, ids)]
        ids, gpus = (np.concatenate(column) for column in zip(*found, strict=True))
        order = np.lexsort((ids, gpus)) if self.small_first else np.argsort(ids)
        return Sizes(ids[order], gpus[order])

    def _of_pool(self, view: View, pool: Ids) -> Sizes:
        shop = market(view, pool)
        steps = self.rule(view, shop)
        gets = steps > 0
        return Sizes(shop.ids[gets], (steps * shop.curves.units)[gets])
