"""The port at which machines join: opening it, and the log of those that are turned away."""

from __future__ import annotations

import logging
import socket
import time
from typing import Final

from ganger.core.errors import BadInput

log = logging.getLogger("ganger.engine")
_SAY_SECONDS: Final = 60.0
"""Between two lines of the log."""


def listening(at: tuple[str, int]) -> socket.socket:
    """A socket that listens there and never blocks. Raises BadInput."""
    try:
        listener = socket.create_server(at)
    except OSError as error:
        why = error.strerror or str(error)
        raise BadInput(
            f"machines cannot join at {at[0] or 'any address'}:{at[1]}: {why}",
            where="--agents",
            mend="name a port that is free",
        ) from None
    listener.setblocking(False)
    return listener


class TurnedAway:
    """Logs machines that are turned away, but seldom: anybody can have that done at will."""

    def __init__(self) -> None:
        self._count, self._say_at = 0, 0.0

    def say(self, name: str, why: str) -> None:
        """Count one, and log it if none was logged for a minute."""
        self._count += 1
        if time.monotonic() >= self._say_at:
            self._say_at = time.monotonic() + _SAY_SECONDS
            log.warning(
                "agent %.64r was turned away: %.200s (%d since the last such line)",
                name,
                why,
                self._count,
            )
            self._count = 0
