"""From a prepared folder to a running supervisor: the fork, and what the child does first."""

from __future__ import annotations

import gc
import os
import socket
import traceback
from collections.abc import Mapping
from errno import EINVAL
from pathlib import Path
from typing import NamedTuple

from ganger.engines.agent.attempt.attempt_dir import AttemptDir
from ganger.engines.agent.attempt.cgroup import Group
from ganger.engines.agent.attempt.copied import begin_with
from ganger.engines.agent.attempt.spawn import HELD, PROGRAMS, Places, starter, workers_of
from ganger.engines.agent.attempt.supervisor import Supervisor
from ganger.engines.agent.protocol import Exit, Go, Prepare
from ganger.engines.agent.rights import rights_of
from ganger.engines.launch import Launch

_OPEN = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NONBLOCK  # a FIFO must not hold us


class Home(NamedTuple):
    """The agent's own folder."""

    path: Path

    @property
    def attempts(self) -> Path:
        """A folder per part."""
        return self.path / "attempts"

    @property
    def exits(self) -> Path:
        """Where exits are noted for processes that can see this folder when the agent is gone for
        ever. The folder does not exist where no process can."""
        return self.path / "exits"

    @property
    def socket(self) -> Path:
        """Where the engine dials."""
        return self.path / "agent"

    @property
    def mps(self) -> Path:
        """Where the sockets and logs of MPS are, if jobs share GPUs by it."""
        return self.path / "mps"

    @property
    def leaving(self) -> Path:
        """Why this machine will soon be gone; there is no such file while it will not."""
        return self.path / "leaving"

    def log(self, job: int, attempt: int, node_rank: int = 0) -> Path:
        """The output, on one node, of an attempt that names no file of its own."""
        return log_in(self.path / "logs", job, attempt, node_rank)

    def make(self) -> None:
        """Make what is missing, and put the SDK where jobs can import it."""
        folders = "attempts", "logs", "checkpoints", "jobs", "sdk/ganger/sdk", "warm", "bin", HELD
        for name in folders:
            # Others may pass through, to what belongs to them.
            (self.path / name).mkdir(parents=True, exist_ok=True)
            (self.path / name).chmod(0o711)
        sdk = self.path / "sdk" / "ganger" / "sdk"
        for source in sorted((Path(__file__).parents[3] / "sdk").glob("*.py")):
            _put(sdk / source.name, source.read_bytes(), 0o644)
        _put(self.path / HELD / "sitecustomize.py", (sdk / "ceiling.py").read_bytes(), 0o644)
        for folder in (sdk, sdk.parent, sdk.parent.parent, self.path / HELD):
            folder.chmod(0o755)
        for program in PROGRAMS:
            path = self.path / "bin" / program
            _put(path, starter(path, self.path / "sdk").encode(), 0o755)


def _put(path: Path, data: bytes, mode: int) -> None:
    """Write a file, or replace it, at once."""
    made = path.with_name(f".{os.getpid()}")
    made.write_bytes(data)
    made.chmod(mode)
    made.rename(path)


def log_in(logs: Path, job: int, attempt: int, node_rank: int) -> Path:
    """The same, in a folder of logs."""
    return logs / f"{job}.{attempt}{f'.{node_rank}' if node_rank else ''}.log"


class Start(NamedTuple):
    """All that a supervisor needs."""

    home: Home
    folder: AttemptDir
    prepare: Prepare
    go: Go
    group: Group
    devices_before: int
    umask: int
    zygote: str
    """The socket of an interpreter that is warm for this job; empty to start cold."""
    cores: frozenset[int] = frozenset()
    """The cores that stand for the part's devices; none: it may run on all."""
    mps: Mapping[int, Mapping[str, str]] = {}
    """By role that shares devices: what has its workers compute through MPS."""


def fork_supervisor(start: Start, lock: int, control: socket.socket) -> int:
    """Fork a supervisor; its process number. The child never returns."""
    pid = os.fork()
    if pid:
        return pid
    try:
        gc.freeze()  # what the agent left behind must not be finalised here
        os.setsid()
        first, second = sorted((lock, control.fileno()))
        os.closerange(3, first)
        os.closerange(first + 1, second)
        os.closerange(second + 1, os.sysconf("SC_OPEN_MAX"))
        os.dup2(os.open(os.devnull, os.O_RDWR), 0)
        os.dup2(os.open(start.folder.path / "keeper.log", _OPEN, 0o600), 1)
        os.dup2(1, 2)
        _keep(start, control)
    except BaseException:
        os.write(2, traceback.format_exc().encode())
        os._exit(1)
    finally:
        os._exit(0)


def _keep(start: Start, control: socket.socket) -> None:
    launch = start.prepare.launch
    try:
        sdk = start.folder.hand_over(launch.script, launch.uid, launch.gid)
        places = _places(start)
        if launch.copies:
            with rights_of(launch.uid, launch.gid):
                begin_with(places.checkpoints, start.home.path / "checkpoints" / launch.copies)
        files = _open_files(start, launch)
    except OSError as why:
        where = f"{why.filename}: " if why.filename else ""
        start.group.remove()
        start.folder.write_exit(Exit(code=127, why="LaunchFailed", detail=f"{where}{why.strerror}"))
        return
    workers = workers_of(start.prepare, start.go, places, start.devices_before, start.mps)
    zygote = "" if launch.steps or launch.listens else start.zygote
    supervisor = Supervisor(
        start.folder,
        start.prepare,
        start.group,
        control,
        sdk,
        files,
        start.umask,
        zygote,
        start.home.exits,
        start.cores,
        bool(start.mps),
    )
    supervisor.run(workers, str(places.cwd))


def _places(start: Start) -> Places:
    launch, home, job = start.prepare.launch, start.home, str(start.prepare.key.job)
    checkpoints = Path(launch.checkpoint_dir or home.path / "checkpoints" / job)
    if not launch.checkpoint_dir:
        _give(checkpoints, launch)
    if not launch.cwd:
        _give(home.path / "jobs" / job, launch)
    cwd = Path(launch.cwd) if launch.cwd else home.path / "jobs" / job
    return Places(start.folder.job, cwd, checkpoints, start.folder.script, home.path / "sdk")


def _give(folder: Path, launch: Launch) -> None:
    """Make a folder within the agent's own that belongs to the job's user."""
    folder.mkdir(mode=0o700, exist_ok=True)
    if launch.uid >= 0:
        os.chown(folder, launch.uid, launch.gid)


def _open_files(start: Start, launch: Launch) -> tuple[int, int]:
    if launch.output:
        output = _open_as(launch, launch.output)
    else:
        key, parts = start.prepare.key, start.prepare.parts
        log = start.home.log(key.job, key.attempt, parts[0].node_rank if parts else 0)
        output = os.open(log, _OPEN, 0o600)
        if launch.uid >= 0:
            os.fchown(output, launch.uid, launch.gid)
    return output, _open_as(launch, launch.error) if launch.error else output


def _open_as(launch: Launch, path: str) -> int:
    """Open a file that the job's user named, with that user's rights and no others."""
    try:
        with rights_of(launch.uid, launch.gid):
            return os.open(path, _OPEN, 0o666)
    except ValueError as why:
        raise OSError(EINVAL, str(why), path) from None
