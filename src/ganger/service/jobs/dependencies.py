"""What must have become of other jobs before a job may start, in Slurm's terms."""

from __future__ import annotations

from typing import Final, Literal

import msgspec

from ganger.core.state.jobs import Jobs, Phase
from ganger.core.units import NEVER, format_duration

Kind = Literal["ok", "over", "not_ok", "begun"]
_SAID: Final = {
    "ok": "to finish",
    "over": "to be over",
    "not_ok": "to end badly",
    "begun": "to have begun",
}


class Condition(msgspec.Struct, frozen=True):
    """All of `rows` (the tasks of an array, or one job) have finished (`ok`), are over (`over`), or
    have started or are over (`begun`, since `delay` microseconds); or all are over and one of them
    ended badly (`not_ok`)."""

    kind: Kind
    rows: tuple[int, ...]
    delay: int = 0

    def opens(self, jobs: Jobs) -> int | None:
        """Since when, or from when on it holds, microseconds; NEVER, or None if that is open."""
        phases = [Phase(jobs.phase[row]) for row in self.rows]
        if self.kind == "ok" and any(phase > Phase.FINISHED for phase in phases):
            return NEVER
        if not all(self.settled(row, jobs) for row in self.rows):
            return None
        if self.kind == "not_ok" and all(phase == Phase.FINISHED for phase in phases):
            return NEVER
        column = jobs.first_start if self.kind == "begun" else jobs.finished
        times = [int(column[row]) for row in self.rows]
        return self.delay + max(
            int(jobs.finished[row]) if at < 0 else at
            for row, at in zip(self.rows, times, strict=True)
        )

    def settled(self, row: int, jobs: Jobs) -> bool:
        """Whether what the condition asks of this row cannot change any more."""
        begun = self.kind == "begun" and jobs.first_start[row] >= 0
        return bool(begun or jobs.phase[row] >= Phase.FINISHED)

    def said(self, names: str) -> str:
        """In words, like "job 3 to have begun 10m 00s ago"."""
        ago = f" {format_duration(self.delay)} ago" if self.delay else ""
        return f"{names} {_SAID[self.kind]}{ago}"


class Dependencies(msgspec.Struct, frozen=True):
    """All of `every` must hold, and of `either` one, if there is any."""

    every: tuple[Condition, ...] = ()
    either: tuple[Condition, ...] = ()

    def __bool__(self) -> bool:
        """Whether there is any."""
        return bool(self.every or self.either)

    @property
    def rows(self) -> list[int]:
        """All that are named."""
        return [row for one in (*self.every, *self.either) for row in one.rows]

    def open_ended(self, jobs: Jobs) -> set[tuple[int, bool]]:
        """Rows of which something is still awaited, and whether that is only their begin."""
        return {
            (row, one.kind == "begun")
            for one in (*self.every, *self.either)
            for row in one.rows
            if not one.settled(row, jobs)
        }

    def opens(self, jobs: Jobs) -> int | None:
        """As `Condition.opens`; of `either` it may come earlier than is known yet."""
        times = [one.opens(jobs) for one in self.every]
        if self.either:
            some = [one.opens(jobs) for one in self.either]
            known = [at for at in some if at is not None]
            times.append(
                None if None in some and min(known, default=NEVER) == NEVER else min(known)
            )
        if NEVER in times:
            return NEVER
        return None if None in times else max((at for at in times if at is not None), default=0)
