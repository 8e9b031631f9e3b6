"""Copies of the journal: made while the daemon runs, and put back when it does not."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import secrets
import shutil
import sqlite3
import stat
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec

from ganger.client.places import Places
from ganger.client.strangers import others_may_change, refuse_others_folder
from ganger.core.errors import BadInput
from ganger.engines.agent.attempt.attempt_dir import sync
from ganger.service.durable.journal import NUMBERS_FROM, Journal
from ganger.service.home import Home

_PAGES: Final = 1024
_OWN: Final = re.compile(r"(journal|outbox)\.db.*|daemon\..*|token|agent-token|notify\.toml|agent")
"""What is not a copy's to replace in a home."""
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
    """Copy the journal to `target`, whole and durable, also while it is written. Only its owner may
    read the copy. Raises BadInput."""
    if not places.journal.exists():
        raise BadInput(
            "there is no journal to copy",
            where=str(places.root),
            mend="name its folder in GANGER_HOME",
        )
    _refuse_target(places, target, force=force)
    with _writing(target), _workplace(target.parent) as folder:
        made = Path(folder) / "copy.db"
        os.close(os.open(made, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        _copy(places.journal, made)
        found = look_at(made)
        with made.open("rb") as file:
            os.fsync(file.fileno())
        _put(made, target)
    return msgspec.structs.replace(found, path=str(target))


def _refuse_target(places: Places, target: Path, *, force: bool) -> None:
    """Raise BadInput for what a copy must not take the place of."""
    with contextlib.suppress(FileNotFoundError):
        mode = target.lstat().st_mode
        if not stat.S_ISREG(mode):
            raise BadInput("it is not a regular file", where=str(target), mend="use another name")
        if not force:
            raise BadInput(
                "the file exists already", where=str(target), mend="use another name, or --force"
            )
    if _OWN.fullmatch(target.name) and target.parent.resolve() == places.root.resolve():
        raise BadInput(
            "the daemon uses this file itself", where=str(target), mend="use another folder"
        )


def _workplace(parent: Path) -> tempfile.TemporaryDirectory[str]:
    """A folder in which SQLite can work by names: nobody else can put another file, or another
    folder, in their place."""
    try:
        refuse_others_folder(parent, above=True)
        safe = not others_may_change(parent.stat())
    except BadInput:
        safe = False
    return tempfile.TemporaryDirectory(prefix=".ganger-", dir=parent if safe else None)


def _put(made: Path, target: Path) -> None:
    """Let the file be `target`, durably, whoever else can write in that folder."""
    folder = os.open(target.parent, os.O_RDONLY | os.O_DIRECTORY)
    part = f".{target.name}.{secrets.token_hex(8)}"
    how = os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_NOFOLLOW
    try:
        try:
            os.rename(made, part, dst_dir_fd=folder)
        except OSError as error:
            if error.errno != errno.EXDEV:
                raise
            written = os.fdopen(os.open(part, how, 0o600, dir_fd=folder), "wb")
            with made.open("rb") as source, written:
                shutil.copyfileobj(source, written, 1 << 20)
                written.flush()
                os.fsync(written.fileno())
        os.rename(part, target.name, src_dir_fd=folder, dst_dir_fd=folder)
        os.fsync(folder)
    finally:
        with contextlib.suppress(OSError):
            os.unlink(part, dir_fd=folder)
        os.close(folder)


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
        raise BadInput("the file does not exist", where=str(path))
    journal = Journal(path, readonly=True)
    try:
        journal.check()
        if not journal.segments():
            raise BadInput("the journal is empty", where=str(path), mend="use another backup")
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
def _writing(target: Path) -> Iterator[None]:
    """What goes wrong with writing within it is said of `target`, as BadInput."""
    try:
        yield
    except (OSError, sqlite3.Error) as error:
        what = error.strerror if isinstance(error, OSError) else str(error)
        raise BadInput(
            f"the copy cannot be written: {what}",
            where=str(target),
            mend="nothing was changed; see that there is room, and that you may write there",
        ) from None


@contextlib.contextmanager
def _durably(target: Path, aside: Path | None = None) -> Iterator[Path]:
    """A new file of mode 0600 that becomes `target` when all is written and on the disk, or
    nothing; `aside`: what was there goes there, with what belongs to it. Raises BadInput."""
    made = target.with_name(f".{target.name}.{os.getpid()}.new")
    with _writing(target):
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


def _copy(source: Path, made: Path) -> None:
    """Copy one database over another, page by page, as it is at one moment."""
    begin = Journal(source, readonly=True)
    with contextlib.closing(begin), contextlib.closing(sqlite3.connect(made)) as copy:
        begin.db.backup(copy, pages=_PAGES, sleep=0.01)
        copy.execute("PRAGMA journal_mode = DELETE")  # one file is all
        copy.commit()
