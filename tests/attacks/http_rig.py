"""What attackers of the HTTP side hold: raw sockets, other users, other servers."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

ANN, EVE = 65533, 65532
"""Users of this machine that are not the daemon's. Nobody knows them by name."""


@contextlib.contextmanager
def open_folder() -> Iterator[Path]:
    """A folder that other users can pass through. Those of pytest are closed to them again whenever
    another session of tests begins."""
    folder = Path(tempfile.mkdtemp(prefix="ganger-attack-"))
    folder.chmod(0o755)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def acting_as(uid: int) -> Iterator[None]:
    """Connect as another user: the kernel tells a server the effective user of who connected."""
    before = os.geteuid()
    os.seteuid(uid)
    try:
        yield
    finally:
        os.seteuid(before)


def by_port(listen: str) -> socket.socket:
    """A connection to HOST:PORT."""
    host, _, port = listen.rpartition(":")
    return socket.create_connection((host, int(port)), timeout=10)


def by_socket(home: Path, uid: int | None = None) -> socket.socket:
    """A connection to the daemon's Unix socket, as `uid`."""
    made = socket.socket(socket.AF_UNIX)
    made.settimeout(10)
    try:
        with acting_as(os.geteuid() if uid is None else uid):
            made.connect(str(home / "daemon.sock"))
    except OSError:
        made.close()
        raise
    return made


def sent(connection: socket.socket, data: bytes) -> tuple[int, bytes]:
    """Send these bytes; the status (0: it was hung up) and all that came before the end."""
    with connection, contextlib.suppress(ConnectionError):
        connection.sendall(data)
        answer = b""
        with contextlib.suppress(ConnectionError):
            while part := connection.recv(65536):
                answer += part
        return int(answer[9:12] or 0), answer.partition(b"\r\n\r\n")[2]
    return 0, b""


def request(
    method: str, path: str, *headers: str, body: bytes = b"", host: str = "daemon"
) -> bytes:
    """A request as bytes, with these header lines and no others that are not needed."""
    lines = [f"{method} {path} HTTP/1.1", f"Host: {host}", "Connection: close", *headers]
    if body:
        lines.append(f"Content-Length: {len(body)}")
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + body


def eventually(holds: Callable[[], bool], seconds: float = 10.0) -> bool:
    """Whether it holds before the time is over."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if holds():
            return True
        time.sleep(0.05)
    return False
