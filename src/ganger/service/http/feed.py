"""What happened to jobs, as it happens: kept for a while, so that a client that reconnects misses
nothing."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from itertools import takewhile
from typing import Final

import msgspec

from ganger.client.states import state_of
from ganger.core.events import AnyEvent
from ganger.core.kernel import Kernel
from ganger.core.plan import Plan
from ganger.core.state.jobs import Phase
from ganger.core.units import SECOND

KEPT: Final = 10_000


class Change(msgspec.Struct, frozen=True):
    """A job's state changed: `at` in Unix seconds, `outcome` of its last attempt if that did not
    end well. `revision` numbers the steps."""

    revision: int
    at: float
    job: int
    state: str
    attempt: int
    outcome: str


class Feed:
    """The last changes. Wants the daemon's lock."""

    def __init__(self) -> None:
        self._changes: deque[Change] = deque(maxlen=KEPT)
        self._states: dict[int, tuple[str, int]] = {}

    def step(
        self, kernel: Kernel, events: Iterable[AnyEvent], plan: Plan | None, ends: dict[int, str]
    ) -> None:
        """Note whose state the step changed."""
        touched = {event.job: None for event in events if hasattr(event, "job")}
        touched |= (
            {action.job: None for action in plan.actions if hasattr(action, "job")}
            if plan is not None
            else {}
        )
        for row in touched:
            phase, attempt = Phase(kernel.jobs.phase[row]), int(kernel.jobs.attempt[row])
            outcome = ends.get(row, "")
            state = state_of(phase, outcome)[0]
            if self._states.get(row) == (state, attempt):
                continue
            self._states[row] = state, attempt
            if phase >= Phase.FINISHED:
                del self._states[row]
            self._changes.append(
                Change(kernel.revision, kernel.now / SECOND, row + 1, state, attempt, outcome)
            )

    def since(self, revision: int) -> Iterator[Change]:
        """Changes of later steps, oldest first."""
        late = takewhile(lambda change: change.revision > revision, reversed(self._changes))
        return reversed(list(late))
