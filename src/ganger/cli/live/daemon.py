"""`ganger up`, `down`, `status`, `install-service`: the daemon as people handle it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import NoReturn

import click
import msgspec

from ganger.cli import completion
from ganger.cli.live.processes import detached
from ganger.cli.text import clock, print_json
from ganger.cli.words import KNOWS, SPAN, with_files_read
from ganger.client.answers import Status
from ganger.client.connection import Client, NoDaemon
from ganger.client.places import Places, home, open_private
from ganger.client.shown import shown
from ganger.core.errors import BadInput, GangerError

START_SECONDS = 60.0
_LAST_WORDS_BYTES = 1 << 16
_json = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


@click.command(
    epilog="\b\nExamples:\n  ganger up\n  ganger up --web\n"
    "  ganger up --gpus 8xV100+4xK80 --recipe tiresias\n"
    "  ganger up --gpus 2 --core-sets --recipe gandiva\n"
    "  ganger up --engine slurm --partition gpu --shared-folder /shared/ganger"
)
@click.option(
    "--gpus",
    default="",
    metavar="GPUS",
    help="Simulate these devices, like 8 or 8xV100+4xK80. Default: as before, or the devices that "
    "NVML finds.",
)
@click.option(
    "--core-sets/--no-core-sets",
    default=None,
    help="Each simulated device is a set of this machine's cores, on which alone its jobs run, so "
    "that jobs on one device slow each other. Default: as before, or not.",
)
@click.option(
    "--recipe",
    default="",
    shell_complete=completion.recipes,
    help="The recipe that decides. Default: as before, or backfill.",
)
@click.option(
    "--inner",
    default="",
    metavar="RECIPE",
    shell_complete=completion.inner_recipes,
    help="The recipe that decides which trials run on what a job of kind tune holds, "
    "like tune.sha; or none. Default: as before.",
)
@click.option(
    "--serving",
    default="",
    metavar="RECIPE",
    shell_complete=completion.serving_recipes,
    help="The recipe that decides how many replicas jobs of kind serve have, like "
    "scale.threshold; or none. Default: as before.",
)
@click.option(
    "--window",
    default="",
    metavar="TIME",
    type=SPAN,
    help="How often replicas' reports become what the recipe for services decides by. "
    "Default: as before, or 10s.",
)
@click.option(
    "--knows",
    type=click.Choice(KNOWS),
    default=None,
    help="What the policy may believe about durations. Default: as before, or history.",
)
@click.option("--seed", type=int, help="Seed of the random numbers of the policy.")
@click.option(
    "--listen",
    default="",
    metavar="HOST:PORT",
    help="Also serve over TCP. Every client needs a token.",
)
@click.option(
    "--agents",
    default="",
    metavar="HOST:PORT",
    help="Let agents of other machines join at this address.",
)
@click.option(
    "--shared",
    is_flag=True,
    help="Serve several users. The daemon runs as root, a job as its submitter.",
)
@click.option("--name", default="", help="This machine's name in the cluster.")
@click.option(
    "--engine",
    type=click.Choice(["local", "slurm"]),
    default=None,
    help="What runs the jobs: this machine and its agents, or Slurm. Default: as before, or local.",
)
@click.option("--partition", default="", help="Slurm's partition. Default: the site's default.")
@click.option(
    "--sbatch-options",
    default="",
    metavar="OPTIONS",
    help="More options for sbatch, like '--account=vision --qos=high'.",
)
@click.option(
    "--shared-folder",
    default="",
    metavar="FOLDER",
    help="The folder for scripts, logs and checkpoints, on a file system that Slurm's "
    "nodes share. Default: slurm in $GANGER_HOME.",
)
@click.option(
    "--pilot",
    is_flag=True,
    help="Hold whole nodes by Slurm jobs (pilots), whose agents start jobs at once.",
)
@click.option(
    "--pilot-nodes",
    default="",
    metavar="MIN..MAX",
    help="Number of nodes to hold: more when jobs wait, fewer when nodes are idle. Default: 0..4.",
)
@click.option(
    "--pilot-idle",
    default="",
    metavar="TIME",
    type=SPAN,
    help="Give a node back when no job has run on it for this time. Default: 5m.",
)
@click.option(
    "--pilot-time",
    default="",
    metavar="TIME",
    type=SPAN,
    help="Time limit of a pilot. Default: the limit of the partition.",
)
@click.option(
    "--advise",
    is_flag=True,
    help="Print what the recipe would do now with Slurm's own jobs, and do nothing. With "
    "--foreground, print it again whenever it changes.",
)
@click.option(
    "--web",
    is_flag=True,
    help="Also serve pages for a browser, as `ganger open` does, and print the link. "
    "`ganger down` ends them.",
)
@click.option("--foreground", is_flag=True, help="Stay in the foreground until Ctrl-C.")
@click.option("--dry-run", is_flag=True, help="Print what would be started, and start nothing.")
@_json
def up(
    gpus: str,
    core_sets: bool | None,
    recipe: str,
    inner: str,
    serving: str,
    window: str,
    knows: str | None,
    seed: int | None,
    listen: str,
    agents: str,
    shared: bool,
    name: str,
    engine: str | None,
    partition: str,
    sbatch_options: str,
    shared_folder: str,
    pilot: bool,
    pilot_nodes: str,
    pilot_idle: str,
    pilot_time: str,
    advise: bool,
    web: bool,
    foreground: bool,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Start the daemon on this machine, and return when it answers.

    State lives in $GANGER_HOME (default: ~/.local/state/ganger). Jobs that were running go on.
    """
    if shared and os.getuid():
        raise BadInput("only root can serve several users", where="--shared")
    settings = {
        "home": str(home()),
        "gpus": gpus,
        "core_sets": "" if core_sets is None else "yes" if core_sets else "no",
        "recipe": with_files_read(recipe),
        "inner": inner,
        "serving": serving,
        "window": window,
        "knows": knows or "",
        "seed": seed,
        "listen": listen,
        "agents": agents,
        "shared": shared,
        "name": name,
        "engine": engine or "",
        "partition": partition,
        "sbatch_options": sbatch_options,
        "shared_folder": os.path.abspath(shared_folder) if shared_folder else "",
        "pilot": pilot_nodes or ("0..4" if pilot else ""),
        "pilot_idle": pilot_idle,
        "pilot_time": pilot_time,
    }
    if advise:
        _advise(engine, partition, recipe, knows, again=foreground, as_json=as_json)
        return
    if dry_run:
        _say_what(settings, as_json)
        return
    if foreground:
        _stay(settings, web=web)
    _start(Places(home()), settings)
    _show(Client().call("GET", "/v1/status", Status), as_json, Places(home()), web=web)


def _stay(settings: Mapping[str, object], *, web: bool) -> NoReturn:
    if web:
        raise BadInput(
            "the link would be old before anybody looks",
            where="--web, --foreground",
            mend="run `ganger open` beside it",
        )
    from ganger.service.serve import main

    raise SystemExit(main(msgspec.json.encode(settings).decode()))


def _advise(
    engine: str | None,
    partition: str,
    recipe: str,
    knows: str | None,
    *,
    again: bool,
    as_json: bool,
) -> None:
    """Print what the recipe would do with Slurm's own jobs."""
    if engine != "slurm":
        raise BadInput(
            "only the jobs of a Slurm cluster", where="--advise", mend="add --engine slurm"
        )
    from ganger.cli.live.site import advise

    advise(partition, recipe or "backfill", knows or "history", again=again, as_json=as_json)


def _say_what(settings: Mapping[str, object], as_json: bool) -> None:
    from ganger.service.serve import Settings, preview

    header = preview(msgspec.convert(settings, Settings))
    nodes = [
        {
            "name": node.name,
            "gpus": node.gpus,
            "gpu_type": node.gpu_type,
            "cpus": node.cpus / 1000,
            "memory": node.memory,
        }
        for node in header.cluster.nodes
    ]
    if as_json:
        print_json({"recipe": header.policy, "knows": header.knows, "nodes": nodes})
        return
    for node in nodes:
        click.echo(
            f"{node['name']}: {node['gpus']} GPUs {node['gpu_type']}, {node['cpus']:g} CPUs,"
            f" {node['memory']} MiB"
        )
    click.echo(f"recipe {header.policy}, which knows {header.knows}")


def _start(places: Places, settings: Mapping[str, object]) -> None:
    """Start the daemon and wait until it answers. Raises GangerError with what it said."""
    try:
        places.root.mkdir(mode=0o700, parents=True, exist_ok=True)
        log = open_private(places.log)
    except OSError as error:
        raise BadInput(
            f"nothing can be written there: {error.strerror}",
            where=str(places.root),
            mend="mount it for writing, make room, or name another folder with GANGER_HOME",
        ) from None
    with log:
        begin = log.tell()
        process = detached("ganger.service", settings, log)
    until = time.monotonic() + START_SECONDS
    while time.monotonic() < until:
        if process.poll() is not None:
            said = places.log.read_bytes()[begin:].decode(errors="replace").strip().splitlines()
            raise GangerError(said[-1].removeprefix("ganger: ") if said else _why(places, process))
        try:
            if Client(timeout=5).call("GET", "/v1/status", Status).pid == process.pid:
                return
        except GangerError:
            pass
        time.sleep(0.02)
    raise GangerError(f"the daemon does not answer; see {places.log}")


def _why(places: Places, process: subprocess.Popen[bytes]) -> str:
    """What a daemon ended of that could not even say so."""
    if shutil.disk_usage(places.root).free < _LAST_WORDS_BYTES:
        return f"{places.root}: the disk is full (make room: nothing can be written)"
    return f"it ended with {process.returncode}, without a message (see `ganger doctor`)"


@click.command(epilog="\b\nExamples:\n  ganger down\n  ganger down --jobs")
@click.option(
    "--jobs", is_flag=True, help="Stop running jobs first. They go back to the queue and are held."
)
def down(jobs: bool) -> None:
    """Stop the daemon. Running jobs go on, and the next `ganger up` finds them.

    Pages that were started by `ganger up --web` end too.
    """
    from ganger.cli.live.web import end_beside

    client = Client()
    pid = client.call("GET", "/v1/status", Status).pid
    client.call("POST", "/v1/shutdown", body={"jobs": jobs})
    client.close()
    until = time.monotonic() + START_SECONDS
    while time.monotonic() < until:
        if client.places.pid() != pid and not Path(f"/proc/{pid}").exists():
            end_beside(client.places.root)
            click.echo("down")
            return
        time.sleep(0.02)
    raise GangerError(f"the daemon (pid {pid}) does not stop")


@click.command(epilog="\b\nExamples:\n  ganger status\n  ganger status --json")
@_json
def status(as_json: bool) -> None:
    """Show whether the daemon runs, and its state. The exit code is 1 if it does not run."""
    client = Client()
    try:
        found = client.call("GET", "/v1/status", Status)
    except NoDaemon as error:
        if as_json:
            print_json({"up": False, "why": str(error)})
        else:
            click.echo(str(error))
        raise SystemExit(1) from None
    _show(found, as_json, client.places)


def _show(found: Status, as_json: bool, places: Places, *, web: bool = False) -> None:
    link = ""
    if web:
        from ganger.cli.live.web import serve_beside

        link = serve_beside(places.root)
    if as_json:
        print_json({"up": True, **({"link": link} if link else {}), **msgspec.to_builtins(found)})
        return
    counts = ", ".join(f"{number} {phase}" for phase, number in found.jobs.items()) or "none"
    click.echo(f"up for {clock(found.now - found.since)}, pid {found.pid}, {found.mode} mode")
    click.echo(f"engine:  {found.engine}")
    click.echo(f"home:    {found.home}")
    click.echo(f"recipe:  {found.recipe}, which knows {found.knows}")
    for plane, recipe in (("trials", found.inner), ("service", found.serving)):
        if recipe:
            click.echo(f"{plane + ':':<9}{recipe}")
    nodes = f"{found.nodes} node{'s' if found.nodes != 1 else ''}"
    out = f", {found.gpus_out} out of use" if found.gpus_out else ""
    click.echo(f"cluster: {nodes}, {found.gpus_free} of {found.gpus} GPUs free{out}")
    click.echo(f"jobs:    {counts}")
    click.echo(f"journal: {found.journal_bytes / (1 << 20):,.1f} MiB")
    if found.listen:
        click.echo(f"listens: {found.listen} (token in {places.root / 'token'})")
    for line in found.trouble:
        click.echo(f"trouble: {shown(line)}")
    if link:
        click.echo(f"pages:   {link}")


_UNIT = """[Unit]
Description=Ganger, a scheduler for deep-learning work on GPUs
After=network.target

[Service]
Type=exec
Environment=GANGER_HOME={home}
ExecStart={ganger} up --foreground{extra}
ExecStop={ganger} down
KillMode=process
Restart=on-failure

[Install]
WantedBy={target}
"""


@click.command(
    "install-service",
    epilog="\b\nExamples:\n  ganger install-service --print\n  ganger install-service",
)
@click.option("--print", "only_print", is_flag=True, help="Print the unit and write nothing.")
@click.option("--system", is_flag=True, help="For all users (as root), in shared mode.")
def install_service(only_print: bool, system: bool) -> None:
    """Write a systemd unit that runs the daemon. Jobs survive a restart of the daemon."""
    beside = Path(sys.executable).with_name("ganger")
    program = str(beside) if beside.exists() else shutil.which("ganger")
    unit = _UNIT.format(
        home=home(),
        ganger=program or f"{sys.executable} -m ganger.cli",
        extra=" --shared" if system else "",
        target="multi-user.target" if system else "default.target",
    )
    if only_print:
        click.echo(unit, nl=False)
        return
    folder = Path("/etc/systemd/system") if system else Path("~/.config/systemd/user").expanduser()
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "ganger.service"
    path.write_text(unit)
    user = "" if system else " --user"
    click.echo(f"wrote {path}\nstart it: systemctl{user} enable --now ganger")


@click.command(
    epilog="\b\nExamples:\n  ganger daemon metrics\n  ganger daemon metrics --grafana > ganger.json"
)
@click.option("--grafana", is_flag=True, help="Print a dashboard to import into Grafana instead.")
def metrics(grafana: bool) -> None:
    """Print the metrics that `/metrics` serves to Prometheus."""
    if grafana:
        from ganger.service.reports.dashboard import dashboard

        print_json(dashboard())
        return
    for chunk in Client().stream("/metrics"):
        sys.stdout.buffer.write(chunk)
