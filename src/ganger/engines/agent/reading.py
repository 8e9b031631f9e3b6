"""Text files that jobs write, read piece by piece while they grow."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import IO, Final, NamedTuple

from ganger.core.errors import BadInput
from ganger.engines.agent.rights import rights_of

CHUNK: Final = 1 << 18
LOOKED_AT: Final = 1 << 24
"""So many bytes of a file's end are searched for its last lines: a sparse file holds no line in any
number of bytes, and others wait for who reads."""


class Piece(NamedTuple):
    """What was read, and where it ends; -1 if there is no file yet."""

    at: int
    data: bytes


def read_piece(path: Path, at: int, lines: int, uid: int = -1) -> Piece:
    """What follows byte `at`, at most `CHUNK` bytes; -1: from the last `lines` lines on (0:
    all; looked for in the last 16 MiB).

    It is read with the rights of user `uid` (-1: with this process's own). Raises BadInput for what
    is not a regular file, or does not belong to that user.
    """
    file = _opened(path, uid)
    if file is None:
        return Piece(-1, b"")
    try:
        with file:
            size = os.fstat(file.fileno()).st_size
            if at < 0:
                at = start_of(file, lines)
            if size <= at:
                return Piece(at, b"")
            file.seek(at)
            data = file.read(CHUNK)
    except OSError as error:
        raise BadInput(f"{path}: {error.strerror}", where="output") from None
    return Piece(at + len(data), data)


def _opened(path: Path, uid: int) -> IO[bytes] | None:
    try:
        with rights_of(uid):
            descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise BadInput(f"{path}: {error.strerror}", where="output") from None
    found = os.fstat(descriptor)
    if stat.S_ISREG(found.st_mode) and uid in (-1, found.st_uid):
        return os.fdopen(descriptor, "rb")
    os.close(descriptor)
    what = "belongs to another user" if stat.S_ISREG(found.st_mode) else "is not a regular file"
    raise BadInput(f"{path} {what}", where="output")


def start_of(file: IO[bytes], lines: int) -> int:
    """Where the last `lines` lines begin, looked for in the last `LOOKED_AT` bytes; 0 for all."""
    if not lines:
        return 0
    end = file.seek(0, os.SEEK_END)
    at = max(end - 1, 0)  # a mark at the very end ends the last line
    while at > max(end - LOOKED_AT, 0):
        begin = max(at - CHUNK, 0)
        file.seek(begin)
        data = file.read(at - begin)
        marks = data.count(b"\n")
        if marks >= lines:
            offset = len(data)
            for _ in range(lines):
                offset = data.rindex(b"\n", 0, offset)
            return begin + offset + 1
        lines -= marks
        at = begin
    return at
