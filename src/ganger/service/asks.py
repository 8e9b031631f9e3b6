"""What people ask of the daemon, each answered once its step is durable."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

import msgspec

from ganger.core.commands import DECLARES
from ganger.core.errors import BadInput
from ganger.core.events import Accepted, AnyEvent, Command, NodeCommand
from ganger.core.jobs import Phase
from ganger.core.kernel import Kernel
from ganger.service.facts import Facts, Prepared

if TYPE_CHECKING:
    from ganger.service.daemon import Daemon


class Turn:
    """What goes into one batch, and into the journal beside it."""

    def __init__(self, at: int, kernel: Kernel) -> None:
        self.at = at
        self.kernel = kernel
        self.events: list[AnyEvent] = []
        self.jobs: list[tuple[int, Facts]] = []
        self.changed: dict[int, Facts] = {}
        self.held: dict[int, bool] = {}
        self.keys: list[tuple[str, bytes, list[int]]] = []

    @property
    def next_row(self) -> int:
        """The row of the next job to be accepted."""
        return self.kernel.jobs.n + len(self.jobs)


class Ask(ABC):
    """Base of all. `done` has the answer, or the error."""

    def __init__(self) -> None:
        self.done: Future[Any] = Future()

    @abstractmethod
    def enter(self, turn: Turn, daemon: Daemon) -> None:
        """Put what is asked for into the turn. Raises BadInput, before it changed anything."""

    def answer(self) -> Any:
        """What to answer when the step is made."""
        return None


class Submit(Ask):
    """Accept jobs. Answers with their rows."""

    def __init__(self, jobs: list[Prepared], key: str = "", body: bytes = b"") -> None:
        super().__init__()
        self._jobs, self._key, self._body = jobs, key, body
        self.rows: list[int] = []

    def enter(self, turn: Turn, daemon: Daemon) -> None:
        """One Accepted per job, and a hold where a gate is closed."""
        if self._key and self._seen(turn, daemon):
            return
        head = turn.next_row
        for prepared in self._jobs:
            row, facts = turn.next_row, prepared.facts
            array = head if facts.task >= 0 else -1
            if array >= 0:
                facts = msgspec.structs.replace(facts, array=array)
            spec = msgspec.structs.replace(
                prepared.spec, name=str(row + 1), submitted=turn.at,
                array=str(array + 1) if array >= 0 else "",
            )  # fmt: skip
            turn.jobs.append((row, facts))
            turn.events.append(Accepted(row, spec))
            if facts.hold or facts.begin > turn.at or facts.after_any:
                turn.events.append(Command(row, "hold"))
            self.rows.append(row)
        if self._key:
            turn.keys.append((self._key, self._body, self.rows))

    def _seen(self, turn: Turn, daemon: Daemon) -> bool:
        """Whether the key was used before: then the answer is the same."""
        found = daemon.journal.key(self._key)
        used = [(body, rows) for key, body, rows in turn.keys if key == self._key]
        if found is None and used:
            found = used[0]
        if found is None:
            return False
        if found[0] != self._body:
            raise BadInput("it was used for another request", where="Idempotency-Key",
                           mend="take a new one")  # fmt: skip
        self.rows = found[1]
        return True

    def answer(self) -> list[int]:
        """The jobs' rows."""
        return self.rows


_FITS = {
    "hold": range(Phase.BLOCKED, Phase.FINISHED), "release": range(Phase.BLOCKED, Phase.FINISHED),
    "cancel": range(Phase.BLOCKED, Phase.FINISHED),
    "requeue": range(Phase.STARTING, Phase.FINISHED),
    "suspend": (Phase.RUNNING,), "resume": (Phase.SUSPENDED,),
}  # fmt: skip
"""Phases in which an order makes sense."""


class Order(Ask):
    """Say something of jobs: a verb of `core.commands.obey`. Answers with the rows that it was said
    of; jobs in a phase where it makes no sense are left out, unless all are."""

    def __init__(self, rows: Sequence[int], values: dict[str, float]) -> None:
        super().__init__()
        self._rows, self._values = rows, values
        self.rows: list[int] = []

    def enter(self, turn: Turn, daemon: Daemon) -> None:
        """One Command per job and verb."""
        phases = turn.kernel.jobs.phase
        self.rows = [
            row for row in self._rows
            if all(phases[row] in _FITS.get(verb, _FITS["cancel"]) for verb in self._values)
        ]  # fmt: skip
        if not self.rows:
            verb, first = next(iter(self._values)), self._rows[0]
            state = Phase(phases[first]).name.lower()
            raise BadInput(f"job {first + 1} is {state}: {verb} means nothing for it")
        for row in self.rows:
            for verb, value in self._values.items():
                self._say(turn, daemon, row, verb, value)

    def _say(self, turn: Turn, daemon: Daemon, row: int, verb: str, value: float) -> None:
        if verb == "release":
            if row not in daemon.gates.held:
                raise BadInput(f"job {row + 1} is not held by anybody")
            turn.held[row] = False  # its command follows when no other gate is closed
            return
        turn.events.append(Command(row, verb, value))
        if verb == "hold":
            turn.held[row] = True
        elif verb == "limit":
            facts = turn.changed.get(row) or daemon.journal.facts(row)
            launch = msgspec.structs.replace(facts.launch, limit=DECLARES["limit"](value))
            turn.changed[row] = msgspec.structs.replace(facts, launch=launch)

    def answer(self) -> list[int]:
        """The jobs' rows."""
        return self.rows


class NodeOrder(Ask):
    """`drain` or `resume` nodes."""

    def __init__(self, nodes: Sequence[int], verb: str) -> None:
        super().__init__()
        self._nodes, self._verb = nodes, verb

    def enter(self, turn: Turn, daemon: Daemon) -> None:
        """One NodeCommand each."""
        turn.events += [NodeCommand(node, self._verb) for node in self._nodes]


class SetPolicy(Ask):
    """Go on under another recipe: a new segment."""

    def __init__(self, policy: str, knows: str) -> None:
        super().__init__()
        self._policy, self._knows = policy, knows

    def enter(self, turn: Turn, daemon: Daemon) -> None:
        """Changed at once: the batch of this turn is the first that the new policy sees."""
        daemon.change_policy(self._policy, self._knows)
        turn.kernel = daemon.kernel
