"""`ganger fairshare` and `ganger quota`: who has used what, and who may have how much."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

import click

from ganger.cli.text import print_json, table
from ganger.client.answers import Quota, Share
from ganger.client.connection import Client
from ganger.core.errors import BadInput

_json = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


@click.command()
@_json
def fairshare(as_json: bool) -> None:
    """What each tenant has used and holds (as sshare)."""
    found = Client().call("GET", "/v1/fairshare", list[Share])
    if as_json:
        print_json(found)
        return
    rows = [
        (one.tenant or "-", str(one.running), str(one.pending), str(one.gpus),
         f"{one.gpu_hours:.2f}", f"{one.lost_gpu_hours:.2f}", f"{one.usage_share:.3f}",
         f"{one.fair_share:.3f}")
        for one in found
    ]  # fmt: skip
    titles = ("TENANT", "RUNNING", "PENDING", "GPUS", "GPU-HOURS", "LOST", "USED", "FAIR")
    click.echo(table(titles, rows, shrink=(0,)))


_EXAMPLES = (
    "\b\nExamples:\n  ganger quota\n  ganger quota physics --limit 8"
    "\n  ganger quota physics --quota 4 --weight 2\n  ganger quota physics --forget"
)


@click.command(epilog=_EXAMPLES)
@click.argument("tenant", required=False)
@click.option(
    "--limit",
    metavar="GPUS|none",
    help="The most GPUs that its jobs hold at once, "
    "under any recipe; the others wait (AssocGrpGRES).",
)
@click.option(
    "--quota",
    "share",
    metavar="GPUS|none",
    help="What it deserves, for recipes that know quotas: philly, hived, yarn-cs and their like.",
)
@click.option("--weight", metavar="NUMBER|none", help="Its weight in fair shares.")
@click.option("--forget", is_flag=True, help="Nothing is set for it any more.")
@_json
def quota(
    tenant: str | None, limit: str | None, share: str | None, weight: str | None, forget: bool,
    as_json: bool,
) -> None:  # fmt: skip
    """Show what tenants may have, or set it for TENANT. Who runs goes on."""
    body = {
        name: _value(name, value)
        for name, value in (("limit", limit), ("quota", share), ("weight", weight))
        if value is not None
    }
    if tenant is None and (body or forget):
        raise BadInput("whose?", mend="write like: ganger quota physics --limit 8")
    if forget and body:
        raise BadInput("it cannot be set and forgotten at once", where="--forget")
    path = f"/v1/quotas/{quote(tenant, safe='')}" if tenant is not None else "/v1/quotas"
    if forget:
        found = Client().call("DELETE", path, list[Quota])
    elif body:
        found = Client().call("PATCH", path, list[Quota], body=body)
    else:
        found = [one for one in Client().call("GET", "/v1/quotas", list[Quota])
                 if tenant in (None, one.tenant)]  # fmt: skip
    if as_json:
        print_json(found)
        return
    rows = [
        (one.tenant or "-", _said(one.limit), _said(one.let_in), str(one.waiting),
         _said(one.quota), f"{one.weight:g}")
        for one in found
    ]  # fmt: skip
    click.echo(
        table(("TENANT", "LIMIT", "LET IN", "WAITING", "QUOTA", "WEIGHT"), rows, shrink=(0,))
    )


def _said(value: float | None) -> str:
    return "-" if value is None else f"{value:g}"


def _value(name: str, text: str) -> Any:
    if text == "none":
        return None
    try:
        return int(text) if name == "quota" else float(text)
    except ValueError:
        raise BadInput(
            f"{text!r} is no number", where=f"--{name}", mend="a number or none"
        ) from None
