"""Work in threads that a question may take seconds of: one at a time for each user, few in all."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import Any, Final, TypeVar

from ganger.service.accept import Who
from ganger.service.bodies import Busy

AT_ONCE: Final = 2
WAITING_MAX: Final = 8
"""How many questions of one user may wait for an answer that takes long."""
T = TypeVar("T")


class Looks:
    """Whose turn it is."""

    def __init__(self) -> None:
        self._asked: Counter[str] = Counter()
        self._turns: dict[str, asyncio.Lock] = {}
        self._all = asyncio.Semaphore(AT_ONCE)

    async def look(self, who: Who, function: Callable[..., T], *given: Any, **named: Any) -> T:
        """What `function` says, worked out in a thread. Raises Busy if this user waits for too much
        already."""
        user = who.user
        if self._asked[user] >= WAITING_MAX:
            raise Busy("you wait for many answers that take long", mend="wait for one of them")
        self._asked[user] += 1
        turn = self._turns.setdefault(user, asyncio.Lock())
        try:
            async with turn, self._all:
                return await asyncio.to_thread(function, *given, **named)
        finally:
            self._asked[user] -= 1
            if not self._asked[user]:
                del self._asked[user], self._turns[user]
