"""The daemon's log: no message stands for another, and none can be repeated until the disk is
full."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Final

from ganger.client.shown import shown

MOST: Final = 10
WINDOW_SECONDS: Final = 60.0
_KINDS_MAX: Final = 1000


class Sparing(logging.Filter):
    """Lets through `MOST` messages of one kind (same logger, level and text before its values are
    filled in) in each `WINDOW_SECONDS`; the next one then says how many were left out."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock, self._lock = clock, threading.Lock()
        self._kinds: dict[tuple[str, int, str], tuple[float, int]] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether the message is written."""
        kind, now = (record.name, record.levelno, str(record.msg)[:200]), self._clock()
        with self._lock:
            if len(self._kinds) >= _KINDS_MAX:
                self._kinds.clear()
            since, count = self._kinds.get(kind, (now, 0))
            if now - since < WINDOW_SECONDS:
                self._kinds[kind] = since, count + 1
                return count < MOST
            self._kinds[kind] = now, 1
        if count > MOST:
            record.msg = f"{record.getMessage()} (and {count - MOST} more like it before)"
            record.args = ()
        return True


class OneLine(logging.Formatter):
    """A message is one line, whatever is in its values; a traceback follows it as lines."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - logging's name
        """The line."""
        record.message = shown(record.message)
        return super().formatMessage(record)


def write_log() -> None:
    """Write the log of this process to standard error."""
    handler = logging.StreamHandler()
    handler.setFormatter(OneLine("%(asctime)s %(name)s: %(message)s"))
    handler.addFilter(Sparing())
    logging.basicConfig(handlers=[handler], level=logging.INFO)
