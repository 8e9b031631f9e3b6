"""`ganger tune`: searches for hyper-parameters on the cluster, each trial a job."""

from __future__ import annotations

import sys
import time
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn

import click

from ganger.cli import completion
from ganger.cli.experiments import WORDS, experiment_of
from ganger.cli.lab.forecast import forecast_options, refuse_unforecast, show_forecast
from ganger.cli.lazy import Suggesting
from ganger.cli.live.jobs import AWAY_SECONDS
from ganger.cli.live.searches import (
    Pruning,
    asked_here,
    best_trial,
    counted,
    earlier,
    export,
    fitted,
    going_on,
    no_best,
    note_apart,
    print_front,
    propose,
    prune,
    report,
    said_of,
    search_named,
    summary,
)
from ganger.cli.text import clock, moment, print_json, table
from ganger.cli.words import FloatRange
from ganger.client.answers import (
    Changed,
    JobDetail,
    JobPage,
    Status,
    Submitted,
)
from ganger.client.connection import Client, NoDaemon
from ganger.client.environment import environment, variables
from ganger.client.grid import spoken
from ganger.client.shown import shown
from ganger.client.states import OVER
from ganger.core.errors import BadInput

if TYPE_CHECKING:
    from ganger.lab.tuning.own_searcher import Asked

_LOOK_SECONDS: Final = 1.0
_PROPOSE_SECONDS: Final = 0.1
_ENDING_SECONDS: Final = 40.0
"""So long trials may take to end whose search is over: the grace of a job, and to be killed."""
_json = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
_search = click.argument("search", metavar="SEARCH", shell_complete=completion.jobs)


class _Default(Suggesting):
    """A group whose words are those of `run`, unless they begin with another command."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """As click does it."""
        known = (*self.commands, *ctx.help_option_names)
        if args and args[0] not in known and not _mistyped(args):
            args = ["run", *args]
        return super().parse_args(ctx, args)


def _mistyped(args: list[str]) -> bool:
    """Whether the first word can only be meant as a command: it is no option and no file, and what
    a search by its options needs is not there."""
    word = args[0]
    said = any(each == "--" or each.startswith("--metric") for each in args)
    return not (said or word.startswith("-") or Path(word).suffix or "/" in word)


@click.group(
    cls=_Default,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="\b\nExamples:\n  ganger tune experiment.toml"
    "\n  ganger tune --space lr=log:1e-4..1e-1,bs=16|32|64 --metric acc --max"
    "\n      --recipe tune.asha --deadline 1h -- python train.py --lr {lr} --bs {bs}"
    "\n  ganger tune show 12\n  ganger tune run --help",
)
def tune() -> None:
    """Search for hyper-parameters. Without a command, `run` is meant: each trial runs COMMAND with
    a configuration of the space, and is judged by the metric that it prints or reports."""


@tune.command(
    epilog="\b\nExamples:\n  ganger tune run experiment.toml --detach"
    "\n  ganger tune run --space 'lr=log:1e-4..1e-1,opt=sgd|adam' --metric loss --trials 60"
    "\n      --parallel 4 --budget gpu_hours=2 -- python train.py --lr {lr} --opt {opt}"
)
@click.option("--space", multiple=True, metavar="NAME=VALUES,...",
    help="What to try: lr=log:1e-4..1e-1, layers=1..5 (integers), bs=16|32|64.")  # fmt: skip
@click.option("--metric", default="", help="What trials are judged by.")
@click.option("--max/--min", "most", default=None, help="More is better. Default: less is.")
@click.option("--also", multiple=True, metavar="NAME=min|max",
    help="Another metric that counts for the Pareto front, with its direction.")  # fmt: skip
@click.option("--constraint", multiple=True, metavar="METRIC<=BOUND",
    help="What a trial must keep to be the best, like 'latency <= 50ms'.")  # fmt: skip
@click.option("--recipe", default="", shell_complete=completion.inner_recipes,
    help="The recipe over the trials. Default: tune.asha.")  # fmt: skip
@click.option("--searcher", default="",
    help="random (default), quasi-random, grid, points, kde, tpe, gp, cma-es; or FILE.py:Class, a "
    "searcher of your own, which runs in this process.")  # fmt: skip
@click.option("--warm-start", multiple=True, metavar="SEARCH", shell_complete=completion.jobs,
    help="Let a searcher that learns know what trials of this search reported.")  # fmt: skip
@click.option(
    "--trials", type=click.IntRange(1, 10_000), help="The most trials. Default: as the recipe says."
)
@click.option(
    "--epochs",
    type=FloatRange(0, 1e12, min_open=True),
    help="The most steps or epochs that a trial reports.",
)
@click.option(
    "--parallel",
    type=click.IntRange(1, 10_000),
    help="Trials at once. Default: 4, or as many as fit.",
)
@click.option("--gpus", type=click.IntRange(1, 4096), help="GPUs of each trial. Default: 1.")
@click.option("--share", type=FloatRange(0.001, 1),
    help="The part of one GPU that each trial has: 0.5 lets two run on each.")  # fmt: skip
@click.option("--cpus", "-c", type=FloatRange(0, 4096), help="Cores with each of its GPUs.")
@click.option("--memory", metavar="SIZE", help="Host memory with each of its GPUs, like 8GiB.")
@click.option("--deadline", default="", metavar="TIME", help="All trials end by then, like 1h.")
@click.option("--target", type=float, help="The search ends when a trial reports this or better.")
@click.option("--budget", default="", metavar="NAME=AMOUNT,...",
    help="What all trials together may take: epochs, gpu_hours, money.")  # fmt: skip
@click.option(
    "--seed", type=click.IntRange(0, (1 << 32) - 1), help="Seed of the configurations. Default: 0."
)
@click.option("--name", default="", help="A name for the search.")
@click.option("--tenant", default="", help="The tenant that it counts for.")
@click.option(
    "--retries", type=click.IntRange(0), default=0, help="Failures that each trial is forgiven."
)
@click.option("--env", "-E", multiple=True, metavar="NAME[=VALUE]", help="Set a variable.")
@click.option("--checkpoints", default="", metavar="FOLDER",
    help="Trials save in folders in it. Default: in each machine's own.")  # fmt: skip
@click.option("--keep", default="", metavar="best=N,last=N,disk=SIZE",
    help="While it is followed, remove checkpoints of trials that are over but these.")  # fmt: skip
@click.option("--detach", "-d", is_flag=True, help="Return once the search is submitted.")
@forecast_options
@_json
@click.argument("words", nargs=-1, type=click.UNPROCESSED, metavar="[EXPERIMENT] [-- COMMAND...]")
def run(
    words: tuple[str, ...],
    env: tuple[str, ...],
    warm_start: tuple[str, ...],
    retries: int,
    checkpoints: str,
    keep: str,
    detach: bool,
    as_json: bool,
    **options: Any,
) -> None:
    """Submit a search, and follow it until it is over.

    EXPERIMENT is a file as `ganger simulate` reads it, with a `command`; options say otherwise.
    `{NAME}` in COMMAND stands for a value of the trial's configuration, which is also in the
    variable GANGER_PARAM_NAME. A trial reports by printing `METRIC=NUMBER`, with `epoch=NUMBER` or
    `step=NUMBER` on the same line if it likes, or a JSON object in a line; or by `sdk.report`.

    Ctrl-C ends following; the search goes on.
    """
    from ganger.client.request import convert
    from ganger.lab.tuning.live import search_of
    from ganger.lab.tuning.own_searcher import is_own, make_of

    refuse_unforecast(options)
    client = None if options["dry_run"] else Client()
    pruning = Pruning(client or Client(), checkpoints, keep, followed=not detach) if keep else None
    experiment = experiment_of(words, options)
    if client is not None and options["parallel"] is None and experiment.where == WORDS:
        experiment = fitted(experiment, client.call("GET", "/v1/status", Status).gpus)
    fields = search_of(experiment, experiment.document.recipe)
    own = experiment.document.searcher or ""
    if is_own(own) and detach:
        raise BadInput("the searcher runs in this process", where="--detach", mend="leave it out")
    make = make_of(own) if is_own(own) else None
    if warm_start:
        fields["earlier"] = earlier(client or Client(), warm_start, fields)
    fields |= {
        "retries": retries,
        "cwd": str(Path.cwd()),
        "checkpoint_dir": str(Path(checkpoints).absolute()) if checkpoints else "",
        "env": {**environment(None), **variables(env)},
    }
    request = convert(fields, "tune")
    if client is not None and request.recipe.startswith("tune.pbt") and not checkpoints:
        note_apart(client)
    if client is None:
        show_forecast(experiment, request, warm_start, options, as_json=as_json)
        return
    answer = client.call("POST", "/v1/jobs", Submitted, body=request)
    for note in answer.notes:
        click.echo(f"ganger: {note}", err=True)
    if as_json and detach:
        print_json(answer)
        return
    if not as_json:
        many = "trials" if request.searcher else f"up to {len(request.configurations)} trials"
        by = f", proposed by {request.searcher}" if request.searcher else ""
        click.echo(f"search {answer.job}: {many} of {request.recipe}{by}")
    if not detach:
        asked = asked_here(answer.job, make, own) if make is not None else None
        _follow_until_over(client, answer.job, pruning, asked, as_json=as_json)


def _follow_until_over(
    client: Client,
    search: int,
    pruning: Pruning | None = None,
    asked: Asked | None = None,
    *,
    as_json: bool,
) -> NoReturn:
    """Exit as the search does; Ctrl-C ends following only."""
    try:
        code = _follow(client, str(search), pruning, asked, as_json=as_json)
    except KeyboardInterrupt:
        message = f"search {search} goes on; ganger tune follow {search}, or stop {search}"
        click.echo(f"\nganger: {message}", err=True)
        code = 130
    raise SystemExit(code)


def _follow(
    client: Client, search: str, pruning: Pruning | None, asked: Asked | None, *, as_json: bool
) -> int:
    """Say what happens until the search is over; the exit code. What a searcher `asked` here
    raises ends the search."""
    best, known, away_since, ended = None, dict[str, int](), inf, inf
    while True:
        try:
            detail: JobDetail = client.call("GET", f"/v1/jobs/{search}", list[JobDetail])[0]
            away_since = inf
        except NoDaemon:  # it may be restarted
            away_since = min(away_since, time.monotonic())
            if time.monotonic() > away_since + AWAY_SECONDS:
                raise
            time.sleep(_LOOK_SECONDS)
            continue
        if not as_json:
            child = best_trial(detail)
            if child is not None and child != best:
                click.echo(f"{moment(time.time())}  best so far: {said_of(child)}")
                best = child
            if detail.children != known and detail.children:
                counts = counted(detail.children)
                click.echo(f"{moment(time.time())}  trials: {counts}")
                known = detail.children
        if pruning is not None:
            pruning.look(detail)
        if detail.state in OVER:
            ended = min(ended, time.monotonic())
            if set(detail.children) <= set(OVER) or time.monotonic() > ended + _ENDING_SECONDS:
                break
        elif asked is not None:
            propose(client, detail.job, asked)
        time.sleep(_LOOK_SECONDS if asked is None else _PROPOSE_SECONDS)
    if as_json:
        print_json(detail)
    else:
        click.echo(summary(detail))
    return 0 if detail.state == "COMPLETED" and best_trial(detail) is not None else 1


tune.add_command(export)
tune.add_command(report)
tune.add_command(prune)


@tune.command("list", epilog="\b\nExamples:\n  ganger tune list\n  ganger tune list --json")
@_json
def list_(as_json: bool) -> None:
    """List searches, the latest first."""
    client = Client()
    page = client.call(
        "GET", "/v1/jobs", JobPage, query={"state": "all", "kind": "tune", "limit": 1000}
    )
    if as_json:
        print_json(page.jobs)
        return
    rows = [
        (
            str(job.job),
            job.state,
            clock(job.ran),
            str(job.gpus),
            job.ended_by or "-",
            shown(job.name),
        )
        for job in page.jobs
    ]
    click.echo(table(("SEARCH", "STATE", "TIME", "GPUS", "ENDED BY", "NAME"), rows, shrink=(5,)))


@tune.command(epilog="\b\nExamples:\n  ganger tune show 12\n  ganger tune show 12 --json")
@_search
@_json
def show(search: str, as_json: bool) -> None:
    """Show a search: its trials, and what is best."""
    detail = search_named(Client(), search)
    if as_json:
        print_json(detail)
        return
    click.echo(summary(detail))


@tune.command(epilog="\b\nExamples:\n  ganger tune best 12\n  ganger tune best 12 --pareto --json")
@_search
@click.option("--pareto", is_flag=True, help="Print all trials that no other one beats.")
@_json
def best(search: str, pareto: bool, as_json: bool) -> None:
    """Print the configuration of the best trial."""
    client = Client()
    detail = search_named(client, search)
    child = best_trial(detail)
    if child is None or detail.family is None:
        raise no_best(detail)
    if pareto:
        print_front(detail.family, as_json=as_json)
        return
    if as_json:
        print_json(child)
        return
    for name, value in child.params.items():
        click.echo(f"{name}={shown(value)}")
    metric = detail.family.metric or "value"
    click.echo(f"# {metric} {child.value:.6g} after step {child.step or 0:g}, job {child.job}")
    if child.checkpoint_dir:
        click.echo(f"# checkpoints in {shown(child.checkpoint_dir)}")


@tune.command(
    epilog="\b\nExamples:\n  ganger tune follow 12\n  ganger tune follow 12 --searcher mine.py:Mine"
)
@_search
@click.option("--searcher", default="", metavar="FILE.py:Class",
    help="Go on with a searcher of your own, in this process.")  # fmt: skip
@_json
def follow(search: str, searcher: str, as_json: bool) -> None:
    """Follow a search until it is over."""
    from ganger.lab.tuning.own_searcher import make_of

    client = Client()
    job = search_named(client, search).job
    asked = asked_here(job, make_of(searcher), searcher) if searcher else None
    _follow_until_over(client, job, asked=asked, as_json=as_json)


@tune.command(epilog="\b\nExamples:\n  ganger tune pause 12")
@_search
def pause(search: str) -> None:
    """Let a search give back its GPUs, until it is resumed. Its trials save, and go on then; its
    deadline does not wait."""
    client = Client()
    detail = going_on(client, search)
    client.call("POST", f"/v1/jobs/{detail.job}/hold")
    if detail.state not in ("PENDING", "BLOCKED"):
        client.call("POST", f"/v1/jobs/{detail.job}/requeue")
    click.echo(f"search {detail.job} is paused; ganger tune resume {detail.job}")


@tune.command(epilog="\b\nExamples:\n  ganger tune resume 12")
@_search
def resume(search: str) -> None:
    """Let a search go on that was paused, as soon as there is room."""
    client = Client()
    detail = going_on(client, search)
    client.call("POST", f"/v1/jobs/{detail.job}/release")
    click.echo(f"search {detail.job} goes on when it has its GPUs")


@tune.command(
    epilog="\b\nExamples:\n  ganger tune add 12 lr=0.01,bs=32\n  ganger tune add 12 lr=1e-3 lr=1e-4"
)
@_search
@click.argument("configurations", nargs=-1, required=True, metavar="NAME=VALUE,...")
def add(search: str, configurations: tuple[str, ...]) -> None:
    """Add trials to a search, each with the values that one word says."""
    from ganger.workloads.experiment.words import values_of

    client = Client()
    detail = search_named(client, search)
    body = {"configurations": [values_of(word) for word in configurations]}
    added = client.call("POST", f"/v1/jobs/{detail.job}/trials", Changed, body=body)
    trials = "trial" if len(added.jobs) == 1 else "trials"
    click.echo(
        f"search {detail.job} has {len(added.jobs)} more {trials}: "
        + " ".join(map(str, added.jobs))
    )


@tune.command(epilog="\b\nExamples:\n  ganger tune logs 12\n  ganger tune logs 12 -n 3")
@_search
@click.option("--lines", "-n", type=click.IntRange(1, 10_000), default=5, show_default=True,
    help="So many of the last lines of each trial.")  # fmt: skip
def logs(search: str, lines: int) -> None:
    """Print what the trials of a search wrote last, those that reported the best last of all."""
    client = Client()
    detail = search_named(client, search)
    children = detail.family.children if detail.family is not None else []
    best = detail.family.best if detail.family is not None else None
    for child in sorted(children, key=lambda each: (each.job == best, each.job)):
        click.echo(
            f"==> {'the best: ' * (child.job == best)}job {child.job}"
            f" ({shown(spoken(child.params))}), {child.state.lower()} <=="
        )
        for chunk in client.stream(f"/v1/jobs/{child.job}/logs", {"lines": str(lines)}):
            sys.stdout.buffer.write(chunk)
            sys.stdout.flush()


@tune.command(epilog="\b\nExamples:\n  ganger tune stop 12")
@_search
def stop(search: str) -> None:
    """End a search and all its trials."""
    client = Client()
    detail = going_on(client, search)
    client.call("POST", f"/v1/jobs/{detail.job}/cancel")
    click.echo(f"search {detail.job} is cancelled, and its trials with it")
