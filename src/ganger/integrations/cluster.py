"""The daemon that runs the trials of a program: the user's, or one for as long as it is needed."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import msgspec

from ganger.client import connection
from ganger.client.answers import JobDetail, Status, Submitted
from ganger.client.connection import NoDaemon, Refusal
from ganger.client.environment import environment
from ganger.client.futures import Client
from ganger.client.request import convert
from ganger.core.errors import BadInput, GangerError
from ganger.engines.gpus import find_nodes
from ganger.lab.tuning.live import search_of
from ganger.workloads.experiment.document import FORMAT, Document, Resources
from ganger.workloads.experiment.reading import checked

START_SECONDS: Final = 60.0
LOOK_SECONDS: Final = 0.1


@contextmanager
def cluster(slots: int) -> Iterator[Client]:
    """A client of the daemon that runs; without one, of a daemon of its own on this machine, which
    ends with the block, or with this process. That has the machine's GPUs, or `slots` simulated
    ones where there is none. Raises GangerError where it cannot start."""
    client = Client()
    try:
        client.call("GET", "/v1/status", Status)
    except NoDaemon:
        client.close()
    else:
        with client:
            yield client
        return
    gpus = "" if any(node.gpus for node in find_nodes()) else str(slots)
    root = Path(tempfile.mkdtemp(prefix="ganger-home-"))
    settings = {"home": str(root), "gpus": gpus, "recipe": "fifo"}
    with (root / "daemon.log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "ganger.integrations.embedded", _json(settings)],
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    try:
        client = _answering(root, process)
        with client:
            yield client
    finally:
        assert process.stdin is not None
        process.stdin.close()
        process.wait()


def _json(settings: dict[str, Any]) -> str:
    return msgspec.json.encode(settings).decode()


def _answering(root: Path, process: subprocess.Popen[bytes]) -> Client:
    """A client of the daemon, once it answers. Raises GangerError with what it said."""
    until = time.monotonic() + START_SECONDS
    while time.monotonic() < until and process.poll() is None:
        try:
            client = Client(root)
            client.call("GET", "/v1/status", Status)
        except NoDaemon:
            time.sleep(0.02)
        else:
            return client
    log = root / "daemon.log"
    said = log.read_text(errors="replace").strip().splitlines() if log.exists() else []
    raise GangerError(f"the daemon does not start: {said[-1] if said else process.poll()}")


def most_at_once(client: connection.Client, wanted: int, each: Resources) -> int:
    """How many trials may run at once, at most `wanted` (-1: as many as fit), or as many as share
    the last GPU. Raises BadInput where none fits."""
    gpus, have = each.gpus, client.call("GET", "/v1/status", Status).gpus
    if have < gpus:
        raise BadInput(
            f"a trial takes {gpus} GPUs, and the cluster has {have}",
            where="gpus",
            mend="start a daemon with simulated GPUs, like `ganger up --gpus 4`"
            if not have
            else "ask for fewer",
        )
    fit = int(have // gpus) * each.per_gpu
    return fit if wanted < 0 else min(-(-wanted // each.per_gpu) * each.per_gpu, fit)


def elsewhere(client: connection.Client) -> bool:
    """Whether trials may run on other machines than this one."""
    status = client.call("GET", "/v1/status", Status)
    return bool(status.nodes > 1 or status.engine != "local")


def resources_of(fields: dict[str, Any], where: str) -> Resources:
    """What each trial holds, of the fields of an experiment; `where` is for errors. Raises
    BadInput."""
    try:
        return msgspec.convert(fields, Resources)
    except msgspec.ValidationError as error:
        raise BadInput(str(error), where=where) from None


def request_of(fields: dict[str, Any], recipe: str, where: str) -> dict[str, Any]:
    """The fields of a request for a search that these of an experiment describe; `where` is for
    errors. Raises BadInput."""
    try:
        document = msgspec.convert({"format": FORMAT, **fields}, Document)
    except msgspec.ValidationError as error:
        raise BadInput(str(error), where=where) from None
    search = search_of(checked(document, where), recipe or document.recipe)
    return search | {"cwd": str(Path.cwd()), "env": environment(None)}


def submit(client: connection.Client, fields: dict[str, Any]) -> int:
    """Submit a search; its number. Raises BadInput."""
    request = convert(fields, "tune")
    answer: Submitted = client.call("POST", "/v1/jobs", Submitted, body=request)
    return answer.job


def looked_at(client: connection.Client, job: int) -> JobDetail:
    """All about a job. Raises Refusal or NoDaemon."""
    detail: JobDetail = client.call("GET", f"/v1/jobs/{job}", list[JobDetail])[0]
    return detail


def stop(client: connection.Client, job: int) -> None:
    """End a search and its trials, if it is not over."""
    with suppress(Refusal):
        client.call("POST", f"/v1/jobs/{job}/cancel")
