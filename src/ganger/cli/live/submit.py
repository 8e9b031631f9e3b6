"""`ganger submit`: commands, scripts with `#SBATCH` lines, job files."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import sys
from pathlib import Path
from typing import Any, Final

import click
import msgspec

from ganger.cli import completion
from ganger.cli.text import moment, print_json
from ganger.cli.words import SPAN
from ganger.client import grid, sbatch
from ganger.client.answers import Submitted
from ganger.client.connection import Client
from ganger.client.environment import environment, variables
from ganger.client.request import JobRequest, convert, read_file
from ganger.core.errors import BadInput

_SCRIPTS = (".sh", ".bash", ".sbatch", ".slurm")
_SRUN: Final = re.compile(r"^[^#\n]*?(?<![\w./-])srun(?=\s)", re.MULTILINE)
_JOB_FILES = (".toml", ".yaml", ".yml", ".json")
_INTERPRETERS: Final = {".py": "python", ".R": "Rscript", ".jl": "julia"}
_TASKS_SHOWN: Final = 20
_SCRIPT_BYTES_MAX: Final = 1 << 20
_READ_APART = (
    "env",
    "export",
    "dependency",
    "gpus",
    "requeue",
    "nice",
    "begin",
    "deadline",
    "params",
)

_OPTIONS = (
    click.option("--name", "-J", "--job-name", help="A name for the job."),
    click.option("--gpus", "-G", metavar="N|TYPE:N", help="Number of GPUs of the whole job. "
                 "Default: 1."),
    click.option("--gpu-type", "gpu_types", multiple=True, help="A GPU type that the job may use, "
                 "the preferred one first. Repeatable."),
    click.option("--workers", "-n", type=int, help="Number of processes. They share the GPUs "
                 "evenly, and each is in one node. Default: --nodes, or one."),
    click.option("--nodes", "-N", type=int, help="As --workers, with one worker per node."),
    click.option("--min-gpus", type=int, help="Elastic jobs: the fewest GPUs."),
    click.option("--max-gpus", type=int, help="Elastic jobs: the most GPUs."),
    click.option("--share", type=float, help="Fraction of one GPU, above 0 up to 1."),
    click.option(
        "--gpu-memory", metavar="SIZE", help="Memory on each GPU, like 8GiB; a bare number is MiB."
    ),
    click.option("--cpus", "-c", type=float, help="Cores per worker."),
    click.option("--memory", "--mem", metavar="SIZE", help="Memory per worker: 16GiB, 512M."),
    click.option("--time", "-t", "time_limit", metavar="TIME", type=SPAN, help=
                 "Time limit: 90m, 1h30m, 1-12:00:00. It counts run time over the attempts "
                 "whose work is kept. An attempt that begins from nothing has the whole "
                 "limit again."),
    click.option("--estimate", metavar="TIME", type=SPAN, help="Your estimate of the run time."),
    click.option("--deadline", metavar="WHEN", help="When the job should be finished: "
                 "2026-05-01T18:00, +2h."),
    click.option("--begin", "-b", metavar="WHEN", help="Do not start the job before: "
                 "2026-05-01T18:00, +2h."),
    click.option("--priority", type=int, help="Jobs with a higher priority go first. Default: 0."),
    click.option("--nice", type=int, help="As for sbatch: lower the priority by this number."),
    click.option("--weight", type=float, help="Weight in fair shares. Default: 1."),
    click.option("--tenant", "-A", "--account", help="The tenant of the job. Default: yours."),
    click.option("--array", "-a", metavar="LIST", help="The tasks of an array, like 0-7 or 1,3,5; "
                 "0-99%4 runs at most 4 at a time. {array} in the command is the number of "
                 "the task."),
    click.option("--param", "-P", "params", multiple=True, metavar="NAME=VALUES", help=
                 "A task for each value: lr=0.1,0.01. {lr} in the command is the value. "
                 "Repeatable: a task for each combination."),
    click.option("--after", multiple=True, metavar="JOB", help="Start when JOB has finished. "
                 "Repeatable."),
    click.option("--after-any", multiple=True, metavar="JOB", help="Start when JOB is over."),
    click.option("--after-not-ok", multiple=True, metavar="JOB", help="Start when JOB has failed "
                 "or was cancelled. If JOB finishes, this job never starts."),
    click.option("--after-begin", multiple=True, metavar="JOB[+TIME]", help=
                 "Start when JOB has started, or TIME after that."),
    click.option("--after-each", multiple=True, metavar="JOB", help="Start task i when task i of "
                 "the array JOB has finished."),
    click.option("--after-one", is_flag=True, help="Start when any one of these conditions holds."),
    click.option("--singleton", is_flag=True, help="Start when all your earlier jobs with this "
                 "name are over."),
    click.option("--dependency", "-d", metavar="LIST", help=
                 "As for sbatch: afterok:12,afterany:13, after:14+5; also afternotok, "
                 "aftercorr and singleton. With ? in place of the commas, one condition is "
                 "enough."),
    click.option("--hold", "-H", is_flag=True, help="Submit the job on hold."),
    click.option("--requeue/--no-requeue", default=None, help="Whether the job may be preempted "
                 "and put back in the queue. Default: yes."),
    click.option("--mail-to", "--mail-user", multiple=True, metavar="ADDRESS", help=
                 "Send e-mail to this address (see `ganger daemon notify`). Repeatable."),
    click.option("--mail-on", multiple=True, metavar="EVENT", help="Events that send e-mail: "
                 "started, preempted, finished, failed, cancelled, idle. Repeatable."),
    click.option("--retries", type=int, help="Number of failed attempts after which the job is "
                 "tried again."),
    click.option("--on-preempt", type=click.Choice(["checkpoint", "kill", "suspend", "never"])),
    click.option("--grace", metavar="TIME", help="Time for the job to save and exit when it is "
                 "stopped. Default: 30s."),
    click.option("--kind", type=click.Choice(["train", "serve", "tune", "task"]), help=
                 "tune: a search that holds GPUs for its trials, with --param for what they try; "
                 "serve: a service of replicas."),
    click.option("--search", type=click.Choice(["grid", "random"]), help=
                 "The order in which the trials of a search get their parameters."),
    click.option("--recipe", metavar="RECIPE", shell_complete=completion.inner_recipes, help=
                 "The recipe over the trials of a search, and limits, like "
                 "'tune.asha(mode=max); deadline=6h'. Default: the cluster's."),
    click.option("--metric", metavar="NAME", help="What the trials of a search are judged by, of "
                 "those that they report. Default: the first."),
    click.option("--parent", metavar="JOB", help="A trial of the search JOB, which is yours."),
    click.option("--per", type=click.Choice(["worker", "node", "job"]), help=
                 "Run the command once per worker, node or job. Default: worker; job, if "
                 "it calls srun."),
    click.option("--locality", type=click.Choice(["island", "node", "rack", "any"])),
    click.option("--pool", help="Only on nodes of this pool."),
    click.option("--label", "-C", "--constraint", "labels", multiple=True, help=
                 "Only on nodes with this label. Repeatable."),
    click.option("--steps", type=float, help="Number of training steps in the job."),
    click.option("--checkpoint-dir", metavar="PATH", help="The folder for checkpoints. Default: "
                 "one folder for each job."),
    click.option("--model", help="Name of the model in throughput profiles."),
    click.option("--warm", multiple=True, metavar="MODULE", help="Import MODULE before the job "
                 "starts. Repeatable."),
    click.option("--env", "-E", multiple=True, metavar="NAME[=VALUE]", help=
                 "Set a variable, or pass on its present value. Repeatable."),
    click.option("--export", metavar="ALL|NONE|LIST", help="As for sbatch."),
    click.option("--cwd", "--chdir", "-D", type=click.Path(), help="Working directory. Default: "
                 "this one."),
    click.option("--output", "-o", metavar="PATH", help="File for the output. {job}, {array}, %j "
                 "and %a are filled in."),
    click.option("--error", "-e", metavar="PATH", help="File for errors. Default: the file for "
                 "the output."),
)  # fmt: skip


_SLURMS: Final = (
    "partition", "qos", "gres", "gpus-per-node", "gpus-per-task", "ntasks", "ntasks-per-node",
    "cpus-per-task", "cpus-per-gpu", "mem-per-cpu", "mem-per-gpu", "signal", "mail-type",
    "nodelist", "exclude", "comment", "exclusive", "open-mode", "licenses", "reservation",
    "distribution", "hint", "gpu-bind",
)  # fmt: skip
"""Options of sbatch beside ours; they mean what they mean in a script."""
_OF_OURS: Final = {"gpus": "gpus", "nodes": "nodes", "workers": "ntasks", "cpus": "cpus-per-task"}
"""Ours on which sbatch's may depend."""


def with_options(command: Any) -> Any:
    """Add the options that say what a job needs."""
    for name in _SLURMS:
        short = [f"-{letter}" for letter, long in sbatch.SHORT.items() if long == name]
        free = [] if name in ("ntasks", "cpus-per-task") else short
        command = click.option(
            f"--{name}",
            *free,
            f"slurm_{name.replace('-', '_')}",
            hidden=True,
            is_flag=name in sbatch.FLAGS,
        )(command)
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def _slurms(options: dict[str, Any]) -> list[tuple[str, str]]:
    """sbatch's options among those that were given, and ours with them that they may refer to."""
    found = []
    for name in _SLURMS:
        value = options.pop(f"slurm_{name.replace('-', '_')}", None)
        if value:
            found.append((name, "" if value is True else value))
    ours = [
        (slurms, f"{options[name]:g}" if name == "cpus" else str(options[name]))
        for name, slurms in _OF_OURS.items()
        if options.get(name) is not None
    ]
    return [*ours, *found] if found else []


@click.command(
    context_settings={"ignore_unknown_options": False, "allow_interspersed_args": False},
    epilog="\b\nExamples:\n  ganger submit -- python train.py"
    "\n  ganger submit --gpus 4 --time 2h --after 12 -- python train.py --lr 0.1"
    "\n  ganger submit --array 0-7%2 -- python train.py --seed {array}"
    "\n  ganger submit --param lr=0.1,0.01 -- python train.py --lr {lr}"
    "\n  ganger submit train.sbatch\n  ganger submit job.toml",
)
@with_options
@click.option("--wrap", metavar="LINE", help="Run this line with /bin/sh.")
@click.option(
    "--wait", "-W", is_flag=True, help="Wait until the job is over, and exit with its exit code."
)
@click.option("--dry-run", "--test-only", is_flag=True, help="Print the request, submit nothing.")
@click.option("--parsable", is_flag=True, help="Print only the job's number.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
def submit(
    command: tuple[str, ...],
    wait: bool,
    dry_run: bool,
    parsable: bool,
    as_json: bool,
    **options: Any,
) -> None:
    """Submit COMMAND, a script (.sh, .sbatch, .slurm, or with #SBATCH lines; also from standard
    input), or a job file (.toml, .yaml, .json). A script is copied, so that it may change
    afterwards. Options of sbatch that are not listed (--gres, --ntasks, --partition, ...) have
    the same meaning as in a script."""
    request, notes = build(command, options)
    for note in notes:
        click.echo(f"ganger: {note}", err=True)
    if dry_run:
        print_json(request)
        _tell_tasks(request)
        return
    client = Client()
    query = {"expect": "" if parsable else "1"}
    answer = client.call("POST", "/v1/jobs", Submitted, body=request, query=query)
    for note in answer.notes:
        click.echo(f"ganger: {note}", err=True)
    if as_json:
        print_json(answer)
    elif parsable:
        click.echo(answer.job)
    else:
        _tell(answer)
    if wait:
        from ganger.cli.live.jobs import wait_for

        raise SystemExit(wait_for(client, [str(job) for job in answer.jobs], None))


def _tell_tasks(request: JobRequest) -> None:
    """Say what the first tasks of a grid would be."""
    tasks = list(grid.combinations(request.params)) if request.params else []
    for number, values in enumerate(tasks[:_TASKS_SHOWN]):
        line = grid.filled(" ".join(request.command), values)
        click.echo(f"ganger: task {number}: {grid.spoken(values)}: {line}", err=True)
    if len(tasks) > _TASKS_SHOWN:
        click.echo(f"ganger: ... {len(tasks)} tasks in all", err=True)


def _tell(answer: Submitted) -> None:
    count = len(answer.jobs)
    which = f"job {answer.job}" if count == 1 else f"array {answer.job} of {count} tasks"
    if answer.nodes:
        click.echo(f"submitted {which}: starts now on {', '.join(answer.nodes)}")
        return
    when = (
        f", expected to start at {moment(answer.expected_start)}" if answer.expected_start else ""
    )
    click.echo(f"submitted {which}: {answer.state.lower()} ({answer.reason or 'Priority'}){when}")


def build(command: tuple[str, ...], options: dict[str, Any]) -> tuple[JobRequest, list[str]]:
    """The request that the words and options make, and what to tell about it. Raises BadInput."""
    fields, notes, export = _from_words(command, options)
    if options.get("dependency"):  # instead of the script's, as with sbatch
        fields = {k: v for k, v in fields.items() if k not in sbatch.DEPENDENCIES}
    fields |= _from_options(options)
    if "per" not in fields and _calls_srun(fields):
        fields["per"] = "job"
    export = options.get("export") or export
    submitted_from = {"SLURM_SUBMIT_DIR": str(Path.cwd())} if fields.get("script") else {}
    cwd = Path(fields.get("cwd") or ".").absolute()
    fields["cwd"] = str(cwd)
    fields["env"] = {
        **environment(export),
        **submitted_from,
        **fields.get("env", {}),
        **variables(options["env"]),
    }
    return convert(fields, "submit"), notes


def _calls_srun(fields: dict[str, Any]) -> bool:
    """Whether the script, or else the command, starts its tasks by `srun`: then it runs once."""
    text = fields.get("script") or "\n".join(fields.get("command", ()))
    return _SRUN.search(text) is not None


def _from_words(
    command: tuple[str, ...], options: dict[str, Any]
) -> tuple[dict[str, Any], list[str], str | None]:
    over, wrap = _slurms(options), options.pop("wrap", None)
    if wrap is not None and command:
        raise BadInput(f"words after it: {' '.join(command)}", where="--wrap")
    if wrap is not None:
        command = ("/bin/sh", "-c", wrap)
    first, script = Path(command[0] if command else "-"), None
    if not command:  # as sbatch does
        script = "" if sys.stdin.isatty() else sys.stdin.read(_SCRIPT_BYTES_MAX)
        if not script.startswith("#!"):
            raise BadInput("nothing to run", mend="write like: ganger submit -- python train.py")
    elif first.suffix in _JOB_FILES and first.is_file():
        if len(command) > 1:
            raise BadInput(f"words after a job file: {' '.join(command[1:])}", where=str(first))
        fields = msgspec.to_builtins(read_file(first))
        return fields | (more := sbatch.given(over)).fields, more.notes, None
    else:
        script = _script(first)
    if script is None:
        command, notes = _runnable(command, Path(options.get("cwd") or "."))
        more = sbatch.given(over)
        return {**more.fields, "command": list(command)}, [*notes, *more.notes], None
    slurm = "\n#SBATCH" in script
    fields, export, notes = sbatch.parse(script, str(first), over) if slurm else sbatch.given(over)
    name = first.name if command else "stdin"
    return (
        {"name": name, **fields, "script": script, "command": list(command[1:])},
        notes,
        export or ("ALL" if slurm else None),
    )


def _runnable(command: tuple[str, ...], cwd: Path) -> tuple[tuple[str, ...], list[str]]:
    """A command whose first word can be executed, and what to tell about it. A program is looked
    for on the PATH, which has not the folder in it; a file of that folder is named as such.
    Raises BadInput for a file that cannot be executed or is not there; an absolute one may be
    there on the nodes."""
    word = command[0]
    path = cwd / word
    if os.path.isabs(word) or ("/" not in word and shutil.which(word)):
        return command, []
    if path.is_file():
        runs = os.access(path, os.X_OK)
        with path.open("rb") as file:
            if not runs or not file.read(4).startswith((b"#!", b"\x7fELF")):
                by = _INTERPRETERS.get(path.suffix, "sh")
                what = "the file has no #! line" if runs else "the file is not executable"
                mend = f"write like: ganger submit -- {by} {shlex.join(command)}"
                raise BadInput(what, where=word, mend=mend)
        return (word if "/" in word else f"./{word}", *command[1:]), []
    if path.suffix in (*_SCRIPTS, *_JOB_FILES, *_INTERPRETERS) or "/" in word:
        raise BadInput("no such file", where=word, mend="name a script, a job file or a command")
    return command, [f"{word} is not on the PATH of this machine"]


def _script(path: Path) -> str | None:
    """The text of a script that is to be copied; None if the word is something else."""
    if not path.is_file():
        return None
    with path.open("rb") as file:
        begin = file.read(2)
        if path.suffix not in _SCRIPTS and begin != b"#!":
            return None
        data = begin + file.read(_SCRIPT_BYTES_MAX)
    if path.suffix not in _SCRIPTS and b"\n#SBATCH" not in data:
        return None
    if not data.startswith(b"#!"):
        raise BadInput(
            "the script does not begin with #!",
            where=str(path),
            mend="begin with #!/bin/sh, for example",
        )
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise BadInput("it is not UTF-8 text", where=str(path)) from None


def _from_options(options: dict[str, Any]) -> dict[str, Any]:
    """Fields for the options that were given."""
    fields: dict[str, Any] = {}
    for name, value in options.items():
        if name in _READ_APART or value is None or value is False or value in ((), ""):
            continue
        fields[name] = list(value) if isinstance(value, tuple) else value
    if options.get("params"):
        fields["params"] = grid.parse(options["params"])
    for name in ("begin", "deadline"):
        if options.get(name):
            fields[name] = sbatch.when(options[name])
    gpus = options.get("gpus")
    if gpus is not None:
        kind, _, number = gpus.rpartition(":")
        if not number.isdecimal():
            raise BadInput(
                f"{gpus!r} is not a valid number of GPUs",
                where="--gpus",
                mend="write like 4 or V100:4",
            )
        fields["gpus"] = int(number)
        if kind:
            fields["gpu_types"] = [kind, *fields.get("gpu_types", [])]
    if options.get("requeue") is False:
        if fields.get("on_preempt", "never") != "never":
            raise BadInput("it contradicts --on-preempt", where="--no-requeue")
        fields["on_preempt"] = "never"
    if options.get("nice") is not None:
        if "priority" in fields:
            raise BadInput("it contradicts --priority", where="--nice")
        fields["priority"] = -options["nice"]
    if options.get("dependency"):
        sbatch.dependencies(fields, options["dependency"])
    return fields
