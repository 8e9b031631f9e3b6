"""Starts a replica's command at a TCP port that is free, and tells Ganger which one that is.

The agent starts so what a service runs whose command has the word `{port}` in it. Whatever speaks
HTTP can then be a replica, without importing anything of ours. Standard library only.
"""

from __future__ import annotations

import contextlib
import ctypes
import math
import os
import random
import resource
import signal
import socket
import subprocess
import sys
import time
from typing import Any

from ganger import sdk

WORD = "{port}"
"""What stands in a command for the port."""
PORT, DRAIN = "GANGER_PORT", "GANGER_DRAIN"
"""Variables: the port, for the command; for us the seconds for which it goes on when it is to
leave."""
DRAIN_SECONDS = 2.0
LOOK_SECONDS = 0.1
"""How often we look whether it is asked to leave."""
LOWEST_PORT = 10_000
_SET_DEATH_SIGNAL = 1  # prctl(2)
_LEAVES = (signal.SIGTERM, signal.SIGINT)
_PASSED_ON = (signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)
_HEARD = {signal.SIGCHLD, *_LEAVES, *_PASSED_ON}


def reserved_port() -> tuple[int, socket.socket]:
    """A TCP port that nothing listens on, and what keeps others of us from it until it is closed.

    Outgoing connections never take it: it is none of the kernel's ephemeral ports, so that a server
    that loads a model for minutes still finds it free. Raises OSError where there is none.
    """
    first, last = _ephemeral()
    ports = [*range(LOWEST_PORT, first), *range(last + 1, 1 << 16)] or [*range(first, last + 1)]
    random.SystemRandom().shuffle(ports)
    for port in ports:
        ours = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        with contextlib.suppress(OSError), socket.socket() as probe:
            ours.bind("\0ganger-port-%d" % port)  # noqa: UP031
            probe.bind(("", port))
            return port, ours
        ours.close()
    raise OSError("no port is free")


def _ephemeral() -> tuple[int, int]:
    """The first and the last of the ports that the kernel gives to outgoing connections."""
    try:
        with open("/proc/sys/net/ipv4/ip_local_port_range") as file:
            first, last = file.read().split()
        return int(first), int(last)
    except (OSError, ValueError):
        return 32768, 60999


def drain_seconds(text: str) -> float:
    """The time for which a replica goes on: the variable's seconds, or 2 where it has none."""
    with contextlib.suppress(ValueError):
        if 0 <= (seconds := float(text)) < math.inf:
            return seconds
    return DRAIN_SECONDS


class Replica:
    """The command, as our child: it dies with us."""

    def __init__(self, words: list[str], port: int) -> None:
        libc, parent = ctypes.CDLL(None), os.getpid()

        def begin() -> None:
            libc.prctl(_SET_DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0)
            if os.getppid() != parent:
                os.kill(os.getpid(), signal.SIGKILL)
            signal.pthread_sigmask(signal.SIG_SETMASK, ())

        self._drain = drain_seconds(os.environ.get(DRAIN, ""))
        signal.pthread_sigmask(signal.SIG_BLOCK, _HEARD)  # they are waited for in `run`
        self._child = subprocess.Popen(
            [word.replace(WORD, str(port)) for word in words],
            env={**os.environ, PORT: str(port)},
            preexec_fn=begin,
        )

    def run(self) -> int:
        """See it through, and have it leave when that is wanted: its exit code, negative for the
        signal that ended it."""
        due = math.inf
        while True:
            code = self._child.poll()
            if code is not None:
                return code
            now = time.monotonic()
            if due == math.inf and sdk.should_checkpoint():
                due = now + self._drain
            if now >= due:
                self._child.terminate()
                return self._leave()
            number = self._signal(min(LOOK_SECONDS, due - now))
            if number in _LEAVES:
                due = now + self._drain if due == math.inf else now  # the second one is urgent
            elif number in _PASSED_ON:
                self._child.send_signal(number)

    def _leave(self) -> int:
        """It was told to go: until it has, signals are passed on."""
        while (code := self._child.poll()) is None:
            number = self._signal(LOOK_SECONDS)
            if number in _LEAVES or number in _PASSED_ON:
                self._child.send_signal(number)
        return code

    @staticmethod
    def _signal(seconds: float) -> Any:
        """The number of the next signal, that a child ended among them; None if none comes."""
        info = signal.sigtimedwait(_HEARD, max(seconds, 0.0))
        return None if info is None else info.si_signo


def ended_alike(code: int) -> int:
    """The exit code of a process that ends as its child did; does not return where that was by a
    signal."""
    if code >= 0:
        return code
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # the child has left its core
    if -code not in (signal.SIGKILL, signal.SIGSTOP):
        signal.signal(-code, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {-code})
    os.kill(os.getpid(), -code)
    return 128 - code


def main() -> int:
    """Run the command that our own words are; the exit code."""
    words = sys.argv[1:]
    try:
        port, ours = reserved_port()
        sdk.should_checkpoint()  # from now on Ganger knows that somebody listens
        replica = Replica(words, port)
    except OSError as why:
        sys.stderr.write("replica: %s: %s\n" % (words[0], why.strerror or why))  # noqa: UP031
        return 127
    with ours:
        sdk.listens(port)
        return ended_alike(replica.run())
