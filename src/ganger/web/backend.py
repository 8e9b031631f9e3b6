"""Questions to the daemon: few at once, and the same one once for everybody who asks it."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from queue import Empty, LifoQueue
from typing import Any, Final

from ganger.client.connection import Client, NoDaemon
from ganger.core.errors import GangerError

AT_ONCE: Final = 4
SLOW_AT_ONCE: Final = 2
"""Questions that the daemon may work on for seconds, and texts that are passed on."""
KEPT_MAX: Final = 64
"""How many answers are kept until the next change."""
_TIMEOUT_SECONDS: Final = 15.0
_SLOW_SECONDS: Final = 70.0


class Backend:
    """The daemon of the home at `root`, as asynchronous code asks it."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._idle: LifoQueue[Client] = LifoQueue()
        self._quick = asyncio.Semaphore(AT_ONCE)
        self._slow = asyncio.Semaphore(SLOW_AT_ONCE)

    async def get(self, path: str, kind: Any, *, slow: bool = False, **query: Any) -> Any:
        """An answer. Raises Refusal or NoDaemon."""
        return await self._call("GET", path, kind, slow=slow, query=query)

    async def order(self, method: str, path: str, kind: Any, body: Any = None) -> Any:
        """Have something changed. Raises Refusal or NoDaemon."""
        return await self._call(method, path, kind, body=body)

    async def _call(
        self, method: str, path: str, kind: Any, *, slow: bool = False, **more: Any
    ) -> Any:
        def ask() -> Any:
            with self._client(_SLOW_SECONDS if slow else _TIMEOUT_SECONDS, fresh=slow) as client:
                return client.call(method, path, kind, **more)

        async with self._slow if slow else self._quick:
            return await asyncio.to_thread(ask)

    async def text(self, path: str, **query: Any) -> AsyncIterator[bytes]:
        """A text of any length, piece by piece."""
        async with self._slow:
            with self._client(_SLOW_SECONDS, fresh=True) as client:
                pieces = client.stream(path, query)
                while (piece := await asyncio.to_thread(next, pieces, None)) is not None:
                    yield piece

    @contextlib.contextmanager
    def _client(self, timeout: float, *, fresh: bool) -> Iterator[Client]:
        """A connection that nobody else uses meanwhile."""
        try:
            client = Client(self._root, timeout=timeout) if fresh else self._idle.get_nowait()
        except Empty:
            client = Client(self._root, timeout=timeout)
        try:
            yield client
        except GangerError as error:
            if isinstance(error, NoDaemon):
                client.close()
            if not fresh:
                self._idle.put(client)
            raise
        except BaseException:
            client.close()
            raise
        if fresh:
            client.close()
        else:
            self._idle.put(client)


class Fragments:
    """Parts of pages that look the same to everybody, made once for each state of the daemon.
    `tick` numbers the states."""

    def __init__(self) -> None:
        self._kept: OrderedDict[str, tuple[int, asyncio.Future[bytes]]] = OrderedDict()

    async def get(self, key: str, tick: int, make: Callable[[], Awaitable[str]]) -> bytes:
        """The part called `key` as it is at `tick`, compressed. What `make` raises is raised for
        all who wait, and not kept."""
        entry = self._kept.get(key)
        if entry is None or entry[0] != tick:
            made: asyncio.Future[bytes] = asyncio.ensure_future(_compressed(make))
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


async def _compressed(make: Callable[[], Awaitable[str]]) -> bytes:
    return gzip.compress((await make()).encode(), 5, mtime=0)
