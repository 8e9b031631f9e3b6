"""A client of the Open Inference Protocol that sends at given times, not when answers come."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any, Final

import httptools
import msgspec

from ganger.core.errors import BadInput

_DOWN: Final = 0
Done = Callable[[int, dict[bytes, bytes], bytes], None]
"""Hears status (0: the connection failed), headers and body of an answer."""


class Pool:
    """Connections to a server: a request takes one that is free, or a new one, or waits while all
    `limit` are busy."""

    def __init__(self, host: str, port: int, limit: int) -> None:
        self.host, self.port, self.limit = host, port, limit
        self._free: list[_Connection] = []
        self._waiting: deque[tuple[bytes, Done]] = deque()
        self._open: set[_Connection] = set()
        self._opening: set[asyncio.Task[None]] = set()

    def send(self, data: bytes, done: Done) -> None:
        """Send a request as soon as a connection is free."""
        if self._free:
            self._free.pop().ask(data, done)
            return
        self._waiting.append((data, done))
        if len(self._open) + len(self._opening) < self.limit:
            task = asyncio.ensure_future(self._connect())
            self._opening.add(task)
            task.add_done_callback(self._opening.discard)

    async def ask(self, data: bytes) -> tuple[int, bytes]:
        """Send a request and wait: status and body of the answer."""
        future: asyncio.Future[tuple[int, bytes]] = asyncio.get_running_loop().create_future()
        self.send(data, lambda status, _, body: future.set_result((status, body)))
        return await future

    async def _connect(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            _, made = await loop.create_connection(lambda: _Connection(self), self.host, self.port)
        except OSError:
            if self._waiting:
                _, done = self._waiting.popleft()
                done(_DOWN, {}, b"")
            return
        self._open.add(made)
        self.freed(made)

    def freed(self, connection: _Connection) -> None:
        """A connection has nothing to do."""
        if self._waiting:
            connection.ask(*self._waiting.popleft())
        else:
            self._free.append(connection)

    def lost(self, connection: _Connection) -> None:
        """A connection is over; those that wait get another."""
        self._open.discard(connection)
        if connection in self._free:
            self._free.remove(connection)
        if self._waiting:
            self.send(*self._waiting.popleft())

    def close(self) -> None:
        """End all connections."""
        for connection in [*self._open]:
            connection.end()


class _Connection(asyncio.Protocol):
    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._parser: Any = None
        self._transport: Any = None
        self._done: Done | None = None
        self._headers: dict[bytes, bytes] = {}
        self._body: list[bytes] = []

    def ask(self, data: bytes, done: Done) -> None:
        self._done, self._headers, self._body = done, {}, []
        self._parser = httptools.HttpResponseParser(self)
        self._transport.write(data)

    def end(self) -> None:
        self._transport.close()

    def connection_made(self, transport: Any) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        try:
            if self._parser is not None:
                self._parser.feed_data(data)
        except httptools.HttpParserError:
            self._transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        done, self._done = self._done, None
        self._pool.lost(self)
        if done is not None:
            done(_DOWN, {}, b"")

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers[name.lower()] = value

    def on_body(self, body: bytes) -> None:
        self._body.append(body)

    def on_message_complete(self) -> None:
        status, keeps = self._parser.get_status_code(), self._parser.should_keep_alive()
        if 100 <= status < 200:
            return
        done, self._done = self._done, None
        headers, body = self._headers, b"".join(self._body)  # the next request clears both
        if keeps:
            self._pool.freed(self)
        else:
            self._transport.close()
        if done is not None:
            done(status, headers, body)


def http(method: str, path: str, host: str, body: bytes = b"", head_bytes: int = 0) -> bytes:
    """A request; `head_bytes`: of JSON in the body, where binary tensors follow."""
    binary = f"inference-header-content-length: {head_bytes}\r\n" if head_bytes else ""
    return (
        f"{method} {path} HTTP/1.1\r\nhost: {host}\r\ncontent-length: {len(body)}\r\n{binary}\r\n"
    ).encode() + body


async def fetch(pool: Pool, path: str, host: str) -> Any:
    """JSON at a path; None where there is none. Raises BadInput where nobody answers."""
    status, body = await pool.ask(http("GET", path, host))
    if status == _DOWN:
        raise BadInput(
            "nothing answers there", where=f"http://{host}", mend="start it: ganger serve FILE"
        )
    try:
        return msgspec.json.decode(body) if status == 200 else None
    except msgspec.DecodeError:
        return None
