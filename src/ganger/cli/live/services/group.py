"""The group of commands, and what they share."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ganger.cli.lazy import Suggesting
from ganger.client.places import home
from ganger.core.errors import BadInput
from ganger.core.units import SECOND, parse_duration

if TYPE_CHECKING:
    from ganger.serving.front.link import Asked, Told

as_json = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
service_name = click.argument("name", metavar="SERVICE")


@click.group(
    cls=Suggesting,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="\b\nExamples:\n  ganger service start web --replicas 2 -- \\"
    "\n      ganger serve models.toml --port {port}"
    "\n  ganger service list\n  ganger service scale web 4"
    "\n  ganger service rollout web -- ganger serve better.toml --port {port}",
)
def service() -> None:
    """Serve models on the cluster: replicas that the daemon places, behind one
    address. A replica is any command that serves HTTP at the port {port}."""


def seconds_of(text: str, where: str) -> float:
    """A length of time. Raises BadInput."""
    return parse_duration(text, where=where) / SECOND


def front_of(name: str, asked: Asked | None = None) -> Told:
    """What the front says. Raises BadInput."""
    from ganger.serving.front.link import asked_at

    front = asked_at(home(), name, asked)
    if front is None:
        raise BadInput(
            f"no service {name!r} is served here", mend="`ganger service list` shows those that are"
        )
    return front
