"""Replicas of many characters, and a front over them, in one event loop."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from functools import wraps
from typing import Any, ParamSpec

import httptools

from ganger.serving.front.balance import Replica, Version
from ganger.serving.front.proxy import Front, Terms
from ganger.serving.http.connections import Door
from ganger.serving.http.limits import limits_of

P = ParamSpec("P")
Answer = Callable[["Stub", "Served"], Coroutine[Any, Any, None]]
TERMS = Terms(wait_seconds=5.0, longest_seconds=5.0, check_seconds=0.3)


class Served(asyncio.Protocol):
    """A connection to a stub."""

    def __init__(self, stub: Stub) -> None:
        self._stub = stub
        self._parser = httptools.HttpRequestParser(self)
        self.url, self.headers, self.body = b"", dict[bytes, bytes](), b""
        self.transport: Any = None

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        self._stub.connections += 1
        self._stub.open.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._stub.open.discard(self)

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_url(self, url: bytes) -> None:
        self.url, self.headers, self.body = url, {}, b""

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers[name.lower()] = value

    def on_body(self, body: bytes) -> None:
        self.body += body

    def on_message_complete(self) -> None:
        if self.url == TERMS.health.encode():
            if not self._stub.deaf:
                self.say(200 if self._stub.well else 503, b"")
            return
        self._stub.asked.append((self.url, self.headers, self.body))
        self._stub.tasks.add(asyncio.create_task(self._stub.answer(self._stub, self)))

    def say(self, status: int, body: bytes) -> None:
        self.transport.write(
            b"HTTP/1.1 %d OK\r\ncontent-length: %d\r\nserver: %b\r\n\r\n%b"
            % (status, len(body), self._stub.name.encode(), body)
        )


async def plain(stub: Stub, served: Served) -> None:
    """Its name, and the body that was sent."""
    served.say(200, stub.name.encode() + b":" + served.body)


class Stub:
    """A server that is no model: it answers as it is told."""

    def __init__(self, name: str, answer: Answer = plain) -> None:
        self.name, self.answer = name, answer
        self.asked: list[tuple[bytes, dict[bytes, bytes], bytes]] = []
        self.open: set[Served] = set()
        self.tasks: set[asyncio.Task[None]] = set()
        self.connections, self.well, self.deaf = 0, True, False
        self.port = 0

    async def start(self) -> None:
        self._server = await asyncio.get_running_loop().create_server(
            lambda: Served(self), "127.0.0.1", self.port
        )
        self.port = self._server.sockets[0].getsockname()[1]

    def kill(self) -> None:
        """As kill -9 does it."""
        self._server.close()
        for served in [*self.open]:
            served.transport.abort()
        for task in self.tasks:
            task.cancel()


class Rig:
    """A front over stubs."""

    def __init__(self, front: Front, door: Door, port: int) -> None:
        self.front, self.door, self.port = front, door, port
        self.stubs: list[Stub] = []

    async def add(self, stub: Stub, version: int = 1) -> Replica:
        """One more replica, whose health was checked."""
        if not stub.port:
            await stub.start()
        self.stubs.append(stub)
        found = [*self.front.replicas.values()]
        one = Replica(100 + len(self.stubs), 1, version, "127.0.0.1", stub.port)
        self.front.set_replicas([*found, one])
        await until(lambda: one.healthy)
        return one

    async def ask(
        self, body: bytes = b"", target: str = "/v2/models/m/infer", headers: str = ""
    ) -> tuple[int, dict[str, str], bytes]:
        """A request over a connection of its own: status, headers, body as it came."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        writer.write(
            f"POST {target} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n{headers}"
            f"content-length: {len(body)}\r\n\r\n".encode()
            + body
        )
        answer = await reader.read()
        writer.close()
        if not answer:
            return 0, {}, b""
        head, _, rest = answer.partition(b"\r\n\r\n")
        first, *lines = head.decode().split("\r\n")
        named = dict(line.lower().split(": ", 1) for line in lines)
        return int(first.split()[1]), named, rest


@contextlib.asynccontextmanager
async def rig(terms: Terms = TERMS, *versions: Version) -> AsyncIterator[Rig]:
    """A front that listens."""
    front = Front(terms, seed=1)
    front.set_versions(versions or [Version(1)])
    door = Door(front.handle, lambda request, status, seconds: None, limits_of())
    server = await asyncio.get_running_loop().create_server(door.make, "127.0.0.1", 0)
    made = Rig(front, door, server.sockets[0].getsockname()[1])

    async def look() -> None:
        while True:
            await asyncio.sleep(0.05)
            front.look()

    looking = asyncio.create_task(look())
    try:
        yield made
    finally:
        looking.cancel()
        front.close()
        server.close()
        door.end()
        for stub in made.stubs:
            stub.kill()


async def until(holds: Callable[[], bool], seconds: float = 10.0) -> None:
    """Until it holds."""
    async with asyncio.timeout(seconds):
        while not holds():
            await asyncio.sleep(0.005)


def story(tell: Callable[P, Awaitable[None]]) -> Callable[P, None]:
    """A coroutine as a test."""

    @wraps(tell)
    def test(*args: P.args, **kwargs: P.kwargs) -> None:
        async def within() -> None:
            async with asyncio.timeout(30):
                await tell(*args, **kwargs)

        asyncio.run(within())

    return test
