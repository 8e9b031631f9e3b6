"""The game of places: which nodes the job at the head of the queue gets, one after the other."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ganger.core.books.ledger import Cell
from ganger.core.events import CAPACITY_FREED, CAPACITY_LOST, COMMANDED, QUEUED
from ganger.core.plan import Placement, Reason
from ganger.core.spec import Locality, Shape
from ganger.core.view import View
from ganger.mechanisms.learning.features import Runnable
from ganger.mechanisms.learning.stepwise import Choice, Play, Windowed
from ganger.mechanisms.placement.place import PACK, on_nodes

_CHANGES = CAPACITY_FREED | CAPACITY_LOST | COMMANDED | QUEUED
COLUMNS = ("is a node", "free", "of what is needed", "is enough", "needed", "free part", "queue")
"""About each node; the row of the action that waits has 0 in the first four."""


@dataclass(frozen=True)
class Placing(Windowed):
    """First come, first served. Action i takes all GPUs that the job still needs and node i has
    free; the last action, before the first node only, lets the job wait, and all behind it. Nodes
    beyond the first `window` are never chosen. A job that needs more than whole GPUs, or a rack of
    its own, is packed without a choice; one that could never run holds up nobody."""

    window: int = 64

    @property
    def features(self) -> int:
        """The columns."""
        return len(COLUMNS)

    def play(self, view: View) -> Play:
        """Place jobs until the first one that waits."""
        reasons = list[Reason]()
        pending = view.pending
        for job in view.cached(Runnable).first(len(pending), view, pending).tolist():
            shape = view.draft.shape(job)
            if shape.is_plain and shape.gpus and shape.locality is not Locality.RACK:
                placement = yield from self._choose(view, job, shape)
            else:
                placement = PACK.find(view, view.ledger, job)
            if placement is None:
                evidence = {"asked_gpus": float(view.at.gpus[job])}
                reasons.append(Reason("Resources", "Placing", evidence=evidence, until=_CHANGES))
                break
            view.draft.start(job, placement)
        return view.draft.plan(reasons, until=_CHANGES)

    def _choose(
        self, view: View, job: int, shape: Shape
    ) -> Generator[Choice, int, Placement | None]:
        """The nodes of one job; None if it waits."""
        ledger, need, got = view.ledger, shape.gpus, dict[int, int]()
        whole = shape.locality in (Locality.NODE, Locality.ISLAND)
        cells = ledger.cells_for(shape)
        idle = not len(view.active) and not view.draft.mark()
        queue = np.tanh(len(view.pending) / self.window)
        while need:
            free = self._free(view, cells, need, got, whole=whole)
            if not free.any():
                return None
            mask = np.append(free > 0, not idle and not got)
            rows = np.zeros((self.actions, len(COLUMNS)))
            nodes = min(self.window, ledger.nodes.n)
            rows[:nodes, 0] = 1.0
            rows[:-1, 1] = free / max(int(free.max()), 1)
            rows[:-1, 2] = np.minimum(free, need) / need
            rows[:-1, 3] = free >= need
            rows[:, 4] = need / max(ledger.total, 1)
            rows[:, 5] = ledger.free / max(ledger.total, 1)
            rows[:, 6] = queue
            node = yield Choice(rows, mask)
            if node >= self.window:
                return None
            got[node] = min(int(free[node]), need)
            need -= got[node]
            cells = [ledger.cell_of[node]]
        return on_nodes(ledger, tuple(sorted(got.items())))

    def _free(
        self, view: View, cells: list[Cell], need: int, got: dict[int, int], *, whole: bool
    ) -> NDArray[np.int64]:
        """By node of the window: whole GPUs free, on nodes that gave none yet, of those cells that
        have all that is needed (`whole`: on a single node)."""
        free, ledger = np.zeros(self.window, np.int64), view.ledger
        for cell in cells:
            nodes = [
                node
                for node in cell.nodes
                if node < self.window
                and ledger.up[node]
                and node not in got
                and ledger.free_count[node] >= (need if whole else 1)
            ]
            counts = [ledger.free_count[node] for node in nodes]
            if sum(counts) >= need:
                free[nodes] = counts
        return free
