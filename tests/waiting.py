"""Waiting for something that a real process does."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any


def until(true: Callable[[], Any], what: str = "it does not happen", seconds: float = 60.0) -> Any:
    """Ask until the answer counts as true; the answer. `what` is said if that takes longer."""
    late = time.monotonic() + seconds
    while not (answer := true()):
        assert time.monotonic() < late, what
        time.sleep(0.05)
    return answer
