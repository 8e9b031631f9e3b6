"""What trials reported, and what policies asked for, as a journal keeps it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from heapq import merge
from itertools import islice
from operator import itemgetter
from typing import Any, Final, NamedTuple

import msgspec

from ganger.service.durable.journal import PLAN, Decided, Journal

REPORTS_SINCE: Final = 5
"""The version of a journal from which on it lists all reports."""
_ID = itemgetter(0)
_END: Final = 1 << 62
_PIECE_MAX: Final = 1024
_METRICS = msgspec.msgpack.Decoder(dict[str, float])


def plans_backwards(journal: Journal) -> Iterator[Decided]:
    """All plans, the last first."""
    for (plan,) in journal.db.execute("SELECT plan FROM plans ORDER BY revision DESC"):
        yield PLAN.decode(plan)


class Report(NamedTuple):
    """What a trial reported: in which revision of the kernel, at which time (microseconds), after
    how many epochs, the value that it is judged by (None: it broke down), and others by name."""

    job: int
    revision: int
    at: int
    epoch: float
    value: float | None
    metrics: dict[str, float]
    id: int = 0
    """Ascending in the order of all reports."""


def some_reports(journal: Journal, jobs: Sequence[int], after: int, limit: int) -> list[Report]:
    """The first `limit` reports of the jobs whose `id` is beyond `after`, in order."""
    return list(islice(_merged(journal, jobs, after, -1, _END), limit))


def reports_between(
    journal: Journal, jobs: Sequence[int], after: int = -1, until: int = _END
) -> Iterator[Report]:
    """What the jobs reported in the revisions beyond `after` up to `until`, in order."""
    return _merged(journal, jobs, -1, after, until)


def _merged(
    journal: Journal, jobs: Sequence[int], begin: int, after: int, until: int
) -> Iterator[Report]:
    """Reports of the jobs beyond the id `begin`, of the revisions beyond `after` up to `until`.
    Each job is looked up by itself: between two of one user may lie millions of others' reports."""
    if journal.version < REPORTS_SINCE:
        return
    each = [_of(journal, job, begin, after, until) for job in sorted(set(jobs))]
    for number, job, revision, at, epoch, value, others in merge(*each, key=_ID):
        metrics = _METRICS.decode(others) if others else {}
        yield Report(job, revision, at, epoch, value, metrics, number)


def _of(journal: Journal, job: int, begin: int, after: int, until: int) -> Iterator[Any]:
    """Rows of one job, in pieces that grow: no statement stays open."""
    piece = 1
    while True:
        rows = journal.db.execute(
            "SELECT id, job, revision, at, epoch, value, metrics FROM reports"
            " WHERE job = ? AND id > ? AND revision > ? AND revision <= ? ORDER BY id LIMIT ?",
            (job, begin, after, until, piece),
        ).fetchall()
        yield from rows
        if len(rows) < piece:
            return
        begin, piece = rows[-1][0], min(2 * piece, _PIECE_MAX)


def reports_of(journal: Journal, job: int, attempt: int) -> int:
    """How many reports of an attempt are in the batches."""
    found = journal.db.execute(
        "SELECT reports FROM attempts WHERE job = ? AND attempt = ?", (job, attempt)
    ).fetchone()
    return found[0] if found else 0


def last_metrics(journal: Journal, jobs: Sequence[int]) -> dict[int, dict[str, float]]:
    """Of those of the jobs that reported: the other metrics of the last report."""
    metrics = dict[int, dict[str, float]]()
    for job in jobs if journal.version >= REPORTS_SINCE else ():
        row = journal.db.execute(
            "SELECT metrics FROM reports WHERE job = ? ORDER BY id DESC LIMIT 1", (job,)
        ).fetchone()
        if row is not None:
            metrics[job] = _METRICS.decode(row[0]) if row[0] else {}
    return metrics


def last_reports(journal: Journal, jobs: Sequence[int]) -> dict[int, tuple[float, float | None]]:
    """Of those of the jobs that reported: the last step and value."""
    found = journal.db.execute(
        "SELECT job, step, value, max(attempt) FROM attempts WHERE reports > 0"
        " AND job BETWEEN ? AND ? GROUP BY job",
        (min(jobs, default=0), max(jobs, default=-1)),
    )
    wanted = set(jobs)
    return {job: (step, value) for job, step, value, _ in found if job in wanted}
