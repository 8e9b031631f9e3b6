"""A started interpreter that has imported modules and forks workers.

`zygote.py FD READY MODULE...` runs in the job's own Python, so standard library only, 3.9 or newer.
When the imports are done it makes the file READY. Each connection to the listening socket FD asks
for one worker: a JSON line with `argv`, `env`, `cwd`, `umask`, `groups`, `cores`, and two
descriptors for its output. The answers are a line with the worker's process number and, when it has
ended, one with its wait status. The zygote ends when its parent is gone and so are its workers.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import json
import os
import runpy
import select
import signal
import socket
import sys
import types
from typing import Any

_SUBREAPER = 36  # prctl(2)
_LOOK_SECONDS = 5.0
_REQUEST_BYTES_MAX = 4 << 20


class Zygote:
    """Serves until its parent is gone."""

    def __init__(self, listener: socket.socket) -> None:
        self.listener = listener
        self.workers: dict[int, socket.socket] = {}
        self.pair: tuple[socket.socket, ...] = ()
        self.parent = os.getppid()

    def serve(self) -> dict[str, Any] | None:
        """In a worker: what it was asked to run. In the zygote: None, at its end."""
        wake, woken = self.pair = socket.socketpair()
        wake.setblocking(False)
        signal.set_wakeup_fd(wake.fileno(), warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        listening = True
        while listening or self.workers:
            sources = [woken, self.listener] if listening else [woken]
            ready, _, _ = select.select(sources, [], [], _LOOK_SECONDS)
            if woken in ready:
                woken.recv(4096)
            self.reap()
            if self.listener in ready:
                request = self.accept()
                if request is not None:
                    return request
            listening = listening and os.getppid() == self.parent
        return None

    def accept(self) -> dict[str, Any] | None:
        """Fork a worker; in the worker, its request."""
        asked, _ = self.listener.accept()
        asked.settimeout(_LOOK_SECONDS)
        try:
            data, files, _, _ = socket.recv_fds(asked, 1 << 16, 2)
            while not data.endswith(b"\n") and len(data) < _REQUEST_BYTES_MAX:
                more = asked.recv(1 << 16)
                if not more:
                    raise ValueError("a cut request")
                data += more
            request: dict[str, Any] = json.loads(data)
        except (OSError, ValueError):
            asked.close()
            return None
        reads, writes = os.pipe()
        pid = os.fork()
        if not pid:
            enter(request["groups"])
            if request["cores"]:
                os.sched_setaffinity(0, request["cores"])
            os.close(writes)
            os.close(reads)
            signal.set_wakeup_fd(-1)
            for sock in (asked, self.listener, *self.pair, *self.workers.values()):
                sock.detach()  # the numbers will be others' files
            request["files"] = files
            return request
        os.close(writes)
        os.read(reads, 1)  # ends when it is in its cgroup
        for one in (*files, reads):
            os.close(one)
        self.workers[pid] = asked
        self.tell(asked, pid)
        return None

    def reap(self) -> None:
        """Tell of workers that ended; orphans of workers end up here, too."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if not pid:
                return
            asked = self.workers.pop(pid, None)
            if asked is not None:
                self.tell(asked, status)
                asked.close()

    @staticmethod
    def tell(asked: socket.socket, number: int) -> None:
        """Say a number."""
        with contextlib.suppress(OSError):  # who asked is gone
            asked.send(b"%d\n" % number)


def enter(groups: list[str]) -> None:
    """Move this process into its cgroups."""
    for path in groups:
        with open(os.path.join(path, "cgroup.procs"), "w") as file:
            file.write("0")


def become(request: dict[str, Any]) -> None:
    """Turn this fork into the worker that was asked for."""
    os.setsid()
    for one in signal.valid_signals():
        if one not in (signal.SIGKILL, signal.SIGSTOP, signal.SIGINT):
            signal.signal(one, signal.SIG_DFL)
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)  # as Python starts
    output, error = request["files"][0], request["files"][-1]
    os.dup2(output, 1)
    os.dup2(error, 2)
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))
    os.umask(request["umask"])
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["env"])
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed()  # or all workers draw the same


def run(argv: list[str]) -> None:
    """Run `[-u] script.py ...`, `[-u] -m module ...` or `[-u] -c text ...` as Python would."""
    argv = [*argv]
    while argv[0] == "-u":
        argv.pop(0)
        for stream in (sys.stdout, sys.stderr):
            stream.reconfigure(write_through=True)  # type: ignore[union-attr]
    if argv[0] == "-m":
        sys.argv = argv[1:]
        sys.path.insert(0, os.getcwd())
        runpy.run_module(argv[1], run_name="__main__", alter_sys=True)
    elif argv[0] == "-c":
        sys.argv = ["-c", *argv[2:]]
        sys.path.insert(0, "")
        module = sys.modules["__main__"] = types.ModuleType("__main__")
        exec(compile(argv[1], "<string>", "exec"), module.__dict__)
    else:
        sys.argv = argv
        sys.path.insert(0, os.path.dirname(os.path.abspath(argv[0])))
        runpy.run_path(argv[0], run_name="__main__")


def main() -> None:
    """Import, serve, and in a worker run what was asked for."""
    sys.path.pop(0)  # where this file is: no job's business
    for name in sys.argv[3:]:
        importlib.import_module(name)
    ctypes.CDLL(None).prctl(_SUBREAPER, 1, 0, 0, 0)
    for one in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM):
        signal.signal(one, signal.SIG_IGN)
    open(sys.argv[2], "w").close()
    request = Zygote(socket.socket(fileno=int(sys.argv[1]))).serve()
    if request is not None:
        become(request)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        run(request["argv"])


if __name__ == "__main__":
    main()
