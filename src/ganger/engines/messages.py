"""What the engine sends to the agents of an attempt's parts, and which agent has which node."""

from __future__ import annotations

from contextlib import suppress

from ganger.core.spec import OnPreempt
from ganger.engines.agent import protocol as wire
from ganger.engines.gang import Attempt
from ganger.engines.life import Status, Want
from ganger.engines.machines import Box, Fleet


class Messages:
    """Messages by node. To a machine that is not there nothing is sent."""

    def __init__(self, boxes: Fleet) -> None:
        self._boxes = boxes
        self._seat_of: dict[int, tuple[Box, int]] = {}

    def welcomed(self, box: Box) -> None:
        """A machine has connected: it has these nodes from now on."""
        for i, node in enumerate(box.nodes):
            self._seat_of[node] = box, i

    def box(self, node: int) -> Box | None:
        """The machine that has a node; None if none has come yet."""
        return self._seat_of[node][0] if node in self._seat_of else None

    def key(self, key: tuple[int, int], node: int) -> wire.Key:
        """How the agent of a node calls its part of an attempt."""
        return wire.Key(*key, self._seat_of[node][1] if node in self._seat_of else 0)

    def tell(self, node: int, message: wire.Message) -> None:
        """Send something to the machine that has a node."""
        box = self.box(node)
        if box is not None:
            self._boxes.send(box, message)

    def prepare(self, one: Attempt, node: int) -> None:
        """Have a part made ready; the only part of an attempt goes at once."""
        key, parts, terms = self.key(one.key, node), one.seats[node].parts, None
        if one.knobs:
            with suppress(ValueError):  # it is said when they are sent for themselves
                terms = wire.Terms.of(key, one.knobs)
        self.tell(node, wire.Prepare(key, one.launch, parts, go=one.alone, terms=terms))

    def go(self, one: Attempt, node: int) -> None:
        """Have a part started, with where its gang meets."""
        first = next(iter(one.seats))
        address = "127.0.0.1"
        here = self.box(first)
        others = [box for other in one.seats if (box := self.box(other)) not in (None, here)]
        if here is not None and others and others[0] is not None:
            address = self._reach(here, others[0])
        port = one.seats[first].port
        hosts = tuple(self._name(other) for other in one.seats)
        tasks = tuple(sum(part.workers for part in seat.parts) for seat in one.seats.values())
        key = self.key(one.key, node)
        self.tell(node, wire.Go(key, address, port, hosts, tasks, one.secret))

    def stop(self, one: Attempt, node: int) -> None:
        """Have a part leave; it saves if that was ordered and its gang is whole."""
        saves = one.want == Want.LEAVE and not one.failing
        saves = saves and one.launch.on_preempt != OnPreempt.KILL
        self.tell(node, wire.Stop(self.key(one.key, node), checkpoint=saves))

    def suspend(self, one: Attempt, node: int) -> None:
        """Have a part frozen."""
        self.tell(node, wire.Suspend(self.key(one.key, node)))

    def resume(self, one: Attempt, node: int) -> None:
        """Have a part go on."""
        self.tell(node, wire.Resume(self.key(one.key, node)))

    def share(self, attempt: Attempt, node: int) -> str:
        """Send the terms on which a part that runs shares its devices, if there are any. Why they
        cannot be sent, if they are none or its agent is too old."""
        box, knobs, seat = self.box(node), attempt.knobs, attempt.seats[node]
        if not knobs or seat.status < Status.LAUNCHED or seat.over:
            return ""
        if box is not None and box.hello.version < wire.SINCE[wire.Terms]:
            return f"its agent speaks version {box.hello.version}, which does not limit rates"
        try:
            terms = wire.Terms.of(self.key(attempt.key, node), knobs)
        except ValueError as error:
            return str(error)
        self.tell(node, terms)
        return ""

    def forget(self, one: Attempt, node: int) -> None:
        """The end of a part is on disk here: its agent need not keep it."""
        self.tell(node, wire.Forget(self.key(one.key, node)))

    def _reach(self, here: Box, other: Box) -> str:
        """The address of the machine `here` for `other` machines."""
        mine, theirs = self._boxes.address(here), self._boxes.address(other)
        return mine[0] if mine is not None else theirs[1] if theirs is not None else "127.0.0.1"

    def _name(self, node: int) -> str:
        box, seat = self._seat_of.get(node, (None, 0))
        return box.hello.nodes[seat].name if box is not None else ""
