"""`ganger recipes` and `ganger recipe NAME`."""

from __future__ import annotations

import json
from enum import Enum
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import click

from ganger.core.units import format_duration
from ganger.recipes.registry import Recipe, find
from ganger.recipes.registry import recipes as names


def row(recipe: Recipe) -> dict[str, Any]:
    """One recipe as plain data."""
    return {
        "name": recipe.name,
        "paper": str(recipe.paper),
        "year": recipe.paper.year or None,
        "objective": recipe.paper.objective,
        "needs": recipe.needs,
        "summary": recipe.summary,
        "description": recipe.doc,
        "reconstructed": recipe.reconstructed or None,
        "parameters": {key: _shown(recipe, key) for key in recipe.parameters},
    }


def _shown(recipe: Recipe, key: str) -> str:
    """A default as one would write it."""
    hint = get_type_hints(recipe.make, include_extras=True)[key]
    return _text(recipe.parameters[key], hint)


def _text(value: Any, hint: Any) -> str:
    if isinstance(value, tuple):
        return ";".join(_text(part, get_args(hint)[0]) for part in value)
    if get_origin(hint) is Annotated and isinstance(value, int):
        return format_duration(value)
    if isinstance(value, Enum):
        return value.name.lower()
    return str(value).lower() if isinstance(value, bool) or value is None else str(value)


def complete_recipe(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Names that go on from what is typed; after a comma, the last one."""
    done, comma, last = incomplete.rpartition(",")
    return [done + comma + name for name in names() if name.startswith(last)]


@click.command(epilog="\b\nExamples:\n  ganger recipes\n  ganger recipes --json | jq '.[].name'")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def recipes(as_json: bool) -> None:
    """List the recipes: what each does, and what it needs to know."""
    rows = [row(find(name)) for name in names()]
    if as_json:
        click.echo(json.dumps(rows, indent=2))
        return
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    table.add_column("Recipe", style="bold", no_wrap=True)
    table.add_column("Needs")
    table.add_column("What it does")
    for entry in rows:
        table.add_row(entry["name"], entry["needs"], entry["summary"])
    Console().print(table)


@click.command(epilog="\b\nExample:\n  ganger recipe tiresias")
@click.argument("name", shell_complete=complete_recipe)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def recipe(name: str, as_json: bool) -> None:
    """Show recipe NAME: paper, mechanism, parameters, what it needs, what is reconstructed."""
    entry = row(find(name))
    if as_json:
        click.echo(json.dumps(entry, indent=2))
        return
    from rich.console import Console
    from rich.table import Table

    console = Console()
    console.print(f"[bold]{entry['name']}[/]  [dim]{entry['paper']}[/]\n", highlight=False)
    for paragraph in entry["description"].split("\n\n"):
        console.print(paragraph.replace("\n", " ") + "\n", highlight=False, markup=False)
    console.print(f"Needs to know: {entry['needs']}", highlight=False)
    if entry["reconstructed"]:
        console.print(f"Reconstructed: {entry['reconstructed']}", highlight=False, markup=False)
    table = Table("Parameter", "Default", box=None, pad_edge=False)
    for key, default in entry["parameters"].items():
        table.add_row(key, default)
    if entry["parameters"]:
        console.print()
        console.print(table)
        console.print(
            f"\nWrite it like: {name}({next(iter(entry['parameters']))}=...)", markup=False
        )
