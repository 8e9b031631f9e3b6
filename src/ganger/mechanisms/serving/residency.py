"""Which models stay in a device's memory: a cache of models, where not all of them fit.

A request for a model that is there is a hit. For another one, models go until it fits, it is
loaded, and then it runs; what is there runs meanwhile. (Gilman et al.: Challenges and Opportunities
of DNN Model Execution Caching, DIDL 2019.) Caches differ in what they think a model is worth.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from msgspec import Struct

from ganger.core.errors import BadInput
from ganger.core.serving.verbs import Batch, Do, Evict, Load
from ganger.core.serving.world import Lane, Store, World
from ganger.solve.knapsack import knapsack

_UNITS = 1024
"""Free memory is divided into so many parts, in which models are packed."""
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
    """By store: the most that anything evicted was worth. A worth that begins with it ages."""
    evictions: int = 0
    loads: int = 0
    tried: dict[int, tuple[int, int]] = {}
    """By store: `used` and `loads` when nothing was worth loading ahead of requests."""


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
class LoadTime(_Plain):
    """What is used seldom, loads quickly or takes much room goes first, and so does what was last
    used long ago: greedy dual size frequency. (Cherkasova: Improving WWW Proxies Performance with
    Greedy-Dual-Size-Frequency Caching Policy, HP Labs 1998.) What was evicted keeps its count."""

    def of(self, world: World, kept: Kept, store: int, model: int) -> float:
        """The floor at its last use, and its uses by the time that each byte of it loads."""
        known = world.models[model]
        each = known.load / max(known.bytes, 1)
        return kept.last[store][model].floor + kept.uses[model] * each


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
    """A cache of models in the memory of every device. `ahead`: room that is free is filled before
    requests ask for it."""

    worth: Worth
    ahead: bool = False

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
            worth = self.worth.of(world, kept, store.number, each)
            kept.floor[store.number] = max(kept.floor[store.number], worth)
            del kept.last[store.number][each]
        kept.evictions += bool(gone)
        kept.loads += 1
        self.used(world, kept, store.number, model, 0)
        return [*(Evict(store.number, each) for each in gone), Load(lane.number, model)]

    def fill(
        self,
        world: World,
        kept: Kept,
        lane: Lane,
        waits: Collection[int],
        others: Sequence[Store],
        coming: set[tuple[int, int]],
    ) -> list[Load]:
        """Where nothing `waits` for a model that is absent, the first of those that fit together
        into what is free and save most time of loading, by the requests that each had so far. None
        that lies in `others` or is `coming` there."""
        store = world.stores[lane.store]
        if not self.ahead or any(model not in store.resident for model in waits):
            return []
        state = store.used, kept.loads
        if kept.tried.get(store.number) == state:
            return []
        free = store.capacity - store.used
        up = [
            each
            for each in world.lanes
            if each.store == store.number and not each.copies and not each.down
        ]
        if not up:
            return []
        near = {model for _, model in coming}.union(*(other.resident for other in others))
        near = near.union(*(other.loading for other in others))
        some = [
            model
            for model, known in enumerate(world.models)
            if kept.uses[model]
            and known.bytes <= free
            and model not in near
            and any(world.latencies(model, each) is not None for each in up)
        ]
        unit = max(-(-free // _UNITS), 1)
        picked = knapsack(
            [float(kept.uses[model] * world.models[model].load) for model in some],
            [-(-world.models[model].bytes // unit) for model in some],
            free // unit,
        )
        if not picked:
            kept.tried[store.number] = state
            return []
        model = max((some[at] for at in picked), key=lambda each: (kept.uses[each], -each))
        coming.add((store.number, model))
        kept.loads += 1
        self.used(world, kept, store.number, model, 0)
        return [Load(lane.number, model)]


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
