"""`ganger recipes` and `ganger recipe NAME`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import click

from ganger.cli import completion
from ganger.recipes.registry import PLANES, Recipe, chosen, find
from ganger.recipes.registry import recipes as names


def row(recipe: Recipe) -> dict[str, Any]:
    """One recipe as plain data."""
    return {
        "name": recipe.name,
        "paper": str(recipe.paper),
        "year": recipe.paper.year or None,
        "objective": recipe.paper.objective,
        "needs": recipe.needs,
        "wants": list(recipe.wants),
        "elastic": recipe.elastic,
        "heterogeneous": recipe.heterogeneous,
        "mechanisms": recipe.mechanisms,
        "summary": recipe.summary,
        "description": recipe.doc,
        "reconstructed": recipe.reconstructed or None,
        "parameters": recipe.defaults(),
        "values": recipe.values(),
    }


EXAMPLES = """\b
Examples:
  ganger recipes
  ganger recipes --objective fairness --needs nothing
  ganger recipes --mechanism lease --year 2019-2021
  ganger recipes --elastic --heterogeneous
  ganger recipes --plane serving
  ganger recipes --plane tuning
  ganger recipes --json | jq '.[].name'
"""


@click.command(epilog=EXAMPLES)
@click.option(
    "--plane",
    type=click.Choice(list(PLANES)),
    default="training",
    show_default=True,
    help="What the recipes decide over. training: jobs; serving: services and their replicas;"
    " tuning: the trials of a search; requests: requests to models.",
)
@click.option(
    "--objective",
    metavar="WORD",
    help="Only recipes that improve this: jct, fairness, makespan, deadline, utilisation, cost.",
)
@click.option(
    "--mechanism",
    metavar="NAME",
    help="Only recipes built from this mechanism, family "
    "of mechanisms or class: queue, fairness, Walk.",
)
@click.option(
    "--year",
    metavar="YEAR",
    help="Only recipes published in these years: 2020, 2018-2020, -2015 or 2021-.",
)
@click.option(
    "--needs",
    metavar="WORDS",
    help="Only recipes that need no more information than "
    "this: nothing, durations, throughputs, or both with a comma.",
)
@click.option("--elastic", is_flag=True, help="Only recipes that resize jobs.")
@click.option("--heterogeneous", is_flag=True, help="Only recipes that distinguish GPU types.")
@click.option(
    "--pages",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Write a page for every recipe into DIR, with the drawing of an example.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def recipes(plane: str, pages: Path | None, as_json: bool, **filters: Any) -> None:
    """List the recipes: what each does, and what information it needs.

    With several filters, a recipe must pass all of them. The exit code is 1 if none does.
    """
    if pages is not None:
        from ganger.lab.docs.recipe_pages import write_pages

        click.echo(f"{write_pages(pages)} files in {pages}")
        return
    old = str(filters["mechanism"]).lower()
    if old in RENAMED:
        filters["mechanism"] = RENAMED[old]
        click.echo(f"warning: mechanism {old} is now called {RENAMED[old]}", err=True)
    rows = [row(found) for found in chosen([find(name) for name in names(plane)], **filters)]
    if as_json:
        click.echo(json.dumps(rows, indent=2))
    elif rows:
        _print(rows)
        others = ", ".join(other for other in PLANES if other != plane)
        click.echo(
            f"\n{len(rows)} recipes of the plane {plane}. Others: --plane {others}.", err=True
        )
    else:
        click.echo("no recipe passes all filters", err=True)
    if not rows:
        click.get_current_context().exit(1)


RENAMED: Final = {
    "delay": "delay_scheduling", "tenancy": "virtual_clusters", "auxiliary": "remote_input",
    "barrier": "simulator_rounds", "centred": "interior_point", "standing": "standing_types",
    "pairing": "space_sharing", "partition": "pop", "goodput": "pollux", "evolve": "genetic",
    "configuration": "sia", "cells": "hived", "timeindex": "spin", "auction": "themis",
    "ltgf": "astraea", "stride": "gandiva_fair", "orchestrate": "ones", "guarantee": "chronus",
    "matching": "allox", "containers": "dorm", "promote": "tiresias", "progress": "e_las",
}  # fmt: skip
"""What mechanisms were called before; the old names answer for one version."""


def _print(rows: list[dict[str, Any]]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    table.add_column("Recipe", style="bold", no_wrap=True)
    table.add_column("Needs")
    table.add_column("What it does")
    for entry in rows:
        table.add_row(entry["name"], entry["needs"], entry["summary"])
    Console().print(table)


@click.command(
    epilog="\b\nExamples:\n  ganger recipe tiresias\n  ganger recipe tune.asha\n"
    "  ganger recipe clockwork --json"
)
@click.argument("name", shell_complete=completion.all_recipes)
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
    if entry["reconstructed"]:
        console.print(f"Reconstructed: {entry['reconstructed']}\n", highlight=False, markup=False)
    for paragraph in entry["description"].split("\n\n"):
        console.print(paragraph.replace("\n", " ") + "\n", highlight=False, markup=False)
    console.print(f"Needs to know: {entry['needs']}", highlight=False)
    if entry["wants"]:
        console.print(f"Wants: {', '.join(entry['wants'])}", highlight=False)
    console.print(f"Made of: {', '.join(entry['mechanisms'])}", highlight=False)
    table = Table("Parameter", "Default", "Allowed values", box=None, pad_edge=False)
    for key, told in entry["values"].items():
        table.add_row(key, told["default"], told["words"])
    written = name
    if entry["parameters"]:
        console.print()
        console.print(table)
        for key, default in entry["parameters"].items():
            if default not in ("", "none", "never"):  # these stand for no value
                written = f"'{name}({key}={default.replace(' ', '')})'"
                break
    more = RUN_WITH.get(find(name).name, "")
    click.echo(f"\nFor example:\n  {RUN[find(name).plane].format(written)}{more}")


RUN: Final = {
    "training": "ganger simulate jobs.csv --cluster 8x8xV100 --recipe {}",
    "serving": "ganger simulate jobs.csv --cluster 2x4xT4 --serving {}"
    " --requests r.csv --models models.toml",
    "tuning": "ganger simulate experiment.toml --curves curves.csv --recipe {}",
    "requests": "ganger requests simulate r.csv --models models.toml --fleet T4:4 --recipe {}",
    "hybrid": "ganger simulate jobs.csv --cluster 2x8xV100@serving+6x8xV100"
    " --serving scale.threshold --rates rates.csv --sharing {}",
}
"""By the plane of a recipe, a command that runs it."""
RUN_WITH: Final = {"scale.asked": " --router swayam"}
"""What else the command of a recipe needs: the router that asks for replicas."""
