"""Work in threads that a question may take seconds of: one at a time for each user, few in all, and
each with an end, whatever it does: a recipe may search for hours where its parameters say so."""

from __future__ import annotations

import asyncio
import ctypes
import threading
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any, Final, TypeVar

from ganger.core.errors import BadInput
from ganger.service.http.bodies import Busy
from ganger.service.jobs.submission import Who

AT_ONCE: Final = 2
WAITING_MAX: Final = 8
"""How many questions of one user may wait for an answer that takes long."""
PATIENCE_SECONDS: Final = 60.0
"""How long one may take in all."""
T = TypeVar("T")


class TooLong(BadInput):
    """It would take longer than anybody should make the daemon work on it."""

    def __init__(self) -> None:
        super().__init__(
            f"the answer takes longer than {PATIENCE_SECONDS:g} s",
            mend="ask for fewer recipes or days",
        )


class Enough(BaseException):
    """Raised in a thread from outside, wherever it is. No Exception, so that nothing which is made
    to survive the errors of policies survives it."""


class _Work:
    """What one thread does, which another may end."""

    def __init__(self) -> None:
        self._thread = threading.get_ident()
        self._lock, self._over = threading.Lock(), False

    def end(self) -> None:
        """Raise Enough in it, at its next step in Python; again if it was swallowed."""
        with self._lock:
            if not self._over:
                thread = ctypes.c_ulong(self._thread)
                ctypes.pythonapi.PyThreadState_SetAsyncExc(thread, ctypes.py_object(Enough))

    def over(self) -> None:
        """From now on nothing is raised; what was is raised here at the latest."""
        with self._lock:
            self._over = True
        # To call a function of Python's is such a step. To take back what was raised would leave
        # CPython 3.11 looking for it for ever after, in every thread.
        _step()


def _step() -> None:
    pass


class Looks:
    """Whose turn it is."""

    def __init__(self) -> None:
        self._asked: Counter[str] = Counter()
        self._turns: dict[str, asyncio.Lock] = {}
        self._all = asyncio.Semaphore(AT_ONCE)
        self._works: set[_Work] = set()

    async def look(self, who: Who, function: Callable[..., T], *given: Any, **named: Any) -> T:
        """What `function` says, worked out in a thread. Raises Busy if this user waits for too much
        already, TooLong if it takes so."""
        user = who.user
        if self._asked[user] >= WAITING_MAX:
            raise Busy("you have too many slow requests in progress", mend="wait for one of them")
        self._asked[user] += 1
        turn = self._turns.setdefault(user, asyncio.Lock())
        try:
            async with turn, self._all:
                return await asyncio.to_thread(self._bounded, partial(function, *given, **named))
        finally:
            self._asked[user] -= 1
            if not self._asked[user]:
                del self._asked[user], self._turns[user]

    def end_all(self) -> None:
        """Let nothing that is being worked out hold up the end. Any thread."""
        for work in list(self._works):
            work.end()

    def _bounded(self, function: Callable[[], T]) -> T:
        work = _Work()
        timer = threading.Timer(PATIENCE_SECONDS, work.end)
        timer.daemon = True
        try:
            self._works.add(work)
            timer.start()
            try:
                return function()
            finally:
                work.over()
        except Enough:
            raise TooLong from None
        finally:
            timer.cancel()
            self._works.discard(work)
