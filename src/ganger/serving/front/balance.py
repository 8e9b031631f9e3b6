"""Which replica a request goes to, and which replicas are left out. Nothing here does I/O."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from random import Random
from typing import Any, Final, TypeVar

import msgspec

MEMORY: Final = 0.1
"""The part that the latest answer has in a replica's latency."""
HALF_SECONDS: Final = 10.0
"""After so long without an answer half of a latency is believed."""
FAILURES: Final = 5
"""So many failures in a row leave a replica out."""
OUT_SECONDS: Final = 5.0
"""For how long the first time; the nth time n times as long."""
OUT_MAX_SECONDS: Final = 60.0
DEAF: Final = 2
"""After so many health checks in a row that failed a replica gets no requests."""
LEAST_SECONDS: Final = 0.001
"""A latency below counts as this: noise is no reason to prefer a replica."""


class Version(msgspec.Struct):
    """A version of a service: the job that it is, and the part of requests that it gets, against
    the weights of the others. A version with `shadow` gets a copy of all requests, and its answers
    go nowhere."""

    job: int
    weight: float = 1.0
    shadow: bool = False


class Replica(msgspec.Struct, eq=False):
    """What the front knows of a replica. Times are those of a clock that never goes back, in
    seconds."""

    job: int
    attempt: int
    version: int
    """The job of its service."""
    host: str
    port: int
    leaving: bool = False
    healthy: bool = False
    """Whether its last health check was answered; one that never was gets no requests."""
    deaf: int = 0
    """Health checks in a row that failed."""
    requests: set[Any] = set()
    """That it has now."""
    latency: float = 0.0
    """Seconds until it begins to answer, the latest answers counting most; 0: none yet."""
    told_at: float = 0.0
    """When it last began to answer."""
    failures: int = 0
    """In a row."""
    times_out: int = 0
    out_until: float = 0.0
    idle: list[Any] = []
    """Connections to it that do nothing."""

    def takes(self, now: float) -> bool:
        """Whether it may get requests."""
        return self.healthy and not self.leaving and now >= self.out_until

    def checked(self, *, well: bool) -> None:
        """A health check was answered, or not."""
        self.deaf = 0 if well else self.deaf + 1
        if well or self.deaf >= DEAF:
            self.healthy = well

    def answered(self, seconds: float, now: float) -> None:
        """It began to answer a request, so long after that was sent."""
        self.failures = 0
        seconds = max(seconds, LEAST_SECONDS)
        before = self.believed(now) or seconds
        self.latency, self.told_at = before + MEMORY * (seconds - before), now

    def believed(self, now: float) -> float:
        """The latency to expect now, in seconds; 0: not known. Older answers count less, so that a
        slow replica is tried again."""
        return self.latency and max(
            self.latency * 0.5 ** ((now - self.told_at) / HALF_SECONDS), LEAST_SECONDS
        )

    def failed(self, now: float, others: Iterable[Replica]) -> bool:
        """It failed at a request; whether it is left out for a while since then. At most half of
        the replicas are, so that a fault of all does not end the service."""
        self.failures += 1
        if self.failures < FAILURES:
            return False
        mine = [other for other in others if other.version == self.version]
        out = sum(now < other.out_until for other in mine)
        if 2 * (out + 1) > len(mine):
            return False
        self.times_out += 1
        self.out_until = now + min(OUT_SECONDS * self.times_out, OUT_MAX_SECONDS)
        self.failures = 0
        return True


def least_loaded(
    replicas: Iterable[Replica], now: float, without: Collection[Replica] = ()
) -> Replica | None:
    """The one that would answer one request more soonest, by how many it has and how long it took
    for the latest; None where none takes requests. One that has not answered yet is believed to be
    as fast as the fastest."""
    able = [replica for replica in replicas if replica.takes(now) and replica not in without]
    believed = [replica.believed(now) for replica in able]
    fastest = min(filter(None, believed), default=LEAST_SECONDS)
    return min(
        zip(able, believed, strict=True),
        key=lambda each: ((len(each[0].requests) + 1) * (each[1] or fastest), each[0].job),
        default=(None, 0.0),
    )[0]


Weighed = TypeVar("Weighed", bound=Version)


def drawn(versions: Sequence[Weighed], random: Random) -> Weighed | None:
    """One of the versions that have a weight, each as often as that says; None where none has."""
    chosen = [version for version in versions if version.weight > 0 and not version.shadow]
    if len(chosen) < 2:
        return chosen[0] if chosen else None
    return random.choices(chosen, [version.weight for version in chosen])[0]
