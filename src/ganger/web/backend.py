"""Questions to the daemon: few at once, and the same one once for everybody who asks it."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import os
from collections import OrderedDict
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from functools import cached_property
from pathlib import Path
from queue import Empty, LifoQueue
from typing import Any, Final

from ganger.client.connection import BEAT_SECONDS, Client, NoDaemon
from ganger.client.places import Places
from ganger.core.errors import BadInput, GangerError

AT_ONCE: Final = 4
SLOW_AT_ONCE: Final = 2
"""Questions that the daemon may work on for seconds."""
TEXTS_MAX: Final = 8
"""Texts that are passed on at once: a browser may pause a download for hours."""
KEPT_MAX: Final = 64
"""How many answers are kept until the next change."""
_TIMEOUT_SECONDS: Final = 15.0
_SLOW_SECONDS: Final = 70.0


class Backend:
    """The daemon of the home at `root`, as asynchronous code asks it."""

    def __init__(self, root: Path) -> None:
        self._root, self._places = root, Places(root)
        self._idle: LifoQueue[Client] = LifoQueue()
        self._busy = set[Client]()
        self._quick = asyncio.Semaphore(AT_ONCE)
        self._slow = asyncio.Semaphore(SLOW_AT_ONCE)
        self._texts = 0

    async def get(self, path: str, kind: Any, /, *, slow: bool = False, **query: Any) -> Any:
        """An answer. Raises Refusal or NoDaemon."""
        return await self._call("GET", path, kind, slow=slow, query=query)

    async def order(
        self, method: str, path: str, kind: Any, body: Any = None, *, slow: bool = False
    ) -> Any:
        """Have something changed, or looked at that needs a body. Raises Refusal or NoDaemon."""
        return await self._call(method, path, kind, body=body, slow=slow)

    async def _call(
        self, method: str, path: str, kind: Any, *, slow: bool = False, **more: Any
    ) -> Any:
        def ask() -> Any:
            with self._client(_SLOW_SECONDS if slow else _TIMEOUT_SECONDS, fresh=slow) as client:
                return client.call(method, path, kind, **more)

        async with self._slow if slow else self._quick:
            return await asyncio.to_thread(ask)

    def refuse_text(self) -> None:
        """Raise BadInput if as many texts are passed on as may be."""
        if self._texts >= TEXTS_MAX:
            raise BadInput(
                f"{TEXTS_MAX} files are being saved already", mend="wait until one of them is there"
            )

    async def text(self, path: str, **query: Any) -> AsyncGenerator[bytes, None]:
        """A text of any length, piece by piece."""
        self._texts += 1
        try:
            with self._client(_SLOW_SECONDS, fresh=True) as client:
                pieces = client.stream(path, query)
                while (piece := await asyncio.to_thread(next, pieces, None)) is not None:
                    yield piece
        finally:
            self._texts -= 1

    async def steps(self) -> AsyncGenerator[None, None]:
        """The daemon's own stream: once when it answers, and after each step that it makes (several
        that come together are told as one). It ends when the daemon hangs up, or says nothing for
        longer than it should."""
        folder = os.open(self._places.socket.parent, os.O_PATH | os.O_DIRECTORY)
        try:  # a socket's path must be short
            path = f"/proc/self/fd/{folder}/{self._places.socket.name}"
            reader, writer = await asyncio.open_unix_connection(path)
        finally:
            os.close(folder)
        try:
            writer.write(b"GET /v1/events?steps=1 HTTP/1.0\r\nHost: daemon\r\n\r\n")
            if b" 200 " not in await asyncio.wait_for(reader.readline(), _TIMEOUT_SECONDS):
                return
            while line := await asyncio.wait_for(reader.readline(), 2 * BEAT_SECONDS):
                if line.startswith((b"event:", b": ")):
                    yield
        finally:
            writer.close()

    async def close(self) -> None:
        """Hang up on a daemon that still works on questions: threads wait for its answers, and the
        process for its threads. One that connects just now may be missed once."""
        while self._busy:
            for client in list(self._busy):
                client.abort()
            await asyncio.sleep(0.05)

    @contextlib.contextmanager
    def _client(self, timeout: float, *, fresh: bool) -> Iterator[Client]:
        """A connection that nobody else uses meanwhile."""
        try:
            client = Client(self._root, timeout=timeout) if fresh else self._idle.get_nowait()
        except Empty:
            client = Client(self._root, timeout=timeout)
        self._busy.add(client)
        try:
            yield client
        except GangerError as error:
            if isinstance(error, NoDaemon):
                client.close()
            if not fresh:
                self._idle.put(client)
            raise
        except BaseException:
            client.abort()  # a thread may wait for more of a text that nobody reads
            client.close()
            raise
        finally:
            self._busy.discard(client)
        if fresh:
            client.close()
        else:
            self._idle.put(client)


class Fragment:
    """A part of a page as text, and compressed once somebody wants that."""

    def __init__(self, text: str) -> None:
        self.text = text

    @cached_property
    def packed(self) -> bytes:
        """The text with gzip."""
        return gzip.compress(self.text.encode(), 5, mtime=0)


class Fragments:
    """Parts of pages that look the same to everybody, made once for each state of the daemon.
    `tick` numbers the states."""

    def __init__(self) -> None:
        self._kept: OrderedDict[str, tuple[int, asyncio.Future[Fragment]]] = OrderedDict()

    async def get(self, key: str, tick: int, make: Callable[[], Awaitable[str]]) -> Fragment:
        """The part called `key` as it is at `tick`. What `make` raises is raised for all who wait,
        and not kept."""
        entry = self._kept.get(key)
        if entry is None or entry[0] != tick:
            made: asyncio.Future[Fragment] = asyncio.ensure_future(_made(make))
            self._kept[key] = tick, made
            self._kept.move_to_end(key)
            while len(self._kept) > KEPT_MAX:
                self._kept.popitem(last=False)
        else:
            made = entry[1]
        try:
            return await asyncio.shield(made)
        except Exception:
            if self._kept.get(key) == (tick, made):
                del self._kept[key]
            raise


async def _made(make: Callable[[], Awaitable[str]]) -> Fragment:
    return Fragment(await make())
