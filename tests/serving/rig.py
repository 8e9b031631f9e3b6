"""Small worlds of models and lanes, and a watch that lets no rule of the plane be broken."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from hypothesis import strategies as st

from ganger.core.serving.router import Router
from ganger.core.serving.tokens import Times
from ganger.core.serving.verbs import OK, Batch, Do, Ended, Load, News
from ganger.core.serving.world import (
    ANSWERED,
    Known,
    Lane,
    Latencies,
    Pipeline,
    Recorded,
    Stage,
    Store,
    World,
)
from ganger.core.units import NEVER
from ganger.lab.serving.yardsticks.future import Future
from ganger.sim.requests.outputs import Outputs
from ganger.sim.requests.physics import Physics
from ganger.sim.requests.plane import KEEP, Plane
from ganger.sim.requests.trouble import Change, drive

MS = 1000


def table(*milliseconds: float, p99: float = 1.0) -> Latencies:
    """What batches of 1, 2, ... take."""
    mean = [0, *(round(each * MS) for each in milliseconds)]
    return Latencies(mean, [round(each * p99) for each in mean])


def affine(base: float, each: float, largest: int = 32, p99: float = 1.0) -> Latencies:
    """`base` + `each` n milliseconds."""
    return table(*(base + each * n for n in range(1, largest + 1)), p99=p99)


def model(
    name: str,
    latencies: Latencies,
    *,
    bytes_: int = 0,
    load: float = 0.0,
    borders: Sequence[float] = (),
    type_: str = "gpu",
    beside: Sequence[float] = (),
) -> Known:
    """A model on the one type of device; `load` in milliseconds."""
    return Known(
        name,
        {(type_, 1.0): latencies},
        bytes_,
        round(load * MS),
        1.0,
        tuple(borders),
        {(type_, 1.0): tuple(beside)} if beside else {},
    )


def speaker(
    name: str,
    *,
    prefill: tuple[float, float, float] = (10, 1, 0),
    decode: Sequence[tuple[float, float, float, float]] = ((1e9, 5, 1, 0),),
    largest: int = 4,
    cache_bytes: int = 1,
) -> Known:
    """A token model on the one type of device, in milliseconds: `prefill` as base, for each token,
    for each squared; `decode` as largest batch, base, for each sequence, for each token behind."""
    steps = tuple((most, *(each * MS for each in rest)) for most, *rest in decode)
    times = Times(tuple(each * MS for each in prefill), steps)  # type: ignore[arg-type]
    whole = [0, *(round(times.whole([4] * n, 4)) for n in range(1, largest + 1))]
    return Known(
        name,
        {("gpu", 1.0): Latencies(whole, whole)},
        tokens={"gpu": times},
        cache_bytes=cache_bytes,
    )


def scored(said: Sequence[int], sure: Sequence[float], classes: int = 4) -> list[list[float]]:
    """Scores of which that of the class that is said is so much above all others."""
    return [
        [by * (each == one) for each in range(classes)] for one, by in zip(said, sure, strict=True)
    ]


def recorded(
    said: Sequence[int], labels: Sequence[int], scores: Sequence[Sequence[float]] | None = None
) -> Recorded:
    """What a model said of a labelled data set."""
    return Recorded(
        np.array(said), np.array(labels), None if scores is None else np.array(scores, float)
    )


def lanes(count: int, **given: Any) -> list[Lane]:
    """Lanes of one type, each on a device of its own."""
    return [Lane(at, "gpu", device=at, **given) for at in range(count)]


def placed(count: int) -> list[Lane]:
    """Devices with a store each: a lane that runs, and one that copies."""
    both = [*lanes(count), *lanes(count, copies=True)]
    for at, lane in enumerate(both):
        lane.number, lane.store = at, at % count
    return both


def pipeline(name: str, models: Sequence[int], *edges: tuple[int, int, float]) -> Pipeline:
    """Stages by their models, and (from, to, items for each)."""
    return Pipeline(
        name,
        tuple(
            Stage(
                f"{name}-{at}",
                which,
                tuple((to, items) for source, to, items in edges if source == at),
                sum(to == at for _, to, _ in edges),
            )
            for at, which in enumerate(models)
        ),
    )


class Asked(NamedTuple):
    """A request: milliseconds."""

    at: float
    model: int = 0
    within: float = 1e9
    items: int = 1
    input: int = -1
    label: int = -1
    tenant: int = 0
    prompt: int = 0
    output: int = 0


CODES: dict[str, Any] = {
    "input": st.integers(-1, 9),
    "label": st.integers(-1, 3),
    "tenant": st.integers(0, 3),
    "prompt": st.just(0),
    "output": st.just(0),
}
"""What else a drawn request may state."""


class Ran(NamedTuple):
    """What a lane did, in milliseconds."""

    lane: int
    model: int
    tasks: tuple[int, ...]
    began: float
    ended: float
    outcome: str = OK
    steps: int = 1
    tokens: tuple[int, ...] = ()


class Seen:
    """Watches: no lane runs two things at once, nothing runs that is not resident, memory is never
    exceeded, and every request ends once, not before it could."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.ran_: list[Ran] = []
        self.loads: list[tuple[int, float, float]] = []
        self.free = [0] * len(world.lanes)
        self.outcomes: list[str] = []
        self.ended: list[float] = []
        self.by: list[int] = []
        self.said: list[int] = []
        self.first: list[float] = []
        self.made: list[int] = []

    def ran(self, lane: Lane, order: Batch | Load, began: int, ended: int, outcome: str) -> None:
        assert began >= self.free[lane.number], "a lane runs two things at once"
        assert ended >= began
        self.free[lane.number] = ended
        for each in self.world.lanes:
            assert each.cached >= 0
            assert each.cached <= each.cache or each.cache < 0, "the cache is exceeded"
            assert (
                each.cached
                == sum(
                    have.tokens * have.each
                    for have in self.world.cached.values()
                    if have.lane == each.number
                )
                or each.running
            )
        for store in self.world.stores:
            assert 0 <= store.used <= store.capacity
            there = [*store.resident, *store.loading]
            assert store.used == sum(self.world.models[each].bytes for each in there)
        if isinstance(order, Load):
            self.loads.append((order.model, began / MS, ended / MS))
            return
        assert order.reason
        for part in order.parts:
            assert part.tasks
            assert len(set(part.tasks)) == len(part.tasks)
            self.ran_.append(
                Ran(
                    lane.number,
                    part.model,
                    tuple(part.tasks),
                    began / MS,
                    ended / MS,
                    outcome,
                    order.steps,
                    tuple(part.tokens),
                )
            )

    def settled(self, world: World, count: int) -> None:
        requests = world.requests
        for at in range(count):
            code = requests.outcome[at]
            assert code, "a request was forgotten before it was over"
            assert requests.ended[at] >= requests.arrival[at]
            self.outcomes.append("answered" if code == ANSWERED else world.reasons[code - 2])
            self.ended.append(requests.ended[at] / MS)
            self.by.append(requests.by[at])
            self.said.append(world.said.get(requests.base + at, -1))
            self.made.append(requests.made[at])
            self.first.append(requests.first[at] / MS)
            if requests.made[at]:
                assert requests.arrival[at] < requests.first[at] <= requests.ended[at]

    @property
    def batches(self) -> list[Ran]:
        """In the order in which they began."""
        return sorted(self.ran_, key=lambda ran: (ran.began, ran.lane))


def columns(asked: Iterable[Asked]) -> dict[str, list[int]]:
    """As the plane takes them."""
    rows = sorted(asked, key=lambda one: one.at)
    return {
        "arrival": [round(one.at * MS) for one in rows],
        "deadline": [min(round((one.at + one.within) * MS), NEVER) for one in rows],
        "model": [one.model for one in rows],
        "items": [one.items for one in rows],
        "input": [one.input for one in rows],
        "label": [one.label for one in rows],
        "tenant": [one.tenant for one in rows],
        "prompt": [one.prompt for one in rows],
        "output": [one.output for one in rows],
    }


class Stated(Physics):
    """Batches take what was stated, in milliseconds, one after the other."""

    def __init__(self, models: Sequence[Known], takes: Sequence[float]) -> None:
        super().__init__(models)
        self._left = list(takes)

    def micros(self, batch: Batch, lane: Lane, beside: int = 0) -> int:
        return round(self._left.pop(0) * MS)


def play(
    router: Router,
    models: Sequence[Known],
    lanes_: Sequence[Lane],
    asked: Sequence[Asked],
    *,
    stores: Sequence[Store] = (),
    noise: float = 0.0,
    seed: int = 0,
    chunk: int = 1 << 30,
    takes: Sequence[float] = (),
    families: Sequence[tuple[str, tuple[int, ...]]] = (),
    pipelines: Sequence[Pipeline] = (),
    says: Sequence[Sequence[int] | None] = (),
    scores: Sequence[Sequence[Sequence[float]] | None] = (),
    sums: Mapping[int, Callable[[Sequence[int]], Sequence[float]]] = {},
    tenants: Sequence[str] = ("", *"abcdefgh"),
    changes: Sequence[Change] = (),
) -> Seen:
    """Serve all requests; in chunks, rows that are over are forgotten as soon as can be. `takes`:
    milliseconds of the batches one after the other, instead of what the profile says; `says`: by
    model, the class that it gives each input; `scores`: what it gives for every class; `sums`: by
    parity model, what it gives of inputs that are added up; `changes`: of devices."""
    world = World(
        models, lanes_, stores, families=families, pipelines=pipelines, seed=seed, tenants=tenants
    )
    seen = Seen(world)
    rows = sorted(asked, key=lambda one: one.at)
    if router.can.foresees:
        world.future = Future.of(iter([columns(rows)]))
    chunks = (columns(rows[at : at + chunk]) for at in range(0, len(rows), chunk))
    physics = Physics(models, noise=noise, seed=seed)
    if takes:
        physics = Stated(models, takes)
    plane = Plane(
        world,
        router,
        physics,
        chunks,
        [seen],
        keep=min(chunk, KEEP),
        outputs=Outputs(says, scores, sums) if says else None,
    )
    drive(plane, list(changes))
    plane.finish()
    assert len(seen.outcomes) == len(asked)
    assert not world.open
    return seen


class OneByOne:
    """Hands requests to a router one at a time, however they come."""

    def __init__(self, router: Router) -> None:
        self.router = router
        self.name, self.can = router.name, router.can

    def begin(self, world: World) -> Any:
        return self.router.begin(world)

    def arrive(self, world: World, rows: range) -> None:
        for row in rows:
            self.router.arrive(world, range(row, row + 1))

    def next(self, world: World, idle: Sequence[Lane]) -> Sequence[Do]:
        return self.router.next(world, idle)

    def ended(self, world: World, done: Ended) -> Sequence[Do]:
        return self.router.ended(world, done)

    def told(self, world: World, news: News) -> Sequence[Do]:
        return self.router.told(world, news)
