"""`ganger service list`, `show` and `explain`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ganger.cli.live.services.group import as_json, front_of, service, service_name
from ganger.cli.text import print_json, table
from ganger.client.answering.families import ServiceAnswer
from ganger.client.connection import Client
from ganger.client.places import home

if TYPE_CHECKING:
    from ganger.serving.front.link import Told


@service.command(
    "list", epilog="\b\nExamples:\n  ganger service list\n  ganger service list --json"
)
@as_json
def list_(as_json: bool) -> None:
    """List services: their replicas, and how requests are answered."""
    from ganger.serving.front.link import asked_at, fronts

    root = home()
    served = [front for name in fronts(root) if (front := asked_at(root, name)) is not None]
    running = Client().call("GET", "/v1/services", list[ServiceAnswer])
    mine = {version.job for each in served for version in each.versions}
    others = [each for each in running if each.job not in mine]
    if as_json:
        print_json({"services": served, "without_front": others})
        return
    rows = [
        [
            each.settings.name,
            each.url,
            _ready(each),
            f"{each.answers:,}",
            f"{each.errors + each.dropped:,}",
            _ms(each.versions[0].p99) if each.versions else "-",
            " ".join(str(version.job) for version in each.versions),
        ]
        for each in served
    ]
    rows += [[each.name, "-", _states(each.replicas), "-", "-", "-", each.label] for each in others]
    titles = ("SERVICE", "ADDRESS", "REPLICAS", "ANSWERED", "FAILED", "P99", "JOBS")
    click.echo(table(titles, rows, shrink=(0, 1)))


def _ready(front: Told) -> str:
    ready = sum(each.state == "ready" for each in front.replicas)
    return f"{ready}/{len(front.replicas)} ready"


def _states(replicas: dict[str, int]) -> str:
    return ", ".join(f"{count} {state.lower()}" for state, count in replicas.items()) or "none"


def _ms(seconds: float) -> str:
    return f"{seconds * 1000:.1f} ms" if seconds else "-"


@service.command(
    epilog="\b\nExamples:\n  ganger service show web\n  ganger service show web --json"
)
@service_name
@as_json
def show(name: str, as_json: bool) -> None:
    """Show a service: its versions, its replicas, a rollout under way."""
    front = front_of(name)
    if as_json:
        print_json(front)
        return
    state = "takes no new requests" if front.closed else "serves"
    click.echo(f"{name}: {state} at {front.url}, {front.open} open, {front.waiting} waiting")
    if not front.daemon:
        click.echo("The daemon does not answer: replicas are those that it named last.")
    click.echo()
    rows = [
        [
            str(each.job),
            "shadow" if each.shadow else f"{each.weight:g}",
            f"{each.answers:,}",
            f"{each.errors:,}",
            _ms(each.p50),
            _ms(each.p99),
        ]
        for each in front.versions
    ]
    click.echo(table(("VERSION", "WEIGHT", "ANSWERED", "ERRORS", "P50", "P99"), rows))
    click.echo()
    rows = [
        [str(each.job), str(each.version), each.at, each.state, str(each.open), _ms(each.latency)]
        for each in front.replicas
    ]
    click.echo(table(("REPLICA", "VERSION", "ADDRESS", "STATE", "OPEN", "LATENCY"), rows))
    if front.rollout is not None:
        rollout = front.rollout
        click.echo()
        why = f": {rollout.why}" if rollout.why else ""
        where = f", step {rollout.at + 1} of {len(rollout.steps)}" if not rollout.over else ""
        click.echo(
            f"rollout from job {rollout.old} to job {rollout.new}: {rollout.state}{where},"
            f" {rollout.part:.0%} of requests{why}"
        )


@service.command(epilog="\b\nExamples:\n  ganger service explain web")
@service_name
def explain(name: str) -> None:
    """Say what the recipe for services does about a service, and why its replicas
    wait."""
    from ganger.cli.live.explained import say_why
    from ganger.client.answers import Explanation

    client = Client()
    for version in front_of(name).versions:
        say_why(client.call("GET", f"/v1/jobs/{version.job}/explain", Explanation))
