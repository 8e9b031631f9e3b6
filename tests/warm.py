"""`ganger` from a process that has imported what any command needs: it forks for each command.

    python tests/warm.py SOCKET      # serves until its standard input ends

The command has the arguments, the folder, the environment and the standard streams of the programme
that `script` writes, and that ends with its exit code.
"""

from __future__ import annotations

import array
import contextlib
import gc
import importlib
import json
import multiprocessing
import multiprocessing.process
import os
import pkgutil
import select
import socket
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path

OWN = "ganger"
ROOMS = "cli client estimate lab mechanisms recipes service sim solve workloads"
"""Rooms whose modules a command may import."""
OTHERS = ("highspy", "jinja2", "numpy.ma", "rich.markdown", "rich.progress", "scipy.optimize")
"""What they import once they need it."""
STREAMS = 3

_CLIENT = """#!{python} -IS
import array, json, os, socket, sys
with socket.socket(socket.AF_UNIX) as server:
    server.connect({address!r})
    words = json.dumps([sys.argv[1:], os.getcwd(), dict(os.environ)]).encode()
    streams = socket.SCM_RIGHTS, array.array("i", [0, 1, 2])
    server.sendmsg([len(words).to_bytes(4, "big")], [(socket.SOL_SOCKET, *streams)])
    server.sendall(words)
    said = server.recv(4)
sys.exit(int(said) if said else "the process that runs ganger is gone")
"""


def script(file: Path, address: Path) -> None:
    """Write the programme that has its words done by the server at `address`."""
    file.write_text(_CLIENT.format(python=sys.executable, address=str(address)))
    file.chmod(0o755)


@contextlib.contextmanager
def serving(address: Path, env: dict[str, str]) -> Iterator[None]:
    """A server, until the end of the block, that has imported what commands need in this
    environment."""
    with subprocess.Popen(
        [sys.executable, __file__, str(address)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=env,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline(), "nothing serves commands"
        yield


def _import_all() -> None:
    """Import Ganger, and all that it imports. A command misses nothing by that: no import of ours
    depends on what was imported before (tests/tidy/test_rooms.py)."""
    for room in ROOMS.split():
        package = importlib.import_module(f"{OWN}.{room}")
        for each in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if not each.name.endswith("__main__"):
                with (
                    contextlib.suppress(ImportError, FutureWarning),  # optional; an old name
                    warnings.catch_warnings(action="error", category=FutureWarning),
                ):
                    importlib.import_module(each.name)
    for name in OTHERS:
        importlib.import_module(name)


def _serve(address: str) -> None:
    """Answer until standard input ends."""
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(address)
    listener.listen()
    print("ready", flush=True)
    forks = multiprocessing.get_context("fork")
    running: dict[int, tuple[multiprocessing.process.BaseProcess, socket.socket]] = {}
    while True:
        ready, _, _ = select.select([0, listener.fileno(), *running], [], [])
        for each in ready:
            if each == 0:
                os._exit(0)
            elif each == listener.fileno():
                asked, _ = listener.accept()
                fork = forks.Process(target=_command, args=(listener, asked))
                fork.start()
                running[fork.sentinel] = fork, asked
            else:
                ended, asked = running.pop(each)
                ended.join()
                code = ended.exitcode or 0
                with asked, contextlib.suppress(OSError):
                    asked.sendall(str(code if code >= 0 else 128 - code).encode())


def _command(listener: socket.socket, asked: socket.socket) -> None:
    """Be the command that is asked for."""
    from ganger.cli.main import main

    listener.close()
    _become(asked)
    main()


def _become(asked: socket.socket) -> None:
    """Take over what the command was called with."""
    size = array.array("i").itemsize * STREAMS
    head, extra, _, _ = asked.recvmsg(4, socket.CMSG_SPACE(size))
    text = b""
    while len(text) < int.from_bytes(head, "big"):
        text += asked.recv(1 << 20)
    words, folder, env = json.loads(text)
    for number, stream in enumerate(array.array("i", extra[0][2])):
        os.dup2(stream, number)
        os.close(stream)
    asked.close()
    sys.stdin = open(0)  # of a fork it is empty  # noqa: SIM115
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(env)
    sys.argv = ["ganger", *words]


if __name__ == "__main__":
    gc.disable()
    _import_all()
    gc.freeze()
    gc.enable()
    _serve(sys.argv[1])
