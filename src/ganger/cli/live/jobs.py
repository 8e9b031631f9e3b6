"""`ganger queue`, `show`, `logs`, `wait`, `history` and what people order of jobs."""

from __future__ import annotations

import os
import pwd
import sys
import time
from math import inf
from typing import Any, Final

import click

from ganger.cli import completion
from ganger.cli.columns import format_options, gpus, ran, say, where_or_why
from ganger.cli.text import WATCH_SECONDS, clock, day, moment, print_json, table, times, watch
from ganger.cli.words import SPAN
from ganger.client.answers import Changed, JobDetail, JobPage
from ganger.client.connection import Client, NoDaemon
from ganger.client.grid import spoken
from ganger.client.shown import shown
from ganger.core.errors import BadInput
from ganger.core.units import SECOND, parse_duration

_A_TIME: Final = 1000
"""So many jobs are named in one request."""
AWAY_SECONDS: Final = 20.0
"""`wait` gives a daemon that is being restarted so long to come back."""
_json = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
_jobs = click.argument(
    "jobs", nargs=-1, required=True, metavar="JOB...", shell_complete=completion.jobs
)
_watch = click.option("--watch", "-w", "again", is_flag=True, help="Refresh every 2 s.")


def path_of(jobs: tuple[str, ...] | list[str]) -> str:
    """The jobs as the API's path has them."""
    from urllib.parse import quote

    return quote(",".join(job for word in jobs for job in word.split(",") if job), safe=",")


def _listing(client: Client, query: dict[str, Any], limit: int) -> JobPage:
    """A page of up to `limit` jobs, put together from as many answers as it takes."""
    first = {**query, "limit": min(limit, 1000)}
    page: JobPage = client.call("GET", "/v1/jobs", JobPage, query=first)
    while page.next is not None and len(page.jobs) < limit:
        wanted = min(limit - len(page.jobs), 1000)
        more = client.call(
            "GET", "/v1/jobs", JobPage, query={**query, "limit": wanted, "offset": page.next}
        )
        page.jobs += more.jobs
        page.next = more.next
    return page


_CHOICES = (
    click.option("--state", "-t", default="", help="States by name or code, separated by commas: "
        "running,PD; or active, over, all."),
    click.option("--user", "-u", default="", help="Only jobs of this user."),
    click.option("--me", is_flag=True, help="Only your own jobs."),
    click.option("--tenant", "-A", "--account", default="", help="Only jobs of this tenant."),
)  # fmt: skip
_PART = click.option("--name", "-n", default="", help="Only jobs with this text in their name.")
_LIMIT = click.option(
    "--limit", "-l", default=100, show_default=True, help="Show at most this many jobs."
)


def _mine(filters: dict[str, Any], me: bool) -> dict[str, Any]:
    """The filters, with this user's name for `--me`."""
    if me:
        filters["user"] = pwd.getpwuid(os.getuid()).pw_name
    return filters


def _choices(command: Any) -> Any:
    for option in reversed(_CHOICES):
        command = option(command)
    return command


def _filtered(command: Any) -> Any:
    return _choices(_PART(_LIMIT(command)))


@click.command(
    epilog="\b\nExamples:\n  ganger queue\n  ganger queue -t running -u ann --json\n"
    "  ganger queue --watch\n  ganger queue --start\n  ganger queue -o '%.8i %j %T %R'"
)
@_filtered
@click.option("--all", "everything", is_flag=True, help="Also show jobs that are over.")
@click.option("--jobs", "-j", default="", metavar="LIST", help="Only these jobs: 12,14_3.")
@click.option("--start", is_flag=True, help="Show when waiting jobs are expected to start.")
@format_options
@_watch
@_json
def queue(
    everything: bool,
    start: bool,
    again: bool,
    as_json: bool,
    limit: int,
    me: bool,
    format_: str | None,
    noheader: bool,
    parsable: bool,
    **filters: str,
) -> None:
    """List running and waiting jobs, and why they wait (as squeue)."""
    client = Client()
    _mine(filters, me)
    if start:
        filters = {**filters, "state": filters["state"] or "PD", "expect": "1"}
    if everything and not filters["state"]:
        filters["state"] = "all"

    def show() -> None:
        page = _listing(client, filters, limit)
        if as_json:
            print_json(page)
            return
        if format_ or parsable or noheader:
            say(page.jobs, format_ or _SQUEUES, noheader, parsable)
            return
        click.echo(_start_table(page) if start else _queue_table(page))
        if page.next is not None:
            click.echo(f"... {page.total - len(page.jobs)} more (--limit)")

    watch(show, WATCH_SECONDS) if again else show()


_SQUEUES: Final = "JobID,Name,User,St,Time,TimeLimit,GPUs,Priority,ReasonList"


def _start_table(page: JobPage) -> str:
    rows = [
        (
            job.label,
            job.name,
            job.user,
            gpus(job),
            moment(job.expected_start),
            moment(job.expected_start_low),
            moment(job.expected_start_high),
            where_or_why(job),
        )
        for job in page.jobs
    ]
    titles = ("JOBID", "NAME", "USER", "GPUS", "START", "EARLIEST", "LATEST", "NODELIST(REASON)")
    return table(titles, rows, shrink=(1, 7, 2))


def _queue_table(page: JobPage) -> str:
    rows = [
        (
            job.label,
            job.name,
            job.user,
            job.code,
            ran(job),
            clock(job.time_limit),
            gpus(job),
            str(job.priority),
            where_or_why(job),
        )
        for job in page.jobs
    ]
    titles = ("JOBID", "NAME", "USER", "ST", "TIME", "LIMIT", "GPUS", "PRIO", "NODELIST(REASON)")
    return table(titles, rows, shrink=(1, 8, 2))


@click.command(
    epilog="\b\nExamples:\n  ganger history --me --since 2d\n  ganger history -t failed --json\n"
    "  ganger history --format JobID,State,ExitCode,Elapsed --parsable2"
)
@_filtered
@click.option(
    "--since", metavar="TIME", type=SPAN, help="Only jobs that ended in the last TIME: 12h, 7d."
)
@click.option("--jobs", "-j", default="", metavar="LIST", help="Only these jobs: 12,14_3.")
@format_options
@_json
def history(
    as_json: bool,
    limit: int,
    me: bool,
    since: str | None,
    format_: str | None,
    noheader: bool,
    parsable: bool,
    **filters: str,
) -> None:
    """List jobs that are over, the latest first (as sacct)."""
    query: dict[str, Any] = _mine({**filters, "state": filters["state"] or "over"}, me)
    if since:
        query["since"] = time.time() - parse_duration(since, where="--since") / SECOND
    page = _listing(Client(), query, limit)
    if as_json:
        print_json(page)
        return
    if format_ or parsable or noheader:
        say(page.jobs, format_ or _SACCTS, noheader, parsable, sacct=True)
        return
    rows = [
        (
            job.label,
            job.name,
            job.user,
            job.code,
            gpus(job),
            day(job.submitted),
            day(job.finished),
            clock(job.ran),
            str(job.preemptions),
            job.reason,
        )
        for job in page.jobs
    ]
    titles = ("JOBID", "NAME", "USER", "ST", "GPUS", "SUBMIT", "END", "RAN", "PREEMPTED", "WHY")
    click.echo(table(titles, rows, shrink=(1, 9, 2, 5, 6)))


_SACCTS: Final = "JobID,JobName,Partition,Account,AllocTRES,State,ExitCode"


@click.command(epilog="\b\nExamples:\n  ganger show 12\n  ganger show 12 14_3 --json")
@_jobs
@_json
def show(jobs: tuple[str, ...], as_json: bool) -> None:
    """Show everything known about jobs (as scontrol show job)."""
    found = Client().call("GET", f"/v1/jobs/{path_of(jobs)}", list[JobDetail])
    if as_json:
        print_json(found)
        return
    click.echo("\n\n".join(_spoken(job) for job in found))


def _spoken(job: JobDetail) -> str:
    stops = sum(one.outcome == "Preempted" for one in job.attempts)
    share = f"{job.share:g} of " if job.share < 1 else ""
    asked = (
        f"{job.cpus:g} CPU{'s' if job.cpus != 1 else ''}" if job.cpus else "",
        f"{job.memory} MiB" if job.memory else "",
    )
    needs = " and ".join(one for one in asked if one)
    limits = f"of {job.least_gpus} to {job.most_gpus}" if job.least_gpus != job.most_gpus else ""
    lines = [
        ("Job", f"{job.label} {job.name}"),
        ("State", job.state + (f" ({job.reason})" if job.reason else "")),
        ("User, tenant", f"{job.user}, {job.tenant}"),
        ("Command", " ".join(["script", *job.command] if job.script else job.command)),
        ("Folder", job.cwd),
        ("Output", job.output),
        ("Error", job.error),
        ("GPUs", f"{share}{job.gpus} {'|'.join(job.gpu_types)} {limits}".strip()),
        ("Workers", f"{job.workers}{', each with ' + needs if needs else ''}"),
        ("Nodes", ", ".join(job.nodes)),
        ("Priority", str(job.priority)),
        ("Submitted", moment(job.submitted)),
        ("Begin", moment(job.begin) if job.begin else ""),
        ("Started", moment(job.started)),
        ("Finished", moment(job.finished) if job.finished else ""),
        ("Ran, waited", f"{clock(job.ran)}, {clock(job.pending)}"),
        ("Time limit", clock(job.time_limit)),
        ("Deadline", moment(job.deadline) if job.deadline else ""),
        ("After", ", ".join(map(str, job.after))),
        ("Parent", str(job.parent) if job.parent else ""),
        ("Parameters", spoken(job.params)),
        ("Children", _counted(job.children)),
        ("Preempted", f"{times(stops)}; then: {job.on_preempt}"),
        ("Exit code", "" if job.exit_code is None else str(job.exit_code)),
        ("Progress", ", ".join(f"{key} {value:g}" for key, value in job.progress.items())),
        ("Rate", _rate(job)),
    ]
    text = [f"{title + ':':13} {shown(value)}" for title, value in lines if value]
    text += _children(job)
    for one in job.attempts:
        how = one.outcome or ("finished" if one.ended else "runs")
        span = f"{moment(one.started)} to {moment(one.ended) if one.ended else 'now'}"
        how += f"; {one.note}" if one.note else ""
        text.append(f"  attempt {one.attempt}: {span} on {' '.join(one.devices)}: {shown(how)}")
    return "\n".join(text)


def _rate(job: JobDetail) -> str:
    """Of a job that its agent holds: how much, and what is left of its speed."""
    if job.rate is None or job.rate >= 1.0:
        return ""
    speed = f", at {job.speed:.1%} of its speed alone" if job.speed is not None else ""
    return f"computes for {job.rate:.0%} of the time{speed}"


def _counted(children: dict[str, int]) -> str:
    return ", ".join(f"{number} {state.lower()}" for state, number in children.items())


def _children(job: JobDetail) -> list[str]:
    """A line for each trial or replica: what it tries, and what it reported last."""
    if job.family is None:
        return []
    rows = [
        (
            str(one.job),
            one.state,
            str(one.gpus or "-"),
            spoken(one.params),
            "-" if one.step is None else f"{one.step:g}",
            "-" if one.value is None else f"{one.value:.6g}",
            "best" * (one.job == job.family.best),
        )
        for one in job.family.children
    ]
    titles = ("JOBID", "STATE", "GPUS", "PARAMETERS", "STEP", job.family.metric or "VALUE", "")
    return table(titles, rows, shrink=(3,)).splitlines()


@click.command(epilog="\b\nExamples:\n  ganger logs -f 12\n  ganger logs 14_3 --lines 50")
@click.argument("job", shell_complete=completion.jobs)
@click.option("--follow", "-f", is_flag=True, help="Follow the output until the job is over.")
@click.option("--lines", "-n", default=0, help="Print only this many last lines.")
@click.option(
    "--error",
    "-e",
    "stream",
    flag_value="error",
    help="Print the error file instead of the output.",
)
@click.option("--attempt", default=0, help="The attempt to read. Default: the last.")
@click.option(
    "--node",
    default="",
    shell_complete=completion.nodes,
    help="Print the output from this node. Default: the first node of the job.",
)
def logs(job: str, follow: bool, lines: int, stream: str | None, attempt: int, node: str) -> None:
    """Print what a job wrote."""
    query = {
        "follow": "1" if follow else "",
        "lines": lines or "",
        "stream": stream or "output",
        "attempt": attempt or "",
        "node": node,
    }
    client, path = Client(), f"/v1/jobs/{path_of([job])}"
    silent = True
    for chunk in client.stream(f"{path}/logs", query):
        sys.stdout.buffer.write(chunk)
        sys.stdout.flush()
        silent = False
    found = client.call("GET", path, list[JobDetail])[0]
    if silent and found.started is None:
        why = found.reason or found.state.lower()
        click.echo(f"ganger: job {found.label} has not started ({why})", err=True)
    for one in found.attempts:
        if one.note and one.attempt == (attempt or found.attempt):
            click.echo(f"ganger: attempt {one.attempt}: {shown(one.note)}", err=True)


@click.command(epilog="\b\nExamples:\n  ganger wait 12 13\n  ganger wait 12 --timeout 3600")
@_jobs
@click.option("--timeout", type=float, help="Give up after this many seconds, with exit code 124.")
def wait(jobs: tuple[str, ...], timeout: float | None) -> None:
    """Wait until jobs are over. The exit code is the worst of theirs."""
    raise SystemExit(wait_for(Client(), list(jobs), timeout))


def wait_for(client: Client, jobs: list[str], timeout: float | None) -> int:
    """Wait; the worst exit code, or 124 after `timeout` seconds. A daemon that goes away for a
    moment is waited for, too."""
    until = inf if timeout is None else time.monotonic() + timeout
    path = f"/v1/jobs/{path_of(jobs)}"
    kind = dict[str, int | None]
    codes = client.call("GET", f"{path}/codes", kind)
    away_since = inf
    while None in codes.values():
        now = time.monotonic()
        if now >= until:
            return 124
        try:
            query = {"timeout": min(until - now, 30.0)}
            client.call("GET", f"{path}/wait", JobPage, query=query)
            codes = client.call("GET", f"{path}/codes", kind)
            away_since = inf
        except NoDaemon:
            away_since = min(away_since, time.monotonic())
            if time.monotonic() > away_since + AWAY_SECONDS:
                raise
            time.sleep(0.2)
    return max((code or 0 for code in codes.values()), default=0)


# ---------------------------------------------------------------------- orders


def _order(verb: str, text: str, past: str) -> click.Command:
    example = f"\b\nExamples:\n  ganger {verb} 12\n  ganger {verb} 12 14_3"

    @click.command(verb, help=text, epilog=example)
    @_jobs
    @_json
    def command(jobs: tuple[str, ...], as_json: bool) -> None:
        found = Client().call("POST", f"/v1/jobs/{path_of(jobs)}/{verb}", Changed)
        _done(found, past, as_json)

    return command


def _done(found: Changed, past: str, as_json: bool) -> None:
    if as_json:
        print_json(found)
        return
    for job in found.waiting:
        click.echo(f"{job} goes on when no other job runs on its GPUs (`ganger explain {job}`)")
    done = [str(job) for job in found.jobs if job not in found.waiting]
    if not found.jobs:
        click.echo(f"{past} nothing: no job matches")
    elif done:
        click.echo(f"{past} {', '.join(done)}" if len(done) <= 10 else f"{past} {len(done)} jobs")


@click.command(epilog="\b\nExamples:\n  ganger cancel 12 14_3\n  ganger cancel --me -t pending")
@click.argument("jobs", nargs=-1, metavar="[JOB]...", shell_complete=completion.jobs)
@_choices
@click.option("--name", "-n", default="", help="Only jobs with exactly this name.")
@_json
def cancel(jobs: tuple[str, ...], me: bool, as_json: bool, **filters: str) -> None:
    """Cancel jobs (as scancel).

    Name jobs, or give a user, state, tenant or name. With both, only the named jobs that match are
    cancelled.
    """
    _mine(filters, me)
    client = Client()
    if not any(filters.values()):
        if not jobs:
            raise BadInput("which jobs?", mend="name jobs, or give --me, -u, -t, -A or -n")
        found = client.call("POST", f"/v1/jobs/{path_of(jobs)}/cancel", Changed)
    else:
        page = _listing(client, {**filters, "jobs": ",".join(jobs)}, sys.maxsize)
        wanted = [
            str(job.job)
            for job in page.jobs
            if job.finished is None and filters["name"] in ("", job.name)
        ]
        found = Changed(jobs=[])
        for i in range(0, len(wanted), _A_TIME):
            path = f"/v1/jobs/{path_of(wanted[i : i + _A_TIME])}/cancel"
            found.jobs += client.call("POST", path, Changed).jobs
    _done(found, "cancelled", as_json)


hold = _order("hold", "Hold jobs: they do not start until they are released.", "held")
release = _order("release", "Release held jobs.", "released")
requeue = _order(
    "requeue", "Stop running jobs (they save) and put them back in the queue.", "requeued"
)
suspend = _order(
    "suspend",
    "Freeze running jobs. A suspended job keeps its GPUs. If it was submitted with --gpu-memory, it"
    " keeps only that memory, and other jobs with --gpu-memory may run on its GPUs meanwhile.",
    "suspended",
)


@click.command(epilog="\b\nExamples:\n  ganger resume box-1\n  ganger resume 12")
@click.argument("names", nargs=-1, required=True, metavar="NODE|JOB...")
@_json
def resume(names: tuple[str, ...], as_json: bool) -> None:
    """Resume drained nodes, or suspended jobs."""
    if not all(name.replace("_", "").isdecimal() for name in names):
        from ganger.cli.live.cluster import say_of_nodes

        say_of_nodes(names, "resume", as_json)
        return
    found = Client().call("POST", f"/v1/jobs/{path_of(names)}/resume", Changed)
    _done(found, "resumed", as_json)


@click.command(
    epilog="\b\nExamples:\n  ganger update 12 --priority 5\n  ganger update 12 --time 4h"
)
@_jobs
@click.option(
    "--priority", type=int, help="The new priority. Jobs with a higher priority go first."
)
@click.option("--weight", type=float, help="The new weight in fair shares.")
@click.option(
    "--time",
    "-t",
    "time_limit",
    metavar="TIME|never",
    type=SPAN,
    help="The new time limit. It applies to attempts that start from now on.",
)
@click.option(
    "--estimate", metavar="TIME|never", type=SPAN, help="The new estimate of the run time."
)
@click.option(
    "--deadline", metavar="WHEN|never", help="The new deadline, for recipes that know deadlines."
)
@click.option("--throttle", type=int, help="For an array: this many tasks run at once; 0: all.")
@_json
def update(jobs: tuple[str, ...], as_json: bool, **changes: Any) -> None:
    """Change priority, weight and limits of jobs that are not over."""
    body = {name: value for name, value in changes.items() if value is not None}
    found = Client().call("PATCH", f"/v1/jobs/{path_of(jobs)}", Changed, body=body)
    _done(found, "updated", as_json)
