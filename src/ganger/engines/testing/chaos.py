"""A wrapper that makes any engine a bad one, for tests of what owns engines.

Between the engine and its owner events are lost, come twice, late and in another order, starts are
refused, plans come through in part, and for minutes nothing comes through at all. What the engine
does is never made up: an owner that asks again (`reconcile`) often enough must come to the truth.
"""

from __future__ import annotations

import random
from heapq import heappop, heappush
from operator import attrgetter

import msgspec

from ganger.core.events import (
    Accepted,
    AnyEvent,
    Batch,
    Command,
    NodeCommand,
    Refused,
    Submitted,
    Woke,
)
from ganger.core.plan import (
    AnyAction,
    AskAt,
    Lend,
    Plan,
    Provision,
    Resize,
    Resume,
    Retire,
    Route,
    Spawn,
    Start,
    Suspend,
    Tune,
)
from ganger.core.protocols import Engine
from ganger.core.units import MINUTE, NEVER, SECOND
from ganger.engines.reconciliation import Believed, Reconciliation

_OWN = Submitted | Accepted | Command | NodeCommand
"""What owners put into batches themselves."""
_rank = attrgetter("rank")


class Faults(msgspec.Struct, frozen=True, kw_only=True):
    """How often (0 to 1), per event, per start or per plan. Times in microseconds."""

    lose: float = 0.1
    repeat: float = 0.1
    """An event comes, and comes again within `late`."""
    delay: float = 0.1
    """An event comes within `late`, after others that happened later."""
    late: int = 20 * SECOND
    refuse: float = 0.1
    halve: float = 0.1
    """Only the first orders of a plan come through: who leaves before who comes."""
    leave: float = 0.02
    """With this plan the engine is away, up to `away`: orders are lost, and half of the events."""
    away: int = 5 * MINUTE


class Chaos:
    """`engine` with `faults`, by the dice of `seed`. An Engine itself."""

    def __init__(self, engine: Engine, seed: int, faults: Faults = Faults()) -> None:  # noqa: B008
        self._engine, self._faults = engine, faults
        self._dice = random.Random(seed)
        self._standing = Reconciliation()
        self._late: list[tuple[int, int, AnyEvent]] = []
        self._filed = 0
        self._away_until = -1
        self._stay: set[int] = set()
        """Jobs whose order to leave was lost: who waits for them cannot come."""
        self.now = 0
        self.done: dict[str, int] = {}
        """How often what was done."""

    def _falls(self, name: str) -> bool:
        falls: bool = self._dice.random() < getattr(self._faults, name)
        if falls:
            self.done[name] = self.done.get(name, 0) + 1
        return falls

    # ------------------------------------------------------------------ events

    def poll(self, until: int) -> Batch | None:
        """What comes through next, or a Woke at `until`."""
        while True:
            due = self._late[0][0] if self._late else NEVER
            batch = self._engine.poll(min(until, due))
            if batch is None:
                if due == NEVER:
                    return None
                batch = Batch(max(self.now, due), [])
            self.now = now = batch.at
            told = [event for event in batch.events if not isinstance(event, _OWN | Woke)]
            events: list[AnyEvent] = [event for event in batch.events if isinstance(event, _OWN)]
            self._standing.told(told)
            for event in told:
                self._pass(event, events)
            while self._late and self._late[0][0] <= now:
                events.append(heappop(self._late)[2])
            if now >= until:
                events.append(Woke())
            if events or not batch.events:  # an empty batch: somebody interrupts
                return Batch(now, sorted(events, key=_rank))

    def _pass(self, event: AnyEvent, through: list[AnyEvent]) -> None:
        if self.now < self._away_until:
            if self._dice.random() < 0.5:
                self._file(self._away_until, event)
            return
        if self._falls("lose"):
            return
        late = self.now + 1 + int(self._dice.random() * self._faults.late)
        if self._falls("delay"):
            self._file(late, event)
            return
        through.append(event)
        if self._falls("repeat"):
            self._file(late, event)

    def _file(self, at: int, event: AnyEvent) -> None:
        self._filed += 1
        heappush(self._late, (at, self._filed, event))

    # ------------------------------------------------------------------ orders

    def apply(self, plan: Plan, now: int) -> None:
        """Set going what comes through."""
        if now >= self._away_until and self._falls("leave"):
            self._away_until = now + 1 + int(self._dice.random() * self._faults.away)
        orders = sorted(plan.actions, key=lambda action: isinstance(action, Start | Resize))
        through = len(orders)
        if now < self._away_until:
            through = 0
        elif orders and self._falls("halve"):
            through = self._dice.randrange(len(orders))
        self._order(orders[:through], now)
        for action in orders[through:]:
            if isinstance(
                action, Provision | Tune | Spawn | Retire | AskAt | Route | Lend
            ):  # nobody asks for these again
                self._engine.apply(Plan([action]), now)
            elif not isinstance(action, Start | Suspend | Resume):
                self._stay.add(action.job)

    def _order(self, orders: list[AnyAction], now: int) -> None:
        sent = list[AnyAction]()
        for action in orders:
            if isinstance(action, Start | Resize) and self._stay.intersection(action.waits):
                if isinstance(action, Resize):
                    self._stay.add(action.job)
                continue
            if isinstance(action, Start) and self._falls("refuse"):
                refused = Refused(action.job, action.attempt, "chaos")
                self._standing.ordered([action])
                self._standing.told([refused])
                self._file(now, refused)
                continue
            sent += self._standing.ordered([action])
        if sent:
            self._engine.apply(Plan(sent), now)

    def reconcile(self, owner: Believed) -> bool:
        """Hear what the owner believes: events follow, and orders that were lost are carried out.
        Whether there was nothing to say; False also while it is away."""
        if self.now < self._away_until:
            return False
        events, actions = self._standing.differences(owner)
        self._stay.clear()
        sent = self._standing.ordered(actions)
        if sent:
            self._engine.apply(Plan(sent), self.now)
        through = list[AnyEvent]()
        for event in events:
            self._pass(event, through)
        for event in through:
            self._file(self.now, event)
        return not (events or actions or self._late)
