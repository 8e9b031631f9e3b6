"""What an engine knows of the attempts that it was given: enough to report again what was not
heard.

An owner that may have missed an event, or whose order may not have come through, says what it
believes; `Standing.differences` is what the owner has to hear, and what has to be done, so that
both know the same again. No clock, no I/O.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, TypeAlias

from ganger.core.events import (
    AnyEvent,
    Failed,
    Finished,
    NodeDown,
    NodeUp,
    Refused,
    Released,
    Started,
    Withheld,
)
from ganger.core.plan import AnyAction, Resize, Resume, Start, Stop, Suspend
from ganger.core.state.jobs import HOLDS_DEVICES, Phase
from ganger.core.state.reducer import Reducer
from ganger.engines.gang import UNCHANGED, Hold, overlap

AttemptKey: TypeAlias = tuple[int, int]
"""(job, attempt)"""
End: TypeAlias = Finished | Failed | Released | Refused


class Believed(NamedTuple):
    """What the owner of an engine believes: the attempts that hold devices, the nodes that are
    down, how many GPUs of nodes are others'."""

    holds: Sequence[Hold]
    down: frozenset[int] = frozenset()
    withheld: Mapping[int, int] = {}


def believed(kernel: Reducer) -> Believed:
    """What a kernel believes to run, and of its nodes."""
    jobs, holds = kernel.jobs, list[Hold]()
    for row, placement in kernel.placements().items():
        phase = Phase(jobs.phase[row])
        if phase in HOLDS_DEVICES:
            knobs = kernel.settings.knobs.get(row, {})
            terms = knobs if "request" in knobs else {}
            holds.append(Hold(row, int(jobs.attempt[row]), phase, placement, knobs=terms))
    for (row, attempt), placement in kernel.letting_go.items():
        holds.append(Hold(row, attempt, Phase.STOPPING, placement))
    nodes = range(kernel.nodes.n)
    return Believed(
        holds,
        frozenset(node for node in nodes if kernel.barred(node) == "down"),
        {node: gpus for node in nodes if (gpus := kernel.withheld(node))},
    )


class Reconciliation:
    """Follows an engine by its orders and its events."""

    def __init__(self) -> None:
        self.alive: dict[AttemptKey, Phase] = {}
        """Attempts that were ordered and are not over."""
        self._started: dict[AttemptKey, Started] = {}
        self._ends: dict[AttemptKey, End] = {}
        """How attempts ended that the owner may not know to be over."""
        self._last: dict[int, int] = {}
        self._down: dict[int, bool] = {}
        self._withheld: dict[int, int] = {}

    def adopt(self, holds: Iterable[Hold]) -> None:
        """These attempts are the engine's from now on."""
        for hold in holds:
            self.alive[hold.job, hold.attempt] = hold.phase
            self._last[hold.job] = max(hold.attempt, self._last.get(hold.job, 0))

    def ordered(self, actions: Iterable[AnyAction]) -> list[AnyAction]:
        """Take orders; those that still mean something. What is over cannot be stopped, what was
        started is not started again."""
        return [action for action in actions if self._means_something(action)]

    def _means_something(self, action: AnyAction) -> bool:
        if isinstance(action, Start | Resize):
            job, attempt = action.job, action.attempt
            if attempt <= self._last.get(job, 0):
                return False
            self._last[job] = attempt
            if isinstance(action, Resize):
                before = job, attempt - 1
                if isinstance(self._ends.get(before), Finished):
                    self._ends[before] = Released(*before, UNCHANGED)
                    self._ends[job, attempt] = Finished(job, attempt)
                    return False
                if before in self.alive:
                    self.alive[before] = Phase.STOPPING
            self.alive[job, attempt] = Phase.STARTING
        elif isinstance(action, Stop | Suspend | Resume):
            key = action.job, action.attempt
            if key not in self.alive or self.alive[key] == Phase.STOPPING:
                return False
            if isinstance(action, Stop):
                self.alive[key] = Phase.STOPPING
            else:
                suspends = isinstance(action, Suspend)
                self.alive[key] = Phase.SUSPENDED if suspends else Phase.RUNNING
        return True

    def told(self, events: Iterable[AnyEvent]) -> None:
        """Note what the engine says."""
        for event in events:
            if isinstance(event, Started):
                key = event.job, event.attempt
                if self.alive.get(key) == Phase.STARTING:
                    self.alive[key] = Phase.RUNNING
                self._started[key] = event
            elif isinstance(event, End):
                key = event.job, event.attempt
                self.alive.pop(key, None)
                self._started.pop(key, None)
                self._ends[key] = event
            elif isinstance(event, NodeDown | NodeUp):
                self._down[event.node] = isinstance(event, NodeDown)
            elif isinstance(event, Withheld):
                self._withheld[event.node] = event.gpus

    def differences(self, owner: Believed) -> tuple[list[AnyEvent], list[AnyAction]]:
        """What the owner has to hear, and what it wants that was not ordered. Ends of which it
        knows are forgotten."""
        holds = {(hold.job, hold.attempt): hold for hold in owner.holds}
        self._ends = {key: end for key, end in self._ends.items() if key in holds}
        events, actions = list[AnyEvent](), list[AnyAction]()
        actions += [
            Stop(*key, "cancelled")
            for key, phase in self.alive.items()
            if key not in holds and phase != Phase.STOPPING
        ]
        for key, hold in holds.items():
            phase = self.alive.get(key)
            if phase is None:
                events += self._missed_end(key, hold, newer=self._last.get(hold.job, 0) > key[1])
            elif hold.phase == Phase.STARTING and key in self._started:
                events.append(self._started[key])
            elif hold.phase == Phase.STOPPING and phase != Phase.STOPPING:
                actions.append(Stop(*key))
            elif (hold.phase, phase) == (Phase.SUSPENDED, Phase.RUNNING):
                actions.append(Suspend(*key))
            elif (hold.phase, phase) == (Phase.RUNNING, Phase.SUSPENDED):
                actions.append(Resume(*key))
        actions += self._missed_starts(holds)
        events += [
            NodeDown(node) if down else NodeUp(node)
            for node, down in self._down.items()
            if down != (node in owner.down)
        ]
        events += [
            Withheld(node, gpus)
            for node, gpus in self._withheld.items()
            if gpus != owner.withheld.get(node, 0)
        ]
        return events, actions

    def _missed_end(self, key: AttemptKey, hold: Hold, *, newer: bool) -> list[AnyEvent]:
        end = self._ends.get(key)
        leaves = hold.phase == Phase.STOPPING
        if end is None and hold.phase == Phase.STARTING:
            return []  # the order did not come through: it starts now
        if end is None and not leaves:
            return [Failed(*key, UNCHANGED, "NodeFail: the engine does not know it")]
        if end is None or (leaves and (isinstance(end, Refused) or newer)):
            kept = end.kept if isinstance(end, Released | Failed) else UNCHANGED
            return [Released(*key, kept)]
        return [end]

    def _missed_starts(self, holds: Mapping[AttemptKey, Hold]) -> list[AnyAction]:
        return [
            Start(
                *key,
                hold.placement,
                tuple(
                    sorted(
                        {
                            other.job
                            for other in holds.values()
                            if other.phase == Phase.STOPPING and overlap(hold, other)
                        }
                    )
                ),
            )
            for key, hold in holds.items()
            if hold.phase == Phase.STARTING and key not in self.alive and key not in self._ends
        ]
