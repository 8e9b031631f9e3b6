"""What is asked of the lab, and what comes of it. Nothing here simulates."""

from __future__ import annotations

from typing import Any

import msgspec


class Asked(msgspec.Struct):
    """A trace by its `kind` (made up from a `seed`; or the first `jobs` of `demo`, or of a `file`
    called `name` whose `text` a browser sent), a cluster in short form, the recipes to replay."""

    kind: str
    jobs: int
    seed: int
    cluster: str
    recipes: list[str]
    name: str = ""
    text: str = ""


class Replay(msgspec.Struct):
    """One recipe's run: the bars of its Gantt chart as reports have them (None: `undrawn` says
    why), means over equal slices of time (`slices`), the moments in seconds at which GPUs `held`
    and jobs `waiting` changed, when each job was over (None: never), figures by name, and its
    decisions (seconds, news, what was done, why others wait), `skipped` of which are not kept."""

    recipe: str
    drawn: dict[str, Any] | None
    undrawn: str
    slices: dict[str, list[float | None]]
    moments: list[float]
    held: list[float]
    waiting: list[int]
    ends: list[float | None]
    figures: dict[str, int | float | None]
    decisions: list[tuple[float, str, list[str], list[str]]]
    skipped: int


class Played(msgspec.Struct):
    """All runs: the GPUs of each node, when each job came, and the last end, in seconds; the words
    of `ganger simulate` for the trace; of how many jobs of it none is here (`without`)."""

    nodes: list[int]
    arrivals: list[float]
    end: float
    runs: list[Replay]
    trace: str
    without: int = 0
