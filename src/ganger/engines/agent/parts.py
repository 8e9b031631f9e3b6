"""A part of an attempt as its agent knows it."""

from __future__ import annotations

from collections.abc import Iterator

from ganger.engines.agent.attempt.attempt_dir import AttemptDir
from ganger.engines.agent.attempt.reports import Kept
from ganger.engines.agent.protocol import (
    Exit,
    Exited,
    Launched,
    Message,
    Prepare,
    Prepared,
    Progress,
    Reported,
)
from ganger.engines.agent.wire import Link


class Part:
    """One part: prepared, launched (its supervisor lives), or exited."""

    def __init__(self, folder: AttemptDir, prepare: Prepare) -> None:
        self.folder, self.prepare, self.key = folder, prepare, prepare.key
        self.port = 0
        self.link: Link | None = None
        self.taken = self.asked = False
        """Whether it was started, and then told to leave."""
        self.supervisor = 0
        """Its process number, if this agent forked it."""
        self.launched: Launched | None = None
        self.progress: Progress | None = None
        self.exit: Exit | None = None
        self.kept = Kept(folder.reports)

    def reported(self) -> Iterator[Message]:
        """What it reported and was not passed on yet."""
        return (Reported(self.key, number, reports) for number, reports in self.kept.new())

    def state(self) -> list[Message]:
        """All that an engine must know of it, from the beginning."""
        self.kept.again()
        reported = list(self.reported())
        return [*reported, *state_of(self)] if self.exit else [*state_of(self), *reported]


def state_of(part: Part) -> list[Message]:
    """How far it is."""
    if part.exit is not None:
        return [Exited(part.key, part.exit)]
    if not part.taken:
        return [Prepared(part.key, part.port)]
    # Also if its supervisor has not reported yet: a part not mentioned would be taken for lost.
    launched = part.launched if part.launched is not None else Launched(part.key)
    return [launched, part.progress] if part.progress is not None else [launched]
