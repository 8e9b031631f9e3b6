"""Pages of recipes over requests: each with its batches of one small example, drawn on lanes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, partial
from html import escape
from typing import Final

import numpy as np
from msgspec.structs import replace

from ganger.core.errors import BadInput
from ganger.core.serving.verbs import Batch, Load
from ganger.core.serving.world import ANSWERED, Known, Lane, Latencies, Recorded, World
from ganger.lab.report.drawing import COLOURS
from ganger.lab.serving.fleet import Fleet
from ganger.lab.serving.yardsticks.future import Future
from ganger.recipes.registry import Recipe, make_router
from ganger.sim.requests.outputs import Outputs
from ganger.sim.requests.physics import Physics
from ganger.sim.requests.plane import Plane

_MS: Final = 1000
FLEET: Final = Fleet((("T4", 2),))
MODELS: Final = (("a", 3, 1, 8), ("b", 6, 2, 8))
"""Name, base and each in milliseconds, largest batch."""
_BESIDE: Final = (1.3, 1.7, 2.2)
ARRIVALS: Final = (
    *((at, "a", 40, 1) for at in (0, 1, 2, 3, 4, 5, 12, 13, 20, 27, 34)),
    *((at, "b", 40, 1) for at in (2, 9, 10, 11, 30)),
    (6, "a", 60, 6),
    (36, "b", 10, 1),
    *((40 + at / 2, "a", 18, 1) for at in range(40)),
    *((42 + 2 * at, "b", 22, 1) for at in range(7)),
)
"""Milliseconds, model, milliseconds until the deadline, inputs: a few at a time, one that brings
six, one that is urgent, and at 40 ms more than the devices can answer."""
HORIZON: Final = 100.0
"""Milliseconds drawn; what is left by then is late."""
DRAWN: Final = {
    "dybatch": "dybatch(slice=2)",
    "tolerance-tiers": "tolerance-tiers(tolerance=0.02,aim=cost)",
}
"""What stands for a recipe whose default shows nothing here."""
ENSEMBLES: Final = ("tolerance-tiers", "cocktail")
"""Recipes in whose example requests for `a` may be answered by `b`, too: they name a family."""
PARITY: Final = "parm"
"""The recipe in whose example `b` is the parity model of `a`, for pairs, and requests ask for `a`
on three devices, of which the first is four times as slow."""
_LABELS: Final = (1, 1, 1, 1, 1, 1, 1)
_SAID: Final = ((1, 0, 1, 1, 0, 1, 1), (1, 1, 1, 1, 1, 1, 1))
_SURE: Final = ((3, 1, 2, 3, 1, 2, 3), (2, 2, 2, 2, 2, 2, 2))
"""By input of the family: its class; and by model what it gives, and how far the score of that is
above the other's."""
_ALIKE: Final = 100
"""Inputs that are like one of them."""
WIDTH, ROW, LEFT, RIGHT, TOP = 760, 22, 66, 10, 24
"""Pixels: of the picture, of a lane's row, to both sides, and above the first row."""


@dataclass(frozen=True)
class Ran:
    """A batch: milliseconds."""

    lane: int
    model: int
    size: int
    began: float
    ended: float
    reason: str


@dataclass(frozen=True)
class Served:
    """What a recipe does with the example: its batches, its lanes (device of each), and of each
    request the model, arrival, deadline and end (milliseconds), and whether it was answered."""

    batches: list[Ran]
    lanes: list[int]
    requests: list[tuple[int, float, float, float, bool]]
    family: bool = False
    """Whether requests for the first model may be answered by the second, too."""
    devices: int = FLEET.size

    @property
    def in_time(self) -> int:
        """How many were answered by their deadline."""
        return sum(answered and end <= due for _, _, due, end, answered in self.requests)

    @property
    def dropped(self) -> int:
        """How many were not answered."""
        return sum(not answered for *_, answered in self.requests)


class _Watch:
    def __init__(self) -> None:
        self.batches: list[Ran] = []
        self.requests: list[tuple[int, float, float, float, bool]] = []

    def ran(self, lane: Lane, order: Batch | Load, began: int, ended: int, outcome: str) -> None:
        if isinstance(order, Batch):
            part = order.parts[0]
            self.batches.append(
                Ran(lane.number, part.model, part.items, began / _MS, ended / _MS, order.reason)
            )

    def settled(self, world: World, count: int) -> None:
        rows = world.requests
        for at in range(count):
            self.requests.append(
                (
                    rows.model[at],
                    rows.arrival[at] / _MS,
                    rows.deadline[at] / _MS,
                    rows.ended[at] / _MS,
                    rows.outcome[at] == ANSWERED,
                )
            )


@cache
def played(name: str) -> Served:
    """What the recipe does with the example; batches take just what was measured."""
    router = make_router(DRAWN.get(name, name))
    known = [_known(*each) for each in MODELS]
    fleet = Fleet((("T4", 3),)) if name == PARITY else FLEET
    lanes, _ = fleet.lanes(None, router.can.streams)
    codes = {name: at for at, (name, *_) in enumerate(MODELS)}
    families, outputs = list[tuple[str, tuple[int, ...]]](), None
    if name in ENSEMBLES:
        families, codes["a"] = [("a or b", (0, 1))], len(MODELS)
        scores = [_scores(*each) for each in zip(_SAID, _SURE, strict=True)]
        known = [
            replace(each, recorded=_recorded(said, of))
            for each, said, of in zip(known, _SAID, scores, strict=True)
        ]
        outputs = Outputs(_SAID, scores)
    if name == PARITY:
        known[1], codes["b"] = replace(known[1], parity_of="a", parity_k=2), 0
        scores = [_scores(*each) for each in zip(_SAID, _SURE, strict=True)]
        outputs = Outputs((_SAID[0], None), (scores[0], None), {1: partial(_added, scores[0])})
    world, watch = World(known, lanes, families=families), _Watch()
    rows = sorted(ARRIVALS, key=lambda row: row[0])
    columns = {
        "arrival": [round(at * _MS) for at, *_ in rows],
        "model": [codes[model] for _, model, *_ in rows],
        "deadline": [round((at + within) * _MS) for at, _, within, _ in rows],
        "items": [items for *_, items in rows],
    }
    if outputs is not None:
        columns["input"] = list(range(len(rows)))
    if router.can.foresees:
        world.future = Future.of(iter([columns]))
    physics = Physics(known, noise=0)
    if name == PARITY:
        physics.pace[0] = 4.0
    plane = Plane(world, router, physics, iter([columns]), [watch], outputs=outputs)
    plane.advance()
    plane.finish()
    return Served(
        sorted(watch.batches, key=lambda ran: (ran.began, ran.lane)),
        [lane.device for lane in lanes],
        [(asks % len(MODELS), at, due, end, ok) for asks, at, due, end, ok in watch.requests],
        bool(families),
        fleet.size,
    )


def _recorded(said: Sequence[int], scores: list[list[float]]) -> Recorded:
    """What the recipe knows of a model's answers: those to a hundred of each of the inputs."""
    return Recorded(np.tile(said, _ALIKE), np.tile(_LABELS, _ALIKE), np.tile(scores, (_ALIKE, 1)))


def _added(scores: Sequence[Sequence[float]], inputs: Sequence[int]) -> list[float]:
    """What a parity model that never errs gives of the sum of some inputs."""
    rows = [scores[each % len(scores)] for each in inputs]
    return [sum(column) for column in zip(*rows, strict=True)]


def _scores(said: Sequence[int], sure: Sequence[int]) -> list[list[float]]:
    """For both classes."""
    return [[float(by * (of == it)) for of in (0, 1)] for it, by in zip(said, sure, strict=True)]


def _known(name: str, base: int, each: int, largest: int) -> Known:
    table = [0, *((base + each * n) * _MS for n in range(1, largest + 1))]
    key = ("T4", 1.0)
    return Known(name, {key: Latencies(table, table)}, beside={key: _BESIDE})


def drawing(served: Served) -> str:
    """An SVG picture: when requests came (a cross: dropped; a ring: late), and below it each lane
    with its batches, a colour for each model and the number of inputs in it."""
    scale = (WIDTH - LEFT - RIGHT) / HORIZON
    first = TOP + ROW * len(MODELS) + 10
    height = first + ROW * len(served.lanes) + 8
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}"'
        f' viewBox="0 0 {WIDTH} {height}" font-family="sans-serif" font-size="11">',
        f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>',
    ]
    for tick in range(0, int(HORIZON) + 1, 20):
        x = LEFT + tick * scale
        anchor = "end" if tick == HORIZON else "middle"
        parts.append(
            f'<line x1="{x:.1f}" y1="{TOP - 4}" x2="{x:.1f}" y2="{height - 4}"'
            f' stroke="#dddddd"/><text x="{x:.1f}" y="{TOP - 8}" text-anchor="{anchor}"'
            f' fill="#555555">{tick} ms</text>'
        )
    for model, (name, *_) in enumerate(MODELS):
        other = " or b" if served.family and not model else ""
        parts.append(_label(f"asks for {name}{other}", TOP + ROW * model))
    parts += [_mark(one, scale) for one in served.requests]
    for lane, device in enumerate(served.lanes):
        several = len(served.lanes) > served.devices
        name = f"T4 {device}" + (
            f", {lane % (len(served.lanes) // served.devices)}" if several else ""
        )
        parts.append(_label(name, first + ROW * lane))
    for ran in served.batches:
        if ran.began < HORIZON:
            parts.append(_box(ran, first, scale))
    return "\n".join([*parts, "</svg>"]) + "\n"


def _label(text: str, y: int) -> str:
    return f'<text x="4" y="{y + 15}" fill="#222222">{text}</text>'


def _mark(one: tuple[int, float, float, float, bool], scale: float) -> str:
    model, at, due, end, answered = one
    x, y = LEFT + at * scale, TOP + ROW * model + ROW / 2
    colour = COLOURS[model]
    if not answered:
        return (
            f'<path d="M{x - 3:.1f} {y - 3:.1f}l6 6m0 -6l-6 6" stroke="{colour}"'
            ' stroke-width="1.6"><title>dropped</title></path>'
        )
    fill, word = (colour, "in time") if end <= due else ("#ffffff", "late")
    return (
        f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{fill}" stroke="{colour}">'
        f"<title>{word}</title></circle>"
    )


def _box(ran: Ran, first: int, scale: float) -> str:
    x, y = LEFT + ran.began * scale, first + ROW * ran.lane
    width = max((min(ran.ended, HORIZON) - ran.began) * scale - 1, 1)
    title = f"{MODELS[ran.model][0]}, {ran.size}: {ran.reason}"
    return (
        f'<rect x="{x:.1f}" y="{y + 1}" width="{width:.1f}" height="{ROW - 3}" rx="2"'
        f' fill="{COLOURS[ran.model]}"><title>{escape(title)}</title></rect>'
        f'<text x="{x + width / 2:.1f}" y="{y + 15}" text-anchor="middle" fill="#ffffff"'
        f' font-weight="bold">{ran.size if width > 8 else ""}</text>'
    )


def drawn(name: str) -> bool:
    """Whether the recipe can serve the example: one that needs other models than these has none."""
    try:
        played(name)
    except BadInput:
        return False
    return True


def example(recipe: Recipe) -> str:
    """What stands on the page of a recipe below its parameters; "" where it has no example."""
    if not drawn(recipe.name):
        return ""
    served = played(recipe.name)
    count, devices = len(served.requests), {2: "two", 3: "three"}[served.devices]
    sizes = [ran.size for ran in served.batches]
    said = f" This is `{DRAWN[recipe.name]}`." if recipe.name in DRAWN else ""
    models = " and ".join(f"{name} ({base} + {each} n ms)" for name, base, each, _ in MODELS)
    if served.family:
        said += (
            " Those that ask for a would take the answer of b, too: they name a family of both. On"
            " 700 labelled inputs of seven kinds, which come again and again, a errs on two kinds,"
            " of which it is the least sure; b errs on none."
        )
    if recipe.name == PARITY:
        said += (
            " Here all requests ask for a, and b is its parity model for pairs. The first"
            " device is four times as slow as the others, the last is kept for b."
        )
    return (
        f"## On a small example\n\n![Which batch ran where and when]({recipe.name}.svg)\n\n"
        f"{count} requests to two models, {models}, on {devices} devices. A dot is a request when"
        " it came, a ring one that was answered late, a cross one that was dropped. Below, each box"
        f" is a batch with the number of its inputs. One request brings 6 inputs.{said}"
        f" {served.in_time} of {count} are in time, {served.dropped} dropped; {len(sizes)} batches"
        f" of {sum(sizes) / len(sizes):.1f} inputs on average."
    )
