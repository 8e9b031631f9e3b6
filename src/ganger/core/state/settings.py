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

    def came(self, parent: int) -> None:
        """A child that was asked for is there."""
        left = self.spawning.get(parent, 0) - 1
        if left > 0:
            self.spawning[parent] = left
        else:
            self.spawning.pop(parent, None)
