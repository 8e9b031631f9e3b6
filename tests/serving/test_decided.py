"""What every router decided on some days is on record: whoever changes a decision sees which.

A line of `decided.txt` is a router, a day, how many requests were answered, how many of these in
time, the milliseconds until the last was over, and two fingerprints: of the batches, the loads and
how every request ended, and of all orders in full (with their reasons, and when the router wants to
be asked again). To change what a router decides, run
`PYTHONPATH=tests python tests/serving/test_decided.py`, read what that changed in `decided.txt`,
and commit both.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ganger.core.errors import BadInput
from ganger.core.serving.router import Router
from ganger.core.serving.verbs import Do, Ended, News
from ganger.core.serving.world import Lane, World
from ganger.lab.serving.yardsticks.future import Future
from ganger.recipes.registry import make_router, recipes
from ganger.sim.requests.outputs import Outputs
from ganger.sim.requests.physics import Physics
from ganger.sim.requests.plane import Plane
from ganger.sim.requests.trouble import drive
from serving.days import DAYS, Day
from serving.rig import Seen, columns
from soaking import rarely

RECORD = Path(__file__).with_name("decided.txt")
CHUNK = 40
"""Requests come in so many at once, and those that are over are forgotten by as many."""
VARIANTS = [
    "clipper(step=2,back=0.5,rate=0.5,by_tenant=yes)",
    "clipper(sizes=latency_regression)",
    "clipper(selection=exp4,agree=0.6,otherwise=2,keeps=3)",
    "clipper(cache=lfu,keeps=20)",
    "clipper(selection=exp4,rate=0.4,by_tenant=yes)",
    "clockwork(largest=4,longest=9ms,margin=1ms)",
    "clockwork(margin=0)",
    "cocktail(accuracy=0.6,every=1s,least=3,size=2)",
    "cocktail(start=formula,accuracy=0.9)",
    "dybatch(slice=2)",
    "ebird(sizes=4;2,most=5)",
    "ebird(sizes=3;1;1,tick=2500us)",
    "gilman(ahead=no)",
    "irina(streams=3,batches=no)",
    "irina(stacks=no,suspend=2ms)",
    "irina(preempts=no)",
    "model-switching(every=40ms,better=0.1,size=3)",
    "nanily(cache=lru)",
    "nexus(epoch=3s,soonest=1s,weight=0.6)",
    "nexus(epoch=2s,soonest=1s,fill=no,profile=1.0)",
    "nexus(epoch=1s,soonest=1s,cycle=execution,segments=7,overload=0.8)",
    "parm(size=3)",
    "serve.bentoml(size=3,latency=20ms)",
    "serve.bentoml(latency=100ms,cache=lru)",
    "serve.clairvoyant(full=0.5)",
    "serve.continuous-batching(max_num_batched_tokens=3,max_num_seqs=2)",
    "serve.continuous-batching(max_num_batched_tokens=5,first=b;a)",
    "serve.dedicated(size=2)",
    "serve.fair(max_num_seqs=3,weights=a:2;b:0.5)",
    "serve.fair(read=0.5,write=3,max_num_batched_tokens=6)",
    "serve.fixed-batch(size=3,timeout=2ms)",
    "serve.fixed-batch(size=4,timeout=15ms,cache=random)",
    "serve.least-loaded(size=4)",
    "serve.least-loaded(size=2,cache=lfu)",
    "serve.no-batch(cache=lru)",
    "serve.power-of-two(size=4)",
    "serve.round-robin(size=3)",
    "serve.triton(size=2,longest=3)",
    "serve.triton(size=4,delay=7ms,preferred=2;3)",
    "serve.triton(delay=20ms,preferred=3,longest=5)",
    "tolerance-tiers(aim=cost,tiers=a:0.3;b:0.1:latency,size=2)",
    "tolerance-tiers(tolerance=0.35,confidence=0.6,samples=50)",
    "swayam(frontends=1,window=1s,windows=2,horizon=100ms,idle=60ms)",
    "swayam(frontends=3,window=1s,horizon=2s,idle=2s,part=0.8,prunes=no)",
]
"""Every parameter away from its default."""


class Noted:
    """A router whose orders are written down."""

    def __init__(self, router: Router) -> None:
        self.router, self.name, self.can = router, router.name, router.can
        self.orders: list[Any] = []

    def _note(self, world: World, orders: Sequence[Do]) -> Sequence[Do]:
        if orders:
            self.orders += [world.now, *([type(each).__name__, each] for each in orders)]
        return orders

    def begin(self, world: World) -> Any:
        return self.router.begin(world)

    def arrive(self, world: World, rows: range) -> None:
        self.router.arrive(world, rows)

    def next(self, world: World, idle: Sequence[Lane]) -> Sequence[Do]:
        return self._note(world, self.router.next(world, idle))

    def ended(self, world: World, done: Ended) -> Sequence[Do]:
        return self._note(world, self.router.ended(world, done))

    def told(self, world: World, news: News) -> Sequence[Do]:
        return self._note(world, self.router.told(world, news))


def cases() -> list[tuple[str, str]]:
    """Each router and each variant, on each day that it can live."""
    found = [*sorted(recipes("requests")), *VARIANTS]
    return [
        (each, day) for each, day in product(found, DAYS) if DAYS[day][1](make_router(each).can)
    ]


def fingerprint(of: Any) -> str:
    """Eight letters that differ where it does."""
    return hashlib.sha256(msgspec.json.encode(of)).hexdigest()[:8]


def decided(recipe: str, day: Day) -> str:
    """What a router did on a day."""
    router = Noted(make_router(recipe))
    world = World(
        day.models,
        day.lanes(router.can.streams),
        day.stores,
        families=day.families,
        pipelines=day.pipelines,
        seed=3,
        tenants=("", *"abc"),
    )
    rows = columns(day.asked)
    if router.can.foresees:
        world.future = Future.of(iter([rows]))
    seen, asked = Seen(world), sorted(day.asked, key=lambda one: one.at)
    chunks = (columns(asked[at : at + CHUNK]) for at in range(0, len(asked), CHUNK))
    try:
        plane = Plane(
            world,
            router,
            Physics(day.models, noise=1.0, seed=3),
            chunks,
            [seen],
            keep=CHUNK,
            outputs=Outputs(day.says, day.scores, day.sums) if day.says else None,
        )
        drive(plane, day.changes)
        plane.finish()
    except BadInput as refused:
        return f"refused: {refused}"
    answered = [at for at, outcome in enumerate(seen.outcomes) if outcome == "answered"]
    in_time = sum(seen.ended[at] * 1000 <= rows["deadline"][at] for at in answered)
    ends = [seen.outcomes, seen.ended, seen.by, seen.said, seen.first, seen.made]
    ways = fingerprint([seen.batches, seen.loads, ends])
    last = max(seen.ended)
    return f"{len(answered)} {in_time} {last:.3f} {ways} {fingerprint(router.orders)}"


@cache
def record() -> dict[tuple[str, str], str]:
    """What is on record."""
    rows = (line.split(maxsplit=2) for line in RECORD.read_text().splitlines())
    return {(recipe, day): rest for recipe, day, rest in rows}


def often() -> list[Any]:
    """All cases; of those with other parameters than the defaults `make test` has every second day,
    which move on from one to the next, and `make soak` the others."""
    days = [*DAYS]
    return [
        rarely((recipe, day))
        if recipe in VARIANTS and (VARIANTS.index(recipe) + days.index(day)) % 2
        else (recipe, day)
        for recipe, day in cases()
    ]


@pytest.mark.parametrize(("recipe", "day"), often())
def test_it_decides_what_is_on_record(recipe: str, day: str) -> None:
    assert decided(recipe, DAYS[day][0]()) == record()[recipe, day]


def test_nothing_else_is_on_record() -> None:
    assert list(record()) == cases()


if __name__ == "__main__":
    lines = (f"{recipe} {day} {decided(recipe, DAYS[day][0]())}\n" for recipe, day in cases())
    RECORD.write_text("".join(lines))
