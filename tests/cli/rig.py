"""A user's shell."""

from __future__ import annotations

import json
import os
import pty
import select
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

from cli.typed import typed

ASKING = {
    "cancel", "explain", "fairshare", "history", "hold", "logs", "nodes", "policy", "preempt",
    "queue", "quota", "release", "requeue", "show", "status", "submit", "suspend", "update",
    "usage", "wait", "whatif",
}  # fmt: skip
"""Commands that ask the daemon and start nothing."""


class Shell:
    """A user's shell in a folder, with a daemon's state beside it."""

    def __init__(self, root: Path) -> None:
        self.cwd = root / "work"
        self.cwd.mkdir()
        self.home = root / "home"
        self.command = [sys.executable, "-m", "ganger.cli"]
        """What begins a command line."""
        self.env = {
            **os.environ,
            "GANGER_HOME": str(self.home),
            "COLUMNS": "80",
            "LINES": "24",
            "GANGER_URL": "",
            "TERM": "dumb",
        }

    def ganger(
        self, *words: str, code: int = 0, stdin: str = ""
    ) -> subprocess.CompletedProcess[str]:
        """Run a command; its exit code must be `code`, and never a traceback. What starts other
        processes has a process of its own, and so has what a thread of a test runs."""
        here = threading.current_thread() is threading.main_thread()
        if here and words and words[0] in ASKING:
            return typed(self.cwd, *words, code=code, env=self.env, stdin=stdin)
        done = subprocess.run(
            [*self.command, *words],
            cwd=self.cwd,
            env=self.env,
            text=True,
            capture_output=True,
            check=False,
            timeout=60,
            input=stdin,
        )
        assert "Traceback" not in done.stdout + done.stderr, done.stderr
        assert done.returncode == code, done.stdout + done.stderr
        return done

    def said(self, *words: str, code: int = 0) -> str:
        """What it printed."""
        return self.ganger(*words, code=code).stdout

    def hears(self, what: str, *words: str) -> str:
        """What it printed once `what` is in it: the daemon takes its time where others compute."""
        until = time.monotonic() + 120
        while what not in (text := self.said(*words)):
            assert time.monotonic() < until, text
            time.sleep(0.05)
        return text

    def script(self, name: str, text: str) -> str:
        """Write a script; its name."""
        (self.cwd / name).write_text(text)
        return name

    def json(self, *words: str) -> Any:
        """What it printed, parsed."""
        return json.loads(self.said(*words, "--json"))

    def submit(self, *words: str) -> int:
        """Submit; the job's number."""
        return int(self.said("submit", "--parsable", *words))

    def on_a_terminal(self, *words: str) -> str:
        """What it prints on a terminal of 80 columns."""
        pid, terminal = pty.fork()
        if not pid:
            os.chdir(self.cwd)
            os.execve(sys.executable, [sys.executable, "-m", "ganger.cli", *words], self.env)
        text, until = b"", time.monotonic() + 20
        while time.monotonic() < until and select.select([terminal], [], [], 20)[0]:
            try:
                chunk = os.read(terminal, 4096)
            except OSError:
                break
            text += chunk
        os.close(terminal)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        return text.decode().replace("\r\n", "\n")
