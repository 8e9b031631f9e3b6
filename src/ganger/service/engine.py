"""What the daemon needs of an engine."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from typing import Protocol

from ganger.core.events import AnyEvent, Batch
from ganger.core.plan import Plan
from ganger.engines.agent.protocol import Progress, Read, Text
from ganger.engines.clock import Clock
from ganger.engines.local import Hold
from ganger.engines.reconciliation import Believed


class LiveEngine(Protocol):
    """What the daemon needs of an engine, beyond `core.protocols.Engine`."""

    clock: Clock

    @property
    def progress(self) -> Mapping[int, Progress]:
        """What running jobs last reported."""
        ...

    def poll(self, until: int) -> Batch | None:
        """Wait for what happens; calling it again says that the last batch is durable."""
        ...

    def apply(self, plan: Plan, now: int) -> None:
        """Set the plan going."""
        ...

    def post(self, *events: AnyEvent) -> None:
        """Interrupt `poll`."""
        ...

    def adopt(self, holds: Iterable[Hold]) -> None:
        """Say what the kernel believes to run: job, attempt, phase, placement."""
        ...

    def reconcile(self, owner: Believed) -> bool:
        """Say what the kernel believes at any time later; what it has missed comes as events."""
        ...

    def devices(self, job: int, attempt: int) -> Mapping[str, tuple[int, ...]]:
        """The indices of the GPUs that an attempt runs on, by node, where the machines chose them
        and have reported it; elsewhere it has those of the plan. Any thread."""
        ...

    def lost_output(self, job: int, attempt: int) -> str:
        """What is missing of the output of an attempt that the last batch ended, and why, in words;
        empty if nothing is."""
        ...

    def read(self, node: int, order: Read) -> Future[Text] | None:
        """Have the machine of this node read a piece of a job's output; None if it lies in this
        machine's own files, or on a file system that all share. Any thread."""
        ...

    def host(self, node: int) -> str:
        """The address at which the machine of this node is reached from here; empty where it is not
        known. Any thread."""
        ...

    def close(self) -> None:
        """Let go; what runs goes on."""
        ...
