"""A connection to a replica: a request goes out whole, the answer is handed on as it comes."""

from __future__ import annotations

import asyncio
from typing import Any, Final, Protocol

import httptools

BARE: Final = (204, 304)
"""Statuses of answers without a body."""
HOP: Final = frozenset(
    b"connection keep-alive proxy-authenticate proxy-connection te trailer transfer-encoding"
    b" upgrade".split()
)
"""Headers that are about one connection, and not passed on (RFC 9110, section 7.6.1)."""
HEAD_MAX: Final = 64 << 10
"""Bytes of the headers of an answer; of anything else in it that is not its body, at a stretch."""


class Hears(Protocol):
    """The side that asks."""

    def began(self, status: int, phrase: bytes, headers: list[bytes], length: int | None) -> None:
        """The head of the answer is there; `length`: of its body, None: not known, -1: it has
        none, and says nothing of a length."""

    def came(self, data: bytes) -> None:
        """Some of the body is."""

    def over(self, *, reusable: bool) -> None:
        """The answer is whole."""

    def broke(self, why: str) -> None:
        """It never will be."""


class Upstream(asyncio.Protocol):
    """A connection that asks one thing at a time."""

    def __init__(self) -> None:
        self._transport: Any = None
        self._hears: Hears | None = None
        self._closed = False
        self._parser: Any = None
        self._headers: list[bytes] = []
        self._size = self._framing = 0
        """Bytes of headers; of all that came since the last of the body."""
        self._phrase = b""
        self._length: int | None = None
        self._framed = self._bodiless = self._keeps = self._headed = self._coded = False

    @property
    def usable(self) -> bool:
        """Whether something can be asked."""
        return not self._closed and self._hears is None

    def ask(self, request: bytes, hears: Hears, *, head_only: bool) -> None:
        """Send a request; `head_only`: its answer has no body (HEAD)."""
        self._hears, self._bodiless = hears, head_only
        self._framing = 0
        self._parser = httptools.HttpResponseParser(self)
        self._transport.write(request)

    def give_up(self) -> None:
        """The answer is of no use any more."""
        self._hears, self._closed = None, True
        self._transport.abort()

    def flow(self, on: bool) -> None:
        """Read on, or pause."""
        if not self._closed:
            (self._transport.resume_reading if on else self._transport.pause_reading)()

    # ------------------------------------------------------------------ the transport

    def connection_made(self, transport: Any) -> None:
        """The replica is there."""
        self._transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        """It has hung up."""
        self._closed = True
        hears, self._hears = self._hears, None
        if hears is None:
            return
        if self._headed and not self._framed and exc is None:
            hears.over(reusable=False)  # an answer that lasts until the connection ends
        else:
            hears.broke("it hung up")

    def data_received(self, data: bytes) -> None:
        """Some bytes of an answer."""
        if self._hears is None:
            self._closed = True
            self._transport.abort()  # nothing was asked
            return
        self._framing += len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError:
            self._fail("what it answers is not HTTP")
        if self._framing > HEAD_MAX and self._hears is not None:
            self._fail("what it answers is mostly not data")

    def _fail(self, why: str) -> None:
        hears = self._hears
        self.give_up()
        if hears is not None:
            hears.broke(why)

    # ------------------------------------------------------------------ the parser

    def on_message_begin(self) -> None:
        """An answer begins."""
        self._headers, self._size, self._phrase = [], 0, b""
        self._length, self._framed, self._headed, self._coded = None, False, False, False

    def on_status(self, phrase: bytes) -> None:
        """The words behind the status."""
        self._phrase += phrase

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header, or one behind the body, which is left out."""
        if self._headed:
            return
        self._size += len(name) + len(value)
        small = name.lower()
        if small == b"content-length" and value.isdigit():
            self._length, self._framed = int(value), True
        elif small == b"transfer-encoding":
            self._framed = value.strip().lower() == b"chunked"
            self._coded = not self._framed
        elif small not in HOP:
            self._headers.append(b"%b: %b\r\n" % (name, value))

    def on_headers_complete(self) -> None:
        """The head is whole."""
        status = self._parser.get_status_code()
        if self._size > HEAD_MAX or self._hears is None:
            self._fail("its headers are too long")
            return
        if status < 100 or self._coded:  # a body that is not framed as said would be handed on raw
            self._fail("what it answers is not HTTP")
            return
        if status < 200:
            return
        self._headed = True
        self._keeps = self._parser.should_keep_alive()
        length = -1 if status in BARE else self._length
        if self._bodiless and length is None:
            length = -1
        self._hears.began(status, self._phrase, self._headers, length)
        if self._bodiless:
            self._done(reusable=False)

    def on_body(self, data: bytes) -> None:
        """Some of the body."""
        self._framing = 0
        if self._hears is not None and self._headed:
            self._hears.came(data)

    def on_message_complete(self) -> None:
        """The answer is whole, or was an interim one."""
        if self._headed and not self._bodiless:
            self._done(reusable=self._keeps and self._framed)

    def _done(self, *, reusable: bool) -> None:
        hears, self._hears = self._hears, None
        if not reusable:
            self._closed = True
            self._transport.abort()
        if hears is not None:
            hears.over(reusable=reusable)
