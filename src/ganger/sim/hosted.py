"""The simulator with processes inside of it that have a time of their own, as the requests of a
service have: they hear what happens to jobs, and report facts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from ganger.core.events import AnyEvent, Batch, Woke
from ganger.core.plan import AnyAction, Plan
from ganger.sim.engine import Simulator


class Host(Protocol):
    """A process that is hosted. Times in microseconds."""

    def next_time(self) -> int:
        """When it next has something to report; NEVER if nothing more is to come."""

    def advance(self, now: int) -> list[AnyEvent]:
        """What it reports at `now`, which is its next time."""

    def happened(self, now: int, events: Sequence[AnyEvent]) -> list[AnyEvent]:
        """These events happened; what is to be reported because of them, at once."""

    def planned(self, now: int, actions: Sequence[AnyAction]) -> None:
        """These actions were set going."""


class Hosted:
    """An engine: the simulator and its hosts, on one clock."""

    def __init__(self, simulator: Simulator, hosts: Iterable[Host]) -> None:
        self._simulator, self._hosts = simulator, tuple(hosts)

    def poll(self, until: int) -> Batch | None:
        """The next instant at which something happens anywhere, or a Woke at `until`."""
        ahead = min(host.next_time() for host in self._hosts)
        batch = self._simulator.poll(min(until, ahead))
        if batch is None:
            return None
        self._simulator.idle_wakes = 0
        events = batch.events
        if batch.at == ahead:
            if ahead < until:  # nobody wanted to be woken
                events = [event for event in events if not isinstance(event, Woke)]
            for host in self._hosts:
                if host.next_time() == ahead:
                    events += host.advance(ahead)
            events.sort(key=lambda event: event.rank)
        last = [each for host in self._hosts for each in host.happened(batch.at, events)]
        if last:
            events = sorted([*events, *last], key=lambda event: event.rank)
        return Batch(batch.at, events)

    def apply(self, plan: Plan, now: int) -> None:
        """Set the actions going."""
        self._simulator.apply(plan, now)
        for host in self._hosts:
            host.planned(now, plan.actions)
