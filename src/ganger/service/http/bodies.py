"""Bodies of requests, and how much of them may be in memory at once."""

from __future__ import annotations

import asyncio
from collections import Counter
from types import TracebackType
from typing import Final

from starlette.requests import ClientDisconnect, Request

from ganger.core.errors import BadInput

MIB: Final = 1 << 20
LARGE_BYTES: Final = 1 << 16
"""From here on submissions are worked on one after the other, as those of arrays are."""
SMALL_BYTES_MAX: Final = MIB
"""The most of any request but a submission."""
BODY_BYTES_MAX: Final = 32 * MIB
REQUEST_BYTES_MAX: Final = 16 * MIB
"""The most of one request of a submission."""
USER_BYTES_MAX: Final = 64 * MIB
ALL_BYTES_MAX: Final = 256 * MIB
BODY_SECONDS: Final = 120.0
"""How long a body may take to arrive."""


class Busy(BadInput):
    """There is too much of this at once; later it may be done."""


class Bodies:
    """The bodies in memory, by user."""

    def __init__(self) -> None:
        self._held: Counter[str] = Counter()
        self._total = 0
        self.turn = asyncio.Semaphore(1)
        """For submissions of many jobs: these take more memory than their bodies do."""

    def of(self, user: str, most: int) -> Body:
        """A place for a body of this user, of at most so many bytes."""
        return Body(self, user, most)

    def change(self, user: str, size: int) -> None:
        """So many bytes more, or fewer. Raises Busy if that is too much."""
        if size > 0 and (
            self._held[user] + size > USER_BYTES_MAX or self._total + size > ALL_BYTES_MAX
        ):
            raise Busy("too many submissions at once", mend="try again in a second")
        self._held[user] += size
        self._total += size
        if not self._held[user]:
            del self._held[user]


class Body:
    """One body, counted as long as its context lasts."""

    def __init__(self, bodies: Bodies, user: str, most: int) -> None:
        self._bodies, self._user, self._most = bodies, user, most
        self._size = 0

    async def read(self, request: Request) -> bytes:
        """All of it. Raises BadInput if it is too large or too slow, Busy if there is no room."""
        parts: list[bytes] = []
        try:
            async with asyncio.timeout(BODY_SECONDS):
                async for part in request.stream():
                    if self._size + len(part) > self._most:
                        raise BadInput(
                            f"it is larger than {self._most // MIB} MiB",
                            where="body",
                            mend="submit in parts",
                        )
                    self._bodies.change(self._user, len(part))
                    self._size += len(part)
                    parts.append(part)
        except ClientDisconnect:
            raise BadInput("the client hung up", where="body") from None
        except TimeoutError:
            raise BadInput(f"it took longer than {BODY_SECONDS:g} s", where="body") from None
        return b"".join(parts)

    def __enter__(self) -> Body:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._bodies.change(self._user, -self._size)
