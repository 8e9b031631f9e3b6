"""Who has not proved to know the token costs next to nothing, however many come."""

from __future__ import annotations

import logging
import resource
import socket
import struct
import time
from collections.abc import Callable, Iterator

import msgspec
import pytest

from ganger.core.errors import BadInput
from ganger.core.units import SECOND
from ganger.engines import machines as boxes
from ganger.engines.agent.protocol import (
    NONCE_BYTES,
    Challenge,
    Hello,
    Ping,
    ToAgent,
    Welcome,
    proof,
)
from ganger.engines.agent.wire import UNPROVED_BYTES_MAX, GoneError, Link
from ganger.engines.launch import Launch
from ganger.engines.local import LocalEngine

TOKEN = "the token"


@pytest.fixture
def engine() -> Iterator[LocalEngine]:
    """An engine that machines may join."""
    engine = LocalEngine(
        lambda job: Launch(command=("true",)),
        lambda hello: [0],
        listen=("127.0.0.1", 0),
        token=TOKEN,
        lost_after=30 * SECOND,
    )
    yield engine
    engine.close()


@pytest.fixture
def dial(engine: LocalEngine) -> Iterator[Callable[..., socket.socket]]:
    """Makes connections, from any address of the loopback."""
    socks: list[socket.socket] = []

    def connect(source: str = "127.0.0.1") -> socket.socket:
        socks.append(
            socket.create_connection(("127.0.0.1", engine.port), source_address=(source, 0))
        )
        return socks[-1]

    yield connect
    for sock in socks:
        sock.close()


def turn(engine: LocalEngine, times: int = 1) -> None:
    """Let the engine look at its connections."""
    for _ in range(times):
        engine.poll(engine.clock.now() + 2000)


def ended(engine: LocalEngine, sock: socket.socket, seconds: float = 3.0) -> bool:
    """Whether the engine hangs up."""
    sock.setblocking(False)
    late = time.monotonic() + seconds
    while time.monotonic() < late:
        turn(engine)
        try:
            if not sock.recv(1 << 16):
                return True
        except BlockingIOError:
            continue
        except OSError:
            return True
    return False


def join(engine: LocalEngine, sock: socket.socket) -> object:
    """Prove to know the token: what the engine answers."""
    link = Link(sock, ToAgent)
    heard: list[object] = []
    late = time.monotonic() + 5
    while time.monotonic() < late:
        turn(engine)
        try:
            heard += link.receive()
        except GoneError:
            return None
        for one in heard:
            if isinstance(one, Challenge):
                nonce = bytes(NONCE_BYTES)
                link.send(
                    Hello("x", (), nonce=nonce, proof=proof(TOKEN, "agent", one.nonce, nonce))
                )
            elif isinstance(one, Welcome):
                return one
        heard.clear()
    return None


def test_a_large_frame_ends_the_connection_before_it_is_there(
    engine: LocalEngine, dial: Callable[..., socket.socket]
) -> None:
    sock = dial()
    turn(engine, 3)
    sock.send(struct.pack(">I", UNPROVED_BYTES_MAX + 1))
    assert ended(engine, sock)


def test_a_flood_before_the_proof_takes_no_memory(
    engine: LocalEngine, dial: Callable[..., socket.socket]
) -> None:
    sock = dial()
    turn(engine, 3)
    sock.setblocking(False)
    sock.send(struct.pack(">I", UNPROVED_BYTES_MAX))
    kept = 0
    for _ in range(200):
        try:
            sock.send(b"x" * (1 << 16))
        except BlockingIOError:
            pass
        except OSError:
            break
        turn(engine)
        kept = max([kept, *(len(one.link._in) for one in engine._boxes._connections)])  # type: ignore[attr-defined]
    assert kept <= 2 * UNPROVED_BYTES_MAX
    assert ended(engine, sock)


def test_who_keeps_talking_without_a_proof_is_dropped_in_time(
    engine: LocalEngine, dial: Callable[..., socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(boxes, "_PROVE_SECONDS", 0.3)
    sock = dial()
    ping = msgspec.msgpack.encode(Ping())
    late = time.monotonic() + 5
    while not ended(engine, sock, 0.05):
        assert time.monotonic() < late
        try:
            sock.send(struct.pack(">I", len(ping)) + ping)
        except OSError:
            break


def test_many_who_prove_nothing_do_not_keep_out_who_does(
    engine: LocalEngine, dial: Callable[..., socket.socket]
) -> None:
    for _ in range(3 * boxes._UNPROVED_MAX):
        dial("127.0.0.2")
        turn(engine)
    assert len(engine._boxes._connections) <= boxes._UNPROVED_MAX  # type: ignore[attr-defined]
    good = dial("127.0.0.3")
    turn(engine)
    for _ in range(boxes._UNPROVED_MAX):
        dial("127.0.0.2")
        turn(engine)
    assert isinstance(join(engine, good), Welcome)


def test_without_descriptors_it_waits_and_says_so_once(
    engine: LocalEngine, dial: Callable[..., socket.socket], caplog: pytest.LogCaptureFixture
) -> None:
    sock = dial()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    began = time.process_time()
    with caplog.at_level(logging.WARNING):
        resource.setrlimit(resource.RLIMIT_NOFILE, (sock.fileno() + 1, hard))
        try:
            rounds = 0
            late = time.monotonic() + 1.0
            while time.monotonic() < late:
                engine.poll(engine.clock.now() + SECOND // 4)
                rounds += 1
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert len([one for one in caplog.records if "accept" in one.message]) == 1
    assert time.process_time() - began < 0.5  # a spinning loop takes all of a second
    assert rounds < 20
    assert isinstance(join(engine, sock), Welcome)


def test_those_who_are_turned_away_do_not_fill_the_log(
    engine: LocalEngine, dial: Callable[..., socket.socket], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        for _ in range(20):
            link = Link(dial(), ToAgent)
            turn(engine, 2)
            link.send(Hello("n" * 50_000, (), nonce=bytes(NONCE_BYTES), proof=b"wrong"))
            turn(engine, 2)
    said = "".join(one.getMessage() for one in caplog.records)
    assert "turned away" in said
    assert len(said) < 1000


def test_a_port_in_use_is_one_sentence(engine: LocalEngine) -> None:
    with pytest.raises(BadInput, match="Address already in use") as told:
        LocalEngine(
            lambda job: Launch(command=("true",)),
            lambda hello: [0],
            listen=("127.0.0.1", engine.port),
            token=TOKEN,
        )
    assert "--agents" in str(told.value)
