"""What is wrong with a home, and what to do about it. Nothing is changed by looking."""

from __future__ import annotations

import contextlib
import os
import platform
import sqlite3
import stat
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Final, Literal, TypeAlias

import msgspec

from ganger import __version__
from ganger.client.answers import NodeAnswer, Status
from ganger.client.connection import Client, NoDaemon
from ganger.client.places import Places
from ganger.client.strangers import others_may_change
from ganger.core.errors import GangerError
from ganger.engines.slurm.calls.client import Client as Slurm
from ganger.engines.slurm.calls.client import options_of
from ganger.lab.simulating.policies import load_policy
from ganger.service import agents
from ganger.service.durable.journal import Header, Journal
from ganger.service.home import refuse_lost_journal
from ganger.service.notices.notify import read_config

Level: TypeAlias = Literal["ok", "warn", "fail"]
MIB: Final = 1 << 20
_SCARCE, _TOO_SCARCE = 500 * MIB, 20 * MIB
_LOG_BYTES: Final = 1 << 30
_WAL_BYTES: Final = 256 * MIB
_ASIDE_SHOWN: Final = 10
_AHEAD_SECONDS: Final = 5.0
_SECRETS: Final = (
    "journal.db",
    "journal.db-wal",
    "outbox.db",
    "token",
    "agent-token",
    "daemon.lock",
)
_CGROUPS: Final = Path("/sys/fs/cgroup")


class Finding(msgspec.Struct, frozen=True):
    """One thing that was looked at: how it is, and what mends it."""

    level: Level
    about: str
    said: str
    mend: str = ""


class Looked:
    """What one look at a home has found so far."""

    def __init__(self, places: Places) -> None:
        self.places = places
        self.header: Header | None = None
        self.settings: dict[str, str] = {}
        self.status: Status | None = None
        self.last_seconds = 0.0


Findings: TypeAlias = Iterator[Finding]


def examine(places: Places) -> list[Finding]:
    """All that there is to say, in the order in which it should be mended."""
    looked, found = Looked(places), []
    for about, look in _LOOKS:
        try:
            found += list(look(looked))
        except GangerError as error:
            mend = getattr(error, "mend", "")
            said = str(error).removesuffix(f" ({mend})")
            found.append(Finding("fail", about, said, mend))
        except Exception as error:
            what = f"{type(error).__name__}: {error}"
            found.append(Finding("fail", about, f"the check failed: {what}"))
        if about == "home" and found[-1].level == "fail":
            break
    return found


def _versions(looked: Looked) -> Findings:
    text = f"ganger {__version__}, Python {platform.python_version()}, SQLite"
    yield Finding("ok", "versions", f"{text} {sqlite3.sqlite_version}")


def _home(looked: Looked) -> Findings:
    root = looked.places.root
    if not root.exists():
        yield Finding(
            "fail",
            "home",
            f"{root} is not there",
            "begin with `ganger up`, or name another with GANGER_HOME",
        )
        return
    if not root.is_dir():
        yield Finding("fail", "home", f"{root} is not a folder", "name another with GANGER_HOME")
        return
    found = root.stat()
    if found.st_uid != os.geteuid():  # what lies in it may be laid for whoever looks
        yield Finding(
            "fail",
            "home",
            f"{root} belongs to the user with number {found.st_uid}",
            "look as that user",
        )
        return
    mode = stat.S_IMODE(found.st_mode)
    if others_may_change(found):
        yield Finding(
            "fail",
            "home",
            f"others may write in {root} (mode {mode:o}): nothing in it is opened",
            f"check what is in it, then chmod 700 {root}",
        )
        return
    if mode & 0o066:
        yield Finding(
            "fail", "permissions", f"{root} is open to others (mode {mode:o})", f"chmod 700 {root}"
        )
    if not os.access(root, os.W_OK) or os.statvfs(root).f_flag & os.ST_RDONLY:
        yield Finding(
            "fail",
            "home",
            f"{root} cannot be written",
            "mount it for writing, or name another with GANGER_HOME",
        )
        return
    yield Finding("ok", "home", str(root))


def _permissions(looked: Looked) -> Findings:
    bad = []
    for name in _SECRETS:
        path = looked.places.root / name
        with contextlib.suppress(FileNotFoundError):
            mode = stat.S_IMODE(path.stat().st_mode)
            if mode & 0o077:
                bad.append(name)
                yield Finding(
                    "fail",
                    "permissions",
                    f"others may read {path} (mode {mode:o})",
                    f"chmod 600 {path}; a token that others saw is made anew with"
                    " `ganger daemon token`",
                )
    if not bad:
        yield Finding("ok", "permissions", "only the owner can read the secrets")


def _disk(looked: Looked) -> Findings:
    root = looked.places.root
    found = os.statvfs(root)
    free = found.f_bavail * found.f_frsize
    said = f"{free / MIB:,.0f} MiB are free in {root}"
    if free < _SCARCE or (found.f_files and found.f_favail < 1000):
        level: Level = "fail" if free < _TOO_SCARCE or free == 0 else "warn"
        if found.f_files and found.f_favail < 1000:
            said += f", and {found.f_favail} more files can be made"
        yield Finding(level, "disk", said, "make room: nothing is accepted on a full disk")
    else:
        yield Finding("ok", "disk", said)
    log = looked.places.log
    if log.exists() and log.stat().st_size > _LOG_BYTES:
        yield Finding(
            "warn", "disk", f"{log} has {log.stat().st_size / MIB:,.0f} MiB", f"truncate -s 0 {log}"
        )


def _journal(looked: Looked) -> Findings:
    places = looked.places
    if not places.journal.exists() or not places.journal.stat().st_size:
        refuse_lost_journal(places)
        yield Finding("ok", "journal", "there is no journal yet")
        return
    journal = Journal(places.journal, readonly=True)
    with contextlib.closing(journal):
        journal.check()
        segments = journal.segments()
        if not segments:
            refuse_lost_journal(places)
            yield Finding("ok", "journal", "it is empty")
            return
        looked.header = segments[-1][2]
        looked.last_seconds = journal.last_time() / 1e6
        looked.settings = dict(journal.db.execute("SELECT name, value FROM settings"))
        aside, aside_ever = journal.set_aside(), journal.set_aside_ever()
        (jobs,) = journal.db.execute("SELECT count(*) FROM jobs").fetchone()
    if len(aside) > _ASIDE_SHOWN:
        yield Finding(
            "warn",
            "journal",
            f"{aside_ever:,} records were set aside; the last {_ASIDE_SHOWN} follow",
            "check what reports them: a job, or the agent of a machine",
        )
    for one in aside[-_ASIDE_SHOWN:]:
        when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(one.made))
        yield Finding(
            "warn",
            "journal",
            f"set aside at {when}: {one.what}: {one.why}",
            "no action is needed; please report what led to it",
        )
    wal = places.journal.with_name(places.journal.name + "-wal")
    if wal.exists() and wal.stat().st_size > _WAL_BYTES:
        yield Finding(
            "warn",
            "journal",
            f"its log has {wal.stat().st_size / MIB:,.0f} MiB",
            "end every other process that has it open, then `ganger down` and `ganger up`",
        )
    written = looked.header.version
    by = f", by ganger {written}" if written != __version__ else ""
    yield Finding("ok", "journal", f"whole, with {jobs:,} jobs{by}")


def _clock(looked: Looked) -> Findings:
    ahead = looked.last_seconds - time.time()
    if ahead > _AHEAD_SECONDS:
        yield Finding(
            "fail",
            "clock",
            f"the last event is {ahead:,.0f} s ahead of this machine's"
            " clock: jobs that wait for a time wait that much longer",
            "set the clock (`timedatectl`), and have NTP keep it",
        )
    else:
        yield Finding("ok", "clock", "the clock is not behind the last event")


def _policy(looked: Looked) -> Findings:
    if looked.header is not None:
        try:
            load_policy(looked.header.policy, recorded=True, bounded=False)
        except GangerError as error:
            yield Finding("fail", "recipe", str(error), "`ganger up --recipe backfill`")
            return
        yield Finding("ok", "recipe", looked.header.policy)


def _daemon(looked: Looked) -> Findings:
    places = looked.places
    client = Client(places.root, timeout=5.0)
    try:
        looked.status = client.call("GET", "/v1/status", Status)
    except NoDaemon as error:
        pid = places.pid()
        if pid and Path(f"/proc/{pid}").exists() and _is_locked(places):
            yield Finding(
                "fail",
                "daemon",
                f"its process {pid} runs and does not answer: {error}",
                f"see the end of {places.log}; `kill {pid}`, then `ganger up`: jobs go on",
            )
        elif pid or places.socket.exists():
            yield Finding(
                "warn",
                "daemon",
                "it ended without a word (killed, or the machine went down)",
                f"`ganger up`; see the end of {places.log}",
            )
        else:
            yield Finding("ok", "daemon", "it is down")
        return
    finally:
        client.close()
    if looked.status.version != __version__:
        yield Finding(
            "warn",
            "daemon",
            f"ganger {looked.status.version} runs, not {__version__}",
            "`ganger down`, then `ganger up`: jobs go on",
        )
    for line in looked.status.trouble:
        yield Finding("warn", "daemon", line, "see `ganger status`")
    yield Finding("ok", "daemon", f"it answers, pid {looked.status.pid}")


def _is_locked(places: Places) -> bool:
    """Whether a process has the daemon's lock, as the kernel lists them."""
    with contextlib.suppress(OSError):
        inode = (places.root / "daemon.lock").stat().st_ino
        return any(f":{inode} " in line for line in Path("/proc/locks").read_text().splitlines())
    return False


_AGENT_SECONDS: Final = 5.0
"""How long the agent is waited for."""


def _agent(looked: Looked) -> Findings:
    folder = looked.places.agent
    if looked.settings.get("engine", "local") != "local":
        return
    with contextlib.suppress(FileNotFoundError):
        serves = (folder / "cluster").read_text()
        if looked.settings and serves != looked.settings.get("cluster", ""):
            yield Finding(
                "fail",
                "agent",
                f"the agent in {folder} serves another cluster than the journal's",
                "put its journal back (`ganger restore`), or end the agent and remove its folder",
            )
            return
    pid = agents.running(folder)
    if looked.status is not None:  # of a daemon that has just begun the agent may be about to
        until = time.monotonic() + _AGENT_SECONDS
        while not pid and time.monotonic() < until:
            time.sleep(0.1)
            pid = agents.running(folder)
    if looked.status is not None and not pid:
        yield Finding(
            "fail",
            "agent",
            "the daemon is up and this machine's agent is not",
            f"see the end of {folder / 'agent.log'}; `ganger down`, then `ganger up`",
        )
    else:
        yield Finding("ok", "agent", f"it runs, pid {pid}" if pid else "it is down")


def _sharing(looked: Looked) -> Findings:
    """By what jobs share a GPU, where machines with GPUs have said so."""
    if looked.status is None:
        return
    client = Client(looked.places.root, timeout=5.0)
    try:
        nodes = client.call("GET", "/v1/nodes", list[NodeAnswer])
    finally:
        client.close()
    for said, names in sorted(_by_sharing(nodes).items()):
        yield Finding("ok", "sharing", f"jobs share GPUs by {said}, on {', '.join(names)}")


def _by_sharing(nodes: Iterable[NodeAnswer]) -> dict[str, list[str]]:
    names = dict[str, list[str]]()
    for node in nodes:
        if node.sharing:
            names.setdefault(node.sharing, []).append(node.name)
    return names


def _cgroups(looked: Looked) -> Findings:
    if looked.settings.get("engine", "local") != "local":
        return
    kinds = [
        name
        for name, file in (("v2", "cgroup.controllers"), ("v1", "memory"))
        if (_CGROUPS / file).exists()
    ]
    own = [
        line.rpartition(":")[2].strip().lstrip("/")
        for line in Path("/proc/self/cgroup").read_text().splitlines()
    ]
    roots = [_CGROUPS, _CGROUPS / "unified", _CGROUPS / "memory"]
    if any(os.access(root / path, os.W_OK) for root in roots for path in own):
        yield Finding("ok", "cgroups", f"{' and '.join(kinds) or 'some'}, and groups can be made")
    else:
        yield Finding(
            "warn",
            "cgroups",
            "none can be made: memory is not limited, and processes"
            " that leave their job are not held",
            "run as root, or under systemd with Delegate=yes",
        )


def _slurm(looked: Looked) -> Findings:
    if looked.settings.get("engine") == "slurm":
        options = options_of(looked.settings.get("sbatch_options", ""))
        client = Slurm(looked.settings.get("partition", ""), options, timeout_seconds=20.0)
        release = ".".join(map(str, client.release))
        yield Finding("ok", "slurm", f"{release}, {len(client.nodes())} nodes")


def _sockets(looked: Looked) -> Findings:
    path = looked.places.socket
    if looked.status is None or not path.exists():
        return
    mode = stat.S_IMODE(path.stat().st_mode)
    if mode & 0o077 and looked.status.mode != "shared":
        yield Finding(
            "fail", "sockets", f"others may speak to {path} (mode {mode:o})", f"chmod 600 {path}"
        )
    else:
        yield Finding("ok", "sockets", ", ".join(filter(None, [str(path), looked.status.listen])))


def _notify(looked: Looked) -> Findings:
    path = looked.places.root / "notify.toml"
    if path.exists():
        sinks = read_config(path).sinks
        yield Finding("ok", "notify", f"{len(sinks)} receive messages about jobs")


_LOOKS: Final[Iterable[tuple[str, Callable[[Looked], Findings]]]] = (
    ("versions", _versions), ("home", _home), ("permissions", _permissions), ("disk", _disk),
    ("journal", _journal), ("clock", _clock), ("recipe", _policy), ("daemon", _daemon),
    ("sockets", _sockets), ("agent", _agent), ("sharing", _sharing), ("cgroups", _cgroups),
    ("slurm", _slurm), ("notify", _notify),
)  # fmt: skip
