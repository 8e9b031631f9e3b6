"""How the GPUs of this machine serve several jobs at once: side by side under NVIDIA's MPS, by the
driver's slices of time, or as sets of cores that stand for devices."""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from ganger.core.spec import Needs, NodeSpec
from ganger.core.units import WHOLE
from ganger.engines.agent.protocol import Key, Part, Prepare, Terms

log = logging.getLogger("ganger.agent")
CORE_SETS: Final = "core sets"
MPS: Final = "MPS"
TIME_SLICES: Final = "time slices"
_PROGRAM: Final = "nvidia-cuda-mps-control"
_PATH: Final = "/usr/bin:/usr/local/nvidia/bin:/usr/local/bin"
"""Where drivers put it, beside the agent's own PATH."""
_SOCKET_BYTES_MAX: Final = 100
"""MPS makes sockets in its folder, and the path of a socket may have 107 bytes."""
_KEPT: Final = ("PATH", "LD_LIBRARY_PATH", "HOME")
_START_SECONDS: Final = 5.0
_ASK_SECONDS: Final = 5.0
_SERVER_PERCENT: Final = "get_default_active_thread_percentage"
"""What any control daemon answers, at no cost."""


class Mps:
    """The MPS control daemon of an agent, which runs as the agent's user and serves its jobs alone.

    It outlives an agent that is killed or restarted, with the jobs that compute through it; the
    next agent on the folder finds it. Jobs of other users do not get it: a daemon serves one user
    at a time, so those of another would wait.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None
        self.why = ""
        """Why there is none; empty while it serves."""
        path = os.pathsep.join([os.environ.get("PATH", ""), _PATH])
        self._program = shutil.which(_PROGRAM, path=path)

    @property
    def pids(self) -> set[int]:
        """Its process, if it is this agent's child."""
        return {self._process.pid} if self._process is not None else set()

    def ended(self, pid: int) -> None:
        """That process was reaped: if it was the daemon, the next part that shares starts it."""
        if self._process is not None and pid == self._process.pid:
            self._process.poll()  # so that it does not count as one that nobody waited for
            self._process = None

    def serves(self) -> bool:
        """Start the daemon if it does not run; whether it answers."""
        self.why = self._start()
        return not self.why

    def _start(self) -> str:
        if os.environ.get("GANGER_MPS") == "no":
            return "GANGER_MPS says no"
        if self._program is None:
            return f"there is no {_PROGRAM} on the PATH"
        if len(os.fsencode(self._folder / "control_privileged")) > _SOCKET_BYTES_MAX:
            return f"the path {self._folder} is too long for its sockets"
        if self._ask(_SERVER_PERCENT) is not None:
            return ""
        try:
            self._folder.mkdir(mode=0o700, exist_ok=True)
            with (self._folder / "daemon.log").open("ab") as output:
                self._process = subprocess.Popen(
                    [self._program, "-f"],
                    env=self._environment(),
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    start_new_session=True,
                )
        except OSError as why:
            return f"{self._program}: {why.strerror}"
        until = time.monotonic() + _START_SECONDS
        while time.monotonic() < until and self._process.poll() is None:
            if self._ask(_SERVER_PERCENT) is not None:
                return ""
            time.sleep(0.05)
        self._process.kill()
        self._process.wait()
        self._process = None
        return f"{_PROGRAM} does not answer; see {self._folder}/daemon.log"

    def close(self) -> None:
        """End the daemon. Nothing may compute through it."""
        self._ask("quit")
        if self._process is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(_ASK_SECONDS)

    def _ask(self, words: str) -> str | None:
        """What the daemon answers; None if it does not."""
        if self._program is None or not self._folder.exists():
            return None
        with contextlib.suppress(OSError, subprocess.TimeoutExpired):
            done = subprocess.run(
                [self._program],
                input=f"{words}\n",
                env=self._environment(),
                capture_output=True,
                text=True,
                timeout=_ASK_SECONDS,
                check=False,
            )
            return done.stdout if done.returncode == 0 else None
        return None

    def _environment(self) -> dict[str, str]:
        kept = {name: os.environ[name] for name in _KEPT if name in os.environ}
        return {**kept, "CUDA_DEVICE_ORDER": "PCI_BUS_ID", **self.variables()}

    def variables(self) -> dict[str, str]:
        """What tells a program of CUDA where the daemon is."""
        return {
            "CUDA_MPS_PIPE_DIRECTORY": str(self._folder),
            "CUDA_MPS_LOG_DIRECTORY": str(self._folder),
        }


class Sharing:
    """The GPUs of all seats of an agent. `core_sets`: by GPU of the machine, the cores that stand
    for it; `mps`: what lets jobs compute side by side on real ones, None for simulated ones."""

    def __init__(
        self,
        nodes: Sequence[NodeSpec],
        core_sets: Sequence[frozenset[int]] = (),
        mps: Mps | None = None,
    ) -> None:
        counts = [node.gpus for node in nodes]
        self.before = [sum(counts[:seat]) for seat in range(len(counts))]
        """By seat: the GPUs of the seats before it."""
        self._gpus, self._core_sets, self._mps = sum(counts), core_sets, mps
        self.said = CORE_SETS if core_sets else ""
        """How jobs share a GPU here, and why not by MPS; empty where GPUs are only simulated."""
        if mps is not None and self._gpus:
            self.said = MPS if mps.serves() else f"{TIME_SLICES}: {mps.why}"
            log.info("jobs share GPUs by %s", self.said)

    def devices(self, key: Key, parts: Sequence[Part]) -> list[int]:
        """Their GPUs by their numbers on this machine."""
        before = self.before[key.seat]
        return [before + i for part in parts for i in part.devices]

    def cores(self, key: Key, parts: Sequence[Part]) -> frozenset[int]:
        """The cores that stand for their devices; none: they may run on all."""
        if not self._core_sets:
            return frozenset()
        return frozenset[int]().union(*(self._core_sets[i] for i in self.devices(key, parts)))

    def variables(self, prepare: Prepare) -> dict[int, dict[str, str]]:
        """By role, what has the workers of a part compute through MPS, within their part of the
        threads and within their memory; nothing for roles that share no GPU."""
        bounds = self._bounds(prepare)
        if not bounds or self._mps is None:
            return {}
        if not self._mps.serves():
            log.warning("job %d shares by time slices: %s", prepare.key.job, self._mps.why)
            return {}
        return {role: self._mps.variables() | own for role, own in bounds.items()}

    def threads(self, prepare: Prepare) -> float:
        """The part of a GPU's threads to which MPS bounds a part of a job; 1 where it does not."""
        roles, bounds = prepare.launch.shape.roles, self._bounds(prepare)
        return min((threads_of(roles[role].needs, prepare.terms) for role in bounds), default=1.0)

    def _bounds(self, prepare: Prepare) -> dict[int, dict[str, str]]:
        """By role that shares GPUs through MPS: what bounds its workers."""
        launch = prepare.launch
        if self.said != MPS or launch.uid not in (-1, os.getuid()):
            return {}
        roles = launch.shape.roles
        return {
            part.role: _bounds_of(roles[part.role].needs, prepare.terms, len(part.devices))
            for part in prepare.parts
            if part.devices and (part.share or roles[part.role].needs.share < WHOLE)
        }

    @property
    def pids(self) -> set[int]:
        """Children of the agent that belong to no part."""
        return self._mps.pids if self._mps is not None else set()

    def ended(self, pid: int) -> None:
        """A child of the agent was reaped."""
        if self._mps is not None:
            self._mps.ended(pid)

    def close(self) -> None:
        """Nothing runs on the GPUs any more, and this agent ends."""
        if self._mps is not None:
            self._mps.close()


def _bounds_of(needs: Needs, terms: Terms | None, gpus: int) -> dict[str, str]:
    """What bounds a worker: devices are numbered as it sees them. A number that it does not see
    would void all limits of memory (seen on driver 580)."""
    bounds = dict[str, str]()
    threads = threads_of(needs, terms)
    if threads < 1.0:
        bounds["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] = f"{100 * threads:g}"
    if needs.gpu_memory:
        each = (f"{device}={needs.gpu_memory}M" for device in range(gpus))
        bounds["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"] = ",".join(each)
    return bounds


def threads_of(needs: Needs, terms: Terms | None) -> float:
    """Of a GPU's threads, the part that a worker may use at most: where it shares on terms, its
    limit (an opportunistic job may have all, for a part of the time); else what it asked for."""
    if terms is not None:
        return terms.limit if terms.request > 0.0 else 1.0
    return needs.share / WHOLE
