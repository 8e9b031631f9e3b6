"""The users that listen at ports of this machine.

A port is free to any user until its replica listens. Another user that listens there first would
get requests of others, so that a front passes none on to such a listener.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

_LISTENS: Final = "0A"
_TABLES: Final = ("/proc/net/tcp", "/proc/net/tcp6")


def is_own(host: str, port: int) -> bool:
    """Whether this user or root listens there, as far as this machine knows."""
    if not host.startswith("127.") and host not in ("::1", "localhost"):
        return True
    return {*listeners(port)} <= {0, os.geteuid()}


def listeners(port: int) -> Iterator[int]:
    """The users that listen at a port, by their numbers (proc(5), /proc/net/tcp)."""
    wanted = f":{port:04X}"
    for path in _TABLES:
        with contextlib.suppress(OSError), Path(path).open() as file:
            next(file, None)
            for line in file:
                words = line.split()
                if words[3] == _LISTENS and words[1].endswith(wanted):
                    yield int(words[7])
