"""The journal: what happened and what was decided on it, durable in SQLite. One writer.

A *segment* is a header (cluster, policy, seed, what the oracle knows) with a snapshot, and the
batches since. A new policy and a node that joins start one; in between, further snapshots only make
a restart short. A batch is durable before the kernel sees it, a plan before an engine does.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from ganger.client.places import make_private
from ganger.client.strangers import refuse_others_file
from ganger.core.errors import BadInput
from ganger.core.events import AnyEvent, Batch
from ganger.core.plan import AnyAction, Placement
from ganger.core.spec import ClusterSpec
from ganger.core.state.snapshot import Snapshot
from ganger.service.jobs.job_facts import DECODE, ENCODE, JobFacts

MIGRATIONS: Final = (
    """
    CREATE TABLE segments (id INTEGER PRIMARY KEY, revision INTEGER NOT NULL, header BLOB NOT NULL);
    CREATE TABLE snapshots (
        segment INTEGER NOT NULL, revision INTEGER NOT NULL, first INTEGER NOT NULL,
        data BLOB NOT NULL, PRIMARY KEY (segment, revision)
    );
    CREATE TABLE batches (
        revision INTEGER PRIMARY KEY, at INTEGER NOT NULL, events BLOB NOT NULL
    );
    CREATE TABLE plans (revision INTEGER PRIMARY KEY, plan BLOB NOT NULL);
    CREATE TABLE jobs (
        job INTEGER PRIMARY KEY, name TEXT NOT NULL, array INTEGER NOT NULL, task INTEGER NOT NULL,
        held INTEGER NOT NULL, facts BLOB NOT NULL
    );
    CREATE INDEX tasks ON jobs (array, task) WHERE array >= 0;
    CREATE TABLE attempts (
        job INTEGER NOT NULL, attempt INTEGER NOT NULL, started INTEGER, ended INTEGER,
        outcome TEXT NOT NULL DEFAULT '', placement BLOB, PRIMARY KEY (job, attempt)
    ) WITHOUT ROWID;
    CREATE TABLE keys (key TEXT PRIMARY KEY, body BLOB NOT NULL, jobs BLOB NOT NULL);
    CREATE TABLE settings (name TEXT PRIMARY KEY, value TEXT NOT NULL);
    """,
    """
    CREATE TABLE set_aside (
        id INTEGER PRIMARY KEY, revision INTEGER NOT NULL, made REAL NOT NULL, job INTEGER NOT NULL,
        record BLOB NOT NULL, what TEXT NOT NULL, why TEXT NOT NULL
    );
    """,
    "ALTER TABLE attempts ADD COLUMN note TEXT NOT NULL DEFAULT ''",
    """
    ALTER TABLE attempts ADD COLUMN reports INTEGER NOT NULL DEFAULT 0;
    ALTER TABLE attempts ADD COLUMN step REAL;
    ALTER TABLE attempts ADD COLUMN value REAL;
    """,
    """
    CREATE TABLE reports (
        id INTEGER PRIMARY KEY, job INTEGER NOT NULL, revision INTEGER NOT NULL,
        at INTEGER NOT NULL, epoch REAL NOT NULL, value REAL, metrics BLOB
    );
    CREATE INDEX reports_of ON reports (job);
    """,
)
"""Numbered by position: a database of `user_version` n has seen the first n of them."""


SET_ASIDE_MAX: Final = 1000
"""So many of what was set aside are kept, the last ones, and all that was to be a job."""
ASIDE_BYTES_MAX: Final = 1 << 16
"""So much is kept of each."""
NUMBERS_FROM: Final = "numbers_from"
"""The setting that says how many numbers of jobs were given out before a restore."""


class Header(msgspec.Struct, forbid_unknown_fields=True):
    """What a segment's plans were decided with. `inner` decides inside what searches hold,
    `serving` over services; empty: no recipe of its own does."""

    version: str
    policy: str
    seed: int
    knows: str
    cluster: ClusterSpec
    inner: str = ""
    serving: str = ""

    @property
    def recipes(self) -> tuple[str, str, str]:
        """The recipes that decide: what one of them remembers is of no use to another."""
        return self.policy, self.inner, self.serving


def named(recipe: str | None, before: str) -> str:
    """The recipe of a plane that is asked for: as `before` where none is named; no recipe for the
    word `none`."""
    return before if not recipe else "" if recipe == "none" else recipe


class Decided(msgspec.Struct, frozen=True, array_like=True):
    """A plan as it is kept. Of `actions` the last `own` are the policy's, those before people's
    orders (-1: it was not asked); `memory` is a hash of the policy's memory after it."""

    actions: list[AnyAction]
    wake: int
    until: int
    own: int
    memory: str = ""


class Attempt(msgspec.Struct, frozen=True):
    """One attempt of a job, times in microseconds (-1: not yet). `outcome` says how it ended,
    `note` what is missing of its output."""

    attempt: int
    started: int
    ended: int
    outcome: str
    placement: Placement | None
    note: str = ""


def _attempt(columns: Sequence[Any]) -> Attempt:
    attempt, started, ended, outcome, placement, note = columns
    held = None if placement is None else _PLACEMENT.decode(placement)
    began, over = (-1 if time is None else time for time in (started, ended))
    return Attempt(attempt, began, over, outcome, held, note)


class SetAside(msgspec.Struct, frozen=True):
    """A record of the history that the kernel could not reduce, as MessagePack (its first 64 KiB):
    it is kept for people to look at, and has no effect. `made` in Unix seconds; `job`: the row of
    the job that is not accepted for it, -1 for none; `what` and `why` are words."""

    revision: int
    made: float
    job: int
    record: bytes
    what: str
    why: str


class FullError(Exception):
    """Nothing can be written: the disk is full, or fails."""


def _connected(path: Path, readonly: bool) -> sqlite3.Connection:
    """An open database. A file that only can be read, in a folder that only can be read, is read
    as it lies there: nobody else writes it either."""
    where = path.absolute().as_uri()
    modes = ["?mode=ro", "?immutable=1"] if readonly else [""]
    for mode in modes:
        db = sqlite3.connect(
            f"{where}{mode}", uri=True, isolation_level=None, check_same_thread=False, timeout=10.0
        )
        try:
            db.execute("PRAGMA user_version").fetchone()
        except sqlite3.OperationalError:
            db.close()
            if mode == modes[-1] or not path.exists():
                raise
            continue
        break
    return db


@contextlib.contextmanager
def readable(path: Path) -> Iterator[None]:
    """Reading a journal within it raises BadInput where it is damaged."""
    try:
        yield
    except (sqlite3.DatabaseError, msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise BadInput(f"the journal is damaged: {error}", where=str(path), mend=_DAMAGED) from None


_LOOKED_AT: Final = 64 << 20
"""Bytes of a journal that is looked through at every start: some 100 ms."""
_DAMAGED: Final = "look with `ganger doctor`; go back to a backup with `ganger restore FILE`"


def _mend_of(said: str) -> str:
    """What to do about an error of SQLite's."""
    if "readonly" in said or "Read-only" in said or "unable to open" in said:
        return (
            "see that the folder is there and that you may write in it, or name another with"
            " GANGER_HOME"
        )
    if "full" in said:
        return "make room on the disk"
    if "locked" in said:
        return "end every other process that has it open"
    return _DAMAGED


_EVENTS = msgspec.msgpack.Decoder(list[AnyEvent])
PLAN: Final = msgspec.msgpack.Decoder(Decided)
_HEADER = msgspec.msgpack.Decoder(Header)
_SNAPSHOT = msgspec.msgpack.Decoder(Snapshot)
_PLACEMENT = msgspec.msgpack.Decoder(Placement)


class Journal:
    """An open journal. Writing from one thread; reading from any through a `Journal` of its own
    (`readonly`)."""

    def __init__(self, path: Path, *, readonly: bool = False) -> None:
        self.path, self._readonly = path, readonly
        if path.exists():
            refuse_others_file(path)
        try:
            if not readonly:
                make_private(path)
            self.db = _connected(path, readonly)
            if not readonly:
                self.db.execute("PRAGMA journal_mode = WAL")
                self.db.execute("PRAGMA synchronous = FULL")
            self._migrate(readonly)
        except (sqlite3.Error, OSError) as error:
            raise BadInput(
                f"no journal can be kept there: {error}", where=str(path), mend=_mend_of(str(error))
            ) from None

    def _migrate(self, readonly: bool) -> None:
        (version,) = self.db.execute("PRAGMA user_version").fetchone()
        if version > len(MIGRATIONS):
            raise BadInput(
                f"its format {version} is not {len(MIGRATIONS)}",
                where=str(self.path),
                mend="use the version of Ganger that wrote it",
            )
        self.version = version if readonly else len(MIGRATIONS)
        if readonly:
            return
        for number in range(version, len(MIGRATIONS)):
            script = f"BEGIN; {MIGRATIONS[number]}; PRAGMA user_version = {number + 1}; COMMIT"
            self.db.executescript(script)

    def check(self) -> None:
        """Read all of it. Raises BadInput where a page is damaged, or a record cannot be read."""
        with readable(self.path):
            (said,) = self.db.execute("PRAGMA integrity_check(1)").fetchone()
            if said != "ok":
                raise sqlite3.DatabaseError(" ".join(said.split()))
            for number, _, _ in self.segments():
                self.snapshot(number)
            for _ in self.steps(0):
                pass
            for (facts,) in self.db.execute("SELECT facts FROM jobs"):
                DECODE(facts)

    @contextlib.contextmanager
    def writing(self) -> Iterator[sqlite3.Cursor]:
        """One transaction: durable when this returns, undone if it raises. Raises FullError."""
        cursor = self.db.cursor()
        try:
            cursor.execute("BEGIN IMMEDIATE")
            yield cursor
            cursor.execute("COMMIT")
        except BaseException as error:
            if self.db.in_transaction:
                self.db.rollback()
            if isinstance(error, sqlite3.OperationalError) or type(error) is sqlite3.DatabaseError:
                raise FullError(str(error)) from None
            raise

    def size_bytes(self) -> int:
        """What it takes on the disk, with what is not in the file itself yet."""
        files = self.path, self.path.with_name(self.path.name + "-wal")
        return sum(file.stat().st_size for file in files if file.exists())

    def close(self) -> None:
        """Let go of the file, which then is all: nothing of it is left in its log."""
        if not self._readonly:
            with contextlib.suppress(sqlite3.Error):
                self.db.execute("PRAGMA busy_timeout = 1000")
                self.db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        self.db.close()

    # ------------------------------------------------------------------ segments

    def looked_through(self) -> list[tuple[int, int, Header]]:
        """All segments, of a journal whose pages were looked at if that takes no time. Raises
        BadInput where one is damaged."""
        with readable(self.path):
            if self.path.stat().st_size <= _LOOKED_AT:
                (said,) = self.db.execute("PRAGMA quick_check(1)").fetchone()
                if said != "ok":
                    raise sqlite3.DatabaseError(" ".join(said.split()))
            return self.segments()

    def begin_segment(self, header: Header, revision: int, snapshot: Snapshot | None) -> None:
        """From the next batch on, `header` is in force, and `snapshot` where it starts from."""
        with self.writing() as cursor:
            cursor.execute(
                "INSERT INTO segments (revision, header) VALUES (?, ?)",
                (revision, msgspec.msgpack.encode(header)),
            )
            if snapshot is not None:
                cursor.execute(
                    "INSERT INTO snapshots VALUES (?, ?, 1, ?)",
                    (cursor.lastrowid, revision, msgspec.msgpack.encode(snapshot)),
                )

    def keep_snapshot(self, snapshot: Snapshot) -> None:
        """Make the next restart short. Of a segment, the first snapshot and the last are kept."""
        data = msgspec.msgpack.encode(snapshot)
        with self.writing() as cursor:
            (segment,) = cursor.execute("SELECT max(id) FROM segments").fetchone()
            cursor.execute("DELETE FROM snapshots WHERE NOT first")
            cursor.execute(
                "INSERT OR IGNORE INTO snapshots VALUES (?, ?, 0, ?)",
                (segment, snapshot.revision, data),
            )

    def segments(self) -> list[tuple[int, int, Header]]:
        """All segments: number, revision that they start after, header."""
        found = self.db.execute("SELECT id, revision, header FROM segments ORDER BY id")
        return [(number, revision, _HEADER.decode(data)) for number, revision, data in found]

    def snapshot(self, segment: int, *, first: bool = False) -> Snapshot | None:
        """The last snapshot of a segment, or the one it starts with; None: it starts empty."""
        found = self.db.execute(
            "SELECT data FROM snapshots WHERE segment = ? AND first >= ?"
            " ORDER BY revision DESC LIMIT 1",
            (segment, int(first)),
        ).fetchone()
        return None if found is None else _SNAPSHOT.decode(found[0])

    # ------------------------------------------------------------------ steps

    @staticmethod
    def write_batch(cursor: sqlite3.Cursor, revision: int, batch: Batch) -> None:
        """Keep the batch that the kernel will reduce as `revision`."""
        cursor.execute(
            "INSERT INTO batches VALUES (?, ?, ?)",
            (revision, batch.at, msgspec.msgpack.encode(batch.events)),
        )

    @staticmethod
    def write_plan(cursor: sqlite3.Cursor, revision: int, plan: Decided) -> None:
        """Keep what was decided on that batch."""
        cursor.execute("INSERT INTO plans VALUES (?, ?)", (revision, msgspec.msgpack.encode(plan)))

    def steps(
        self, after: int, until: int = 1 << 62
    ) -> Iterator[tuple[int, Batch, Decided | None]]:
        """Batches of the revisions in (after, until], each with its plan, oldest first."""
        found = self.db.execute(
            "SELECT revision, at, events, plan FROM batches LEFT JOIN plans USING (revision)"
            " WHERE revision > ? AND revision <= ? ORDER BY revision",
            (after, until),
        )
        for revision, at, events, plan in found:
            decided = None if plan is None else PLAN.decode(plan)
            yield revision, Batch(at, _EVENTS.decode(events)), decided

    def last_time(self) -> int:
        """The time of the last batch, 0 if there is none."""
        found = self.db.execute("SELECT at FROM batches ORDER BY revision DESC LIMIT 1").fetchone()
        return found[0] if found else 0

    # ------------------------------------------------------------------ what is set aside

    def set_aside(self) -> list[SetAside]:
        """The last records that were set aside, oldest first."""
        if self.version < 2:
            return []
        found = self.db.execute("SELECT revision, made, job, record, what, why FROM set_aside")
        return [SetAside(*columns) for columns in found]

    def set_aside_ever(self) -> int:
        """How many records were ever set aside."""
        if self.version < 2:
            return 0
        (number,) = self.db.execute("SELECT coalesce(max(id), 0) FROM set_aside").fetchone()
        return int(number)

    @staticmethod
    def write_set_aside(cursor: sqlite3.Cursor, records: Iterable[SetAside]) -> None:
        """Keep what has no place in the history, and not without end: an agent may report what it
        likes."""
        cursor.executemany(
            "INSERT INTO set_aside (revision, made, job, record, what, why)"
            f" VALUES (:revision, :made, :job, substr(:record, 1, {ASIDE_BYTES_MAX}), :what, :why)",
            map(msgspec.structs.asdict, records),
        )
        cursor.execute(
            "DELETE FROM set_aside WHERE job < 0 AND id <= (SELECT max(id) FROM set_aside) - ?",
            (SET_ASIDE_MAX,),
        )

    def mend_batch(self, revision: int, batch: Batch, records: Iterable[SetAside]) -> None:
        """Put `batch` where one is that no kernel can reduce, and set aside what it lacks. What
        was decided on that one is forgotten."""
        with self.writing() as cursor:
            self.write_set_aside(cursor, records)
            cursor.execute(
                "UPDATE batches SET events = ? WHERE revision = ?",
                (msgspec.msgpack.encode(batch.events), revision),
            )
            cursor.execute("DELETE FROM plans WHERE revision = ?", (revision,))

    # ------------------------------------------------------------------ jobs

    @staticmethod
    def write_jobs(cursor: sqlite3.Cursor, jobs: Iterable[tuple[int, JobFacts]]) -> None:
        """Keep the facts of new jobs."""
        cursor.executemany(
            "INSERT INTO jobs VALUES (?, ?, ?, ?, ?, ?)",
            (
                (job, facts.name, facts.array, facts.task, int(facts.hold), ENCODE(facts))
                for job, facts in jobs
            ),
        )

    @staticmethod
    def write_held(cursor: sqlite3.Cursor, job: int, held: bool) -> None:
        """A person holds the job, or no longer does."""
        cursor.execute("UPDATE jobs SET held = ? WHERE job = ?", (int(held), job))

    @staticmethod
    def write_launch(cursor: sqlite3.Cursor, job: int, facts: JobFacts) -> None:
        """Other facts from now on."""
        cursor.execute("UPDATE jobs SET facts = ? WHERE job = ?", (ENCODE(facts), job))

    def facts(self, job: int) -> JobFacts:
        """The facts of one job. Raises KeyError."""
        found = self.db.execute("SELECT facts FROM jobs WHERE job = ?", (job,)).fetchone()
        if found is None:
            raise KeyError(job)
        return DECODE(found[0])

    def names(self) -> Iterator[tuple[int, str, int, int, int]]:
        """Job, name, array, task, held, of every job, in order."""
        return self.db.execute("SELECT job, name, array, task, held FROM jobs ORDER BY job")

    # ------------------------------------------------------------------ attempts

    @property
    def _note(self) -> str:
        """The column of notes; nothing, in a file of before there were any."""
        return "note" if self.version >= 3 else "''"

    def attempts(self, job: int) -> list[Attempt]:
        """What became of each attempt of a job, oldest first."""
        names = f"attempt, started, ended, outcome, placement, {self._note}"
        asked = f"SELECT {names} FROM attempts WHERE job = ? ORDER BY attempt"
        return [_attempt(columns) for columns in self.db.execute(asked, (job,))]

    def attempts_between(self, since: int, until: int) -> Iterator[tuple[int, Attempt]]:
        """The attempts of all jobs that held GPUs between two times, in order."""
        found = self.db.execute(
            f"SELECT job, attempt, started, ended, outcome, placement, {self._note} FROM attempts"
            " WHERE placement NOT NULL AND started >= 0 AND started < ?1 AND ifnull(ended, ?1) > ?2"
            " ORDER BY job, attempt",
            (until, since),
        )
        for job, *columns in found:
            yield job, _attempt(columns)

    def outcomes(self) -> dict[int, str]:
        """Of every job whose last ended attempt did not end well: how it ended."""
        found = self.db.execute(
            "SELECT job, outcome, max(attempt) FROM attempts WHERE ended IS NOT NULL GROUP BY job"
            " HAVING outcome != ''"
        )
        return {job: outcome for job, outcome, _ in found}

    # ------------------------------------------------------------------ the rest

    @staticmethod
    def write_key(cursor: sqlite3.Cursor, key: str, body: bytes, jobs: list[int]) -> None:
        """Remember what an Idempotency-Key was used for."""
        cursor.execute("INSERT INTO keys VALUES (?, ?, ?)", (key, body, msgspec.json.encode(jobs)))

    def key(self, key: str) -> tuple[bytes, list[int]] | None:
        """What an Idempotency-Key was used for: a hash of the body, and the jobs that it made."""
        found = self.db.execute("SELECT body, jobs FROM keys WHERE key = ?", (key,)).fetchone()
        return None if found is None else (found[0], msgspec.json.decode(found[1]))

    def setting(self, name: str) -> str:
        """A setting, "" if it was never set."""
        found = self.db.execute("SELECT value FROM settings WHERE name = ?", (name,)).fetchone()
        return found[0] if found else ""

    def set(self, name: str, value: str) -> None:
        """Keep a setting."""
        with self.writing() as cursor:
            self.write_setting(cursor, name, value)

    @staticmethod
    def write_setting(cursor: sqlite3.Cursor, name: str, value: str) -> None:
        """Keep a setting with what else is written."""
        cursor.execute("INSERT OR REPLACE INTO settings VALUES (?, ?)", (name, value))
