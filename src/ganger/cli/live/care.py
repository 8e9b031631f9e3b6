"""`ganger backup`, `restore`, `doctor`: looking after a daemon's home."""

from __future__ import annotations

import time
from pathlib import Path

import click

from ganger.cli.text import print_json
from ganger.client.places import Places, home
from ganger.client.shown import shown

_json = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
_file = click.Path(dir_okay=False, path_type=Path)


@click.command(epilog="\b\nExamples:\n  ganger backup /backups/ganger-$(date +%F).db")
@click.argument("file", type=_file)
@click.option("--force", is_flag=True, help="Write over FILE.")
@_json
def backup(file: Path, force: bool, as_json: bool) -> None:
    """Copy the journal to FILE, whole and durable; the daemon may run meanwhile.

    The journal holds jobs, history, settings and hashes of tokens: FILE is for its owner only.
    notify.toml, logs and checkpoints are not in it.
    """
    from ganger.service.durable.backup import backup as copy

    found = copy(Places(home()), file, force=force)
    if as_json:
        print_json(found)
        return
    click.echo(f"{found.path}: {found.bytes:,} bytes, {_jobs(found.jobs)},"
               f" until {_when(found.until)}")  # fmt: skip


@click.command(epilog="\b\nExamples:\n  ganger down && ganger restore ganger-2026-05-01.db")
@click.argument("file", type=_file)
@_json
def restore(file: Path, as_json: bool) -> None:
    """Go back to the backup FILE; the daemon must be down.

    The present journal is kept beside it. Jobs that were accepted after the backup are not known
    any more and are stopped; their numbers are not given to others. What ran when the backup was
    made, and runs no more, ends as it ended, or starts again.
    """
    from ganger.service.durable.backup import restore as put_back

    found = put_back(Places(home()), file)
    if as_json:
        print_json(found)
        return
    click.echo(f"{found.path}: {_jobs(found.jobs)}, until {_when(found.until)}")
    if found.kept:
        click.echo(f"the journal that was there is {found.kept}")


@click.command(epilog="\b\nExamples:\n  ganger doctor\n  ganger doctor --json")
@_json
def doctor(as_json: bool) -> None:
    """Look at the home, the journal, permissions, disk, clock, daemon, agent, cgroups and Slurm.

    A line for each: ok, warn or fail, and what mends it. Changes nothing. Exits with 1 if something
    fails.
    """
    from ganger.service.reports.doctor import examine

    found = examine(Places(home()))
    if as_json:
        print_json(found)
    for one in () if as_json else found:
        click.echo(f"{one.level:4}  {one.about}: {shown(one.said)}")
        if one.mend and one.level != "ok":
            click.echo(f"      {shown(one.mend)}")
    if any(one.level == "fail" for one in found):
        raise SystemExit(1)


def _jobs(number: int) -> str:
    return f"{number:,} job{'s' if number != 1 else ''}"


def _when(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(seconds))
