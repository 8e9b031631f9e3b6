"""The kinds of background work, each a function of what is asked that tells how far it is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from ganger.web.background import (
    cards,
    compare,
    comparing,
    gallery,
    lab,
    lessons,
    playing,
    teaching,
)

Tell = Callable[..., None]
TASKS: Final[dict[str, tuple[Any, Callable[[Any, Tell], Any]]]] = {
    "compare": (comparing.Asked, compare.compare),
    "lab": (playing.Asked, lab.play),
    "lesson": (teaching.Asked, lessons.work_out),
    "gallery": (cards.Asked, gallery.cards),
}
"""By name: the type of what is asked, and the work."""
