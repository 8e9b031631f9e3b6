"""How a service is served now, beside other recipes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from ganger.recipes.registry import split_specs

if TYPE_CHECKING:
    from ganger.lab.serving.run import ServingRun
    from ganger.workloads.present.settings import Present


def beside(present: Present, recipes: str) -> str:
    """The recipes to compare, that of the settings first."""
    others = [each for each in split_specs(recipes) if each != present.recipe]
    return ",".join([present.recipe, *others])


def tell(present: Present, runs: Sequence[ServingRun]) -> None:
    """Which recipe is that of the settings, what it was made of and what was ignored, and which has
    most in time."""
    click.echo(f"\n{present.recipe} is how {present.source} serves.")
    if present.read:
        click.echo("Read: " + ", ".join(f"{key} = {value}" for key, value in present.read.items()))
    if present.scaling:
        click.echo(f"Replicas: --serving '{present.scaling}' of `ganger simulate`")
    for reason in dict.fromkeys(present.ignored.values()):
        keys = ", ".join(key for key, why in present.ignored.items() if why == reason)
        click.echo(f"Ignored: {keys}: {reason}")
    places = list(dict.fromkeys(run.place for run in runs))
    for place in places:
        parts: dict[str, list[float]] = {}
        for run in runs:
            if run.place == place:
                parts.setdefault(run.recipe, []).append(run.metrics["attainment"] or 0.0)
        means = {recipe: sum(each) / len(each) for recipe, each in parts.items()}
        best, now = max(means, key=lambda recipe: means[recipe]), means[present.recipe]
        better = f"{means[best]:.1%} under {best}" if means[best] > now else "no more under another"
        where = place.told(places)
        click.echo(f"In time now{f' ({where})' if where else ''}: {now:.1%}, and {better}.")
