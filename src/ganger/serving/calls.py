"""The names of a call: its own id, and the trace that it is a part of (W3C Trace Context, 2021)."""

from __future__ import annotations

import re
from itertools import count
from secrets import token_hex
from typing import Final, NamedTuple

_ID_MAX: Final = 128
_TRACE: Final = re.compile(rb"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")


class Trace(NamedTuple):
    """A trace, the call that led to this one, and this one: hexadecimal."""

    trace: str
    parent: str
    span: str


def trace_of(traceparent: bytes) -> Trace | None:
    """The trace that a `traceparent` states; None for one that is not valid, as if there were
    none."""
    parts = _TRACE.fullmatch(traceparent)
    if parts is None:
        return None
    version, trace, parent, _, more = parts.groups()
    if version == b"ff" or (version == b"00" and more) or not (int(trace, 16) and int(parent, 16)):
        return None
    return Trace(trace.decode(), parent.decode(), token_hex(8))


class CallIds:
    """Ids of calls: those that clients give, and made-up ones that no other process makes."""

    def __init__(self) -> None:
        self._prefix, self._numbers = token_hex(6), count(1)

    def of(self, given: bytes) -> str:
        """What the client gave, if that is at most 128 printable letters of ASCII."""
        if 0 < len(given) <= _ID_MAX and given.isascii() and given.decode().isprintable():
            return given.decode()
        return f"{self._prefix}-{next(self._numbers)}"
