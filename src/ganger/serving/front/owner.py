"""Which user listens at a port of this machine.

A port is free to any user until its replica listens. Whoever listens there first would be sent
requests of others, so that a front passes none on to a listener of another user.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

_LISTENS: Final = "0A"
_TABLES: Final = ("/proc/net/tcp", "/proc/net/tcp6")


def is_loopback(host: str) -> bool:
    """Whether the address is this machine's own."""
    return host.startswith("127.") or host in ("::1", "localhost")


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
