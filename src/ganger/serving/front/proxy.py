"""The front at work: requests of clients, each passed on to one replica, and its answer handed back
piece by piece.

A request whose replica fails before it begins to answer is tried once more, by another replica. One
for which there is no replica waits for the first that comes.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from http import HTTPStatus
from random import Random
from time import monotonic
from typing import Final

from msgspec import Struct

from ganger.serving.calls import CallIds
from ganger.serving.front.balance import Replica, Version, drawn, least_loaded
from ganger.serving.front.counts import Counts
from ganger.serving.front.exchange import Copy, Exchange
from ganger.serving.front.owner import is_own
from ganger.serving.front.upstream import HOP
from ganger.serving.http.connections import Connection, Request, error

log = logging.getLogger("ganger.front")
COPIES_MAX: Final = 100
COPIES_BYTES_MAX: Final = 128 << 20
"""Copies for versions in the shadow that are under way at once, and bytes of their bodies: they are
held though no client is. More are left out."""
_OWN: Final = frozenset((b"content-length", b"expect", b"x-request-id"))


class Terms(Struct, frozen=True):
    """What requests may take. `wait_seconds`: for a replica where there is none; `longest_seconds`:
    until the answer begins, and then from one part of it to the next; `waiting`: how many may wait;
    `health`: the path at which replicas say how they are; `check_seconds`: between two looks at it,
    each of which may take as long."""

    wait_seconds: float = 60.0
    longest_seconds: float = 300.0
    waiting: int = 1000
    health: str = "/v2/health/ready"
    check_seconds: float = 1.0


class Front:
    """Passes requests on. `keyed`: keys are the front's, and are not passed on."""

    def __init__(self, terms: Terms, *, keyed: bool = False, seed: int | None = None) -> None:
        self.terms = terms
        self._left_out = HOP | _OWN | ({b"authorization"} if keyed else frozenset())
        self.versions: list[Version] = []
        self.replicas: dict[tuple[int, int], Replica] = {}
        """By job and attempt."""
        self.counts: dict[int, Counts] = {}
        """By version."""
        self.all = Counts()
        self.windows: Mapping[int, Counts] = {}
        """By version, others that count beside: those of a rollout's step."""
        self._waiting: deque[Exchange] = deque()
        self._random = Random(seed)
        self._ids = CallIds()
        self._copies = self._copies_bytes = 0
        self.closed = False
        """Whether it takes no new requests."""
        self._checks: dict[tuple[int, int], asyncio.Task[None]] = {}

    # ------------------------------------------------------------------ what there is

    def set_versions(self, versions: Iterable[Version]) -> None:
        """The versions, with their weights, from now on."""
        self.versions = [*versions]
        for version in self.versions:
            self.counts.setdefault(version.job, Counts())

    def set_replicas(self, replicas: Iterable[Replica]) -> None:
        """The replicas that there are, as the daemon knows them: what is known of one besides is
        kept."""
        listed = {(replica.job, replica.attempt): replica for replica in replicas if replica.port}
        for key, replica in listed.items():
            known = self.replicas.get(key)
            if known is None or (known.host, known.port) != (replica.host, replica.port):
                self.replicas[key] = replica
                self._check_soon(key)
            else:
                known.leaving, known.version = replica.leaving, replica.version
        for key in self.replicas.keys() - listed.keys():
            gone = self.replicas.pop(key)
            gone.leaving = True
            for idle in gone.idle:
                idle.give_up()
            gone.idle.clear()

    @property
    def waiting(self) -> int:
        """Requests that wait for a replica."""
        return len(self._waiting)

    def waiting_for(self, version: int) -> int:
        """Those of them that would be this version's: all are the first one's that has a weight."""
        first = next(
            (each.job for each in self.versions if each.weight > 0 and not each.shadow), -1
        )
        return self.waiting if version == first else 0

    @property
    def open(self) -> int:
        """Requests that replicas have."""
        return sum(len(replica.requests) for replica in self.replicas.values())

    def close(self) -> None:
        """Look at no replica any more."""
        for task in self._checks.values():
            task.cancel()

    # ------------------------------------------------------------------ health

    def _check_soon(self, key: tuple[int, int]) -> None:
        before = self._checks.pop(key, None)
        if before is not None:
            before.cancel()
        self._checks[key] = asyncio.create_task(self._check(key))

    async def _check(self, key: tuple[int, int]) -> None:
        """Ask a replica how it is, again and again, until it is gone."""
        while (replica := self.replicas.get(key)) is not None:
            was = replica.healthy
            well = await self._is_well(replica)
            if well and (replica.deaf or not was) and not is_own(replica.host, replica.port):
                if was or not replica.deaf:
                    log.error("another user listens at %s:%d", replica.host, replica.port)
                well = False
            replica.checked(well=well)
            if replica.healthy and not was:
                self.serve_waiting()
            elif was and not replica.healthy:
                for exchange in [*replica.requests]:
                    exchange.broke("it does not answer its health check")
            await asyncio.sleep(self.terms.check_seconds if replica.healthy else 0.1)
        self._checks.pop(key, None)

    async def _is_well(self, replica: Replica) -> bool:
        """Whether it answers, with anything but that it cannot serve."""
        head = (
            f"GET {self.terms.health} HTTP/1.1\r\nhost: {replica.host}\r\nconnection: close\r\n\r\n"
        )
        writer = None
        try:
            async with asyncio.timeout(max(self.terms.check_seconds, 0.2)):
                reader, writer = await asyncio.open_connection(replica.host, replica.port)
                writer.write(head.encode())
                line = await reader.readline()
        except (OSError, TimeoutError, ValueError):
            return False
        finally:
            if writer is not None:
                writer.transport.abort()
        return line.startswith(b"HTTP/1.") and line[9:10] in (b"2", b"3", b"4")

    # ------------------------------------------------------------------ requests

    def handle(self, connection: Connection, request: Request) -> None:
        """Take a request of a client."""
        request.id = self._ids.of(request.headers.get(b"x-request-id", b""))
        if not request.target.startswith(b"/"):
            body = [error("ask for a path that begins with /")]
            connection.reply(request, HTTPStatus.BAD_REQUEST, body)
            return
        if self.closed:
            connection.reply(
                request,
                HTTPStatus.SERVICE_UNAVAILABLE,
                [error("the service takes no new requests")],
                [("ganger-reason", "closed"), ("retry-after", "10")],
            )
            return
        exchange = Exchange(self, connection, request)
        self.all.arrived()
        for version in self.versions:
            if version.shadow and self._has_room(len(request.body)):
                self._copies += 1
                self._copies_bytes += len(request.body)
                Copy(self, request, version.job).go()
        exchange.go()

    def chosen(self, version: int | None, without: Sequence[Replica] = ()) -> Replica | None:
        """The replica for a request: of this version, or where none is stated of one that is drawn;
        of another that has a weight where that has no replica."""
        now, every = monotonic(), self.replicas.values()
        chance = None
        if version is None:
            chance = drawn(self.versions, self._random)
            version = chance.job if chance is not None else None
        best = least_loaded((each for each in every if each.version == version), now, without)
        if best is None and chance is not None:
            weighed = {each.job for each in self.versions if each.weight > 0 and not each.shadow}
            best = least_loaded((each for each in every if each.version in weighed), now, without)
        return best

    def wait(self, exchange: Exchange) -> None:
        """There is no replica: it waits for one, or is refused."""
        if len(self._waiting) >= self.terms.waiting:
            exchange.refuse(HTTPStatus.SERVICE_UNAVAILABLE, "no-replica", "too many wait already")
            return
        self._waiting.append(exchange)

    def serve_waiting(self) -> None:
        """A replica has come."""
        waiting, self._waiting = self._waiting, deque()
        for exchange in waiting:
            exchange.go()

    def look(self) -> None:
        """Refuse what has waited too long; once a second or so."""
        now = monotonic()
        while self._waiting and self._waiting[0].gives_up_at <= now:
            self._waiting.popleft().refuse(
                HTTPStatus.SERVICE_UNAVAILABLE, "no-replica", "no replica serves"
            )
        for replica in [*self.replicas.values()]:
            for exchange in [*replica.requests]:
                exchange.look(now)

    def forget(self, exchange: Exchange) -> None:
        """Its client is gone."""
        with contextlib.suppress(ValueError):
            self._waiting.remove(exchange)

    def _has_room(self, size: int) -> bool:
        """Whether one more copy may be under way, with so many bytes."""
        return self._copies < COPIES_MAX and self._copies_bytes + size <= COPIES_BYTES_MAX

    def copied(self, size: int) -> None:
        """A copy for a version in the shadow is over."""
        self._copies -= 1
        self._copies_bytes -= size

    def failed(self, replica: Replica) -> None:
        """A replica failed at a request."""
        replica.failed(monotonic(), self.replicas.values())

    def message(self, request: Request, host: bytes) -> bytes:
        """A request as it goes to a replica."""
        left_out, named = self._left_out, request.headers.get(b"connection")
        if named is not None:
            left_out = left_out | {name.strip().lower() for name in named.split(b",")}
        lines = [b"%b %b HTTP/1.1\r\n" % (request.method.encode(), request.target)]
        headers: Mapping[bytes, bytes] = {b"host": host, **request.headers}
        lines += [
            b"%b: %b\r\n" % (name, value) for name, value in headers.items() if name not in left_out
        ]
        lines.append(b"x-request-id: %b\r\n" % request.id.encode())
        if request.body or request.method in ("POST", "PUT", "PATCH"):
            lines.append(b"content-length: %d\r\n" % len(request.body))
        return b"".join([*lines, b"\r\n", request.body])
