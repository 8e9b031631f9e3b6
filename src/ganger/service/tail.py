"""What a job wrote, read from the files on this machine."""

from __future__ import annotations

import asyncio
import os
import stat
from collections.abc import AsyncIterator
from pathlib import Path
from typing import IO, Final

from ganger.core.errors import BadInput
from ganger.core.jobs import HOLDS_DEVICES, Phase
from ganger.service.launches import pattern
from ganger.service.world import World

CHUNK: Final = 1 << 16
LOOK_SECONDS: Final = 0.1


class Source:
    """One output of one attempt (0: of the last one). Raises BadInput if it must not be read."""

    def __init__(self, world: World, row: int, stream: str, attempt: int) -> None:
        self._world, self._row, self._asked = world, row, attempt
        daemon = world.daemon
        with daemon.lock:
            facts = daemon.reader.facts(row)
        launch = facts.launch
        self._owner = launch.uid
        stated = launch.output if stream == "output" or not launch.error else launch.error
        self._pattern = pattern(stated, facts, row)
        file = self._open(self._path(self._state()[0]))
        if file is not None:
            file.close()

    def _state(self) -> tuple[int, bool]:
        """The attempt to read, and whether more may come."""
        jobs = self._world.daemon.kernel.jobs
        last, phase = int(jobs.attempt[self._row]), Phase(jobs.phase[self._row])
        if self._asked:
            if self._asked > last:
                raise BadInput(f"there were {last} attempts", where="attempt")
            return self._asked, self._asked == last and phase in HOLDS_DEVICES
        return last, phase < Phase.FINISHED

    def _path(self, attempt: int) -> Path:
        if self._pattern:
            return Path(self._pattern)
        return self._world.logs / f"{self._row}.{attempt}.log"

    def _open(self, path: Path) -> IO[bytes] | None:
        """The file, if it is there. One that its user named must be a file of that user's own: the
        daemon may be able to read more than they are."""
        try:
            file = os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb")
        except FileNotFoundError:
            return None
        except OSError as error:
            raise BadInput(f"{path}: {error.strerror}", where="output") from None
        found = os.fstat(file.fileno())
        if not stat.S_ISREG(found.st_mode):
            file.close()
            raise BadInput(f"{path} is no regular file", where="output")
        if self._pattern and self._owner > 0 and found.st_uid != self._owner:
            file.close()
            raise BadInput(f"{path} belongs to somebody else", where="output")
        return file

    async def read(self, lines: int, follow: bool) -> AsyncIterator[bytes]:
        """The text, from the last `lines` lines on (0: all); with `follow` what comes, too, over
        further attempts, until the job is over."""
        attempt, _ = self._state()
        at = -1
        while True:
            present, more = self._state()
            path = self._path(attempt)
            while True:
                at, chunk = await asyncio.to_thread(self._next, path, at, lines)
                if not chunk:
                    break
                yield chunk
            if not follow or self._world.leaving:
                return
            if present != attempt:
                same = self._path(present) == path
                attempt, at = present, at if same else -1
            elif not more:
                return
            else:
                await asyncio.sleep(LOOK_SECONDS)

    def _next(self, path: Path, at: int, lines: int) -> tuple[int, bytes]:
        """What follows `at` (-1: the last `lines` lines), and where that ends."""
        try:
            file = self._open(path)
        except BadInput:
            return at, b""
        if file is None:
            return at, b""
        with file:
            size = os.fstat(file.fileno()).st_size
            if at < 0:
                at = start_of(file, lines)
            if size <= at:
                return at, b""
            file.seek(at)
            chunk = file.read(CHUNK)
        return at + len(chunk), chunk


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
