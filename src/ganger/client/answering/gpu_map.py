"""The answer to `GET /v1/map`: which job holds which GPU."""

from __future__ import annotations

import msgspec


class HolderAnswer(msgspec.Struct, kw_only=True):
    """A job that holds GPUs, as the map names it."""

    job: int
    label: str
    name: str
    user: str
    tenant: str
    state: str
    gpus: int


class HeldAnswer(msgspec.Struct, kw_only=True, array_like=True):
    """What a job holds of a node: the numbers of the GPUs, and which part of each."""

    job: int
    gpus: list[int]
    share: float = 1.0


class NodeMap(msgspec.Struct, kw_only=True):
    """A node and what is held of it. `state`: up, down or drained; `withheld`: the numbers of the
    GPUs that are used outside Ganger."""

    name: str
    state: str
    gpu_type: str
    gpus: int
    withheld: list[int]
    held: list[HeldAnswer]


class MapAnswer(msgspec.Struct, kw_only=True):
    """Which job holds which GPU, at a `revision` of the daemon."""

    revision: int
    nodes: list[NodeMap]
    jobs: list[HolderAnswer]
