"""Reservations: when the jobs at the head of the queue will start, and which jobs may start before
them.

Counts GPUs per cell over time from the expected ends of what runs. EASY keeps one reservation,
conservative backfilling one for every waiting job that it looks at (Mu'alem and Feitelson, TPDS
2001). Placement is not simulated ahead: a reservation promises GPUs, not a shape of nodes.
"""

from __future__ import annotations

from bisect import bisect_right

import numpy as np

from ganger.core.books.ledger import Cell
from ganger.core.state.jobs import Phase
from ganger.core.units import NEVER
from ganger.core.view import View
from ganger.mechanisms.common.believed import believed_duration, believed_rest


class Reservations:
    """Free GPUs of each cell from now on."""

    def __init__(self, view: View) -> None:
        self._view = view
        self._times: dict[int, list[int]] = {}
        self._free: dict[int, list[int]] = {}
        self._until: dict[tuple[int, int], int] = {}
        """By cell and GPUs: until when so many are free from now on; 0 if they are not."""
        self._add_ends()

    def _add_ends(self) -> None:
        """What is free as those who hold devices end: all of this draft, also those whom this very
        decision started."""
        view, jobs, holds = self._view, self._view.jobs, self._view.ledger.holds
        active = np.array(list(holds), np.int64)
        left = np.maximum(believed_duration(view, active) - view.work(active), 1.0)
        rate = np.where(jobs.phase[active] == Phase.RUNNING, jobs.rate[active], 1.0)
        ends = np.minimum(view.now + np.ceil(left / np.where(rate > 0, rate, 1.0)), NEVER)
        back: dict[int, list[tuple[int, int]]] = {}
        cell_of = view.ledger.cell_of
        for end, (_, placement) in zip(ends.astype(np.int64).tolist(), holds.values(), strict=True):
            for slot in placement:
                there = back.setdefault(cell_of[slot.node].index, [])
                there.append((end, slot.devices.bit_count()))
        for cell in view.ledger.cells:
            times, free = [view.now], [cell.free]
            for end, gpus in sorted(back.get(cell.index, ())):
                if end == times[-1]:
                    free[-1] += gpus
                else:
                    times.append(end)
                    free.append(free[-1] + gpus)
            self._times[cell.index], self._free[cell.index] = times, free

    def _change(self, cell: int, start: int, end: int, gpus: int) -> None:
        """Add `gpus` to what is free in [start, end)."""
        times, free = self._times[cell], self._free[cell]
        for at in (start, end):
            where = bisect_right(times, at) - 1
            if times[where] != at:
                times.insert(where + 1, at)
                free.insert(where + 1, free[where])
        for where in range(bisect_right(times, start) - 1, bisect_right(times, end) - 1):
            free[where] += gpus
        self._until.clear()

    def _lasts(self, cell: int, gpus: int) -> int:
        """Until when `gpus` are free from now on; 0 if they are not."""
        known = self._until.get((cell, gpus))
        if known is None:
            free, known = self._free[cell], 2 * NEVER  # for ever, whatever is believed
            for where, there in enumerate(free):
                if there < gpus:
                    known = self._times[cell][where] if where else 0
                    break
            self._until[cell, gpus] = known
        return known

    def earliest(self, cell: Cell, gpus: int, lasting: int, after: int) -> int:
        """The first time, not before `after`, from which `gpus` are free for `lasting`."""
        times, free = self._times[cell.index], self._free[cell.index]
        start, where = after, bisect_right(times, after) - 1
        while where < len(times):
            if free[where] < gpus:
                start = times[where + 1] if where + 1 < len(times) else NEVER
            elif where + 1 == len(times) or times[where + 1] >= start + lasting:
                return start
            where += 1
        return NEVER

    def reserve(self, job: int) -> int:
        """Book the earliest start, after now, of a job that cannot start now; returns it."""
        view = self._view
        shape = view.draft.shape(job)
        lasting = believed_rest(view, job)
        options = [
            (self.earliest(cell, shape.gpus, lasting, view.now + 1), cell.index)
            for cell in view.ledger.cells_for(shape)
        ]
        start, cell = min(options, default=(NEVER, -1))
        if start < NEVER:
            self._change(cell, start, min(start + lasting, NEVER), -shape.gpus)
        return start

    def candidates(self, jobs: list[int]) -> list[int]:
        """Those of `jobs` that are short enough to start now somewhere and delay no reservation,
        each taken alone."""
        view, ids = self._view, np.array(jobs, np.int64)
        asked = view.jobs.gpus[ids]
        sizes = np.unique(asked)
        cells = list(self._free)
        longest = [max([self._lasts(cell, gpus) for cell in cells]) for gpus in sizes.tolist()]
        room = np.array(longest, np.float64) - view.now
        rest = np.minimum(believed_duration(view, ids) - view.work(ids), NEVER)
        short = np.floor(rest) <= room[np.searchsorted(sizes, asked)]
        passing: list[int] = ids[short].tolist()
        return passing

    def start_now(self, job: int, cell: Cell) -> bool:
        """Whether the job may start now in `cell` and delay no reservation; if so, book it."""
        view = self._view
        gpus = view.draft.shape(job).gpus
        lasting = believed_rest(view, job)
        if view.now + lasting > self._lasts(cell.index, gpus):
            return False
        self._change(cell.index, view.now, min(view.now + lasting, NEVER), -gpus)
        return True
