"""`ganger shell` and `ganger agent`."""

from __future__ import annotations

import os
import select
import socket
import sys
import tempfile
from pathlib import Path
from typing import Any

import click
import msgspec

from ganger.cli.live.jobs import path_of, wait_for
from ganger.cli.live.submit import build, with_options
from ganger.cli.words import FloatRange
from ganger.client.answers import Changed, JobPage, Status, Submitted
from ganger.client.connection import Client
from ganger.core.errors import BadInput, GangerError


@click.command(epilog="\b\nExamples:\n  ganger shell --gpus 1\n  ganger shell --gpus 2 -- ipython")
@with_options
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
def shell(command: tuple[str, ...], **options: Any) -> None:
    """Open a shell (or COMMAND) inside a job on this machine. It ends with the job.

    The job is not preempted, unless --on-preempt allows it.
    """
    if not sys.stdin.isatty():
        raise BadInput("standard input is not a terminal", mend="use `ganger submit` in scripts")
    from ganger.client import terminal

    wanted = list(command) or [os.environ.get("SHELL", "/bin/sh")]
    client = Client()
    if client.call("GET", "/v1/status", Status).engine != "local":
        raise BadInput("the Slurm engine has no shell", mend="use `srun --pty`")
    with tempfile.TemporaryDirectory(prefix="ganger-") as folder:
        path = str(Path(folder) / "shell")
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(path)
        listener.listen(1)
        words = (sys.executable, "-m", "ganger.client.terminal", path, *wanted)
        request, _ = build(words, options)
        request = msgspec.structs.replace(
            request, name=request.name or "shell", on_preempt=options.get("on_preempt") or "never"
        )
        job = str(client.call("POST", "/v1/jobs", Submitted, body=request).job)
        try:
            terminal.attach(_called_back(client, listener, job))
        except KeyboardInterrupt:
            click.echo(f"cancelling job {job}", err=True)
            client.call("POST", f"/v1/jobs/{path_of([job])}/cancel", Changed)
        finally:
            listener.close()
    raise SystemExit(wait_for(client, [job], None))


def _called_back(client: Client, listener: socket.socket, job: str) -> socket.socket:
    """The job's call, once it runs. Raises GangerError if it ends before."""
    told = False
    while not select.select([listener], [], [], 0.5)[0]:
        page = client.call("GET", f"/v1/jobs/{job}/wait", JobPage, query={"timeout": 0.001})
        if page.jobs[0].finished:
            raise GangerError(f"job {job} is {page.jobs[0].state.lower()}: {page.jobs[0].reason}")
        if not told and page.jobs[0].state == "PENDING":
            click.echo(f"job {job} waits ({page.jobs[0].reason}); Ctrl-C cancels it", err=True)
            told = True
    return listener.accept()[0]


@click.command(epilog="\b\nExamples:\n  ganger agent --join head:7070 --token-file agent-token")
@click.option(
    "--join",
    "joins",
    multiple=True,
    required=True,
    metavar="HOST:PORT",
    help="The address of `ganger up --agents`. Repeatable.",
)
@click.option(
    "--token-file",
    type=click.Path(exists=True, dir_okay=False),
    required=True,
    help="A copy of $GANGER_HOME/agent-token of the daemon.",
)
@click.option(
    "--home",
    type=click.Path(file_okay=False),
    help="The folder of the agent. Default: in $GANGER_HOME.",
)
@click.option("--name", help="This machine's name in the cluster. Default: its host name.")
@click.option("--gpus", default="", help="Simulate these devices: 8, or 8xV100+4xK80.")
@click.option(
    "--core-sets",
    is_flag=True,
    help="Each simulated device is a set of this machine's cores, on which alone its jobs run.",
)
@click.option(
    "--fence",
    type=FloatRange(min=0, min_open=True),
    metavar="SECONDS",
    help="Kill all jobs here when the agent has not heard a daemon for this time.",
)
def agent(
    joins: tuple[str, ...],
    token_file: str,
    home: str | None,
    name: str | None,
    gpus: str,
    core_sets: bool,
    fence: float | None,
) -> None:
    """Add this machine to the cluster of a daemon elsewhere, until interrupted."""
    from ganger.client.places import Places
    from ganger.client.places import home as state

    words = [sys.executable, "-m", "ganger.engines.agent", "--token-file", token_file]
    words += ["--home", home or str(Places(state()).agent)]
    for join in joins:
        words += ["--join", join]
    words += (["--name", name] if name else []) + (["--gpus", gpus] if gpus else [])
    words += ["--core-sets"] if core_sets else []
    words += ["--fence", str(fence)] if fence else []
    os.execv(sys.executable, words)
