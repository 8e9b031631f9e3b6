"""`ganger lesson`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click

from ganger.core.errors import BadInput

if TYPE_CHECKING:
    from rich.table import Table

    from ganger.lab.lessons.parts import Cell, Lesson, TableOf

WIDTH = 80


def complete_lesson(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Names that go on from what is typed."""
    from ganger.lab.lessons.worked_examples import LESSONS

    return [name for name in LESSONS if name.startswith(incomplete)]


@click.command(
    epilog="\b\nExamples:\n  ganger lesson\n  ganger lesson four-jobs"
    "\n  ganger lesson four-jobs --durations 30,10,5,60"
)
@click.argument("name", required=False, shell_complete=complete_lesson)
@click.option(
    "--durations", metavar="A,B,C,D", help="For four-jobs: durations of jobs 0 to 3, in seconds."
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def lesson(name: str | None, durations: str | None, as_json: bool) -> None:
    """Work through a lecture's example NAME in numbers and Gantt charts; without it, list them."""
    from ganger.lab.lessons.four_jobs import parse_durations
    from ganger.lab.lessons.parts import LECTURE
    from ganger.lab.lessons.worked_examples import LESSONS, to_json

    if name is None:
        listed = {key: (make.__doc__ or "").splitlines()[0] for key, make in LESSONS.items()}
        lines = [f"{key:12} {text}" for key, text in listed.items()]
        lines += ["", "The examples of", f"  {LECTURE}"]
        click.echo(json.dumps(listed, indent=2) if as_json else "\n".join(lines))
        return
    if name not in LESSONS:
        raise BadInput(f"no lesson {name!r}", mend=f"there are {', '.join(LESSONS)}")
    if durations and name != "four-jobs":
        raise BadInput(
            "only four-jobs has durations to change",
            where="--durations",
            mend="write: ganger lesson four-jobs --durations 30,10,25,40",
        )
    made = LESSONS[name](parse_durations(durations)) if durations else LESSONS[name]()
    if as_json:
        click.echo(json.dumps(to_json(made), indent=2))
    else:
        _show(made)


def _show(made: Lesson) -> None:
    from rich.console import Console
    from rich.text import Text

    from ganger.lab.lessons.parts import LECTURE, TableOf
    from ganger.lab.report.gantt import render

    console = Console()
    console.print(Text(made.title, style="bold"))
    console.print(Text(LECTURE, style="dim"))
    for part in made.parts:
        console.print()
        if isinstance(part, str):
            console.print(Text(part))
        elif isinstance(part, TableOf):
            console.print(_table(part))
        else:
            console.print(Text(part.title, style="bold"))
            if part.words:
                console.print(Text(part.words))
            console.print(render(part.run, max(min(console.width, WIDTH), 30)), end="")


def _table(part: TableOf) -> Table:
    from rich.table import Table
    from rich.text import Text

    table = Table(title=part.title or None, title_justify="left", box=None, pad_edge=False)
    for at, column in enumerate(part.columns):
        numbers = any(isinstance(row[at], float) for row in part.rows)
        table.add_column(column, justify="right" if numbers else "left")
    for row in part.rows:
        table.add_row(*(Text(_cell(cell)) for cell in row))
    return table


def _cell(cell: Cell) -> str:
    return cell if isinstance(cell, str) else f"{cell:.10g}"
