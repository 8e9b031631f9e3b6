"""Gantt charts of several runs over one axis of time, as SVG whose right part a script covers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import msgspec
from markupsafe import Markup

from ganger.web.background.playing import Played, Replay

WIDTH: Final = 600
LEFT: Final = 30
COLOURS: Final = 11


@dataclass(frozen=True)
class Gantt:
    """One run's chart, and what a script needs to say how it stands at any time, as JSON."""

    run: Replay
    picture: Markup
    data: str


def gantt(played: Played) -> list[Gantt]:
    """The charts, one for each run."""
    return [
        Gantt(run, _picture(played, run, at), _data(played, run))
        for at, run in enumerate(played.runs)
    ]


def _data(played: Played, run: Replay) -> str:
    data = {
        "arrivals": played.arrivals,
        "gpus": played.gpus,
        "ends": run.ends,
        "segments": [[job, start, end, mask.bit_count(), node]
                     for job, start, end, node, mask in run.segments],
    }  # fmt: skip
    return msgspec.json.encode(data).decode()


def blocks(mask: int) -> list[tuple[int, int]]:
    """Runs of neighbouring GPUs of a mask: the first, and how many."""
    runs, at = list[tuple[int, int]](), 0
    while mask >> at:
        if mask >> at & 1:
            count = 1
            while mask >> (at + count) & 1:
                count += 1
            runs.append((at, count))
            at += count
        else:
            at += 1
    return runs


def _picture(played: Played, run: Replay, number: int) -> Markup:
    """A row for each GPU, a colour for each job."""
    total = sum(played.nodes)
    row = 14 if total <= 16 else 8 if total <= 48 else 4
    scale = (WIDTH - LEFT) / (played.end or 1.0)
    firsts = [sum(played.nodes[:node]) for node in range(len(played.nodes))]
    parts = [
        Markup('<text x="0" y="{}">{}</text><line x1="{}" x2="{}" y1="{}" y2="{}"/>').format(
            first * row + 11, node, LEFT, WIDTH, first * row, first * row
        )
        for node, first in enumerate(firsts)
    ]
    bars = []
    for job, start, end, node, mask in run.segments:
        for gpu, count in blocks(mask):
            bars.append(
                Markup(
                    '<rect class="c{}" x="{:.1f}" y="{}" width="{:.1f}" height="{}">'
                    "<title>{}</title></rect>"
                ).format(
                    job % COLOURS,
                    LEFT + start * scale,
                    (firsts[node] + gpu) * row + 0.5,
                    max((end - start) * scale, 0.6),
                    count * row - 1,
                    played.names[job],
                )
            )
    high = total * row
    clip = Markup(
        '<clipPath id="clip-{0}"><rect class="reveal" x="{1}" y="0" width="{2}" height="{3}"/>'
        '</clipPath><g clip-path="url(#clip-{0})">{4}</g>'
        '<line class="now" x1="{5}" x2="{5}" y1="0" y2="{3}"/>'
    ).format(number, LEFT, WIDTH - LEFT, high, Markup().join(bars), WIDTH)
    return Markup(
        '<svg class="gantt" viewBox="0 0 {} {}" role="img" data-left="{}" data-width="{}"'
        ' aria-label="Which job held which GPU when, under {}; the table has figures">{}{}</svg>'
    ).format(WIDTH, high, LEFT, WIDTH - LEFT, run.recipe, Markup().join(parts), clip)
