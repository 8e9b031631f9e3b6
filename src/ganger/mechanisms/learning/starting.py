"""The game of the queue: which waiting job starts next, or that no more do for now."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from ganger.core.events import CAPACITY_FREED, CAPACITY_LOST, COMMANDED, QUEUED
from ganger.core.plan import Placement, Reason
from ganger.core.state.table import Ids
from ganger.core.view import View
from ganger.mechanisms.learning.features import JOB, Runnable, waiting_rows
from ganger.mechanisms.learning.stepwise import Choice, Floats, Mask, Play, Windowed
from ganger.mechanisms.placement.place import PACK

_CHANGES = CAPACITY_FREED | CAPACITY_LOST | COMMANDED | QUEUED
_WIDTH = len(JOB)
AROUND = ("is a job", "fits", "free part", "free part after", "queue")
"""The columns that follow those of the jobs. The row of the action that waits has 0 in the first
two, and in all that are about jobs."""


@dataclass(frozen=True)
class Starting(Windowed):
    """Actions 0 to `window` - 1 start one of the first jobs that wait, as they came; the last one
    waits. A job that fits nowhere cannot be chosen, and while no job holds GPUs, waiting cannot, so
    that something always goes on."""

    window: int = 50

    @property
    def features(self) -> int:
        """The columns: those of `JOB`, and `AROUND`."""
        return len(JOB) + len(AROUND)

    def play(self, view: View) -> Play:
        """Start jobs until none fits, or the player waits."""
        pending = view.pending
        if not len(pending):
            return view.draft.plan(until=_CHANGES)
        ids = view.cached(Runnable).first(self.window, view, pending)
        room = _Room(view, ids)
        if room.places:
            table = _Table(self, view, ids, room)
            while room.places:
                action = yield Choice(table.rows, table.mask)
                if action >= self.window:
                    break
                table.start(action)
        evidence = {"window_jobs": float(self.window), "waiting_jobs": float(len(pending))}
        reasons = [Reason("Resources", "Starting", evidence=evidence, until=_CHANGES)]
        return view.draft.plan(reasons, until=_CHANGES)


class _Room:
    """Where the next job of each shape would start. `places`: by shape; none that fit nowhere."""

    def __init__(self, view: View, ids: Ids) -> None:
        self._view = view
        self.jobs: list[int] = ids.tolist()
        self.shapes: list[int] = view.jobs.shape[ids].tolist()
        self._sample = dict(zip(self.shapes, self.jobs, strict=True))
        gpus = view.jobs.gpus
        self._gpus = {shape: int(gpus[job]) for shape, job in self._sample.items()}
        self.places = dict[int, Placement]()
        self._look(self._sample)

    def take(self, row: int) -> None:
        """The job of this row starts."""
        self._view.draft.start(self.jobs[row], self.places[self.shapes[row]])
        self._look(list(self.places))

    def without(self, shape: int) -> None:
        """No other job of the shape waits."""
        self.places.pop(shape, None)

    def _look(self, shapes: Iterable[int]) -> None:
        find, view, ledger = PACK.find, self._view, self._view.ledger
        free = ledger.free
        for shape in shapes:
            possible = self._gpus[shape] <= free
            placement = find(view, ledger, self._sample[shape]) if possible else None
            if placement is not None:
                self.places[shape] = placement
            else:
                self.places.pop(shape, None)


class _Table:
    """The rows of one decision, kept up while jobs start."""

    def __init__(self, game: Starting, view: View, ids: Ids, room: _Room) -> None:
        self._view, self._room = view, room
        n = len(ids)
        self._total = 1.0 / max(view.ledger.total, 1)
        self._part = view.jobs.gpus[ids] * self._total
        shapes = view.jobs.shape[ids]
        self._of = {shape: shapes == shape for shape in room.places}
        """By shape of which one fits: which rows have it. No other comes to fit by starts."""
        self._waiting = np.ones(n, np.bool_)
        self.rows: Floats = np.zeros((game.actions, game.features))
        self.rows[:n, :_WIDTH] = waiting_rows(view, ids)
        self.rows[:n, _WIDTH] = 1.0
        self.rows[:, _WIDTH + 4] = math.tanh(len(view.pending) / game.window)
        self.mask: Mask = np.zeros(game.actions, np.bool_)
        self.mask[-1] = len(view.active) > 0
        self._bring_up()

    def start(self, action: int) -> None:
        """The job of this row starts."""
        room, self._waiting[action] = self._room, False
        room.take(action)
        shape = room.shapes[action]
        if shape in room.places and not (self._waiting & self._of[shape]).any():
            room.without(shape)
        self.rows[action] = 0.0
        self.mask[-1] = True
        if room.places:
            self._bring_up()

    def _bring_up(self) -> None:
        """Write what fits now, and what is free."""
        n, places = len(self._waiting), self._room.places
        fits = np.zeros(n, np.bool_)
        for shape in places:
            fits |= self._of[shape]
        fits &= self._waiting
        free, rows = self._view.ledger.free * self._total, self.rows
        self.mask[:n] = fits
        rows[:n, _WIDTH + 1] = fits
        rows[:, _WIDTH + 2] = free
        rows[:n, _WIDTH + 3] = fits * (free - self._part)
