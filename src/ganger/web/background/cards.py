"""What the pages know of recipes: cards, which `gallery` makes in a process of its own. Nothing
here imports a recipe."""

from __future__ import annotations

from typing import Any, Final

import msgspec

PLANE_WORDS: Final = {
    "training": "jobs",
    "serving": "services",
    "tuning": "trials of a search",
    "requests": "requests to models",
    "hybrid": "services beside jobs",
}
"""By plane: over what its recipes decide."""


class Asked(msgspec.Struct):
    """Nothing more is asked."""


class Card(msgspec.Struct):
    """What there is to know of a recipe: over what it decides (`over`), its paper, what it improves
    and must know, what was `assumed`, `wants` that a workload must have, what it is `made` of, and
    its parameters with their defaults."""

    name: str
    over: str
    summary: str
    doc: str
    paper: str
    year: int
    improves: list[str]
    knows: list[str]
    assumed: str
    wants: list[str]
    elastic: bool
    types: bool
    made: list[str]
    parameters: dict[str, str]
    code: str


def said(parts: dict[str, Any]) -> list[Card]:
    """The cards that a process has made so far."""
    cards: list[Card] = msgspec.convert(parts.get("cards", []), list[Card])
    return cards
