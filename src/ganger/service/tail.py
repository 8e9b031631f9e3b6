"""What a job wrote, read from the files on this machine."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

from ganger.core.errors import BadInput
from ganger.core.jobs import HOLDS_DEVICES, Phase
from ganger.service.launches import pattern
from ganger.service.world import World

CHUNK: Final = 1 << 16
LOOK_SECONDS: Final = 0.1


class Source:
    """One output of one attempt (0: of the last one). Raises BadInput if there is none."""

    def __init__(self, world: World, row: int, stream: str, attempt: int) -> None:
        self._world, self._row, self._asked = world, row, attempt
        daemon = world.daemon
        with daemon.lock:
            facts = daemon.reader.facts(row)
        launch = facts.launch
        stated = launch.output if stream == "output" or not launch.error else launch.error
        self._pattern = pattern(stated, facts, row)

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

    async def read(self, lines: int, follow: bool) -> AsyncIterator[bytes]:
        """The text, from the last `lines` lines on (0: all); with `follow` what comes, too, over
        further attempts, until the job is over."""
        attempt, _ = self._state()
        at = -1
        while True:
            present, more = self._state()
            path = self._path(attempt)
            if at < 0 and path.exists():
                at = _start_of(path, lines)
            while at >= 0 and (chunk := await asyncio.to_thread(_read, path, at)):
                at += len(chunk)
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


def _read(path: Path, at: int) -> bytes:
    try:
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            if size < at:
                return b""
            file.seek(at)
            return file.read(CHUNK)
    except OSError:
        return b""


def _start_of(path: Path, lines: int) -> int:
    """Where the last `lines` lines begin."""
    if not lines:
        return 0
    with path.open("rb") as file:
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
