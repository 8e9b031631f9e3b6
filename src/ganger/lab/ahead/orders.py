"""What an order about some jobs would do to the others: the present queue is played on twice, as it
is and with the order, as far as there is time, and the starts of all other jobs are compared.

Run times are what is believed, the same in both; nobody else arrives. So the difference is the
order's alone.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

import numpy as np

from ganger.core.events import Command
from ganger.core.kernel import Kernel
from ganger.core.state.jobs import Phase
from ganger.core.units import NEVER, SECOND
from ganger.lab.ahead.whatif import believed, play

EACH_SECONDS: Final = 1.0
"""So long the queue is played on each time, at the most."""
TOLD: Final = SECOND
"""What starts so much earlier or later has moved, microseconds."""


class Moved(NamedTuple):
    """A job's start without and with the order: microseconds, NEVER where it does not start within
    the look."""

    job: int
    before: int
    after: int


class Effects(NamedTuple):
    """The `moved` jobs, those first that wait longer for the order, and how many of all `looked`
    at start as they would. `until`: as far as both looks went, microseconds; NEVER: to the end.
    `own`: the starts of the jobs that the order is about, where it lets them start."""

    moved: list[Moved]
    looked: int
    until: int
    own: list[Moved]


def effects(
    copy: Callable[[], Kernel], orders: Sequence[Command], seconds: float = EACH_SECONDS
) -> Effects:
    """What `orders` would do. `copy` makes a kernel in the present state; it is called twice."""
    before, end_before = _starts(copy(), (), seconds)
    after, end_after = _starts(copy(), orders, seconds)
    until = min(end_before, end_after)
    about = {order.job for order in orders}
    every = [
        Moved(job, _within(before, job, until), _within(after, job, until))
        for job in sorted(before.keys() | after.keys())
    ]
    others = [move for move in every if move.job not in about]
    moved = [move for move in others if abs(move.after - move.before) >= TOLD]
    moved.sort(key=lambda move: (move.before - move.after, move.job))
    return Effects(moved, len(others), until, [move for move in every if move.job in about])


def _within(starts: dict[int, int], job: int, until: int) -> int:
    at = starts.get(job, NEVER)
    return at if at <= until else NEVER


def _starts(
    kernel: Kernel, orders: Sequence[Command], seconds: float
) -> tuple[dict[int, int], int]:
    """When jobs start that wait now or after the orders, and how far it was played; NEVER: to the
    end. `kernel` is used up."""
    end = time.monotonic() + seconds
    jobs = kernel.jobs
    phase = jobs.phase[: jobs.n]
    waiting = set(np.flatnonzero((phase == Phase.PENDING) | (phase == Phase.BLOCKED)).tolist())
    waiting |= {order.job for order in orders if order.verb in ("release", "requeue")}
    late = False

    def enough() -> bool:
        nonlocal late
        late = time.monotonic() > end
        return late

    starts = play(kernel, believed(kernel), waiting, orders=orders, enough=enough)
    return starts, kernel.now if late else NEVER
