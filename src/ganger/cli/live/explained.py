"""How `ganger explain` prints what the daemon answers."""

from __future__ import annotations

import click

from ganger.cli.text import folded, moment
from ganger.client.answers import Explanation
from ganger.client.shown import shown
from ganger.client.why import sentence


def say_why(found: Explanation) -> None:
    """Print an explanation for people."""
    reason = f" ({shown(found.reason)})" if found.reason else ""
    click.echo(f"job {found.label}: {found.state}{reason}")
    why = sentence(found, moment)
    for line in ([f"It {why}."] if why else []) + found.lines:
        click.echo(folded(shown(line)))
    if found.expected_start is not None:
        low, high = moment(found.expected_start_low), moment(found.expected_start_high)
        click.echo(folded(f"Expected start: {moment(found.expected_start)} ({low} to {high})."))
