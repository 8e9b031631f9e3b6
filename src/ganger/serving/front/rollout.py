"""Traffic moves from a version of a service to the next, step by step, and back where the new one
does worse. Nothing here does I/O."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Protocol

import msgspec

from ganger.serving.front.balance import Version

STEPS: Final = (0.01, 0.1, 0.5, 1.0)
"""Parts of requests that the next version gets, one after the other."""
ANSWERS: Final = 20
"""So many answers of the next version say something."""


class Guard(msgspec.Struct, frozen=True):
    """What the next version may do: its part of answers that are errors, at most `errors` more than
    the other's; its 99th percentile of latency, at most `slower` times the other's."""

    errors: float = 0.02
    slower: float = 2.0


class Rollout(msgspec.Struct):
    """From job `old` to job `new`, with each of `steps` for `hold_seconds`, and until the new one
    has given enough answers. `state`: waits (for a replica of the new version), moves, done, or
    back."""

    old: int
    new: int
    steps: tuple[float, ...] = STEPS
    hold_seconds: float = 30.0
    guard: Guard = Guard()
    state: str = "waits"
    at: int = -1
    """Which step."""
    why: str = ""
    """For which it went back."""

    @property
    def over(self) -> bool:
        """Whether it moves nothing any more."""
        return self.state in ("done", "back")

    @property
    def part(self) -> float:
        """Of the requests, what the new version gets now."""
        if self.state == "done":
            return 1.0
        moves = self.state == "moves" and 0 <= self.at < len(self.steps)
        return self.steps[self.at] if moves else 0.0


class Seen(Protocol):
    """What a version did since the step began."""

    answers: int
    errors: int

    def quantile(self, part: float) -> float:
        """Of its latencies, in seconds; 0: there are none."""


def stepped(
    rollout: Rollout, ready: bool, seconds: float, seen: Mapping[int, Seen]
) -> Rollout | None:
    """The rollout a moment later, None where nothing changes. `ready`: whether the new version has
    a replica that takes requests; `seconds`: since the step began; `seen`: by version, since
    then."""
    if rollout.over:
        return None
    if rollout.state == "waits":
        return msgspec.structs.replace(rollout, state="moves", at=0) if ready else None
    new, old = seen.get(rollout.new), seen.get(rollout.old)
    if new is not None and (why := _worse(new, old, rollout.guard)):
        return msgspec.structs.replace(rollout, state="back", why=why)
    if not ready:
        return msgspec.structs.replace(rollout, state="back", why="it has no replica any more")
    if seconds < rollout.hold_seconds or new is None or new.answers < ANSWERS:
        return None
    if rollout.at + 1 < len(rollout.steps):
        return msgspec.structs.replace(rollout, at=rollout.at + 1)
    return msgspec.structs.replace(rollout, state="done")


def _worse(new: Seen, old: Seen | None, guard: Guard) -> str:
    """Why the new version is worse than it may be; "" if it is not."""
    if new.answers < ANSWERS:
        return ""
    part = new.errors / new.answers
    before = old.errors / old.answers if old is not None and old.answers else 0.0
    if part > before + guard.errors:
        return f"{part:.1%} of its answers were errors, and {before:.1%} of the other version's"
    enough = old is not None and old.answers >= ANSWERS
    late, usual = new.quantile(0.99), old.quantile(0.99) if old is not None else 0.0
    if enough and usual and late > guard.slower * usual:
        return (
            f"its 99th percentile was {late * 1000:.0f} ms, and {usual * 1000:.0f} ms of the other"
            " version's"
        )
    return ""


def weighed(versions: list[Version], rollout: Rollout) -> list[Version]:
    """The versions with the weights that the rollout gives."""
    parts = {rollout.new: rollout.part, rollout.old: 1.0 - rollout.part}
    return [
        msgspec.structs.replace(version, weight=parts[version.job], shadow=False)
        if version.job in parts
        else version
        for version in versions
    ]
