"""Interpreters kept warm: started ahead, with the modules imported that jobs say they need.

The first job that wants one starts cold and has it made; those after it are forked from it. A warm
worker is not a child of its supervisor, so this is only done where a cgroup holds the job.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import socket
import subprocess
import time
from pathlib import Path
from typing import Final

from ganger.engines.agent.attempt import zygote
from ganger.engines.agent.attempt.attempt_dir import short_path
from ganger.engines.agent.attempt.spawn import imports_environment
from ganger.engines.launch import Launch

_BROKEN_SECONDS: Final = 10.0
"""An interpreter that ends so soon cannot import what it should: it is not tried again."""
_FLAGS: Final = ("-u", "-m", "-c")


class _Zygote:
    def __init__(self, path: Path, process: subprocess.Popen[bytes]) -> None:
        self.path, self.process, self.began = path, process, time.monotonic()

    @property
    def ready(self) -> bool:
        return self.path.with_suffix(".ready").exists()


class Warmth:
    """The interpreters of one agent, in its folder `path`; one per Python, modules, and environment
    that matters to importing them."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._by_need: dict[str, _Zygote | None] = {}

    @property
    def pids(self) -> set[int]:
        """Their process numbers."""
        return {one.process.pid for one in self._by_need.values() if one is not None}

    def zygote(self, launch: Launch) -> str:
        """The socket of an interpreter that fits the job and is ready, else empty."""
        if not launch.warm or launch.script or (launch.uid >= 0 and launch.uid != os.getuid()):
            return ""
        python = shutil.which(launch.command[0], path=launch.env.get("PATH")) or ""
        words = launch.command[1:]
        if not python or not words or (words[0].startswith("-") and words[0] not in _FLAGS):
            return ""
        env = imports_environment(launch, self._path.with_name("sdk"))
        words = (python, *launch.warm, *(f"{name}={env[name]}" for name in sorted(env)))
        need = hashlib.sha256("\0".join(words).encode()).hexdigest()[:16]
        if need not in self._by_need:
            self._by_need[need] = self._start(need, python, launch.warm, env)
        found = self._by_need[need]
        return str(found.path) if found is not None and found.ready else ""

    def ended(self, pid: int) -> None:
        """A child of the agent ended: if it was one of these it is started anew when needed."""
        for need, one in list(self._by_need.items()):
            if one is not None and one.process.pid == pid:
                one.process.returncode = 0  # it was reaped by number
                if time.monotonic() - one.began < _BROKEN_SECONDS:
                    self._by_need[need] = None
                else:
                    del self._by_need[need]

    def _start(
        self, name: str, python: str, modules: tuple[str, ...], env: dict[str, str]
    ) -> _Zygote:
        path = self._path / name
        for old in (path, path.with_suffix(".ready")):
            old.unlink(missing_ok=True)
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
            with short_path(path.parent, path.name) as short:
                listener.bind(short)
            listener.listen(64)
            with path.with_suffix(".log").open("ab") as log:
                process = subprocess.Popen(
                    [
                        python,
                        zygote.__file__,
                        str(listener.fileno()),
                        str(path.with_suffix(".ready")),
                        *modules,
                    ],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                    pass_fds=(listener.fileno(),),
                    env=env,
                )
        return _Zygote(path, process)
