"""What changed: while anybody looks, the daemon's own stream says when steps were made, and
browsers learn of it by server-sent events. The load of the last day is kept beside it."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable
from typing import Final

import msgspec

from ganger.client.answers import Status
from ganger.core.errors import GangerError
from ganger.web.backend import Backend

LOOK_SECONDS: Final = 0.6
"""How often the daemon is asked how it does at most, where steps follow each other."""
RETRY_SECONDS: Final = 1.0
REST_SECONDS: Final = 10.0
STREAMS_MAX: Final = 256
STREAMS_OF_ONE: Final = 16
"""A browser has one, and for a moment another where its tabs come and go."""
SAMPLE_SECONDS: Final = 30.0
_DAY_SECONDS: Final = 86400.0
_MESSAGE_BYTES: Final = 64 << 10
"""Of more that is new to a browser the rest waits until it has read this."""
BYTES_A_SECOND: Final = 18_000
"""What one browser is sent in the mean: of a map of thousands of GPUs that changes all the time not
every state."""
AHEAD_SECONDS: Final = 1.6
"""So much of that may come at once: the first changes after a rest, whatever is shown."""
_APART_SECONDS: Final = 0.3
"""Between two messages to a browser, where orders follow each other."""


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
        """Set when the pages end."""
        self.samples: deque[Sample] = deque(maxlen=int(_DAY_SECONDS / SAMPLE_SECONDS))
        self.streams = 0
        self.of: Counter[str] = Counter()
        """Streams by the name of their session."""
        self.used = time.monotonic()
        """When a page was last asked for."""
        self._changed = asyncio.Event()
        self._wake = asyncio.Event()
        self._last_tell = 0.0
        """When streams last went on, by the loop's clock."""
        self._late: asyncio.TimerHandle | None = None
        self._said: tuple[tuple[object, ...], bytes] | None = None

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
        """Look now and then, whether anybody follows or not: load is a matter of time; and streams
        say that they live."""
        while True:
            await asyncio.sleep(REST_SECONDS)
            await self.look()
            self._tell()

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
        if self._late is None:
            loop = asyncio.get_running_loop()
            self._late = loop.call_at(self._last_tell + _APART_SECONDS, self._tell)

    def _tell(self) -> None:
        """Let all streams go on."""
        if self._late is not None:
            self._late.cancel()
            self._late = None
        self._last_tell = asyncio.get_running_loop().time()
        self._changed.set()
        self._changed = asyncio.Event()

    def _sample(self, status: Status) -> None:
        if self.samples and status.now - self.samples[-1].at < SAMPLE_SECONDS:
            return
        waiting = status.jobs.get("pending", 0) + status.jobs.get("blocked", 0)
        held = status.gpus - status.gpus_free - status.gpus_out
        self.samples.append(Sample(status.now, max(held, 0), status.gpus, waiting))

    def hello(self, tick: int) -> bytes:
        """The message of a stream: the state's number, whether the daemon answers, and when it last
        did."""
        data = msgspec.json.encode({"tick": tick, "up": self.up, "answered": self.answered})
        return b"event: tick\ndata: %s\n\n" % data

    async def stream(
        self,
        news: Callable[[int], AsyncIterator[bytes]],
        write: Callable[[bytes], bytes] = bytes,
        head: bytes = b"",
        session: str = "",
    ) -> AsyncIterator[bytes]:
        """Events for one browser of a `session`, until it hangs up, the pages end or `news` raises
        EOFError. `news`: what it is sent in a state of the daemon before it is told of that;
        `write`: how other messages go, after `head`."""
        self.streams += 1
        self.of[session] += 1
        self._wake.set()
        ready, due = head + write(b"retry: 2000\n\n"), 0.0
        try:
            while not self.leaving.is_set():
                changed, tick, sent = self._changed, self.tick, 0
                if self.up:
                    async for each in news(tick):
                        ready += each
                        sent += len(each)
                        if len(ready) > _MESSAGE_BYTES:
                            yield ready
                            ready = b""
                yield ready + self._hello(tick, write)
                ready = b""
                now = time.monotonic()
                due = max(due, now) + sent / BYTES_A_SECOND
                if (rest := due - now - AHEAD_SECONDS) > 0:
                    with contextlib.suppress(TimeoutError):
                        await asyncio.wait_for(self.leaving.wait(), rest)
                await changed.wait()
        except EOFError:
            pass
        finally:
            self.streams -= 1
            self.of[session] -= 1
            self.of += Counter()  # without those that have none

    def _hello(self, tick: int, write: Callable[[bytes], bytes]) -> bytes:
        """The same for all who are told the same."""
        key = tick, self.up, self.answered, write
        if self._said is None or self._said[0] != key:
            self._said = key, write(self.hello(tick))
        return self._said[1]

    def leave(self) -> None:
        """Streams end."""
        self.leaving.set()
        self._changed.set()
