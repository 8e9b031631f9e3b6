"""Parts of pages for the stream of changes: made, written and compressed once for all browsers."""

from __future__ import annotations

import asyncio
import hashlib
import itertools
import re
import zlib
from collections import OrderedDict
from typing import Any, Final

import msgspec
from starlette.types import ASGIApp, Message, Scope

from ganger.web.backend import KEPT_MAX
from ganger.web.door import PREFIX, SESSION
from ganger.web.sessions import Session

SEEN_MAX: Final = 8
"""Parts that one browser is sent; what more it shows it asks for."""
PATH_MAX: Final = 1000
_PART: Final = re.compile(
    r"/(?:(?:queue|nodes|tenants|services|experiments)/rows|cluster/map"
    r"|jobs/[0-9]{1,12}(?:_[0-9]{1,12})?/(?:now|windows|children))"
)
_PASSED_ON: Final = ("type", "asgi", "http_version", "scheme", "server", "client", SESSION, PREFIX)
GZIP_HEAD: Final = b"\x1f\x8b\x08\0\0\0\0\0\0\xff"
"""What stands before the first `deflated` bytes of a stream (RFC 1952)."""


def deflated(data: bytes) -> bytes:
    """Compressed bytes that refer to nothing before them and end with an empty stored block, so
    that any of them may follow any others (RFC 1951, section 3.2), and all streams share them."""
    press = zlib.compressobj(5, zlib.DEFLATED, -zlib.MAX_WBITS)
    return press.compress(data) + press.flush(zlib.Z_SYNC_FLUSH)


class Shown:
    """A part as it was last made, in the state `tick` of the daemon: the event that has it,
    `deflated`, and a `mark` that no other version of any part has."""

    def __init__(self, path: str, text: str, tick: int, mark: int) -> None:
        self.tick, self.mark, self.digest = tick, mark, _digest(text)
        event = msgspec.json.encode({"part": path, "text": text})
        self.packed = deflated(b"event: part\ndata: %s\n\n" % event)


class Pushed:
    """The parts that browsers look at just now, as the application `app` answers them."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._shown: OrderedDict[tuple[str, bool], Shown] = OrderedDict()
        self._making: dict[tuple[str, bool], asyncio.Task[Shown | None]] = {}
        self._marks = itertools.count(1)

    async def get(self, path: str, tick: int, scope: Scope) -> Shown | None:
        """The part at `path` in the state `tick` for the session of `scope`; None where there is
        none. Its mark is the same as before as long as its text is."""
        session: Session = scope[SESSION]
        key = path, session.read_only
        kept = self._shown.get(key)
        if kept is not None and kept.tick >= tick:
            return kept
        if (making := self._making.get(key)) is None:
            making = self._making[key] = asyncio.create_task(self._make(key, tick, scope))
            making.add_done_callback(lambda _: self._making.pop(key, None))
        return await asyncio.shield(making)

    async def _make(self, key: tuple[str, bool], tick: int, scope: Scope) -> Shown | None:
        text = await self._ask(key[0], scope)
        if text is None:
            return None
        shown = self._shown.get(key)
        if shown is None or shown.digest != _digest(text):
            shown = self._shown[key] = Shown(key[0], text, tick, next(self._marks))
        shown.tick = tick
        self._shown.move_to_end(key)
        while len(self._shown) > KEPT_MAX:
            self._shown.popitem(last=False)
        return shown

    async def _ask(self, path: str, scope: Scope) -> str | None:
        """What the application answers to a browser that asks for a part; None if not with 200."""
        place, _, query = path.removeprefix(scope[PREFIX]).partition("?")
        asked: Scope = {name: scope[name] for name in _PASSED_ON if name in scope}
        asked.update(
            method="GET",
            path=place,
            raw_path=place.encode(),
            query_string=query.encode(),
            root_path="",
            headers=[(b"hx-request", b"true")],
        )
        status, body = 0, bytearray()

        async def send(message: Message) -> None:
            nonlocal status
            status = message.get("status", status)
            body.extend(message.get("body", b""))

        async def receive() -> dict[str, Any]:
            return {"type": "http.disconnect"}

        await self._app(asked, receive, send)
        return body.decode() if status == 200 else None


def _digest(text: str) -> bytes:
    return hashlib.blake2b(text.encode(), digest_size=16).digest()


def seen_of(stated: list[str], prefix: str) -> list[str]:
    """Of the addresses that a browser states those of parts that it may be sent, each once."""
    parts = (each for each in stated if len(each) <= PATH_MAX and each.isascii())
    known = (each for each in parts if _PART.fullmatch(each.removeprefix(prefix).split("?")[0]))
    return list(dict.fromkeys(known))[:SEEN_MAX]
