"""What the oracle answered of each job, asked once where its answers never change.

Few of the answers differ, so that equal ones are kept once: a rule that looks at one job at a time
looks at those, and not at every job.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ganger.core.state.table import Ids
from ganger.core.view import View

Floats = NDArray[np.float64]
Width = tuple[int, ...]
Ask = Callable[[Ids, Width], Floats]
"""Answers for jobs, one row each, of so many numbers by axis."""


class SpeedCache:
    """A question that is asked of each job, each by a class of its own, and what was answered as
    long as that holds."""

    __slots__ = ("kept",)

    def __init__(self) -> None:
        self.kept: _Kept | None = None


class _Kept:
    """Answers that differ, and which of them is each job's (-1: not asked yet). All hold as long as
    `there` does, and are `width` wide."""

    def __init__(self, there: Any, width: Width, jobs: int) -> None:
        self.there, self.width = there, width
        self.rows: Floats = np.zeros((0, *width))
        self.of: Ids = np.full(jobs, -1, np.int64)
        self._number: dict[bytes, int] = {}

    def keep(self, ids: Ids, rows: Floats) -> None:
        """`rows` are the answers for `ids`."""
        fresh: list[Floats] = []
        for job, row in zip(ids.tolist(), rows, strict=True):
            number = self._number.setdefault(row.tobytes(), len(self._number))
            self.of[job] = number
            if number == len(self.rows) + len(fresh):
                fresh.append(row)
        if fresh:
            self.rows = np.concatenate([self.rows, fresh])


def answers(
    view: View, question: type[SpeedCache], ids: Ids, there: Any, width: Width, ask: Ask
) -> tuple[Floats, Ids]:
    """The answers that differ, `width` wide or wider, and which of them is that of each of `ids`.

    `question`: under which they are kept; `there`: what the answers depend on but for the job,
    compared by equality. `ask` gives what is not known.
    """
    if not view.oracle.steady:
        return ask(ids, width), np.arange(len(ids))
    known = view.cached(question)
    kept = known.kept
    if kept is not None and (kept.there != there or len(kept.of) < view.jobs.capacity):
        kept = None
    if kept is None or kept.width != width or len(kept.rows) > 2 * _living(view) + 64:
        wide = width if kept is None else tuple(map(max, kept.width, width))
        if kept is None or wide != kept.width or len(kept.rows) > 2 * _living(view) + 64:
            kept = known.kept = _Kept(there, wide, view.jobs.capacity)
    of = kept.of[ids]
    if of.min(initial=0) < 0:
        new = ids[of < 0]
        kept.keep(new, ask(new, kept.width))
        of = kept.of[ids]
    return kept.rows, of


def _living(view: View) -> int:
    return len(view.pending) + len(view.active)
