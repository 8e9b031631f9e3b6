"""Attacks on the front of a service: by clients, and by replicas that are not what they say."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import resource
import select
import socket
import subprocess
import sys
import time
import tracemalloc
import weakref
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ganger.serving.front import exchange
from ganger.serving.front.balance import Version
from ganger.serving.front.exchange import Exchange
from ganger.serving.front.link import Settings
from ganger.serving.front.proxy import Terms
from ganger.serving.front.upstream import HEAD_MAX, Upstream
from serving.live.front.rig import TERMS, Rig, Served, Stub, rig, story, until

SMUGGLED = b"GET /smuggled HTTP/1.1\r\nhost: x\r\n\r\n"
HEADS = {
    "two lengths": b"content-length: 0\r\ncontent-length: 37\r\n",
    "length and coding": b"content-length: 37\r\ntransfer-encoding: chunked\r\n",
    "coding and length": b"transfer-encoding: chunked\r\ncontent-length: 37\r\n",
    "a coding that is none": b"transfer-encoding: xchunked\r\n",
    "a coding after chunks": b"transfer-encoding: chunked\r\ntransfer-encoding: identity\r\n",
    "a folded header": b"x: a\r\n content-length: 37\r\n",
    "a bare return": b"x: a\rcontent-length: 37\r\n",
    "a bare line feed": b"x: a\ncontent-length: 37\r\n",
    "a space before the colon": b"content-length : 37\r\n",
    "a zero byte": b"x: a\0b\r\n",
    "no name": b": x\r\n",
    "an upgrade": b"connection: upgrade\r\nupgrade: h2c\r\n",
}


async def say(made: Rig, sent: bytes) -> bytes:
    """What the front answers until it hangs up."""
    reader, writer = await asyncio.open_connection("127.0.0.1", made.port)
    writer.write(sent)
    found = b""
    try:
        while data := await reader.read(1 << 16):
            found += data
    except ConnectionError:
        pass
    writer.close()
    return found


@pytest.mark.parametrize("head", HEADS.values(), ids=[*HEADS])
@story
async def test_no_framing_makes_two_requests_of_one(head: bytes) -> None:
    async with rig() as made:
        stub = Stub("a")
        await made.add(stub)
        body = b"0\r\n\r\n" + SMUGGLED
        found = await say(made, b"POST /x HTTP/1.1\r\nhost: x\r\n" + head + b"\r\n" + body)
        assert found.startswith(b"HTTP/1.1 400")
        assert found.count(b"HTTP/1.1") == 1
        assert not stub.asked


@pytest.mark.parametrize(
    "first",
    [
        b"GET http://other/ HTTP/1.1",
        b"CONNECT other:22 HTTP/1.1",
        b"CONNECT / HTTP/1.1",
        b"OPTIONS * HTTP/1.1",
        b"PRI * HTTP/2.0",
        b"GET / HTTP/1.1 HTTP/1.1",
        b"GET /\xff HTTP/1.1",
    ],
)
@story
async def test_no_target_leads_elsewhere(first: bytes) -> None:
    async with rig() as made:
        stub = Stub("a")
        await made.add(stub)
        found = await say(made, first + b"\r\nhost: x\r\nconnection: close\r\n\r\n")
        assert found.startswith(b"HTTP/1.1 400")
        assert not stub.asked


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 099 No\r\ncontent-length: 48\r\n\r\n"
        b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nevil\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: gzip, chunked\r\n\r\n4\r\nevil\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\ntransfer-encoding: chunked\r\n\r\nevil",
        b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\ncontent-length: 5\r\n\r\nevil",
        b"HTTP/1.1 101 Switching\r\nconnection: upgrade\r\nupgrade: x\r\n\r\nevil",
        b"HTTP/1.1 200 OK\r\nx: a\ntransfer-encoding: chunked\r\n\r\nevil",
        b"HTTP/1.1 200 OK\r\ncontent-length: -4\r\n\r\nevil",
    ],
)
@story
async def test_no_answer_of_a_replica_is_handed_on_framed_otherwise(answer: bytes) -> None:
    async def evil(stub: Stub, served: Served) -> None:
        served.transport.write(answer)

    async with rig() as made:
        await made.add(Stub("a", evil))
        status, _, body = await made.ask()
        assert status == 502
        assert b"evil" not in body


@pytest.mark.parametrize(
    ("begins", "goes_on"),
    [
        (b"HTTP/1.1 200 OK\r\n", b"x: %b\r\n" % (b"y" * 1000)),
        (b"HTTP/1.1 200 OK\r\nx: ", b"y" * 1000),
        (b"HTTP/1.1 200 ", b"y" * 1000),
        (b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n0\r\nx: ", b"y" * 1000),
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1;", b"y" * 1000),
    ],
    ids=["headers", "one header", "phrase", "interim answers", "trailers", "chunk extension"],
)
@story
async def test_what_never_ends_in_an_answer_is_not_kept(begins: bytes, goes_on: bytes) -> None:
    wrote = 0

    async def endless(stub: Stub, served: Served) -> None:
        nonlocal wrote
        served.transport.write(begins)
        while not served.transport.is_closing():
            served.transport.write(goes_on)
            wrote += len(goes_on)
            await asyncio.sleep(0)

    async with rig(Terms(longest_seconds=20.0)) as made:
        await made.add(Stub("a", endless))
        found = await say(made, b"GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
        assert not found.endswith(b"0\r\n\r\n")  # it does not look whole
        assert wrote < 2 * exchange.TRIES * (HEAD_MAX + (1 << 20))


@story
async def test_what_comes_behind_an_answer_is_nobodys() -> None:
    async def talks(stub: Stub, served: Served) -> None:
        served.say(200, b"%d" % len(stub.asked))
        served.say(200, b"evil")

    async with rig() as made:
        await made.add(Stub("a", talks))
        for n in range(1, 6):
            status, _, body = await made.ask()
            assert (status, body) == (200, b"%d" % n)


@story
async def test_a_replica_that_hangs_up_before_it_is_asked_costs_no_waiting() -> None:
    async with rig() as made:
        for name in ("a", "b"):
            await made.add(Stub(name))
        loop, port = asyncio.get_running_loop(), made.stubs[0].port
        connect = loop.create_connection

        async def late(*args: Any, **options: Any) -> Any:
            found = await connect(*args, **options)
            if args[0] is Upstream and args[2] == port:
                await asyncio.sleep(0.05)
                for served in [*made.stubs[0].open]:
                    served.transport.abort()
                await asyncio.sleep(0.05)
            return found

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(loop, "create_connection", late)
            assert {(await made.ask())[2] for _ in range(6)} == {b"b:"}


@story
async def test_a_request_that_ends_connections_is_not_worked_on_again_and_again() -> None:
    async def ends(stub: Stub, served: Served) -> None:
        if served.body == b"evil":
            served.transport.abort()
        else:
            await asyncio.sleep(0.05)
            served.say(200, b"")

    async with rig() as made:
        stub = Stub("a", ends)
        await made.add(stub)
        await asyncio.gather(*(made.ask() for _ in range(30)))  # so many connections are kept
        assert (await made.ask(b"evil"))[0] == 502
        assert sum(body == b"evil" for _, _, body in stub.asked) <= 3


@story
async def test_an_answer_that_says_no_more_keeps_no_place() -> None:
    async def stalls(stub: Stub, served: Served) -> None:
        served.transport.write(b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhalf")

    async with rig(Terms(longest_seconds=0.5)) as made:
        one = await made.add(Stub("a", stalls))
        assert (await say(made, b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")).endswith(b"half")
        assert not one.requests


@story
async def test_a_long_answer_that_goes_on_is_not_cut() -> None:
    async def streams(stub: Stub, served: Served) -> None:
        served.transport.write(b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\n")
        for n in range(10):
            await asyncio.sleep(0.1)
            served.transport.write(b"%d" % n)

    async with rig(Terms(longest_seconds=0.5)) as made:
        await made.add(Stub("a", streams))
        assert (await made.ask())[2] == b"0123456789"


@story
async def test_clients_that_vanish_leave_nothing_behind() -> None:
    async def streams(stub: Stub, served: Served) -> None:
        served.transport.write(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1\r\nx\r\n")

    exchanges = weakref.WeakSet[Exchange]()
    asked = Exchange.go

    def seen(self: Exchange) -> None:
        exchanges.add(self)
        asked(self)

    async with rig() as made:
        one = await made.add(Stub("a", streams))
        gc.collect()
        gc.disable()
        try:
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(Exchange, "go", seen)
                for _ in range(50):
                    reader, writer = await asyncio.open_connection("127.0.0.1", made.port)
                    writer.write(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
                    await reader.readuntil(b"x\r\n")
                    writer.transport.abort()
            await until(lambda: not one.requests and not made.door.open)
            await until(lambda: not exchanges)  # without a collector of garbage
        finally:
            gc.enable()
        assert (made.front.waiting, made.door.held, one.idle) == (0, 0, [])


@story
async def test_nor_do_their_bodies() -> None:
    half = b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 8000000\r\n\r\n" + bytes(4_000_000)
    async with rig() as made:
        gc.collect()
        gc.disable()
        tracemalloc.start()
        try:
            for _ in range(8):
                _, writer = await asyncio.open_connection("127.0.0.1", made.port)
                writer.write(half)
                await writer.drain()
                await until(lambda: made.door.held > 3_000_000)
                writer.transport.abort()
                await until(lambda: not made.door.open)
            assert tracemalloc.get_traced_memory()[0] < 12_000_000
        finally:
            tracemalloc.stop()
            gc.enable()
        assert made.door.held == 0


@story
async def test_a_shadow_that_hangs_holds_few_bodies(monkeypatch: pytest.MonkeyPatch) -> None:
    async def never(stub: Stub, served: Served) -> None:
        await asyncio.sleep(60)

    monkeypatch.setattr("ganger.serving.front.proxy.COPIES_BYTES_MAX", 1000)
    async with rig(TERMS, Version(1), Version(2, 0.0, shadow=True)) as made:
        await made.add(Stub("1"), 1)
        stub = Stub("2", never)
        shadow = await made.add(stub, 2)
        for _ in range(10):
            assert (await made.ask(bytes(300)))[0] == 200
        assert len(shadow.requests) == 3
        stub.kill()
        await until(lambda: not shadow.requests)
        assert (made.front._copies, made.front._copies_bytes) == (0, 0)


@story
async def test_requests_sent_ahead_are_few() -> None:
    async def never(stub: Stub, served: Served) -> None:
        await asyncio.sleep(60)

    async with rig() as made:
        one = await made.add(Stub("a", never))
        assert await say(made, b"GET / HTTP/1.1\r\n\r\n" * 10_000) == b""
        assert not one.requests


@story
async def test_nothing_is_written_within_an_answer() -> None:
    go = asyncio.Event()

    async def slow(stub: Stub, served: Served) -> None:
        if not served.body:
            served.transport.write(b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nha")
            await go.wait()
        served.transport.write(b"lf" if not served.body else b"HTTP/1.1 204 No\r\n\r\n")

    async with rig() as made:
        await made.add(Stub("a", slow))
        reader, writer = await asyncio.open_connection("127.0.0.1", made.port)
        writer.write(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
        await reader.readuntil(b"ha")
        writer.write(b"POST / HTTP/1.1\r\nexpect: 100-continue\r\ncontent-length: 1\r\n\r\n")
        await until(lambda: any(each._phase == "body" for each in made.door.open))
        go.set()
        assert await reader.readexactly(2) == b"lf"
        writer.write(b"x")
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 204")
        writer.close()


def front_settings(home: Path) -> str:
    """A front of a home without a daemon."""
    return msgspec.json.encode(Settings(str(home), "web", port=0)).decode()


def test_clients_leave_descriptors_for_replicas(tmp_path: Path) -> None:
    front = subprocess.Popen(
        [sys.executable, "-m", "ganger.serving.front", front_settings(tmp_path)],
        stderr=subprocess.PIPE,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (200, 200)),
    )
    with front, contextlib.ExitStack() as clients:
        assert front.stderr is not None
        url = front.stderr.readline().decode().split()[-1]
        found = list[socket.socket]()
        for _ in range(60):
            client = socket.create_connection(("127.0.0.1", int(url.rpartition(":")[2])))
            found.append(clients.enter_context(client))
            client.sendall(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
        refused = [*select.select(found, [], [], 5.0)[0]]
        until = time.monotonic() + 5.0
        while len(refused) < 10 and time.monotonic() < until:
            time.sleep(0.05)
            refused = [*select.select(found, [], [], 5.0)[0]]
        assert len(refused) == 10
        assert {client.recv(12) for client in refused} == {b"HTTP/1.1 503"}
        front.terminate()
