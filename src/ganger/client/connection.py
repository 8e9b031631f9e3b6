"""A connection to the daemon: over its Unix socket, or over TCP with a token."""

from __future__ import annotations

import contextlib
import http.client
import os
import socket
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, TypeVar
from urllib.parse import urlencode, urlsplit

import msgspec

from ganger.client.answers import Problem
from ganger.client.places import Places, home
from ganger.core.errors import BadInput, GangerError

T = TypeVar("T")
TIMEOUT_SECONDS: Final = 120.0
BEAT_SECONDS: Final = 5.0
"""The daemon's stream of steps says something at least so often, so that silence means trouble."""


class NoDaemon(GangerError):  # noqa: N818 - reads as a sentence
    """Nobody answers."""


class Refusal(BadInput):
    """The daemon refused; `status` is HTTP's."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.detail or problem.title, where=problem.where, mend=problem.mend)
        self.status = problem.status


class _OverUnix(http.client.HTTPConnection):
    def __init__(self, path: Path, timeout: float) -> None:
        super().__init__("daemon", timeout=timeout)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        # Where many wait to be accepted, the kernel waits for room in their line, but only if the
        # socket blocks; one with a timeout of Python's does not, and would be refused at once.
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, _timeval(self.timeout or 0.0))
        folder = os.open(self._path.parent, os.O_PATH | os.O_DIRECTORY)
        try:  # a socket's path must be short, and this one is whatever the folder is called
            self.sock.connect(f"/proc/self/fd/{folder}/{self._path.name}")
        except BlockingIOError:
            raise TimeoutError from None
        finally:
            os.close(folder)
        self.sock.settimeout(self.timeout)


def _timeval(seconds: float) -> bytes:
    """A C `struct timeval`; 0: no end."""
    return struct.pack("ll", int(seconds), round(seconds % 1 * 1_000_000) % 1_000_000)


class Client:
    """Talks to one daemon: that of `root` (default: the user's), or the one at `url`
    (`http://host:port`, with `token`). `GANGER_URL` and `GANGER_TOKEN` name one, too."""

    def __init__(
        self,
        root: Path | None = None,
        *,
        url: str = "",
        token: str = "",
        timeout: float = TIMEOUT_SECONDS,
    ) -> None:
        self._connection: http.client.HTTPConnection | None = None
        self._url = url or ("" if root else os.environ.get("GANGER_URL", ""))
        self._token = token or os.environ.get("GANGER_TOKEN", "")
        self.places = Places(root or home())
        self._timeout = timeout
        self._gone = False

    def _connect(self) -> http.client.HTTPConnection:
        if not self._url:
            return _OverUnix(self.places.socket, self._timeout)
        parts = urlsplit(self._url if "//" in self._url else f"//{self._url}")
        if not parts.hostname:
            raise BadInput(
                f"{self._url!r} is not a valid address",
                where="GANGER_URL",
                mend="write http://HOST:PORT",
            )
        return http.client.HTTPConnection(parts.hostname, parts.port or 80, timeout=self._timeout)

    def _send(
        self,
        method: str,
        path: str,
        query: dict[str, Any] | None,
        body: Any,
        headers: dict[str, str] | None,
    ) -> http.client.HTTPResponse:
        wanted = {key: value for key, value in (query or {}).items() if value not in ("", None)}
        target = f"{path}?{urlencode(wanted)}" if wanted else path
        data = None if body is None else msgspec.json.encode(body)
        sent = {"Content-Type": "application/json", **(headers or {})}
        if self._token:
            sent["Authorization"] = f"Bearer {self._token}"
        for attempt in (0, 1):
            if self._gone:
                break
            fresh = self._connection is None
            if self._connection is None:
                self._connection = self._connect()
            try:
                self._connection.request(method, target, data, sent)
                return self._connection.getresponse()
            except (http.client.HTTPException, BrokenPipeError, ConnectionResetError) as error:
                self.close()
                if fresh or attempt:
                    raise NoDaemon(f"the daemon hung up: {error}") from None
            except OSError as error:
                self.close()
                raise self._nobody(error) from None
        raise NoDaemon("the daemon hung up")

    def _nobody(self, error: OSError) -> NoDaemon:
        if isinstance(error, TimeoutError):
            return NoDaemon(f"the daemon does not answer within {self._timeout:g} s")
        if isinstance(error, PermissionError):
            return NoDaemon(f"{self.places.socket}: another user's daemon")
        if self._url:
            return NoDaemon(f"{self._url}: {error.strerror or error}")
        return NoDaemon(f"no daemon runs in {self.places.root} (start one with `ganger up`)")

    def call(
        self,
        method: str,
        path: str,
        kind: type[T] | Any = Any,
        *,
        query: dict[str, Any] | None = None,
        body: Any = None,
        headers: dict[str, str] | None = None,
    ) -> Any:
        """Ask, and decode the answer as `kind`. Raises Refusal or NoDaemon."""
        response = self._send(method, path, query, body, headers)
        try:
            data = response.read()
        except (http.client.HTTPException, OSError) as error:
            self.close()
            raise NoDaemon(f"the daemon hung up: {error}") from None
        if response.status >= 400:
            raise Refusal(_problem(response.status, data))
        return msgspec.json.decode(data, type=kind)

    def stream(self, path: str, query: dict[str, Any] | None = None) -> Iterator[bytes]:
        """A text, piece by piece as it comes. Raises Refusal or NoDaemon."""
        self.close()
        response = self._send("GET", path, query, None, None)
        if response.status >= 400:
            raise Refusal(_problem(response.status, response.read()))
        if self._connection is not None and self._connection.sock is not None:
            self._connection.sock.settimeout(None)
        try:
            while chunk := response.read1(1 << 16):
                yield chunk
        finally:
            self.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        self.close()

    def abort(self) -> None:
        """End the call that another thread waits in: it raises NoDaemon there, as does any later
        one."""
        self._gone = True
        connection = self._connection
        if connection is not None and connection.sock is not None:
            with contextlib.suppress(OSError):  # it has hung up already
                connection.sock.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Hang up; the next call connects again."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def _problem(status: int, data: bytes) -> Problem:
    try:
        return msgspec.json.decode(data, type=Problem)
    except msgspec.MsgspecError:
        return Problem(title=f"HTTP {status}", status=status, detail=data[:200].decode("latin-1"))
