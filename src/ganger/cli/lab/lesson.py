"""`ganger lesson`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click

from ganger.core.errors import BadInput
from ganger.lab.lessons.pieces import LECTURE, LESSONS, PIECES
from ganger.lab.lessons.pieces import lesson as find_lesson

if TYPE_CHECKING:
    from rich.table import Table

    from ganger.lab.lessons.parts import Cell, Lesson, TableOf
    from ganger.lab.lessons.pieces import Piece

WIDTH = 80


def complete_lesson(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Names that go on from what is typed."""
    return [name for name in LESSONS if name.startswith(incomplete)]


@click.command(
    epilog="\b\nExamples:\n  ganger lesson\n  ganger lesson queue\n  ganger lesson queue --list"
    "\n  ganger lesson queue --set gpus=8 --set recipe=backfill"
    "\n  ganger lesson four-jobs --durations 30,10,5,60"
)
@click.argument("name", required=False, shell_complete=complete_lesson)
@click.option("--set", "given", metavar="INPUT=VALUE", multiple=True, help="Change an input.")
@click.option("--list", "inputs", is_flag=True, help="List the inputs of NAME.")
@click.option(
    "--durations", metavar="A,B,C,D", help="For four-jobs: durations of jobs 0 to 3, in seconds."
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def lesson(
    name: str | None, given: tuple[str, ...], inputs: bool, durations: str | None, as_json: bool
) -> None:
    """Work through a lecture's example NAME in numbers and Gantt charts; without it, list them."""
    if name is None:
        listed = {piece.name: piece.shows for piece in PIECES}
        lines = [f"{key:14} {text}" for key, text in listed.items()]
        lines += ["", "The examples of", f"  {LECTURE}"]
        click.echo(json.dumps(listed, indent=2) if as_json else "\n".join(lines))
        return
    piece = find_lesson(name)
    if durations and name != "four-jobs":
        raise BadInput(
            "only four-jobs has durations to change",
            where="--durations",
            mend="write: ganger lesson four-jobs --durations 30,10,25,40",
        )
    if inputs:
        _inputs(piece, as_json=as_json)
        return
    from ganger.lab.lessons.parts import to_json

    made = piece.work(_given(given) | ({"durations": durations} if durations else {}))
    if as_json:
        click.echo(json.dumps(to_json(made), indent=2))
    else:
        _show(piece, made)


def _given(words: tuple[str, ...]) -> dict[str, str]:
    values = {}
    for word in words:
        key, equals, value = word.partition("=")
        if not equals:
            raise BadInput(f"{word!r} sets nothing", where="--set", mend="write INPUT=VALUE")
        values[key.strip()] = value
    return values


def _inputs(piece: Piece, *, as_json: bool) -> None:
    """What may be set, and what stands there otherwise."""
    known = {field.name: field for field in piece.fields}
    if as_json:
        click.echo(json.dumps({name: field.default for name, field in known.items()}, indent=2))
        return
    for name, field in known.items():
        bounds = f"{field.lowest} to {field.highest}" if field.highest else ", ".join(field.choices)
        click.echo(f"{name}={field.default}\n    {field.label}{f' ({bounds})' if bounds else ''}")
    if not known:
        click.echo("It has no inputs.")


def _show(piece: Piece, made: Lesson) -> None:
    from rich.console import Console
    from rich.text import Text

    from ganger.lab.lessons.parts import Chart, TableOf
    from ganger.lab.report.gantt import render

    console = Console()
    console.print(Text(made.title, style="bold"))
    console.print(Text(LECTURE, style="dim"))
    if piece.formula and piece.fields:
        console.print()
        console.print(Text("\n".join(piece.formula)))
    for part in made.parts:
        if isinstance(part, str):
            console.print()
            console.print(Text(part))
        elif isinstance(part, TableOf):
            console.print()
            console.print(_table(part))
        elif isinstance(part, Chart):  # what is drawn as bars and lines stands in the tables
            console.print()
            console.print(Text(part.title, style="bold"))
            if part.words:
                console.print(Text(part.words))
            console.print(render(part.run, max(min(console.width, WIDTH), 30)), end="")
    if piece.fields:
        console.print()
        console.print(Text(piece.reading))


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
