"""An example of the lecture, worked out for inputs of one's own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ganger.lab.lessons.parts import to_json
from ganger.lab.lessons.pieces import lesson
from ganger.web.background.teaching import Asked


def work_out(asked: Asked, tell: Callable[..., None]) -> dict[str, Any]:
    """What `ganger lesson NAME --set INPUT=VALUE --json` prints. Raises BadInput."""
    tell(total=1)
    return to_json(lesson(asked.name).work(asked.values))
