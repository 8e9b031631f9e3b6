"""The fast half of serving: which requests run next, together, and where."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from msgspec import Struct

from ganger.core.serving.verbs import Do, Ended, News
from ganger.core.serving.world import Lane, World


class Abilities(Struct, frozen=True):
    """What a router can do beyond batches of whole requests to one model each.

    `loads`: it loads models into memory, so that not all must fit at once. `divides`: it cuts
    requests into parts, so that one may bring more than a batch can hold. `chooses`: requests
    may name a family, of which it chooses the model that answers; it then reads what models
    answered, and the labels of requests that are over. `streams`: batches that it runs on a
    device at once: so many lanes share each. `pipelines`: requests may name a pipeline, whose
    stages it runs as tasks. `foresees`: it knows all requests before they come
    (`world.future`), which nobody can deploy; and no further than `ahead` microseconds, if that
    is not 0. `retires`: it says how many lanes it wants (`world.wanted`), and gives lanes back.
    `cuts`: it interrupts batches when requests come, and so hears of each instant apart.
    `weighs`: it reads what models gave for every class, not only which class they chose.
    """

    loads: bool = False
    divides: bool = False
    chooses: bool = False
    streams: int = 1
    pipelines: bool = False
    foresees: bool = False
    ahead: int = 0
    retires: bool = False
    weighs: bool = False
    cuts: bool = False


PLAIN = Abilities()
LOADS = Abilities(loads=True)
DIVIDES = Abilities(divides=True)
RETIRES = Abilities(retires=True)


class Router(Protocol):
    """Decides per batch, as pure as a policy: world and events in, orders out; no clock, no socket.

    A router holds parameters only; what it must remember is `world.memory`, which `begin` makes.
    """

    @property
    def name(self) -> str:
        """What it is called."""

    @property
    def can(self) -> Abilities:
        """What it can do beyond the plain."""

    def begin(self, world: World) -> Any:
        """The memory to begin with, in plain structs."""

    def arrive(self, world: World, rows: range) -> None:
        """New requests, in order of arrival: each is refused, answered, or waits where the router
        says. What is decided of a row may depend on its own arrival, never on `world.now`: a range
        is decided as its rows would be one by one."""

    def next(self, world: World, idle: Sequence[Lane]) -> Sequence[Do]:
        """What these lanes, which have nothing to do, shall do."""

    def ended(self, world: World, done: Ended) -> Sequence[Do]:
        """A batch or a load is over. It is asked for more then, unless it says `Stay`."""

    def told(self, world: World, news: News) -> Sequence[Do]:
        """Something else happened."""
