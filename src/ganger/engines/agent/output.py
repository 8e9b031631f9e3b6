"""A job's output: pumped from a pipe to a file, bounded however much comes."""

from __future__ import annotations

import contextlib
import os
from typing import Final

from ganger.engines.agent.rights import user_is

_CHUNK: Final = 1 << 16
TAIL_BYTES: Final = 1 << 16


class Output:
    """The reading end of a pipe and the file behind it.

    The first `limit` bytes are written as they come, then only the last 64 KiB are kept and written
    at the end, with a line between that says how much is missing. A full disk counts as a limit.
    They are written as user `uid` (-1: as this process's), whose disk quota counts.
    """

    def __init__(self, pipe: int, file: int, limit: int, uid: int = -1) -> None:
        os.set_blocking(pipe, False)
        self._pipe, self._file, self._uid = pipe, file, uid
        self._room = limit
        self._tail = bytearray()
        self._over = 0

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
        written = 0
        if self._room and not self._over:
            with contextlib.suppress(OSError), user_is(self._uid):
                written = os.write(self._file, chunk[: self._room])
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
        with contextlib.suppress(OSError), user_is(self._uid):
            if missing:
                os.write(self._file, f"\n[ganger: {missing} bytes are missing here]\n".encode())
            os.write(self._file, self._tail)
        for descriptor in (self._pipe, self._file):
            os.close(descriptor)
        return missing
