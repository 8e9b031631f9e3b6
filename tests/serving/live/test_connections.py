"""Connections that are slow, or too many, in a door of this process with short limits."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from ganger.serving.http.connections import Connection, Door, Request
from ganger.serving.http.limits import Limits
from serving.live.rig import run

BIG = 8 << 20
Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Counter:
    """A door whose requests are answered with their path; those for /wait only when it says so."""

    def __init__(self, limits: Limits) -> None:
        self.door = Door(self.handle, lambda *_: None, limits)
        self.waiting: list[Callable[[], None]] = []
        self.gone = 0

    def handle(self, connection: Connection, request: Request) -> None:
        def leave() -> None:
            self.gone += 1

        if request.path == "/wait":
            request.gone = leave
            self.waiting.append(lambda: connection.reply(request, 200, [b"waited"]))
        elif request.path == "/big":
            connection.reply(request, 200, [b"x" * BIG])
        elif request.path == "/fault":
            raise RuntimeError("on purpose")
        else:
            connection.reply(request, 200, [request.path.encode(), request.body])

    async def open(self) -> Streams:
        return await asyncio.open_connection("127.0.0.1", self.port)

    async def __aenter__(self) -> Counter:
        loop = asyncio.get_running_loop()
        self.server = await loop.create_server(self.door.make, "127.0.0.1", 0)
        self.port = self.server.sockets[0].getsockname()[1]
        self.door.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        self.server.close()
        self.door.end()
        await asyncio.sleep(0.02)
        assert not self.door.open
        assert self.door.held == 0


def play(limits: Limits, story: Callable[[Counter], Any]) -> None:
    async def inside() -> None:
        async with Counter(limits) as counter:
            await asyncio.wait_for(story(counter), 15)

    run(inside)


async def answer(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    head = await reader.readuntil(b"\r\n\r\n")
    length = int(head.split(b"content-length: ")[1].split(b"\r\n")[0])
    return int(head.split()[1]), await reader.readexactly(length)


@pytest.mark.parametrize(
    ("begun", "why"),
    [
        (b"GET / HTTP/1.1\r\nx-slow: 1\r\n", b"the head of the request took too long"),
        (b"POST / HTTP/1.1\r\ncontent-length: 9\r\n\r\nabc", b"the body of the request took to"),
    ],
)
def test_who_is_slow_to_ask_is_ended(begun: bytes, why: bytes) -> None:
    async def story(counter: Counter) -> None:
        reader, writer = await counter.open()
        writer.write(begun)
        status, body = await answer(reader)
        assert status == 408
        assert why in body
        assert await reader.read() == b""
        writer.close()

    play(Limits(head_seconds=0.1, body_seconds=0.1), story)


def test_who_asks_nothing_is_ended_and_who_waits_for_an_answer_is_not() -> None:
    async def story(counter: Counter) -> None:
        idle, idle_writer = await counter.open()
        reader, writer = await counter.open()
        writer.write(b"GET /wait HTTP/1.1\r\n\r\n")
        assert await idle.read() == b""
        counter.waiting.pop()()
        assert await answer(reader) == (200, b"waited")
        idle_writer.close()
        writer.close()

    play(Limits(idle_seconds=0.1), story)


def test_who_does_not_read_the_answer_is_ended_and_lets_go_of_it() -> None:
    async def story(counter: Counter) -> None:
        _, writer = await counter.open()
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        writer.write(b"GET /big HTTP/1.1\r\n\r\n")
        await asyncio.sleep(0.1)
        assert counter.door.held > BIG // 2
        while counter.door.open:
            await asyncio.sleep(0.05)
        assert counter.door.held == 0
        writer.close()

    play(Limits(read_seconds=0.1), story)


def test_an_answer_that_is_read_slowly_is_read_whole() -> None:
    async def story(counter: Counter) -> None:
        reader, writer = await counter.open()
        writer.write(b"GET /big HTTP/1.1\r\n\r\nGET /next HTTP/1.1\r\n\r\n")
        head = await reader.readuntil(b"\r\n\r\n")
        assert b"200 OK" in head
        for _ in range(8):
            await asyncio.sleep(0.25)
            await reader.readexactly(BIG // 8)
        assert await answer(reader) == (200, b"/next")
        writer.close()

    play(Limits(read_seconds=1.5), story)


def test_requests_in_one_breath_are_answered_in_order() -> None:
    async def story(counter: Counter) -> None:
        reader, writer = await counter.open()
        writer.write(b"GET /wait HTTP/1.1\r\n\r\n")
        writer.write(b"POST /a HTTP/1.1\r\ncontent-length: 2\r\n\r\nhi")
        writer.write(b"".join(b"GET /%d HTTP/1.1\r\n\r\n" % at for at in range(500)))
        await asyncio.sleep(0.05)
        assert len(counter.waiting) == 1
        counter.waiting.pop()()
        assert await answer(reader) == (200, b"waited")
        assert await answer(reader) == (200, b"/ahi")
        for at in range(500):
            assert await answer(reader) == (200, b"/%d" % at)
        writer.close()

    play(Limits(), story)


def test_a_connection_too_many_is_refused_unless_another_does_nothing() -> None:
    async def story(counter: Counter) -> None:
        busy = [await counter.open() for _ in range(2)]
        for _, writer in busy:
            writer.write(b"GET /wait HTTP/1.1\r\n\r\n")
        await asyncio.sleep(0.05)
        reader, writer = await counter.open()
        status, body = await answer(reader)
        assert (status, body) == (503, b'{"error":"too many connections are open"}')
        counter.waiting.pop(0)()
        await answer(busy[0][0])
        again, again_writer = await counter.open()
        again_writer.write(b"GET /in HTTP/1.1\r\n\r\n")
        assert await answer(again) == (200, b"/in")
        assert await busy[0][0].read() == b""  # it was idle, and made way
        for each in (writer, again_writer, *(w for _, w in busy)):
            each.close()

    play(Limits(connections=2), story)


def test_a_client_that_goes_away_is_noticed_while_its_request_runs() -> None:
    async def story(counter: Counter) -> None:
        _, writer = await counter.open()
        writer.write(b"GET /wait HTTP/1.1\r\n\r\n")
        await asyncio.sleep(0.05)
        writer.close()
        while not counter.gone:
            await asyncio.sleep(0.01)
        counter.waiting.pop()()  # an answer that comes too late is passed over

    play(Limits(), story)


def test_a_fault_of_ours_is_an_answer_and_a_line_in_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def story(counter: Counter) -> None:
        reader, writer = await counter.open()
        writer.write(b"GET /fault HTTP/1.1\r\n\r\nGET /after HTTP/1.1\r\n\r\n")
        assert await answer(reader) == (500, b'{"error":"a fault inside"}')
        assert await answer(reader) == (200, b"/after")
        writer.close()

    play(Limits(), story)
    assert "GET '/fault'" in caplog.text
    assert "on purpose" in caplog.text


def test_a_door_that_closes_answers_what_it_has_begun() -> None:
    async def story(counter: Counter) -> None:
        idle, idle_writer = await counter.open()
        reader, writer = await counter.open()
        writer.write(b"GET /wait HTTP/1.1\r\n\r\nGET /more HTTP/1.1\r\n\r\n")
        await asyncio.sleep(0.05)
        counter.door.stop()
        assert await idle.read() == b""
        counter.waiting.pop()()
        assert await answer(reader) == (200, b"waited")
        assert await reader.read() == b""
        idle_writer.close()
        writer.close()

    play(Limits(), story)
