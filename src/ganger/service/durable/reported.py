"""What trials reported, and what policies asked for, as a journal keeps it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ganger.service.durable.journal import PLAN, Decided, Journal


def plans_backwards(journal: Journal) -> Iterator[Decided]:
    """All plans, the last first."""
    for (plan,) in journal.db.execute("SELECT plan FROM plans ORDER BY revision DESC"):
        yield PLAN.decode(plan)


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
