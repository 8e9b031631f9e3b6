"""Text files that jobs write, read piece by piece while they grow."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import IO, Final, NamedTuple

from ganger.core.errors import BadInput
from ganger.engines.agent.rights import rights_of

CHUNK: Final = 1 << 18


class Piece(NamedTuple):
    """What was read, and where it ends; -1 if there is no file yet."""

    at: int
    data: bytes


def read_piece(path: Path, at: int, lines: int, uid: int = -1) -> Piece:
    """What follows byte `at`, at most `CHUNK` bytes; -1: from the last `lines` lines on (0: all).

    It is read with the rights of user `uid` (-1: with this process's own). Raises BadInput for what
    is not a regular file, or does not belong to that user.
    """
    file = _opened(path, uid)
    if file is None:
        return Piece(-1, b"")
    with file:
        size = os.fstat(file.fileno()).st_size
        if at < 0:
            at = start_of(file, lines)
        if size <= at:
            return Piece(at, b"")
        file.seek(at)
        data = file.read(CHUNK)
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
    what = "belongs to somebody else" if stat.S_ISREG(found.st_mode) else "is no regular file"
    raise BadInput(f"{path} {what}", where="output")


def start_of(file: IO[bytes], lines: int) -> int:
    """Where the last `lines` lines begin; 0 for all."""
    if not lines:
        return 0
    end = file.seek(0, os.SEEK_END)
    at, seen = end, 0
    while at > 0:
        begin = max(at - CHUNK, 0)
        file.seek(begin)
        data = file.read(at - begin)
        for offset in range(len(data) - 1, -1, -1):
            if data[offset] == 10 and begin + offset != end - 1:
                seen += 1
                if seen == lines:
                    return begin + offset + 1
        at = begin
    return 0
