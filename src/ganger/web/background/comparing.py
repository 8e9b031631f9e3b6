"""What is asked of a comparison of recipes, and what comes of it. Nothing here simulates."""

from __future__ import annotations

import msgspec


class Asked(msgspec.Struct):
    """Recipes to try on `traces` (JSON Lines) and a `cluster` (plain data), beside the `recipe` in
    force. They have `nodes` more nodes of type `kind` (fewer, where it is negative) than there are;
    the recipe in force is also tried as it is now. `objective`: jct or makespan."""

    traces: list[str]
    cluster: msgspec.Raw
    recipe: str
    knows: str
    recipes: list[str]
    nodes: int
    kind: str
    objective: str


class Row(msgspec.Struct):
    """How one recipe did: means over all parts, in seconds; the ratio of its figure to that of the
    recipe as it is now, with the ends of its 95 % interval (None: there is one part). `why` it was
    left out, else empty."""

    name: str
    jct: float = 0.0
    wait: float = 0.0
    makespan: float = 0.0
    preemptions: float = 0.0
    ratio: float | None = None
    low: float | None = None
    high: float | None = None
    why: str = ""


class Compared(msgspec.Struct):
    """The rows, the recipe as it is now first, then the best first; of how many `parts` with how
    many `jobs`. `pick`: the best; `sure`: whether it is surely better than now. All
    but the first had so many more `nodes`. `without`: jobs that the cluster has no room for."""

    rows: list[Row]
    parts: int
    jobs: int
    metric: str
    pick: str
    sure: bool
    nodes: int = 0
    without: int = 0


def nodes_in_words(nodes: int) -> str:
    """So many more or fewer nodes in words; empty if as many."""
    some = f"{abs(nodes):,} {'more' if nodes > 0 else 'fewer'} node{'' if abs(nodes) == 1 else 's'}"
    return some if nodes else ""
