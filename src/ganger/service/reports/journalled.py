"""Why a job waited in the history of a daemon: its journal replayed to that time."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime

import msgspec

from ganger.client.answers import Explanation
from ganger.core.errors import BadInput
from ganger.core.kernel import Kernel
from ganger.core.plan import Plan
from ganger.core.state.snapshot import Snapshot, capture
from ganger.core.units import SECOND
from ganger.lab.ahead.explaining import Scene
from ganger.lab.ahead.logged import Happened, afterwards, explain_past
from ganger.lab.log import contradictions
from ganger.service.durable.journal import Header, Journal, readable
from ganger.service.durable.recovery import guard_of, make_kernel


def explain_journalled(journal: Journal, job: str, at: int | None = None) -> Explanation:
    """Why `job` was where it was at that time (microseconds since the epoch); None: when it last
    waited. What the journal says was decided stands. Raises BadInput for a journal that cannot be
    read, for a job that it does not have, and for a time outside of it."""
    with readable(journal.path):
        row, label = _row_and_labels(journal, job)
        happened, stop = _scan(journal, row, at)
        header, kernel, plan = _played(journal, stop)
    now = kernel.now if at is None else at
    if row >= kernel.jobs.n:
        raise BadInput(
            f"job {job} was not submitted by {_clock(now)}", where="--at", mend="give a later time"
        )
    data = msgspec.msgpack.encode(capture(kernel))

    def copy() -> Kernel:
        made = make_kernel(header, msgspec.msgpack.decode(data, type=Snapshot))
        made.now = now
        return made

    shown = copy()
    scene = Scene(shown, plan, header.policy, guard_of(shown).policy, now, label, {})
    found = explain_past(scene, copy, row)
    found.lines += afterwards(happened, now, shown, row)
    return found


def _played(journal: Journal, stop: int) -> tuple[Header, Kernel, Plan | None]:
    """The header in force at a revision, the kernel after it, and the last plan until then."""
    segments = [one for one in journal.segments() if one[1] < stop]
    number, start, header = segments[-1] if segments else journal.segments()[0]
    kernel = make_kernel(header, journal.snapshot(number, first=True))
    guard = guard_of(kernel)
    with contradictions(journal.path):
        for _, batch, record in journal.steps(start, stop):
            guard.recorded = record
            kernel.step(batch)
    guard.recorded = None
    return header, kernel, guard.last


def _scan(journal: Journal, row: int, at: int | None) -> tuple[Happened, int]:
    """What happened to a job, and the revision after which it is explained."""
    happened, times, last, before = Happened(None, []), list[int](), 0, 0
    for revision, batch, record in journal.steps(0):
        times, last = [*times[:1], batch.at], revision
        before = revision if at is not None and batch.at <= at else before
        actions = record.actions if record is not None else ()
        happened = happened.then(row, batch.at, revision, batch.events, actions)
    if not times:
        raise BadInput("it has no steps", where=str(journal.path), mend="nothing happened yet")
    if at is None:
        return happened, happened.last_wait(last)
    if not times[0] <= at <= times[-1]:
        raise BadInput(
            f"{_clock(at)} is outside of the log",
            where="--at",
            mend=f"{journal.path} is from {_clock(times[0])} to {_clock(times[-1])}",
        )
    return happened, before


def _row_and_labels(journal: Journal, job: str) -> tuple[int, Callable[[int], str]]:
    """The row of `12` or of the task `12_3`, and how people call jobs."""
    tasks: dict[int, tuple[int, int]] = {}
    jobs = 0
    for row, _, array, number, _ in journal.names():
        jobs = row + 1
        if array >= 0:
            tasks[row] = array, number

    def label(row: int) -> str:
        part = tasks.get(row)
        return str(row + 1) if part is None else f"{part[0] + 1}_{part[1]}"

    named = re.fullmatch(r"([0-9]{1,12})(?:_([0-9]{1,12}))?", job.strip())
    if named is None:
        raise BadInput(f"{job[:80]!r} is not a valid job number", mend="write like 12 or 12_3")
    first, task = named.groups()
    row = int(first) - 1
    if task is not None:
        row = next((at for at, part in tasks.items() if part == (row, int(task))), -1)
    if not 0 <= row < jobs:
        mend = f"it has jobs 1 to {jobs}" if jobs else "it has none"
        raise BadInput(f"no job {job}", where=str(journal.path), mend=mend)
    return row, label


def _clock(time: int) -> str:
    try:
        return datetime.fromtimestamp(time / SECOND).isoformat(sep="T", timespec="seconds")
    except (ValueError, OverflowError, OSError):
        return f"{time / SECOND:g} s"
