"""Pages of recipes over requests: each with its batches of one small example, drawn on lanes."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from html import escape
from typing import Final

from ganger.core.errors import BadInput
from ganger.core.serving.verbs import Batch, Load
from ganger.core.serving.world import ANSWERED, Known, Lane, Latencies, World
from ganger.lab.report.drawing import COLOURS
from ganger.lab.serving.fleet import Fleet
from ganger.lab.serving.yardsticks.future import Future
from ganger.recipes.registry import Recipe, make_router
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
DRAWN: Final = {"dybatch": "dybatch(slice=2)"}
"""What stands for a recipe whose default shows nothing here."""
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
    lanes, _ = FLEET.lanes(None, router.can.streams)
    world, watch = World(known, lanes), _Watch()
    codes = {name: at for at, (name, *_) in enumerate(MODELS)}
    rows = sorted(ARRIVALS, key=lambda row: row[0])
    columns = {
        "arrival": [round(at * _MS) for at, *_ in rows],
        "model": [codes[model] for _, model, *_ in rows],
        "deadline": [round((at + within) * _MS) for at, _, within, _ in rows],
        "items": [items for *_, items in rows],
    }
    if router.can.foresees:
        world.future = Future.of(iter([columns]))
    plane = Plane(world, router, Physics(known, noise=0), iter([columns]), [watch])
    plane.advance()
    plane.finish()
    return Served(
        sorted(watch.batches, key=lambda ran: (ran.began, ran.lane)),
        [lane.device for lane in lanes],
        watch.requests,
    )


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
        parts.append(_label(f"asks for {name}", TOP + ROW * model))
    parts += [_mark(one, scale) for one in served.requests]
    for lane, device in enumerate(served.lanes):
        several = len(served.lanes) > FLEET.size
        name = f"T4 {device}" + (f", {lane % (len(served.lanes) // FLEET.size)}" if several else "")
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
    count = len(served.requests)
    sizes = [ran.size for ran in served.batches]
    said = f" This is `{DRAWN[recipe.name]}`." if recipe.name in DRAWN else ""
    models = " and ".join(f"{name} ({base} + {each} n ms)" for name, base, each, _ in MODELS)
    return (
        f"## On a small example\n\n![Which batch ran where and when]({recipe.name}.svg)\n\n"
        f"{count} requests to two models, {models}, on two devices. A dot is a request when it"
        " came, a ring one that was answered late, a cross one that was dropped. Below, each box is"
        f" a batch with the number of its inputs. One request brings 6 inputs.{said}"
        f" {served.in_time} of {count} are in time, {served.dropped} dropped; {len(sizes)} batches"
        f" of {sum(sizes) / len(sizes):.1f} inputs on average."
    )
