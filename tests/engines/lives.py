"""Attempts over machines that are only said to be there: anything may happen, in any order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple, cast

from ganger.core.errors import BadInput
from ganger.core.plan import Placement, Slot
from ganger.core.spec import OnPreempt
from ganger.core.state.jobs import Phase
from ganger.core.units import SECOND
from ganger.engines.agent import protocol as wire
from ganger.engines.attempts import Attempts
from ganger.engines.gang import Attempt, Hold
from ganger.engines.launch import Launch
from ganger.engines.life import Order
from ganger.engines.machines import Box, Owner

JOBS, BROKEN_JOB = 4, 3
NODES: Final = ((0,), (1,), (2, 3))
"""By machine."""
PLACEMENTS: Final[tuple[Placement, ...]] = (
    (Slot(0, 1, 1),),
    (Slot(1, 1, 1),),
    (Slot(0, 1, 1), Slot(1, 1, 1)),
    (Slot(2, 1, 1), Slot(3, 1, 1)),
    (Slot(1, 2, 1), Slot(2, 1, 1), Slot(0, 2, 1)),
)
PHASES: Final = (Phase.STARTING, Phase.RUNNING, Phase.SUSPENDED, Phase.STOPPING)
EXITS: Final = (
    wire.Exit(code=0),
    wire.Exit(code=0, asked=True),
    wire.Exit(code=0, asked=True, step=9, total=9, saved=9),
    wire.Exit(code=3),
    wire.Exit(code=-9, asked=True),
    wire.Exit(code=1, why="TimeLimit"),
)
KINDS: Final = (
    "start", "start", "start", "resize", "leave", "terminate", "suspend", "resume", "evict",
    "connect", "connect", "ready", "ready", "disconnect", "lost", "closed", "opened",
    "prepared", "prepared", "prepared", "launched", "launched", "launched", "exited", "exited",
    "refused", "progress", "noted", "tend", "journalled",
)  # fmt: skip


class Happening(NamedTuple):
    """Something that happens, and three numbers that say to whom and how."""

    kind: str
    which: int
    where: int
    how: int


class Silent:
    """A fleet that writes down what is sent."""

    owner: Owner

    def __init__(self) -> None:
        self.by_name: dict[str, Box] = {}
        self.sent: list[tuple[str, wire.Message]] = []
        self.noted: dict[tuple[int, int, int], wire.Exit] = {}

    def wait(self, seconds: float) -> None:
        """Nothing comes."""

    def interrupt(self) -> None:
        """Nobody waits."""

    def send(self, box: Box, message: wire.Message) -> None:
        """Write it down, if somebody is there."""
        if box.link is not None:
            self.sent.append((box.hello.name, message))

    def address(self, box: Box) -> tuple[str, str] | None:
        """This machine."""
        return None

    def noted_exit(self, job: int, attempt: int, node_rank: int) -> wire.Exit | None:
        """What the test has noted."""
        return self.noted.get((job, attempt, node_rank))

    def close(self) -> None:
        """Nothing to leave."""


class World:
    """Attempts, and the machines that they run on."""

    def __init__(self, adopted: Sequence[Phase] = (), make: Any = Attempts) -> None:
        self.fleet = Silent()
        self.attempts = make(
            self.fleet, self.launch_of, lambda: 0, 0 if adopted else 30 * SECOND, SECOND
        )
        self.boxes = [
            Box(wire.Hello(f"m{i}", (cast(Any, Named(f"n{i}")),) * len(nodes)), nodes)
            for i, nodes in enumerate(NODES)
        ]
        self.latest = dict.fromkeys(range(JOBS), 0)
        holds = [Hold(i, 1, phase, PLACEMENTS[2 + i]) for i, phase in enumerate(adopted)]
        self.latest.update((hold.job, 1) for hold in holds)
        self.attempts.adopt(holds)

    @staticmethod
    def launch_of(job: int) -> Launch:
        """Jobs that save and jobs that do not; one that cannot be launched."""
        if job == BROKEN_JOB:
            raise BadInput("no such folder", where="cwd")
        how = OnPreempt.KILL if job == 1 else OnPreempt.CHECKPOINT
        return Launch(command=("x",), on_preempt=how, step_micros=10.0, retries=job)

    @property
    def alive(self) -> list[Attempt]:
        """The attempts that are followed."""
        return list(self.attempts._attempts.values())

    def happen(self, what: Happening) -> None:
        """Let it happen, if it can."""
        box = self.boxes[what.where % len(self.boxes)]
        job = what.which % JOBS
        key = job, max(self.latest[job] - what.how % 2, 1)
        getattr(self, f"_{what.kind}")(what, box, key)

    def _start(self, what: Happening, box: Box, key: tuple[int, int]) -> None:
        self._begin(key[0], what, () if what.how % 3 else tuple(range(JOBS)))

    def _begin(self, job: int, what: Happening, waits: tuple[int, ...]) -> None:
        self.latest[job] += 1
        place = PLACEMENTS[what.where % len(PLACEMENTS)]
        self.attempts.start(job, self.latest[job], place, waits, {})

    def _resize(self, what: Happening, box: Box, key: tuple[int, int]) -> None:
        job = key[0]
        if not self.latest[job]:
            return
        new = self.latest[job] + 1
        self.attempts.stop((job, new - 1), Order.LEAVE)
        if self.attempts.was_done(job, new):
            self.latest[job] = new
        else:
            self._begin(job, what, (job,))

    def _leave(self, what: Happening, box: Box, key: tuple[int, int]) -> None:
        self.attempts.stop(key, Order.LEAVE)

    def _terminate(self, what: Happening, box: Box, key: tuple[int, int]) -> None:
        self.attempts.stop(key, Order.TERMINATE)

    def _suspend(self, what: Happening, box: Box, key: tuple[int, int]) -> None:
        self.attempts.suspend(key, True)

    def _resume(self, what: Happening, box: Box, key: tuple[int, int]) -> None:
        self.attempts.suspend(key, False)

    def _evict(self, what: Happening, box: Box, key: tuple[int, int]) -> None:
        self.attempts.evict(box.nodes[0], "its node leaves")

    def _connect(self, what: Happening, box: Box, key: tuple[int, int]) -> None:
        if box.link is None:
            box.link = cast(Any, object())
            box.ready = box.closed = False
            box.unwanted.clear()
            box.mentioned.clear()
            self.attempts.welcomed(box)

    def _ready(self, what: Happening, box: Box, key: tuple[int, int]) -> None:
        if box.link is not None and not box.ready:
            box.ready = True
            self.attempts.told(box, wire.Ready())

    def _disconnect(self, what: Happening, box: Box, key: tuple[int, int]) -> None:
        box.link, box.ready = None, False

    def _lost(self, what: Happening, box: Box, key: tuple[int, int]) -> None:
        if box.link is None and not box.down:
            box.up, box.down = False, True
            self.attempts.lost(box)

    def _closed(self, what: Happening, box: Box, key: tuple[int, int]) -> None:
        if box.link is not None and not box.closed:
            self.attempts.closed(box)

    def _opened(self, what: Happening, box: Box, key: tuple[int, int]) -> None:
        if box.closed:
            self.attempts.opened(box)

    def _say(self, what: Happening, make: Any) -> None:
        """An agent says it of some part of an attempt that is followed, or of one that is not."""
        parts = [(one.key, node) for one in self.alive for node in one.seats]
        parts.append(((what.which % JOBS, 1), what.where % 4))
        key, node = parts[what.which % len(parts)]
        for box in self.boxes:
            if node in box.nodes and box.link is not None:
                self.attempts.told(box, make(wire.Key(*key, box.nodes.index(node))))

    def _prepared(self, what: Happening, box: Box, key: tuple[int, int]) -> None:
        self._say(what, lambda part: wire.Prepared(part, what.how))

    def _launched(self, what: Happening, box: Box, key: tuple[int, int]) -> None:
        self._say(what, wire.Launched)

    def _exited(self, what: Happening, box: Box, key: tuple[int, int]) -> None:
        self._say(what, lambda part: wire.Exited(part, EXITS[what.how % len(EXITS)]))

    def _refused(self, what: Happening, box: Box, key: tuple[int, int]) -> None:
        self._say(what, lambda part: wire.Refused(part, "the disk is full"))

    def _progress(self, what: Happening, box: Box, key: tuple[int, int]) -> None:
        self._say(what, lambda part: wire.Progress(part, what.how, 20, 10.0))

    def _noted(self, what: Happening, box: Box, key: tuple[int, int]) -> None:
        self.fleet.noted[(*key, what.where % 2)] = EXITS[what.how % len(EXITS)]

    def _tend(self, what: Happening, box: Box, key: tuple[int, int]) -> None:
        self.attempts.tend()

    def _journalled(self, what: Happening, box: Box, key: tuple[int, int]) -> None:
        self.attempts.journalled(key)


class Named(NamedTuple):
    """What a gang is told of a node."""

    name: str
