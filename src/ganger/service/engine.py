"""What the daemon needs of an engine."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol

from ganger.core.events import AnyEvent, Batch
from ganger.core.plan import Plan
from ganger.engines.agent.protocol import Progress
from ganger.engines.clock import Clock
from ganger.engines.local import Hold


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

    def close(self) -> None:
        """Let go; what runs goes on."""
        ...
