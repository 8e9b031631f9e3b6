"""Printing for people and for machines: aligned columns, times, JSON, watching."""

from __future__ import annotations

import shutil
import sys
import textwrap
import time
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, Final, NoReturn

import click
import msgspec

from ganger.client.shown import shown, shown_json

GAP: Final = "  "
WATCH_SECONDS: Final = 2.0
_NARROWEST = 6


def print_json(value: Any) -> None:
    """One JSON document."""
    click.echo(shown_json(msgspec.json.format(msgspec.json.encode(value), indent=2).decode()))


def table(titles: Sequence[str], rows: Sequence[Sequence[str]], shrink: Sequence[int] = ()) -> str:
    """Columns aligned by spaces; numbers to the right. On a terminal that is too narrow, the
    columns numbered in `shrink` are cut, the first of them most; in a pipe nothing is cut. No cell
    can move a terminal's cursor or begin another line."""
    cells = [[shown(str(cell)) for cell in row] for row in rows]
    widths = [max([len(title), *(len(row[i]) for row in cells)]) for i, title in enumerate(titles)]
    if sys.stdout.isatty():
        _fit(widths, [max(len(titles[i]), _NARROWEST) for i in range(len(titles))], shrink)
    right = [
        bool(cells)
        and all(row[i][:1].isdigit() or row[i] in ("", "-") for row in cells)
        and not any(":" in row[i] and "-" in row[i] for row in cells)
        for i in range(len(titles))
    ]
    lines = [_line(titles, widths, right)]
    lines += [_line(row, widths, right) for row in cells]
    return "\n".join(lines)


def _fit(widths: list[int], least: list[int], shrink: Sequence[int]) -> None:
    room = shutil.get_terminal_size().columns
    over = sum(widths) + len(GAP) * (len(widths) - 1) - room
    for i in shrink:
        cut = min(max(over, 0), max(widths[i] - least[i], 0))
        widths[i] -= cut
        over -= cut


def _line(cells: Sequence[str], widths: Sequence[int], right: Sequence[bool]) -> str:
    made = []
    for cell, width, flush in zip(cells, widths, right, strict=True):
        text = cell if len(cell) <= width else cell[: max(width - 1, 0)] + "~"
        made.append(text.rjust(width) if flush else text.ljust(width))
    return GAP.join(made).rstrip()


def folded(line: str) -> str:
    """A sentence, indented; on a terminal it is folded into as many lines as it needs."""
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else 0
    if width <= _NARROWEST:
        return f"  {line}"
    return textwrap.fill(line, width, initial_indent=GAP, subsequent_indent=GAP)


def clock(seconds: float | None) -> str:
    """A length of time as Slurm writes it: `D-HH:MM:SS` or `M:SS`."""
    if seconds is None:
        return "-"
    minutes, second = divmod(int(seconds), 60)
    hours, minute = divmod(minutes, 60)
    days, hour = divmod(hours, 24)
    if days:
        return f"{days}-{hour:02d}:{minute:02d}:{second:02d}"
    return f"{hour}:{minute:02d}:{second:02d}" if hours else f"{minute}:{second:02d}"


def moment(unix_seconds: float | None) -> str:
    """A time on the wall clock here, without the date if it is today's."""
    if unix_seconds is None:
        return "-"
    then = datetime.fromtimestamp(unix_seconds)
    today = then.date() == datetime.fromtimestamp(time.time()).date()
    return then.strftime("%H:%M:%S" if today else "%Y-%m-%dT%H:%M:%S")


def times(count: int) -> str:
    """How often."""
    return "never" if not count else "once" if count == 1 else f"{count} times"


def day(unix_seconds: float | None) -> str:
    """A time in few characters, as squeue writes it: the clock of today, else `11-30T18:00`."""
    text = moment(unix_seconds)
    return text[5:16] if "T" in text else text


def watch(show: Callable[[], None], seconds: float) -> NoReturn:
    """Show again and again until interrupted."""
    while True:
        if sys.stdout.isatty():
            click.clear()
        show()
        sys.stdout.flush()
        time.sleep(seconds)
