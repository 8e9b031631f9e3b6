"""A job's output: pumped from a pipe to a file, bounded however much comes."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Final

from ganger.engines.agent.rights import user_is

Hear = Callable[[bytes], None]
_CHUNK: Final = 1 << 16
TAIL_BYTES: Final = 1 << 16


class Output:
    """The reading end of a pipe and the file behind it.

    The first `limit` bytes are written as they come, then only the last 64 KiB are kept and written
    at the end, with a line between that says how much is missing. A full disk counts as a limit.
    They are written as user `uid` (-1: as this process's), whose disk quota counts. `hear` gets
    all that comes.
    """

    def __init__(
        self, pipe: int, file: int, limit: int, uid: int = -1, hear: Hear | None = None
    ) -> None:
        os.set_blocking(pipe, False)
        self._hear = hear
        self._pipe, self._file, self._uid = pipe, file, uid
        self._room = limit
        self._tail = bytearray()
        self._over = 0
        self.why = ""
        """What the disk said when it first took no more; empty if it took all it was given."""

    def fileno(self) -> int:
        """For selectors."""
        return self._pipe

    def pump(self) -> bool:
        """Take one chunk; False if there is nothing now, or nothing more."""
        try:
            chunk = os.read(self._pipe, _CHUNK)
        except BlockingIOError:
            return False
        if not chunk:
            return False
        if self._hear is not None:
            self._hear(chunk)
        written = 0
        if self._room and not self._over:
            written = self._write(chunk[: self._room])
            self._room -= written
        if written < len(chunk):
            self._over += len(chunk) - written
            self._tail += chunk[written:]
            del self._tail[:-TAIL_BYTES]
        return True

    def finish(self) -> int:
        """Drain the pipe, write what was kept of the end; how many bytes are missing."""
        drained = 0
        while self.pump() and drained < 256:  # a writer that escaped must not hold us
            drained += 1
        missing = self._over - len(self._tail)
        if missing:
            self._write(f"\n[ganger: {missing} bytes are missing here]\n".encode())
        missing += len(self._tail) - self._write(self._tail)
        for descriptor in (self._pipe, self._file):
            os.close(descriptor)
        return missing

    def _write(self, data: bytes | bytearray) -> int:
        """Put as much into the file as it takes: how many bytes."""
        done = 0
        try:
            with user_is(self._uid):
                while done < len(data):
                    done += os.write(self._file, data[done:])
        except OSError as error:
            self.why = self.why or error.strerror or repr(error)
        return done
