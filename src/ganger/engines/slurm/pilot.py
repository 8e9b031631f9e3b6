"""`python -m ganger.engines.slurm.pilot FOLDER`: the batch script of a pilot job.

A pilot holds a whole node and runs a node agent there, which joins the daemon by TCP. Jobs outlive
the agent, so it may be replaced at any time: a daemon that comes back at another address is joined
there. At SIGUSR1 (the time limit comes near) and SIGTERM (somebody cancels it) its agent tells that
it leaves: the daemon has its jobs save, and then ends it; if no daemon is there, the agent has them
save.
"""

from __future__ import annotations

import logging
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Final

import msgspec

from ganger.core.errors import GangerError
from ganger.core.spec import NodeSpec
from ganger.engines.agent.attempt.launch import Home
from ganger.engines.agent.meter import Meter, by_nvml
from ganger.engines.agent.server import Agent
from ganger.engines.agent.sharing import Mps, Sharing
from ganger.engines.slurm.node_share import granted

_LOOK_SECONDS: Final = 1.0
_SHARED: Final = ("logs", "checkpoints", "jobs", "exits")
"""What an agent keeps that its jobs find again on another node, and the daemon when it is gone."""


class Crew(msgspec.Struct, frozen=True):
    """What pilots are to do: join the daemon at `host` and `port`, with the node that they are on.
    `home` is the folder of logs and checkpoints."""

    host: str
    port: int
    home: str
    nodes: tuple[NodeSpec, ...]


class CrewFolder:
    """Where a daemon and its pilots find each other, on a file system that they share."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def make(self, crew: Crew, token: str) -> None:
        """Say what pilots are to do. Raises OSError."""
        self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        for name, data in (("token", token.encode()), ("crew", msgspec.msgpack.encode(crew))):
            made = self.path / f"{name}.new"
            made.touch(mode=0o600)
            made.write_bytes(data)
            made.rename(self.path / name)

    def crew(self) -> Crew:
        """What they are to do. Raises OSError, msgspec.MsgspecError."""
        return msgspec.msgpack.decode((self.path / "crew").read_bytes(), type=Crew)

    def token(self) -> str:
        """What both sides must know. Raises OSError."""
        return (self.path / "token").read_text()


class Pilot:
    """Keeps an agent running on this node."""

    def __init__(self, folder: CrewFolder, scratch: Path) -> None:
        self._folder, self._scratch, self._home = folder, scratch, Home(scratch)
        self._agent: subprocess.Popen[bytes] | None = None
        self._joined: tuple[str, int] | None = None

    def run(self) -> None:
        """Until Slurm ends it, or it was ordered to leave and no daemon needs it any more."""
        signal.signal(signal.SIGUSR1, lambda *_: self._leave("its time is nearly over"))
        signal.signal(signal.SIGTERM, lambda *_: self._leave("it was cancelled in Slurm"))
        shared = Path(self._folder.crew().home)
        for name in _SHARED:
            (self._scratch / name).symlink_to(shared / name)
        while not (self._home.leaving.exists() and self._is_idle()):
            self._tend()
            time.sleep(_LOOK_SECONDS)
        if self._agent is not None:
            self._agent.terminate()
            self._agent.wait()

    def _is_idle(self) -> bool:
        """Whether nothing runs, nor has ended without being in the daemon's journal."""
        attempts = self._home.attempts
        return not (attempts.exists() and any(attempts.iterdir()))

    def _leave(self, why: str) -> None:
        self._home.leaving.write_text(why)
        if self._agent is not None and self._agent.poll() is None:
            self._agent.send_signal(signal.SIGUSR1)

    def _tend(self) -> None:
        """See to it that an agent runs which joins the daemon where it is now."""
        try:
            crew = self._folder.crew()
        except (OSError, msgspec.MsgspecError):
            return
        at = crew.host, crew.port
        agent = self._agent
        if agent is not None and agent.poll() is None:
            if at == self._joined:
                return
            agent.terminate()
            agent.wait()
        self._joined = at
        self._agent = subprocess.Popen(
            [
                sys.executable,
                "-P",
                "-m",
                "ganger.engines.slurm.pilot",
                str(self._folder.path),
                str(self._scratch),
            ],
            start_new_session=True,
        )


def _run_agent(folder: CrewFolder, scratch: Path) -> None:
    """The agent of this node, for the daemon that the crew serves."""
    crew, name = folder.crew(), os.environ["SLURMD_NODENAME"]
    node = next(spec for spec in crew.nodes if spec.name == name)
    devices = granted(os.environ.get("CUDA_VISIBLE_DEVICES", ""))
    if devices != tuple(range(node.gpus)):
        raise GangerError(f"{node.gpus} GPUs were asked for, Slurm shows {devices}")
    Agent(
        scratch,
        name,
        (node,),
        joins=((crew.host, crew.port),),
        token=folder.token(),
        cgroups=False,
        meter=Meter(by_nvml()),
        sharing=Sharing((node,), mps=Mps(Home(scratch).mps)),
    ).run()


def main(*given: Any) -> int:
    """Hold the node, or run its agent in the folder that a second argument names."""
    logging.basicConfig(format="%(asctime)s %(name)s: %(message)s", level=logging.INFO)
    folder = CrewFolder(Path(given[0]))
    if len(given) > 1:
        try:
            _run_agent(folder, Path(given[1]))
        except (GangerError, OSError, ValueError) as error:
            print(f"ganger-pilot: {error}", file=sys.stderr)
            return 2
        return 0
    scratch = Path(tempfile.mkdtemp(prefix="ganger-pilot-"))
    try:
        Pilot(folder, scratch).run()
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return 0


if __name__ == "__main__":
    # Skip finalisers: supervisors share this process's history, and nothing needs them.
    code = main(*sys.argv[1:])
    sys.stderr.flush()
    os._exit(code)
