"""The attempts that an engine follows: what is wanted of each, what agents say of it, how it ends.

No clock but the monotonic one, no socket: the fleet brings what agents report, and carries orders
to them. What it makes of all that are events, in `events`. Which state follows which, and what is
done then, say the tables in `life`; this file finds out what happened, and does what they say.
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
    Released,
    Started,
    Unable,
    Withheld,
)
from ganger.core.plan import Placement, Tune
from ganger.core.units import SECOND
from ganger.engines.agent import protocol as wire
from ganger.engines.gang import (
    UNCHANGED,
    Attempt,
    Hold,
    Knobs,
    NodePart,
    adopted,
    finished_before,
    is_final,
    judged,
    outcome,
    reported,
    waits_of,
    withdraw_refusal,
)
from ganger.engines.launch import Launch
from ganger.engines.life import COURSES, ORDERS, PARTS, Effect, News, Order, Status, Turn, Want
from ganger.engines.machines import Box, Fleet
from ganger.engines.messages import Messages
from ganger.engines.refusals import Refusals
from ganger.engines.work import Work


class Attempts:
    """All attempts that are not over. `now` gives the journal's time, microseconds."""

    def __init__(
        self,
        boxes: Fleet,
        launch_of: Callable[[int], Launch],
        now: Callable[[], int],
        lost_after: int,
        progress_every: int,
    ) -> None:
        self.events: list[AnyEvent] = []
        self.progress: dict[int, wire.Progress] = {}
        self._boxes, self._launch_of, self._now = boxes, launch_of, now
        self._progress_every = progress_every
        self._attempts: dict[tuple[int, int], Attempt] = {}
        self._last: dict[int, int] = {}
        self._agents = Messages(boxes)
        self._stranded_at = time.monotonic() + lost_after / SECOND
        self._refusals = Refusals()
        self.unforgotten: dict[tuple[int, int], Attempt] = {}
        """Ended attempts whose end is not journalled yet."""
        self._work = Work()
        self._effects: dict[Effect, Callable[[Attempt], None]] = {
            Effect.TELL_PARTS: self._say_all,
            Effect.END_PARTS: self._end_parts,
            Effect.DISMISS: self._dismiss,
            Effect.SAY_STARTED: self._say_started,
            Effect.SAY_FINISHED: lambda one: self.events.append(Finished(*one.key)),
            Effect.SAY_RELEASED: self._say_released,
            Effect.SAY_REFUSED: self._refuse,
            Effect.SAY_FAILED: self._say_failed,
            Effect.FINISH_LATER: self._finish_later,
            Effect.GATHER: self._advance,
            Effect.COUNT: self._count,
            Effect.CONCLUDE: self._conclude_if_over,
        }
        self._part_effects: dict[Effect, Callable[[Attempt, int], None]] = {
            Effect.PREPARE: self._agents.prepare,
            Effect.GO: self._agents.go,
            Effect.STOP: self._agents.stop,
            Effect.FREEZE: self._agents.suspend,
            Effect.THAW: self._agents.resume,
            Effect.REPEAT: self._repeat,
            Effect.JUDGE: self._judge,
        }

    # ------------------------------------------------------------------ the tables

    def _order(self, one: Attempt, order: Order) -> None:
        if (edge := ORDERS.get((one.want, order))) is not None:
            one.want = edge.to
            for effect in edge.effects:
                self._effects[effect](one)

    def _turn(self, one: Attempt, turn: Turn) -> None:
        if (edge := COURSES.get((one.course, turn))) is not None:
            one.course = edge.to
            for effect in edge.effects:
                self._effects[effect](one)

    def _news(self, one: Attempt, node: int, news: News) -> None:
        seat = one.seats[node]
        if (edge := PARTS.get((seat.status, news))) is not None:
            seat.status = edge.to
            for effect in edge.effects:
                if effect in self._effects:
                    self._effects[effect](one)
                else:
                    self._part_effects[effect](one, node)

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
            held = {node for one in self._attempts.values() for node in one.nodes}
            self._lose({node for node in held if self._agents.box(node) is None})

    def journalled(self, key: tuple[int, int]) -> None:
        """The end of the attempt is on disk: agents may forget it."""
        if (one := self.unforgotten.pop(key, None)) is not None:
            for node in one.seats:
                self._agents.forget(one, node)

    def adopt(self, holds: Iterable[Hold]) -> None:
        """Take over what a restored kernel believes to hold devices. Before anything else."""
        holds = sorted(holds, key=lambda hold: (hold.job, hold.attempt))
        for hold in holds:
            try:
                launch = self._launch_of(hold.job)
            except BadInput:
                launch = Launch(command=())
            self._add(adopted(hold, launch))
        for key, waits in waits_of(holds).items():
            self._attempts[key].waits = waits
        for one in [one for one in self._attempts.values() if one.hollow]:
            self._advance(one)

    def unknown(self, keys: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
        """Those of `keys` that are not followed, and of which no event is still to come."""
        known = self._attempts.keys() | self._refusals.keys()
        known |= {(getattr(e, "job", -1), getattr(e, "attempt", -1)) for e in self.events}
        return [key for key in keys if key not in known]

    # ------------------------------------------------------------------ actions

    def _add(self, one: Attempt) -> None:
        self._attempts[one.key] = one
        self._last[one.job] = max(one.attempt, self._last.get(one.job, 0))
        self._work.declare(one.job, one.launch.step_micros)

    def start(
        self, job: int, attempt: int, placement: Placement, waits: tuple[int, ...], knobs: Knobs
    ) -> None:
        """Run a new attempt once those of `waits` that are leaving are gone. A second call changes
        nothing."""
        if attempt <= self._last.get(job, 0):
            return
        try:
            launch = self._launch_of(job)
        except BadInput as error:
            self._last[job] = attempt
            self.events.append(Failed(job, attempt, UNCHANGED, f"LaunchFailed: {error}", True))
            return
        one = Attempt(job, attempt, placement, launch, knobs)
        leaving = (key for key, other in self._attempts.items() if other.want >= Want.LEAVE)
        one.waits = {key for key in leaving if key[0] in waits and key != one.key}
        self._add(one)
        self._advance(one)

    def stop(self, key: tuple[int, int], order: Order, evicted: str = "") -> None:
        """End the attempt as ordered; `evicted`: why, if its owner did not order it."""
        one = self._attempts.get(key)
        if one is None:
            self._unrefuse(key)
            return
        one.evicted = evicted
        self._order(one, order)

    def _end_parts(self, one: Attempt) -> None:
        if (one.job, one.attempt - 1) in one.waits:
            return  # the attempt before it may yet finish the job
        one.waits.clear()
        self._say_all(one)
        self._advance(one)

    def evict(self, node: int, why: str) -> None:
        """The node will be gone soon: attempts there save and leave, without their owner's order.
        Each is Released; Refused, for the reason `why`, if it had not started."""
        for one in list(self._attempts.values()):
            if node in one.nodes and one.want < Want.LEAVE:
                self.stop(one.key, Order.LEAVE, why)

    def on(self, node: int) -> int:
        """How many attempts have a part on a node, or hold some of it for their children."""
        return sum(node in one.nodes for one in self._attempts.values())

    def _unrefuse(self, key: tuple[int, int]) -> None:
        """A refused attempt is told to stop before its owner saw the refusal: it is released."""
        if self._refusals.withdraw(key):
            self.events.append(Released(*key, UNCHANGED))
        withdraw_refusal(self.events, key)

    def was_done(self, job: int, attempt: int) -> bool:
        """Whether an attempt before finished the job and its owner has not seen it: then so did
        this one."""
        if not finished_before(self.events, job, attempt):
            return False
        self._last[job] = attempt
        return True

    def suspend(self, key: tuple[int, int], suspended: bool) -> None:
        """Freeze the attempt or let it go on."""
        one = self._attempts.get(key)
        if one is not None:
            self._order(one, Order.SUSPEND if suspended else Order.RESUME)

    def share(self, key: tuple[int, int], knobs: Knobs) -> None:
        """On what terms the attempt shares its devices from now on."""
        attempt = self._attempts.get(key)
        if attempt is not None:
            attempt.knobs = {**attempt.knobs, **knobs}
            for node in attempt.seats:
                self._say_terms(attempt, node)

    def _say_terms(self, attempt: Attempt, node: int) -> None:
        if why := self._agents.share(attempt, node):
            attempt.knobs = {}
            self.events.append(Unable(attempt.job, Tune.__name__, why=why))

    def _say_all(self, one: Attempt) -> None:
        for node in one.seats:
            self._say(one, node)

    def _say(self, one: Attempt, node: int) -> None:
        """Tell the agent what is wanted of a part that it has."""
        wanted = News.SUSPEND if one.want == Want.SUSPEND else News.RESUME
        self._news(one, node, News.END if one.ending else wanted)

    def _repeat(self, one: Attempt, node: int) -> None:
        self._say_terms(one, node)
        if one.want != Want.RUN or one.failing:
            self._say(one, node)

    def _advance(self, one: Attempt) -> None:
        """Do the next thing that brings a wanted attempt to run."""
        if one.waits:
            return
        if one.ending:
            for node, seat in one.seats.items():
                if not seat.unsure:
                    self._news(one, node, News.DROPPED)
            self._conclude_if_over(one)
            return
        if one.hollow:
            self._turn(one, Turn.LAUNCHED)
            return
        for node, seat in one.seats.items():
            if seat.status == Status.UNSENT:
                self._prepare(one, node, seat)
        if any(seat.over for seat in one.seats.values()):
            self._fail(one)
        elif len(one.seats) > 1 and all(
            seat.status == Status.PREPARED for seat in one.seats.values()
        ):
            for node in one.seats:
                self._news(one, node, News.GATHERED)

    def _prepare(self, one: Attempt, node: int, seat: NodePart) -> None:
        box = self._agents.box(node)
        if box is None or box.down or box.closed:
            # Who is connected and not closed says in a moment that it is up.
            coming = box is not None and box.link is not None and not box.closed
            if not coming and (box is not None or self._stranded_at == inf):
                seat.why = "its node is down"
                self._news(one, node, News.NODE_DOWN)
        elif box.ready and box.up:
            self._news(one, node, News.SENDABLE_ALONE if one.alone else News.SENDABLE)

    # ------------------------------------------------------------------ what agents say

    def welcomed(self, box: Box) -> None:
        """An agent has connected."""
        self._agents.welcomed(box)

    def told(self, box: Box, message: wire.Message) -> None:
        """An agent says how something is."""
        if isinstance(message, wire.Ready):
            self._ready(box)
            return
        assert isinstance(message, wire.OfPart)
        key = message.key
        box.mentioned.add(key)
        one = self._attempts.get(key.both)
        node = box.node_of(key.seat)
        if one is None or node not in one.seats:
            self._unwanted(box, message)
            return
        seat = one.seats[node]
        if isinstance(message, wire.Progress):
            self._progressed(one, message)
        elif isinstance(message, wire.Reported):
            self.events += reported(one, message)
        elif isinstance(message, wire.Exited):
            seat.exit = message.exit
            self._news(one, node, News.EXITED)
        elif isinstance(message, wire.Refused):
            if not seat.over:
                seat.why = message.why
            self._news(one, node, News.REFUSED)
        elif isinstance(message, wire.Launched):
            self._news(one, node, News.LAUNCHED)
        else:
            seat.port = message.port
            ready = News.PREPARED_ALONE if one.alone and not one.waits else News.PREPARED
            self._news(one, node, News.PREPARED_TO_END if one.ending else ready)

    def _count(self, one: Attempt) -> None:
        launched = (Status.LAUNCHED, Status.EXITED)
        if all(seat.status in launched for seat in one.seats.values()):
            self._turn(one, Turn.LAUNCHED)

    def _say_started(self, one: Attempt) -> None:
        if not one.end:
            self._refusals.forgive(one.job)
        self.events.append(Started(*one.key))

    def _progressed(self, one: Attempt, message: wire.Progress) -> None:
        job = one.job
        self.progress[job] = message
        self._work.save(job, message.saved)
        if not message.step_micros or not one.started or message.step < 0:
            return
        reference = self._work.reference(job, message.step_micros)
        self.events += one.account.heard(message, reference, self._now(), self._progress_every)

    def used(self, box: Box, message: wire.Used) -> None:
        """What an agent saw a part use."""
        attempt, every = self._attempts.get(message.key.both), self._progress_every
        if attempt and attempt.started and box.node_of(message.key.seat) in attempt.seats:
            self.events += attempt.account.used(box.hello.name, message, self._now(), every)

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
                if self._agents.box(node) is not box or seat.over:
                    continue
                unsure, seat.unsure = seat.unsure, False
                if self._agents.key(one.key, node) in box.mentioned:
                    self._say(one, node)
                    self._say_terms(one, node)
                elif seat.status >= Status.PREPARED or (
                    unsure and (one.started or self._noted(one, node) is not None)
                ):
                    news = News.GONE if one.want >= Want.LEAVE else News.LOST
                    self._lose_part(one, node, "its agent does not know it", news)
                else:
                    gone = one.want >= Want.LEAVE
                    self._news(one, node, News.UNKNOWN_TO_END if gone else News.UNKNOWN)
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
        # Children before their parents: a grant closes when nothing runs on it.
        for one in sorted(self._attempts.values(), key=lambda one: one.hollow):
            for node in nodes & one.seats.keys():
                if not one.seats[node].over:
                    self._lose_part(one, node, "its node is down")
            if one.hollow and nodes & one.nodes:
                self._fail(one)
        self.events.extend(NodeDown(node) for node in sorted(nodes))

    def _noted(self, one: Attempt, node: int) -> wire.Exit | None:
        return self._boxes.noted_exit(*one.key, list(one.seats).index(node))

    def _lose_part(self, one: Attempt, node: int, why: str, news: News = News.LOST) -> None:
        """No agent will say how a part ended: it failed, unless its end was noted elsewhere."""
        seat = one.seats[node]
        seat.exit = self._noted(one, node)
        seat.why = why if seat.exit is None else ""
        self._news(one, node, news if seat.exit is None else News.EXIT_NOTED)

    # ------------------------------------------------------------------ ends

    def _judge(self, one: Attempt, node: int) -> None:
        """A part is over."""
        seat = one.seats[node]
        broke = seat.status != Status.EXITED or (seat.exit is not None and seat.exit.code != 0)
        if broke and one.want < Want.LEAVE and not one.over:
            self._fail(one)
        self._conclude_if_over(one)

    def _fail(self, one: Attempt) -> None:
        """A part of the gang broke: the others must go."""
        self._turn(one, Turn.BROKE)
        self._conclude_if_over(one)

    def _dismiss(self, one: Attempt) -> None:
        for node in one.seats:
            self._news(one, node, News.DROPPED)
            self._say(one, node)

    def _conclude_if_over(self, one: Attempt) -> None:
        if one.over and one.key in self._attempts:
            self._conclude(one)

    def _conclude(self, one: Attempt) -> None:
        del self._attempts[one.key]
        self.unforgotten[one.key] = one
        one.end = outcome(one)
        self._work.save(one.job, one.end.saved)
        self._turn(one, judged(one, one.end, replaced=self._last[one.job] > one.attempt))
        for other in list(self._attempts.values()):
            if one.key in other.waits:
                other.waits.discard(one.key)
                self._advance(other)

    def _say_released(self, one: Attempt) -> None:
        kept = self._work.kept(one, one.end) if one.end is not None and one.ran else UNCHANGED
        self.events.append(Released(*one.key, kept))

    def _say_failed(self, one: Attempt) -> None:
        assert one.end is not None
        final = is_final(one, one.end, self._launch_of)
        self.events.append(Failed(*one.key, self._work.kept(one, one.end), one.end.why, final))

    def _finish_later(self, one: Attempt) -> None:
        """The job is done, so the attempts that were to replace the one that did it are, too."""
        for key in sorted(key for key in self._attempts if key[0] == one.job and key > one.key):
            is_last = key[1] == self._last[one.job]
            self._turn(self._attempts.pop(key), Turn.JOB_DONE if is_last else Turn.JOB_DONE_BETWEEN)

    def _refuse(self, one: Attempt) -> None:
        why = next((seat.why for seat in one.seats.values() if seat.why), one.evicted)
        self._refusals.add(one.job, one.attempt, why)
