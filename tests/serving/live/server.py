"""`ganger serve` in a process of its own, and sockets that speak to it as badly as is wished."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple


class Answer(NamedTuple):
    """An HTTP answer."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def error(self) -> str:
        """What is wrong, in the protocol's words, which are all that there is."""
        (name, why), *others = self.json.items()
        assert (name, others) == ("error", [])
        assert "Traceback" not in why
        return str(why)


class Server(NamedTuple):
    """A server under test."""

    process: subprocess.Popen[str]
    port: int
    grpc_port: int = 0

    @property
    def url(self) -> str:
        return f"127.0.0.1:{self.port}"

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=20)

    def send(self, data: bytes) -> Answer:
        """Raw bytes, and the first answer to them."""
        with self.connect() as sock:
            sock.sendall(data)
            return read(sock)

    def ask(
        self, method: str, path: str, body: bytes = b"", headers: dict[str, str] | None = None
    ) -> Answer:
        return self.send(request(method, path, body, headers))

    def infer(self, model: str, body: dict[str, Any], **headers: str) -> Answer:
        return self.ask("POST", f"/v2/models/{model}/infer", json.dumps(body).encode(), headers)

    def memory_bytes(self) -> int:
        """Resident memory of the server."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        found = re.search(r"VmRSS:\s+(\d+)", status)
        assert found is not None
        return int(found[1]) << 10


def request(
    method: str, path: str, body: bytes = b"", headers: dict[str, str] | None = None
) -> bytes:
    lines = [f"{method} {path} HTTP/1.1", "host: here", f"content-length: {len(body)}"]
    lines += [f"{name}: {value}" for name, value in (headers or {}).items()]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def read(sock: socket.socket) -> Answer:
    """One answer from a socket."""
    data = b""
    while b"\r\n\r\n" not in data:
        piece = sock.recv(1 << 16)
        assert piece, f"the connection ended after {data[:200]!r}"
        data += piece
    head, _, body = data.partition(b"\r\n\r\n")
    first, *lines = head.decode().split("\r\n")
    headers = dict(line.split(": ", 1) for line in lines)
    while len(body) < int(headers["content-length"]):
        piece = sock.recv(1 << 16)
        assert piece
        body += piece
    return Answer(int(first.split()[1]), headers, body)


def ended(sock: socket.socket) -> bool:
    """Whether the server has ended the connection."""
    try:
        return sock.recv(1) == b""
    except ConnectionResetError:
        return True


@contextlib.contextmanager
def serving(file: Path, *options: str, status: int = 0) -> Iterator[Server]:
    """A server of a models file, which ends with that status; what it wrote must hold no
    traceback."""
    code = "from ganger.cli.main import main; main()"
    (file.parent / "stderr").unlink(missing_ok=True)
    with (file.parent / "stderr").open("a+") as errors:  # what is written stays at the end
        process = subprocess.Popen(
            [sys.executable, "-c", code, "serve", str(file), "--port", "0", *options],
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            env={**os.environ, "GANGER_DEBUG": ""},
        )
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            place = re.search(r"https?://127\.0\.0\.1:(\d+)", line)
            errors.seek(0)
            assert place is not None, line + errors.read()
            grpc = re.search(r"gRPC at 127\.0\.0\.1:(\d+)", line)
            yield Server(process, int(place[1]), int(grpc[1]) if grpc else 0)
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
            assert process.wait(30) == status
            errors.seek(0)
            assert "Traceback" not in errors.read()
        finally:
            process.kill()
            process.wait()
            assert process.stdout is not None
            process.stdout.close()
