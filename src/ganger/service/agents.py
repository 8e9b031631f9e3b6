"""The agent of this machine: started when nobody answers, kept when the daemon goes."""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from ganger.core.errors import BadInput
from ganger.service.home import Home

STOP_SECONDS: Final = 10.0


def spawner(home: Home, name: str, gpus: str) -> Callable[[], None]:
    """What starts the agent as a process of its own, which outlives this one."""
    children: list[subprocess.Popen[bytes]] = []

    def spawn() -> None:
        for child in children:
            child.poll()
        home.agent.mkdir(mode=0o711, exist_ok=True)
        command = [sys.executable, "-m", "ganger.engines.agent", "--home", str(home.agent)]
        command += ["--name", name or socket.gethostname()] + (["--gpus", gpus] if gpus else [])
        with (home.root / "agent.log").open("ab") as log:
            children.append(
                subprocess.Popen(
                    command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd="/",
                    start_new_session=True,
                )
            )  # fmt: skip

    return spawn


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
