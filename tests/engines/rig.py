"""The local engine with two agents on this machine, and what its tests look at."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
import uuid
from abc import abstractmethod
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from engines.conformance import Bench, Does
from ganger.core.errors import BadInput
from ganger.core.events import AnyEvent
from ganger.core.plan import Placement
from ganger.core.state.jobs import Phase
from ganger.core.units import SECOND
from ganger.engines.agent.attempt.attempt_dir import AttemptDir
from ganger.engines.agent.attempt.cgroup import Containment
from ganger.engines.agent.detached import start_agent
from ganger.engines.agent.protocol import Hello
from ganger.engines.agent.wire import GoneError, Link
from ganger.engines.launch import Launch
from ganger.engines.local import AgentAt, FleetEngine, Hold, LocalEngine

SAVES = """
import sys, time
from ganger import sdk
sdk.progress(6, 100); time.sleep(.06); sdk.progress(7, 100)
while not sdk.should_checkpoint():
    sdk.progress(7, 100); time.sleep(.005)
sdk.leave(7)
"""
DEAF = """
import signal, time
for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1):
    signal.signal(number, signal.SIG_IGN)
print("deaf", flush=True)
while True: time.sleep(60)
"""
FORKS = (
    "(setsid sh -c 'trap \"\" TERM; sleep 300 & wait' &); (nohup sleep 301 >/dev/null 2>&1 &);"
    " sleep 302"
)
PYTHON = (sys.executable, "-S", "-c")
COMMANDS: dict[Does, tuple[str, ...]] = {
    Does.FINISHES: ("true",),
    Does.FAILS: ("sh", "-c", "exit 3"),
    Does.STUMBLES: ("sh", "-c", "exit 3"),
    Does.RUNS: ("sleep", "300"),
    Does.SAVES: (*PYTHON, SAVES),
    Does.DEAF: (*PYTHON, DEAF),
    Does.FORKS: ("sh", "-c", FORKS),
    Does.ABSENT: ("no-such-program",),
}
QUICK: dict[str, Any] = {"grace": 5 * SECOND, "kill_after": SECOND // 5, "step_micros": 1000.0}


_RUN = uuid.uuid4().hex


def mark(job: int) -> str:
    """What the environment of the job's processes says, in this run of the tests and no other."""
    return f"{_RUN}-{job}"


def processes_of(job: int) -> list[int]:
    """The live processes of a job."""
    return processes_with(f"SUITE_JOB={mark(job)}")


def processes_with(variable: str) -> list[int]:
    """The live processes whose environment has this setting."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            with contextlib.suppress(OSError):
                if variable.encode() in (entry / "environ").read_bytes().split(b"\0"):
                    stat = (entry / "stat").read_text()
                    if stat.rpartition(")")[2].split()[0] != "Z":
                        found.append(int(entry.name))
    return found


def hangs_up(link: Link) -> bool:
    """Whether the other side ends the connection within some seconds."""
    late = time.monotonic() + 5
    while time.monotonic() < late:
        try:
            link.receive()
        except GoneError:
            return True
        time.sleep(0.01)
    return False


class Agents:
    """Agents in folders of their own, each with four GPUs; killed at the end, jobs as well."""

    def __init__(self, base: Path, names: Sequence[str], *options: str) -> None:
        self.base = base
        self.homes = {name: base / name for name in names}
        self._options = options
        self.started: list[subprocess.Popen[bytes]] = []
        for name in names:
            self.start(name)

    def start(self, name: str) -> subprocess.Popen[bytes]:
        """Start an agent."""
        given = ("--gpus", "4", "--name", name, *self._options)
        self.started.append(start_agent(self.homes[name], *given))
        return self.started[-1]

    def at(self) -> list[AgentAt]:
        """How to reach them; whoever is not there is started."""
        return [
            AgentAt(home / "agent", lambda name=name: self.start(name))  # type: ignore[misc]
            for name, home in self.homes.items()
        ]

    def kill(self, name: str) -> None:
        """SIGKILL the agent, nothing else."""
        pid = int((self.homes[name] / "lock").read_text())
        os.kill(pid, signal.SIGKILL)
        for process in self.started:
            if process.pid == pid:
                process.wait()

    def log(self, job: int, attempt: int = 1, node: int = 0) -> str:
        """A job's output."""
        name = f"{job}.{attempt}.{node}.log" if node else f"{job}.{attempt}.log"
        for home in self.homes.values():
            if (home / "logs" / name).exists():
                return (home / "logs" / name).read_text(errors="replace")
        return ""

    def close(self) -> None:
        """End everything: the jobs, so that their keepers end, then the agents."""
        late = time.monotonic() + 5
        for home in self.homes.values():
            for path in (home / "attempts").glob("*"):
                while AttemptDir(path).is_kept() and time.monotonic() < late:
                    for pid in processes_with(f"GANGER_DIR={path / 'job'}"):
                        with contextlib.suppress(OSError):
                            os.kill(pid, signal.SIGKILL)
                    time.sleep(0.005)
        for process in self.started:
            process.terminate()
            process.wait()
        for home in self.homes.values():
            Containment.find(f"ganger-{home.stat().st_ino}").remove()


class LaunchingBench(Bench):
    """An engine of real processes, whose jobs are what `launch` declares."""

    def __init__(self, folder: Path) -> None:
        self.launches: dict[int, Launch] = {}
        self._starts = folder / "starts"
        self._starts.mkdir(parents=True, exist_ok=True)
        self.engine: FleetEngine = self.connected(())

    @abstractmethod
    def connected(self, holds: Sequence[Hold]) -> FleetEngine:
        """A new engine, which has adopted `holds`."""

    @property
    @abstractmethod
    def machines(self) -> int:
        """How many machines there are."""

    def settle(self) -> None:
        """Wait until all nodes are there."""
        late = time.monotonic() + 20
        while sum(box.up for box in self.engine.boxes.values()) < self.machines:
            assert time.monotonic() < late, "the nodes do not come"
            self.engine.poll(self.now() + SECOND // 10)

    def declare(self, job: int, does: Does) -> None:
        retries = 5 if does is Does.STUMBLES else 0
        self.launch(job, *COMMANDS[does], counted=does is not Does.ABSENT, retries=retries)

    def launch(self, job: int, *command: str, counted: bool = True, **more: Any) -> None:
        """Declare a job that runs `command`, whose starts are counted."""
        if counted:
            count = 'echo started >> "$0.$RANK.$GANGER_ATTEMPT"; exec "$@"'
            command = ("sh", "-c", count, str(self._starts / str(job)), *command)
        env = {"SUITE_JOB": mark(job), **more.pop("env", {})}
        self.launches[job] = Launch(command=command, env=env, **{**QUICK, **more})

    def reconnect(self, holds: Iterable[tuple[int, int, str, Placement]]) -> None:
        self.engine.close()
        self.engine = self.connected(
            [
                Hold(job, attempt, Phase[phase], placement)
                for job, attempt, phase, placement in holds
            ]
        )

    def alive(self, job: int) -> int:
        return len(processes_of(job))

    def starts(self, job: int) -> int:
        return sum(path.read_text().count("started\n") for path in self.start_files(job))

    def start_files(self, job: int) -> list[Path]:
        """A file per worker and attempt, with a line per start."""
        return list(self._starts.glob(f"{job}.*"))

    def post(self, *events: AnyEvent) -> None:
        self.engine.post(*events)

    def now(self) -> int:
        return self.engine.clock.now()


class LocalBench(LaunchingBench):
    """Two agents, one engine; a new engine per test, the agents stay."""

    engine: LocalEngine

    def __init__(self, agents: Agents) -> None:
        self.agents = agents
        super().__init__(agents.base)

    def connected(self, holds: Sequence[Hold]) -> LocalEngine:
        engine = LocalEngine(
            self.launches.__getitem__,
            self._admit,
            agents=self.agents.at(),
            lost_after=10 * SECOND,
            progress_every=SECOND // 10,
        )
        engine.adopt(holds)
        return engine

    @property
    def machines(self) -> int:
        return len(self.agents.homes)

    def _admit(self, hello: Hello) -> list[int]:
        names = list(self.agents.homes)
        if hello.name not in names:
            raise BadInput("nobody asked for it")
        return [names.index(hello.name)]

    def kill_agent(self, node: int) -> None:
        self.agents.kill(list(self.agents.homes)[node])

    def refuse(self, job: int) -> None:
        # The folder of its attempt on node 1 is there already, and it is over.
        home = list(self.agents.homes.values())[1]
        blocked = home / "attempts" / f"{job}.1.0"
        blocked.mkdir()
