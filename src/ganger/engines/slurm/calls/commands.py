"""Slurm's commands, a few at a time, beside the thread that asks for them."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from typing import Any, Final

from ganger.core.errors import GangerError

_ABREAST: Final = 3
"""Commands that run at a time, at most: most of a submission is waiting for its answer."""


class Commands:
    """Threads that run commands. `interrupt` is called, on one of them, when an answer is there."""

    def __init__(self, interrupt: Callable[[], None], abreast: int = _ABREAST) -> None:
        self._interrupt = interrupt
        self._orders: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._answers: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._threads = [
            threading.Thread(target=self._work, name="slurm", daemon=True) for _ in range(abreast)
        ]
        for thread in self._threads:
            thread.start()

    def _work(self) -> None:
        while (order := self._orders.get()) is not None:
            order()

    def do(self, ask: Callable[[], Any], then: Callable[[Any, GangerError | None], None]) -> None:
        """Run `ask` on a thread, and `then` in `take` with its answer or its error."""

        def work() -> None:
            answer, error = None, None
            try:
                answer = ask()
            except GangerError as why:
                error = why
            self._answers.put(lambda: then(answer, error))
            self._interrupt()

        self._orders.put(work)

    def take(self) -> None:
        """Deal with the answers that have come."""
        while not self._answers.empty():
            self._answers.get()()

    def close(self) -> None:
        """Wait for what was asked for."""
        for _ in self._threads:
            self._orders.put(None)
        for thread in self._threads:
            thread.join()
