"""The local engine: makes plans true through node agents, on this machine and on others.

See docs/live.md for how an owner uses it.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from math import inf
from operator import attrgetter
from typing import Final

from ganger.core.clocks import CORE_MHZ, MEMORY_MHZ
from ganger.core.errors import BadInput
from ganger.core.events import (
    AnyEvent,
    Batch,
    Evaluated,
    Failed,
    Finished,
    Refused,
    Released,
    Started,
    Unable,
    Woke,
)
from ganger.core.plan import (
    Lend,
    Plan,
    Provision,
    Resize,
    Resume,
    Route,
    Start,
    Stop,
    Suspend,
    Tune,
)
from ganger.core.protocols import Capabilities
from ganger.core.units import NEVER, SECOND
from ganger.engines.agent.protocol import Hello, Progress, Read, Text
from ganger.engines.attempts import Attempts
from ganger.engines.clock import Clock
from ganger.engines.gang import NO_KNOBS, UNCHANGED, Hold, lost_output
from ganger.engines.launch import Launch
from ganger.engines.life import Order
from ganger.engines.machines import AgentAt, Box, Fleet, Machines
from ganger.engines.reconciliation import Believed, Reconciliation

__all__ = ["CANCELLED", "AgentAt", "FleetEngine", "Hold", "LocalEngine"]

CANCELLED: Final = "cancelled"
"""`Stop.why` of a job that need not save: it gets SIGTERM at once."""
_rank = attrgetter("rank")
IGNORED: Final = {
    Tune: "does not turn such knobs of jobs",
    Provision: "does not switch machines on or off",
    Route: "does not route requests",
    Lend: "does not lend nodes",
}
"""Kinds of action that nothing is done about, and what the engine does not do. Of the knobs of a
Tune, only terms are turned on which jobs share devices: those with a `request`."""
DOES: Final = Capabilities(
    Capabilities().actions - {kind.__name__ for kind in IGNORED} | {Tune.__name__}
)
"""What engines of real machines can do."""
log = logging.getLogger("ganger.engine")


class FleetEngine:
    """Executes plans on the machines of a fleet. `poll`, `apply`, `adopt`, `close` belong to one
    thread; `post` may be called from any.

    `launch_of` tells how to launch a job, and may raise BadInput. `lost_after` (microseconds):
    attempts that are adopted have failed if their machines are not there by then.
    """

    capabilities: Capabilities = DOES

    def __init__(
        self,
        boxes: Fleet,
        launch_of: Callable[[int], Launch],
        clock: Clock | None,
        lost_after: int,
        progress_every: int,
    ) -> None:
        self.clock = clock if clock is not None else Clock()
        self._boxes = boxes
        self._launch_of = launch_of
        self._attempts = Attempts(
            self._boxes, self._launch, self.clock.now, lost_after, progress_every
        )
        self._boxes.owner = self._attempts
        self._standing = Reconciliation()
        self._posted: list[AnyEvent] = []
        self._nudged = False
        self._lock = threading.Lock()
        self._told: list[tuple[int, int]] = []
        """Attempts whose end was in the last batch."""
        self._at = 0
        self._ignored: set[type] = set()

    def _launch(self, job: int) -> Launch:
        """How to launch a job. Raises BadInput, also for one that only holds something, where the
        engine knows nothing of that."""
        launch = self._launch_of(job)
        if launch.hollow and not self.capabilities.grants:
            raise BadInput("this engine holds no devices for the children of a job")
        return launch

    def devices(self, job: int, attempt: int) -> dict[str, tuple[int, ...]]:
        """The indices of the GPUs that the machines chose themselves: agents take the plan's."""
        return {}

    # ------------------------------------------------------------------ Engine

    def poll(self, until: int) -> Batch | None:
        """What happened, as soon as anything did; a Woke at `until`; an empty batch if `post`
        interrupted. Calling it says that the last batch is journalled."""
        for key in self._told:
            self._attempts.journalled(key)
        self._told.clear()
        self._boxes.wait(0)
        while True:
            self._attempts.tend()
            with self._lock:
                events, self._posted = self._posted, []
                nudged, self._nudged = self._nudged, False
            self._attempts.events.extend(events)
            if self._attempts.events or nudged or self.clock.now() >= until:
                return self._batch(until)
            wait = inf if until >= NEVER else self.clock.seconds_until(until)
            self._boxes.wait(min(wait, max(self._attempts.due - time.monotonic(), 0)))

    def _batch(self, until: int) -> Batch:
        events = self._attempts.events
        before = {(e.job, e.attempt) for e in events if isinstance(e, Started | Evaluated)}
        now, later = list[AnyEvent](), list[AnyEvent]()
        for event in events:
            if isinstance(event, Finished | Failed | Released | Refused):
                if (event.job, event.attempt) in before:
                    later.append(event)  # a start and a report must be seen before the end
                    continue
                self._told.append((event.job, event.attempt))
            now.append(event)
        events[:] = later
        self._at = max(self.clock.now(), self._at + 1)
        if self._at >= until:
            now.append(Woke())
        now.sort(key=_rank)
        self._standing.told(now)
        return Batch(self._at, now)

    def apply(self, plan: Plan, now: int) -> None:
        """Set the plan's actions going. An attempt that was started is not started again."""
        attempts = self._attempts
        self._standing.ordered(plan.actions)
        self._refuse_unable(plan)
        for action in plan.actions:  # who leaves, first: a start may wait for any of them
            if isinstance(action, Stop):
                order = Order.TERMINATE if action.why == CANCELLED else Order.LEAVE
                attempts.stop((action.job, action.attempt), order)
            elif isinstance(action, Resize):
                attempts.stop((action.job, action.attempt - 1), Order.LEAVE)
            elif isinstance(action, Suspend | Resume):
                attempts.suspend((action.job, action.attempt), isinstance(action, Suspend))
        tunes = [one for one in plan.actions if isinstance(one, Tune) and self._turns(one)]
        knobs = {(tune.job, tune.attempt): tune.knobs for tune in tunes}
        for action in plan.actions:
            if isinstance(action, Start | Resize):
                key = action.job, action.attempt
                if attempts.was_done(*key):
                    continue
                waits = (*action.waits, action.job) if isinstance(action, Resize) else action.waits
                attempts.start(*key, action.placement, waits, knobs.get(key, NO_KNOBS))
        for tune in tunes:  # of attempts that were started just now, too
            attempts.share((tune.job, tune.attempt), tune.knobs)

    def _turns(self, action: Tune) -> bool:
        """Whether the knobs are terms of sharing, and those can be kept here."""
        return (
            "request" in action.knobs
            and not action.knobs.get("lane")
            and Tune.__name__ in self.capabilities.actions
        )

    def _refuse_unable(self, plan: Plan) -> None:
        """Refuse what is asked for and cannot be done here; say so once of each kind."""
        for action in plan.actions:
            if type(action) not in IGNORED or (isinstance(action, Tune) and self._turns(action)):
                continue
            name, why = type(action).__name__, f"this engine {IGNORED[type(action)]}"
            if isinstance(action, Tune) and (
                CORE_MHZ in action.knobs or MEMORY_MHZ in action.knobs
            ):
                why = "this engine does not set the clocks of GPUs"
            if isinstance(action, Tune | Route):
                job = action.job if isinstance(action, Tune) else action.service
                self._attempts.events.append(Unable(job, name, why=why))
            if type(action) not in self._ignored:
                self._ignored.add(type(action))
                log.warning("%s: %s; the plans that ask for it are ignored", name, why)

    # ------------------------------------------------------------------ the owner's side

    def post(self, *events: AnyEvent) -> None:
        """Put events into the next batch and interrupt a waiting `poll`. Any thread."""
        with self._lock:
            self._posted.extend(events)
            self._nudged = True
        self._boxes.interrupt()

    def adopt(self, holds: Iterable[Hold]) -> None:
        """Take over what a restored kernel believes to hold devices. Before the first `poll`."""
        holds = list(holds)
        self._attempts.adopt(holds)
        self._standing.adopt(holds)

    def reconcile(self, owner: Believed) -> bool:
        """Hear what the owner believes, between two polls: what it has missed comes with the next
        batch, what it wants and was not ordered is done. Whether both sides agree."""
        standing = self._standing
        gone = self._attempts.unknown(standing.alive)
        standing.told(Failed(*key, UNCHANGED, "NodeFail: it was lost") for key in gone)
        events, actions = standing.differences(owner)
        if actions:
            self.apply(Plan(actions), self.clock.now())
        if events:
            self.post(*events)
        return not (events or actions)

    @property
    def progress(self) -> Mapping[int, Progress]:
        """The last report of each job that reported its progress."""
        return self._attempts.progress

    def lost_output(self, job: int, attempt: int) -> str:
        """What is missing of an attempt's output and why, while its end is reported; else empty."""
        one = self._attempts.unforgotten.get((job, attempt))
        return lost_output(one) if one is not None else ""

    def read(self, node: int, order: Read) -> Future[Text] | None:
        """Have the machine of this node read a piece of a job's output; None if it lies in this
        machine's own files, or on a file system that all share. Any thread."""
        return None

    def host(self, node: int) -> str:
        """The address at which the machine of this node is reached from here, also while its agent
        is away for a moment; empty where it is not known. Any thread."""
        boxes = list(self._boxes.by_name.values())
        return next((box.host for box in boxes if node in box.nodes), "")

    @property
    def boxes(self) -> Mapping[str, Box]:
        """The machines that were ever seen, by their agents' names."""
        return self._boxes.by_name

    def close(self) -> None:
        """Leave; everything goes on running."""
        self._boxes.close()


class LocalEngine(FleetEngine):
    """The engine whose fleet are machines with node agents.

    `admit` gives the kernel's node numbers of the nodes that an agent offers, and may raise
    BadInput. `lost_after` and `progress_every` in microseconds.
    """

    def __init__(
        self,
        launch_of: Callable[[int], Launch],
        admit: Callable[[Hello], Sequence[int]],
        *,
        agents: Sequence[AgentAt] = (),
        listen: tuple[str, int] | None = None,
        token: str = "",
        cluster: str = "",
        clock: Clock | None = None,
        lost_after: int = 30 * SECOND,
        progress_every: int = 5 * SECOND,
    ) -> None:
        boxes = Machines(admit, agents, listen, token, cluster, lost_after)
        super().__init__(boxes, launch_of, clock, lost_after, progress_every)
        self.uses = boxes.uses
        """How busy the parts of jobs were when their agents last looked."""
        self.port = boxes.port
        """Where agents join; 0 if nowhere."""
        self._read = boxes.read

    def read(self, node: int, order: Read) -> Future[Text] | None:
        """Have the machine of this node read a piece of a job's output; None if it lies in this
        machine's own files. Any thread."""
        return self._read(node, order)
