"""Searches by their numbers, what `ganger tune` writes of them (`export`, `report`), and what it
removes of them (`prune`)."""

from __future__ import annotations

import re
import shlex
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from ganger.cli import completion
from ganger.cli.live.jobs import path_of
from ganger.cli.text import clock, print_json, table
from ganger.client.answering.families import ChildAnswer, FamilyAnswer, ReportAnswer
from ganger.client.answers import JobDetail, NodeAnswer, Status
from ganger.client.connection import Client, NoDaemon, Refusal
from ganger.client.grid import spoken
from ganger.client.shown import shown
from ganger.client.states import OVER
from ganger.core.errors import BadInput

if TYPE_CHECKING:
    from ganger.lab.tuning.export import Tried
    from ganger.lab.tuning.own_searcher import Asked, Make
    from ganger.workloads.experiment.reading import Experiment

_ROWS: Final = 10
_AT_ONCE = 100
"""So many jobs are asked for in one request."""


def search_named(client: Client, search: str) -> JobDetail:
    """A search. Raises BadInput for another job."""
    detail: JobDetail = client.call("GET", f"/v1/jobs/{path_of([search])}", list[JobDetail])[0]
    if detail.kind != "tune":
        raise BadInput(f"job {detail.label} is not a search", mend="see `ganger tune list`")
    return detail


def note_apart(client: Client) -> None:
    """Say that copies of trials may find nothing, where nodes are several and none knows of a
    folder that all see."""
    if client.call("GET", "/v1/status", Status).nodes > 1:
        click.echo(
            "ganger: without --checkpoints a copy on another machine than the trial that it copies"
            " finds nothing saved, and begins anew",
            err=True,
        )


def fitted(experiment: Experiment, gpus: int) -> Experiment:
    """The experiment on a cluster of `gpus` GPUs. At most as many trials run at once as fit there,
    and they fill whole GPUs."""
    from dataclasses import replace

    import msgspec

    document = experiment.document
    each = document.resources
    fit = max(min(document.parallelism, gpus // each.gpus * each.per_gpu), each.per_gpu)
    return replace(experiment, document=msgspec.structs.replace(document, parallelism=fit))


def trials_of(client: Client, search: JobDetail) -> list[JobDetail]:
    """Its trials, each with all about it."""
    jobs = [str(child.job) for child in search.family.children] if search.family else []
    details = list[JobDetail]()
    for first in range(0, len(jobs), _AT_ONCE):
        path = f"/v1/jobs/{path_of(jobs[first : first + _AT_ONCE])}"
        details += client.call("GET", path, list[JobDetail])
    return details


def going_on(client: Client, search: str) -> JobDetail:
    """The search of that number. Raises BadInput where it is over."""
    detail = search_named(client, search)
    if detail.state in OVER:
        raise BadInput(f"search {detail.job} is over: {detail.state.lower()}")
    return detail


def reports_of(client: Client, search: JobDetail) -> Iterator[ReportAnswer]:
    """All that its trials reported, in order."""
    path, after = f"/v1/jobs/{search.job}/reports", 0
    while reports := client.call("GET", path, list[ReportAnswer], query={"after": after}):
        yield from reports
        after = reports[-1].id


def tried_in(client: Client, search: JobDetail) -> tuple[str, list[Tried]]:
    """By which metric the trials of a search are judged; what each tried and reported."""
    from ganger.lab.tuning.export import Tried

    family = search.family
    metric = family.metric if family is not None and family.metric else "value"
    trials = {
        each.job: Tried(str(each.job), each.params, ended=each.state == "COMPLETED")
        for each in (family.children if family is not None else ())
    }
    for report in reports_of(client, search):
        if report.job in trials:
            values = {**report.metrics, metric: report.value}
            trials[report.job].hear(report.step, report.seconds, values)
    return metric, list(trials.values())


def earlier(
    client: Client, searches: tuple[str, ...], fields: dict[str, Any]
) -> list[dict[str, Any]]:
    """What trials of earlier searches reported last. Raises BadInput."""
    if not fields.get("searcher"):
        raise BadInput(
            "the searcher learns from no reports",
            where="--warm-start",
            mend="use --searcher kde, tpe, gp or cma-es",
        )
    if fields["searcher"] == "client":
        raise BadInput(
            "a searcher of your own gets the reports of this search only",
            where="--warm-start",
            mend="let it read what it should know, as `ganger tune export` writes it",
        )
    trials = list[dict[str, Any]]()
    for search in searches:
        family = search_named(client, search).family
        for child in family.children if family is not None else ():
            if child.step is not None:
                trials.append({"params": child.params, "step": child.step, "value": child.value})
    if not trials:
        raise BadInput("no trial of it has reported", where="--warm-start", mend="name another")
    return trials


def asked_here(job: int, make: Make, name: str) -> Asked:
    """A user's searcher for a search. What is wrong with it ends that: raises BadInput."""
    from ganger.lab.tuning.own_searcher import Asked, stopped_with

    client = Client()
    try:
        return Asked(client, job, make, name)
    except Refusal:
        raise
    except BadInput as error:
        raise stopped_with(client, job, error) from error


def propose(client: Client, job: int, asked: Asked) -> None:
    """Let a searcher propose what is wanted now. What is wrong with it ends the search: raises
    BadInput."""
    from ganger.lab.tuning.own_searcher import stopped_with

    try:
        asked.look()
    except NoDaemon:
        return  # it may be restarted
    except Refusal:
        return  # the search is over, or another process proposes for it
    except BadInput as error:
        raise stopped_with(client, job, error) from error


def no_best(search: JobDetail) -> BadInput:
    """Why no trial of a search is the best."""
    family = search.family
    if family is not None and any(each.value is not None for each in family.children):
        kept = " and ".join(family.constraints)
        return BadInput(f"no trial of search {search.label} keeps {shown(kept)}")
    return BadInput(f"no trial of search {search.label} has reported yet")


def best_trial(search: JobDetail) -> ChildAnswer | None:
    """The trial that reported the best value last."""
    if search.family is None:
        return None
    return next((each for each in search.family.children if each.job == search.family.best), None)


def said_of(child: ChildAnswer) -> str:
    """What a trial reported last, after how many steps, with which parameters."""
    value = "-" if child.value is None else f"{child.value:.6g}"
    return f"{value} after step {child.step or 0:g}, job {child.job} ({spoken(child.params)})"


def counted(children: dict[str, int]) -> str:
    """How many trials are in which state."""
    return ", ".join(f"{n} {state.lower().replace('_', ' ')}" for state, n in children.items())


def summary(search: JobDetail) -> str:
    """The state of a search and its best trials."""
    children = search.family.children if search.family is not None else []
    counts = counted(search.children)
    lines = [
        f"search {search.job} {shown(search.name)}: {search.state.lower()},"
        f" ran {clock(search.ran)}; trials: {counts or 'none yet'}"
    ]
    if search.family is not None and search.family.ended_by:
        lines.append(f"ended by {search.family.ended_by}")
    child, metric = best_trial(search), search.family.metric if search.family is not None else ""
    if child is not None:
        lines.append(f"best: {shown(said_of(child))}")
    elif any(each.value is not None for each in children):
        lines.append(str(no_best(search)))
    elif children:
        failed = next((each.job for each in children if each.state == "FAILED"), None)
        why = f"they print {metric}=NUMBER, or call sdk.report; see"
        if failed is not None:
            why = "trials failed; why is in"
        job = children[0].job if failed is None else failed
        lines.append(f"no trial has reported {metric}: {why} `ganger logs {job}`")
    reported = [each for each in children if each.value is not None]
    family = search.family
    if family is not None and reported and (family.metrics or family.constraints):
        return "\n".join([*lines, goals_table(family)])
    if child is not None and reported:
        falls = all((each.value or 0.0) >= (child.value or 0.0) for each in reported)
        reported.sort(key=lambda each: each.value or 0.0, reverse=not falls)
    rows = [
        (str(each.job), each.state, spoken(each.params), f"{each.step or 0:g}", f"{each.value:.6g}")
        for each in reported[:_ROWS]
    ]
    if rows:
        lines.append(
            table(("JOBID", "STATE", "PARAMETERS", "STEP", metric or "VALUE"), rows, shrink=(2,))
        )
    if len(children) > len(rows) > 0:
        more = len(children) - len(rows)
        lines.append(f"({more} more trial{'s' * (more > 1)}: `ganger show {search.job}`)")
    return "\n".join(lines)


def goals_table(family: FamilyAnswer, *, only_front: bool = False) -> str:
    """The trials that reported, those of the Pareto front first, then those that keep the
    constraints: what they reported last of all metrics that count."""
    first = set(family.pareto) if family.metrics else {family.best}
    reported = [
        each
        for each in family.children
        if each.value is not None and (each.job in first or not only_front)
    ]
    sign = -1.0 if family.more_is_better else 1.0
    reported.sort(
        key=lambda each: (each.job not in first, not each.feasible, sign * (each.value or 0.0))
    )
    bounds = (re.split("[<>]=", each)[0] for each in family.constraints)
    names = list(dict.fromkeys([*family.metrics, *bounds]))
    word = "front" if family.metrics else "best"
    rows = [
        (
            str(each.job),
            word if each.job in first else "" if each.feasible else "breaks",
            spoken(each.params),
            f"{each.value:.6g}",
            *(f"{each.metrics[name]:.6g}" if name in each.metrics else "" for name in names),
        )
        for each in reported[: _ROWS if not only_front else None]
    ]
    titles = ("JOBID", "", "PARAMETERS", family.metric or "VALUE", *names)
    said = table(titles, rows, shrink=(2,))
    if family.constraints:
        said += f"\n(breaks: not {shown(' and '.join(family.constraints))})"
    return said


def print_front(family: FamilyAnswer, *, as_json: bool) -> None:
    """Print the trials of the Pareto front. Raises BadInput where one metric counts."""
    if not family.metrics:
        raise BadInput(
            "one metric counts in this search",
            where="--pareto",
            mend="state others with --also, or as `metrics` of the file",
        )
    if as_json:
        print_json([each for each in family.children if each.job in family.pareto])
        return
    click.echo(goals_table(family, only_front=True))


@click.command(
    epilog="\b\nExamples:\n  ganger tune export 12 curves.csv\n  ganger tune export 12 study.db"
    "\n  ganger tune export 12 --tensorboard runs/12\n  ganger tune export 12 --mlflow mlruns"
)
@click.argument("search", metavar="SEARCH", shell_complete=completion.jobs)
@click.argument("file", type=click.Path(path_type=Path), required=False)
@click.option("--tensorboard", type=click.Path(path_type=Path), metavar="FOLDER",
    help="Write events for TensorBoard into this new folder.")  # fmt: skip
@click.option("--mlflow", default="", metavar="FOLDER|URL",
    help="Make a run in MLflow for each trial.")  # fmt: skip
def export(search: str, file: Path | None, tensorboard: Path | None, mlflow: str) -> None:
    """Write what trials tried and reported to FILE: a table of curves, as `ganger simulate
    --curves` reads it (.csv, .parquet), or a study of Optuna (.db); or into TensorBoard or
    MLflow."""
    from ganger.lab.tuning.export import write
    from ganger.lab.tuning.trackers import Search, to_mlflow, to_tensorboard

    if file is None and tensorboard is None and not mlflow:
        raise BadInput("where to?", where="FILE", mend="name one, or --tensorboard or --mlflow")
    client = Client()
    detail = search_named(client, search)
    more = detail.family is not None and detail.family.more_is_better
    metric, tried = tried_in(client, detail)
    of = f"trials of search {detail.job} are in"
    if file is not None:
        many = write(file, tried, metric, more_is_better=more)
        click.echo(f"{many} {of} {shown(str(file))}")
    if tensorboard is None and not mlflow:
        return
    began = {str(job.job): job.started or detail.submitted for job in trials_of(client, detail)}
    written = Search(detail.name or f"search {detail.job}", detail.job, began)
    if tensorboard is not None:
        click.echo(f"{to_tensorboard(tensorboard, written, tried)} {of} {shown(str(tensorboard))}")
    if mlflow:
        click.echo(f"{to_mlflow(mlflow, written, tried)} {of} {shown(mlflow)}")


@click.command(
    epilog="\b\nExamples:\n  ganger tune report 12 search.html"
    "\n  ganger tune report 12 14 both.html"
)
@click.argument("searches", nargs=-1, required=True, metavar="SEARCH...",
    shell_complete=completion.jobs)  # fmt: skip
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
def report(searches: tuple[str, ...], file: Path) -> None:
    """Write a page about searches to FILE (.html): what was best when, learning curves, rungs,
    which parameters matter, and which trial was on which GPU. A search that runs is shown as it is
    now. Several searches are compared, if they have the same metric."""
    from ganger.lab.origin import origin_of
    from ganger.lab.report.searches.build import write_report
    from ganger.lab.tuning.live_runs import run_of
    from ganger.workloads.files import in_place_of

    if file.suffix not in (".html", ".htm"):
        raise BadInput(
            "the page of a report", where=str(file), mend="end with a name like search.html"
        )
    client = Client()
    gpus = {node.name: node.gpus for node in client.call("GET", "/v1/nodes", list[NodeAnswer])}
    runs = []
    for search in dict.fromkeys(searches):
        detail = search_named(client, search)
        if detail.family is None:
            raise BadInput(f"search {detail.label} has no trial yet")
        trials = trials_of(client, detail)
        runs.append(run_of(detail, trials, list(reports_of(client, detail)), gpus, time.time()))
    command = shlex.join(["ganger", *sys.argv[1:]])
    title = "Searches" if len(runs) > 1 else f"Search: {runs[0].experiment}"
    try:
        with in_place_of(file) as part:
            write_report(runs, part, title, origin_of(command, ()))
    except OSError as error:
        raise BadInput(f"cannot write it: {error.strerror}", where=str(file)) from None
    click.echo(f"the report is {shown(str(file))}")


class Pruning:
    """Removes what is not to be kept, whenever trials of a search have ended."""

    def __init__(self, client: Client, folder: str, keep: str, *, followed: bool) -> None:
        """Raises BadInput for what cannot be."""
        from ganger.lab.tuning.checkpoints import keep_of, refuse_used

        self._client, self._keep = client, keep_of(keep)
        if not followed:
            raise BadInput(
                "nobody follows the search",
                where="--keep",
                mend="leave --detach out, or use `ganger tune prune` later",
            )
        if not folder:
            raise BadInput(
                "of checkpoints in which folder?",
                where="--keep",
                mend="add --checkpoints FOLDER, which this machine sees, too",
            )
        self._folder = Path(folder).absolute()
        refuse_used(self._folder)
        self._over = 0

    def look(self, search: JobDetail) -> None:
        """Remove it, if trials have ended since the last look, and say so."""
        from ganger.lab.tuning.checkpoints import thin

        over = sum(many for state, many in search.children.items() if state in OVER)
        if over == self._over or not self._folder.is_dir():
            return
        self._over = over
        try:
            removed = thin(search, trials_of(self._client, search), self._folder, self._keep)
        except BadInput as error:
            click.echo(f"ganger: no checkpoints are removed: {error}", err=True)
            return
        if removed.jobs:
            click.echo(str(removed), err=True)


@click.command(
    epilog="\b\nExamples:\n  ganger tune prune 12 /scratch/lr --keep best=1,last=2 --dry-run"
    "\n  ganger tune prune 12 /scratch/lr --keep disk=20GiB"
)
@click.argument("search", metavar="SEARCH", shell_complete=completion.jobs)
@click.argument("folder", type=click.Path(path_type=Path))
@click.option("--keep", required=True, metavar="best=N,last=N,disk=SIZE",
    help="The best, the last that ended, and the most that all may take.")  # fmt: skip
@click.option("--dry-run", is_flag=True, help="Only say what would be removed.")
def prune(search: str, folder: Path, keep: str, dry_run: bool) -> None:
    """Remove checkpoints of trials that are over from FOLDER, in which the search saves
    (`--checkpoints` of `ganger tune run`). What a trial saved that goes on, or may be started
    again, and what the best one saved, is kept; and all while trials may begin as copies of
    others."""
    from ganger.lab.tuning.checkpoints import keep_of, thin

    wanted, client = keep_of(keep), Client()
    detail = search_named(client, search)
    removed = thin(detail, trials_of(client, detail), folder, wanted, act=not dry_run)
    click.echo(f"{'would have ' * dry_run}{removed}")
