"""Days of requests on as many small fleets, each with some of everything that requests can ask for.

What is drawn comes from `random.Random(seed).random()`, which is the same on every Python.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from msgspec.structs import replace

from ganger.core.serving.router import Abilities
from ganger.core.serving.world import Known, Lane, Latencies, Pipeline, Store
from ganger.sim.requests.trouble import Change
from serving.rig import (
    MS,
    Asked,
    affine,
    lanes,
    model,
    pipeline,
    placed,
    recorded,
    scored,
    speaker,
    table,
)


@dataclass
class Day:
    """A fleet, the requests that come to it, and how its devices behave."""

    models: list[Known]
    lanes: Callable[[int], list[Lane]]
    """By how many of them share a device."""
    asked: list[Asked]
    stores: list[Store] = field(default_factory=list)
    families: Sequence[tuple[str, tuple[int, ...]]] = ()
    pipelines: Sequence[Pipeline] = ()
    says: Sequence[Sequence[int] | None] = ()
    scores: Sequence[Sequence[Sequence[float]] | None] = ()
    changes: list[Change] = field(default_factory=list)
    sums: Mapping[int, Callable[[Sequence[int]], Sequence[float]]] = field(default_factory=dict)


class Dice:
    """A stream of draws."""

    def __init__(self, seed: int) -> None:
        self.next = random.Random(seed).random

    def of(self, *choices: float) -> float:
        """One of them."""
        return choices[int(self.next() * len(choices))]

    def count(self, least: int, most: int) -> int:
        """A whole number, both ends included."""
        return least + int(self.next() * (most - least + 1))


MODELS = [
    model("a", table(5, 7, 8, 12, 13, 14, p99=1.3), bytes_=40, load=3, beside=(1.2, 1.7)),
    model("b", table(9, 9.5, 11, p99=1.1), bytes_=50, load=20, beside=(1.5,)),
    model("c", table(1, 2, p99=2), bytes_=30, load=0.5, beside=(1.1, 1.1, 3)),
]
SLACK = (4.0, 12.0, 30.0, 60.0, 200.0)


def requests(
    dice: Dice,
    count: int,
    every: float,
    models: int,
    slack: Sequence[float] = SLACK,
    items: Sequence[int] = (1, 1, 1, 2),
) -> list[Asked]:
    """As many requests, so many milliseconds apart on average; a third of them come in bursts."""
    found: list[Asked] = []
    at = 0.0
    for _ in range(count):
        at += 0.0 if dice.next() < 0.35 else round(dice.next() * every * 3, 3)
        found.append(
            Asked(
                at,
                dice.count(0, models - 1),
                dice.of(*slack),
                int(dice.of(*items)),
                dice.count(-1, 9),
                dice.count(-1, 3),
                dice.count(0, 3),
            )
        )
    return found


def alike(count: int) -> Callable[[int], list[Lane]]:
    """Devices of one type."""
    return lambda streams: [
        replace(lane, device=lane.number // streams) for lane in lanes(count * streams)
    ]


def crowd() -> Day:
    """More than three devices can do in time."""
    return Day(MODELS, alike(3), requests(Dice(1), 140, 1.3, 3))


def calm() -> Day:
    """One input each, with time to wait for others; the first lane asks for more ahead."""

    def some(streams: int) -> list[Lane]:
        found = alike(3)(streams)
        found[0].ahead = 2 * MS
        return found

    asked = requests(Dice(2), 110, 4.0, 3, (12.0, 30.0, 200.0, 1e9), (1,))
    return Day(MODELS, some, asked)


def kinds() -> Day:
    """Two types of device; one model runs on the second alone, which is down for a while. Two
    lanes ask for more ahead."""
    quick: dict[tuple[str, float], Latencies] = {
        ("gpu", 1.0): affine(5, 1, 8, p99=1.2), ("old", 1.0): affine(11, 3, 6, p99=1.5),
    }  # fmt: skip
    models = [Known("both", quick), model("one", affine(3, 2, 5)), model("old", table(7, 9, 10),
              type_="old")]  # fmt: skip

    def some(streams: int) -> list[Lane]:
        found = [
            Lane(at, "gpu" if at < 2 * streams else "old", device=at // streams)
            for at in range(4 * streams)
        ]
        found[0].ahead = found[-1].ahead = 2 * MS
        return found

    asked = requests(Dice(3), 120, 2.5, 3, (15.0, 40.0, 90.0, 300.0))
    changes = [Change(90 * MS, 2, False), Change(100 * MS, 3, False), Change(140 * MS, 3, True),
               Change(150 * MS, 2, True)]  # fmt: skip
    return Day(models, some, asked, changes=changes)


def minute() -> Day:
    """Half a minute in which the load rises and falls twice."""
    dice, asked, at = Dice(4), list[Asked](), 0.0
    while at < 26_000:
        busy = (at // 6500) % 2 == 1
        at += dice.next() * (24 if busy else 150)
        asked.append(Asked(round(at, 3), int(dice.of(0, 0, 1)), dice.of(90.0, 250.0)))
    models = [
        model("x", affine(30, 5, 12, p99=1.4), load=900),
        model("y", affine(20, 9, 8), load=10),
    ]
    return Day(models, alike(3), asked)


def families() -> Day:
    """Requests name families whose models differ in accuracy; some inputs come again."""
    says = [[0, 1, 2, 3, 0, 1, 2, 3, 0, 1], [0, 1, 2, 2, 2, 1, 1, 3, 0, 1], [3] * 10]
    sure = [[2.0] * 10, [1.0, 1, 1, 0, 0, 1, 0, 1, 1, 1], [0.1, 0, 0, 2, 0, 0, 0, 2, 0, 0]]
    scores = [scored(*each) for each in zip(says, sure, strict=True)]
    of = [
        recorded(said * 150, says[0] * 150, table * 150)
        for said, table in zip(says, scores, strict=True)
    ]
    models = [
        replace(MODELS[at], accuracy=accuracy, recorded=of[at])
        for at, accuracy in enumerate((0.7, 0.93, 0.55))
    ]
    asked = requests(Dice(5), 130, 3.0, 5, (9.0, 25.0, 80.0, 400.0))
    groups = [("ab", (0, 1)), ("abc", (0, 1, 2))]
    return Day(models, alike(3), asked, families=groups, says=says, scores=scores)


def pipelines() -> Day:
    """Requests for models, for a tree of stages and for one that joins again."""
    tree = pipeline("tree", [0, 1, 2], (0, 1, 1.5), (0, 2, 0.4))
    join = pipeline("join", [2, 0, 1, 2], (0, 1, 2.0), (0, 2, 0.5), (1, 3, 1.4), (2, 3, 0.7))
    asked = requests(Dice(6), 80, 4.0, 5, (20.0, 60.0, 200.0))
    return Day(MODELS, alike(4), asked, pipelines=[tree, join])


def tokens() -> Day:
    """Token models, with little cache for what they keep of sequences."""
    dice = Dice(7)
    models = [
        speaker("a", prefill=(2.1, 0.3, 0.01), decode=((2, 1.5, 0.2, 0.05), (1e9, 1.1, 0.4, 0.03))),
        speaker("b", prefill=(1.0, 0.5, 0.0), decode=((1e9, 2.5, 0.1, 0.02),), cache_bytes=2),
        model("c", table(3, 4, 5)),
    ]
    asked = [
        one._replace(items=1, prompt=dice.count(1, 9), output=dice.count(1, 7))
        for one in requests(dice, 120, 3.0, 3, (20.0, 90.0, 1e4))
    ]
    return Day(models, lambda streams: lanes(3, cache=36), asked)


def lost() -> Day:
    """The same, and devices fail with what they keep."""
    day = tokens()
    day.changes = [
        Change(40 * MS, 0, False), Change(61 * MS, 1, False), Change(70 * MS, 0, True),
        Change(95 * MS, 2, False), Change(96 * MS, 1, True), Change(150 * MS, 2, True),
        Change(180 * MS, 0, False), Change(200 * MS, 1, False), Change(220 * MS, 2, False),
        Change(230 * MS, 1, True), Change(260 * MS, 0, True), Change(270 * MS, 2, True),
    ]  # fmt: skip
    return day


def memory() -> Day:
    """Models are loaded; not all of them fit."""
    dice = Dice(8)
    models = [*MODELS, model("d", table(2, 3, 4, 5), bytes_=25, load=6)]
    asked = requests(dice, 130, 3.0, 4, (15.0, 60.0, 150.0, 1e4))
    return Day(models, lambda streams: placed(2), asked, [Store(at, 95) for at in range(2)])


def trouble() -> Day:
    """Devices fail, come back, and are slow for a while."""
    changes = [
        Change(20 * MS, 0, False), Change(31 * MS, 1, None, 3.0), Change(47 * MS, 2, False),
        Change(60 * MS, 0, True), Change(75 * MS, 0, False), Change(75 * MS, 1, False),
        Change(90 * MS, 1, True), Change(90 * MS, 1, None, 1.0), Change(120 * MS, 0, True),
        Change(130 * MS, 2, True), Change(151 * MS, 1, False), Change(170 * MS, 1, True),
    ]  # fmt: skip
    return Day(MODELS, alike(3), requests(Dice(9), 110, 2.5, 3), changes=changes)


def forgotten() -> Day:
    """Models are loaded into devices that fail."""
    changes = [
        Change(25 * MS, 0, False), Change(55 * MS, 0, True), Change(70 * MS, 1, False),
        Change(100 * MS, 1, True), Change(140 * MS, 0, False), Change(145 * MS, 0, True),
    ]  # fmt: skip
    asked = requests(Dice(10), 80, 5.0, 3, (40.0, 150.0, 1e4))
    stores = [Store(at, 95) for at in range(2)]
    return Day(MODELS, lambda streams: placed(2), asked, stores, changes=changes)


def large() -> Day:
    """Requests of many inputs, some of more than a batch can hold."""
    asked = requests(Dice(11), 60, 9.0, 2, (30.0, 120.0, 1e9), (1, 2, 5, 9, 14))
    return Day(MODELS, alike(2), asked)


def segments() -> Day:
    """Models that can be cut and need only parts of a device; one device fails."""
    models = [
        replace(model, borders=borders, peaks={("gpu", 1.0): peak})
        for model, borders, peak in zip(
            MODELS, ((0.2, 0.5, 0.8), (0.1, 0.3, 0.5, 0.7, 0.9), ()), (0.7, 0.4, 0.3), strict=True
        )
    ]
    changes = [Change(60 * MS, 0, False), Change(90 * MS, 0, True), Change(130 * MS, 1, False),
               Change(150 * MS, 1, True)]  # fmt: skip
    return Day(models, alike(2), requests(Dice(12), 120, 3.0, 3), changes=changes)


def parity() -> Day:
    """A model, its parity model and another; devices are slow for a while, and fail."""
    says = [[0, 1, 2, 3, 0, 1, 2, 3, 0, 1], None, [1] * 10]
    values = [[float(2 * (each == of) + at % 3) for of in range(4)] for at, each in
              enumerate([0, 1, 2, 3, 0, 1, 2, 3, 0, 1])]  # fmt: skip

    def added(inputs: Sequence[int]) -> list[float]:
        rows = [values[each % 10] for each in inputs]
        return [sum(column) + 0.3 * at for at, column in enumerate(zip(*rows, strict=True))]

    models = [MODELS[0], replace(MODELS[0], name="p", parity_of="a", parity_k=2), MODELS[2]]
    asked = [one._replace(model=one.model * 2) for one in requests(Dice(13), 140, 3.0, 2)]
    changes = [Change(20 * MS, 1, None, 6.0), Change(100 * MS, 1, None, 1.0),
               Change(140 * MS, 0, False), Change(160 * MS, 3, False), Change(180 * MS, 0, True),
               Change(200 * MS, 3, True)]  # fmt: skip
    return Day(models, alike(4), asked, says=says, scores=[values, None, None], changes=changes,
               sums={1: added})  # fmt: skip


DAYS: dict[str, tuple[Callable[[], Day], Callable[[Abilities], bool]]] = {
    "crowd": (crowd, lambda can: True),
    "calm": (calm, lambda can: True),
    "kinds": (kinds, lambda can: True),
    "minute": (minute, lambda can: not can.loads or not can.foresees),
    "families": (families, lambda can: can.chooses),
    "pipelines": (pipelines, lambda can: can.pipelines),
    "tokens": (tokens, lambda can: can.streams == 1),
    "lost": (lost, lambda can: can.streams == 1),
    "memory": (memory, lambda can: can.loads),
    "trouble": (trouble, lambda can: True),
    "forgotten": (forgotten, lambda can: can.loads),
    "large": (large, lambda can: can.divides),
    "segments": (segments, lambda can: can.cuts),
    "parity": (parity, lambda can: can.weighs),
}
"""By name: the day, and which routers can live it."""
