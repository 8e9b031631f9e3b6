"""Starts planned ahead by a time-indexed linear programme, rounded at random (SPIN)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array

from ganger.core.events import CAPACITY_FREED, CAPACITY_LOST, COMMANDED, QUEUED, WOKE
from ganger.core.plan import Placement, Plan, Reason
from ganger.core.spec import Locality
from ganger.core.units import HOUR, NEVER
from ganger.core.view import View
from ganger.mechanisms.common.believed import believed_duration, believed_length, believed_speed
from ganger.mechanisms.common.reasons import decides_at
from ganger.solve.highs import maximise, model

_CHANGES = CAPACITY_FREED | CAPACITY_LOST | COMMANDED | QUEUED | WOKE
Floats = NDArray[np.float64]


class Way(NamedTuple):
    """One way to run a job: within `tier`, for so many microseconds."""

    job: int
    tier: Locality
    lasts: float


class Draw(NamedTuple):
    """What was drawn for a job: when to start (in slots from now) and in which way."""

    start: int
    offset: float
    way: Way


@dataclass(frozen=True)
class TimeIndexed:
    """Waits for a better place where that pays: minimises the weighted sum of completion times.

    y[j, c, t] is the chance that job j starts in slot t in configuration c (one node, or anywhere);
    each job starts at most once; in no slot are more GPUs used than are expected to be free, nor
    more nodes with so many GPUs free than there are. A draw from y says which jobs start now; it is
    solved anew at every change and in the next slot for which a start was drawn. The first `window`
    waiting jobs take part, over `slots` slots of `slot` microseconds (0: a share of what the work
    would take).
    """

    name: str
    window: int
    slots: int
    slot: int

    def decide(self, view: View, memory: None) -> tuple[Plan, None]:
        """Start all where each can have its best place; otherwise plan."""
        mark, wake, waiting = view.draft.mark(), NEVER, view.pending.tolist()
        late = [job for job in waiting if not self._start_best(view, job)]
        if late:
            view.draft.rollback(mark)
            late = waiting[: self.window]
            if any(_place(view, job, Locality.ANY) is not None for job in late):
                wake = self._plan_ahead(view, late)
        reasons = []
        if late:
            evidence = {"window_jobs": float(self.window)} | decides_at(wake)
            reasons.append(Reason("Resources", "TimeIndexed", evidence=evidence, until=_CHANGES))
        return view.draft.plan(reasons, wake, _CHANGES), None

    def _start_best(self, view: View, job: int) -> bool:
        """Start the job if it can have the tier in which it is fastest."""
        best = min(_ways(view, job), key=lambda way: (way.lasts, way.tier))
        placement = _place(view, job, best.tier)
        if placement is not None:
            view.draft.start(job, placement)
        return placement is not None

    def _plan_ahead(self, view: View, late: list[int]) -> int:
        """Solve, draw and start; returns when the next drawn start is due."""
        ways = [way for job in late for way in _ways(view, job)]
        slot = self.slot or max(self._share(view, ways), 1)
        drawn = self._drawn(view, late, ways, slot)
        wake = NEVER
        for draw in sorted(drawn, key=lambda draw: (draw.start + draw.offset, draw.way.job)):
            job, idle = draw.way.job, not view.ledger.holds
            if not draw.start or idle:
                placement = _place(view, job, Locality.ANY if idle else draw.way.tier)
                if placement is not None:
                    view.draft.start(job, placement)
                    continue
            wake = min(wake, view.now + max(draw.start, 1) * slot)
        return wake

    def _share(self, view: View, ways: list[Way]) -> int:
        """A slot such that all that waits would be done within the horizon."""
        ends, _ = _expected_ends(view)
        work = sum(way.lasts * max(view.at.gpus[way.job], 1) for way in ways)
        longest = max(way.lasts for way in ways)
        soon = np.sort(ends - view.now)[: self.window]
        wait = float(soon.mean()) if len(soon) else 0.0
        horizon = wait + work / max(view.ledger.total, 1) + longest
        return int(min(horizon, 1000 * HOUR)) // self.slots

    def _drawn(self, view: View, late: list[int], ways: list[Way], slot: int) -> list[Draw]:
        chances = self._solve(view, ways, slot)
        rng = view.rng("starts")
        offsets, picks = rng.random(len(late)), rng.random(len(late))
        rows = np.array([way.job for way in ways])
        drawn: list[Draw] = []
        for job, offset, pick in zip(late, offsets.tolist(), picks.tolist(), strict=True):
            own = np.flatnonzero(rows == job)
            flat = np.maximum(chances[own], 0.0).ravel().round(9).cumsum()
            at = int(np.searchsorted(flat, pick * max(flat[-1], 1.0), "right"))
            if at < len(flat):
                which, start = divmod(at, self.slots)
                drawn.append(Draw(start, offset, ways[own[which]]))
        return drawn

    def _solve(self, view: View, ways: list[Way], slot: int) -> Floats:
        """y as (ways, slots)."""
        slots, jobs = self.slots, sorted({way.job for way in ways})
        gpus = np.array([view.at.gpus[way.job] for way in ways])
        lasts = np.array([way.lasts for way in ways])
        weight = view.jobs.weight[[way.job for way in ways]]
        # Of equals the earlier one is to start first, which the programme itself does not say.
        rank = {job: at for at, job in enumerate(jobs)}
        weight = weight * (1.0 - 1e-6 * np.array([rank[way.job] for way in ways]) / len(jobs))
        cost = np.arange(slots) * float(slot) + lasts[:, None]
        gain = weight[:, None] * (2.0 * cost.max() + slot - cost) / slot
        free, sizes = _room(view, ways, slots, slot)
        near = np.array([way.tier <= Locality.NODE for way in ways])
        # Way i, begun in slot s, runs in slot t; it asks for size k on one node.
        way, start, at = np.nonzero(_running(np.maximum(-(-lasts // slot), 1), slots))
        part, wide = np.nonzero(near[way, None] & (gpus[way, None] >= np.array(sizes)))
        column, base = way * slots + start, len(jobs) + at * (1 + len(sizes))
        every = np.arange(gain.size)
        own = np.searchsorted(jobs, [way.job for way in ways])
        value = np.concatenate([np.ones(gain.size), gpus[way], np.ones(len(part))])
        at_row = np.concatenate([np.repeat(own, slots), base, base[part] + 1 + wide])
        at_column = np.concatenate([every, column, column[part]])
        limits = np.concatenate([np.ones(len(jobs)), free.ravel()])
        rows = coo_array((value, (at_row, at_column)), shape=(len(limits), gain.size)).tocsr()
        rows.sort_indices()
        posed = model(gain.ravel(), rows, limits, upper=np.ones(gain.size))
        return maximise(posed).x.reshape(gain.shape)


def _running(lasts: Floats, slots: int) -> NDArray[np.bool_]:
    """Whether what is begun in a slot and lasts so many still runs in another: (ways, slots,
    slots)."""
    start, at = np.arange(slots)[:, None], np.arange(slots)
    running: NDArray[np.bool_] = (at >= start) & (at < start + lasts[:, None, None])
    return running


def _ways(view: View, job: int) -> list[Way]:
    """On one node if some node could hold it, and anywhere; unknown durations are their limits."""
    shape = view.draft.shape(job)
    left = max(min(believed_length(view, job), 1000.0 * HOUR) - view.work(job), 1.0)
    cells = view.ledger.cells_for(shape)
    widest = max((cell.widest for cell in cells), default=0)
    tiers = [(Locality.NODE, 1)] if shape.is_plain and 0 < shape.gpus <= widest else []
    if shape.locality > Locality.NODE or not tiers:
        tiers.append((Locality.ANY, max(-(-shape.gpus // max(widest, 1)), 2)))
    kind = cells[0].gpu_type if cells else ""
    speed = _speeds(view, job, kind, tuple(nodes for _, nodes in tiers))
    return [Way(job, tier, left / each) for (tier, _), each in zip(tiers, speed, strict=True)]


class _SpeedsByTier:
    """By job: the type and numbers of nodes that were asked about, and the speeds."""

    __slots__ = ("found",)

    def __init__(self) -> None:
        self.found: dict[int, tuple[tuple[str, tuple[int, ...]] | None, list[float]]] = {}


def _speeds(view: View, job: int, kind: str, nodes: tuple[int, ...]) -> list[float]:
    """Of a job over so many nodes; asked for once while it waits, if that never changes."""
    known = view.cached(_SpeedsByTier).found
    asked, found = known.get(job, (None, []))
    if asked != (kind, nodes) or not view.oracle.steady:
        many = np.full(len(nodes), view.draft.shape(job).gpus)
        speed = believed_speed(view, np.full(len(nodes), job), kind, many, np.array(nodes))
        found = np.where(speed <= 0, 1.0, speed).tolist()
        if len(known) > 2 * len(view.pending) + 64:
            known.clear()
        known[job] = (kind, nodes), found
    return found


def _place(view: View, job: int, tier: Locality) -> Placement | None:
    ledger = view.ledger
    if ledger.lacks(view.draft.shape(job)):
        return None
    return ledger.find(view.draft.shape(job), locality=tier)


def _expected_ends(view: View) -> tuple[Floats, list[int]]:
    """When those who hold devices are expected to end, and who they are."""
    active = list(view.ledger.holds)
    ids = np.array(active, np.int64)
    left = np.nan_to_num(believed_duration(view, ids), nan=float(HOUR)) - view.work(ids)
    rate = view.jobs.rate[ids]
    left = np.minimum(np.maximum(left, 1.0), 1000.0 * HOUR)
    return view.now + np.ceil(left / np.where(rate > 0, rate, 1.0)), active


def _room(
    view: View, ways: list[Way], slots: int, slot: int
) -> tuple[NDArray[np.float64], list[int]]:
    """By slot: GPUs free, and for each size that somebody wants on one node how many such parts the
    nodes have free; and those sizes."""
    ledger = view.ledger
    sizes = sorted({view.at.gpus[way.job] for way in ways if way.tier <= Locality.NODE})
    free = np.array([n if ledger.up[i] else 0 for i, n in enumerate(ledger.free_count)])
    rooms = np.tile(free, (slots, 1))
    ends, active = _expected_ends(view)
    for end, job in zip(ends.tolist(), active, strict=True):
        first = min(max(-int(-(end - view.now) // slot), 1), slots)
        for held in ledger.holds[job][1]:
            if ledger.up[held.node]:
                rooms[first:, held.node] += held.devices.bit_count()
    columns = [rooms.sum(axis=1)]
    columns += [(rooms // size).sum(axis=1) for size in sizes]
    return np.stack(columns, axis=1).astype(np.float64), sizes
