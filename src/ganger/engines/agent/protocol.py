"""What an engine and a node agent say to each other.

A frame is a length (4 bytes, big endian) and that many bytes of msgpack: one tagged struct. Both
sides may close at any time. The protocol is level-triggered, so no message needs a sequence
number: every message about an attempt states what should be, or what is, and may be repeated.

1. The agent says `Hello`, the engine `Welcome`. Over TCP, where the agent dials, the engine sends
   `Challenge` first, and each carries a proof (HMAC-SHA256 of both nonces) that its sender knows
   the token, which itself never travels. Nothing is encrypted: use a network you trust. Over a
   Unix socket, where the engine dials, the kernel vouches for the peer's user instead.
2. The agent sends the state of each attempt that it has (`Prepared`, `Launched`, `Exited`), then
   `Ready`. From now on either side sends what changes. The engine repeats what the agent has not
   got: after a lost connection both know again what the other does.
3. `Exited` is kept on the agent's disk and repeated at each connection until `Forget`.
4. Over TCP both send `Ping` at times; a side that hears nothing for long closes the connection.

**Versions.** Agents outlive engines, so the two may be of different age. Each names the newest
version that it speaks; both then speak the lower one, and a side that does not go back so far
(`OLDEST`) says `Denied`. A new kind of message, or a field that changes what a message asks for,
makes a new version and is not sent to a side that speaks an older one; a field that may be ignored
needs a default and no version. Version 2 added `Read`, `Text`, `Leaving` and `Launch.script`;
version 3 `Launch.steps`; version 4 `Reported`; version 5 `Terms`.
"""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from math import inf
from typing import Final, TypeAlias

import msgspec

from ganger.core.errors import BadInput
from ganger.core.plan import WITHDRAWN
from ganger.core.spec import NodeSpec
from ganger.engines.launch import Launch
from ganger.estimate.sharing.rates import ARRIVAL_RATE, STEP_TIME

VERSION: Final = 6
OLDEST: Final = 1
FRAME_BYTES_MAX: Final = 16 << 20
NONCE_BYTES: Final = 32
PORT: Final = "port"
"""Where a replica answers, among what it tells of itself (`Progress.served`)."""


class Key(msgspec.Struct, frozen=True, array_like=True, order=True):
    """One node's part of an attempt. `seat` counts the agent's own nodes from 0."""

    job: int
    attempt: int
    seat: int = 0

    @property
    def both(self) -> tuple[int, int]:
        """Job and attempt."""
        return self.job, self.attempt

    @property
    def name(self) -> str:
        """The folder of the part."""
        return f"{self.job}.{self.attempt}.{self.seat}"


class Message(msgspec.Struct, frozen=True, tag=True):
    """Base of all messages."""


# ---------------------------------------------------------------------- who is there


class Challenge(Message, frozen=True):
    """Over TCP the engine speaks first; `nonce` is random."""

    nonce: bytes
    version: int = VERSION


class Hello(Message, frozen=True):
    """The agent: its name, the nodes it offers (GPUs, CPUs, memory), and what it cannot do.

    `boot` tells one boot of the machine from another; `containment` is `v2`, `hybrid`, `v1` or
    `none`; `warnings` are for people. `sharing`: how jobs share a device there, `MPS`, `time
    slices: ` and why not by MPS, `core sets`, or nothing.
    """

    name: str
    nodes: tuple[NodeSpec, ...]
    boot: str = ""
    containment: str = "none"
    warnings: tuple[str, ...] = ()
    nonce: bytes = b""
    proof: bytes = b""
    version: int = VERSION
    sharing: str = ""


class Welcome(Message, frozen=True):
    """The engine: which cluster it speaks for. An agent serves one cluster for as long as its
    folder lives."""

    cluster: str
    nonce: bytes = b""
    proof: bytes = b""
    version: int = VERSION


class Denied(Message, frozen=True):
    """No: the connection ends here."""

    why: str


class Ready(Message, frozen=True):
    """The agent has sent all that it had before this connection."""


# ---------------------------------------------------------------------- engine to agent


class Part(msgspec.Struct, frozen=True):
    """What one node runs of a gang.

    `devices` are numbers of the seat's GPUs; the part's workers have the ranks from `first_rank`
    on, of `world_size`; `node_rank` of `nodes`; `role_rank` is the first worker's rank in its role;
    `share`: the thousandths of each device that it takes where the recipe lets jobs share devices,
    0: what its role needs.
    """

    devices: tuple[int, ...] = ()
    workers: int = 1
    role: int = 0
    first_rank: int = 0
    world_size: int = 1
    node_rank: int = 0
    nodes: int = 1
    role_rank: int = 0
    role_size: int = 1
    share: int = 0


class Prepare(Message, frozen=True):
    """Make the attempt's folder and be able to start it. Answered by `Prepared` or `Refused`.

    With `go` it is started at once: the gang has this part only. The parts of one node come in
    `parts`, one per role. `terms`: those on which it will share its devices, where they are known.
    """

    key: Key
    launch: Launch
    parts: tuple[Part, ...]
    go: bool = False
    terms: Terms | None = None


class Go(Message, frozen=True):
    """All parts of the gang are prepared: start this one. Answered by `Launched` or `Exited`.

    `hosts` names the gang's nodes by rank, `tasks` says how many workers each has; `secret` is what
    its parts know each other by."""

    key: Key
    master_address: str
    master_port: int
    hosts: tuple[str, ...] = ()
    tasks: tuple[int, ...] = ()
    secret: str = ""


class Stop(Message, frozen=True):
    """End the part: with `checkpoint` ask first and give it its grace, with `kill` at once. `why`
    goes into the record of its exit."""

    key: Key
    checkpoint: bool = True
    kill: bool = False
    why: str = ""


class Suspend(Message, frozen=True):
    """Freeze the part."""

    key: Key


class Resume(Message, frozen=True):
    """Let the part go on."""

    key: Key


class Terms(Message, frozen=True):
    """On what terms the part shares its devices from now on: the part of their time that it
    `request`s and the `limit` of that; what cuts the rate of a part that requests nothing
    (`control`: "" nothing, `step-time`, `arrival-rate`), once in `settle_s` seconds."""

    key: Key
    request: float
    limit: float = 1.0
    control: str = ""
    settle_s: float = 1.0

    @classmethod
    def of(cls, key: Key, knobs: Mapping[str, float | bool | str]) -> Terms:
        """Those that a policy gave; whole devices where it has withdrawn them. Raises ValueError
        if they make no sense."""
        if knobs["request"] == WITHDRAWN:
            return cls(key, 1.0)
        control = str(knobs.get("control", ""))
        request, limit = float(knobs["request"]), float(knobs.get("limit", 1.0))
        settle_s = float(knobs.get("settle_s", 1.0))
        parts = 0.0 <= request <= limit <= 1.0 and limit > 0.0
        if not (parts and 0.0 <= settle_s < inf and control in ("", STEP_TIME, ARRIVAL_RATE)):
            raise ValueError(
                f"terms of sharing: request {request}, limit {limit}, control {control!r},"
                f" settle_s {settle_s}"
            )
        return cls(key, request, limit, control, settle_s)


class Rate(Message, frozen=True):
    """To a supervisor: its part computes for this part of the time, 1 for all of it. A job that
    sees to that itself is left to do so, unless it is to be `held`."""

    key: Key
    part: float
    held: bool = False


class Forget(Message, frozen=True):
    """The exit is in the owner's journal: the agent may drop its record."""

    key: Key


class Read(Message, frozen=True):
    """Send a piece of a text file that a job wrote. Answered by `Text` with the same `ask`.

    The file is `path`, which must belong to `uid` (-1: to anybody), or if that is empty the log of
    the attempt on the gang's node `node_rank`. From byte `at` on, -1: from its last `lines` lines
    on (0: all of it)."""

    ask: int
    job: int
    attempt: int
    node_rank: int = 0
    path: str = ""
    uid: int = -1
    at: int = -1
    lines: int = 0


class Ping(Message, frozen=True):
    """Somebody is there."""


# ---------------------------------------------------------------------- agent to engine


class Prepared(Message, frozen=True):
    """The part can start. `port` is free on the agent's machine (for the gang's first node)."""

    key: Key
    port: int = 0


class Refused(Message, frozen=True):
    """The part cannot start, or was not there to be stopped; nothing of it is left."""

    key: Key
    why: str


class Launched(Message, frozen=True):
    """The part's processes run."""

    key: Key
    pids: tuple[int, ...] = ()
    paces: bool = False
    """From a supervisor: it knows `Rate`."""


class Progress(Message, frozen=True):
    """What the job reported: steps done of `total` (0: unknown), microseconds a step takes now
    (0: not known yet), the last step that is saved (-1: none), metrics as the job names them, and
    of a replica what it counted since its start and how it does now (`sdk.served`)."""

    key: Key
    step: int
    total: int = 0
    step_micros: float = 0.0
    saved: int = -1
    metrics: dict[str, float] = {}
    served: dict[str, float] = {}

    def figures(self) -> dict[str, float]:
        """What people are shown of it: nothing before the first step."""
        if self.step < 0:
            return {}
        return {"step": self.step, "total": self.total, **self.metrics}


class Report(msgspec.Struct, frozen=True, array_like=True):
    """One evaluation of a trial, as `core.events.Evaluated` has it."""

    epoch: float
    value: float | None
    metrics: dict[str, float] = {}
    final: bool = False


class Reported(Message, frozen=True):
    """What a trial reported: its report `number`, counted from 1 in its attempt, and those that
    follow. Each is sent at least once, in order, before the attempt has `Exited`; all are sent
    again at each connection. From a supervisor, without any: there are new ones."""

    key: Key
    number: int
    reports: tuple[Report, ...] = ()


class Leaving(Message, frozen=True):
    """The agent's machine will soon be gone, because `why`: what runs there is to save and leave,
    and nothing new starts there. Sent at once, and first of all at each connection."""

    why: str


class Used(Message, frozen=True):
    """How busy the part was since the agent last looked: of its GPUs the busiest one's share of
    the time (-1: not measured), and cores. Sent every few seconds, and not kept.

    `rate`: for which part of the time it may compute now; `speed`: of its speed alone, as its own
    steps measured both (0: not known)."""

    key: Key
    gpu: float
    cores: float
    rate: float = 1.0
    speed: float = 0.0


class Exit(msgspec.Struct, frozen=True):
    """How a part ended.

    `code`: the exit code of the first worker that failed, -N for signal N, 0 if none did; `why`: ""
    or TimeLimit, OutOfMemory, NodeFail (the record was lost), LaunchFailed; `asked`: it had been
    ordered to leave; `heard`: it could have noticed (a signal was delivered, or it speaks to
    Ganger). `output_dropped`: bytes of its output that were not kept; `output_why`: the error of
    the disk that they could not be written to, empty if they went beyond the launch's
    `output_limit`.
    """

    code: int = 0
    why: str = ""
    detail: str = ""
    asked: bool = False
    heard: bool = False
    step: int = -1
    total: int = 0
    saved: int = -1
    step_micros: float = 0.0
    codes: dict[int, int] = {}
    output_dropped: int = 0
    output_why: str = ""


class Exited(Message, frozen=True):
    """The part is over and nothing of it runs any more."""

    key: Key
    exit: Exit


class Text(Message, frozen=True):
    """A piece of a file: what was there, at most some hundred KiB, and where it ends (-1: there is
    no file yet). `why`: it must not be read."""

    ask: int
    at: int
    data: bytes = b""
    why: str = ""


ToAgent: TypeAlias = (
    Challenge
    | Welcome
    | Denied
    | Prepare
    | Go
    | Stop
    | Suspend
    | Resume
    | Terms
    | Forget
    | Read
    | Ping
)
ToEngine: TypeAlias = (
    Hello
    | Denied
    | Leaving
    | Ready
    | Prepared
    | Refused
    | Launched
    | Progress
    | Reported
    | Used
    | Exited
    | Text
    | Ping
)


OfPart: TypeAlias = Prepared | Refused | Launched | Progress | Reported | Exited
"""What an agent says of one part of an attempt."""
SINCE: Final[dict[type[Message], int]] = {
    Read: 2,
    Text: 2,
    Leaving: 2,
    Reported: 4,
    Terms: 5,
}
"""The version that a kind of message needs, if it is not 1."""


def lacking(version: int, order: Prepare) -> str:
    """What of an order an agent of this version does not know, in words; empty if nothing."""
    launch = order.launch
    if version < 2 and launch.script:
        return "scripts"
    if version < 3 and launch.steps and any(part.nodes > 1 for part in order.parts):
        return "srun over several nodes"
    return "commands with {port}" if version < 6 and launch.listens else ""


def spoken(theirs: int) -> int:
    """The version to speak with a side that speaks up to version `theirs`. Raises BadInput."""
    if theirs < OLDEST:
        raise BadInput(
            f"it speaks version {theirs}, this side {OLDEST} to {VERSION}", mend="update it"
        )
    return min(theirs, VERSION)


def proof(token: str, who: str, first: bytes, second: bytes) -> bytes:
    """The proof that the side (`agent` or `engine`) knows the token, for these two nonces."""
    return hmac.digest(token.encode(), who.encode() + b"\0" + first + second, "sha256")


def proves(given: bytes, token: str, who: str, first: bytes, second: bytes) -> bool:
    """Whether `given` is that proof; takes as long if it is not."""
    return hmac.compare_digest(given, proof(token, who, first, second))
