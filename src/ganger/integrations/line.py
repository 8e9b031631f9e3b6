"""A line between a program and the processes that run its trials: one JSON object a line each way.

Over a Unix socket in a folder of the user's own where all of them are on one machine, else over
TCP. Both sides prove that they know a key, which travels in the user's own files, and neither says
it: what a stranger sends is not read.
"""

from __future__ import annotations

import hmac
import json
import secrets
import shutil
import socket
import tempfile
import threading
from collections.abc import Callable
from contextlib import suppress
from io import BufferedRWPair
from pathlib import Path
from typing import Any, Final, NamedTuple

from ganger.core.errors import GangerError

LINE_BYTES_MAX: Final = 1 << 20
STRANGERS_MAX: Final = 64
"""Connections at once that have not proved anything yet."""
PROOF_SECONDS: Final = 10.0
Answer = Callable[[dict[str, Any]], dict[str, Any]]


class Address(NamedTuple):
    """Where a line is answered: the path of a socket, or a host and a port; and its key."""

    path: str
    host: str
    port: int
    key: bytes


class HungUp(GangerError):  # noqa: N818 - reads as a sentence
    """The other side is gone, or did not prove that it knows the key."""


def _proof(key: bytes, role: str, nonce: str) -> str:
    return hmac.new(key, f"{role} {nonce}".encode(), "sha256").hexdigest()


def _same(said: Any, proof: str) -> bool:
    return hmac.compare_digest(str(said).encode(), proof.encode())


def _read(file: BufferedRWPair) -> dict[str, Any]:
    """The next object. Raises HungUp."""
    try:
        line = file.readline(LINE_BYTES_MAX)
        message = json.loads(line) if line.endswith(b"\n") else None
    except (OSError, ValueError) as error:
        raise HungUp(f"the line broke: {error}") from None
    if not isinstance(message, dict):
        raise HungUp("the other side hung up")
    return message


def _plain(value: Any) -> Any:
    """A number of numpy as Python's."""
    return value.item() if hasattr(value, "item") else str(value)


def _write(file: BufferedRWPair, said: dict[str, Any]) -> None:
    data = json.dumps(said, default=_plain).encode()
    try:
        file.write(data + b"\n")
        file.flush()
    except OSError as error:
        raise HungUp(f"the line broke: {error}") from None


class Caller:
    """The side of a trial. Raises HungUp where nothing answers that knows the key."""

    def __init__(self, address: Address) -> None:
        made = socket.socket(socket.AF_UNIX if address.path else socket.AF_INET)
        self._file = made.makefile("rwb")
        try:
            with made:  # the file keeps it open
                made.connect(address.path or (address.host, address.port))
            self._prove(address.key)
        except (OSError, HungUp) as error:
            self._file.close()
            at = address.path or f"{address.host}:{address.port}"
            raise HungUp(f"nobody answers at {at}: {error}") from None

    def _prove(self, key: bytes) -> None:
        """Both sides show that they know the key. Raises HungUp."""
        mine, theirs = secrets.token_hex(16), str(_read(self._file).get("nonce"))
        _write(self._file, {"proof": _proof(key, "trial", theirs), "nonce": mine})
        if not _same(_read(self._file).get("proof"), _proof(key, "program", mine)):
            raise HungUp("it is somebody else")

    def close(self) -> None:
        """Hang up."""
        with suppress(OSError):  # what was not sent
            self._file.close()

    def ask(self, said: dict[str, Any]) -> dict[str, Any]:
        """What the other side answers. Raises HungUp."""
        _write(self._file, said)
        return _read(self._file)


class Listener:
    """The side of the program: `answer` is called for each object that a trial says, in a thread
    for each trial. `elsewhere`: trials may be on other machines."""

    def __init__(self, answer: Answer, *, elsewhere: bool) -> None:
        self._answer, self._strangers = answer, threading.Semaphore(STRANGERS_MAX)
        self._open: set[socket.socket] = set()
        self._lock = threading.Lock()
        self._folder = ""
        key = secrets.token_bytes(32)
        if elsewhere:
            self._socket = socket.create_server(("", 0), backlog=128)
            port = self._socket.getsockname()[1]
            self.address = Address("", socket.gethostname(), port, key)
        else:
            self._folder = tempfile.mkdtemp(prefix="ganger-")  # 0700, and its path is short
            self._socket = socket.socket(socket.AF_UNIX)
            path = str(Path(self._folder, "line"))
            self._socket.bind(path)
            self._socket.listen(128)
            self.address = Address(path, "", 0, key)
        threading.Thread(target=self._accept, name="line", daemon=True).start()

    def close(self) -> None:
        """Hang up on all; trials that call again find nobody."""
        with self._lock:
            closing = [self._socket, *self._open]
        for each in closing:
            with suppress(OSError):  # it hung up before
                each.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        if self._folder:
            shutil.rmtree(self._folder, ignore_errors=True)

    def _accept(self) -> None:
        while True:
            self._strangers.acquire()
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with self._lock:
            self._open.add(connection)
        try:
            with suppress(HungUp, OSError), connection, connection.makefile("rwb") as file:
                try:
                    connection.settimeout(PROOF_SECONDS)
                    known = self._knows(file)
                finally:
                    self._strangers.release()
                connection.settimeout(None)
                while known:
                    _write(file, self._answer(_read(file)))
        finally:
            with self._lock:
                self._open.discard(connection)

    def _knows(self, file: BufferedRWPair) -> bool:
        """Whether the other side knows the key; then we show that we do."""
        nonce = secrets.token_hex(16)
        _write(file, {"nonce": nonce})
        said = _read(file)
        if not _same(said.get("proof"), _proof(self.address.key, "trial", nonce)):
            return False
        _write(file, {"proof": _proof(self.address.key, "program", str(said.get("nonce")))})
        return True
