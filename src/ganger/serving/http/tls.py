"""TLS before the connections: certificates, and handshakes, of which only so many are under way."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import socket
import ssl
from pathlib import Path
from typing import Any, Final

from ganger.client.strangers import read_secret
from ganger.core.errors import BadInput
from ganger.serving.http.connections import Door

log = logging.getLogger("ganger.serving")
SHAKES_MAX: Final = 256
SHAKE_SECONDS: Final = 10.0
_REST_SECONDS: Final = 1.0
"""How long nothing is accepted once there are no descriptors."""
_FULL: Final = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


class Certificate:
    """A certificate with its key, as files. `context` serves new connections by what was read
    last, and `pair` is that: the key and the chain."""

    def __init__(self, chain: Path, key: Path) -> None:
        self.chain, self.key = chain, key
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.minimum_version = ssl.TLSVersion.TLSv1_2
        self.context.set_alpn_protocols(["http/1.1"])
        self.pair = b"", b""
        self.read()

    def read(self) -> None:
        """Read both files, again. Raises BadInput, and what was read before stays in force."""
        key = read_secret(self.key, group=True)
        try:
            chain = self.chain.read_bytes()
            fresh = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            for context in (fresh, self.context):
                context.load_cert_chain(self.chain, self.key, password=_refuse_to_ask)
        except (OSError, ValueError) as error:
            why = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
            raise BadInput(
                f"{self.chain.name} and {self.key.name} are not a certificate and its key: {why}",
                where="--tls-cert, --tls-key",
                mend="give both as PEM, the key without a password",
            ) from None
        self.pair = key, chain


def _refuse_to_ask() -> str:
    raise ValueError("the key has a password")


class Reception:
    """Accepts connections and shakes hands with each before the door has it. Where too many
    handshakes are under way, the one that began first is ended: such a connection is none of the
    door's yet, and must not use up its descriptors."""

    def __init__(self, door: Door, sock: socket.socket, certificate: Certificate) -> None:
        self._door, self._sock, self._certificate = door, sock, certificate
        self._shaking: dict[asyncio.Task[None], socket.socket] = {}
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Accept from now on."""
        self._sock.setblocking(False)
        self._task = asyncio.create_task(self._accept())

    def close(self) -> None:
        """Accept no more."""
        if self._task is not None:
            self._task.cancel()
        for sock in self._shaking.values():
            _end(sock)
        self._sock.close()

    async def _accept(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                sock, _ = await loop.sock_accept(self._sock)
            except OSError as fault:
                if fault.errno in _FULL:
                    log.error("no connection is accepted for a second: %s", fault.strerror)
                    await asyncio.sleep(_REST_SECONDS)
                continue
            if len(self._shaking) >= SHAKES_MAX:
                _end(self._shaking.pop(next(iter(self._shaking))))
            task = loop.create_task(self._shake(loop, sock))
            self._shaking[task] = sock
            task.add_done_callback(lambda task: self._shaking.pop(task, None))

    async def _shake(self, loop: asyncio.AbstractEventLoop, sock: socket.socket) -> None:
        sock.setblocking(False)
        with contextlib.suppress(OSError):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        made: Any = None
        try:
            made = await loop.connect_accepted_socket(
                self._door.make,
                sock,
                ssl=self._certificate.context,
                ssl_handshake_timeout=SHAKE_SECONDS,
            )
        except (OSError, ValueError):
            pass  # it does not speak TLS, or went away
        finally:
            if made is None:
                _end(sock)


def _end(sock: socket.socket) -> None:
    """End a connection, whoever reads from it."""
    with contextlib.suppress(OSError):
        sock.shutdown(socket.SHUT_RDWR)
    with contextlib.suppress(OSError):
        sock.close()
