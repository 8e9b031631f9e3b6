"""HTTP connections: the user at the other end, how many there may be, and for how long they may
keep a descriptor without asking anything.

The user at the other end of a Unix socket is what the kernel says when the connection is made, and
is kept beside the connection: nothing that a request holds can change it.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import os
import resource
import socket
import struct
import time
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple

from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

log = logging.getLogger("ganger.service")
CONNECTION: Final = "ganger.connection"
"""Where a request's scope["state"] has its `Connection`."""
HEAD_SECONDS: Final = 10.0
"""How long the head of a request may take, from the connection's begin or the last answer on."""
RETRY_SECONDS: Final = 1.0
"""How long nothing is accepted after the system had no descriptor left."""
ACCEPTS_A_SECOND: Final = 500
"""Connections over TCP that are accepted a second in the long run, and at once."""
_AT_ONCE: Final = 32
_CREDENTIALS = struct.Struct("3i")
_EXHAUSTED = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
_REFUSAL: Final = (
    b"HTTP/1.1 429 Too Many Requests\r\nContent-Type: application/problem+json\r\n"
    b"Connection: close\r\nRetry-After: 1\r\nContent-Length: %d\r\n\r\n%b"
)
PROBLEM: Final = (
    b'{"title":"Too many connections","status":429,"detail":"too many connections are open",'
    b'"where":"","mend":"close some, or try again in a second"}'
)
"""What is answered to who has too many connections."""
REFUSAL: Final = _REFUSAL % (len(PROBLEM), PROBLEM)


class Limits(NamedTuple):
    """The most connections of one listener, of one user on it, and how many of all are kept for
    administrators at the Unix socket."""

    all: int
    user: int
    kept: int


def limits_of(family: int, descriptors: int = 0) -> Limits:
    """The limits of a listener, from how many descriptors the process may have (default: as the
    system says). Three eighths of them are for the Unix socket, a quarter for the port; the rest
    is the journal's, the agents' and the files'."""
    descriptors = descriptors or resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    is_local = family == socket.AF_UNIX
    most = min(descriptors * 3 // 8 if is_local else descriptors // 4, 8192)
    return Limits(max(most, 8), max(most // 4, 2), max(most // 8, 4) if is_local else 0)


class Connection(H11Protocol):
    """One connection. `uid`: the user at the other end of a Unix socket, -1 over TCP; `user`: on
    whose behalf it was last served, "" before it was."""

    def __init__(self, listener: Listener, peer: str, uid: int, **given: Any) -> None:
        super().__init__(**given)
        self.uid, self.peer, self.user = uid, peer, ""
        self.app_state = {**self.app_state, CONNECTION: self}
        self._listener = listener
        self._late: asyncio.TimerHandle | None = None
        self._unsent, self._is_unwanted = float("inf"), False

    @property
    def is_busy(self) -> bool:
        """Whether a request is being answered."""
        cycle: RequestResponseCycle | None = self.cycle
        return cycle is not None and not cycle.response_complete

    def serves(self, user: str) -> bool:
        """Serve this user from now on, unless they have too many connections already. Over the
        Unix socket that was settled when the connection was made."""
        return self.uid >= 0 or self._listener.may_serve(self, user)

    def connection_made(self, transport: Any) -> None:
        """The time for the first request begins."""
        super().connection_made(transport)
        self._begin_waiting()
        if self._is_unwanted:
            self.hang_up()

    def connection_lost(self, exc: Exception | None) -> None:
        """Its place is free."""
        self._end_waiting()
        self._listener.lost(self)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Bytes alone do not buy time: a whole head does."""
        before = self.cycle
        super().data_received(data)
        if self.cycle is not before:
            self._end_waiting()

    def on_response_complete(self) -> None:
        """The time for the next request begins; what is still missing of this one counts, too."""
        self._end_waiting()
        self._begin_waiting()
        before = self.cycle
        super().on_response_complete()
        if self.cycle is not before:
            self._end_waiting()

    def hang_up(self) -> None:
        """End it at once."""
        self._is_unwanted = True
        if self.transport is not None:
            self.transport.abort()

    def _begin_waiting(self) -> None:
        self._unsent = float("inf")
        self._late = self.loop.call_later(HEAD_SECONDS, self._waited)

    def _waited(self) -> None:
        """The time is over, unless the last answer is still being read."""
        unsent = self.transport.get_write_buffer_size()
        if not 0 < unsent < self._unsent:
            self.hang_up()
            return
        self._unsent = unsent
        self._late = self.loop.call_later(HEAD_SECONDS, self._waited)

    def _end_waiting(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None


class Listener:
    """A listening socket. Where its connections are at their limit, the oldest that is not being
    served makes way for a new one: first of those that nobody has proved anything on, of the
    address or user that has most of them."""

    def __init__(
        self, sock: socket.socket, make: Callable[..., Connection], limits: Limits | None = None
    ) -> None:
        self._sock, self._make = sock, make
        self.limits = limits or limits_of(sock.family)
        self._open: dict[Connection, None] = {}
        self._peers: Counter[str] = Counter()
        self._users = 0
        """Connections over the Unix socket that are not an administrator's."""
        self._served: Counter[str] = Counter()
        self._loop = asyncio.get_running_loop()
        self._starting: set[asyncio.Task[Any]] = set()
        self._again: asyncio.TimerHandle | None = None
        self._budget, self._budget_at = float(ACCEPTS_A_SECOND), time.monotonic()
        sock.setblocking(False)
        self._loop.add_reader(sock, self._accept)

    @property
    def _is_local(self) -> bool:
        return self._sock.family == socket.AF_UNIX

    def close(self) -> None:
        """Accept nothing any more."""
        self._loop.remove_reader(self._sock)
        if self._again is not None:
            self._again.cancel()

    async def wait_closed(self) -> None:
        """All is done: uvicorn waits for the connections itself."""

    def may_serve(self, connection: Connection, user: str) -> bool:
        """Whether the connection may be this user's; it is, then."""
        if connection.user == user:
            return True
        if self._served[user] >= self.limits.user:
            return False
        self._leave(connection)
        connection.user = user
        self._served[user] += 1
        return True

    def lost(self, connection: Connection) -> None:
        """The connection is over."""
        if connection in self._open:
            del self._open[connection]
            self._users -= _is_plain(connection.uid)
            _less(self._peers, connection.peer)
        self._leave(connection)

    def _leave(self, connection: Connection) -> None:
        if connection.user:
            _less(self._served, connection.user)
            connection.user = ""

    # ------------------------------------------------------------------ accepting

    def _accept(self) -> None:
        for _ in range(_AT_ONCE):
            if not self._is_local and not self._may_accept():
                self._pause(1.0 / ACCEPTS_A_SECOND * _AT_ONCE)
                return
            try:
                made, address = self._sock.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                if error.errno not in _EXHAUSTED:
                    raise
                log.warning("no connection can be accepted: %s", error.strerror)
                self._make_way(self._open)
                self._pause(RETRY_SECONDS)
                return
            self._take(made, address)

    def _may_accept(self) -> bool:
        now = time.monotonic()
        gained = (now - self._budget_at) * ACCEPTS_A_SECOND
        self._budget, self._budget_at = min(self._budget + gained, float(ACCEPTS_A_SECOND)), now
        if self._budget < 1:
            return False
        self._budget -= 1
        return True

    def _pause(self, seconds: float) -> None:
        self._loop.remove_reader(self._sock)
        self._again = self._loop.call_later(
            seconds, self._loop.add_reader, self._sock, self._accept
        )

    def _take(self, made: socket.socket, address: Any) -> None:
        made.setblocking(False)
        uid, peer = -1, str(address[0]) if address else ""
        if self._is_local:
            data = made.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
            uid = _CREDENTIALS.unpack(data)[1]
            peer = str(uid)
        if not self._has_room(uid, peer):
            with contextlib.suppress(OSError), made:
                made.send(REFUSAL)
            return
        connection = self._make(self, peer, uid)
        self._open[connection] = None
        self._users += _is_plain(uid)
        self._peers[peer] += 1
        starting = self._loop.create_task(self._start(connection, made))
        self._starting.add(starting)
        starting.add_done_callback(self._starting.discard)

    async def _start(self, connection: Connection, made: socket.socket) -> None:
        try:
            await self._loop.connect_accepted_socket(lambda: connection, made)
        except OSError:
            made.close()
            self.lost(connection)

    def _has_room(self, uid: int, peer: str) -> bool:
        """Whether one more may come; another one is ended for it where that may be."""
        most = self.limits.all
        if _is_plain(uid):
            if self._peers[peer] >= self.limits.user:
                return self._make_way(one for one in self._open if one.peer == peer)
            if self._users >= most - self.limits.kept:
                return self._make_way(one for one in self._open if _is_plain(one.uid))
        return len(self._open) < most or self._make_way(self._open)

    def _make_way(self, among: Iterable[Connection]) -> bool:
        """End one that is not being served; whether there was one."""
        idle = [one for one in among if not one.is_busy]
        idle = [one for one in idle if not one.user] or idle
        if not idle:
            log.warning("a connection was refused: all that there may be are being served")
            return False
        peer, _ = Counter(one.peer for one in idle).most_common(1)[0]
        first = next(one for one in idle if one.peer == peer)
        self.lost(first)
        first.hang_up()
        return True


def _is_plain(uid: int) -> bool:
    """Whether a connection is over the Unix socket and not the daemon's own user's or root's."""
    return uid >= 0 and uid not in (0, os.geteuid())


def _less(counts: Counter[str], key: str) -> None:
    counts[key] -= 1
    if not counts[key]:
        del counts[key]
