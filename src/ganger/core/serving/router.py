"""The fast half of serving: which requests run next, together, and where."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from ganger.core.serving.verbs import Do, Ended, News
from ganger.core.serving.world import Lane, World


class Router(Protocol):
    """Decides per batch, as pure as a policy: world and events in, orders out; no clock, no socket.

    A router holds parameters only; what it must remember is `world.memory`, which `begin` makes.
    """

    @property
    def name(self) -> str:
        """What it is called."""

    @property
    def loads(self) -> bool:
        """Whether it loads models into memory, so that not all must fit at once."""

    @property
    def divides(self) -> bool:
        """Whether it cuts requests into parts, so that one may bring more than a batch can hold."""

    @property
    def streams(self) -> int:
        """How many batches it runs on a device at once: so many lanes share each."""

    @property
    def chooses(self) -> bool:
        """Whether requests may name a family, of which it chooses who answers; it then reads what
        models answered, and the labels of requests that are over."""

    def begin(self, world: World) -> Any:
        """The memory to begin with, in plain structs."""

    def arrive(self, world: World, rows: range) -> None:
        """New requests, in order of arrival: each is refused, answered, or waits where the router
        says. What is decided of a row may depend on its own arrival, never on `world.now`: a range
        is decided as its rows would be one by one."""

    def next(self, world: World, idle: Sequence[Lane]) -> Sequence[Do]:
        """What these lanes, which have nothing to do, shall do."""

    def ended(self, world: World, done: Ended) -> Sequence[Do]:
        """A batch or a load is over."""

    def told(self, world: World, news: News) -> Sequence[Do]:
        """Something else happened."""
