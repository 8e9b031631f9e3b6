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
@click.option("--force", is_flag=True, help="Overwrite FILE.")
@_json
def backup(file: Path, force: bool, as_json: bool) -> None:
    """Copy the journal to FILE, complete and durable. The daemon may run meanwhile.

    The journal holds jobs, history, settings and hashes of tokens. Only its owner may read FILE.
    notify.toml, logs and checkpoints are not in it.
    """
    from ganger.service.durable.backup import backup as copy

    found = copy(Places(home()), file, force=force)
    if as_json:
        print_json(found)
        return
    click.echo(
        f"{found.path}: {found.bytes:,} bytes, {_jobs(found.jobs)}, until {_when(found.until)}"
    )


@click.command(epilog="\b\nExamples:\n  ganger down && ganger restore ganger-2026-05-01.db")
@click.argument("file", type=_file)
@_json
def restore(file: Path, as_json: bool) -> None:
    """Restore the journal from the backup FILE. The daemon must be down.

    The present journal is kept beside it. Jobs that were accepted after the backup are no longer
    known. They are stopped, and their numbers are not used again. A job that ran when the backup
    was made and is over now gets its recorded end, or starts again if there is none.
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
    """Check the home, the journal, permissions, disk, clock, daemon, agent, cgroups and Slurm.

    Each check prints ok, warn or fail, and how to fix it. Nothing is changed. The exit code is 1
    if a check fails.
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
