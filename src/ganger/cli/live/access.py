"""`ganger daemon token`, `admin`, `notify`: which users may ask the daemon, and which get
messages."""

from __future__ import annotations

from urllib.parse import quote

import click

from ganger.cli.text import moment, print_json, table
from ganger.client.answers import NotifyAnswer, RolesAnswer, TokenAnswer
from ganger.client.connection import Client
from ganger.core.errors import BadInput

_json = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


@click.command(
    epilog="\b\nExamples:\n  ganger daemon token\n  ganger daemon token --new ann"
    "\n  ganger daemon token --new ann --role admin\n  ganger daemon token --revoke 1a2b3c4d"
)
@click.option("--new", "user", metavar="USER", help="Make a token for this user. It is shown once.")
@click.option(
    "--role",
    type=click.Choice(["user", "admin"]),
    default="user",
    show_default=True,
    help="What the token allows: commands on the user's own jobs (user), or everything (admin).",
)
@click.option("--revoke", metavar="ID", help="Revoke the token with this number.")
@_json
def token(user: str | None, role: str, revoke: str | None, as_json: bool) -> None:
    """List, make or revoke tokens for TCP (`ganger up --listen`). Only hashes are kept.

    Without `ganger up --shared` a token allows everything, so give --role admin.
    """
    if user and revoke:
        raise BadInput("it cannot be combined with --new", where="--revoke")
    if user:
        body = {"user": user, "role": role}
        made = Client().call("POST", "/v1/tokens", TokenAnswer, body=body)
        if as_json:
            print_json(made)
        else:
            click.echo(made.token)
            click.echo(
                f"token {made.id} of {made.user} ({made.role}): it is not shown again", err=True
            )
        return
    if revoke:
        found = Client().call("DELETE", f"/v1/tokens/{quote(revoke, safe='')}", RolesAnswer)
    else:
        found = Client().call("GET", "/v1/roles", RolesAnswer)
    if as_json:
        print_json(found.tokens)
        return
    rows = [(one.id, one.user, one.role, moment(one.made)) for one in found.tokens]
    click.echo(table(("ID", "USER", "ROLE", "MADE"), rows, shrink=(1,)))


@click.command(
    epilog="\b\nExamples:\n  ganger daemon admin\n  ganger daemon admin ann"
    "\n  ganger daemon admin ann --revoke"
)
@click.argument("user", required=False)
@click.option("--revoke", is_flag=True, help="Take the rights of an administrator from USER.")
@_json
def admin(user: str | None, revoke: bool, as_json: bool) -> None:
    """List administrators, or make USER an administrator.

    Administrators may change nodes, the policy and the jobs of others. Root and the user of the
    daemon are always administrators.
    """
    if user is None and revoke:
        raise BadInput("whose?", where="--revoke", mend="name the user")
    if user is None:
        found = Client().call("GET", "/v1/roles", RolesAnswer)
    else:
        verb = "DELETE" if revoke else "PUT"
        found = Client().call(verb, f"/v1/admins/{quote(user, safe='')}", RolesAnswer)
    print_json(found.admins) if as_json else click.echo("\n".join(found.admins) or "nobody else")


@click.command(epilog="\b\nExamples:\n  ganger daemon notify\n  ganger daemon notify --test")
@click.option("--test", is_flag=True, help="Send a test message to every receiver.")
@_json
def notify(test: bool, as_json: bool) -> None:
    """Show the receivers of messages about jobs: the webhooks and e-mail addresses of
    $GANGER_HOME/notify.toml."""
    method, path = ("POST", "/v1/notify/test") if test else ("GET", "/v1/notify")
    found = Client().call(method, path, NotifyAnswer)
    if as_json:
        print_json(found)
    else:
        rows = [
            (one.name, ",".join(one.events), str(one.waiting), one.last_error)
            for one in found.sinks
        ]
        click.echo(table(("RECEIVER", "EVENTS", "WAITING", "LAST ERROR"), rows, shrink=(3, 1, 0)))
        if found.set_aside:
            click.echo("\nset aside, because they can never be sent:")
            aside = [
                (str(one.number), one.sink, moment(one.made), one.about, one.error)
                for one in found.set_aside
            ]
            click.echo(table(("MESSAGE", "TO", "MADE", "ABOUT", "WHY"), aside, shrink=(3, 4)))
    if found.error:
        click.echo(f"ganger: {found.error}", err=True)
        raise SystemExit(1)
