"""`ganger replay`."""

from __future__ import annotations

from pathlib import Path

import click


@click.command(
    epilog="\b\nExamples:\n  ganger simulate jobs.csv --cluster 2x8xV100 --recipe las --log run.log"
    "\n  ganger replay run.log --check\n  ganger replay ~/.local/state/ganger/journal.db --check"
)
@click.argument("log", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--check", is_flag=True, help="Exit with 1 at the first plan that differs.")
def replay(log: Path, check: bool) -> None:
    """Replay the events of LOG under its policy, and compare every plan with the recorded one.

    LOG is what `ganger simulate --log` wrote, or a daemon's journal: `$GANGER_HOME/journal.db`.
    """
    from ganger.lab.log import Divergence

    with log.open("rb") as file:
        live = file.read(15) == b"SQLite format 3"
    try:
        steps = _live(log) if live else _simulated(log)
    except Divergence as error:
        click.echo(f"diverged: {error}", err=True)
        raise SystemExit(1 if check else 0) from None
    click.echo(f"{steps} steps replayed, every plan is the same")


def _simulated(log: Path) -> int:
    from ganger.lab.log import replay as decide_again

    return decide_again(log)


def _live(log: Path) -> int:
    from ganger.service.durable.journal import Journal
    from ganger.service.durable.recovery import check_history

    journal = Journal(log, readonly=True)
    try:
        return check_history(journal)
    finally:
        journal.close()
