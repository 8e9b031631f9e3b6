"""The attempts that an engine follows: what is wanted of each, what agents say of it, how it ends.

No clock but the monotonic one, no socket: it is told by the fleet, and speaks through it. What it
makes of all that are events, in `events`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from math import inf

from ganger.core.errors import BadInput
from ganger.core.events import (
    AnyEvent,
    Failed,
    Finished,
    NodeDown,
    NodeUp,
    Refused,
    Released,
    Started,
    Withheld,
)
from ganger.core.plan import Placement, Resize
from ganger.core.spec import OnPreempt
from ganger.core.state.jobs import Phase
from ganger.core.units import SECOND
from ganger.engines.agent import protocol as wire
from ganger.engines.gang import (
    UNCHANGED,
    Attempt,
    Hold,
    Outcome,
    Seat,
    Status,
    Want,
    outcome,
    waits_of,
)
from ganger.engines.launch import Launch
from ganger.engines.machines import Box, Fleet
from ganger.engines.refusals import Refusals
from ganger.engines.work import Work


class Attempts:
    """All attempts that are not over. `now` gives the journal's time, microseconds."""

    def __init__(
        self, boxes: Fleet, launch_of: Callable[[int], Launch], now: Callable[[], int],
        lost_after: int, progress_every: int,
    ) -> None:  # fmt: skip
        self.events: list[AnyEvent] = []
        self.progress: dict[int, wire.Progress] = {}
        self._boxes, self._launch_of, self._now = boxes, launch_of, now
        self._progress_every = progress_every
        self._attempts: dict[tuple[int, int], Attempt] = {}
        self._last: dict[int, int] = {}
        self._seat_of: dict[int, tuple[Box, int]] = {}
        self._stranded_at = time.monotonic() + lost_after / SECOND
        self._refusals = Refusals()
        self.unforgotten: dict[tuple[int, int], Attempt] = {}
        """Ended attempts whose end is not journalled yet."""
        self._work = Work()

    # ------------------------------------------------------------------ time

    @property
    def due(self) -> float:
        """When to `tend` at the latest (monotonic seconds)."""
        return min(self._stranded_at, self._refusals.due)

    def tend(self) -> None:
        """Do what is due."""
        self.events += self._refusals.told()
        if time.monotonic() >= self._stranded_at:
            self._stranded_at = inf
            # Nodes that no agent came for, though attempts are there.
            held = {node for one in self._attempts.values() for node in one.seats}
            self._lose({node for node in held if self._box(node) is None})

    def journalled(self, key: tuple[int, int]) -> None:
        """The end of the attempt is on disk: agents may forget it."""
        if (one := self.unforgotten.pop(key, None)) is not None:
            for node in one.seats:
                self._tell(node, wire.Forget(self._key(key, node)))

    def adopt(self, holds: Iterable[Hold]) -> None:
        """Take over what a restored kernel believes to hold devices. Before anything else."""
        holds = sorted(holds, key=lambda hold: (hold.job, hold.attempt))
        for hold in holds:
            try:
                launch = self._launch_of(hold.job)
            except BadInput:
                launch = Launch(command=())
            one = Attempt(hold.job, hold.attempt, hold.placement, launch)
            for seat in one.seats.values():
                seat.unsure = True
            one.started = hold.phase != Phase.STARTING
            if hold.phase == Phase.STOPPING:
                one.want = Want.LEAVE
            elif hold.phase == Phase.SUSPENDED:
                one.want = Want.SUSPEND
            self._add(one)
        for key, waits in waits_of(holds).items():
            self._attempts[key].waits = waits

    def unknown(self, keys: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
        """Those of `keys` that are not followed, and of which nothing is still to be told."""
        known = self._attempts.keys() | self._refusals.keys()
        known |= {(getattr(e, "job", -1), getattr(e, "attempt", -1)) for e in self.events}
        return [key for key in keys if key not in known]

    # ------------------------------------------------------------------ actions

    def _add(self, one: Attempt) -> None:
        self._attempts[one.key] = one
        self._last[one.job] = max(one.attempt, self._last.get(one.job, 0))
        self._work.declare(one.job, one.launch.step_micros)

    def start(self, job: int, attempt: int, placement: Placement, waits: tuple[int, ...]) -> None:
        """Run a new attempt once those of `waits` that are leaving are gone. Again is no error."""
        if attempt <= self._last.get(job, 0):
            return
        try:
            launch = self._launch_of(job)
        except BadInput as error:
            self._last[job] = attempt
            self.events.append(Failed(job, attempt, UNCHANGED, f"LaunchFailed: {error}", True))
            return
        one = Attempt(job, attempt, placement, launch)
        if waits:
            one.waits = {
                key for key, other in self._attempts.items()
                if key[0] in waits and other.want >= Want.LEAVE and key != one.key
            }  # fmt: skip
        self._add(one)
        self._advance(one)

    def stop(self, key: tuple[int, int], want: Want, evicted: str = "") -> None:
        """End the attempt as `want` says; `evicted`: why, if its owner did not order it."""
        one = self._attempts.get(key)
        if one is None:
            self._unrefuse(key)
            return
        one.evicted = evicted
        if one.want >= want:
            return
        one.want = want
        if (one.job, one.attempt - 1) in one.waits:
            return  # the attempt before it may yet finish the job
        one.waits.clear()
        for node, seat in one.seats.items():
            self._say(one, node, seat)
        self._advance(one)

    def evict(self, node: int, why: str) -> None:
        """The node will be gone soon: who is there saves and leaves, without its owner's order. It
        is Released; Refused, for the reason `why`, if it had not started."""
        for one in list(self._attempts.values()):
            if node in one.seats and one.want < Want.LEAVE:
                self.stop(one.key, Want.LEAVE, why)

    def on(self, node: int) -> int:
        """How many attempts have a part on a node."""
        return sum(node in one.seats for one in self._attempts.values())

    def _unrefuse(self, key: tuple[int, int]) -> None:
        """A refused attempt is told to stop before its owner saw the refusal: it is released."""
        if self._refusals.withdraw(key):
            self.events.append(Released(*key, UNCHANGED))
        for i, event in enumerate(self.events):
            if isinstance(event, Refused) and (event.job, event.attempt) == key:
                self.events[i] = Released(*key, UNCHANGED)

    def was_done(self, action: Resize) -> bool:
        """Whether the attempt to be resized finished before the owner saw it: then so did this."""
        job, old = action.job, action.attempt - 1
        if Finished(job, old) not in self.events:
            return False
        self.events.remove(Finished(job, old))
        self.events += [Released(job, old, UNCHANGED), Finished(job, action.attempt)]
        self._last[job] = action.attempt
        return True

    def suspend(self, key: tuple[int, int], suspended: bool) -> None:
        """Freeze the attempt or let it go on."""
        one = self._attempts.get(key)
        if one is not None and one.want < Want.LEAVE:
            one.want = Want.SUSPEND if suspended else Want.RUN
            for node, seat in one.seats.items():
                self._say(one, node, seat)

    def _say(self, one: Attempt, node: int, seat: Seat) -> None:
        """Tell the agent what is wanted of a part that it has."""
        if seat.over or seat.status == Status.UNSENT:
            return
        key = self._key(one.key, node)
        if one.want >= Want.LEAVE or one.failing:
            saves = one.want == Want.LEAVE and not one.failing
            saves = saves and one.launch.on_preempt != OnPreempt.KILL
            self._tell(node, wire.Stop(key, checkpoint=saves))
        elif one.want == Want.SUSPEND:
            self._tell(node, wire.Suspend(key))
        elif seat.status == Status.LAUNCHED:
            self._tell(node, wire.Resume(key))

    def _advance(self, one: Attempt) -> None:
        """Do the next thing that brings a wanted attempt to run."""
        if one.waits:
            return
        if one.want >= Want.LEAVE or one.failing:
            for seat in one.seats.values():
                if seat.status == Status.UNSENT and not seat.unsure:
                    seat.status = Status.REFUSED
            self._conclude_if_over(one)
            return
        for node, seat in one.seats.items():
            if seat.status == Status.UNSENT:
                self._prepare(one, node, seat)
        if any(seat.over for seat in one.seats.values()):
            self._fail(one)
        elif len(one.seats) > 1 and all(
            seat.status == Status.PREPARED for seat in one.seats.values()
        ):
            for node, seat in one.seats.items():
                seat.status = Status.GOING
                self._go(one, node)

    def _prepare(self, one: Attempt, node: int, seat: Seat) -> None:
        box = self._box(node)
        if box is None or box.down or box.closed:
            # Who is connected and not closed says in a moment that it is up.
            coming = box is not None and box.link is not None and not box.closed
            if not coming and (box is not None or self._stranded_at == inf):
                seat.status, seat.why = Status.REFUSED, "its node is down"
        elif box.ready and box.up:
            single = len(one.seats) == 1
            seat.status = Status.GOING if single else Status.PREPARING
            key = self._key(one.key, node)
            self._tell(node, wire.Prepare(key, one.launch, seat.parts, go=single))

    def _go(self, one: Attempt, node: int) -> None:
        first = next(iter(one.seats))
        address = "127.0.0.1"
        here = self._box(first)
        others = [box for other in one.seats if (box := self._box(other)) not in (None, here)]
        if here is not None and others and others[0] is not None:
            address = self._reach(here, others[0])
        port = one.seats[first].port
        hosts = tuple(self._name(other) for other in one.seats)
        tasks = tuple(sum(part.workers for part in seat.parts) for seat in one.seats.values())
        self._tell(node, wire.Go(self._key(one.key, node), address, port, hosts, tasks, one.secret))

    def _reach(self, here: Box, other: Box) -> str:
        """The address of the machine `here` for `other` machines."""
        mine, theirs = self._boxes.address(here), self._boxes.address(other)
        return mine[0] if mine is not None else theirs[1] if theirs is not None else "127.0.0.1"

    # ------------------------------------------------------------------ what agents say

    def welcomed(self, box: Box) -> None:
        """An agent has connected."""
        for i, node in enumerate(box.nodes):
            self._seat_of[node] = box, i

    def told(self, box: Box, message: wire.Message) -> None:
        """An agent says how something is."""
        if isinstance(message, wire.Ready):
            self._ready(box)
            return
        assert isinstance(
            message, wire.Prepared | wire.Refused | wire.Launched | wire.Progress | wire.Exited
        )
        key = message.key
        box.mentioned.add(key)
        one = self._attempts.get((key.job, key.attempt))
        node = box.nodes[key.seat] if key.seat < len(box.nodes) else -1
        if one is None or node not in one.seats:
            self._unwanted(box, message)
            return
        seat = one.seats[node]
        if isinstance(message, wire.Progress):
            self._progressed(one, message)
        elif isinstance(message, wire.Exited):
            seat.status, seat.exit = Status.EXITED, message.exit
            self._part_over(one, seat)
        elif isinstance(message, wire.Refused):
            if seat.status < Status.EXITED:
                seat.status, seat.why = Status.REFUSED, message.why
                self._part_over(one, seat)
        elif isinstance(message, wire.Launched):
            self._launched(one, node, seat)
        else:
            self._prepared(one, node, seat, message.port)

    def _prepared(self, one: Attempt, node: int, seat: Seat, port: int) -> None:
        seat.port = port
        if one.want >= Want.LEAVE or one.failing:
            seat.status = max(seat.status, Status.PREPARED)
            self._say(one, node, seat)
        elif seat.status == Status.GOING or (len(one.seats) == 1 and not one.waits):
            seat.status = Status.GOING  # the order to go was lost
            self._go(one, node)
        else:
            seat.status = Status.PREPARED
            self._advance(one)

    def _launched(self, one: Attempt, node: int, seat: Seat) -> None:
        known = seat.status == Status.LAUNCHED
        seat.status = Status.LAUNCHED
        if not known and (one.want != Want.RUN or one.failing):
            self._say(one, node, seat)
        if not one.started and all(
            seat.status in (Status.LAUNCHED, Status.EXITED) for seat in one.seats.values()
        ):
            one.started = True
            self._refusals.forgive(one.job)
            self.events.append(Started(one.job, one.attempt))

    def _progressed(self, one: Attempt, message: wire.Progress) -> None:
        job = one.job
        self.progress[job] = message
        self._work.save(job, message.saved)
        if not message.step_micros or not one.started or message.step < 0:
            return
        reference = self._work.reference(job, message.step_micros)
        self.events += one.account.heard(message, reference, self._now(), self._progress_every)

    def _unwanted(self, box: Box, message: wire.Message) -> None:
        """A part that no attempt of ours has: it was given up while its agent was away."""
        if isinstance(message, wire.Launched | wire.Prepared):
            box.unwanted.add(message.key)
            self._boxes.send(box, wire.Stop(message.key, checkpoint=False, kill=True))
        elif isinstance(message, wire.Exited | wire.Refused):
            key = message.key
            if isinstance(message, wire.Exited) and (key.job, key.attempt) not in self.unforgotten:
                self._boxes.send(box, wire.Forget(key))
            box.unwanted.discard(key)
            self._up(box)

    def _ready(self, box: Box) -> None:
        """The agent has told all that it had: say again what it missed."""
        for one in list(self._attempts.values()):
            for node, seat in list(one.seats.items()):
                if self._box(node) is not box or seat.over:
                    continue
                unsure, seat.unsure = seat.unsure, False
                if self._key(one.key, node) in box.mentioned:
                    self._say(one, node, seat)
                elif seat.status >= Status.PREPARED or (
                    unsure and (one.started or self._noted(one, node) is not None)
                ):
                    gone = one.want >= Want.LEAVE
                    status = Status.REFUSED if gone else Status.LOST
                    self._lose_part(one, node, "its agent does not know it", status)
                else:
                    seat.status = Status.UNSENT
                    if one.want >= Want.LEAVE:
                        seat.status = Status.REFUSED
                    self._conclude_if_over(one)
            self._advance(one)
        self._up(box)

    def _up(self, box: Box) -> None:
        if box.ready and not (box.up or box.closed or box.unwanted):
            box.up, box.down = True, False
            self.events.extend(NodeUp(node) for node in box.nodes)
            for one in list(self._attempts.values()):
                self._advance(one)

    def lost(self, box: Box) -> None:
        """An agent has been away for too long: its nodes are down, what ran there has failed."""
        self._lose(set(box.nodes))

    def closed(self, box: Box) -> None:
        """Nothing can be started on these nodes for now; what runs there goes on."""
        box.up, box.closed = False, True
        self.events.extend(NodeDown(node) for node in box.nodes)

    def opened(self, box: Box) -> None:
        """They can be used again."""
        box.closed = False
        self._up(box)

    def withheld(self, box: Box, gpus: int) -> None:
        """So many of a machine's GPUs are others' from now on."""
        self.events.extend(Withheld(node, gpus) for node in box.nodes)

    def _lose(self, nodes: set[int]) -> None:
        for one in list(self._attempts.values()):
            for node in nodes & one.seats.keys():
                if not one.seats[node].over:
                    self._lose_part(one, node, "its node is down")
        self.events.extend(NodeDown(node) for node in sorted(nodes))

    def _noted(self, one: Attempt, node: int) -> wire.Exit | None:
        return self._boxes.noted_exit(*one.key, list(one.seats).index(node))

    def _lose_part(self, one: Attempt, node: int, why: str, status: Status = Status.LOST) -> None:
        """No agent will say how a part ended: it failed, unless its end was noted elsewhere."""
        seat = one.seats[node]
        seat.exit = self._noted(one, node)
        seat.status, seat.why = (Status.EXITED, "") if seat.exit is not None else (status, why)
        self._part_over(one, seat)

    # ------------------------------------------------------------------ ends

    def _part_over(self, one: Attempt, seat: Seat) -> None:
        broke = seat.status != Status.EXITED or (seat.exit is not None and seat.exit.code != 0)
        if broke and one.want < Want.LEAVE and not one.over:
            self._fail(one)
        self._conclude_if_over(one)

    def _fail(self, one: Attempt) -> None:
        """A part of the gang broke: the others must go."""
        if not one.failing:
            one.failing = True
            for node, seat in one.seats.items():
                if seat.status == Status.UNSENT:
                    seat.status = Status.REFUSED
                self._say(one, node, seat)
        self._conclude_if_over(one)

    def _conclude_if_over(self, one: Attempt) -> None:
        if one.over and one.key in self._attempts:
            self._conclude(one)

    def _conclude(self, one: Attempt) -> None:
        del self._attempts[one.key]
        self.unforgotten[one.key] = one
        end = outcome(one)
        self._work.save(one.job, end.saved)
        self._report(one, end)
        for other in list(self._attempts.values()):
            if one.key in other.waits:
                other.waits.discard(one.key)
                self._advance(other)

    def _report(self, one: Attempt, end: Outcome) -> None:
        job, attempt = one.key
        statuses = {seat.status for seat in one.seats.values()}
        ran = Status.EXITED in statuses or Status.LOST in statuses
        if not one.started and end.finished:  # its start was not heard of
            self.events.append(Started(job, attempt))
        if self._last[job] > attempt:  # a resize replaced it
            kept = self._work.kept(one, end) if ran else UNCHANGED
            self.events.append(Released(job, attempt, kept))
            if end.finished:  # it was done before it could be resized
                self._finish_later(job, attempt)
        elif end.finished and ran:
            self.events.append(Finished(job, attempt))
        elif one.evicted and not one.started:
            self._refuse(one)
        elif one.want >= Want.LEAVE and (end.asked or not ran or not end.why):
            kept = self._work.kept(one, end) if ran else UNCHANGED
            self.events.append(Released(job, attempt, kept))
        elif not ran and not one.started:
            self._refuse(one)
        else:
            self.events.append(
                Failed(job, attempt, self._work.kept(one, end), end.why, self._is_final(one, end))
            )

    def _finish_later(self, job: int, attempt: int) -> None:
        """The job is done, so the attempts that were to replace the one that did it are, too."""
        for key in sorted(key for key in self._attempts if key[0] == job and key[1] > attempt):
            del self._attempts[key]
            is_last = key[1] == self._last[job]
            self.events.append(Finished(*key) if is_last else Released(*key, UNCHANGED))

    def _refuse(self, one: Attempt) -> None:
        why = next((seat.why for seat in one.seats.values() if seat.why), one.evicted)
        self._refusals.add(one.job, one.attempt, why)

    def _is_final(self, one: Attempt, end: Outcome) -> bool:
        if end.final or end.why.startswith("NodeFail"):
            return end.final
        try:
            return self._launch_of(one.job).retries <= 0
        except BadInput:
            return True

    # ------------------------------------------------------------------ nodes

    def _box(self, node: int) -> Box | None:
        return self._seat_of[node][0] if node in self._seat_of else None

    def _name(self, node: int) -> str:
        box, seat = self._seat_of.get(node, (None, 0))
        return box.hello.nodes[seat].name if box is not None else ""

    def _key(self, key: tuple[int, int], node: int) -> wire.Key:
        return wire.Key(*key, self._seat_of[node][1] if node in self._seat_of else 0)

    def _tell(self, node: int, message: wire.Message) -> None:
        box = self._box(node)
        if box is not None:
            self._boxes.send(box, message)
