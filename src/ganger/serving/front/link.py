"""How a front is started and asked: its settings, what it keeps, and the messages at its socket."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any, Final

import msgspec

from ganger.client.control import ask, own_folder
from ganger.core.errors import BadInput
from ganger.serving.front.balance import Version
from ganger.serving.front.rollout import Rollout

SOCKET: Final = "front.sock"
LOG: Final = "front.log"
TABLE: Final = "table.json"
NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")


class Settings(msgspec.Struct, forbid_unknown_fields=True):
    """A front: of which `home`, by which `name`, where it listens, the file of keys, the path at
    which replicas say how they are, for how long requests wait for a replica, whether it writes an
    access log, and the versions that it begins with."""

    home: str
    name: str
    host: str = "127.0.0.1"
    port: int = 8000
    keys: str = ""
    health: str = "/v2/health/ready"
    wait_seconds: float = 60.0
    access_log: bool = False
    versions: list[Version] = []
    request: dict[str, Any] = {}
    """What was submitted first, which the next version is by default."""


class Known(msgspec.Struct):
    """A replica and its address, to begin with after a restart."""

    job: int
    attempt: int
    version: int
    host: str
    port: int


class Table(msgspec.Struct):
    """What a front goes on with after its end: it stands in a file."""

    settings: Settings
    versions: list[Version]
    replicas: list[Known] = []
    rollout: Rollout | None = None


class Asked(msgspec.Struct, forbid_unknown_fields=True):
    """What is asked at the socket: how it is, and before that, if stated, other `versions`, another
    `rollout` or the end of the one under way (`stop_rollout`), whether it takes new requests
    (`closed`: it answers what it has), or the `end`."""

    versions: list[Version] | None = None
    rollout: Rollout | None = None
    stop_rollout: bool = False
    closed: bool | None = None
    end: bool = False


class ReplicaTold(msgspec.Struct):
    """A replica as the front sees it: `state` is ready, starting, out (for its failures), deaf (to
    health checks) or leaving; `latency` in seconds."""

    job: int
    version: int
    at: str
    state: str
    open: int
    latency: float


class VersionTold(msgspec.Struct):
    """A version and what it answered since the front began; latencies in seconds, of the latest
    10,000."""

    job: int
    weight: float
    shadow: bool
    answers: int
    errors: int
    p50: float
    p99: float


class Told(msgspec.Struct):
    """The answer: where the front listens and in which process, what it saw so far."""

    url: str
    pid: int
    parent: int
    settings: Settings
    versions: list[VersionTold]
    replicas: list[ReplicaTold]
    arrivals: int
    answers: int
    errors: int
    dropped: int
    open: int
    waiting: int
    closed: bool
    """Whether it takes no new requests."""
    daemon: bool
    """Whether the daemon answers."""
    rollout: Rollout | None = None


def folder_of(root: Path, name: str) -> Path:
    """Where the front of a service lies. Raises BadInput."""
    if not NAME.fullmatch(name):
        raise BadInput(
            f"{name[:80]!r} is not a name of a service",
            mend="write letters, digits, dots, - and _, 63 at most",
        )
    return own_folder(root, "fronts") / name


def fronts(root: Path) -> list[str]:
    """The names of services that have, or had, a front here."""
    folder = own_folder(root, "fronts")
    return sorted(path.name for path in folder.glob("*") if NAME.fullmatch(path.name))


def parent_of(root: Path, name: str) -> int | None:
    """A descriptor that is readable once the parent of a front has ended; None: there is none."""
    front = asked_at(root, name)
    try:
        return os.pidfd_open(front.parent) if front is not None else None
    except ProcessLookupError:
        return None


def asked_at(root: Path, name: str, asked: Asked | None = None) -> Told | None:
    """What the front of a service answers; None if there is none."""
    return ask(folder_of(root, name), SOCKET, asked or Asked(), Told)
