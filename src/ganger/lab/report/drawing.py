"""Which jobs ran where and when, drawn as an SVG picture: for small runs, whose segments were
kept."""

from __future__ import annotations

import re
from html import escape
from importlib.resources import files
from typing import Final

from ganger.core.errors import BadInput
from ganger.lab.report.gantt import symbol
from ganger.lab.report.series import blocks
from ganger.lab.result import Run, Segment

COLOURS: Final[tuple[str, ...]] = tuple(
    re.findall(
        r"--s\d+: light-dark\((#\w{6}),",
        files("ganger.lab.report").joinpath("tokens.css").read_text(encoding="utf-8"),
    )
)
"""Those of all pages, as they are on white."""
WIDTH, ROW, TOP, LEFT, RIGHT = 760, 18, 22, 84, 8
"""Pixels: of the picture, of a GPU's row, above the first row, and to both sides."""
TICKS = 6


def draw(run: Run, horizon_seconds: float) -> str:
    """An SVG picture of the jobs that held each GPU, from 0 to `horizon_seconds`: one row per GPU,
    a colour and a symbol per job; below, a line per job from submission to end, thick while it
    holds GPUs.

    The same run gives the same text. Raises BadInput where the run kept no segments.
    """
    if run.segments is None:
        raise BadInput("this run has no record of which job ran where", mend="take a smaller run")
    scale = (WIDTH - LEFT - RIGHT) / horizon_seconds
    lower = TOP + ROW * sum(run.node_gpus) + 6
    height = lower + ROW * len(run.jobs.name) // 2 + 24
    segments = [
        _cut(each, horizon_seconds) for each in run.segments if each.start_seconds < horizon_seconds
    ]
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}"'
        f' viewBox="0 0 {WIDTH} {height}" font-family="sans-serif" font-size="11">',
        f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>',
        *_axis(horizon_seconds, scale, height),
        *_lines(run),
        *(bar for segment in segments for bar in _bars(run, segment, scale)),
        *_lives(run, segments, scale, lower),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _axis(horizon: float, scale: float, height: int) -> list[str]:
    parts = []
    for tick in range(TICKS + 1):
        seconds = horizon * tick / TICKS
        x = LEFT + seconds * scale
        anchor = "end" if tick == TICKS else "middle"
        parts.append(
            f'<line x1="{x:.1f}" y1="{TOP - 4}" x2="{x:.1f}" y2="{height - 4}" stroke="#dddddd"/>'
            f'<text x="{x:.1f}" y="{TOP - 8}" text-anchor="{anchor}" fill="#555555">'
            f"{_clock(seconds)}</text>"
        )
    return parts


def _clock(seconds: float) -> str:
    """Hours and minutes."""
    hours, minutes = divmod(round(seconds / 60), 60)
    return f"{hours}:{minutes:02d}"


def _lines(run: Run) -> list[str]:
    """A label and a line for every GPU, a thicker one between nodes."""
    parts, row = [], 0
    for node, gpus in enumerate(run.node_gpus):
        y = TOP + ROW * row
        parts.append(
            f'<line x1="4" y1="{y}" x2="{WIDTH - RIGHT}" y2="{y}" stroke="#555555"/>'
            f'<text x="4" y="{y + 13}" fill="#222222">node {node}</text>'
        )
        row += gpus
    y = TOP + ROW * row
    parts.append(f'<line x1="4" y1="{y}" x2="{WIDTH - RIGHT}" y2="{y}" stroke="#555555"/>')
    return parts


def _bars(run: Run, segment: Segment, scale: float) -> list[str]:
    """One bar for each run of neighbouring GPUs."""
    first = sum(run.node_gpus[: segment.node])
    x, width = LEFT + segment.start_seconds * scale, _span(segment, scale)
    parts = []
    for gpu, count in blocks(segment):
        y, height = TOP + ROW * (first + gpu), ROW * count
        parts.append(
            f'<rect x="{x:.1f}" y="{y + 1}" width="{width:.1f}" height="{height - 2}"'
            f' fill="{_colour(segment.job)}"><title>{escape(run.jobs.name[segment.job])}</title>'
            "</rect>"
        )
        if width >= 9:
            parts.append(
                f'<text x="{x + width / 2:.1f}" y="{y + height / 2 + 4:.1f}" text-anchor="middle"'
                f' fill="#ffffff" font-weight="bold">{symbol(segment.job)}</text>'
            )
    return parts


def _cut(segment: Segment, horizon: float) -> Segment:
    return segment._replace(end_seconds=min(segment.end_seconds, horizon))


def _lives(run: Run, segments: list[Segment], scale: float, top: int) -> list[str]:
    """Every job's life from submission to end as a line, thick where it holds GPUs."""
    parts = [f'<text x="4" y="{top + 12}" fill="#222222">jobs</text>']
    for job in range(len(run.jobs.name)):
        y = top + ROW * (job + 1) / 2
        ends = [each.end_seconds for each in segments if each.job == job]
        x, end = LEFT + run.jobs.arrival[job] * scale, LEFT + max(ends, default=0.0) * scale
        parts.append(
            f'<line x1="{x:.1f}" y1="{y}" x2="{max(end, x):.1f}" y2="{y}"'
            f' stroke="{_colour(job)}" stroke-dasharray="2 2"/>'
            f'<text x="{x - 3:.1f}" y="{y + 3:.1f}" text-anchor="end" font-size="8"'
            f' fill="#222222">{symbol(job)}</text>'
        )
        for each in segments:
            if each.job == job:
                at = LEFT + each.start_seconds * scale
                parts.append(
                    f'<rect x="{at:.1f}" y="{y - 2.5}" width="{_span(each, scale):.1f}"'
                    f' height="5" fill="{_colour(job)}"/>'
                )
    return parts


def _span(segment: Segment, scale: float) -> float:
    return max((segment.end_seconds - segment.start_seconds) * scale, 0.5)


def _colour(job: int) -> str:
    return COLOURS[job % len(COLOURS)]
