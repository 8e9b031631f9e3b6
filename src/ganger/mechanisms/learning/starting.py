"""The game of the queue: which waiting job starts next, or that no more do for now."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from ganger.core.events import CAPACITY_FREED, CAPACITY_LOST, COMMANDED, QUEUED
from ganger.core.plan import Placement, Reason
from ganger.core.state.table import Ids
from ganger.core.view import View
from ganger.mechanisms.learning.features import JOB, Features, waiting_rows
from ganger.mechanisms.learning.stepwise import Choice, Floats, Mask, Play
from ganger.mechanisms.placement.place import PACK, Place

_CHANGES = CAPACITY_FREED | CAPACITY_LOST | COMMANDED | QUEUED
AROUND = ("is a job", "fits", "free part", "free part after", "queue")
"""The columns that follow those of the jobs. The row of the action that waits has 0 in the first
two, and in all that are about jobs."""
Sorting: TypeAlias = Callable[[View, Ids], Ids]


def first_come(view: View, ids: Ids) -> Ids:
    """The jobs as they came."""
    return ids


@dataclass(frozen=True)
class Starting:
    """Actions 0 to `window` - 1 start one of the first jobs that wait, by `order`; the last action
    waits. A job that fits nowhere cannot be chosen, and while no job holds GPUs, waiting cannot,
    so that something always goes on.

    `describe`: what is known of each job, in `width` columns; `order`: which jobs come first.
    """

    window: int = 50
    describe: Features = waiting_rows
    width: int = len(JOB)
    order: Sorting = first_come
    place: Place = PACK

    @property
    def actions(self) -> int:
        """The jobs of the window, and to wait."""
        return self.window + 1

    @property
    def features(self) -> int:
        """The columns of `describe`, and `AROUND`."""
        return self.width + len(AROUND)

    def play(self, view: View) -> Play:
        """Start jobs until none fits, or the player waits."""
        pending = view.pending
        if not len(pending):
            return view.draft.plan(until=_CHANGES)
        ids = view.cached(_Able).first(self, view, pending)
        room = _Room(self, view, ids)
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


class _Able:
    """By shape: whether there are GPUs enough at all, free or not. Jobs that could never run fill
    no window."""

    def __init__(self) -> None:
        self._able: dict[int, bool] = {}

    def first(self, game: Starting, view: View, pending: Ids) -> Ids:
        """The jobs of the window."""
        if game.order is first_come:
            ids = pending[: game.window]
            if all(self._is_able(view, shape) for shape in set(view.jobs.shape[ids].tolist())):
                return ids
        shapes = view.jobs.shape[pending].tolist()
        if not all(self._is_able(view, shape) for shape in set(shapes)):
            pending = pending[[self._able[shape] for shape in shapes]]
        return game.order(view, pending)[: game.window]

    def _is_able(self, view: View, shape: int) -> bool:
        if shape not in self._able:
            asked = view.jobs.shapes[shape]
            most_gpus = max((cell.total for cell in view.ledger.cells_for(asked)), default=0)
            self._able[shape] = most_gpus >= asked.gpus
        return self._able[shape]


class _Room:
    """Where the next job of each shape would start. `places`: by shape; none that fit nowhere."""

    def __init__(self, game: Starting, view: View, ids: Ids) -> None:
        self._place, self._view = game.place, view
        self.jobs: list[int] = ids.tolist()
        self.shapes: list[int] = view.jobs.shape[ids].tolist()
        self._sample = dict(zip(self.shapes, self.jobs, strict=True))
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
        find, view = self._place.find, self._view
        for shape in shapes:
            placement = find(view, view.ledger, self._sample[shape])
            if placement is not None:
                self.places[shape] = placement
            else:
                self.places.pop(shape, None)


class _Table:
    """The rows of one decision, kept up while jobs start."""

    def __init__(self, game: Starting, view: View, ids: Ids, room: _Room) -> None:
        self._view, self._room, self._width = view, room, game.width
        n, width = len(ids), game.width
        self._total = 1.0 / max(view.ledger.total, 1)
        self._part = view.jobs.gpus[ids] * self._total
        self._shape = view.jobs.shape[ids]
        self._waiting = np.ones(n, np.bool_)
        self.rows: Floats = np.zeros((game.actions, game.features))
        self.rows[:n, :width] = game.describe(view, ids)
        self.rows[:n, width] = 1.0
        self.rows[:, width + 4] = math.tanh(len(view.pending) / game.window)
        self.mask: Mask = np.zeros(game.actions, np.bool_)
        self.mask[-1] = len(view.active) > 0
        self._bring_up()

    def start(self, action: int) -> None:
        """The job of this row starts."""
        room, self._waiting[action] = self._room, False
        room.take(action)
        shape = room.shapes[action]
        if shape in room.places and not (self._waiting & (self._shape == shape)).any():
            room.without(shape)
        self.rows[action] = 0.0
        self.mask[-1] = True
        if room.places:
            self._bring_up()

    def _bring_up(self) -> None:
        """Write what fits now, and what is free."""
        n, width, places = len(self._waiting), self._width, self._room.places
        fits = np.array([shape in places for shape in self._room.shapes]) & self._waiting
        free, rows = self._view.ledger.free * self._total, self.rows
        self.mask[:n] = fits
        rows[:n, width + 1] = fits
        rows[:, width + 2] = free
        rows[:n, width + 3] = fits * (free - self._part)
