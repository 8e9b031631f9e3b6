"""What connections of a server may do."""

from __future__ import annotations

import resource
from typing import Any

from msgspec import Struct
from msgspec.structs import replace


class Limits(Struct, frozen=True):
    """What connections may do. `head`: bytes of a request line and its headers; `body`: bytes of a
    body; `memory`: bytes of bodies and unread answers of all connections; `each_memory`: bytes of
    bodies of one tenant; `ahead`: requests of a connection that wait for an earlier one: each may
    be a few bytes, and takes much more once it is read; seconds: for a head from its first byte
    on, for a body, for reading an answer, and without any request."""

    connections: int = 1024
    head: int = 32 << 10
    body: int = 64 << 20
    memory: int = 512 << 20
    each_memory: int = 512 << 20
    ahead: int = 512
    head_seconds: float = 10.0
    body_seconds: float = 60.0
    read_seconds: float = 30.0
    idle_seconds: float = 75.0


def limits_of(**given: Any) -> Limits:
    """Limits for this process: at most half of the descriptors that it may have are connections."""
    limits = Limits(**given)
    descriptors = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return replace(limits, connections=max(min(limits.connections, descriptors // 2), 1))
