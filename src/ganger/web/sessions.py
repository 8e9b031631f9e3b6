"""Links and sessions: links that are valid once and for a minute, and the sessions that they
open. All of it lies in the memory of the process: when it ends, everybody is signed out."""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

LINK_SECONDS: Final = 60.0
IDLE_SECONDS: Final = 12 * 3600.0
"""A session that nobody uses ends after so long."""
LAST_SECONDS: Final = 7 * 86400.0
"""And every session after so long."""
LINKS_MAX: Final = 32
SESSIONS_MAX: Final = 64
"""Of more, the oldest link or the session that was not used for longest makes way."""
_BYTES: Final = 32


@dataclass
class Session:
    """A browser that came by a link. `name` is what people call it by; `read_only`: it sees the
    cluster and the queue, and changes nothing."""

    name: str
    made: float
    seen: float
    agent: str
    read_only: bool
    key: bytes = field(repr=False)
    """The SHA-256 of its cookie."""
    secret: bytes = field(default_factory=lambda: secrets.token_bytes(_BYTES), repr=False)


class Sessions:
    """All links and sessions. `clock` tells monotonic seconds, `wall` Unix seconds."""

    def __init__(self, clock: Callable[[], float], wall: Callable[[], float]) -> None:
        self._clock, self._wall = clock, wall
        self._links: dict[bytes, tuple[float, bool]] = {}
        self._sessions: dict[bytes, tuple[float, float, Session]] = {}

    def link(self, *, read_only: bool = False) -> str:
        """The token of a new link."""
        token = secrets.token_urlsafe(_BYTES)
        while len(self._links) >= LINKS_MAX:
            del self._links[next(iter(self._links))]
        self._links[_digest(token)] = self._clock() + LINK_SECONDS, read_only
        return token

    def redeem(self, token: str, agent: str) -> str | None:
        """The cookie of a new session, None if the link is unknown, used or too old."""
        until, read_only = self._links.pop(_digest(token), (0.0, False))
        now = self._clock()
        if now >= until:
            return None
        self._drop_old()
        while len(self._sessions) >= SESSIONS_MAX:
            del self._sessions[min(self._sessions, key=lambda key: self._sessions[key][1])]
        cookie, wall = secrets.token_urlsafe(_BYTES), self._wall()
        key = _digest(cookie)
        made = Session(secrets.token_hex(4), wall, wall, agent[:200], read_only, key)
        self._sessions[key] = now, now, made
        return cookie

    def of(self, cookie: str) -> Session | None:
        """The session of a cookie, which is used now; None if there is none."""
        return self._of(_digest(cookie))

    def still(self, session: Session) -> bool:
        """Whether there still is that session, which is used now."""
        return self._of(session.key) is session

    def _of(self, key: bytes) -> Session | None:
        now = self._clock()
        began, used, session = self._sessions.get(key, (0.0, 0.0, None))
        if session is None:
            return None
        if now - used > IDLE_SECONDS or now - began > LAST_SECONDS:
            del self._sessions[key]
            return None
        session.seen = self._wall()
        self._sessions[key] = began, now, session
        return session

    def end(self, name: str) -> None:
        """Sign out the session of that name; "" for all."""
        for key, (_, _, session) in list(self._sessions.items()):
            if name in ("", session.name):
                del self._sessions[key]

    def listed(self) -> list[Session]:
        """Those that there are, the last used first."""
        self._drop_old()
        return sorted(
            (entry[2] for entry in self._sessions.values()), key=lambda entry: -entry.seen
        )

    def _drop_old(self) -> None:
        now = self._clock()
        for key, (began, used, _) in list(self._sessions.items()):
            if now - used > IDLE_SECONDS or now - began > LAST_SECONDS:
                del self._sessions[key]


def masked(session: Session) -> str:
    """The session's token against cross-site requests, written differently each time: the length of
    a compressed answer tells nothing of it."""
    mask = secrets.token_bytes(_BYTES)
    mixed = bytes(a ^ b for a, b in zip(mask, session.secret, strict=True))
    return base64.urlsafe_b64encode(mask + mixed).decode()


def is_own(session: Session, stated: str) -> bool:
    """Whether a form states the token of this session."""
    try:
        data = base64.b64decode(stated.encode(), altchars=b"-_", validate=True)
    except ValueError:
        return False
    if len(data) != 2 * _BYTES:
        return False
    unmasked = bytes(a ^ b for a, b in zip(data[:_BYTES], data[_BYTES:], strict=True))
    return hmac.compare_digest(unmasked, session.secret)


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode(errors="replace")).digest()
