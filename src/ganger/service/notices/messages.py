"""The messages that wait, in a file of their own."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from ganger.client.places import make_private

LONGEST_WAIT_SECONDS: Final = 3600.0
KEEP_SECONDS: Final = 3 * 86400.0
"""A message that nobody took for so long is dropped."""
WAITING_MAX: Final = 10_000
ASIDE_MAX: Final = 1000
_TABLES = """
CREATE TABLE IF NOT EXISTS messages (
    id INTEGER PRIMARY KEY AUTOINCREMENT, sink TEXT NOT NULL, body BLOB NOT NULL,
    tries INTEGER NOT NULL DEFAULT 0, due REAL NOT NULL, made REAL NOT NULL, error TEXT
);
CREATE INDEX IF NOT EXISTS due ON messages (sink, due);
CREATE TABLE IF NOT EXISTS set_aside (
    id INTEGER PRIMARY KEY, sink TEXT NOT NULL, body BLOB NOT NULL, made REAL NOT NULL,
    error TEXT NOT NULL
);
CREATE TABLE IF NOT EXISTS seen (one INTEGER PRIMARY KEY CHECK (one = 1), revision INTEGER);
"""


class Outbox:
    """The messages that wait. One object per thread."""

    _making = threading.Lock()
    """Who opens a new file while another makes it a WAL file finds it locked, without any wait."""

    def __init__(self, path: Path) -> None:
        with self._making:
            make_private(path)
        self._db = sqlite3.connect(path, isolation_level=None, timeout=10.0)
        with self._making:
            self._db.execute("PRAGMA journal_mode = WAL")
            self._db.executescript(_TABLES)

    def put(self, messages: Iterable[tuple[str, bytes]], revision: int | None) -> None:
        """Keep messages for sinks, and that everything up to `revision` was seen."""
        now = time.time()
        with self._db:
            self._db.execute("BEGIN")
            self._db.executemany(
                "INSERT INTO messages (sink, body, due, made) VALUES (?, ?, ?, ?)",
                [(sink, body, now, now) for sink, body in messages],
            )
            if revision is not None:
                self._db.execute("INSERT OR REPLACE INTO seen VALUES (1, ?)", (revision,))
            self._db.execute(
                "DELETE FROM messages WHERE made < ? OR id <= (SELECT max(id) FROM messages) - ?",
                (now - KEEP_SECONDS, WAITING_MAX),
            )
            self._db.execute(
                "DELETE FROM set_aside WHERE made < ? OR id <= (SELECT max(id) FROM set_aside) - ?",
                (now - KEEP_SECONDS, ASIDE_MAX),
            )

    def seen(self) -> int | None:
        """The last revision of which messages were made, None if none ever were."""
        found = self._db.execute("SELECT revision FROM seen").fetchone()
        return found[0] if found else None

    def first(self, sink: str) -> tuple[int, bytes, int, float] | None:
        """A sink's oldest message: number, body, tries, when it is due."""
        found: tuple[int, bytes, int, float] | None = self._db.execute(
            "SELECT id, body, tries, due FROM messages WHERE sink = ? ORDER BY id LIMIT 1", (sink,)
        ).fetchone()
        return found

    def taken(self, number: int) -> None:
        """It has arrived, or never will."""
        self._db.execute("DELETE FROM messages WHERE id = ?", (number,))

    def failed(self, number: int, tries: int, error: str) -> None:
        """Try again, later each time."""
        due = time.time() + min(2.0**tries, LONGEST_WAIT_SECONDS)
        self._db.execute(
            "UPDATE messages SET tries = ?, due = ?, error = ? WHERE id = ?",
            (tries + 1, due, error, number),
        )

    def set_aside(self, number: int, error: str) -> None:
        """It can never be sent; it is kept to be looked at, and those behind it go on."""
        with self._db:
            self._db.execute("BEGIN")
            self._db.execute(
                "INSERT INTO set_aside SELECT id, sink, body, made, ? FROM messages WHERE id = ?",
                (error, number),
            )
            self._db.execute("DELETE FROM messages WHERE id = ?", (number,))

    def aside(self) -> list[tuple[int, str, bytes, float, str]]:
        """What can never be sent: number, sink, body, when it was made, why. Oldest first."""
        return list(self._db.execute("SELECT id, sink, body, made, error FROM set_aside"))

    def waiting(self) -> dict[str, tuple[int, str]]:
        """By sink: how many wait, and what the last failure was."""
        found = self._db.execute("SELECT sink, count(*), max(error) FROM messages GROUP BY sink")
        return {sink: (count, error or "") for sink, count, error in found}

    def close(self) -> None:
        """Let go of the file."""
        self._db.close()
