"""What policies have set, and stands until they set it otherwise."""

from __future__ import annotations

import msgspec


class Settings(msgspec.Struct):
    """Plain data: a snapshot keeps it as it is."""

    knobs: dict[int, dict[str, float | bool | str]] = {}
    """By job: the knobs that were turned (`Tune`)."""
    routes: dict[int, dict[int, float]] = {}
    """By service: weights by replica (`Route`)."""
    spawning: dict[int, int] = {}
    """By parent: children that were asked for and are not there yet (`Spawn`)."""

    def forget(self, job: int) -> None:
        """The job is over."""
        self.knobs.pop(job, None)
        self.routes.pop(job, None)
        self.spawning.pop(job, None)

    def came(self, parent: int, n: int = 1) -> None:
        """So many children that were asked for are there, or will never be."""
        left = self.spawning.get(parent, 0) - n
        if left > 0:
            self.spawning[parent] = left
        else:
            self.spawning.pop(parent, None)
