"""One server process: state folder, journal, engine, kernel thread, HTTP."""

from __future__ import annotations

import hashlib
import logging
import os
import secrets
import socket
import stat
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import msgspec

from ganger.client.places import open_private
from ganger.core.errors import BadInput, GangerError
from ganger.core.events import NodeDown
from ganger.core.units import DAY, MINUTE, SECOND, parse_duration
from ganger.engines.agent.detached import start_agent
from ganger.engines.agent.meter import EVERY_SECONDS
from ganger.engines.agent.protocol import Hello
from ganger.engines.clock import Clock
from ganger.engines.gpus import find_nodes
from ganger.engines.local import AgentAt, LocalEngine
from ganger.engines.slurm.calls.client import Client, options_of
from ganger.engines.slurm.engine import SlurmEngine, discover
from ganger.engines.slurm.pilots import PilotEngine, Terms
from ganger.lab.simulating.oracles import oracle_of_past
from ganger.service import agents
from ganger.service.daemon import Daemon
from ganger.service.demand import wished
from ganger.service.durable.journal import FullError, Header, Journal, named
from ganger.service.durable.recovery import header_of
from ganger.service.durable.sandbox import refuse_bad_recipes
from ganger.service.engine import LiveEngine
from ganger.service.errors import FullDisk
from ganger.service.home import Home, refuse_lost_journal
from ganger.service.http.app_context import AppContext
from ganger.service.http.server import Server, address, not_there, spoken, tcp_socket, unix_socket
from ganger.service.log import write_log
from ganger.service.nodes import cluster_of, refuse_others

log = logging.getLogger("ganger.service")
DEFAULT_RECIPE: Final = "backfill"


class Settings(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """What `ganger up` says. Empty: as before, or the default."""

    home: str
    gpus: str = ""
    core_sets: str = ""
    """Whether each simulated device is a set of cores: yes or no."""
    recipe: str = ""
    inner: str = ""
    serving: str = ""
    knows: str = ""
    seed: int | None = None
    listen: str = ""
    agents: str = ""
    shared: bool = False
    name: str = ""
    engine: str = ""
    partition: str = ""
    sbatch_options: str = ""
    shared_folder: str = ""
    pilot: str = ""
    """How many nodes pilots hold, `MIN..MAX`; empty: no pilots."""
    pilot_idle: str = ""
    pilot_time: str = ""
    meter_seconds: float = EVERY_SECONDS
    window: str = ""
    """How long the windows are in which services report."""


MakeEngine = Callable[[Settings, Home, Daemon, Clock], LiveEngine]
LOCAL: Final = "local"
SLURM: Final = "slurm"
DEFAULT_INNER: Final = "fifo"
"""Over trials of searches that name no recipe of their own, in a new home."""
YES: Final = "yes"
_KEPT: Final = (
    "window",
    "gpus",
    "name",
    "engine",
    "core_sets",
    "partition",
    "sbatch_options",
    "shared_folder",
    "pilot",
    "pilot_idle",
    "pilot_time",
)
"""Settings that stay as they were where nothing is said."""


def header_for(settings: Settings, before: Header | None, journal: Journal | None = None) -> Header:
    """The header that `settings` ask for, `before` where they say nothing. Options of `sbatch` that
    are not those in the journal are tried. Raises BadInput."""
    recipe = settings.recipe or (before.policy if before else DEFAULT_RECIPE)
    knows = settings.knows or (before.knows if before else "history")
    seed = settings.seed if settings.seed is not None else (before.seed if before else 0)
    planes = [
        named(getattr(settings, plane), getattr(before, plane) if before else first)
        for plane, first in (("inner", DEFAULT_INNER), ("serving", ""))
    ]
    new = settings.recipe or settings.inner or settings.serving
    refuse_bad_recipes(recipe, *planes, bounded=bool(new))  # in the journal, soon
    oracle_of_past(knows)
    if settings.engine == SLURM:
        client = client_of(settings)
        cluster = before.cluster if before is not None else cluster_of(discover(client))
        if settings.sbatch_options != (journal.setting("sbatch_options") if journal else ""):
            client.check(max(cluster.nodes, key=lambda node: node.gpus).gpu_type)
        return header_of(cluster, recipe, seed, knows, *planes)
    nodes = find_nodes(settings.gpus, settings.name)
    if before is None:
        return header_of(cluster_of(nodes), recipe, seed, knows, *planes)
    refuse_others(before.cluster, nodes)
    return header_of(before.cluster, recipe, seed, knows, *planes)


def client_of(settings: Settings) -> Client:
    """Slurm's commands as `settings` ask for them. Raises BadInput."""
    return Client(settings.partition, options_of(settings.sbatch_options))


def _admission(daemon: Daemon) -> Callable[[Hello], Sequence[int]]:
    """Takes machines into the daemon's cluster."""

    def admit(hello: Hello) -> Sequence[int]:
        daemon.warnings[hello.name] = hello.warnings
        try:
            return daemon.node_numbers(hello.nodes)
        except FullError as error:
            raise BadInput(f"nothing can be written: {error}") from None

    return admit


def local_engine(settings: Settings, home: Home, daemon: Daemon, clock: Clock) -> LiveEngine:
    """The engine over the agent of this machine, which is started if it does not run."""
    words = ["--name", settings.name, "--meter", str(settings.meter_seconds)]
    words += ["--gpus", settings.gpus] if settings.gpus else []
    words += ["--core-sets"] if settings.core_sets == YES else []
    agent = AgentAt(home.agent / "agent", lambda: start_agent(home.agent, *words))
    listen = address(settings.agents, "--agents") if settings.agents else None
    try:
        return LocalEngine(
            daemon.launch,
            _admission(daemon),
            agents=(agent,),
            cluster=cluster_id(daemon.journal),
            clock=clock,
            listen=listen,
            token=_agent_token(home) if listen else "",
        )
    except OSError as error:
        raise not_there(settings.agents, "--agents", error) from None


def slurm_engine(settings: Settings, home: Home, daemon: Daemon, clock: Clock) -> LiveEngine:
    """The engine over a Slurm cluster. Nodes that it does not know any more are down."""

    def warn(name: str, wrong: Sequence[str]) -> None:
        daemon.warnings[name] = tuple(wrong)

    engine = SlurmEngine(
        client_of(settings),
        _folder(settings, home),
        daemon.launch,
        _admission(daemon),
        cluster=cluster_id(daemon.journal),
        clock=clock,
        warn=warn,
    )
    names = daemon.kernel.nodes.names
    engine.post(*(NodeDown(node) for node, name in enumerate(names) if name not in engine.boxes))
    return engine


def window_of(settings: Settings) -> int:
    """How long the windows of services are, microseconds. Raises BadInput."""
    found = parse_duration(settings.window or "10s", where="--window")
    if not SECOND <= found <= DAY:
        raise BadInput(f"{settings.window!r} is not in 1s .. 1d", where="--window")
    return found


def terms_of(settings: Settings) -> Terms:
    """On which terms pilots hold nodes. Raises BadInput."""
    least, dots, most = settings.pilot.partition("..")
    if not least.isdecimal() or (dots and not most.isdecimal()) or int(most or least) < 1:
        raise BadInput(
            f"{settings.pilot!r} is not a valid range",
            where="--pilot-nodes",
            mend="write like 0..8",
        )
    if int(least) > int(most or least):
        raise BadInput(f"{least} is more than {most}", where="--pilot-nodes")
    idle = parse_duration(settings.pilot_idle or "5m", where="--pilot-idle") / SECOND
    minutes = -(-parse_duration(settings.pilot_time or "0s", where="--pilot-time") // MINUTE)
    return Terms(least=int(least), most=int(most or least), idle_seconds=idle, minutes=minutes)


def pilot_engine(settings: Settings, home: Home, daemon: Daemon, clock: Clock) -> LiveEngine:
    """The engine over nodes that pilots hold. They are down until their pilots are there."""
    terms, specs = terms_of(settings), discover(client_of(settings))
    daemon.node_numbers(specs)
    port = daemon.journal.setting("pilot_port")
    host, listen = "", ("", int(port or 0))
    if settings.agents:
        host, listen = (at := address(settings.agents, "--agents"))[0], at

    def warn(name: str, wrong: Sequence[str]) -> None:
        daemon.warnings[name] = tuple(wrong)

    def make(listen: tuple[str, int]) -> PilotEngine:
        return PilotEngine(
            client_of(settings),
            _folder(settings, home),
            daemon.launch,
            _admission(daemon),
            nodes=specs,
            terms=terms,
            wish=lambda: wished(daemon.kernel, terms.most),
            token=_agent_token(home),
            cluster=cluster_id(daemon.journal),
            listen=listen,
            host=host,
            clock=clock,
            warn=warn,
        )

    try:
        engine = make(listen)
    except BadInput:
        if settings.agents or not port:
            raise
        engine = make(("", 0))  # somebody took it: pilots are told
    daemon.journal.set("pilot_port", str(engine.port))
    engine.post(*(NodeDown(node) for node in range(len(daemon.kernel.nodes.names))))
    return engine


ENGINES: Final[dict[str, MakeEngine]] = {LOCAL: local_engine, SLURM: slurm_engine}


def _folder(settings: Settings, home: Home) -> Path:
    """Where jobs' scripts and outputs lie."""
    if settings.engine == LOCAL:
        return home.agent
    return Path(settings.shared_folder) if settings.shared_folder else home.root / "slurm"


def _make_private(folder: Path) -> None:
    """The folder of scripts and outputs, for nobody else. Raises BadInput where it is not."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    folder.mkdir(mode=0o700, exist_ok=True)
    found = folder.stat()
    if found.st_uid != os.geteuid():
        raise BadInput(
            f"{folder} belongs to another user",
            where="--shared-folder",
            mend="use a folder of your own",
        )
    if stat.S_IMODE(found.st_mode) & 0o022:
        raise BadInput(
            f"others can write in {folder}", where="--shared-folder", mend=f"chmod 700 {folder}"
        )


def cluster_id(journal: Journal) -> str:
    """This cluster's own name, made once."""
    found = journal.setting("cluster")
    if not found:
        found = secrets.token_hex(8)
        journal.set("cluster", found)
    return found


def serve(settings: Settings) -> int:
    """Serve until ordered to stop; the exit code. Raises BadInput, before anything is served."""
    home = Home(Path(settings.home))
    home.take(shared=settings.shared)
    try:
        journal = Journal(home.journal)
        try:
            return _serve(settings, home, journal)
        except FullError as error:
            raise FullDisk(f"{home.journal}: nothing can be written: {error}") from None
        finally:
            journal.close()
    finally:
        home.leave()


def _serve(settings: Settings, home: Home, journal: Journal) -> int:
    segments = journal.looked_through()
    if not segments:
        refuse_lost_journal(home)
    settings = completed(settings, journal)
    header = header_for(settings, segments[-1][2] if segments else None, journal)
    _remember(settings, journal, home)
    folder = _folder(settings, home)
    scripts = None if settings.engine == LOCAL else folder / "scripts"
    if scripts:
        _make_private(folder)
        scripts.mkdir(mode=0o700, exist_ok=True)
    daemon = Daemon(journal, scripts)
    daemon.window = window_of(settings)
    daemon.own_srun = settings.engine == LOCAL or bool(settings.pilot)
    last = daemon.open(header)
    sockets = [unix_socket(home, settings.shared)]
    if settings.listen:
        sockets.append(tcp_socket(settings.listen))
    world = AppContext(
        daemon,
        home.root,
        shared=settings.shared,
        listen=spoken(sockets[1:]),
        token_hash=_token_hash(journal, home) if settings.listen else "",
        logs=folder / "logs",
        engine=settings.engine,
        meter_seconds=settings.meter_seconds,
        whole_gpus=settings.engine == SLURM and not settings.pilot,
    )
    server = Server(world, sockets)
    failed, ready = threading.Event(), threading.Event()
    refused: list[GangerError] = []

    def loop() -> None:
        try:
            make = pilot_engine if settings.pilot else ENGINES[settings.engine]
            daemon.engine = make(settings, home, daemon, Clock(last))
            ready.set()
            daemon.run()
        except BaseException as error:
            if isinstance(error, GangerError) and not ready.is_set():
                refused.append(error)
            else:
                log.exception("the loop ended")
            failed.set()
            ready.set()
        server.stop()

    thread = threading.Thread(target=loop, name="kernel")
    thread.start()
    ready.wait()
    try:
        if not failed.is_set():
            server.run()
    finally:
        if not failed.is_set():
            daemon.stop()
        thread.join()
        daemon.reader.close()
    if not daemon.holds():
        agents.stop(home.agent)
    if refused:
        for one in sockets:
            one.close()
        raise refused[0]
    return 3 if failed.is_set() else 0


def completed(settings: Settings, journal: Journal | None) -> Settings:
    """The settings, with those of before, or the machine's own, where they say nothing."""
    before = {field: journal.setting(field) if journal else "" for field in _KEPT}
    known = before["name"]
    found = {field: getattr(settings, field) or before[field] for field in _KEPT}
    found["name"] = found["name"] or socket.gethostname()
    found["engine"] = found["engine"] or LOCAL
    if known and found["engine"] != (before["engine"] or LOCAL):
        raise BadInput(
            f"the jobs of this home run on the engine {before['engine'] or LOCAL}",
            where=settings.home,
            mend="use another GANGER_HOME",
        )
    settings = msgspec.structs.replace(settings, **found)
    if settings.engine not in ENGINES:
        raise BadInput(f"no engine {settings.engine!r}", where="--engine", mend=", ".join(ENGINES))
    _refuse_what_does_not_go_together(settings)
    return settings


def _refuse_what_does_not_go_together(settings: Settings) -> None:
    """Raise BadInput for an option that the engine has no use for."""
    is_slurm = settings.engine == SLURM
    useless: tuple[str, ...] = ("gpus", "core_sets", "agents", "shared") if is_slurm else _KEPT[5:]
    if settings.pilot:
        terms_of(settings)
        useless = ("gpus", "core_sets", "shared") if is_slurm else useless
    elif is_slurm:
        useless += ("pilot_idle", "pilot_time")
    if settings.core_sets == YES and not settings.gpus:
        raise BadInput(
            "only simulated devices are sets of cores", where="--core-sets", mend="add --gpus"
        )
    for field in useless:
        if getattr(settings, field):
            option = "--" + field.replace("_", "-")
            raise BadInput(f"it is not for the engine {settings.engine}", where=option)


def _remember(settings: Settings, journal: Journal, home: Home) -> None:
    """Keep what this machine offers; an agent that offers something else is replaced."""
    offered = "gpus", "name", "core_sets"
    if any(getattr(settings, field) != journal.setting(field) for field in offered):
        agents.stop(home.agent)
    for field in _KEPT:
        journal.set(field, getattr(settings, field))


def _agent_token(home: Home) -> str:
    """What agents of other machines must know: in a file, since both sides prove that they know it
    and neither says it."""
    path = home.root / "agent-token"
    if not path.exists():
        _write_secret(path, secrets.token_urlsafe(32))
    return path.read_text().strip()


def _write_secret(path: Path, secret: str) -> None:
    """A file of mode 0600 that is there as a whole or not at all."""
    part = path.with_suffix(".part")
    with open_private(part) as file:
        file.truncate(0)
        file.write(f"{secret}\n".encode())
    part.replace(path)


def _token_hash(journal: Journal, home: Home) -> str:
    """The hash of the token that TCP wants; a new token goes to a file of 0600."""
    known = journal.setting("token")
    if not known:
        token = secrets.token_urlsafe(32)
        known = hashlib.sha256(token.encode()).hexdigest()
        _write_secret(home.root / "token", token)
        journal.set("token", known)
    return known


def main(argument: str) -> int:
    """Serve as a process of its own; `argument` is `Settings` in JSON."""
    write_log()
    try:
        return serve(msgspec.json.decode(argument, type=Settings))
    except GangerError as error:
        print(f"ganger: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        print(f"ganger: {error.filename or 'daemon'}: {error.strerror or error}", file=sys.stderr)
        return 2


def preview(settings: Settings) -> Header:
    """What `serve` would begin with; nothing is written. Raises BadInput."""
    for at, where in ((settings.listen, "--listen"), (settings.agents, "--agents")):
        if at:
            address(at, where)
    window_of(settings)
    if settings.pilot:
        terms_of(settings)
    path = Home(Path(settings.home)).journal
    if not path.exists():
        return header_for(completed(settings, None), None)
    journal = Journal(path, readonly=True)
    try:
        segments = journal.segments()
        before = segments[-1][2] if segments else None
        return header_for(completed(settings, journal), before, journal)
    finally:
        journal.close()
