"""The agent of this machine: whether it runs, and how it is stopped."""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import time
from pathlib import Path
from typing import Final

from ganger.core.errors import BadInput

STOP_SECONDS: Final = 10.0


def running(agent: Path) -> int:
    """The process of the agent that owns this folder, 0 if there is none."""
    try:
        descriptor = os.open(agent / "lock", os.O_RDWR)
    except OSError:
        return 0
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        text = os.pread(descriptor, 32, 0)
        return int(text) if text.isdigit() else 0
    finally:
        os.close(descriptor)
    return 0


def stop(agent: Path) -> None:
    """End the agent; its jobs, if any, go on. Raises BadInput if it does not go."""
    pid = running(agent)
    if not pid:
        return
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGTERM)
    until = time.monotonic() + STOP_SECONDS
    while running(agent):
        if time.monotonic() > until:
            raise BadInput(f"the agent (pid {pid}) does not stop", where=str(agent))
        time.sleep(0.01)
