"""Processes that go on when the command that started them is over."""

from __future__ import annotations

import subprocess
import sys
from typing import IO, Any

import msgspec


def detached(module: str, settings: Any, log: IO[bytes]) -> subprocess.Popen[bytes]:
    """Start a module of Ganger in a session of its own, with its settings as the only argument;
    what it prints goes to `log`."""
    return subprocess.Popen(
        [sys.executable, "-m", module, msgspec.json.encode(settings).decode()],
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=log,
        cwd="/",
        start_new_session=True,
    )
