"""Where a daemon keeps its things, and where it is found."""

from __future__ import annotations

import os
from pathlib import Path
from typing import IO


def home() -> Path:
    """`$GANGER_HOME`, or `ganger` in the user's state folder (XDG)."""
    stated = os.environ.get("GANGER_HOME")
    if stated:
        return Path(stated).absolute()
    state = os.environ.get("XDG_STATE_HOME") or "~/.local/state"
    return Path(state).expanduser() / "ganger"


def open_private(path: Path) -> IO[bytes]:
    """A file to append to that nobody else can read, also if it was there before."""
    file = os.fdopen(
        os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600),
        "ab",
    )
    os.fchmod(file.fileno(), 0o600)
    return file


def make_private(path: Path) -> None:
    """Make an empty file that nobody else can read. One that is there is not opened, only closed to
    others: SQLite's locks on a file are lost when any descriptor of it is closed."""
    try:
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    except FileExistsError:
        path.chmod(0o600)


class Places:
    """The files of one state folder."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.socket = root / "daemon.sock"
        self.pid_file = root / "daemon.pid"
        self.log = root / "daemon.log"
        self.journal = root / "journal.db"
        self.agent = root / "agent"

    def pid(self) -> int:
        """The process that says it is the daemon here, 0 if none does."""
        try:
            return int(self.pid_file.read_text())
        except (OSError, ValueError):
            return 0
