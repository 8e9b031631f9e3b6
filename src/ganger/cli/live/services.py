"""`ganger service`: inference services on the cluster, each with one address for its replicas."""

from __future__ import annotations

import os
import select
import sys
import time
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from ganger.cli.lazy import Suggesting
from ganger.cli.live.processes import detached
from ganger.cli.text import print_json, table
from ganger.cli.words import SPAN
from ganger.client.answering.families import ServiceAnswer
from ganger.client.answers import Changed, PolicyAnswer, Submitted
from ganger.client.connection import Client
from ganger.client.environment import environment, variables
from ganger.client.places import home, open_private
from ganger.client.request import convert
from ganger.core.errors import BadInput, GangerError
from ganger.core.units import SECOND, parse_duration

if TYPE_CHECKING:
    from ganger.serving.front.link import Asked, Settings, Told

START_SECONDS: Final = 30.0
LOOK_SECONDS: Final = 0.1
_LAST_LINES_BYTES: Final = 4096
_json = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
_name = click.argument("name", metavar="SERVICE")


@click.group(
    cls=Suggesting,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="\b\nExamples:\n  ganger service start web --replicas 2 -- \\"
    "\n      ganger serve models.toml --port {port}"
    "\n  ganger service list\n  ganger service scale web 4"
    "\n  ganger service rollout web -- ganger serve better.toml --port {port}",
)
def service() -> None:
    """Serve models on the cluster: replicas that the daemon places, behind one
    address. A replica is any command that serves HTTP at the port {port}."""


# ---------------------------------------------------------------------- start


@service.command(
    epilog="\b\nExamples:\n  ganger service start web --replicas 2 --max-replicas 4 -- \\"
    "\n      ganger serve models.toml --port {port}"
    "\n  ganger service start llm --gpus 1 --port 9000 --health /health -- \\"
    "\n      vllm serve MODEL --port {port}"
)
@click.argument("name", metavar="NAME")
@click.argument("command", nargs=-1, required=True)
@click.option("--replicas", type=click.IntRange(0, 1000), default=1, show_default=True,
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
@_json
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
    serving = client.call("GET", "/v1/policy", PolicyAnswer).serving
    if not serving:
        raise BadInput(
            "the daemon has no recipe for services",
            mend="give it one: ganger policy set --serving scale.reactive",
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
        wait_seconds=_seconds(options["wait"], "--wait"),
        access_log=options["access_log"],
        versions=[Version(submitted.job)],
        request=fields,
    )
    try:
        told = _begin(root, settings)
    except GangerError:
        client.call("POST", f"/v1/jobs/{submitted.job}/cancel")
        raise
    if not options["as_json"]:
        click.echo(f"{name} is served at {told.url} (job {submitted.job}, under {serving})")
    if not options["detach"]:
        told = _wait_ready(root, name, told)
    if options["as_json"]:
        print_json(told)


def _refuse_missing() -> None:
    if find_spec("httptools") is None or find_spec("uvloop") is None:
        raise BadInput("services need httptools and uvloop", mend="pip install 'ganger[serving]'")


def _request(name: str, command: tuple[str, ...], options: dict[str, Any]) -> dict[str, Any]:
    """The job that a service is. Raises BadInput."""
    replicas, gpus = options["replicas"], options["gpus"]
    most = options["max_replicas"] or max(replicas, 1)
    least = options["min_replicas"]
    least = min(1, replicas) if least is None else least
    if not least <= replicas <= most:
        raise BadInput(
            f"{replicas} replicas are not between {least} and {most}",
            where="--replicas",
            mend="change --min-replicas or --max-replicas",
        )
    each = max(gpus, 1)
    return {
        "kind": "serve",
        "name": name,
        "command": list(command),
        "gpus": replicas * each,
        "workers": replicas,
        "min_gpus": least * each,
        "max_gpus": most * each,
        "gpu_types": list(options["gpu_types"]),
        "cpus": options["cpus"],
        "memory": options["memory"] or 0,
        "tenant": options["tenant"],
        "grace": options["grace"],
        "env": {**environment(None), **variables(options["env"])},
        "cwd": str(Path.cwd()),
    }


def _seconds(text: str, where: str) -> float:
    return parse_duration(text, where=where) / SECOND


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
        told = asked_at(root, settings.name)
        if told is not None:
            return told
        time.sleep(0.02)
    process.kill()
    raise GangerError(f"the front does not answer; see {folder / LOG}")


def _wait_ready(root: Path, name: str, told: Told) -> Told:
    """Until a replica serves, or an interrupt."""
    from ganger.serving.front.link import asked_at

    said = ""
    while told.settings.versions and not any(each.state == "ready" for each in told.replicas):
        states = ", ".join(each.state for each in told.replicas) or "none placed yet"
        if states != said and sys.stderr.isatty():
            click.echo(f"replicas: {states}", err=True)
        said = states
        if told.settings.request["workers"] == 0:
            return told
        time.sleep(LOOK_SECONDS)
        again = asked_at(root, name)
        if again is None:
            raise GangerError(f"the front of {name} has ended; see `ganger job show`")
        told = again
    click.echo("ready", err=True)
    return told


# ---------------------------------------------------------------------- look


def _told(name: str, asked: Asked | None = None) -> Told:
    """What the front says. Raises BadInput."""
    from ganger.serving.front.link import asked_at

    told = asked_at(home(), name, asked)
    if told is None:
        raise BadInput(
            f"no service {name!r} is served here", mend="`ganger service list` shows those that are"
        )
    return told


@service.command(
    "list", epilog="\b\nExamples:\n  ganger service list\n  ganger service list --json"
)
@_json
def list_(as_json: bool) -> None:
    """List services: their replicas, and how requests are answered."""
    from ganger.serving.front.link import asked_at, fronts

    root = home()
    told = [found for name in fronts(root) if (found := asked_at(root, name)) is not None]
    running = Client().call("GET", "/v1/services", list[ServiceAnswer])
    mine = {version.job for each in told for version in each.versions}
    others = [each for each in running if each.job not in mine]
    if as_json:
        print_json({"services": told, "without_front": others})
        return
    rows = [
        [
            each.settings.name,
            each.url,
            _ready(each),
            f"{each.answers:,}",
            f"{each.errors + each.dropped:,}",
            _ms(each.versions[0].p99) if each.versions else "-",
            " ".join(str(version.job) for version in each.versions),
        ]
        for each in told
    ]
    rows += [[each.name, "-", _states(each.replicas), "-", "-", "-", each.label] for each in others]
    titles = ("SERVICE", "ADDRESS", "REPLICAS", "ANSWERED", "FAILED", "P99", "JOBS")
    click.echo(table(titles, rows, shrink=(0, 1)))


def _ready(told: Told) -> str:
    ready = sum(each.state == "ready" for each in told.replicas)
    return f"{ready}/{len(told.replicas)} ready"


def _states(replicas: dict[str, int]) -> str:
    return ", ".join(f"{count} {state.lower()}" for state, count in replicas.items()) or "none"


def _ms(seconds: float) -> str:
    return f"{seconds * 1000:.1f} ms" if seconds else "-"


@service.command(
    epilog="\b\nExamples:\n  ganger service show web\n  ganger service show web --json"
)
@_name
@_json
def show(name: str, as_json: bool) -> None:
    """Show a service: its versions, its replicas, a rollout under way."""
    told = _told(name)
    if as_json:
        print_json(told)
        return
    state = "takes no new requests" if told.closed else "serves"
    click.echo(f"{name}: {state} at {told.url}, {told.open} open, {told.waiting} waiting")
    if not told.daemon:
        click.echo("The daemon does not answer: replicas are those that it named last.")
    click.echo()
    rows = [
        [
            str(each.job),
            "shadow" if each.shadow else f"{each.weight:g}",
            f"{each.answers:,}",
            f"{each.errors:,}",
            _ms(each.p50),
            _ms(each.p99),
        ]
        for each in told.versions
    ]
    click.echo(table(("VERSION", "WEIGHT", "ANSWERED", "ERRORS", "P50", "P99"), rows))
    click.echo()
    rows = [
        [str(each.job), str(each.version), each.at, each.state, str(each.open), _ms(each.latency)]
        for each in told.replicas
    ]
    click.echo(table(("REPLICA", "VERSION", "ADDRESS", "STATE", "OPEN", "LATENCY"), rows))
    if told.rollout is not None:
        rollout = told.rollout
        click.echo()
        why = f": {rollout.why}" if rollout.why else ""
        where = f", step {rollout.at + 1} of {len(rollout.steps)}" if not rollout.over else ""
        click.echo(
            f"rollout from job {rollout.old} to job {rollout.new}: {rollout.state}{where},"
            f" {rollout.part:.0%} of requests{why}"
        )


@service.command(epilog="\b\nExamples:\n  ganger service explain web")
@_name
def explain(name: str) -> None:
    """Say what the recipe for services does about a service, and why its replicas
    wait."""
    from ganger.cli.live.explained import say_why
    from ganger.client.answers import Explanation

    client = Client()
    for version in _told(name).versions:
        say_why(client.call("GET", f"/v1/jobs/{version.job}/explain", Explanation))


# ---------------------------------------------------------------------- change


@service.command(
    epilog="\b\nExamples:\n  ganger service scale web 4\n  ganger service scale web 1..8"
)
@_name
@click.argument("replicas", metavar="N|LEAST..MOST")
def scale(name: str, replicas: str) -> None:
    """Give a service N replicas, or let its recipe choose from LEAST to MOST."""
    least, dots, most = replicas.partition("..")
    most = most if dots else least
    if not (least.isascii() and least.isdecimal() and most.isascii() and most.isdecimal()):
        raise BadInput(f"{replicas[:40]!r} is no number of replicas", mend="write like 4 or 1..8")
    told = _told(name)
    each = max(told.settings.request["gpus"] // max(told.settings.request["workers"], 1), 1)
    job = _only_version(told)
    body = {"min_gpus": int(least) * each, "max_gpus": int(most) * each}
    Client().call("PATCH", f"/v1/jobs/{job}", Changed, body=body)
    click.echo(f"{name} has {replicas} replicas from now on")


def _only_version(told: Told) -> int:
    """Raises BadInput during a rollout."""
    if told.rollout is not None and not told.rollout.over:
        raise BadInput(
            "a rollout is under way",
            mend=f"wait for its end, or `ganger service rollback {told.settings.name}`",
        )
    return next(each.job for each in told.versions if not each.shadow)


@service.command(
    epilog="\b\nExamples:\n  ganger service rollout web -- ganger serve better.toml --port {port}"
    "\n  ganger service rollout web --steps 5%,50%,100% --hold 5m --max-errors 1% -- ..."
    "\n  ganger service rollout web --shadow -- ganger serve better.toml --port {port}"
)
@_name
@click.argument("command", nargs=-1, required=True)
@click.option("--steps", default="1%,10%,50%,100%", show_default=True,
    help="Parts of the requests that the next version gets, one after the other.")  # fmt: skip
@click.option("--hold", type=SPAN, default="30s", show_default=True, metavar="TIME",
    help="For how long each part.")  # fmt: skip
@click.option("--max-errors", default="2%", show_default=True, metavar="PART",
    help="It goes back where so many more of its answers are errors.")  # fmt: skip
@click.option("--max-slower", type=click.FloatRange(1.0, 1000.0), default=2.0, show_default=True,
    help="It goes back where its 99th percentile is so many times the other's.")  # fmt: skip
@click.option("--shadow", is_flag=True,
    help="The next version gets copies of all requests, and nobody its answers.")  # fmt: skip
def rollout(
    name: str,
    command: tuple[str, ...],
    steps: str,
    hold: str,
    max_errors: str,
    max_slower: float,
    shadow: bool,
) -> None:
    """Move a service to another COMMAND, step by step; back, where that does worse
    than what serves now. No request fails for it."""
    from ganger.serving.front.balance import Version
    from ganger.serving.front.link import Asked
    from ganger.serving.front.rollout import Guard, Rollout

    parts = tuple(_part(word, "--steps") for word in steps.split(","))
    if list(parts) != sorted(set(parts)) or parts[-1] != 1.0:
        raise BadInput("they do not rise to 100%", where="--steps", mend="write like 10%,50%,100%")
    guard = Guard(_part(max_errors, "--max-errors"), max_slower)
    seconds = _seconds(hold, "--hold")
    told = _told(name)
    old = _only_version(told)
    client = Client()
    fields = {**told.settings.request, "command": list(command)}
    running = {each.job: each for each in client.call("GET", "/v1/services", list[ServiceAnswer])}
    if old not in running:
        raise BadInput(f"job {old} is over", mend=f"ganger service stop {name}")
    new = client.call("POST", "/v1/jobs", Submitted, body=convert(fields, "service")).job
    if shadow:
        kept = [Version(each.job, each.weight, each.shadow) for each in told.versions]
        asked = Asked(versions=[*kept, Version(new, 0.0, shadow=True)])
        said = f"job {new} gets copies of all requests"
    else:
        asked = Asked(rollout=Rollout(old, new, parts, seconds, guard))
        said = f"from job {old} to job {new}: {steps}, each for {hold}"
    _told(name, asked)
    click.echo(f"{said}; see `ganger service show {name}`")


def _part(word: str, where: str) -> float:
    """A percentage as a part of one. Raises BadInput."""
    text = word.strip().removesuffix("%")
    try:
        part = float(text) / 100
    except ValueError:
        part = -1.0
    if not word.strip().endswith("%") or not 0.0 <= part <= 1.0:
        raise BadInput(f"{word[:40]!r} is no percentage", where=where, mend="write like 10%")
    return part


@service.command(epilog="\b\nExamples:\n  ganger service rollback web")
@_name
def rollback(name: str) -> None:
    """Give all requests back to the version that served before the rollout under
    way; or end a version in the shadow."""
    from ganger.serving.front.balance import Version
    from ganger.serving.front.link import Asked

    told = _told(name)
    shadows = [each.job for each in told.versions if each.shadow]
    moving = told.rollout is not None and not told.rollout.over
    if not moving and not shadows:
        raise BadInput("no rollout is under way", mend="roll out the command of before instead")
    asked = Asked(stop_rollout=moving)
    if shadows:
        asked.versions = [
            Version(each.job, each.weight) for each in told.versions if not each.shadow
        ]
    _told(name, asked)
    for job in shadows:
        Client().call("POST", f"/v1/jobs/{job}/cancel")
    click.echo("rolled back")


@service.command(
    epilog="\b\nExamples:\n  ganger service drain web\n  ganger service drain web --resume"
)
@_name
@click.option("--resume", is_flag=True, help="Take requests again.")
def drain(name: str, resume: bool) -> None:
    """Take no new requests, and answer those that are under way."""
    from ganger.serving.front.link import Asked

    told = _told(name, Asked(closed=not resume))
    state = "takes requests again" if resume else "takes no new requests"
    click.echo(f"{name} {state}; {told.open + told.waiting} are under way")


@service.command(epilog="\b\nExamples:\n  ganger service stop web")
@_name
def stop(name: str) -> None:
    """End a service: its address, once it has answered what is under way, and then
    its replicas."""
    from ganger.serving.front.link import Asked, parent_of

    root = home()
    told = _told(name)
    parent = parent_of(root, name)
    _told(name, Asked(end=True))
    if parent is not None:
        select.select([parent], [], [], 60.0)
        os.close(parent)
    client = Client()
    for each in told.versions:
        client.call("POST", f"/v1/jobs/{each.job}/cancel")
    click.echo(f"{name} has ended")
