"""A listening socket that outlives its server: a small parent holds it, runs the server as a child,
and has another child ready, with everything imported and every model looked at.

A server that dies, however it does, loses its connections and what it kept. The next one takes the
same socket at once: clients that connect meanwhile wait in its queue. Where the parent dies, its
children see their end of the control socket closed, and end gracefully.
"""

from __future__ import annotations

import contextlib
import selectors
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec
from msgspec import Struct

_READY: Final = b"ready\n"
_GO: Final = b"go\n"
_RESTS: Final = (0.0, 1.0, 5.0, 20.0, 60.0)
"""Seconds before another child is started, after so many in a row that never served."""
_ENDS: Final = (signal.SIGTERM, signal.SIGINT)


class Began(Struct, frozen=True):
    """What a child reports once it serves: a line for its operator, and notes."""

    line: str
    notes: list[str] = []


class Inherited:
    """The child's side: the socket that it is to serve at, and the control socket."""

    def __init__(self, sock: int, control: int) -> None:
        self.sock, self.control = socket.socket(fileno=sock), socket.socket(fileno=control)

    @classmethod
    def of(cls, text: str) -> Inherited:
        """By two descriptors, like "3,4". Raises ValueError."""
        sock, control = map(int, text.split(","))
        return cls(sock, control)

    def wait(self) -> bool:
        """Say that all is ready; whether to serve now, False: the parent has ended."""
        for number in _ENDS:
            signal.signal(number, signal.SIG_DFL)
        try:
            self.control.sendall(_READY)
            return self.control.recv(len(_GO)) == _GO
        except OSError:
            return False

    def report(self, began: Began) -> None:
        """Say that it serves."""
        with contextlib.suppress(OSError):
            self.control.sendall(msgspec.json.encode(began) + b"\n")


class _Child(Struct, eq=False):
    process: subprocess.Popen[bytes]
    control: socket.socket
    text: bytes = b""
    is_ready: bool = False
    serves: bool = False


class Parent:
    """Runs children of one command over one socket. `tell` hears lines for the operator: whether it
    is the first one that serves, and the line."""

    def __init__(
        self, command: Sequence[str], sock: socket.socket, tell: Callable[[bool, str], None]
    ) -> None:
        self._command, self._sock, self._tell = command, sock, tell
        self._active: _Child | None = None
        self._standby: _Child | None = None
        self._selector = selectors.DefaultSelector()
        self._signals: list[int] = []
        self._ending = self._served = False
        self._idle_since = time.monotonic()
        self._failures = 0
        """Children in a row that never served."""
        self._next = 0.0
        """When another may be started."""

    def run(self) -> int:
        """Until SIGTERM or SIGINT, which the server is ended by gracefully: the exit status."""
        ear, mouth = socket.socketpair()
        for each in (ear, mouth):
            each.setblocking(False)
        signal.set_wakeup_fd(mouth.fileno(), warn_on_full_buffer=False)
        for number in (*_ENDS, signal.SIGHUP):
            signal.signal(number, lambda number, _: self._signals.append(number))
        self._selector.register(ear, selectors.EVENT_READ, None)
        try:
            while (status := self._turn(ear)) is None:
                pass
            return status
        finally:
            signal.set_wakeup_fd(-1)
            for child in (self._active, self._standby):
                if child is not None:
                    child.process.kill()
                    child.process.wait()
            for each in (ear, mouth):
                each.close()

    def _turn(self, ear: socket.socket) -> int | None:
        """Wait for something to happen, and see to it; the exit status, once it is over."""
        wait = self._fill()
        for key, _ in self._selector.select(wait):
            if key.data is None:
                with contextlib.suppress(BlockingIOError):
                    ear.recv(1000)
            elif (status := self._hear(key.data)) is not None:
                return status
        signals, self._signals = self._signals, []
        for number in signals:
            if (status := self._obey(number)) is not None:
                return status
        return None

    def _fill(self) -> float | None:
        """Have a child for each place that is empty; the seconds after which to look again."""
        if self._ending:
            return None
        if self._active is None and self._standby is not None:
            self._active, self._standby = self._standby, None
            if self._active.is_ready:
                self._promote(self._active)
        wait = self._next - time.monotonic()
        if wait > 0 and (self._active is None or self._standby is None):
            return wait
        if self._active is None:
            self._active = self._start()
        elif self._standby is None and self._active.serves:
            self._standby = self._start()
        return None

    def _start(self) -> _Child:
        own, theirs = socket.socketpair()
        descriptors = (self._sock.fileno(), theirs.fileno())
        process = subprocess.Popen(
            [*self._command, "--inherit", ",".join(map(str, descriptors))],
            pass_fds=descriptors,
            stdin=subprocess.DEVNULL,
            process_group=0,
        )
        theirs.close()
        child = _Child(process, own)
        self._selector.register(own, selectors.EVENT_READ, child)
        return child

    def _promote(self, child: _Child) -> None:
        with contextlib.suppress(OSError):  # it has died: its end is heard of next
            child.control.sendall(_GO)

    def _hear(self, child: _Child) -> int | None:
        """A child reports, or has died."""
        try:
            data = child.control.recv(1 << 16)
        except OSError:
            data = b""
        if not data:
            return self._lost(child)
        *lines, child.text = (child.text + data).split(b"\n")
        for line in lines:
            if line + b"\n" != _READY:
                self._began(child, msgspec.json.decode(line, type=Began))
                continue
            child.is_ready = True
            if child is self._active:
                self._promote(child)
        return None

    def _began(self, child: _Child, began: Began) -> None:
        child.serves = True
        self._failures = 0
        if not self._served:
            for note in began.notes:
                self._tell(False, f"note: {note}")
            self._tell(True, began.line)
        self._served = True
        seconds = time.monotonic() - self._idle_since
        self._tell(False, f"server {child.process.pid} serves after {seconds:.2f} s")

    def _lost(self, child: _Child) -> int | None:
        """A child has died; the exit status, where that ends all."""
        self._selector.unregister(child.control)
        child.control.close()
        status = child.process.wait()
        was_active = child is self._active
        if was_active:
            self._active = None
        else:
            self._standby = None
        if was_active and self._ending and not child.serves:
            return 0
        if was_active and (self._ending or not self._served):
            return status if status >= 0 else 128 - status
        if self._ending:
            return None
        if was_active and child.serves:
            self._idle_since = time.monotonic()
            how = f"by signal {-status}" if status < 0 else f"with status {status}"
            self._tell(False, f"server {child.process.pid} ended {how}; the next one serves")
        if not child.serves:
            self._failures += 1
        rest = _RESTS[min(self._failures, len(_RESTS) - 1)]
        self._next = time.monotonic() + rest
        return None

    def _obey(self, number: int) -> int | None:
        """What the parent is signalled, the server is; the exit status, where there is none."""
        if number in _ENDS:
            self._ending = True
            self._sock.close()
            if self._standby is not None:
                self._standby.process.kill()
        if self._active is None:
            return 0 if self._ending else None
        serves = self._active.serves
        if number in _ENDS or serves:  # one that is not ready reads its files later anyway
            number = number if serves or number == signal.SIGHUP else signal.SIGKILL
            with contextlib.suppress(ProcessLookupError):
                self._active.process.send_signal(number)
        return None


def command_of(words: Sequence[str]) -> list[str]:
    """The words that run `ganger` with these arguments, by this interpreter."""
    return [sys.executable, "-c", "from ganger.cli.main import main; main()", *words]


def watch_parent(loop: Any, control: socket.socket, ended: Callable[[], None]) -> None:
    """Have `ended` called once the parent is gone."""

    def look() -> None:
        loop.remove_reader(control)
        ended()

    control.setblocking(False)
    loop.add_reader(control, look)
