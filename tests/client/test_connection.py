"""A connection to a daemon that many want to speak with."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from ganger.client.connection import Client, NoDaemon

ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n42"


@pytest.fixture
def crowded(tmp_path: Path) -> Iterator[socket.socket]:
    """A daemon's socket before which as many wait as may."""
    with ExitStack() as opened:
        listener = opened.enter_context(socket.socket(socket.AF_UNIX))
        listener.bind(str(tmp_path / "daemon.sock"))
        listener.listen(0)
        first = opened.enter_context(socket.socket(socket.AF_UNIX))
        first.connect(str(tmp_path / "daemon.sock"))
        other = opened.enter_context(socket.socket(socket.AF_UNIX))
        other.setblocking(False)
        with pytest.raises(BlockingIOError):
            other.connect(str(tmp_path / "daemon.sock"))
        yield listener


def test_a_client_waits_in_line_before_a_busy_daemon(
    crowded: socket.socket, tmp_path: Path
) -> None:
    def asked() -> None:
        with Client(tmp_path, timeout=10) as client:
            answers.append(client.call("GET", "/v1/status", int))

    answers: list[int] = []
    asking = threading.Thread(target=asked)
    asking.start()
    asking.join(0.2)
    assert asking.is_alive(), "it waits, and is not refused"
    line, _ = crowded.accept()
    line.close()
    line, _ = crowded.accept()
    line.recv(1 << 16)
    line.sendall(ANSWER)
    line.close()
    asking.join(10)
    assert answers == [42]


def test_and_not_for_ever(crowded: socket.socket, tmp_path: Path) -> None:
    with (
        pytest.raises(NoDaemon, match=r"does not answer within 0\.2 s"),
        Client(tmp_path, timeout=0.2) as client,
    ):
        client.call("GET", "/v1/status", int)
