"""Charts as SVG made here: lines over a common axis, bars with intervals. Beside each stands a
table with the same figures; colours are classes, which light and dark define."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from markupsafe import Markup

WIDTH: Final = 560
HEIGHT: Final = 220
_LEFT, _RIGHT, _TOP, _BOTTOM = 58, 14, 10, 26
COLOURS: Final = 11
_TICKS: Final = 4


@dataclass(frozen=True)
class Line:
    """A line: what it is called, and its points in the order of x."""

    label: str
    points: Sequence[tuple[float, float]]


def _steps(low: float, high: float) -> list[float]:
    """Round values that cover the span."""
    rough = (high - low or 1.0) / _TICKS
    power = 10.0 ** math.floor(math.log10(rough))
    by = next(n * power for n in (1, 2, 5, 10) if n * power >= rough * 0.999)
    first, last = math.floor(low / by + 1e-9), math.ceil(high / by - 1e-9)
    return [by * at for at in range(first, max(last, first + 1) + 1)]


def plain(value: float) -> str:
    """A figure of an axis."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def lines(
    every: Sequence[Line],
    title: str,
    x_text: Callable[[float], str] = plain,
    y_text: Callable[[float], str] = plain,
    *,
    from_zero: bool = False,
) -> Markup:
    """All lines in one picture called `title`; empty where there is no point."""
    points = [point for line in every for point in line.points if all(map(math.isfinite, point))]
    if not points:
        return Markup()
    xs, ys = [x for x, _ in points], [y for _, y in points]
    x0, x1 = min(xs), max(xs)
    ticks = _steps(min(0.0, *ys) if from_zero else min(ys), max(ys))
    y0, y1 = ticks[0], ticks[-1]

    def place(x: float, y: float) -> tuple[float, float]:
        wide, high = WIDTH - _LEFT - _RIGHT, HEIGHT - _TOP - _BOTTOM
        return _LEFT + (x - x0) / (x1 - x0 or 1.0) * wide, _TOP + (y1 - y) / (y1 - y0) * high

    parts = [_grid(place(x0, tick)[1], y_text(tick)) for tick in ticks]
    for x, anchor in ((x0, "start"), (x1, "end")) if x1 > x0 else ((x0, "start"),):
        parts.append(
            Markup('<text x="{:.1f}" y="{}" text-anchor="{}">{}</text>').format(
                place(x, y0)[0], HEIGHT - 8, anchor, x_text(x)
            )
        )
    for at, line in enumerate(every):
        known = [place(x, y) for x, y in line.points if math.isfinite(x) and math.isfinite(y)]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in known)
        colour = f"l{at % COLOURS}"
        label = Markup("<title>{}</title>").format(line.label)
        if len(known) == 1:
            x, y = known[0]
            parts.append(
                Markup('<circle class="{}" cx="{:.1f}" cy="{:.1f}" r="3">{}</circle>').format(
                    colour, x, y, label
                )
            )
        elif known:
            parts.append(
                Markup('<polyline class="{}" points="{}">{}</polyline>').format(
                    colour, Markup(path), label
                )
            )
    return _picture(parts, title, HEIGHT)


def _grid(y: float, text: str) -> Markup:
    return Markup(
        '<line x1="{}" x2="{}" y1="{:.1f}" y2="{:.1f}"/>'
        '<text x="{}" y="{:.1f}" text-anchor="end">{}</text>'
    ).format(_LEFT, WIDTH - _RIGHT, y, y, _LEFT - 8, y + 4, text)


def _picture(parts: Sequence[Markup], title: str, height: float) -> Markup:
    return Markup(
        '<svg class="lines" viewBox="0 0 {} {:g}" role="img" aria-label="{}">{}</svg>'
    ).format(WIDTH, height, title, Markup().join(parts))


@dataclass(frozen=True)
class Bar:
    """A bar: a label, its value, the ends of its interval (None: it has none), and whether it
    stands out."""

    label: str
    value: float
    low: float | None = None
    high: float | None = None
    first: bool = False


_BAR, _LONGEST = 46, 76.0
"""The height of a bar with its name above it, in pixels; how long the longest is, in hundredths of
the width: its value stands beside it."""


def bars(every: Sequence[Bar], title: str, text: Callable[[float], str] = plain) -> Markup:
    """Bars from zero, one below the other, each with its name above it and its value beside it.
    Letters have the same size however wide the chart is shown."""
    known = [bar for bar in every if math.isfinite(bar.value)]
    if not known:
        return Markup()
    longest = max(max(bar.value, bar.high or 0.0) for bar in known) or 1.0
    scale = _LONGEST / longest
    parts = []
    for at, bar in enumerate(known):
        y = at * _BAR
        end = bar.value * scale
        parts.append(
            Markup(
                '<text class="name" x="0" y="{}">{}</text>'
                '<rect class="{}" x="0" y="{}" width="{:.1f}%" height="18" rx="2"/>'
            ).format(y + 14, bar.label, "bar first" if bar.first else "bar", y + 20, max(end, 0.3))
        )
        if bar.low is not None and bar.high is not None:
            low, high = max(bar.low, 0.0) * scale, bar.high * scale
            end = max(end, high)
            whisker = Markup('<line class="whisker" x1="{:.1f}%" y1="{}" x2="{:.1f}%" y2="{}"/>')
            parts += [whisker.format(x, y + 25, x, y + 33) for x in (low, high)]
            parts.append(whisker.format(low, y + 29, high, y + 29))
        parts.append(
            Markup('<text class="name" x="{:.1f}%" dx="8" y="{}">{}</text>').format(
                end, y + 34, text(bar.value)
            )
        )
    return Markup(
        '<svg class="lines bars" width="100%" height="{}" role="img" aria-label="{}">{}</svg>'
    ).format(len(known) * _BAR, title, Markup().join(parts))
