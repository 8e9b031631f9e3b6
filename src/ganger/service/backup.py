"""Copies of the journal: made while the daemon runs, and put back when it does not."""

from __future__ import annotations

import contextlib
import os
import re
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec

from ganger.client.places import Places
from ganger.core.errors import BadInput
from ganger.engines.agent.folder import sync
from ganger.service.home import Home
from ganger.service.journal import NUMBERS_FROM, Journal

_PAGES: Final = 1024
_ATTEMPT = re.compile(r"(\d+)\.")


class Copied(msgspec.Struct, kw_only=True):
    """What a journal holds. `until`: when its last event was, Unix seconds."""

    path: str
    bytes: int
    jobs: int
    until: float
    kept: str = ""
    """Where the journal lies now that was there before."""


def backup(places: Places, target: Path, *, force: bool = False) -> Copied:
    """Copy the journal to `target`, whole and durable, whoever writes it meanwhile. Only its owner
    may read the copy. Raises BadInput."""
    if not places.journal.exists():
        raise BadInput("there is no journal to copy", where=str(places.root),
                       mend="name its folder in GANGER_HOME")  # fmt: skip
    if target.exists() and not force:
        raise BadInput(
            "it is there already", where=str(target), mend="take another name, or --force"
        )
    with _durably(target) as made:
        _copy(places.journal, made)
        found = look_at(made)
    return msgspec.structs.replace(found, path=str(target))


def restore(places: Places, source: Path) -> Copied:
    """Let `source` be the journal; the one that was there stays beside it. Numbers of jobs that it
    does not know and that were given out are not given again. Raises BadInput, also while a daemon
    runs."""
    found = look_at(source)
    home = Home(places.root)
    home.take_briefly()
    try:
        given = max(found.jobs, _numbers_given(places))
        aside = places.journal.with_name(time.strftime("journal-%Y%m%d-%H%M%S.db"))
        with _durably(places.journal, aside) as made:
            _copy(source, made)
            with contextlib.closing(sqlite3.connect(made, isolation_level=None)) as db:
                db.execute(
                    "INSERT OR REPLACE INTO settings VALUES (?, ?)", (NUMBERS_FROM, str(given))
                )
        kept = str(aside) if aside.exists() else ""
        return msgspec.structs.replace(found, path=str(places.journal), kept=kept)
    finally:
        home.leave()


def look_at(path: Path) -> Copied:
    """What a journal holds. Raises BadInput for one that is damaged, or is none."""
    if not path.is_file():
        raise BadInput("there is no such file", where=str(path))
    journal = Journal(path, readonly=True)
    try:
        journal.check()
        if not journal.segments():
            raise BadInput("it is an empty journal", where=str(path), mend="take another backup")
        (jobs,) = journal.db.execute("SELECT count(*) FROM jobs").fetchone()
        size = path.stat().st_size
        return Copied(path=str(path), bytes=size, jobs=jobs, until=journal.last_time() / 1e6)
    finally:
        journal.close()


def _numbers_given(places: Places) -> int:
    """How many jobs the present journal and the agent know of, as far as they can be read."""
    jobs = 0
    with contextlib.suppress(sqlite3.Error, BadInput):
        journal = Journal(places.journal, readonly=True)
        with contextlib.closing(journal):
            (jobs,) = journal.db.execute("SELECT coalesce(max(job), -1) + 1 FROM jobs").fetchone()
            jobs = max(jobs, int(journal.setting(NUMBERS_FROM) or 0))
    with contextlib.suppress(OSError):
        for entry in (places.agent / "attempts").iterdir():
            if found := _ATTEMPT.match(entry.name):
                jobs = max(jobs, int(found[1]) + 1)
    return jobs


@contextlib.contextmanager
def _durably(target: Path, aside: Path | None = None) -> Iterator[Path]:
    """A new file of mode 0600 that becomes `target` when all is written and on the disk, or
    nothing; `aside`: what was there goes there, with what belongs to it. Raises BadInput."""
    made = target.with_name(f".{target.name}.{os.getpid()}.new")
    try:
        os.close(os.open(made, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_NOFOLLOW, 0o600))
        try:
            yield made
            with made.open("rb") as file:
                os.fsync(file.fileno())
            if aside is not None:
                for tail in ("-wal", "-shm", ""):
                    with contextlib.suppress(FileNotFoundError):
                        Path(f"{target}{tail}").rename(f"{aside}{tail}")
            made.rename(target)
            sync(target.parent)
        finally:
            made.unlink(missing_ok=True)
    except (OSError, sqlite3.Error) as error:
        what = error.strerror if isinstance(error, OSError) else str(error)
        raise BadInput(f"the copy cannot be written: {what}", where=str(target),
                       mend="nothing was changed; see that there is room, and that you may write"
                       " there") from None  # fmt: skip


def _copy(source: Path, made: Path) -> None:
    """Copy one database over another, page by page, as it is at one moment."""
    begin = Journal(source, readonly=True)
    with contextlib.closing(begin), contextlib.closing(sqlite3.connect(made)) as copy:
        begin.db.backup(copy, pages=_PAGES, sleep=0.01)
        copy.execute("PRAGMA journal_mode = DELETE")  # one file is all
        copy.commit()
