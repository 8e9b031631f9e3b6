"""The folder of an attempt, on a file system that engine and nodes share: what to run, what is.

`order` is written once before the submission. `claim` is made exclusively by the first Slurm job
that runs for the attempt, so nothing starts twice, however often it was submitted. `state` is
replaced whenever something changed; only `claim`'s maker writes it. `ended.N` is Slurm's own word
on its job N, if the site lets it write (docs/slurm.md).
"""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from ganger.engines.agent.protocol import Exited, Launched, Prepare, Progress


class NodeShare(msgspec.Struct, frozen=True):
    """One node's part: the node, its address for others, in which component of the job it is, the
    GPUs that it has there."""

    node: str
    address: str
    component: int
    gpus: int
    prepare: Prepare


class Order(msgspec.Struct, frozen=True):
    """What to run: a seat per node, the first one's node is the gang's master. `home`: folder of
    logs, checkpoints, and the SDK."""

    home: str
    seats: tuple[NodeShare, ...]
    components: int = 1


class Told(msgspec.Struct):
    """What is known of a seat. `devices`: the indices that Slurm gave it."""

    launched: Launched | None = None
    progress: Progress | None = None
    exited: Exited | None = None
    devices: tuple[int, ...] = ()


class State(msgspec.Struct):
    """What is known of an attempt, by node. `port` is free on the master's node."""

    slurm_job: int
    seats: dict[str, Told] = {}


class AttemptFolder:
    """The folder at `path`."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def write(self, order: Order) -> None:
        """Make the folder if it is not there, and write the order into it. Raises OSError."""
        self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._replace("order", msgspec.msgpack.encode(order))

    def order(self) -> Order:
        """What to run. Raises OSError, msgspec.MsgspecError."""
        return msgspec.msgpack.decode((self.path / "order").read_bytes(), type=Order)

    def claim(self) -> None:
        """Take the right to run it. Raises FileExistsError, OSError."""
        os.close(os.open(self.path / "claim", os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))

    @property
    def is_claimed(self) -> bool:
        """Whether it ever began to run."""
        return (self.path / "claim").exists()

    def tell(self, state: State) -> None:
        """Say how it is. Raises OSError."""
        self._replace("state", msgspec.msgpack.encode(state))

    def state(self) -> State | None:
        """How it is; None before it began."""
        try:
            return msgspec.msgpack.decode((self.path / "state").read_bytes(), type=State)
        except (OSError, msgspec.MsgspecError):
            return None

    def changed(self) -> int:
        """When `state` was last replaced (nanoseconds), 0 for never."""
        try:
            return (self.path / "state").stat().st_mtime_ns
        except OSError:
            return 0

    def ended(self, number: int) -> str:
        """In which state this Slurm job ended, where the site has that written here; else empty."""
        try:
            return (self.path / f"ended.{number}").read_text().strip()
        except OSError:
            return ""

    def _replace(self, name: str, data: bytes) -> None:
        made = self.path / f"{name}.new"
        with made.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        made.rename(self.path / name)
