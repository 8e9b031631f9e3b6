"""What can happen. Facts only: an engine reports them, the kernel alone turns them into state.

All events of one instant travel in one `Batch`, sorted by `rank`: first what frees devices, then
what takes them away, then what asks for them.
"""

from __future__ import annotations

from typing import ClassVar, Final, TypeAlias

import msgspec

from ganger.core.spec import JobSpec

METRICS_MAX: Final = 16
"""The most metrics beside its value that one report of a trial may have."""


class Event(msgspec.Struct, frozen=True, gc=False, tag=True):
    """Base of all events. `rank` orders a batch."""

    rank: ClassVar[int] = 9


class Finished(Event, frozen=True, gc=False):
    """The attempt did all its work; its devices are free."""

    rank: ClassVar[int] = 0
    job: int
    attempt: int


class Failed(Event, frozen=True, gc=False):
    """The attempt broke; its devices are free. `kept` is the work that survived; `final` if the
    job will not be tried again."""

    rank: ClassVar[int] = 1
    job: int
    attempt: int
    kept: float = 0.0
    why: str = ""
    final: bool = False


class Released(Event, frozen=True, gc=False):
    """A stopped or resized attempt gave its old devices back, or a suspended one, where the engine
    cannot freeze it. `kept` is the work that survived."""

    rank: ClassVar[int] = 2
    job: int
    attempt: int
    kept: float = 0.0


class Refused(Event, frozen=True, gc=False):
    """The engine would not start the attempt; nothing is held."""

    rank: ClassVar[int] = 3
    job: int
    attempt: int
    why: str = ""


class NodeDown(Event, frozen=True, gc=False):
    """A node is gone, and with it what ran there (each job's Failed comes by itself). `by`: notice
    that it will be, at that time; until then what runs there goes on, and nothing starts there."""

    rank: ClassVar[int] = 4
    node: int
    by: int = 0


class NodeUp(Event, frozen=True, gc=False):
    """A node is there (again)."""

    rank: ClassVar[int] = 5
    node: int


class Withheld(Event, frozen=True, gc=False):
    """`gpus` GPUs of the node are used outside Ganger from now on (0: none)."""

    rank: ClassVar[int] = 5
    node: int
    gpus: int


class Started(Event, frozen=True, gc=False):
    """The attempt executes. `rate`: work per microsecond, 1 on the reference, where known."""

    rank: ClassVar[int] = 6
    job: int
    attempt: int
    rate: float = 1.0


class Progressed(Event, frozen=True, gc=False):
    """A report from a running attempt: all work done so far, and how fast it goes now."""

    rank: ClassVar[int] = 7
    job: int
    attempt: int
    work: float
    rate: float


class Measured(Event, frozen=True, gc=False):
    """What a running attempt measured of itself, where it now holds its devices: microseconds a
    `step`, and of it `computing` gradients (0: not measured); examples a step, `batch` (0: not
    measured), and at `most`; the `noise` scale of its gradients in examples (0: not measured)."""

    rank: ClassVar[int] = 7
    job: int
    attempt: int
    step: float
    computing: float = 0.0
    batch: float = 0.0
    most: float = 0.0
    noise: float = 0.0


class Sampled(Event, frozen=True, gc=False):
    """What a running attempt used lately: of its GPUs the busiest one's share of the time, from 0
    to 1 (-1: not measured), and cores. The first sample is an event, and each that differs from it
    noticeably."""

    rank: ClassVar[int] = 7
    job: int
    attempt: int
    gpu: float
    cores: float


class Evaluated(Event, frozen=True, gc=False):
    """A running attempt evaluated its model after `epoch` epochs of training in all: `value` is the
    loss, or the accuracy, whichever its owner named; None: the trial broke down. `metrics`: others
    by name. `final`: none will follow."""

    rank: ClassVar[int] = 7
    job: int
    attempt: int
    epoch: float
    value: float | None
    metrics: dict[str, float] | None = None
    final: bool = False


class Served(Event, frozen=True, gc=False, omit_defaults=True):
    """How services did since `since`: one column per figure, one entry per service that changed.

    Usual figures: arrivals, answered, late, dropped, queue (at the end), busy (share of its
    replicas' time), batch (mean size), p50 and p99 (latency in seconds). `dropped:REASON` divides
    `dropped`; `most_in_1s` are the most arrivals in a second of the window (and so for other
    lengths); `labelled` answers have a label, and `correct` ones are it. A router that gives lanes
    back says how many replicas it has `wanted`, and of a replica that it is
    `given_back`. Replicas have entries of their own, with that and how `busy` they were. None: not
    measured in this window. `routers`: by service what its router remembers at the end of the
    window (`core/serving/memory`), where somebody keeps that; it changes nothing here.
    """

    rank: ClassVar[int] = 7
    since: int
    services: tuple[int, ...]
    figures: dict[str, tuple[float | None, ...]]
    routers: dict[int, bytes] = {}


class Unable(Event, frozen=True, gc=False):
    """The engine cannot do what a plan asked for `job`, `n` times: an `action` by its name, and
    `why`. What waits for a Spawn waits no more; what a Tune or a Route set stands no more. No
    policy is asked because of it: it would ask for the same again."""

    rank: ClassVar[int] = 3
    job: int
    action: str
    n: int = 1
    why: str = ""


class Submitted(Event, frozen=True, gc=False):
    """A declared job asks to run."""

    rank: ClassVar[int] = 8
    job: int


class Accepted(Event, frozen=True, gc=False):
    """A job that the tables do not hold yet becomes row `job`, and asks to run. `spawned`: a policy
    asked for it."""

    rank: ClassVar[int] = 8
    job: int
    spec: JobSpec
    spawned: bool = False


class Command(Event, frozen=True, gc=False):
    """A person ordered this of a job: a verb that `commands.obey` knows, and a `value` for some."""

    rank: ClassVar[int] = 9
    job: int
    verb: str
    value: float = 0.0


class NodeCommand(Event, frozen=True, gc=False):
    """A person ordered this of a node: `drain` (nothing new starts there) or `resume`."""

    rank: ClassVar[int] = 9
    node: int
    verb: str


class Woke(Event, frozen=True, gc=False):
    """The time that the last plan asked to be called at has come."""

    rank: ClassVar[int] = 10


AnyEvent: TypeAlias = (
    Finished
    | Failed
    | Released
    | Refused
    | NodeDown
    | NodeUp
    | Withheld
    | Started
    | Progressed
    | Measured
    | Sampled
    | Evaluated
    | Served
    | Unable
    | Submitted
    | Accepted
    | Command
    | NodeCommand
    | Woke
)

# Kinds of change that the kernel derives from events; a plan says which of them could change it.
CAPACITY_FREED = 1
CAPACITY_LOST = 2
STARTED = 4
PROGRESSED = 8
QUEUED = 16
"""A job became pending: it was submitted, unblocked, preempted, refused, or failed."""
COMMANDED = 32
WOKE = 64
EVALUATED = 128
SERVED = 256
ROUTED = 512
ANYTHING = 1023
_ANYTHING_ONCE = 127
"""All kinds of change that there were before trials and services."""


def kinds_of_change(stored: int) -> int:
    """The kinds of change that a record names: "anything" of an earlier version is anything."""
    return ANYTHING if stored == _ANYTHING_ONCE else stored


class Batch(msgspec.Struct, frozen=True, gc=False):
    """All events of one instant, in order of rank."""

    at: int
    events: list[AnyEvent]
