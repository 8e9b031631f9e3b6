"""`ganger service scale`, `rollout`, `rollback`, `drain` and `stop`."""

from __future__ import annotations

import os
import select
from typing import TYPE_CHECKING

import click

from ganger.cli.live.services.group import front_of, seconds_of, service, service_name
from ganger.cli.words import SPAN, FloatRange
from ganger.client.answering.families import ServiceAnswer
from ganger.client.answers import Changed, Submitted
from ganger.client.connection import Client
from ganger.client.places import home
from ganger.client.request import convert
from ganger.core.errors import BadInput

if TYPE_CHECKING:
    from ganger.serving.front.link import Told


@service.command(
    epilog="\b\nExamples:\n  ganger service scale web 4\n  ganger service scale web 1..8"
)
@service_name
@click.argument("replicas", metavar="N|LEAST..MOST")
def scale(name: str, replicas: str) -> None:
    """Give a service N replicas, or let its recipe choose from LEAST to MOST."""
    smallest, dots, largest = replicas.partition("..")
    largest = largest if dots else smallest
    if not (
        smallest.isascii() and smallest.isdecimal() and largest.isascii() and largest.isdecimal()
    ):
        raise BadInput(
            f"{replicas[:40]!r} is not a valid number of replicas", mend="write like 4 or 1..8"
        )
    front = front_of(name)
    each = front.settings.request["gpus"] // front.settings.request["workers"]
    if not each:
        raise BadInput(
            "the number of replicas without GPUs does not change",
            mend="start another service with more of them",
        )
    job = _only_version(front)
    body = {"min_gpus": int(smallest) * each, "max_gpus": int(largest) * each}
    Client().call("PATCH", f"/v1/jobs/{job}", Changed, body=body)
    click.echo(f"{name} has {replicas} replicas from now on")


def _only_version(front: Told) -> int:
    """Raises BadInput during a rollout."""
    if front.rollout is not None and not front.rollout.over:
        raise BadInput(
            "a rollout is under way",
            mend=f"wait for its end, or `ganger service rollback {front.settings.name}`",
        )
    return next(each.job for each in front.versions if not each.shadow)


@service.command(
    epilog="\b\nExamples:\n  ganger service rollout web -- ganger serve better.toml --port {port}"
    "\n  ganger service rollout web --steps 5%,50%,100% --hold 5m --max-errors 1% -- ..."
    "\n  ganger service rollout web --shadow -- ganger serve better.toml --port {port}"
)
@service_name
@click.argument("command", nargs=-1, required=True)
@click.option("--steps", default="1%,10%,50%,100%", show_default=True,
    help="Parts of the requests that the next version gets, one after the other.")  # fmt: skip
@click.option("--hold", type=SPAN, default="30s", show_default=True, metavar="TIME",
    help="For how long each part.")  # fmt: skip
@click.option("--max-errors", default="2%", show_default=True, metavar="PART",
    help="It goes back where so many more of its answers are errors.")  # fmt: skip
@click.option("--max-slower", type=FloatRange(1.0, 1000.0), default=2.0, show_default=True,
    help="It goes back where its 99th percentile is so many times the other's.")  # fmt: skip
@click.option("--shadow", is_flag=True,
    help="The next version gets copies of all requests, and nobody its answers.")  # fmt: skip
def rollout(
    name: str,
    command: tuple[str, ...],
    steps: str,
    hold: str,
    max_errors: str,
    max_slower: float,
    shadow: bool,
) -> None:
    """Move a service to another COMMAND, step by step; back, where that does worse
    than what serves now. No request fails for it."""
    from ganger.serving.front.balance import Version
    from ganger.serving.front.link import Asked
    from ganger.serving.front.rollout import Guard, Rollout

    parts = tuple(_part(word, "--steps") for word in steps.split(","))
    if list(parts) != sorted(set(parts)) or parts[-1] != 1.0:
        raise BadInput("they do not rise to 100%", where="--steps", mend="write like 10%,50%,100%")
    guard = Guard(_part(max_errors, "--max-errors"), max_slower)
    seconds = seconds_of(hold, "--hold")
    front = front_of(name)
    old = _only_version(front)
    client = Client()
    fields = {**front.settings.request, "command": list(command)}
    running = {each.job: each for each in client.call("GET", "/v1/services", list[ServiceAnswer])}
    if old not in running:
        raise BadInput(f"job {old} is over", mend=f"ganger service stop {name}")
    new = client.call("POST", "/v1/jobs", Submitted, body=convert(fields, "service")).job
    if shadow:
        kept = [Version(each.job, each.weight, each.shadow) for each in front.versions]
        asked = Asked(versions=[*kept, Version(new, 0.0, shadow=True)])
        said = f"job {new} gets copies of all requests"
    else:
        asked = Asked(rollout=Rollout(old, new, parts, seconds, guard))
        said = f"from job {old} to job {new}: {steps}, each for {hold}"
    front_of(name, asked)
    click.echo(f"{said}; see `ganger service show {name}`")


def _part(word: str, where: str) -> float:
    """A percentage as a part of one. Raises BadInput."""
    text = word.strip().removesuffix("%")
    try:
        part = float(text) / 100
    except ValueError:
        part = -1.0
    if not word.strip().endswith("%") or not 0.0 <= part <= 1.0:
        raise BadInput(
            f"{word[:40]!r} is not a valid percentage", where=where, mend="write like 10%"
        )
    return part


@service.command(epilog="\b\nExamples:\n  ganger service rollback web")
@service_name
def rollback(name: str) -> None:
    """Give all requests back to the version that served before the rollout under
    way; or end a version in the shadow."""
    from ganger.serving.front.balance import Version
    from ganger.serving.front.link import Asked

    front = front_of(name)
    shadows = [each.job for each in front.versions if each.shadow]
    moving = front.rollout is not None and not front.rollout.over
    if not moving and not shadows:
        raise BadInput("no rollout is under way", mend="roll out the command of before instead")
    asked = Asked(stop_rollout=moving)
    if shadows:
        asked.versions = [
            Version(each.job, each.weight) for each in front.versions if not each.shadow
        ]
    front_of(name, asked)
    for job in shadows:
        Client().call("POST", f"/v1/jobs/{job}/cancel")
    click.echo("rolled back")


@service.command(
    epilog="\b\nExamples:\n  ganger service drain web\n  ganger service drain web --resume"
)
@service_name
@click.option("--resume", is_flag=True, help="Take requests again.")
def drain(name: str, resume: bool) -> None:
    """Take no new requests, and answer those that are under way."""
    from ganger.serving.front.link import Asked

    front = front_of(name, Asked(closed=not resume))
    state = "takes requests again" if resume else "takes no new requests"
    click.echo(f"{name} {state}; {front.open + front.waiting} are under way")


@service.command(epilog="\b\nExamples:\n  ganger service stop web")
@service_name
def stop(name: str) -> None:
    """End a service: its address, once it has answered what is under way, and then
    its replicas."""
    from ganger.serving.front.link import Asked, parent_of

    root = home()
    front = front_of(name)
    parent = parent_of(root, name)
    front_of(name, Asked(end=True))
    if parent is not None:
        select.select([parent], [], [], 60.0)
        os.close(parent)
    client = Client()
    for each in front.versions:
        client.call("POST", f"/v1/jobs/{each.job}/cancel")
    click.echo(f"{name} has ended")
