"""`ganger explain`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import click

from ganger.cli import completion
from ganger.cli.text import clock, folded, moment, print_json, table
from ganger.client.answers import CompanyAnswer, Explanation
from ganger.client.connection import Client
from ganger.client.shown import shown
from ganger.client.why import sentence
from ganger.core.errors import BadInput


@click.command(
    epilog="\b\nExamples:\n  ganger explain 7\n  ganger explain 41 --log run.log --at 1h30m"
    "\n  ganger explain 41 --log journal.db --at 2026-05-01T18:00"
    "\n  ganger explain --slurm 81422_3"
)
@click.argument("job", shell_complete=completion.jobs)
@click.option(
    "--slurm", is_flag=True, help="Explain one of Slurm's own jobs. This needs no daemon."
)
@click.option(
    "--log",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Explain a job of this log: what `ganger simulate --log` wrote, or a daemon's journal."
    " This needs no daemon.",
)
@click.option(
    "--at",
    metavar="TIME",
    help="The time in the log: since its begin, like 1h30m; of a journal like 2026-05-01T18:00."
    " Default: when the job last waited.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def explain(job: str, slurm: bool, log: Path | None, at: str | None, as_json: bool) -> None:
    """Say why a job waits, which jobs hold what it waits for, and what would change that."""
    if slurm and log is not None:
        raise BadInput("they exclude each other", where="--slurm, --log", mend="give one of them")
    if at is not None and log is None:
        raise BadInput("it is a time in a log", where="--at", mend="give --log, too")
    if slurm:
        from ganger.cli.live.site import explain as say

        say(job, as_json)
        return
    if log is not None:
        _logged(log, job, at, as_json)
        return
    from ganger.cli.live.jobs import path_of

    found = Client().call("GET", f"/v1/jobs/{path_of([job])}/explain", Explanation)
    if as_json:
        print_json(found)
    else:
        say_why(found)


def _logged(log: Path, job: str, at: str | None, as_json: bool) -> None:
    """Explain a job of a log: of a simulation, whose times count from zero, or of a daemon."""
    with log.open("rb") as file:
        live = file.read(15) == b"SQLite format 3"
    found = (_of_a_journal if live else _of_a_simulation)(log, job, at)
    if as_json:
        print_json(found)
    else:
        say_why(found, moment if live else clock)


def _of_a_simulation(log: Path, job: str, at: str | None) -> Explanation:
    from ganger.core.units import parse_duration
    from ganger.lab.ahead.logged import explain_logged

    return explain_logged(log, job, None if at is None else parse_duration(at, where="--at"))


def _of_a_journal(log: Path, job: str, at: str | None) -> Explanation:
    from ganger.service.durable.journal import Journal
    from ganger.service.jobs.submission import moment as moment_of
    from ganger.service.reports.journalled import explain_journalled

    time = None if at is None else moment_of(at, 0, "--at", 0)
    journal = Journal(log, readonly=True)
    try:
        return explain_journalled(journal, job, time)
    finally:
        journal.close()


def _company_table(company: list[CompanyAnswer]) -> str:
    """The jobs on the same GPUs, the one that was asked for first."""

    def part(value: float | None) -> str:
        return "-" if value is None else f"{value:.1%}"

    rows = [
        (
            shown(one.label),
            shown(one.model) or "-",
            one.standing or "-",
            part(one.rate),
            part(one.speed),
            part(one.believed),
        )
        for one in company
    ]
    return table(("JOB", "MODEL", "CLASS", "RATE", "MEASURED", "BELIEVED"), rows, shrink=(1, 0))


def say_why(found: Explanation, when: Callable[[float], str] = moment) -> None:
    """Print an explanation for people. `when` writes a time."""
    reason = f" ({shown(found.reason)})" if found.reason else ""
    at = f" at {when(found.at)} of the log" if found.at is not None else ""
    click.echo(f"job {shown(found.label)}{at}: {found.state}{reason}")
    why = sentence(found, when)
    for line in ([f"It {why}."] if why else []) + found.lines:
        click.echo(folded(shown(line)))
    if found.company:
        click.echo(_company_table(found.company))
    if found.expected_start is not None:
        low, high = moment(found.expected_start_low), moment(found.expected_start_high)
        click.echo(folded(f"Expected start: {moment(found.expected_start)} ({low} to {high})."))
