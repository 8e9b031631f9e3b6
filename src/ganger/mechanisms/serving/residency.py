"""Which models stay in a device's memory: a cache of models, where not all of them fit.

A request for a model that is there is a hit. For another one, models go until it fits, it is
loaded, and then it runs; what is there runs meanwhile. (Gilman et al.: Challenges and Opportunities
of DNN Model Execution Caching, DIDL 2019.) Caches differ in what they think a model is worth.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from msgspec import Struct

from ganger.core.errors import BadInput
from ganger.core.serving.verbs import Batch, Do, Evict, Load
from ganger.core.serving.world import Lane, Store, World

_DRAWS = 2
"""Salts from here on are of evictions; those before are of dispatchers."""


class Use(Struct):
    """The last use of a model in one memory: when, and `floor` as it was then."""

    at: int
    floor: float


class Kept(Struct):
    """What a cache remembers."""

    last: list[dict[int, Use]]
    """By store and model."""
    uses: list[int]
    """By model: the requests that ran, wherever it was."""
    floor: list[float]
    """By store: the worth of what was evicted last. A worth that begins with the floor ages."""
    evictions: int = 0


class Worth(Protocol):
    """What a model in memory is worth; the least goes first."""

    def begin(self, world: World) -> None:
        """Raises BadInput where it cannot know what it needs."""

    def of(self, world: World, kept: Kept, store: int, model: int) -> float:
        """Of a model that is in this store."""


@dataclass(frozen=True)
class _Plain:
    def begin(self, world: World) -> None:
        """Nothing is needed."""


@dataclass(frozen=True)
class LastUse(_Plain):
    """The least recently used goes first."""

    def of(self, world: World, kept: Kept, store: int, model: int) -> float:
        """When it was used last."""
        return kept.last[store][model].at


@dataclass(frozen=True)
class Frequency(_Plain):
    """The least frequently used goes first. What was evicted keeps its count."""

    def of(self, world: World, kept: Kept, store: int, model: int) -> float:
        """How many of its requests ran."""
        return kept.uses[model]


@dataclass(frozen=True)
class Chance(_Plain):
    """Any may go."""

    def of(self, world: World, kept: Kept, store: int, model: int) -> float:
        """Drawn anew for each eviction."""
        return world.draw(kept.evictions, _DRAWS + model)


@dataclass(frozen=True)
class NextUse:
    """What is asked for latest goes first. (Belady: A study of replacement algorithms for a
    virtual-storage computer, IBM Systems Journal 1966.) This is best where all models are of one
    size. It must know the future."""

    def begin(self, world: World) -> None:
        """Raises BadInput where it does not know the future."""
        if world.stores and world.future is None:
            raise BadInput(
                "it does not know which requests will come",
                where="cache.clairvoyant",
                mend="use it in `ganger requests simulate`",
            )

    def of(self, world: World, kept: Kept, store: int, model: int) -> float:
        """How soon it is asked for again."""
        return -int(world.future.after(model, world.now))


@dataclass(frozen=True)
class Residency:
    """A cache of models in the memory of every device."""

    worth: Worth

    def begin(self, world: World) -> Kept | None:
        """What is resident was never used; None where memory is not watched."""
        self.worth.begin(world)
        if not world.stores:
            return None
        last = [
            {model: Use(at, 0.0) for model, at in store.resident.items()} for store in world.stores
        ]
        return Kept(last, [0] * len(world.models), [0.0] * len(world.stores))

    def used(self, world: World, kept: Kept, store: int, model: int, requests: int) -> None:
        """So many requests run together."""
        kept.last[store][model] = Use(world.now, kept.floor[store])
        kept.uses[model] += requests

    def load(
        self,
        world: World,
        kept: Kept,
        lane: Lane,
        model: int,
        key: int,
        waits: Mapping[int, int],
        given: Sequence[Do],
    ) -> list[Do]:
        """Evict until a model fits, and load it on a lane that copies; none if too much must stay.

        What runs stays, also what was `given` in this instant; so does what requests wait for that
        do not go after `key` (`waits`: by model, the key of the first). What later requests wait
        for goes only if nothing else is enough.
        """
        store = world.stores[lane.store]
        runs = running(world, store, given)
        able = [
            each
            for each in store.resident
            if each not in runs and (each not in waits or waits[each] > key)
        ]
        able.sort(
            key=lambda each: (each in waits, self.worth.of(world, kept, store.number, each), each)
        )
        room, gone = store.capacity - store.used, list[int]()
        for each in able:
            if room >= world.models[model].bytes:
                break
            room += world.models[each].bytes
            gone.append(each)
        if room < world.models[model].bytes:
            return []
        for each in gone:
            kept.floor[store.number] = self.worth.of(world, kept, store.number, each)
            del kept.last[store.number][each]
        kept.evictions += bool(gone)
        self.used(world, kept, store.number, model, 0)
        return [*(Evict(store.number, each) for each in gone), Load(lane.number, model)]


def running(world: World, store: Store, given: Sequence[Do]) -> set[int]:
    """The models in a store that run, or that were ordered to in this instant."""
    batches = [
        each
        for each in given
        if isinstance(each, Batch) and world.lanes[each.lane].store == store.number
    ]
    for lane in world.lanes:
        if lane.store == store.number:
            batches += [each for each in (lane.running, *lane.queued) if isinstance(each, Batch)]
    return {part.model for batch in batches for part in batch.parts}
