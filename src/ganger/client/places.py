"""Where a daemon keeps its things, and where it is found."""

from __future__ import annotations

import os
from pathlib import Path


def home() -> Path:
    """`$GANGER_HOME`, or `ganger` in the user's state folder (XDG)."""
    stated = os.environ.get("GANGER_HOME")
    if stated:
        return Path(stated).absolute()
    state = os.environ.get("XDG_STATE_HOME") or "~/.local/state"
    return Path(state).expanduser() / "ganger"


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
