"""`lifeline.py SETTING FOLDER`: when its standard input ends, kill every process whose environment
has SETTING and remove FOLDER. Whoever holds the other end may be killed in any way."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

OWNER = "GANGER_TEST_RUNNER"
"""Set for all that a test run starts in the background: its process and when that began."""


def identity(pid: int) -> str:
    """A process's number and when it began; empty if it is gone."""
    try:
        return f"{pid}.{Path(f'/proc/{pid}/stat').read_text().rpartition(')')[2].split()[19]}"
    except OSError:
        return ""


def settings(pid: int) -> list[bytes]:
    """The environment with which a process was started."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    return []


def everybody() -> list[int]:
    """All processes but this one."""
    found = [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdecimal()]
    return [pid for pid in found if pid != os.getpid()]


def sweep(setting: str) -> int:
    """Kill all processes with this setting until there are none; how many there were."""
    count, until = 0, time.monotonic() + 10
    while time.monotonic() < until:
        found = [pid for pid in everybody() if setting.encode() in settings(pid)]
        if not found:
            break
        for pid in found:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
                count += 1
        time.sleep(0.02)
    return count


def clear_leftovers() -> int:
    """Kill what a test run left running that is dead itself; how many processes that were."""
    mark, count = f"{OWNER}=".encode(), 0
    for pid in everybody():
        for setting in settings(pid):
            if setting.startswith(mark):
                owner = setting[len(mark) :].decode()
                number = owner.partition(".")[0]
                if number.isdecimal() and identity(int(number)) != owner:
                    with contextlib.suppress(OSError):
                        os.kill(pid, signal.SIGKILL)
                        count += 1
    return count


def tie(setting: str, folder: Path) -> subprocess.Popen[bytes]:
    """Have all with this setting killed when this process dies, or closes the pipe to the child
    that is returned."""
    return subprocess.Popen(
        [sys.executable, "-I", "-S", __file__, setting, str(folder)],
        stdin=subprocess.PIPE,
        start_new_session=True,
        env={},
    )


if __name__ == "__main__":
    sys.stdin.buffer.read()
    sweep(sys.argv[1])
    shutil.rmtree(sys.argv[2], ignore_errors=True)
