"""The folder that a daemon lives in, and the lock that makes it the only one there."""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat
import time
from pathlib import Path
from typing import IO, Final

from ganger.client.places import Places, open_private
from ganger.client.strangers import refuse_others_folder
from ganger.core.errors import BadInput
from ganger.service import agents

_ORPHAN_SECONDS: Final = 5.0


def _locked(file: IO[bytes]) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _lives(pid: int) -> bool:
    try:
        os.kill(pid or os.getpid(), 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


class Home(Places):
    """A state folder that this process owns until it ends."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self._lock: IO[bytes] | None = None

    def take(self, *, shared: bool = False) -> None:
        """Make the folder, and be its only daemon. Raises BadInput if another one runs.

        `shared`: other users may pass through it, to the socket and to what is theirs.
        """
        self.root.mkdir(mode=0o700, parents=True, exist_ok=True)
        refuse_others_folder(self.root, above=shared)
        file = open_private(self.root / "daemon.lock")
        until = time.monotonic() + _ORPHAN_SECONDS
        while not _locked(file):
            if _lives(self.pid()) or time.monotonic() > until:
                file.close()
                raise BadInput(
                    f"a daemon runs there already{self._whose()}",
                    where=str(self.root),
                    mend="use it, or stop it with `ganger down`",
                )
            time.sleep(0.01)  # a process that it was just about to start holds on a moment longer
        self._lock = file
        self.root.chmod(0o711 if shared else 0o700)
        with open_private(self.pid_file) as pid_file:
            pid_file.truncate(0)
            pid_file.write(b"%d\n" % os.getpid())

    def take_briefly(self) -> None:
        """Be its only daemon, without serving: no mode of the folder changes. Raises BadInput."""
        mode = stat.S_IMODE(self.root.stat().st_mode) if self.root.exists() else 0o700
        self.take()
        self.root.chmod(mode)

    def _whose(self) -> str:
        pid = self.pid()
        return f" (pid {pid})" if pid else ""

    def leave(self) -> None:
        """Stop being its daemon."""
        for path in (self.pid_file, self.socket):
            with contextlib.suppress(FileNotFoundError):
                path.unlink()
        if self._lock is not None:
            self._lock.close()
            self._lock = None


def refuse_lost_journal(places: Places) -> None:
    """Raise BadInput if the agent here served a daemon, whose journal is empty or gone: a daemon
    that began anew would know nothing of its jobs, and give their numbers to others."""
    if not (places.agent / "cluster").exists():
        return
    attempts = places.agent / "attempts"
    number = len(list(attempts.iterdir())) if attempts.is_dir() else 0
    runs = f"runs (pid {pid})" if (pid := agents.running(places.agent)) else "does not run"
    raise BadInput(
        f"it is empty, and the agent beside it served a daemon: it {runs} and knows {number} parts"
        " of jobs",
        where=str(places.journal),
        mend="`ganger restore FILE` puts a backup back; to forget them all, end the agent and"
        f" remove {places.agent}",
    )
