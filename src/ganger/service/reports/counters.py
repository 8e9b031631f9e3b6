"""What the daemon counts beside the tables, since it was started: for its figures."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable
from typing import Final

from ganger.core.events import AnyEvent, Command, Refused

BOUNDS: Final = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0)
_REASONS_MAX: Final = 20
_OWN = re.compile(r"\d+|'[^']*'|\S*/\S*")


class Counters:
    """Counters. `steps` holds how many steps took at most each of `BOUNDS` seconds, and more."""

    def __init__(self) -> None:
        self.steps = [0] * (len(BOUNDS) + 1)
        self.step_seconds = 0.0
        self.last_seconds = 0.0
        self.longest_seconds = 0.0
        self.refused: Counter[str] = Counter()
        self.requeued = 0

    def step(self, seconds: float) -> None:
        """A step took so long."""
        self.steps[bisect_left(BOUNDS, seconds)] += 1
        self.step_seconds += seconds
        self.last_seconds = seconds
        self.longest_seconds = max(self.longest_seconds, seconds)

    def notice(self, events: Iterable[AnyEvent]) -> None:
        """Count what happened. Reasons lose their numbers and names, and are few."""
        for event in events:
            if isinstance(event, Refused):
                reason = " ".join(_OWN.sub("", event.why).split())[:60] or "unknown"
                known = reason in self.refused or len(self.refused) < _REASONS_MAX
                self.refused[reason if known else "other"] += 1
            elif isinstance(event, Command) and event.verb == "requeue":
                self.requeued += 1
