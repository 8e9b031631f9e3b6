"""A request of a client until it is answered, and copies of it for a version in the shadow."""

from __future__ import annotations

import asyncio
from http import HTTPStatus
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

from ganger.serving.front.balance import Replica
from ganger.serving.front.upstream import Upstream
from ganger.serving.http.connections import Connection, Request, error

if TYPE_CHECKING:
    from ganger.serving.front.proxy import Front

TRIES: Final = 2
CONNECT_SECONDS: Final = 2.0
IDLE_MAX: Final = 64
"""Connections to a replica that are kept though they do nothing."""


class Exchange:
    """A request, until it is answered."""

    def __init__(
        self, front: Front, connection: Connection | None, request: Request, version: int = -1
    ) -> None:
        self._front, self._connection, self._request = front, connection, request
        self._version: int | None = version if version >= 0 else None
        self._tried: list[Replica] = []
        self._replica: Replica | None = None
        self._upstream: Upstream | None = None
        self._status = 0
        self._used = False
        """Whether the connection answered something before: a replica may have closed it since."""
        self._anew = False
        """Whether one such was of no use: the next is a new one."""
        self._sent = monotonic()
        self._over = False
        self.gives_up_at = self._sent + front.terms.wait_seconds
        self._late_at = self._sent + front.terms.longest_seconds
        request.gone, request.flow = self._gone, self._flow

    # ------------------------------------------------------------------ to a replica

    def go(self) -> None:
        """Find it a replica."""
        replica = self._front.chosen(self._version, self._tried)
        if replica is None and self._tried:
            replica = self._front.chosen(self._version)  # the same again is better than none
        if replica is None:
            self.no_replica()
            return
        self._replica = replica
        replica.requests.add(self)
        if not self._tried and (counts := self._front.counts.get(replica.version)) is not None:
            counts.arrived()
        self._tried.append(replica)
        while replica.idle and not self._anew:
            upstream = replica.idle.pop()
            if upstream.usable:
                self._ask(upstream, used=True)
                return
        asyncio.create_task(self._connect(replica)).add_done_callback(_raised)

    def no_replica(self) -> None:
        """There is none."""
        self._front.wait(self)

    async def _connect(self, replica: Replica) -> None:
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                _, upstream = await loop.create_connection(Upstream, replica.host, replica.port)
        except (OSError, TimeoutError):
            if self._replica is replica and not self._over:
                replica.checked(well=False)
                self.broke("it takes no connection")
            return
        if self._over or self._replica is not replica:
            upstream.give_up()
        elif not upstream.usable:
            self.broke("it hung up")
        else:
            self._ask(upstream)

    def _ask(self, upstream: Upstream, *, used: bool = False) -> None:
        request, replica = self._request, self._replica
        assert replica is not None
        self._upstream, self._sent, self._used = upstream, monotonic(), used
        message = self._front.message(request, f"{replica.host}:{replica.port}".encode())
        upstream.ask(message, self, head_only=request.method == "HEAD")

    # ------------------------------------------------------------------ from it

    def began(self, status: int, phrase: bytes, headers: list[bytes], length: int | None) -> None:
        """The answer begins."""
        replica = self._replica
        assert replica is not None
        self._status = status
        if status in (HTTPStatus.BAD_GATEWAY, HTTPStatus.GATEWAY_TIMEOUT) or (
            status == HTTPStatus.INTERNAL_SERVER_ERROR
        ):
            self._front.failed(replica)
        else:
            now = monotonic()
            replica.answered(now - self._sent, now)
        self._begin(status, phrase, headers, length)

    def _begin(self, status: int, phrase: bytes, headers: list[bytes], length: int | None) -> None:
        assert self._connection is not None
        self._connection.begin(self._request, status, phrase, headers, length)

    def came(self, data: bytes) -> None:
        """Some of it."""
        assert self._connection is not None
        self._late_at = monotonic() + self._front.terms.longest_seconds
        self._connection.piece(self._request, data)

    def over(self, *, reusable: bool) -> None:
        """It is whole."""
        replica, upstream = self._replica, self._upstream
        assert replica is not None
        self._leave()
        if reusable and upstream is not None:
            if replica.leaving or len(replica.idle) >= IDLE_MAX:
                upstream.give_up()
            else:
                upstream.flow(True)
                replica.idle.append(upstream)
        self._count(replica.version)
        self._end(whole=True)

    def _end(self, *, whole: bool) -> None:
        assert self._connection is not None
        self._connection.end(self._request, self._status, whole=whole)

    def broke(self, why: str) -> None:
        """There will be no answer from this replica, or no more of it."""
        replica = self._replica
        if replica is None or self._over:
            return
        upstream = self._upstream
        self._leave(over=False)
        if upstream is not None:
            upstream.give_up()
        if self._used and not self._status:
            self._tried.pop()
            self._anew = True
            self.go()
            return
        self._front.failed(replica)
        if self._status:
            self._over = True
            self._let_go()
            self._count(replica.version, failed=True)
            self._end(whole=False)
        elif len(self._tried) < TRIES and monotonic() < self._late_at:
            self.go()
        else:
            self._over = True
            self._count(replica.version, failed=True)
            self.refuse(HTTPStatus.BAD_GATEWAY, "replica-failed", f"the replica failed: {why}")

    def look(self, now: float) -> None:
        """End it where its answer has taken too long to begin, or to go on."""
        if now < self._late_at or self._over:
            return
        if self._status:
            self.broke("it says no more")
            return
        replica, upstream = self._replica, self._upstream
        self._leave()
        if upstream is not None:
            upstream.give_up()
        if replica is not None:
            self._front.failed(replica)
            self._count(replica.version, failed=True)
        self.refuse(HTTPStatus.GATEWAY_TIMEOUT, "too-late", "it took too long")

    def refuse(self, status: int, reason: str, why: str) -> None:
        """Answer it ourselves: what is wrong."""
        self._over = True
        self._let_go()
        if self._connection is None:
            return
        if reason == "no-replica":
            self._front.all.dropped += 1
        headers = [("ganger-reason", reason), ("x-request-id", self._request.id)]
        if status == HTTPStatus.SERVICE_UNAVAILABLE:
            headers.append(("retry-after", "1"))
        self._request.note = reason
        self._connection.reply(self._request, status, [error(why)], headers)

    def _count(self, version: int, *, failed: bool = False) -> None:
        seconds = monotonic() - self._request.began
        bad = failed or self._status >= HTTPStatus.INTERNAL_SERVER_ERROR
        front = self._front
        every = [front.counts.get(version), front.windows.get(version)]
        for each in [*every, front.all] if self._connection is not None else every:
            if each is not None:
                each.answered(seconds, bad=bad)

    # ------------------------------------------------------------------ the client

    def _gone(self) -> None:
        if self._over:
            return
        upstream = self._upstream
        self._leave()
        self._front.forget(self)
        if upstream is not None:
            upstream.give_up()

    def _flow(self, on: bool) -> None:
        if self._upstream is not None:
            self._upstream.flow(on)

    def _leave(self, *, over: bool = True) -> None:
        """The replica has nothing to do for it any more."""
        self._over = over
        if over:
            self._let_go()
        replica, self._replica, self._upstream = self._replica, None, None
        if replica is None:
            return
        replica.requests.discard(self)

    def _let_go(self) -> None:
        """Be free at once, with the body: nobody waits for the collector of garbage."""
        self._request.gone = self._request.flow = None


class Copy(Exchange):
    """A request again, for a version whose answers nobody gets."""

    def __init__(self, front: Front, request: Request, version: int) -> None:
        again = Request(
            request.method,
            request.path,
            request.headers,
            request.body,
            request.began,
            keeps=True,
            target=request.target,
            id=request.id,
        )
        super().__init__(front, None, again, version)
        self._counted = True

    def no_replica(self) -> None:
        """Then there is nothing to see."""
        self.refuse(HTTPStatus.SERVICE_UNAVAILABLE, "no-replica", "")

    def refuse(self, status: int, reason: str, why: str) -> None:
        """Nobody is answered."""
        self._end(whole=False)

    def _begin(self, status: int, phrase: bytes, headers: list[bytes], length: int | None) -> None:
        pass

    def came(self, data: bytes) -> None:
        """It is thrown away."""

    def _end(self, *, whole: bool) -> None:
        self._over = True
        if self._counted:
            self._counted = False
            self._front.copied(len(self._request.body))


def _raised(task: asyncio.Task[Any]) -> None:
    """Say what nobody waits for."""
    if not task.cancelled() and (fault := task.exception()) is not None:
        raise fault
