"""`ganger fairshare`, `quota`, `usage`, `policy idle`: what each tenant used, and how much it may
have."""

from __future__ import annotations

import csv
import sys
import time
from collections.abc import Sequence
from datetime import datetime
from typing import Any
from urllib.parse import quote

import click

from ganger.cli.text import clock, print_json, table
from ganger.cli.words import SPAN
from ganger.client.answers import IdleAnswer, Quota, Share, Usage
from ganger.client.connection import Client
from ganger.core.errors import BadInput
from ganger.core.units import SECOND, parse_duration

_json = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


@click.command(epilog="\b\nExamples:\n  ganger fairshare\n  ganger fairshare --json")
@_json
def fairshare(as_json: bool) -> None:
    """Show what each tenant has used and holds (as sshare)."""
    found = Client().call("GET", "/v1/fairshare", list[Share])
    if as_json:
        print_json(found)
        return
    rows = [
        (
            one.tenant or "-",
            str(one.running),
            str(one.pending),
            f"{one.gpus:g}",
            f"{one.gpu_hours:.2f}",
            f"{one.lost_gpu_hours:.2f}",
            f"{one.usage_share:.3f}",
            f"{one.fair_share:.3f}",
        )
        for one in found
    ]
    titles = ("TENANT", "RUNNING", "PENDING", "GPUS", "GPU-HOURS", "LOST", "USED", "FAIR")
    click.echo(table(titles, rows, shrink=(0,)))


_EXAMPLES = (
    "\b\nExamples:\n  ganger quota\n  ganger quota physics --limit 8"
    "\n  ganger quota physics --quota 4 --weight 2"
    "\n  ganger quota physics --budget 500 --beyond ask\n  ganger quota physics --forget"
    "\n  ganger quota physics --member ann --member bob:100 --max-priority 10"
)


@click.command(epilog=_EXAMPLES)
@click.argument("tenant", required=False)
@click.option(
    "--limit",
    metavar="GPUS|none",
    help="The most GPUs that the jobs of the tenant hold at once, under any recipe. Further jobs "
    "wait (AssocGrpGRES).",
)
@click.option(
    "--quota",
    "share",
    metavar="GPUS|none",
    help="Guaranteed GPUs, for recipes that know quotas, such as philly, hived and yarn-cs.",
)
@click.option("--weight", metavar="NUMBER|none", help="Weight of the tenant in fair shares.")
@click.option(
    "--budget",
    metavar="USD|none",
    help="What all that the jobs of the tenant hold may cost, at the prices of the cluster file.",
)
@click.option(
    "--beyond",
    type=click.Choice(["warn", "ask", "stop"]),
    help="What follows when the budget is spent: it is only reported; no job starts until somebody "
    "gives more; those that run are stopped, too.",
)
@click.option(
    "--member",
    "members",
    multiple=True,
    metavar="USER[:PRIORITY]",
    help="USER may submit to the tenant, with at most this priority. Repeatable.",
)
@click.option(
    "--no-member",
    "without",
    multiple=True,
    metavar="USER",
    help="USER may no longer submit to the tenant. Repeatable.",
)
@click.option(
    "--max-priority",
    metavar="NUMBER|none",
    help="The highest priority that users may state for jobs of the tenant; none: 0.",
)
@click.option(
    "--max-weight",
    metavar="NUMBER|none",
    help="The highest weight that users may state for jobs of the tenant; none: 1.",
)
@click.option("--forget", is_flag=True, help="Remove every setting of the tenant.")
@_json
def quota(
    tenant: str | None,
    limit: str | None,
    share: str | None,
    weight: str | None,
    budget: str | None,
    beyond: str | None,
    members: tuple[str, ...],
    without: tuple[str, ...],
    max_priority: str | None,
    max_weight: str | None,
    forget: bool,
    as_json: bool,
) -> None:
    """Show the limits of tenants, or set those of TENANT. Running jobs go on.

    With a shared daemon, users submit to the tenant of their own name and to the tenants of which
    they are members. Administrators submit to any tenant, with any priority.
    """
    stated = {
        "limit": limit,
        "quota": share,
        "weight": weight,
        "budget": budget,
        "max_priority": max_priority,
        "max_weight": max_weight,
    }
    body: dict[str, Any] = {
        name: _value(name, value) for name, value in stated.items() if value is not None
    }
    if beyond is not None:
        body["beyond"] = beyond
    if members:
        body["members"] = dict(_member(text) for text in members)
    if without:
        body["without"] = list(without)
    if tenant is None and (body or forget):
        raise BadInput("whose?", mend="write like: ganger quota physics --limit 8")
    if forget and body:
        raise BadInput("it cannot be set and forgotten at once", where="--forget")
    found = _asked(tenant, body, forget)
    if as_json:
        print_json(found)
        return
    rows = [
        (
            one.tenant or "-",
            _said(one.limit),
            _said(one.let_in),
            str(one.waiting),
            _said(one.quota),
            f"{one.weight:g}",
            _money(one),
            str(one.max_priority),
            _members(one),
        )
        for one in found
    ]
    titles = (
        "TENANT", "LIMIT", "LET IN", "WAITING", "QUOTA", "WEIGHT", "SPENT", "PRIORITY", "MEMBERS"
    )  # fmt: skip
    click.echo(table(titles, rows, shrink=(8, 0)))


def _asked(tenant: str | None, body: dict[str, Any], forget: bool) -> list[Quota]:
    path = f"/v1/quotas/{quote(tenant, safe='')}" if tenant is not None else "/v1/quotas"
    found: list[Quota]
    if forget:
        found = Client().call("DELETE", path, list[Quota])
    elif body:
        found = Client().call("PATCH", path, list[Quota], body=body)
    else:
        every = Client().call("GET", "/v1/quotas", list[Quota])
        found = [one for one in every if tenant in (None, one.tenant)]
    return found


def _member(text: str) -> tuple[str, int | None]:
    user, colon, most = text.partition(":")
    try:
        return user, int(most) if colon else None
    except ValueError:
        raise BadInput(
            f"{most!r} is not a priority", where="--member", mend="write like ann or ann:100"
        ) from None


def _members(one: Quota) -> str:
    return ",".join(
        user if most is None else f"{user}:{most}" for user, most in one.members.items()
    )


def _money(quota: Quota) -> str:
    """What is spent of the budget, and what follows."""
    if quota.budget is None or quota.spent is None:
        return "-"
    over = f" ({quota.beyond})" if quota.spent >= quota.budget else ""
    return f"{quota.spent:.2f} of {quota.budget:g} USD{over}"


def _said(value: float | None) -> str:
    return "-" if value is None else f"{value:g}"


def _value(name: str, text: str) -> Any:
    if text == "none":
        return None
    try:
        return int(text) if name in ("quota", "max_priority") else float(text)
    except ValueError:
        raise BadInput(
            f"{text!r} is not a valid number",
            where=f"--{name.replace('_', '-')}",
            mend="a number or none",
        ) from None


def _when(text: str, where: str) -> float:
    """Unix seconds of a date and time, or of so long ago. Raises BadInput."""
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        return max(time.time() - parse_duration(text, where=where) / SECOND, 0.0)


def _hours(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}"


@click.command(
    epilog="\b\nExamples:\n  ganger usage\n  ganger usage --price A100=2.5 --price V100=1"
    "\n  ganger usage --since 2026-05-01 --until 2026-06-01 --csv > may.csv"
    "\n  ganger usage --cost --energy"
)
@click.option(
    "--price",
    "prices",
    multiple=True,
    metavar="TYPE=PRICE",
    help="Price of one GPU-hour of this type. Default: the price in the cluster file. Repeatable.",
)
@click.option("--since", metavar="TIME", help="Count from this time: 2026-05-01, or 7d (ago).")
@click.option("--until", metavar="TIME", help="Count up to this time.")
@click.option(
    "--cost", is_flag=True, help="Show what each tenant's jobs cost, and all together, and no more."
)
@click.option(
    "--energy",
    is_flag=True,
    help="The same of energy and carbon, with where the watts come from. May stand beside --cost.",
)
@click.option("--csv", "as_csv", is_flag=True, help="Print CSV.")
@_json
def usage(
    prices: tuple[str, ...],
    since: str | None,
    until: str | None,
    cost: bool,
    energy: bool,
    as_csv: bool,
    as_json: bool,
) -> None:
    """Show GPU-hours and cost by tenant (as sreport): useful, lost, idle.

    Lost is work that a preemption or a failure undid. Idle is time in which a job started, stopped,
    was suspended, or did nothing with its GPUs. With --since or --until, only the time that
    attempts held GPUs within the period is shown, without this split.

    Energy is of the GPUs that jobs held, with their part of the node: idle watts, and those at full
    load while a job computes (with --since or --until: all the time). What nobody held is not
    in it.
    """
    query: dict[str, Any] = {"prices": ",".join(prices)}
    for name, text in (("since", since), ("until", until)):
        if text:
            query[name] = _when(text, f"--{name}")
    found = Client().call("GET", "/v1/usage", list[Usage], query=query)
    if as_json:
        print_json(found)
        return
    if cost or energy:
        _print_bills(found, cost=cost, energy=energy, as_csv=as_csv)
        return
    rows = [
        (
            one.tenant,
            str(one.jobs),
            f"{one.gpu_hours:.3f}",
            _hours(one.useful_gpu_hours),
            _hours(one.lost_gpu_hours),
            _hours(one.idle_gpu_hours),
            " ".join(f"{kind}={hours:.3f}" for kind, hours in sorted(one.by_type.items())),
            "" if one.cost is None else f"{one.cost:.2f}",
        )
        for one in found
    ]
    titles = ("TENANT", "JOBS", "GPU-HOURS", "USEFUL", "LOST", "IDLE", "TYPES", "COST")
    _print(titles, rows, as_csv=as_csv, shrink=(6, 0))


def _print(
    titles: tuple[str, ...],
    rows: Sequence[tuple[str, ...]],
    *,
    as_csv: bool,
    shrink: tuple[int, ...],
) -> None:
    if as_csv:
        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerow(title.lower().replace("-", "_") for title in titles)
        writer.writerows(rows)
        return
    shown = [tuple(cell or "-" for cell in row) for row in rows]
    click.echo(table(titles, shown, shrink=shrink))


def _print_bills(rows: list[Usage], *, cost: bool, energy: bool, as_csv: bool) -> None:
    """What tenants' jobs cost and drew, and in the last row all of it (not in CSV)."""
    titles = ["TENANT", "JOBS", "GPU-HOURS", *["COST"] * cost, *["KWH", "CO2-KG"] * energy]
    bills = [(row.cost, row.energy_kwh, row.carbon_kg) for row in rows]
    known = [None not in column for column in zip(*bills, strict=True)]
    all_of_it = [
        sum(value or 0.0 for value in column) if whole else None
        for column, whole in zip(zip(*bills, strict=True), known, strict=True)
    ]
    cells = [
        (row.tenant, str(row.jobs), f"{row.gpu_hours:.3f}", *_bill(bill, cost, energy))
        for row, bill in zip(rows, bills, strict=True)
    ]
    if rows and not as_csv:
        jobs, hours = sum(row.jobs for row in rows), sum(row.gpu_hours for row in rows)
        cells.append(("all", str(jobs), f"{hours:.3f}", *_bill(all_of_it, cost, energy)))
    _print(tuple(titles), cells, as_csv=as_csv, shrink=(0,))
    if cost and not as_csv:
        _print_unpriced(rows)
    if energy and not as_csv:
        for source in dict.fromkeys(row.energy_source for row in rows):
            click.echo(source)


def _print_unpriced(rows: list[Usage]) -> None:
    """Why there is no cost, if there is none."""
    priced = {kind for row in rows if row.cost is not None for kind in row.by_type}
    lacks = {kind for row in rows if row.cost is None for kind in row.by_type} - priced
    if lacks:
        kinds = " or ".join(sorted(lacks))
        click.echo(
            f"- No price of {kinds} is known: give --price TYPE=PRICE, or state prices in the"
            " cluster file."
        )


def _bill(figures: Sequence[float | None], cost: bool, energy: bool) -> list[str]:
    """Cost, energy and carbon as cells, of those that are asked for."""
    paid, kwh, carbon = figures
    money = ["" if paid is None else f"{paid:.2f}"] * cost
    return money + ["" if drawn is None else f"{drawn:.3f}" for drawn in (kwh, carbon)] * energy


@click.command(
    epilog="\b\nExamples:\n  ganger policy idle\n  ganger policy idle --after 30m --do release"
)
@click.option(
    "--do",
    "action",
    type=click.Choice(["off", "warn", "release", "cancel"]),
    help="What happens to an idle job: nothing (off), a warning in status, webhooks and e-mail "
    "(warn), save and hold (release), or cancel.",
)
@click.option(
    "--after",
    metavar="TIME",
    type=SPAN,
    help="A job is idle when it has done nothing for this time: 30m.",
)
@click.option(
    "--gpu",
    type=float,
    help="Doing nothing means: using less than this fraction of the time of its GPUs.",
)
@click.option(
    "--cores",
    type=float,
    help="Where GPUs are not measured, doing nothing means: using fewer cores than this.",
)
@_json
def idle(
    action: str | None, after: str | None, gpu: float | None, cores: float | None, as_json: bool
) -> None:
    """Show idle jobs and what happens to them, or change the rule."""
    seconds = parse_duration(after, where="--after") / SECOND if after else None
    changes = {"action": action, "after": seconds, "gpu": gpu, "cores": cores}
    body = {name: value for name, value in changes.items() if value is not None}
    if body:
        found = Client().call("PATCH", "/v1/idle", IdleAnswer, body=body)
    else:
        found = Client().call("GET", "/v1/idle", IdleAnswer)
    if as_json:
        print_json(found)
        return
    click.echo(
        f"{found.action} after {clock(found.after)} with less than {found.gpu:g} of the"
        f" GPUs' time, or {found.cores:g} cores"
    )
    if found.jobs:
        rows = [
            (one.label, one.name, one.user, str(one.gpus), clock(one.idle_seconds))
            for one in found.jobs
        ]
        click.echo(table(("JOBID", "NAME", "USER", "GPUS", "IDLE"), rows, shrink=(1, 2)))
