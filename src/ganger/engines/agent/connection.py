"""What both ends of the connections between engines and agents do alike."""

from __future__ import annotations

import secrets
import selectors
import time
from abc import ABC, abstractmethod
from typing import Any, Generic, TypeVar

from ganger.core.errors import BadInput
from ganger.engines.agent.protocol import NONCE_BYTES, VERSION, Message, spoken
from ganger.engines.agent.wire import GoneError, Link


class Connection:
    """One connection, and when something was last heard and sent (monotonic seconds)."""

    def __init__(self, link: Link) -> None:
        self.link = link
        self.nonce = secrets.token_bytes(NONCE_BYTES)
        self.made_at = self.heard_at = self.told_at = time.monotonic()
        self.version = VERSION
        """What is spoken here, once both sides have said who they are."""

    def speaks(self, version: int) -> str:
        """The other side speaks up to this version: agree on one, or say why there is none."""
        try:
            self.version = spoken(version)
        except BadInput as error:
            return str(error)
        return ""


P = TypeVar("P", bound=Connection)


class Connections(ABC, Generic[P]):
    """The connections of one process, watched by its selector. What is sent, and what ends with a
    connection, is for subclasses."""

    def __init__(self, selector: selectors.BaseSelector) -> None:
        self._selector = selector
        self._connections: list[P] = []

    @abstractmethod
    def _take(self, party: P, message: Any) -> None:
        """Take one message. GoneError ends the connection."""

    @abstractmethod
    def _drop(self, party: P) -> None:
        """End a connection, if it is not yet."""

    def _watch(self, party: P) -> P:
        self._connections.append(party)
        self._selector.register(
            party.link, selectors.EVENT_READ, lambda mask: self._ready(party, mask)
        )
        return party

    def _forget(self, party: P) -> bool:
        """Close it; False if that was done before."""
        if party not in self._connections:
            return False
        self._connections.remove(party)
        self._selector.unregister(party.link)
        party.link.close()
        return True

    def _send(self, party: P, message: Message) -> None:
        try:
            party.link.send(message)
            party.told_at = time.monotonic()
        except GoneError:
            self._drop(party)
            return
        self._watch_writes(party)

    def _watch_writes(self, party: P) -> None:
        wanted = selectors.EVENT_READ | (selectors.EVENT_WRITE if party.link.unsent else 0)
        if party in self._connections:
            key = self._selector.get_key(party.link)
            if key.events != wanted:
                self._selector.modify(party.link, wanted, key.data)

    def _ready(self, party: P, mask: int) -> None:
        try:
            if mask & selectors.EVENT_WRITE:
                party.link.flush()
                self._watch_writes(party)
            if not mask & selectors.EVENT_READ:
                return
            for message in party.link.receive():
                party.heard_at = time.monotonic()
                self._take(party, message)
        except GoneError:
            self._drop(party)
