"""`python -m ganger.engines.slurm.node_share FOLDER NODE`: one node's part of an attempt.

Forks the local engine's supervisor and carries messages between it and the leader, which is at the
other end of its standard input and output.
"""

from __future__ import annotations

import os
import selectors
import shutil
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

from ganger.engines.agent.attempt.attempt_dir import AttemptDir, SupervisorRecord
from ganger.engines.agent.attempt.cgroup import Group
from ganger.engines.agent.attempt.launch import Home, Start, fork_supervisor
from ganger.engines.agent.attempt.spawn import IS_SLURMS
from ganger.engines.agent.protocol import (
    Exit,
    Exited,
    Go,
    Launched,
    Message,
    Part,
    Prepare,
    Prepared,
    Progress,
    Reported,
    Stop,
)
from ganger.engines.agent.wire import GoneError, Link
from ganger.engines.launch import SUPERVISOR_KILLED
from ganger.engines.slurm.leader import Granted
from ganger.engines.slurm.order import AttemptFolder, Order

_decode = msgspec.json.Decoder(Go | Stop).decode
_EXIT_SECONDS: Final = 5.0


def granted(visible: str) -> tuple[int, ...]:
    """The devices in CUDA_VISIBLE_DEVICES. Raises ValueError for what is not a number."""
    return tuple(int(word) for word in visible.split(",") if word)


def on_devices(parts: Sequence[Part], devices: Sequence[int]) -> tuple[Part, ...]:
    """The parts, on these devices instead of those that were planned with."""
    left = list(devices)
    found = []
    for part in parts:
        mine, left = left[: len(part.devices)], left[len(part.devices) :]
        found.append(msgspec.structs.replace(part, devices=tuple(mine)))
    return tuple(found)


class SeatProcess:
    """One part, from its preparation to its exit."""

    def __init__(self, order: Order, prepare: Prepare, scratch: Path) -> None:
        self._home = Home(Path(order.home))
        self._prepare = prepare
        self._folder = AttemptDir.make(scratch, prepare)
        self._selector = selectors.DefaultSelector()
        self._link: Link | None = None
        self._unread = b""
        self._ended = False

    def run(self) -> None:
        """Prepare, wait for the order to go, see it through."""
        self._selector.register(sys.stdin.fileno(), selectors.EVENT_READ, self._obey)
        say(Prepared(self._prepare.key, _free_port()))
        while not self._ended:
            for key, _ in self._selector.select():
                key.data()

    def _obey(self) -> None:
        data = os.read(sys.stdin.fileno(), 1 << 16)
        if not data:  # the head is gone, and with it the attempt
            self._selector.unregister(sys.stdin.fileno())
            self._stop(Stop(self._prepare.key, checkpoint=False, kill=True))
            return
        lines = (self._unread + data).split(b"\n")
        self._unread = lines.pop()
        for line in lines:
            message = _decode(line)
            if isinstance(message, Stop):
                self._stop(message)
            elif self._link is None and not self._ended:
                self._go(message)

    def _go(self, go: Go) -> None:
        group = Group({})
        lock = self._folder.take(SupervisorRecord(group.paths))
        control = self._folder.listen()
        start = Start(self._home, self._folder, self._prepare, go, group, 0, os.umask(0o022), "")
        os.umask(start.umask)
        fork_supervisor(start, lock, control)
        os.close(lock)
        control.close()
        self._link = Link(self._folder.connect(), Launched | Progress | Reported)
        self._selector.register(self._link, selectors.EVENT_READ, self._hear)

    def _hear(self) -> None:
        assert self._link is not None
        try:
            for message in self._link.receive():
                if not isinstance(message, Reported):  # a job of Slurm's own is no trial
                    say(message)
        except GoneError:
            self._finish()

    def _stop(self, order: Stop) -> None:
        if self._link is None:
            self._end(Exit(code=-15, asked=True))
            return
        try:
            self._link.send(order)
        except GoneError:
            self._finish()

    def _finish(self) -> None:
        until = time.monotonic() + _EXIT_SECONDS
        while (exit_ := self._folder.exit()) is None:
            if not self._folder.is_kept() or time.monotonic() > until:
                exit_ = Exit(code=-9, why="NodeFail", detail=SUPERVISOR_KILLED)
                break
            time.sleep(0.01)
        self._end(exit_)

    def _end(self, exit_: Exit) -> None:
        self._ended = True
        say(Exited(self._prepare.key, exit_))


def say(message: Message | Granted) -> None:
    """Tell the head."""
    os.write(sys.stdout.fileno(), msgspec.json.encode(message) + b"\n")


def _free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("", 0))
        return int(sock.getsockname()[1])


def main() -> int:
    """Run this node's part."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(number, signal.SIG_IGN)  # the head decides what is to end, and how
    os.environ[IS_SLURMS] = os.environ["SLURM_JOB_ID"]
    order = AttemptFolder(Path(sys.argv[1])).order()
    seat = next(one for one in order.seats if one.node == sys.argv[2])
    prepare = seat.prepare
    scratch = Path(tempfile.mkdtemp(prefix="ganger-"))
    try:
        if seat.gpus:
            visible = os.environ.get("CUDA_VISIBLE_DEVICES", "")
            devices = granted(visible)
            wanted = sum(len(part.devices) for part in prepare.parts)
            if len(devices) < wanted:
                raise ValueError(f"{wanted} GPUs were asked for, Slurm shows {visible!r}")
            say(Granted(devices))
            parts = on_devices(prepare.parts, devices)
            prepare = msgspec.structs.replace(prepare, parts=parts)
        SeatProcess(order, prepare, scratch).run()
    except (OSError, ValueError) as why:
        say(Exited(prepare.key, Exit(code=127, why="LaunchFailed", detail=str(why))))
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
