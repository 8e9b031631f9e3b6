"""The processes of a part: made to stand still, and ended."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from typing import Final

from ganger.engines.agent.attempt import processes
from ganger.engines.agent.attempt.cgroup import Group

_DRAIN_SECONDS: Final = 0.5
"""So long may what a client of MPS has launched go on after it stands still."""


class Still:
    """`members` lists the processes. `drains`: they compute through MPS, where those beside a
    client fail if it dies in the middle of its work (an illegal address, on driver 580)."""

    def __init__(self, group: Group, members: Callable[[], list[int]], drains: bool) -> None:
        self._group, self._members, self._drains = group, members, drains

    def hold(self, frozen: bool) -> None:
        """Stop them all, or let them go on."""
        if not self._group.freeze(frozen):
            processes.send(self._members(), signal.SIGSTOP if frozen else signal.SIGCONT)

    def end(self, number: int) -> bool:
        """Send them a signal that kills, once their work on the GPU is over: nothing new begins
        while they stand still. Whether there were any."""
        if self._drains and self._members():
            self.hold(True)
            time.sleep(_DRAIN_SECONDS)
        reached = processes.send(self._members(), number)
        if self._drains:
            self.hold(False)
        return bool(reached)
