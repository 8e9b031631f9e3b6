"""Strangers at the port where the nodes of a job meet: they cost the job nothing."""

from __future__ import annotations

import json
import secrets
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ganger.sdk import steps
from ganger.sdk.steps import Lead, Line, free_port, proof

SECRET = "the secret"


@pytest.fixture
def port(tmp_path: Path) -> int:
    """Where the first of two nodes waits for the other."""
    port = free_port()
    Lead(2, SECRET, "127.0.0.1", port, str(tmp_path))
    return port


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch) -> list[threading.ExceptHookArgs]:
    """What threads died of; each would be a traceback in the job's output."""
    found: list[threading.ExceptHookArgs] = []
    monkeypatch.setattr(threading, "excepthook", found.append)
    return found


def dial(port: int, source: str = "127.0.0.1") -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), 5, source_address=(source, 0))


def joins(port: int) -> bool:
    """Whether the job's other node gets in."""
    with dial(port) as sock:
        line, mine = Line(sock), secrets.token_hex(16)
        theirs = (line.receive() or {}).get("nonce", "")
        try:
            line.send({"node": 1, "nonce": mine, "proof": proof(SECRET, "follow 1", theirs, mine)})
        except OSError:
            return False
        return (line.receive() or {}).get("proof") == proof(SECRET, "lead", mine, theirs)


NONSENSE = {
    "a proof of other letters": json.dumps({"node": 1, "nonce": "a", "proof": "é"}).encode(),
    "half a letter": json.dumps({"node": 1, "nonce": "\ud800", "proof": "a"}).encode(),
    "a deep list": b"[" * 60_000,
    "a long number": b'{"node": ' + b"9" * 900 + b"}",
}


@pytest.mark.parametrize("name", NONSENSE)
def test_nonsense_is_hung_up_on_and_writes_nothing(
    name: str, port: int, said: list[threading.ExceptHookArgs]
) -> None:
    with dial(port) as sock:
        sock.sendall(NONSENSE[name] + b"\n")
        while sock.recv(4096):
            pass  # the nonce; then the end
    assert not said
    assert joins(port)


def test_silent_strangers_do_not_keep_a_node_out(port: int) -> None:
    """As many as may be there without a proof, and more, of an address of their own."""
    strangers = [dial(port, "127.0.0.2") for _ in range(2 * steps.UNPROVED_MAX)]
    try:
        assert joins(port)
    finally:
        for sock in strangers:
            sock.close()


class Silent:
    """A connection over which nothing comes."""

    def __init__(self) -> None:
        self.is_open = True

    def close(self) -> None:
        """Hung up on."""
        self.is_open = False


def test_who_is_quicker_than_a_proof_keeps_a_node_of_the_same_address_out_now_and_then(
    tmp_path: Path,
) -> None:
    """As many strangers as there is room for come before the node has answered. It tries again for
    a minute: once in a few times it must be let in."""
    lead = Lead(2, SECRET, "127.0.0.1", free_port(), str(tmp_path))
    stays = 0
    for _ in range(100):
        node: Any = Silent()
        lead._let_in(node, "10.0.0.1")
        for _ in range(steps.UNPROVED_MAX):
            stranger: Any = Silent()
            lead._let_in(stranger, "10.0.0.1")
        stays += node.is_open
    assert 10 < stays < 90


def test_a_stranger_byte_by_byte_is_not_waited_for(
    port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(steps, "PROOF_SECONDS", 0.5)
    begin = time.monotonic()
    with dial(port) as sock:
        try:
            while time.monotonic() < begin + 10:
                sock.sendall(b" ")
                time.sleep(0.1)
        except OSError:
            return
    raise AssertionError("it is still listened to")


@pytest.fixture
def impostor(monkeypatch: pytest.MonkeyPatch) -> Iterator[socket.socket]:
    """Listens where a node expects the job's first one."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
        monkeypatch.setenv("MASTER_PORT", str(listener.getsockname()[1]))
        monkeypatch.setenv("GANGER_NODE_RANK", "1")
        monkeypatch.setenv(steps.SECRET, SECRET)
        monkeypatch.setattr(steps, "JOIN_SECONDS", 0.1)
        yield listener


@pytest.mark.parametrize("nonce", [[1], "\ud800", "a"])
def test_an_impostors_nonsense_is_no_traceback(impostor: socket.socket, nonce: object) -> None:
    def answer() -> None:
        sock, _ = impostor.accept()
        with sock:
            sock.sendall(json.dumps({"nonce": nonce}).encode() + b"\n")
            sock.recv(4096)
            sock.sendall(json.dumps({"proof": "é"}).encode() + b"\n")

    threading.Thread(target=answer, daemon=True).start()
    with pytest.raises(steps.Refused, match="does not answer"):
        steps._joined()


def test_an_impostor_fills_no_memory(impostor: socket.socket) -> None:
    """A node hangs up on who says much before the proof."""
    sent: list[int] = []

    def pour() -> None:
        sock, _ = impostor.accept()
        with sock:
            try:
                while len(sent) < 64:
                    sock.sendall(b" " * (1 << 16))
                    sent.append(1)
            except OSError:
                return

    thread = threading.Thread(target=pour, daemon=True)
    thread.start()
    with pytest.raises(steps.Refused):
        steps._joined()
    thread.join(20)
    assert len(sent) < 64
