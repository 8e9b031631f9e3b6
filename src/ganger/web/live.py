"""What changed: while anybody looks, the daemon's own stream says when steps were made, and
browsers learn of it by server-sent events. The load of the last day is kept beside it."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import AsyncIterator
from typing import Final

import msgspec

from ganger.client.answers import Status
from ganger.core.errors import GangerError
from ganger.web.backend import Backend

LOOK_SECONDS: Final = 0.4
"""How often the daemon is asked how it does at most, where steps follow each other."""
RETRY_SECONDS: Final = 1.0
REST_SECONDS: Final = 10.0
STREAMS_MAX: Final = 256
SAMPLE_SECONDS: Final = 30.0
_DAY_SECONDS: Final = 86400.0
_HEART_SECONDS: Final = 10.0
_BUSY: Final = 4
"""Of more streams each is told the less often: pages ask for what changed."""


class Sample(msgspec.Struct, frozen=True, array_like=True):
    """The load at one time (Unix seconds): GPUs that are held, GPUs in all, waiting jobs."""

    at: float
    held: int
    gpus: int
    waiting: int


class Live:
    """Follows the daemon behind `backend`. `tick` grows with every change, `status` is what the
    daemon last answered, `up` whether it answers."""

    def __init__(self, backend: Backend, *, alone: bool = False) -> None:
        self._backend, self._alone = backend, alone
        self.tick = 1
        self.status: Status | None = None
        self.up = False
        self.answered = 0.0
        """When the daemon last answered, in Unix seconds."""
        self.leaving = asyncio.Event()
        """Set when the pages end: streams end by themselves."""
        self.samples: deque[Sample] = deque(maxlen=int(_DAY_SECONDS / SAMPLE_SECONDS))
        self.streams = 0
        self.used = time.monotonic()
        """When a page was last asked for."""
        self._changed = asyncio.Event()
        self._wake = asyncio.Event()

    async def run(self) -> None:
        """Follow until the task is cancelled."""
        beside = asyncio.create_task(self._sampling())
        try:
            while True:
                self._wake.clear()
                if self.streams and not self._alone:
                    await self._follow()
                    rest = RETRY_SECONDS
                else:
                    rest = REST_SECONDS
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._wake.wait(), rest)
        finally:
            beside.cancel()

    async def _sampling(self) -> None:
        """Look now and then, whether anybody follows or not: load is a matter of time."""
        while True:
            await asyncio.sleep(REST_SECONDS)
            await self.look()

    async def _follow(self) -> None:
        """Look whenever the daemon made steps, as long as it says so and somebody wants to know."""
        try:
            async with contextlib.aclosing(self._backend.steps()) as steps:
                async for _ in steps:
                    await self.look()
                    if not self.streams:
                        return
                    await asyncio.sleep(LOOK_SECONDS)
        except OSError:  # nobody listens there, or it hung: TimeoutError is one
            pass
        await self.look()

    async def look(self) -> None:
        """Ask the daemon how it does, now; alone there is none, and nothing changes."""
        if self._alone:
            self.up, self.answered = True, time.time()
            return
        before = (self.up, self.status.revision, self.status.pid) if self.status else (False, 0, 0)
        try:
            status: Status = await self._backend.get("/v1/status", Status)
        except (GangerError, msgspec.MsgspecError):  # or one of another version answers
            self.up = False
        else:
            self.up, self.status = True, status
            self.answered = time.time()
            self._sample(status)
        now = (self.up, self.status.revision, self.status.pid) if self.status else (False, 0, 0)
        if now != before:
            self.bump()

    def bump(self) -> None:
        """Tell browsers that there is something new."""
        self.tick += 1
        self._changed.set()
        self._changed = asyncio.Event()

    def _sample(self, status: Status) -> None:
        if self.samples and status.now - self.samples[-1].at < SAMPLE_SECONDS:
            return
        waiting = status.jobs.get("pending", 0) + status.jobs.get("blocked", 0)
        held = status.gpus - status.gpus_free - status.gpus_out
        self.samples.append(Sample(status.now, max(held, 0), status.gpus, waiting))

    def hello(self) -> bytes:
        """The message of a stream: the state's number, whether the daemon answers, and why not."""
        data = msgspec.json.encode({"tick": self.tick, "up": self.up, "answered": self.answered})
        return b"event: tick\ndata: %s\n\n" % data

    async def stream(self) -> AsyncIterator[bytes]:
        """Events for one browser, until it hangs up or the pages end."""
        self.streams += 1
        self._wake.set()
        try:
            sent, beat = self.tick, time.monotonic()
            yield b"retry: 2000\n\n" + self.hello()
            while not self.leaving.is_set():
                changed = self._changed
                if sent == self.tick:
                    try:
                        await asyncio.wait_for(changed.wait(), 1.0)
                    except TimeoutError:
                        if time.monotonic() - beat > _HEART_SECONDS:
                            beat = time.monotonic()
                            yield self.hello()
                        continue
                sent, beat = self.tick, time.monotonic()
                yield self.hello()
                with contextlib.suppress(TimeoutError):
                    pause = LOOK_SECONDS * max(1, self.streams / _BUSY / 10)
                    await asyncio.wait_for(self.leaving.wait(), pause)
        finally:
            self.streams -= 1
