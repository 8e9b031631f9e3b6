"""Pages of recipes for services: each with its replicas, drawn over the load of a small example."""

from __future__ import annotations

from functools import cache
from typing import Final

import numpy as np

from ganger.core.spec import ClusterSpec, JobSpec, Kind, NodeSpec, Role, Shape
from ganger.core.state.jobs import declare
from ganger.core.units import MINUTE, SECOND
from ganger.lab.report.drawing import COLOURS
from ganger.lab.result import Run
from ganger.lab.serving.hosting import Traffic
from ganger.lab.simulating.setup import Setup
from ganger.lab.simulation import run_one
from ganger.recipes.registry import Recipe
from ganger.workloads.models.profiles import Latency, Model, Models
from ganger.workloads.requests.processes import spike
from ganger.workloads.requests.synthetic import Mix, generated
from ganger.workloads.trace import Trace

SERVICE, MOST, MINUTES = "web", 4, 16
EACH: Final = 10
"""Requests a second that a replica answers, one at a time."""
_CALM, _BUSY, _FROM, _LASTS = 4.0, 26.0, 180.0, 300.0
WINDOW: Final = 15 * SECOND
ROUTERS: Final = {"scale.asked": "swayam"}
"""The router of a recipe that goes by what its router asks for; others have `serve.no-batch`."""
WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 760, 210, 46, 10, 24, 150
"""Pixels: of the picture, to both sides, above the load, and where its axis is."""
_LOST: Final = 40
"""Pixels below it, for what was late or dropped."""


def _traffic(router: str) -> Traffic:
    batch = np.arange(1, 2)
    took = Latency("T4", 1.0, batch, batch / EACH, batch / EACH * 1.2)
    model = Model("m", bytes=1 << 20, load={"host": 8.0}, latency=(took,))
    made = generated(
        spike(_CALM, _BUSY, _FROM, _LASTS),
        seed=1,
        duration=60.0 * MINUTES - 30,
        mix=Mix(names=("m",), slo=SECOND),
    )
    return Traffic(made, Models({"m": model}, {"T4": 0}), router)


@cache
def scaled(name: str) -> Run:
    """What the recipe does with the example."""
    shape = Shape((Role(size=1, least=1, most=MOST),))
    service = JobSpec(name=SERVICE, kind=Kind.SERVE, model="m", shape=shape)
    trace = Trace(declare([service]), np.full(1, MINUTES * MINUTE, np.int64), name="the example")
    cluster = ClusterSpec((NodeSpec(gpus=MOST, gpu_type="T4"),))
    traffic = _traffic(ROUTERS.get(name, "serve.no-batch"))
    return run_one(trace, cluster, "fifo", Setup(serving=name, traffic=traffic, window=WINDOW))


def chart(run: Run) -> str:
    """An SVG picture: what came (grey), what the replicas can answer (a line), and below the axis
    what was late or dropped (red), all in requests a second, by window."""
    series = run.service_windows[SERVICE]
    width = (WIDTH - LEFT - RIGHT) / (60.0 * MINUTES)
    scale = (BOTTOM - TOP) / (EACH * MOST)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}"'
        f' viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="11">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>',
    ]
    for minute in range(0, MINUTES + 1, 4):
        x = LEFT + 60 * minute * width
        anchor = "end" if minute == MINUTES else "middle"
        parts.append(
            f'<line x1="{x:.1f}" y1="{TOP}" x2="{x:.1f}" y2="{BOTTOM + _LOST}" stroke="#dddddd"/>'
            f'<text x="{x:.1f}" y="{TOP - 8}" text-anchor="{anchor}" fill="#555555">'
            f"{minute} min</text>"
        )
    for replicas in range(MOST + 1):
        y = BOTTOM - EACH * replicas * scale
        parts.append(
            f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end" fill="#222222">'
            f"{EACH * replicas}</text>"
        )
    line = []
    for at, (begin, long) in enumerate(_spans(series)):
        x = LEFT + begin * width
        came, lost = ((series[name][at] or 0.0) / long for name in ("arrivals", "dropped"))
        lost += (series["late"][at] or 0.0) / long
        parts.append(_bar(x, BOTTOM - came * scale, long * width, came * scale, "#cfd6dd", "came"))
        if lost:
            down = min(lost * scale, _LOST)
            parts.append(_bar(x, BOTTOM, long * width, down, COLOURS[1], "late or dropped"))
        y = BOTTOM - EACH * (series["replicas"][at] or 0.0) * scale
        line += [f"{x:.1f} {y:.1f}", f"{x + long * width:.1f} {y:.1f}"]
    parts.append(
        f'<path d="M{"L".join(line)}" fill="none" stroke="{COLOURS[0]}" stroke-width="2">'
        "<title>replicas</title></path>"
    )
    return "\n".join([*parts, "</svg>"]) + "\n"


def _spans(series: dict[str, list[float | None]]) -> list[tuple[float, float]]:
    """When each window began, and how long it was, in seconds."""
    pairs = zip(series["since"], series["until"], strict=True)
    return [(since or 0.0, (until or 0.0) - (since or 0.0)) for since, until in pairs]


def _bar(x: float, y: float, width: float, height: float, colour: str, title: str) -> str:
    return (
        f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}"'
        f' fill="{colour}"><title>{title}</title></rect>'
    )


def scaling_example(recipe: Recipe) -> str:
    """What stands on the page of a recipe below its parameters."""
    run = scaled(recipe.name)
    figures = run.services[SERVICE]
    series = run.service_windows[SERVICE]
    longs = [long for _, long in _spans(series)]
    held = sum((each or 0.0) * long for each, long in zip(series["replicas"], longs, strict=True))
    mean = held / sum(longs)
    router = ROUTERS.get(recipe.name, "serve.no-batch")
    return (
        f"## On a small example\n\n![Replicas over load]({recipe.name}.svg)\n\n"
        f"A service of 1 to {MOST} replicas, each of which answers {EACH} requests a second, one at"
        f" a time; a replica loads for 8 s. {_CALM:.0f} requests a second come, {_BUSY:.0f} from"
        f" minute {_FROM / 60:.0f} on for {_LASTS / 60:.0f} minutes; a request has 1 s. The router"
        f" is `{router}`, and a window is {WINDOW // SECOND} s. Grey is what came, the line what"
        " the replicas could answer, red what was late or dropped, all in requests a second."
        f" {figures['attainment']:.1%} of {figures['requests']:,} requests are in time, with"
        f" {mean:.2f} replicas on average."
    )
