"""Daemons and pages as forks of a process that has made the imports of their module, and no others:
a fork goes on where `python -m MODULE` is once it has imported what it begins with. What a module
imports later, each fork imports itself.

    python tests/forks.py MODULE FD      # serves at that socket until its other end is closed
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib
import json
import os
import resource
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from typing import IO, Any

ORDER_BYTES_MAX = 1 << 20


class Fork:
    """A process that does `main(*words)` of a module; of a Popen what tests ask it for."""

    def __init__(
        self,
        module: str,
        *words: str | int,
        stdout: IO[bytes] | None = None,
        stderr: IO[bytes] | None = None,
    ) -> None:
        self.args = [module, *map(str, words)]
        self.returncode: int | None = None
        open_files = resource.getrlimit(resource.RLIMIT_NOFILE)
        order = json.dumps([words, os.getcwd(), dict(os.environ), open_files]).encode()
        self._told, far = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        streams = [
            1 if stdout is None else stdout.fileno(),
            2 if stderr is None else stderr.fileno(),
        ]
        with far:
            socket.send_fds(_server(module), [order], [far.fileno(), 0, *streams])
        self.pid = self._heard()

    def __del__(self) -> None:
        self._told.close()

    def poll(self) -> int | None:
        """Its exit code, if it is over."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.wait(0)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Its exit code, once it is over. Raises TimeoutExpired."""
        if self.returncode is None:
            if not select.select([self._told], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired(self.args, timeout or 0)
            self.returncode = self._heard()
            self._told.close()
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Send it a signal, unless it is over."""
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def kill(self) -> None:
        """SIGKILL."""
        self.send_signal(signal.SIGKILL)

    def _heard(self) -> int:
        said = self._told.recv(32)
        assert said, f"the process that forks {self.args[0]} is gone"
        return int(said)


_servers: dict[str, tuple[socket.socket, subprocess.Popen[bytes]]] = {}


def _server(module: str) -> socket.socket:
    """What forks for the module, until this process ends. One that is gone has another one follow
    it: a Slurm of tests ends with all that was started beside it."""
    if module in _servers and _servers[module][1].poll() is not None:
        _servers.pop(module)[0].close()
    if module not in _servers:
        near, far = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with far:
            words = [sys.executable, __file__, module, str(far.fileno())]
            _servers[module] = near, subprocess.Popen(words, pass_fds=[far.fileno()])
    return _servers[module][0]


@atexit.register
def _end() -> None:
    for near, process in _servers.values():
        near.close()
        process.wait()


def _serve(orders: socket.socket) -> list[str | int]:
    """Answer until nobody asks any more; in a fork, return its words once it has the streams, the
    folder, the environment and the limit of who asks."""
    running: dict[int, tuple[int, socket.socket]] = {}
    while True:
        for ready in select.select([orders.fileno(), *running], [], [])[0]:
            if ready != orders.fileno():
                pid, asks = running.pop(ready)
                os.close(ready)
                code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
                with asks, contextlib.suppress(OSError):
                    asks.send(str(code).encode())
                continue
            order, files, _, _ = socket.recv_fds(orders, ORDER_BYTES_MAX, 4)
            if not order:
                os._exit(0)
            asks = socket.socket(fileno=files[0])
            if pid := os.fork():
                with contextlib.suppress(OSError):  # whoever asked is gone
                    asks.send(str(pid).encode())
                running[os.pidfd_open(pid)] = pid, asks
                for file in files[1:]:
                    os.close(file)
                continue
            for number, file in enumerate(files[1:]):
                os.dup2(file, number)
                os.close(file)
            for ready, (_, asks_too) in running.items():
                os.close(ready)
                asks_too.close()
            asks.close()
            orders.close()
            return _become(*json.loads(order))


def _become(
    words: list[str | int], folder: str, env: dict[str, str], open_files: tuple[int, int]
) -> list[str | int]:
    resource.setrlimit(resource.RLIMIT_NOFILE, (open_files[0], open_files[1]))
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(env)
    sys.path[0] = folder
    return words


def _main(module: str) -> Callable[..., Any]:
    """The module's main function, with all imported that it begins with."""
    gc.disable()  # as src/ganger/service/__main__.py
    function: Callable[..., Any] = importlib.import_module(module).main
    gc.freeze()
    return function


if __name__ == "__main__":
    main = _main(sys.argv[1])
    words = _serve(socket.socket(fileno=int(sys.argv[2])))
    gc.enable()
    sys.argv = [sys.argv[1], *map(str, words)]
    sys.exit(main(*words))
