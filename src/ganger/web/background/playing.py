"""What is asked of the lab, and what comes of it. Nothing here simulates."""

from __future__ import annotations

import msgspec


class Asked(msgspec.Struct):
    """A made-up trace (its `kind`, how many `jobs`, the `seed`), a cluster in short form, and the
    recipes that replay it."""

    kind: str
    jobs: int
    seed: int
    cluster: str
    recipes: list[str]


class Replay(msgspec.Struct):
    """One recipe's run: segments of (job, start, end in seconds, node, mask of GPUs), when each job
    was over (None: never), and figures by name."""

    recipe: str
    segments: list[tuple[int, float, float, int, int]]
    ends: list[float | None]
    figures: dict[str, float]


class Played(msgspec.Struct):
    """All runs: the GPUs of each node, of each job its name, GPUs and arrival in seconds, and the
    last end."""

    nodes: list[int]
    names: list[str]
    gpus: list[int]
    arrivals: list[float]
    end: float
    runs: list[Replay]
