"""`ganger service start`: the job of a service, and its front."""

from __future__ import annotations

import sys
import time
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from ganger.cli.live.processes import detached
from ganger.cli.live.services.group import as_json, seconds_of, service
from ganger.cli.text import print_json
from ganger.cli.words import SPAN
from ganger.client.answers import PolicyAnswer, Submitted
from ganger.client.connection import Client
from ganger.client.environment import environment, variables
from ganger.client.places import home, open_private
from ganger.client.request import convert
from ganger.core.errors import BadInput, GangerError

if TYPE_CHECKING:
    from ganger.serving.front.link import Settings, Told

START_SECONDS: Final = 30.0
LOOK_SECONDS: Final = 0.1
_LAST_LINES_BYTES: Final = 4096


@service.command(
    epilog="\b\nExamples:\n  ganger service start web --replicas 2 --max-replicas 4 -- \\"
    "\n      ganger serve models.toml --port {port}"
    "\n  ganger service start llm --gpus 1 --port 9000 --health /health -- \\"
    "\n      vllm serve MODEL --port {port}"
)
@click.argument("name", metavar="NAME")
@click.argument("command", nargs=-1, required=True)
@click.option("--replicas", type=click.IntRange(1, 1000), default=1, show_default=True,
    help="How many there are at first.")  # fmt: skip
@click.option("--min-replicas", type=click.IntRange(0, 1000), help="The fewest. Default: one.")
@click.option("--max-replicas", type=click.IntRange(1, 1000),
    help="The most. Default: as many as at first.")  # fmt: skip
@click.option("--gpus", "-G", type=click.IntRange(0, 64), default=1, show_default=True,
    help="GPUs of each replica.")  # fmt: skip
@click.option("--gpu-type", "gpu_types", multiple=True, help="A GPU type it may use. Repeatable.")
@click.option("--cpus", "-c", type=float, default=0.0, help="Cores of each replica.")
@click.option("--memory", "--mem", default="", metavar="SIZE", help="Memory of each replica.")
@click.option("--tenant", "-A", default="", help="The tenant of the service. Default: yours.")
@click.option("--env", multiple=True, metavar="NAME=VALUE", help="A variable of the replicas.")
@click.option("--grace", type=SPAN, default="30s", show_default=True, metavar="TIME",
    help="How long a replica that leaves may take to answer what it has.")  # fmt: skip
@click.option("--host", default="127.0.0.1", show_default=True, help="Where the service listens.")
@click.option("--port", type=click.IntRange(0, 65535), default=8000, show_default=True,
    help="0: one that is free.")  # fmt: skip
@click.option("--health", default="/v2/health/ready", show_default=True, metavar="PATH",
    help="The path at which a replica answers once it serves.")  # fmt: skip
@click.option("--wait", "wait", type=SPAN, default="60s", show_default=True, metavar="TIME",
    help="How long a request waits for a replica where none serves.")  # fmt: skip
@click.option("--keys", type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="The file of keys: only requests with a key are answered.")  # fmt: skip
@click.option("--access-log", is_flag=True, help="Log a line for each answer.")
@click.option("--detach", is_flag=True, help="Do not wait for the first replica.")
@as_json
def start(name: str, command: tuple[str, ...], **options: Any) -> None:
    """Start a service: COMMAND runs once for each replica, with a free port in
    place of {port}. Its address stays the same whatever becomes of replicas."""
    _refuse_missing()
    from ganger.serving.front.balance import Version
    from ganger.serving.front.link import Settings, asked_at

    root = home()
    if asked_at(root, name) is not None:
        raise BadInput(
            f"service {name!r} is served already",
            mend=f"see `ganger service show {name}`, or end it: `ganger service stop {name}`",
        )
    if not options["health"].startswith("/"):
        raise BadInput("it does not begin with /", where="--health", mend="write like /health")
    client = Client()
    policy = client.call("GET", "/v1/policy", PolicyAnswer)
    if not policy.serving:
        raise BadInput(
            "the daemon has no recipe for services",
            mend=f"give it one: ganger policy set '{policy.recipe}' --serving scale.reactive",
        )
    fields = _request(name, command, options)
    submitted = client.call("POST", "/v1/jobs", Submitted, body=convert(fields, "service"))
    settings = Settings(
        home=str(root),
        name=name,
        host=options["host"],
        port=options["port"],
        keys=str(options["keys"].absolute()) if options["keys"] else "",
        health=options["health"],
        wait_seconds=seconds_of(options["wait"], "--wait"),
        access_log=options["access_log"],
        versions=[Version(submitted.job)],
        request=fields,
    )
    try:
        front = _begin(root, settings)
    except GangerError:
        client.call("POST", f"/v1/jobs/{submitted.job}/cancel")
        raise
    if not options["as_json"]:
        click.echo(f"{name} is served at {front.url} (job {submitted.job}, under {policy.serving})")
    if not options["detach"]:
        front = _wait_ready(root, name, front)
    if options["as_json"]:
        print_json(front)


def _refuse_missing() -> None:
    if find_spec("httptools") is None or find_spec("uvloop") is None:
        raise BadInput("services need httptools and uvloop", mend="pip install 'ganger[serving]'")


def _request(name: str, command: tuple[str, ...], options: dict[str, Any]) -> dict[str, Any]:
    """The job that a service is. Raises BadInput."""
    replicas, gpus = options["replicas"], options["gpus"]
    largest = options["max_replicas"] or replicas
    smallest = options["min_replicas"]
    if smallest is None:
        smallest = 1 if gpus else replicas
    if not smallest <= replicas <= largest:
        raise BadInput(
            f"{replicas} replicas are not between {smallest} and {largest}",
            where="--replicas",
            mend="change --min-replicas or --max-replicas",
        )
    if not gpus and not smallest == replicas == largest:
        raise BadInput(
            "the number of replicas without GPUs does not change",
            where="--gpus",
            mend="leave --min-replicas and --max-replicas out",
        )
    sizes = {"min_gpus": smallest * gpus, "max_gpus": largest * gpus} if gpus else {}
    return {
        "kind": "serve",
        "name": name,
        "command": list(command),
        "gpus": replicas * gpus,
        "workers": replicas,
        **sizes,
        "gpu_types": list(options["gpu_types"]),
        "cpus": options["cpus"],
        "memory": options["memory"] or 0,
        "tenant": options["tenant"],
        "grace": options["grace"],
        "env": {**environment(None), **variables(options["env"])},
        "cwd": str(Path.cwd()),
    }


def _begin(root: Path, settings: Settings) -> Told:
    """Start the front, and wait until it answers. Raises GangerError."""
    from ganger.serving.front.link import LOG, TABLE, asked_at, folder_of

    folder = folder_of(root, settings.name)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    (folder / TABLE).unlink(missing_ok=True)
    with open_private(folder / LOG) as log:
        begin = log.tell()
        process = detached("ganger.serving.front", settings, log)
    until = time.monotonic() + START_SECONDS
    while time.monotonic() < until:
        if process.poll() is not None:
            said = (folder / LOG).read_bytes()[begin:][-_LAST_LINES_BYTES:].decode(errors="replace")
            lines = said.strip().splitlines()
            raise GangerError(lines[-1].removeprefix("ganger: ") if lines else "the front ended")
        front = asked_at(root, settings.name)
        if front is not None:
            return front
        time.sleep(0.02)
    process.kill()
    raise GangerError(f"the front does not answer; see {folder / LOG}")


def _wait_ready(root: Path, name: str, front: Told) -> Told:
    """Until a replica serves, or an interrupt."""
    from ganger.serving.front.link import asked_at

    said = ""
    while front.settings.versions and not any(each.state == "ready" for each in front.replicas):
        states = ", ".join(each.state for each in front.replicas) or "none placed yet"
        if states != said and sys.stderr.isatty():
            click.echo(f"replicas: {states}", err=True)
        said = states
        time.sleep(LOOK_SECONDS)
        later = asked_at(root, name)
        if later is None:
            raise GangerError(f"the front of {name} has ended; see `ganger job show`")
        front = later
    click.echo("ready", err=True)
    return front
