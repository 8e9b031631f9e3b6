"""Which jobs ran where and when, drawn in characters: for small runs, whose segments were kept."""

from __future__ import annotations

import string
from dataclasses import dataclass, field
from typing import Literal

from rich.text import Text

from ganger.core.errors import BadInput
from ganger.lab.result import Run, Segment
from ganger.lab.tables import duration, printable

SYMBOLS = string.digits + string.ascii_uppercase + string.ascii_lowercase
IDLE, WAITS = "·", "-"
_COLOURS = (33, 166, 36, 133, 178, 39, 162, 245, 107, 63, 175, 28)
"""Of the 256 terminal colours; the symbol tells jobs apart without them."""
_NARROWEST = 30


@dataclass
class _Row:
    """A line of the chart: a label, and one cell per slice of time (-1: nothing)."""

    label: str
    jobs: list[int]
    waits: list[bool] = field(default_factory=list)


def render(run: Run, width: int = 80, by: Literal["gpu", "job"] = "gpu") -> Text:
    """The chart, `width` characters wide: one row per GPU (`node:gpu`) or one per job.

    A job is a symbol on its colour; `·` is an idle GPU, `-` a job that waits. A cell shows the job
    in the middle of its slice of time, and any job too short for that if it is else empty.
    Raises BadInput where the run kept no segments or the width is below 30.
    """
    if run.segments is None:
        raise BadInput("this run has no record of which job ran where", mend="take a smaller run")
    if width < _NARROWEST:
        raise BadInput(f"a chart {width} wide is too narrow", mend=f"give at least {_NARROWEST}")
    end = max((segment.end_seconds for segment in run.segments), default=0.0)
    names = _gpu_names(run) if by == "gpu" else _job_names(run, width // 4)
    margin = max((len(name) for name in names), default=0) + 1
    cells = width - margin
    rows = _gpu_rows(run, names, cells, end) if by == "gpu" else _job_rows(run, names, cells, end)
    chart = Text(no_wrap=True)
    for row in rows:
        _draw(chart, row, margin)
    chart.append(_axis(margin, cells, end), style="dim")
    if by == "gpu":
        chart.append(_legend(run, width), style="dim")
    return chart


def plain(run: Run, width: int = 80, by: Literal["gpu", "job"] = "gpu") -> str:
    """`render` as bare text."""
    return render(run, width, by).plain


def symbol(job: int) -> str:
    """The character of a job; they repeat after 62 jobs."""
    return SYMBOLS[job % len(SYMBOLS)]


def _gpu_names(run: Run) -> list[str]:
    return [f"{node}:{gpu}" for node, gpus in enumerate(run.node_gpus) for gpu in range(gpus)]


def _job_names(run: Run, longest: int) -> list[str]:
    names = [f"{symbol(job)} {printable(name)}" for job, name in enumerate(run.jobs.name)]
    return [name if len(name) <= longest else name[: longest - 1] + "…" for name in names]


def _gpu_rows(run: Run, names: list[str], cells: int, end: float) -> list[_Row]:
    rows = [_Row(name, [-1] * cells) for name in names]
    first = [sum(run.node_gpus[:node]) for node in range(len(run.node_gpus))]
    for segment in run.segments or []:
        for gpu in range(segment.devices.bit_length()):
            if segment.devices >> gpu & 1:
                _fill(rows[first[segment.node] + gpu].jobs, segment, end)
    return rows


def _job_rows(run: Run, names: list[str], cells: int, end: float) -> list[_Row]:
    rows = [
        _Row(name, [-1] * cells, _presence(float(start), float(finish), cells, end))
        for name, start, finish in zip(names, run.jobs.arrival, run.jobs.finish, strict=True)
    ]
    for segment in run.segments or []:
        _fill(rows[segment.job].jobs, segment, end)
    return rows


def _presence(start: float, finish: float, cells: int, end: float) -> list[bool]:
    """In which cells a job is there; one that never finished (NaN) stays to the end."""
    middles = ((cell + 0.5) * end / cells for cell in range(cells))
    return [start <= middle and not middle >= finish for middle in middles]


def _fill(cells: list[int], segment: Segment, end: float) -> None:
    scale = len(cells) / end if end else 0.0
    low, high = segment.start_seconds * scale, segment.end_seconds * scale
    middles = range(max(round(low), 0), min(round(high), len(cells)))
    for cell in middles:
        cells[cell] = segment.job
    lone = min(int(low), len(cells) - 1)
    if not middles and cells[lone] < 0:
        cells[lone] = segment.job


def _draw(chart: Text, row: _Row, margin: int) -> None:
    chart.append(row.label.rjust(margin - 1) + " ", style="dim")
    for cell, job in enumerate(row.jobs):
        if job >= 0:
            colour = _COLOURS[job % len(_COLOURS)]
            chart.append(symbol(job), style=f"bold color(255) on color({colour})")
        elif row.waits:
            chart.append(WAITS if row.waits[cell] else " ", style="dim")
        else:
            chart.append(IDLE, style="dim")
    chart.append("\n")


def _axis(margin: int, cells: int, end: float) -> str:
    """Ticks at quarters (halves where it is narrow), each with its time."""
    parts = 4 if cells >= 48 else 2
    places = [round(part * (cells - 1) / parts) for part in range(parts + 1)]
    ruler = "".join("┴" if cell in places else "─" for cell in range(cells))
    line = [" "] * cells
    for part, place in enumerate(places):
        text = duration(end * part / parts)
        start = min(max(place - len(text) // 2, 0), cells - len(text))
        line[start : start + len(text)] = text
    return f"{' ' * margin}{ruler}\n{' ' * margin}{''.join(line).rstrip()}\n"


def _legend(run: Run, width: int) -> str:
    """Which symbol is which job, for as many jobs as there are symbols."""
    seen = sorted({segment.job for segment in run.segments or []})
    lines, line = list[str](), ""
    for job in seen[: len(SYMBOLS)]:
        word = f"{symbol(job)} {printable(run.jobs.name[job])}"[: width // 2]
        if line and len(line) + len(word) + 3 > width:
            lines, line = [*lines, line], ""
        line = f"{line}   {word}" if line else word
    more = ["Symbols repeat: more jobs than symbols."] if len(seen) > len(SYMBOLS) else []
    return "\n".join([*lines, line, *more]) + "\n"
