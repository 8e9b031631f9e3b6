"""The journal by itself: what is written is there, what was interrupted is not."""

from __future__ import annotations

import sqlite3
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from ganger.core.errors import BadInput
from ganger.core.events import Batch, Finished, Woke
from ganger.core.plan import Start
from ganger.core.units import NEVER
from ganger.service.durable.journal import MIGRATIONS, Decided, FullError, Journal
from service.desk import Desk, header


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    made = Journal(tmp_path / "journal.db")
    yield made
    made.close()


def test_steps_come_back_in_order_with_their_plans(journal: Journal) -> None:
    plan = Decided([Start(0, 1, ())], NEVER, 127, 1, "hash")
    with journal.writing() as cursor:
        for revision in (1, 2, 3):
            journal.write_batch(cursor, revision, Batch(revision * 10, [Finished(0, 1), Woke()]))
        journal.write_plan(cursor, 2, plan)
    found = list(journal.steps(1))
    assert [revision for revision, _, _ in found] == [2, 3]
    assert found[0] == (2, Batch(20, [Finished(0, 1), Woke()]), plan)
    assert found[1][2] is None
    assert [revision for revision, _, _ in journal.steps(0, 1)] == [1]
    assert journal.last_time() == 30


def test_what_was_interrupted_never_was(journal: Journal) -> None:
    def write(error: Exception) -> None:
        with journal.writing() as cursor:
            journal.write_batch(cursor, 1, Batch(1, []))
            raise error

    with pytest.raises(ZeroDivisionError):
        write(ZeroDivisionError())
    with pytest.raises(FullError):
        write(sqlite3.OperationalError("disk I/O error"))
    assert journal.last_time() == 0
    with journal.writing() as cursor:
        journal.write_batch(cursor, 1, Batch(1, []))
    assert journal.last_time() == 1


def test_only_its_user_can_read_it(journal: Journal) -> None:
    assert stat.S_IMODE(journal.path.stat().st_mode) == 0o600


def test_every_commit_reaches_the_disk(journal: Journal) -> None:
    assert journal.db.execute("PRAGMA synchronous").fetchone() == (2,)
    assert journal.db.execute("PRAGMA journal_mode").fetchone() == ("wal",)


def test_a_newer_journal_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    Journal(path).close()
    with sqlite3.connect(path) as db:
        db.execute(f"PRAGMA user_version = {len(MIGRATIONS) + 1}")
    db.close()
    with pytest.raises(BadInput, match="use the version"):
        Journal(path)


@pytest.mark.parametrize("version", range(1, len(MIGRATIONS)))
def test_an_older_journal_is_read_as_it_lies_and_then_made_new(
    tmp_path: Path, version: int
) -> None:
    path = tmp_path / "journal.db"
    with sqlite3.connect(path) as db:
        for script in MIGRATIONS[:version]:
            db.executescript(script)
        db.execute(f"PRAGMA user_version = {version}")
        db.execute("INSERT INTO attempts (job, attempt, outcome) VALUES (0, 1, 'exit code 3')")
    db.close()
    for readonly in (True, False):
        journal = Journal(path, readonly=readonly)
        assert [(one.outcome, one.note) for one in journal.attempts(0)] == [("exit code 3", "")]
        assert list(journal.attempts_between(0, 1 << 62)) == []
        assert journal.set_aside() == []
        journal.close()


def test_what_is_no_journal_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    path.write_text("not a database, and long enough to be looked at " * 40)
    with pytest.raises(BadInput, match="no journal"):
        Journal(path)


def test_a_readers_journal_cannot_be_written(journal: Journal) -> None:
    reader = Journal(journal.path, readonly=True)
    with pytest.raises(FullError, match="readonly"):
        reader.set("a", "b")
    journal.set("a", "c")
    assert reader.setting("a") == "c"
    reader.close()


def test_of_a_segment_the_first_and_the_last_snapshot_are_kept(tmp_path: Path) -> None:
    desk = Desk(tmp_path, header())
    for _ in range(3):
        desk.submit()
        desk.daemon._keep_snapshot()
    desk.daemon.change_policy("srtf", "history")
    desk.submit()
    for _ in range(2):
        desk.daemon._keep_snapshot()
    kept = desk.journal.db.execute("SELECT segment, first FROM snapshots ORDER BY 1, 2").fetchall()
    assert kept == [(2, 0), (2, 1)]
    number, _, last = desk.journal.segments()[-1]
    found = desk.journal.snapshot(number)
    first = desk.journal.snapshot(number, first=True)
    assert found is not None
    assert first is not None
    assert (last.policy, found.jobs, first.jobs) == ("srtf", 4, 3)
    assert desk.journal.snapshot(1, first=True) is None  # the first segment starts empty
    desk.close()
