"""`python -m ganger.engines.slurm.leader FOLDER`: the batch script of an attempt.

Starts a seat on each node by `srun` and speaks the agents' protocol with it over the step's pipes,
a JSON message a line: all seats are prepared before any may go. SIGUSR1 (from us, or from Slurm
when the job's time is nearly over) and SIGTERM (from Slurm) mean save and leave, SIGUSR2 leave.
"""

from __future__ import annotations

import os
import selectors
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

import msgspec

from ganger.engines.agent.protocol import Exit, Exited, Go, Launched, Prepared, Progress, Stop
from ganger.engines.slurm.order import AttemptFolder, NodeShare, Order, State, Told

_TELL_SECONDS: Final = 0.5
"""Between two progress reports."""
_PER_TASK: Final = (
    "SLURM_NTASKS",
    "SLURM_NPROCS",
    "SLURM_NNODES",
    "SLURM_NTASKS_PER_NODE",
    "SLURM_JOB_NUM_NODES",
    "SLURM_MEM_PER_NODE",
)


class Granted(msgspec.Struct, frozen=True, tag=True):
    """A seat says which device indices Slurm gave it."""

    devices: tuple[int, ...]


_decode = msgspec.json.Decoder(Granted | Prepared | Launched | Progress | Exited).decode


class Leader:
    """Runs an order to its end."""

    def __init__(self, folder: AttemptFolder) -> None:
        self._folder = folder
        self._order: Order = folder.order()
        self._state = State(int(os.environ["SLURM_JOB_ID"]))
        self._steps: dict[str, subprocess.Popen[bytes]] = {}
        self._unread: dict[str, bytes] = {}
        self._ports: dict[str, int] = {}
        self._went = self._dirty = False
        self._stop: Stop | None = None
        self._told_at = 0.0
        self._selector = selectors.DefaultSelector()

    def run(self) -> None:
        """Start the seats and see them through."""
        woken, wake = socket.socketpair()
        woken.setblocking(False)
        wake.setblocking(False)
        signal.set_wakeup_fd(wake.fileno(), warn_on_full_buffer=False)
        for number in (signal.SIGUSR1, signal.SIGTERM):
            signal.signal(number, lambda *_: self._leave(checkpoint=True))
        signal.signal(signal.SIGUSR2, lambda *_: self._leave(checkpoint=False))
        self._selector.register(woken, selectors.EVENT_READ, None)
        for seat in self._order.seats:
            self._state.seats[seat.node] = Told()
            self._start(seat)
        self._folder.tell(self._state)
        while self._steps:
            for key, _ in self._selector.select(_TELL_SECONDS):
                if key.data is None:
                    woken.recv(4096)
                else:
                    self._hear(key.data)
            if self._dirty and time.monotonic() - self._told_at > _TELL_SECONDS:
                self._tell()
        self._tell()

    def _start(self, seat: NodeShare) -> None:
        command = [
            "srun",
            "--nodes=1",
            "--ntasks=1",
            f"--nodelist={seat.node}",
            "--overlap",
            "--unbuffered",
            "--export=ALL",
            "--quiet",
            "--kill-on-bad-exit=0",
        ]
        if self._order.components > 1:
            command.append(f"--het-group={seat.component}")
        if seat.gpus:
            command.append(f"--gres=gpu:{seat.gpus}")
        env = {name: value for name, value in os.environ.items() if name not in _PER_TASK}
        step = self._steps[seat.node] = subprocess.Popen(
            [
                *command,
                sys.executable,
                "-P",
                "-m",
                "ganger.engines.slurm.node_share",
                str(self._folder.path),
                seat.node,
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=env,
        )
        assert step.stdout is not None
        self._unread[seat.node] = b""
        self._selector.register(step.stdout, selectors.EVENT_READ, seat.node)

    def _leave(self, *, checkpoint: bool) -> None:
        key = self._order.seats[0].prepare.key
        self._stop = Stop(key, checkpoint=checkpoint)
        for node in list(self._steps):
            self._say(node, self._stop)

    def _say(self, node: str, message: Go | Stop) -> None:
        pipe = self._steps[node].stdin
        assert pipe is not None
        try:
            os.write(pipe.fileno(), msgspec.json.encode(message) + b"\n")
        except OSError:
            return  # its end is heard of

    def _hear(self, node: str) -> None:
        step = self._steps[node]
        assert step.stdout is not None
        data = os.read(step.stdout.fileno(), 1 << 16)
        lines = (self._unread[node] + data).split(b"\n")
        self._unread[node] = lines.pop()
        for line in lines:
            self._take(node, line)
        if not data:
            self._over(node, step)

    def _over(self, node: str, step: subprocess.Popen[bytes]) -> None:
        assert step.stdout is not None
        self._selector.unregister(step.stdout)
        code = step.wait()
        del self._steps[node]
        told = self._state.seats[node]
        if told.exited is None:
            why = f"its step ended with {code}"
            asked = self._stop is not None
            key = self._order.seats[0].prepare.key
            told.exited = Exited(key, Exit(code=-9, why="NodeFail", detail=why, asked=asked))
            self._leave(checkpoint=False)
        self._tell()

    def _take(self, node: str, line: bytes) -> None:
        try:
            message = _decode(line)
        except msgspec.MsgspecError:
            sys.stderr.write(f"{node}: {line.decode(errors='replace')}\n")
            return
        told = self._state.seats[node]
        if isinstance(message, Prepared):
            self._ports[node] = message.port
            self._go_if_all_are_ready()
        elif isinstance(message, Granted):
            told.devices = message.devices
        elif isinstance(message, Launched):
            told.launched = message
            self._tell()
        elif isinstance(message, Progress):
            first, told.progress = told.progress is None, message
            self._dirty = True
            if first:
                self._tell()
        else:
            told.exited = message
            self._tell()

    def _go_if_all_are_ready(self) -> None:
        if self._went or len(self._ports) < len(self._order.seats):
            return
        self._went = True
        first = self._order.seats[0]
        address = first.address if len(self._order.seats) > 1 else "127.0.0.1"
        for seat in self._order.seats:
            self._say(seat.node, Go(seat.prepare.key, address, self._ports[first.node]))

    def _tell(self) -> None:
        self._folder.tell(self._state)
        self._dirty, self._told_at = False, time.monotonic()


def main() -> int:
    """Run the order in the folder that the argument names, unless it ever ran."""
    folder = AttemptFolder(Path(sys.argv[1]))
    try:
        folder.claim()
    except FileExistsError:
        print("this attempt ran already", file=sys.stderr)
        return 0
    Leader(folder).run()
    return 0


if __name__ == "__main__":
    sys.exit(main())
