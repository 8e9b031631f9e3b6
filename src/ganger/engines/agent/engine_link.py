"""The agent's side of the connection to its engine: which engines may speak, and what waits to be
sent."""

from __future__ import annotations

import contextlib
import logging
import os
import selectors
import socket
import struct
import time
from collections.abc import Sequence
from math import inf
from pathlib import Path
from typing import Any, Final, Protocol

from ganger.core.spec import NodeSpec
from ganger.engines.agent.attempt.attempt_dir import short_path
from ganger.engines.agent.attempt.cgroup import Containment
from ganger.engines.agent.connection import Connection, Connections
from ganger.engines.agent.protocol import (
    FRAME_BYTES_MAX,
    SINCE,
    Challenge,
    Denied,
    Hello,
    Message,
    Ping,
    ToAgent,
    Welcome,
    proof,
    proves,
)
from ganger.engines.agent.sharing import Sharing
from ganger.engines.agent.wire import UNPROVED_BYTES_MAX, GoneError, Link

log = logging.getLogger("ganger.agent")
_DIAL_SECONDS: Final = (0.2, 10.0)
"""Between tries to reach an engine: at first, and at most."""


class Host(Protocol):
    """What the connection serves."""

    name: str
    nodes: tuple[NodeSpec, ...]
    boot: str
    containment: Containment
    sharing: Sharing

    def states(self) -> list[Message]:
        """All that the engine must get at first."""
        ...

    def obey(self, order: Message) -> None:
        """Do what the engine says."""
        ...

    def bind(self, cluster: str) -> bool:
        """Serve this cluster from now on, if no other is served."""
        ...


class _Engine(Connection):
    """One connection; `address` where it was dialled."""

    def __init__(self, link: Link, address: tuple[str, int] | None) -> None:
        super().__init__(link)
        self.address = address
        self.theirs = b""
        self.welcome = False


class EngineLink(Connections[_Engine]):
    """The engine that is connected: at most one; a newer one takes the place of an older."""

    def __init__(
        self,
        host: Host,
        selector: selectors.BaseSelector,
        joins: Sequence[tuple[str, int]],
        token: str,
        silence_seconds: float,
        fence_seconds: float = inf,
    ) -> None:
        super().__init__(selector)
        self._fence = fence_seconds if joins else inf
        self._heard_at = time.monotonic()
        self._fenced = False
        self._host = host
        self._token, self._silence = token, silence_seconds
        self._now: _Engine | None = None
        self._listener: socket.socket | None = None
        self._dial_at = dict.fromkeys(joins, 0.0)
        self._pause = dict.fromkeys(joins, _DIAL_SECONDS[0])

    # ------------------------------------------------------------------ coming and going

    def listen(self, path: Path) -> None:
        """Take engines of this user (or root) at a Unix socket."""
        path.unlink(missing_ok=True)
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        with short_path(path.parent, path.name) as short:
            self._listener.bind(short)
        self._listener.listen(8)
        self._selector.register(self._listener, selectors.EVENT_READ, lambda mask: self._accept())

    def _accept(self) -> None:
        assert self._listener is not None
        sock, _ = self._listener.accept()
        _, uid, _ = struct.unpack("3i", sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
        if uid not in (0, os.getuid()):
            log.warning("a process of user %d was turned away", uid)
            sock.close()
            return
        engine = self._add(sock, None)
        self._greet(engine)

    def _add(self, sock: socket.socket, address: tuple[str, int] | None) -> _Engine:
        most = FRAME_BYTES_MAX if address is None else UNPROVED_BYTES_MAX
        return self._watch(_Engine(Link(sock, ToAgent, most), address))

    def _dial(self, address: tuple[str, int]) -> None:
        self._dial_at[address] = inf  # until the connection ends
        try:
            family, kind, protocol, _, target = socket.getaddrinfo(
                *address, type=socket.SOCK_STREAM
            )[0]
            sock = socket.socket(family, kind, protocol)
            sock.setblocking(False)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.connect_ex(target)
        except OSError as why:
            log.warning("%s:%d: %s", *address, why)
            self._dial_at[address] = time.monotonic() + _DIAL_SECONDS[1]
            return
        self._add(sock, address)

    def _drop(self, engine: _Engine) -> None:
        if not self._forget(engine):
            return
        if self._now is engine:
            self._now = None
        if engine.address is not None:
            pause = _DIAL_SECONDS[0] if engine.welcome else self._pause[engine.address]
            self._pause[engine.address] = min(2 * pause, _DIAL_SECONDS[1])
            self._dial_at[engine.address] = time.monotonic() + pause

    # ------------------------------------------------------------------ talking

    def tell(self, message: Message) -> None:
        """Say it to the engine; if none is there it learns the state when it comes."""
        if self._now is not None:
            self._say(self._now, message)

    def _say(self, engine: _Engine, message: Message) -> None:
        """Send what the engine's version knows."""
        if engine.version >= SINCE.get(type(message), 1):
            self._send(engine, message)

    def _take(self, engine: _Engine, message: Any) -> None:
        if isinstance(message, Ping):
            return
        if isinstance(message, Denied):
            log.warning("turned away: %s", message.why)
            raise GoneError(message.why)
        if isinstance(message, Challenge) and engine.address is not None:
            engine.theirs = message.nonce
            self._greet(engine)
        elif isinstance(message, Welcome):
            self._welcomed(engine, message)
        elif engine is self._now:
            self._host.obey(message)
        else:
            raise GoneError("it sends orders before it is accepted")

    def _greet(self, engine: _Engine) -> None:
        host = self._host
        given = proof(self._token, "agent", engine.theirs, engine.nonce) if engine.theirs else b""
        self._send(
            engine,
            Hello(
                host.name,
                host.nodes,
                host.boot,
                host.containment.kind,
                host.containment.warnings,
                engine.nonce,
                given,
                sharing=host.sharing.said,
            ),
        )

    def _welcomed(self, engine: _Engine, message: Welcome) -> None:
        why = engine.speaks(message.version)
        if why:
            pass
        elif engine.address is not None and not proves(
            message.proof, self._token, "engine", engine.nonce, engine.theirs
        ):
            why = "it does not know the token"
        elif not self._host.bind(message.cluster):
            why = "this agent serves another cluster"
        if why:
            log.warning("an engine was turned away: %s", why)
            self._send(engine, Denied(why))
            raise GoneError(why)
        if self._now is not None:
            self._send(self._now, Denied("another engine took its place"))
        if self._now is not None:
            self._drop(self._now)
        engine.welcome = True
        engine.link.frame_bytes_max = FRAME_BYTES_MAX
        self._now = engine
        if engine.address is not None:
            self._pause[engine.address] = _DIAL_SECONDS[0]
        for state in self._host.states():
            self._say(engine, state)

    # ------------------------------------------------------------------ time

    @property
    def due(self) -> float:
        """When to `tend` at the latest (monotonic seconds)."""
        due = min(self._dial_at.values(), default=inf)
        if not self._fenced:
            due = min(due, self._heard_at + self._fence)
        remote = any(engine.address is not None for engine in self._connections)
        return min(due, time.monotonic() + self._silence / 4) if remote else due

    def cut_off(self) -> bool:
        """True once, when an engine that was joined has not been heard for `fence_seconds`."""
        if self._now is not None and self._now.welcome:
            self._heard_at, self._fenced = self._now.heard_at, False
        if self._fenced or time.monotonic() - self._heard_at < self._fence:
            return False
        self._fenced = True
        return True

    def tend(self) -> None:
        """Dial the engines that are due, send a Ping where the agent was silent, drop engines that
        are silent."""
        now = time.monotonic()
        for address, at in self._dial_at.items():
            if now >= at:
                self._dial(address)
        for engine in list(self._connections):
            if engine.address is None:
                continue
            if now - engine.heard_at > self._silence:
                log.warning("%s:%d has been silent", *engine.address)
                self._drop(engine)
            elif engine.welcome and now - engine.told_at > self._silence / 4:
                self._send(engine, Ping())

    def close(self) -> None:
        """End all connections."""
        for engine in list(self._connections):
            self._drop(engine)
        if self._listener is not None:
            with contextlib.suppress(OSError):
                self._listener.close()
