"""What trials reported, and what policies asked for, as a journal keeps it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

import msgspec

from ganger.service.durable.journal import PLAN, Decided, Journal

REPORTS_SINCE: Final = 5
"""The version of a journal from which on it lists all reports."""
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


def reports_between(
    journal: Journal, jobs: Sequence[int], after: int = -1, until: int = 1 << 62
) -> Iterator[Report]:
    """What the jobs reported in the revisions beyond `after` up to `until`, in order."""
    wanted = set(jobs)
    if not wanted or journal.version < REPORTS_SINCE:
        return
    rows = journal.db.execute(
        "SELECT job, revision, at, epoch, value, metrics FROM reports"
        " WHERE job BETWEEN ? AND ? AND revision > ? AND revision <= ? ORDER BY id",
        (min(wanted), max(wanted), after, until),
    )
    for job, revision, at, epoch, value, metrics in rows:
        if job in wanted:
            others = _METRICS.decode(metrics) if metrics else {}
            yield Report(job, revision, at, epoch, value, others)


def reports_of(journal: Journal, job: int, attempt: int) -> int:
    """How many reports of an attempt are in the batches."""
    found = journal.db.execute(
        "SELECT reports FROM attempts WHERE job = ? AND attempt = ?", (job, attempt)
    ).fetchone()
    return found[0] if found else 0


def last_reports(journal: Journal, jobs: Sequence[int]) -> dict[int, tuple[float, float | None]]:
    """Of those of the jobs that reported: the last step and value."""
    found = journal.db.execute(
        "SELECT job, step, value, max(attempt) FROM attempts WHERE reports > 0"
        " AND job BETWEEN ? AND ? GROUP BY job",
        (min(jobs, default=0), max(jobs, default=-1)),
    )
    wanted = set(jobs)
    return {job: (step, value) for job, step, value, _ in found if job in wanted}
