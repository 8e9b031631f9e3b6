"""A shell inside a job: the job calls back to the waiting side, and a terminal is joined.

The waiting side listens on a Unix socket in a folder that only its user can enter. What travels are
frames: a letter (`d` bytes typed or printed, `w` rows and columns), a length, and that many bytes.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import select
import signal
import socket
import struct
import sys
import termios
import tty
from collections.abc import Callable, Iterator
from typing import Any

_HEAD = struct.Struct(">cI")
_SIZE = struct.Struct("HHHH")
_CHUNK = 1 << 15


def _send(sock: socket.socket, kind: bytes, data: bytes) -> None:
    sock.sendall(_HEAD.pack(kind, len(data)) + data)


class _Frames:
    """Frames out of what arrives."""

    def __init__(self) -> None:
        self._data = b""

    def add(self, data: bytes) -> Iterator[tuple[bytes, bytes]]:
        self._data += data
        while len(self._data) >= _HEAD.size:
            kind, length = _HEAD.unpack_from(self._data)
            end = _HEAD.size + length
            if len(self._data) < end:
                return
            yield kind, self._data[_HEAD.size : end]
            self._data = self._data[end:]


def serve(path: str, command: list[str]) -> int:
    """The job's side: call back, run `command` on a terminal of its own; its exit code."""
    sock = socket.socket(socket.AF_UNIX)
    sock.connect(path)
    pid, terminal = pty.fork()
    if not pid:
        sock.close()
        os.environ.setdefault("TERM", "xterm-256color")
        try:
            os.execvp(command[0], command)
        except OSError as error:
            os.write(2, f"{command[0]}: {error.strerror}\r\n".encode())
            os._exit(127)
    frames = _Frames()
    watched: list[Any] = [sock, terminal]
    while True:
        ready = select.select(watched, [], [])[0]
        if terminal in ready:
            data = b""
            with contextlib.suppress(OSError):  # the last of its users has closed it
                data = os.read(terminal, _CHUNK)
            if not data:
                break
            _send(sock, b"d", data)
        if sock in ready:
            data = sock.recv(_CHUNK)
            if not data:
                os.kill(pid, signal.SIGHUP)
                break
            for kind, body in frames.add(data):
                if kind == b"w":
                    fcntl.ioctl(terminal, termios.TIOCSWINSZ, body)
                else:
                    os.write(terminal, body)
    sock.close()
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def attach(sock: socket.socket) -> None:
    """The user's side: join this process's terminal to the job's until the job hangs up."""
    screen = sys.stdin.fileno()
    before = termios.tcgetattr(screen)
    told = _on_resize(lambda: _send(sock, b"w", _size_of(screen)))
    frames = _Frames()
    watched: list[Any] = [sock, screen]
    try:
        tty.setraw(screen, termios.TCSADRAIN)  # what was typed ahead is kept
        told()
        while True:
            ready = select.select(watched, [], [])[0]
            if sock in ready:
                data = sock.recv(_CHUNK)
                if not data:
                    return
                for _, body in frames.add(data):
                    os.write(sys.stdout.fileno(), body)
            if screen in ready:
                typed = os.read(screen, _CHUNK)
                if not typed:
                    return
                _send(sock, b"d", typed)
    except (ConnectionError, BrokenPipeError):
        return
    finally:
        termios.tcsetattr(screen, termios.TCSADRAIN, before)


def _on_resize(tell: Callable[[], None]) -> Callable[[], None]:
    signal.signal(signal.SIGWINCH, lambda *_: tell())
    return tell


def _size_of(screen: int) -> bytes:
    return fcntl.ioctl(screen, termios.TIOCGWINSZ, bytes(_SIZE.size))


if __name__ == "__main__":
    sys.exit(serve(sys.argv[1], sys.argv[2:]))
