"""HTTP/1.1 connections over httptools: what they may send, for how long, and how many there may be.

A connection answers one request at a time; while it does, it reads at most a little ahead. All
bytes of bodies that are held are counted together, and those of each tenant. A request of which the
head has no key that counts ends its connection before its body is read.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from http import HTTPStatus
from time import monotonic
from typing import Any, Final

import httptools
import msgspec
from msgspec import Struct

from ganger.serving.calls import Trace
from ganger.serving.http.limits import Limits

log = logging.getLogger("ganger.serving")
SWEEP_SECONDS: Final = 1.0
_CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"


class Request(Struct, eq=False):
    """A request that has come in whole. `path` is without the query."""

    method: str
    path: str
    headers: dict[bytes, bytes]
    body: bytes
    began: float
    """Monotonic seconds at its first byte."""
    keeps: bool
    """Whether the connection stays open after it."""
    gone: Callable[[], None] | None = None
    """Called when the client goes away before the answer, or in its midst."""
    flow: Callable[[bool], None] | None = None
    """Called where an answer comes in pieces: False once the client reads too slowly, True when it
    has read most."""
    target: bytes = b""
    """As it was asked for: path and query."""
    chunks: bool = True
    """Whether an answer of unknown length may come in chunks (HTTP/1.1)."""
    note: str = ""
    """What the access log says of it, besides the status."""
    id: str = ""
    tenant: int = 0
    trace: Trace | None = None


class Door:
    """All connections of a server: their limits, and what is done with a request. `handle` answers
    with `Connection.reply`, at once or later, once. `admit`: the code of the tenant that a head is
    of, None where it has no key that counts."""

    def __init__(
        self,
        handle: Callable[[Connection, Request], None],
        answered: Callable[[Request | None, int, float], None],
        limits: Limits,
        admit: Callable[[str, Mapping[bytes, bytes]], int | None] = lambda path, headers: 0,
    ) -> None:
        self.handle, self.answered, self.limits, self.admit = handle, answered, limits, admit
        self.open: dict[Connection, None] = {}
        self.held = 0
        """Bytes of bodies and of answers that wait to be read."""
        self.held_of: dict[int, int] = {}
        """By tenant, bytes of bodies."""
        self.closing = False
        self._sweeper: asyncio.TimerHandle | None = None

    def make(self) -> Connection:
        """A new connection."""
        return Connection(self)

    def start(self) -> None:
        """Look after connections from now on."""
        loop = asyncio.get_running_loop()
        self._sweeper = loop.call_later(SWEEP_SECONDS, self._sweep)

    def _sweep(self) -> None:
        loop = asyncio.get_running_loop()
        now = monotonic()
        for connection in [*self.open]:
            connection.look(now)
        self._sweeper = loop.call_later(SWEEP_SECONDS, self._sweep)

    def stop(self) -> None:
        """Take no further request on any connection; those that answer end after that."""
        self.closing = True
        for connection in [*self.open]:
            connection.finish()

    def end(self) -> None:
        """End all connections."""
        if self._sweeper is not None:
            self._sweeper.cancel()
        for connection in [*self.open]:
            connection.hang_up()

    def has_room(self) -> bool:
        """Whether one more may come; one that does nothing makes way for it."""
        if len(self.open) < self.limits.connections:
            return True
        oldest = min(
            (each for each in self.open if each.is_idle), key=lambda each: each.since, default=None
        )
        if oldest is None:
            return False
        oldest.hang_up()
        del self.open[oldest]
        return True


class Connection(asyncio.Protocol):
    """One connection. See the module."""

    def __init__(self, door: Door) -> None:
        self._door = door
        self._loop = asyncio.get_running_loop()
        self._parser = httptools.HttpRequestParser(self)
        self._transport: Any = None
        self._waiting: deque[Request] = deque()
        self._request: Request | None = None
        self._phase = ""
        """Of the request that is being read: "", head or body."""
        self.since = monotonic()
        """When that phase began."""
        self._url, self._headers = b"", dict[bytes, bytes]()
        self._body: list[bytes] = []
        self._size = self._head_bytes = self._length = 0
        """Bytes of the body; of what came of a head; of what came behind it, framing too."""
        self._taken: dict[int, int] = {}
        """By tenant, bytes of bodies that count for this connection."""
        self._unread = 0
        """Bytes of answers that do."""
        self._tenant = 0
        """Of the request that is being read."""
        self._paused = self._ends = self._chunked = False
        self._keeps = True
        self._stalled = 0.0
        """When the client stopped reading its answer; 0: it reads."""

    @property
    def is_idle(self) -> bool:
        """Whether it neither reads nor answers a request."""
        return self._request is None and not self._phase and not self._waiting

    # ------------------------------------------------------------------ the transport

    def connection_made(self, transport: Any) -> None:
        """There is a client."""
        self._transport = transport
        if not self._door.has_room():
            self._refuse(HTTPStatus.SERVICE_UNAVAILABLE, "too many connections are open")
            return
        self._door.open[self] = None

    def connection_lost(self, exc: Exception | None) -> None:
        """The client is gone, and its requests with it."""
        self._door.open.pop(self, None)
        for tenant, size in [*self._taken.items()]:
            self._hold(tenant, -size)
        self._door.held -= self._unread
        self._unread = 0
        self._ends = True
        self._waiting.clear()
        self._body.clear()  # the parser and we hold each other
        request, self._request = self._request, None
        if request is not None and request.gone is not None:
            request.gone()

    def eof_received(self) -> bool:
        """The client sends no more, which says that it is gone."""
        return False

    def data_received(self, data: bytes) -> None:
        """Some bytes have come."""
        if self._ends:
            return
        if self._phase == "body":
            self._length += len(data)
        else:
            self._head_bytes += len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            pass  # it was refused with its head
        except httptools.HttpParserError as error:
            if not self._ends:
                self._refuse(HTTPStatus.BAD_REQUEST, f"it is not valid HTTP: {error}")
        if self._phase == "head" and self._head_bytes > self._door.limits.head:
            self._too_long()
        elif self._phase == "body" and self._length > 2 * self._size + self._door.limits.head:
            self._refuse(HTTPStatus.BAD_REQUEST, "the body is mostly not data")
        if self._waiting and not self._paused and not self._ends:
            self._paused = True
            self._transport.pause_reading()

    def pause_writing(self) -> None:
        """The client does not read as fast as it is answered."""
        self._stalled = monotonic()
        self._unread = self._transport.get_write_buffer_size()
        self._door.held += self._unread
        if self._request is not None and self._request.flow is not None:
            self._request.flow(False)

    def resume_writing(self) -> None:
        """It has read most."""
        self._stalled = 0.0
        self._door.held -= self._unread
        self._unread = 0
        if self._request is not None and self._request.flow is not None:
            self._request.flow(True)
        self._go_on()

    def look(self, now: float) -> None:
        """End it where something has taken too long."""
        limits, waited = self._door.limits, now - self.since
        if self._stalled:
            size = self._transport.get_write_buffer_size()
            if size < self._unread:  # it reads, slowly
                self._door.held -= self._unread - size
                self._unread, self._stalled = size, now
            elif now - self._stalled > limits.read_seconds:
                self.hang_up()
        elif self._phase == "head" and waited > limits.head_seconds:
            self._refuse(HTTPStatus.REQUEST_TIMEOUT, "the head of the request took too long")
        elif self._phase == "body" and waited > limits.body_seconds:
            self._refuse(HTTPStatus.REQUEST_TIMEOUT, "the body of the request took too long")
        elif self.is_idle and waited > limits.idle_seconds:
            self.hang_up()

    def hang_up(self) -> None:
        """End it at once."""
        self._transport.abort()

    def finish(self) -> None:
        """End it after what it answers now."""
        if self._request is None:
            self._close()

    def _close(self) -> None:
        self._ends = True
        self._transport.close()

    # ------------------------------------------------------------------ the parser

    def on_message_begin(self) -> None:
        """A request begins."""
        self._phase, self.since = "head", monotonic()
        self._url, self._headers, self._body = b"", {}, []
        self._size = 0

    def on_url(self, url: bytes) -> None:
        """A piece of the request line."""
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header is there; those behind a body mean nothing here."""
        if self._phase == "head":
            name = name.lower()
            before = self._headers.get(name)
            self._headers[name] = value if before is None else b"%b, %b" % (before, value)

    def on_headers_complete(self) -> None:
        """The head is over."""
        if self._ends:
            return
        limits = self._door.limits
        size = len(self._url) + sum(len(a) + len(b) + 4 for a, b in self._headers.items())
        if size > limits.head:
            self._too_long()
            return
        self._phase, self.since, self._head_bytes = "body", monotonic(), 0
        self._length = 0
        tenant = self._door.admit(self._path(), self._headers)
        if tenant is None:
            why = "a key is needed, as Authorization: Bearer KEY"
            self._refuse(HTTPStatus.UNAUTHORIZED, why, (("www-authenticate", "Bearer"),))
            return
        self._tenant = tenant
        length = self._headers.get(b"content-length", b"0")
        if self._parser.should_upgrade():
            self._refuse(HTTPStatus.BAD_REQUEST, "upgrades are not offered")
        elif length.isdigit() and int(length[:20]) > limits.body:
            self._too_large()
        elif self._request is None and (  # else it would stand within an answer
            self._headers.get(b"expect", b"").lower() == b"100-continue"
        ):
            self._transport.write(_CONTINUE)

    def on_body(self, body: bytes) -> None:
        """Some of the body is there."""
        if self._ends:
            return
        self._size += len(body)
        held = self._hold(self._tenant, len(body))
        self._body.append(body)
        if self._size > self._door.limits.body:
            self._too_large()
        elif held > self._door.limits.each_memory or self._door.held > self._door.limits.memory:
            self._refuse(HTTPStatus.SERVICE_UNAVAILABLE, "too many bytes of requests are held")

    def _hold(self, tenant: int, size: int) -> int:
        """Count bytes of bodies, more or less; those that the tenant has then."""
        door = self._door
        door.held += size
        held = door.held_of[tenant] = door.held_of.get(tenant, 0) + size
        taken = self._taken.get(tenant, 0) + size
        if taken:
            self._taken[tenant] = taken
        else:
            self._taken.pop(tenant, None)
        return held

    def _path(self) -> str:
        """What is asked for, without the query."""
        return self._url.split(b"?", 1)[0].decode("latin-1")

    def on_message_complete(self) -> None:
        """The request is whole."""
        if self._ends:
            return
        body = self._body[0] if len(self._body) == 1 else b"".join(self._body)
        self._body = []
        request = Request(
            self._parser.get_method().decode("latin-1"),
            self._path(),
            self._headers,
            body,
            self.since,
            bool(self._parser.should_keep_alive()),
            target=self._url,
            chunks=self._parser.get_http_version() != "1.0",
            tenant=self._tenant,
        )
        self._phase, self.since = "", monotonic()
        if len(self._waiting) >= self._door.limits.ahead:
            self._refuse(HTTPStatus.BAD_REQUEST, "too many requests are sent ahead")
            return
        self._waiting.append(request)
        if self._request is None and not self._stalled:
            self._go_on()

    # ------------------------------------------------------------------ answers

    def _go_on(self) -> None:
        """Answer the next request, if one waits and the last answer is read."""
        while self._waiting and self._request is None and not self._stalled and not self._ends:
            if self._door.closing:
                self._close()
                return
            request = self._request = self._waiting.popleft()
            self._handle(request)
        if self._paused and not self._waiting and not self._ends:
            self._paused = False
            self._transport.resume_reading()

    def _handle(self, request: Request) -> None:
        try:
            self._door.handle(self, request)
        except Exception:
            log.exception("%s %r", request.method, request.path[:200])
            if self._request is request:
                self.reply(request, HTTPStatus.INTERNAL_SERVER_ERROR, [error("a fault inside")])

    def reply(
        self,
        request: Request,
        status: int,
        body: list[bytes],
        headers: Iterable[tuple[str, str]] = (),
        kind: str = "application/json",
    ) -> None:
        """Answer a request; one whose client is gone is passed over."""
        if self._request is not request:
            return
        keeps = request.keeps and not self._door.closing
        self._write(status, body, headers, kind, keeps, bare=request.method == "HEAD")
        self._answered(request, status, keeps=keeps)

    def _answered(self, request: Request, status: int, *, keeps: bool) -> None:
        self._door.answered(request, status, monotonic() - request.began)
        self._hold(request.tenant, -len(request.body))
        self._request, self.since = None, monotonic()
        if not keeps:
            self._close()
        elif self._waiting or self._paused:
            self._loop.call_soon(self._go_on)

    def begin(
        self, request: Request, status: int, phrase: bytes, headers: list[bytes], length: int | None
    ) -> None:
        """Begin an answer that comes in pieces; `headers`: whole lines, none of them about framing;
        `length`: of its body, None if that is not known, -1 where there is no body."""
        if self._request is not request:
            return
        self._chunked = length is None and request.chunks
        self._keeps = request.keeps and not (length is None and not request.chunks)
        lines = [b"HTTP/1.1 %d %b\r\n" % (status, phrase), *headers]
        if self._chunked:
            lines.append(b"transfer-encoding: chunked\r\n")
        elif length is not None and length >= 0:
            lines.append(b"content-length: %d\r\n" % length)
        lines.append(b"\r\n" if self._keeps else b"connection: close\r\n\r\n")
        self._transport.write(b"".join(lines))

    def piece(self, request: Request, data: bytes) -> None:
        """A part of its body."""
        if self._request is request and data:
            self._transport.write(b"%x\r\n%b\r\n" % (len(data), data) if self._chunked else data)

    def end(self, request: Request, status: int, *, whole: bool = True) -> None:
        """The answer is over; one that is not whole ends the connection, so that it shows."""
        if self._request is not request:
            return
        if not whole:
            self._request = None
            self._hold(request.tenant, -len(request.body))
            self._door.answered(request, status, monotonic() - request.began)
            self.hang_up()
            return
        if self._chunked:
            self._transport.write(b"0\r\n\r\n")
        self._answered(request, status, keeps=self._keeps and not self._door.closing)

    def _write(
        self,
        status: int,
        body: list[bytes],
        headers: Iterable[tuple[str, str]],
        kind: str,
        keeps: bool,
        *,
        bare: bool = False,
    ) -> None:
        lines = [
            f"HTTP/1.1 {status} {_PHRASES.get(status, '')}\r\n"
            f"content-type: {kind}\r\ncontent-length: {sum(map(len, body))}\r\n"
        ]
        lines += [f"{name}: {value}\r\n" for name, value in headers]
        lines.append("\r\n" if keeps else "connection: close\r\n\r\n")
        head = "".join(lines).encode("latin-1")
        self._transport.write(head if bare else b"".join([head, *body]))

    def _refuse(self, status: int, why: str, headers: Iterable[tuple[str, str]] = ()) -> None:
        """What came cannot be answered as a request: say why, and close."""
        if self._ends:
            return
        if self._request is None:
            self._write(status, [error(why)], headers, "application/json", keeps=False)
            self._door.answered(None, status, 0.0)
        request, self._request = self._request, None
        if request is not None and request.gone is not None:
            request.gone()
        self._waiting.clear()
        self._close()

    def _too_long(self) -> None:
        status = HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE
        self._refuse(status, f"the head of a request may have {self._door.limits.head} bytes")

    def _too_large(self) -> None:
        status = HTTPStatus.REQUEST_ENTITY_TOO_LARGE
        self._refuse(status, f"the body of a request may have {self._door.limits.body} bytes")


_PHRASES: Final = {int(status): status.phrase for status in HTTPStatus}


def error(why: str) -> bytes:
    """The body of an answer that says what is wrong, as the protocol has it."""
    return msgspec.json.encode({"error": why})
