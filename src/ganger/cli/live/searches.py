"""Searches by their numbers, and `ganger tune export`."""

from __future__ import annotations

from pathlib import Path

import click

from ganger.cli import completion
from ganger.cli.live.jobs import path_of
from ganger.client.answers import JobDetail, ReportAnswer
from ganger.client.connection import Client
from ganger.client.shown import shown
from ganger.core.errors import BadInput


def search_named(client: Client, search: str) -> JobDetail:
    """A search. Raises BadInput for another job."""
    detail: JobDetail = client.call("GET", f"/v1/jobs/{path_of([search])}", list[JobDetail])[0]
    if detail.kind != "tune":
        raise BadInput(f"job {detail.label} is not a search", mend="see `ganger tune list`")
    return detail


@click.command(
    epilog="\b\nExamples:\n  ganger tune export 12 curves.csv\n  ganger tune export 12 study.db"
)
@click.argument("search", metavar="SEARCH", shell_complete=completion.jobs)
@click.argument("file", type=click.Path(path_type=Path))
def export(search: str, file: Path) -> None:
    """Write what trials tried and reported to FILE: a table of curves, as `ganger simulate
    --curves` reads it (.csv, .parquet), or a study of Optuna (.db)."""
    from ganger.lab.tuning.export import Tried, write

    client = Client()
    detail = search_named(client, search)
    family = detail.family
    children = family.children if family is not None else []
    more = family is not None and family.more_is_better
    metric = family.metric if family is not None and family.metric else "value"
    trials = {
        each.job: Tried(str(each.job), each.params, ended=each.state == "COMPLETED")
        for each in children
    }
    path, after = f"/v1/jobs/{detail.job}/reports", 0
    while reports := client.call("GET", path, list[ReportAnswer], query={"after": after}):
        after = reports[-1].id
        for report in (each for each in reports if each.job in trials):
            values = {**report.metrics, metric: report.value}
            trials[report.job].hear(report.step, report.seconds, values)
    many = write(file, list(trials.values()), metric, more_is_better=more)
    click.echo(f"{many} trials of search {detail.job} are in {shown(str(file))}")
