"""An attempt as the engine follows it: its parts, what is wanted of it, how it ended."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple, TypeAlias

from ganger.core.errors import BadInput
from ganger.core.events import AnyEvent, Evaluated, Finished, Refused, Released
from ganger.core.plan import Placement
from ganger.core.spec import OnPreempt
from ganger.core.state.jobs import Phase
from ganger.core.units import NEVER
from ganger.engines.account import Account
from ganger.engines.agent.protocol import Exit, Part, Reported
from ganger.engines.launch import SUPERVISOR_KILLED, Launch
from ganger.engines.life import Course, Status, Turn, Want
from ganger.sdk import PREEMPTED

UNCHANGED: Final = float(NEVER)
"""As `kept`: the kernel leaves the job's work as it is."""
Knobs: TypeAlias = Mapping[str, float | bool | str]
NO_KNOBS: Final[Knobs] = {}


class NodePart:
    """One node's part of an attempt."""

    def __init__(self, parts: tuple[Part, ...]) -> None:
        self.parts = parts
        self.status = Status.UNSENT
        self.unsure = False
        """An engine before this one may have sent it: what its agent has is not known yet."""
        self.port = 0
        self.exit: Exit | None = None
        self.why = ""

    @property
    def over(self) -> bool:
        """Whether nothing of it runs or will."""
        return self.status >= Status.EXITED


class Attempt:
    """One attempt of a job; `seats` by node, in order of rank."""

    def __init__(
        self, job: int, attempt: int, placement: Placement, launch: Launch, knobs: Knobs = NO_KNOBS
    ) -> None:
        self.job, self.attempt, self.launch = job, attempt, launch
        self.hollow = launch.hollow or not placement
        """Whether it runs nothing itself: it holds what its job's children run on."""
        parts = {} if self.hollow else parts_of(placement, _per(launch))
        self.seats = {node: NodePart(each) for node, each in parts.items()}
        self.nodes = {slot.node for slot in placement} if self.hollow else set(self.seats)
        """Where it runs, or holds something for its children."""
        self.want = Want.RUN
        self.waits: set[tuple[int, int]] = set()
        self.course = Course.STARTING
        self.end: Outcome | None = None
        """How it ended, once it has."""
        self.reports = 0
        """The number of the last report that was passed on."""
        self.evicted = ""
        """Why it was told to go though its owner did not say so."""
        self.account = Account(job, attempt)
        self.knobs = knobs
        """What was turned of it: on what terms it shares its devices."""
        self.secret = secrets.token_hex(16)
        """What its parts know each other by."""

    @property
    def key(self) -> tuple[int, int]:
        """(job, attempt)"""
        return self.job, self.attempt

    @property
    def alone(self) -> bool:
        """Whether it has one part only."""
        return len(self.seats) == 1

    @property
    def started(self) -> bool:
        """Whether all its parts were launched; asked while it is not over."""
        return self.course in (Course.RUNNING, Course.FAILING)

    @property
    def failing(self) -> bool:
        """Whether a part of it broke, so that the others were ordered to leave."""
        return self.course in (Course.BREAKING, Course.FAILING)

    @property
    def ending(self) -> bool:
        """Whether its parts are to go."""
        return self.want >= Want.LEAVE or self.failing

    @property
    def ran(self) -> bool:
        """Whether any of it ran."""
        return any(seat.status in (Status.EXITED, Status.LOST) for seat in self.seats.values())

    @property
    def over(self) -> bool:
        """Whether nothing of it runs or will."""
        if self.hollow:
            return self.ending
        return all(seat.over for seat in self.seats.values())


def _per(launch: Launch) -> str:
    """How often something runs: on the other nodes, what serves the command's `srun`."""
    return "node" if launch.per == "job" and launch.steps else launch.per


def parts_of(placement: Placement, per: str) -> dict[int, tuple[Part, ...]]:
    """What each node runs of a gang: ranks node by node, in the order in which the placement names
    the nodes. A job that runs once has a part on its first node only."""
    nodes = list(dict.fromkeys(slot.node for slot in placement))
    world = sum(slot.workers for slot in placement)
    sizes: dict[int, int] = {}
    for slot in placement:
        sizes[slot.role] = sizes.get(slot.role, 0) + slot.workers
    found: dict[int, tuple[Part, ...]] = {}
    rank, by_role = 0, dict.fromkeys(sizes, 0)
    for node_rank, node in enumerate(nodes):
        parts = []
        for slot in placement:
            if slot.node != node:
                continue
            devices = tuple(i for i in range(slot.devices.bit_length()) if slot.devices >> i & 1)
            parts.append(
                Part(
                    devices,
                    slot.workers,
                    slot.role,
                    rank,
                    world,
                    node_rank,
                    len(nodes),
                    by_role[slot.role],
                    sizes[slot.role],
                    slot.share,
                )
            )
            rank += slot.workers
            by_role[slot.role] += slot.workers
        found[node] = tuple(parts)
    if per == "worker":
        return found
    # One process per node or in all: it speaks for every role there.
    once: dict[int, tuple[Part, ...]] = {node: (_merged(all_),) for node, all_ in found.items()}
    return once if per == "node" else {nodes[0]: once[nodes[0]]}


def _merged(parts: tuple[Part, ...]) -> Part:
    first = parts[0]
    devices = tuple(sorted({device for part in parts for device in part.devices}))
    return Part(
        devices,
        sum(part.workers for part in parts),
        first.role,
        first.first_rank,
        first.world_size,
        first.node_rank,
        first.nodes,
        first.role_rank,
        first.role_size,
        first.share,
    )


class Outcome(NamedTuple):
    """How an attempt ended, over all its parts."""

    finished: bool
    asked: bool
    why: str
    final: bool
    saved: int
    kept_all: bool
    """It left in order, so nothing is lost even if it did not say what it saved."""


def outcome(attempt: Attempt) -> Outcome:
    """Judge the parts of an attempt that is over."""
    seats = attempt.seats.values()
    exits = [seat.exit for seat in seats if seat.exit is not None]
    lost = [seat for seat in seats if seat.status in (Status.LOST, Status.REFUSED)]
    asked = any(one.asked for one in exits)
    saved = max((one.saved for one in exits), default=-1)
    complete = any(0 < one.total <= one.step for one in exits)
    good = not lost and all(one.code == 0 and not one.why for one in exits)
    worst = next((one for one in exits if one.why), None) or next(
        (one for one in exits if one.code and not one.asked), None
    )
    if lost or (attempt.hollow and attempt.failing):
        why = "NodeFail"
    elif worst is None:
        why = ""
    else:
        why = worst.why + (f": {worst.detail}" if worst.detail else "") or _code_words(worst.code)
    left = not lost and all(one.code in (0, PREEMPTED) and not one.why for one in exits)
    return Outcome(
        finished=bool(exits) and good and (not asked or complete),
        asked=asked,
        why=why,
        final=worst is not None and worst.why in ("TimeLimit", "LaunchFailed"),
        saved=saved,
        kept_all=left and attempt.launch.on_preempt != OnPreempt.KILL,
    )


def judged(one: Attempt, end: Outcome, replaced: bool) -> Turn:
    """How the engine says that an attempt ended; `replaced`: by one of another size."""
    if replaced:
        return Turn.FINISHED_BEFORE_RESIZE if end.finished else Turn.REPLACED
    if end.finished and one.ran:
        return Turn.FINISHED
    if one.evicted and not one.started:
        return Turn.REFUSED
    if one.want >= Want.LEAVE and (end.asked or not one.ran or not end.why):
        return Turn.RELEASED
    return Turn.FAILED if one.ran or one.started else Turn.REFUSED


def is_final(attempt: Attempt, end: Outcome, launch_of: Callable[[int], Launch]) -> bool:
    """Whether a job whose attempt failed is not tried again."""
    if end.final:
        return True
    killed = end.why.endswith(SUPERVISOR_KILLED)
    if end.why.startswith("NodeFail") and not killed:
        return False
    try:
        launch = launch_of(attempt.job)
        return launch.kills <= 0 if killed else launch.retries <= 0
    except BadInput:
        return True


def finished_before(events: list[AnyEvent], job: int, attempt: int) -> bool:
    """Whether the owner does not know yet that an attempt before this one finished. If so, that
    one is released, and this one has finished."""
    for event in events:
        if isinstance(event, Finished) and event.job == job and event.attempt < attempt:
            events.remove(event)
            events += [Released(job, event.attempt, UNCHANGED), Finished(job, attempt)]
            return True
    return False


def withdraw_refusal(events: list[AnyEvent], key: tuple[int, int]) -> None:
    """An attempt is released if the owner does not know yet that it was refused."""
    for i, event in enumerate(events):
        if isinstance(event, Refused) and (event.job, event.attempt) == key:
            events[i] = Released(*key, UNCHANGED)


def lost_output(attempt: Attempt) -> str:
    """What is missing of the output of an attempt that is over, and why; empty if nothing is."""
    exits = [seat.exit for seat in attempt.seats.values() if seat.exit is not None]
    missing = sum(one.output_dropped for one in exits)
    why = next((one.output_why for one in exits if one.output_why), "")
    said = why or "the job wrote more than is kept"
    return f"{missing} bytes of its output are missing: {said}" if missing else ""


def reported(attempt: Attempt, message: Reported) -> list[Evaluated]:
    """The events of those reports that were not passed on before."""
    new = message.reports[max(attempt.reports + 1 - message.number, 0) :]
    attempt.reports = max(attempt.reports, message.number + len(message.reports) - 1)
    return [
        Evaluated(*attempt.key, one.epoch, one.value, one.metrics or None, one.final) for one in new
    ]


def _code_words(code: int) -> str:
    return f"killed by signal {-code}" if code < 0 else f"exit code {code}"


class Hold(NamedTuple):
    """What a restored kernel believes about one attempt that holds devices."""

    job: int
    attempt: int
    phase: Phase
    placement: Placement
    reports: int = 0
    """How many reports of the attempt are journalled."""
    knobs: Knobs = NO_KNOBS
    """What was turned of it."""


def adopted(hold: Hold, launch: Launch) -> Attempt:
    """The attempt of which a restored kernel believes this."""
    attempt = Attempt(hold.job, hold.attempt, hold.placement, launch, hold.knobs)
    attempt.reports = hold.reports
    for seat in attempt.seats.values():
        seat.unsure = True
    if hold.phase != Phase.STARTING:
        attempt.course = Course.RUNNING
    if hold.phase == Phase.STOPPING:
        attempt.want = Want.LEAVE
    elif hold.phase == Phase.SUSPENDED:
        attempt.want = Want.SUSPEND
    return attempt


def overlap(one: Hold, other: Hold) -> bool:
    """Whether two holds have a device in common, or are of one job."""
    return one.job == other.job or any(
        mine.node == theirs.node and (mine.devices & theirs.devices or not mine.devices)
        for mine in one.placement
        for theirs in other.placement
    )


def waits_of(holds: Sequence[Hold]) -> dict[tuple[int, int], set[tuple[int, int]]]:
    """By attempt that starts: the attempts that are leaving what it will have."""
    leaving = [hold for hold in holds if hold.phase == Phase.STOPPING]
    return {
        (hold.job, hold.attempt): {
            (other.job, other.attempt) for other in leaving if overlap(hold, other)
        }
        for hold in holds
        if hold.phase == Phase.STARTING
    }
