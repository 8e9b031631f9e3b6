"""Shell completion: the script, and what it offers for jobs, nodes and recipes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click
from click.shell_completion import CompletionItem

from ganger.core.errors import GangerError

ASK_SECONDS = 1.0
"""A daemon that takes longer is not waited for."""


@click.command(epilog="\b\nExample:\n  ganger completion bash >> ~/.bashrc")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print a script that completes `ganger` in SHELL."""
    from click.shell_completion import get_completion_class

    from ganger.cli.main import cli

    found = get_completion_class(shell)
    assert found is not None
    click.echo(found(cli, {}, "ganger", "_GANGER_COMPLETE").source())


def _asked(path: str, **query: Any) -> Any:
    from ganger.client.connection import Client

    try:
        return Client(timeout=ASK_SECONDS).call("GET", path, query=query)
    except GangerError:
        return {}


def jobs(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Jobs that are not over, by number, with their names."""
    found = _asked("/v1/jobs", limit=200).get("jobs", [])
    return [
        CompletionItem(job["label"], help=f"{job['name']} {job['state'].lower()}")
        for job in found
        if job["label"].startswith(incomplete)
    ]


def nodes(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Nodes."""
    return [
        CompletionItem(node["name"], help=node["state"])
        for node in _asked("/v1/nodes") or ()
        if node["name"].startswith(incomplete)
    ]


Complete = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]


def recipes_for(*planes: str) -> Complete:
    """Offers the recipes of these `PLANES`, in this order; after a comma, for the next one."""

    def offered(
        ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        from ganger.recipes import registry

        before, comma, begun = incomplete.rpartition(",")
        return [
            CompletionItem(f"{before}{comma}{name}")
            for plane in planes
            for name in registry.recipes(plane)
            if name.startswith(begun)
        ]

    return offered


recipes = recipes_for("training")
inner_recipes = recipes_for("tuning", "training")
serving_recipes = recipes_for("serving", "training", "requests")
routers = recipes_for("requests")
sharing_recipes = recipes_for("hybrid")
all_recipes = recipes_for("training", "serving", "tuning", "requests", "hybrid")
