"""The front over replicas that answer, fail, die, hang and stream."""

from __future__ import annotations

import asyncio
import os
import sys
from collections import Counter

import pytest

from ganger.serving.front.balance import FAILURES, Replica, Version
from ganger.serving.front.proxy import Terms
from serving.live.front.rig import TERMS, Served, Stub, rig, story, until


@story
async def test_requests_are_carried_whole_and_answers_come_back() -> None:
    async with rig() as made:
        stub = Stub("a")
        await made.add(stub)
        target = "/v1/chat?stream=true&x=1"
        status, headers, body = await made.ask(b"\x00\xffdata", target, "x-y: z\r\n")
        assert (status, body) == (200, b"a:\x00\xffdata")
        assert headers["server"] == "a"
        url, sent, _ = stub.asked[0]
        assert url == target.encode()
        assert (sent[b"x-y"], sent[b"host"]) == (b"z", b"x")
        assert sent[b"x-request-id"]
        assert b"connection" not in sent


@story
async def test_what_is_about_one_connection_goes_no_further() -> None:
    async with rig() as made:
        stub = Stub("a")
        await made.add(stub)
        await made.ask(headers="te: trailers\r\nx-kept: 1\r\nkeep-alive: 5\r\n")
        sent = stub.asked[0][1]
        assert b"te" not in sent
        assert b"keep-alive" not in sent
        assert sent[b"x-kept"] == b"1"
        reader, writer = await asyncio.open_connection("127.0.0.1", made.port)
        writer.write(
            b"GET /x HTTP/1.1\r\nhost: x\r\nconnection: close, x-secret\r\nx-secret: 1\r\n\r\n"
        )
        assert (await reader.read()).startswith(b"HTTP/1.1 200")
        assert b"x-secret" not in stub.asked[1][1]
        writer.close()


@story
async def test_connections_to_replicas_are_used_again() -> None:
    async with rig() as made:
        stub = Stub("a")
        await made.add(stub)
        before = stub.connections
        for _ in range(20):
            assert (await made.ask())[0] == 200
        assert stub.connections - before <= 5  # one, and the health checks of that time


@story
async def test_a_connection_that_a_replica_closed_meanwhile_costs_nothing() -> None:
    async with rig() as made:
        stub = Stub("a")
        one = await made.add(stub)
        for _ in range(3):
            assert (await made.ask())[0] == 200
            for served in [*stub.open]:
                served.transport.abort()
        assert one.failures == 0
        assert made.front.all.errors == 0


@story
async def test_load_goes_where_it_is_answered_soonest() -> None:
    async def slow(stub: Stub, served: Served) -> None:
        await asyncio.sleep(0.2)
        served.say(200, stub.name.encode())

    async def quick(stub: Stub, served: Served) -> None:
        await asyncio.sleep(0.01)
        served.say(200, stub.name.encode())

    async with rig() as made:
        for stub in (Stub("slow", slow), Stub("quick", quick)):
            await made.add(stub)
        for _ in range(20):
            await asyncio.gather(*(made.ask() for _ in range(4)))
        asked = {stub.name: len(stub.asked) for stub in made.stubs}
        assert asked["slow"] >= 1
        assert asked["quick"] > 3 * asked["slow"]


@story
async def test_a_request_whose_replica_dies_is_answered_by_another() -> None:
    async def dies(stub: Stub, served: Served) -> None:
        stub.kill()

    async with rig() as made:
        for stub in (Stub("dies", dies), Stub("lives")):
            await made.add(stub)
        answers = await asyncio.gather(*(made.ask(b"%d" % n) for n in range(20)))
        assert {status for status, _, _ in answers} == {200}
        assert sorted(body for _, _, body in answers) == sorted(b"lives:%d" % n for n in range(20))


@story
async def test_an_answer_that_breaks_off_shows_that_it_did() -> None:
    async def half(stub: Stub, served: Served) -> None:
        served.transport.write(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nhalf")
        await asyncio.sleep(0.05)
        served.transport.abort()

    async with rig() as made:
        for stub in (Stub("half", half), Stub("also", half)):
            await made.add(stub)
        reader, writer = await asyncio.open_connection("127.0.0.1", made.port)
        writer.write(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
        found = b""
        try:
            while data := await reader.read(1000):
                found += data
        except ConnectionResetError:
            pass
        assert found.endswith(b"half")
        assert sum(len(stub.asked) for stub in made.stubs) == 1  # it is not asked for twice
        assert made.front.all.errors == 1
        writer.close()


@story
async def test_streams_pass_as_they_come() -> None:
    go = asyncio.Event()

    async def streams(stub: Stub, served: Served) -> None:
        served.transport.write(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
        for n in range(3):
            served.transport.write(b"8\r\ndata: %d\n\r\n" % n)
            go.clear()
            await go.wait()
        served.transport.write(b"0\r\n\r\n")

    async with rig() as made:
        await made.add(Stub("a", streams))
        reader, writer = await asyncio.open_connection("127.0.0.1", made.port)
        writer.write(b"GET /v1/stream HTTP/1.1\r\nhost: x\r\n\r\n")
        head = await reader.readuntil(b"\r\n\r\n")
        assert b"transfer-encoding: chunked" in head
        for n in range(3):  # each is here before the next is made
            assert await reader.readuntil(b"\n\r\n") == b"8\r\ndata: %d\n\r\n" % n
            go.set()
        assert await reader.readexactly(5) == b"0\r\n\r\n"
        writer.write(b"HEAD /again HTTP/1.1\r\nhost: x\r\n\r\n")  # and the connection goes on
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200")
        writer.close()


@story
async def test_a_client_that_goes_away_frees_its_place() -> None:
    async def never(stub: Stub, served: Served) -> None:
        await asyncio.sleep(60)

    async with rig() as made:
        stub = Stub("a", never)
        one = await made.add(stub)
        _, writer = await asyncio.open_connection("127.0.0.1", made.port)
        writer.write(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
        await until(lambda: bool(stub.asked))
        assert len(one.requests) == 1
        writer.transport.abort()
        await until(lambda: not one.requests)
        await until(lambda: not stub.open)


@story
async def test_a_reader_that_is_slow_holds_the_replica_back_and_not_memory() -> None:
    wrote = 0

    async def much(stub: Stub, served: Served) -> None:
        nonlocal wrote
        served.transport.write(b"HTTP/1.1 200 OK\r\ncontent-length: 268435456\r\n\r\n")
        for _ in range(256):
            while served.transport.get_write_buffer_size() > 1 << 20:
                await asyncio.sleep(0.005)
            served.transport.write(bytes(1 << 20))
            wrote += 1 << 20

    async with rig() as made:
        await made.add(Stub("a", much))
        _, writer = await asyncio.open_connection("127.0.0.1", made.port, limit=1 << 10)
        writer.write(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
        await until(lambda: wrote > 1 << 20)
        await asyncio.sleep(0.5)
        assert wrote < 64 << 20
        writer.transport.abort()


@story
async def test_a_replica_that_hangs_gets_nothing_and_loses_what_it_had() -> None:
    async def hangs(stub: Stub, served: Served) -> None:
        stub.deaf = True
        await asyncio.sleep(60)

    async with rig() as made:
        hanging = await made.add(Stub("hangs", hangs))
        first = asyncio.create_task(made.ask(b"1"))
        await until(lambda: bool(hanging.requests))
        await made.add(Stub("lives"))
        status, _, body = await first
        assert (status, body) == (200, b"lives:1")
        assert not hanging.healthy


@story
async def test_where_there_is_no_replica_requests_wait_for_one() -> None:
    async with rig() as made:
        asked = asyncio.gather(*(made.ask(b"%d" % n) for n in range(5)))
        await until(lambda: made.front.waiting == 5)
        await made.add(Stub("late"))
        assert {body for _, _, body in await asked} == {b"late:%d" % n for n in range(5)}


@story
async def test_and_not_for_ever_and_not_too_many() -> None:
    async with rig(Terms(wait_seconds=0.2, waiting=2)) as made:
        answers = await asyncio.gather(*(made.ask() for _ in range(3)))
        assert {status for status, _, _ in answers} == {503}
        for _, headers, _ in answers:
            assert (headers["ganger-reason"], headers["retry-after"]) == ("no-replica", "1")
        assert made.front.all.dropped == 3
        assert made.front.waiting == 0


@story
async def test_one_that_leaves_finishes_what_it_has_and_gets_nothing_new() -> None:
    go = asyncio.Event()

    async def waits(stub: Stub, served: Served) -> None:
        await go.wait()
        served.say(200, b"whole")

    async with rig() as made:
        leaving = await made.add(Stub("leaves", waits))
        first = asyncio.create_task(made.ask())
        await until(lambda: bool(leaving.requests))
        await made.add(Stub("stays"))
        leaving.leaving = True
        for _ in range(5):
            assert (await made.ask())[2] == b"stays:"
        go.set()
        assert (await first)[2] == b"whole"


@story
async def test_one_that_answers_with_errors_is_left_out_but_never_all() -> None:
    async def ill(stub: Stub, served: Served) -> None:
        served.say(500, b"ill")

    async with rig() as made:
        ones = [await made.add(Stub("ill", ill)), await made.add(Stub("well"))]
        found = Counter[int]()
        for _ in range(40):
            found[(await made.ask())[0]] += 1
        assert ones[0].out_until > 0
        assert found[500] <= FAILURES
        made.stubs[1].answer = ill
        for _ in range(40):
            found[(await made.ask())[0]] += 1
        assert ones[1].out_until == 0


@story
async def test_versions_get_their_parts_and_a_shadow_only_copies() -> None:
    async with rig(TERMS, Version(1, 3.0), Version(2, 1.0), Version(3, 0.0, shadow=True)) as made:
        for version in (1, 2, 3):
            await made.add(Stub(str(version)), version)
        bodies = Counter([(await made.ask())[2] for _ in range(100)])
        assert set(bodies) == {b"1:", b"2:"}
        assert 10 <= bodies[b"2:"] <= 40
        await until(lambda: len(made.stubs[2].asked) == 100)
        assert made.front.counts[3].answers == 100
        assert made.front.all.answers == 100


@story
async def test_a_version_without_replicas_is_no_reason_to_wait() -> None:
    async with rig(TERMS, Version(1, 1.0), Version(2, 1.0)) as made:
        await made.add(Stub("1"), 1)
        assert {(await made.ask())[2] for _ in range(20)} == {b"1:"}


@pytest.mark.skipif(os.getuid() != 0, reason="another user needs root")
@story
async def test_a_port_at_which_another_user_listens_gets_nothing() -> None:
    code = (
        "import os, socket\nos.setuid(65534)\nmade = socket.create_server(('127.0.0.1', 0))\n"
        "print(made.getsockname()[1], flush=True)\n"
        "while True:\n    made.accept()[0].send(b'HTTP/1.1 200 OK\\r\\n\\r\\n')\n"
    )
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        code,
        cwd="/",
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    port = int(await process.stdout.readline())
    try:
        async with rig() as made:
            made.front.set_replicas([Replica(1, 1, 1, "127.0.0.1", port)])
            theirs = made.front.replicas[1, 1]
            await asyncio.sleep(0.5)
            assert not theirs.healthy
            await made.add(Stub("mine"))
            assert (await made.ask())[2] == b"mine:"
    finally:
        process.kill()
        await process.wait()


@story
async def test_what_is_not_http_is_a_failure_of_the_replica() -> None:
    async def nonsense(stub: Stub, served: Served) -> None:
        served.transport.write(b"220 smtp.example ESMTP\r\n")

    async with rig() as made:
        await made.add(Stub("a", nonsense))
        status, headers, _ = await made.ask()
        assert (status, headers["ganger-reason"]) == (502, "replica-failed")
        assert made.front.all.errors == 1
