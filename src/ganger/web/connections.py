"""Connections to the pages. Every user of the machine reaches the port: those that came with no
session make way for others, and do not stay; then those of the session that has the most."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any, Final

from uvicorn.protocols.http.h11_impl import H11Protocol

CONNECTIONS_MAX: Final = 512
STRANGE_SECONDS: Final = 30.0
"""A connection that no request with a session came over ends after so long."""
_CONNECTION: Final = "ganger.connection"


class Connection(H11Protocol):
    """One connection. `known`: of which session a request came over it last; empty: of none."""

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self.known, self._began = "", 0.0
        self.app_state = {**self.app_state, _CONNECTION: self}
        self._late: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        """Where there are too many, the oldest that nobody knows makes way; where all are known,
        the oldest of the session that has the most of them."""
        super().connection_made(transport)
        self._began = self.loop.time()
        self._late = self.loop.call_later(STRANGE_SECONDS, self._end_strange)
        if len(self.connections) >= CONNECTIONS_MAX:
            others = [
                each
                for each in self.connections
                if isinstance(each, Connection) and each is not self
            ]
            counts = Counter(each.known for each in others)
            whose = "" if "" in counts else max(counts, key=lambda name: counts[name])
            min((e for e in others if e.known == whose), key=lambda each: each._began).hang_up()

    def connection_lost(self, exc: Exception | None) -> None:
        """Its place is free."""
        if self._late is not None:
            self._late.cancel()
        super().connection_lost(exc)

    def hang_up(self) -> None:
        """End it at once."""
        self.connections.discard(self)
        self.transport.abort()

    def _end_strange(self) -> None:
        if not self.known:
            self.hang_up()


def know(state: dict[str, Any], session: str) -> None:
    """A request with this `state` has a session of that name."""
    connection = state.get(_CONNECTION)
    if isinstance(connection, Connection):
        connection.known = session
