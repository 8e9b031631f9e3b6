"""Reports of trials as a journal finds them, among those of other users."""

from __future__ import annotations

from pathlib import Path

from ganger.service.durable.journal import Journal
from ganger.service.durable.reported import reports_between, some_reports

OTHERS = 20_000


def with_reports(path: Path) -> Journal:
    """Trials 5 and 50, with five reports each in turn; between their numbers and their reports
    those of others."""
    journal = Journal(path / "journal.db")
    rows = [(10 + at % 30, at) for at in range(OTHERS)]
    for at in range(10):
        rows.insert((at + 1) * OTHERS // 20, (5 if at % 2 else 50, 1000 + at))
    journal.db.execute("BEGIN")
    journal.db.executemany(
        "INSERT INTO reports (job, revision, at, epoch, value) VALUES (?, ?, 0, 1, 1)", rows
    )
    journal.db.execute("COMMIT")
    return journal


def test_reports_come_in_order_by_pages_and_between_revisions(tmp_path: Path) -> None:
    journal = with_reports(tmp_path)
    whole = some_reports(journal, [50, 5], 0, 100)
    assert [one.job for one in whole] == [50, 5] * 5
    assert [one.revision for one in whole] == list(range(1000, 1010))
    assert some_reports(journal, [5, 50], whole[2].id, 4) == whole[3:7]
    assert list(reports_between(journal, [5, 50], 1001, 1004)) == whole[2:5]
    assert [one.job for one in some_reports(journal, [5], 0, 100)] == [5] * 5
    assert len(some_reports(journal, [11], 0, 2000)) == len(range(1, OTHERS, 30))
    journal.close()


def test_reports_of_others_are_not_looked_through(tmp_path: Path) -> None:
    """Whoever has a trial before theirs and one behind would else stop the daemon for all."""
    journal = with_reports(tmp_path)
    steps = 0

    def count() -> int:
        nonlocal steps
        steps += 1
        return 0

    journal.db.set_progress_handler(count, 100)
    assert len(some_reports(journal, [5, 50], 0, 100)) == 10
    assert not list(reports_between(journal, [5, 50], 5000))
    assert steps < 20, "hundreds of steps of SQLite"
    journal.close()
