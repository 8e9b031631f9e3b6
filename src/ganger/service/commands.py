"""What people ask of the daemon, each answered once its step is durable."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from ganger.client.states import state_of
from ganger.core.errors import BadInput
from ganger.core.events import Accepted, AnyEvent, Command, NodeCommand
from ganger.core.kernel import Kernel
from ganger.core.spec import JobSpec, Kind, TenantSpec
from ganger.core.state.jobs import Phase
from ganger.core.state.reducer import DECLARES
from ganger.core.units import WHOLE
from ganger.engines.launch import Launch
from ganger.service.durable.journal import NUMBERS_FROM, Journal, SetAside
from ganger.service.errors import Bug
from ganger.service.jobs.families import children_of, joined, refuse_unpriced
from ganger.service.jobs.job_facts import JobFacts, Prepared
from ganger.service.jobs.limits import Group

if TYPE_CHECKING:
    from ganger.service.daemon import Daemon


class Turn:
    """What goes into one batch, and into the journal beside it."""

    def __init__(self, at: int, kernel: Kernel) -> None:
        self.at = at
        self.kernel = kernel
        self.events: list[AnyEvent] = []
        self.jobs: list[tuple[int, JobFacts]] = []
        self.changed: dict[int, JobFacts] = {}
        self.held: dict[int, bool] = {}
        self.keys: list[tuple[str, bytes, list[int]]] = []
        self.ceilings: dict[Group, int | None] = {}
        """New ceilings; None takes one away."""
        self.settings: dict[str, str] = {}
        self.let_in: dict[Group, int] = {}
        """What this turn's jobs take that are not put on hold."""
        self.born: dict[int, int] = {}
        """By parent: how many children it has, this turn's included."""

    @property
    def beside(self) -> tuple[dict[Any, Any], ...]:
        """All that is asked for beside events, new jobs and keys."""
        return self.changed, self.held, self.ceilings, self.settings, self.let_in, self.born

    def forget(self) -> None:
        """Nothing is asked for after all."""
        self.events, self.jobs, self.keys = [], [], []
        for one in self.beside:
            one.clear()

    def mark(self) -> tuple[int, int, int, list[dict[Any, Any]]]:
        """How much there is, for `undo`."""
        sizes = len(self.events), len(self.jobs), len(self.keys)
        return *sizes, [dict(one) for one in self.beside]

    def undo(self, mark: tuple[int, int, int, list[dict[Any, Any]]]) -> None:
        """As if nothing had been asked for since the mark."""
        events, jobs, keys, before = mark
        del self.events[events:], self.jobs[jobs:], self.keys[keys:]
        for one, as_it_was in zip(self.beside, before, strict=True):
            one.clear()
            one.update(as_it_was)

    @property
    def next_row(self) -> int:
        """The row of the next job to be accepted."""
        return self.kernel.jobs.n + len(self.jobs)


class Ask(ABC):
    """Base of all. `done` has the answer, or the error."""

    own = False
    """Whether the daemon itself asks: then it asks again when nothing could be written."""

    def __init__(self) -> None:
        self.done: Future[Any] = Future()
        self.events: list[AnyEvent] = []
        """What it put into its turn."""

    @abstractmethod
    def enter(self, turn: Turn, daemon: Daemon) -> None:
        """Put what is asked for into the turn. Raises BadInput, before it changed anything."""

    def answer(self) -> Any:
        """What to answer when the step is made."""
        return None


def answer(asks: Sequence[Ask], refused: Sequence[SetAside]) -> None:
    """Answer the users who asked, also that their events were set aside."""
    bad = {one.record: one for one in refused}
    for ask in asks:
        mine = [bad.get(msgspec.msgpack.encode(one)) for one in ask.events] if bad else []
        wrong = next((one for one in mine if one is not None), None)
        if wrong is None:
            ask.done.set_result(ask.answer())
        else:
            ask.done.set_exception(Bug(f"{wrong.what} is set aside, by a bug: {wrong.why}"))


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
                prepared.spec,
                name=str(row + 1),
                submitted=turn.at,
                array=str(array + 1) if array >= 0 else "",
            )
            refuse_unpriced(spec, turn.kernel.nodes)
            if spec.parent:
                facts = joined(spec, facts, turn, daemon.journal.facts(int(spec.parent) - 1))
            if facts.singleton:
                facts = self._after_namesakes(facts, turn, daemon)
            if facts.throttle and row == head:
                turn.ceilings["array", str(head)] = facts.throttle
            turn.jobs.append((row, facts))
            turn.events.append(Accepted(row, spec))
            if _is_gated(facts, turn, daemon) or self._waits_for_room(spec, facts, turn, daemon):
                turn.events.append(Command(row, "hold"))
            self.rows.append(row)
        if self._key:
            turn.keys.append((self._key, self._body, self.rows))

    @staticmethod
    def _after_namesakes(facts: JobFacts, turn: Turn, daemon: Daemon) -> JobFacts:
        jobs = turn.kernel.jobs
        user = jobs.users.find(facts.user)
        active = np.flatnonzero(
            (jobs.phase[: jobs.n] < Phase.FINISHED) & (jobs.user[: jobs.n] == user)
        )
        before = [row for row in active.tolist() if daemon.names[row] == facts.name]
        before += [
            row for row, other in turn.jobs if (other.name, other.user) == (facts.name, facts.user)
        ]
        return msgspec.structs.replace(facts, after_any=(*facts.after_any, *before))

    @staticmethod
    def _waits_for_room(spec: JobSpec, facts: JobFacts, turn: Turn, daemon: Daemon) -> bool:
        """Whether the job must wait below a ceiling; if not, it is counted."""
        ceilings = daemon.gates.ceilings
        needs = ceilings.needs("" if spec.parent else spec.tenant, facts.array, spec.shape)
        for group, need in needs.items():
            if need > ceilings.most[group]:
                raise BadInput(
                    f"{group[1]} may hold {ceilings.most[group] / WHOLE:g} GPUs, and this job"
                    f" {need / WHOLE:g}",
                    where="tenant",
                    mend="ask for less; see `ganger quota`",
                )
        if facts.throttle or (needs and spec.after) or not ceilings.has_room(needs, turn.let_in):
            return True  # of a new array, who goes first is settled when all its tasks are there
        for group, need in needs.items():
            turn.let_in[group] = turn.let_in.get(group, 0) + need
        return False

    def _seen(self, turn: Turn, daemon: Daemon) -> bool:
        """Whether the key was used before: then the answer is the same."""
        found = daemon.journal.key(self._key)
        used = [(body, rows) for key, body, rows in turn.keys if key == self._key]
        if found is None and used:
            found = used[0]
        if found is None:
            return False
        if found[0] != self._body:
            raise BadInput(
                "this key was used for another request",
                where="Idempotency-Key",
                mend="use a new key",
            )
        self.rows = found[1]
        return True

    def answer(self) -> list[int]:
        """The jobs' rows."""
        return self.rows


def _is_gated(facts: JobFacts, turn: Turn, daemon: Daemon) -> bool:
    early = daemon.gates.is_early(facts.begin, turn.at)
    return bool(facts.hold or early or facts.waits_for)


_FITS = {
    "hold": range(Phase.BLOCKED, Phase.FINISHED), "release": range(Phase.BLOCKED, Phase.FINISHED),
    "cancel": range(Phase.BLOCKED, Phase.FINISHED),
    "requeue": range(Phase.STARTING, Phase.FINISHED),
    "suspend": (Phase.RUNNING,), "resume": (Phase.SUSPENDED,),
}  # fmt: skip
"""Phases in which an order makes sense."""


class Order(Ask):
    """Give an order about jobs: a verb that `core.state.reducer` knows. Answers with the rows that
    it was given of; jobs in a phase where it makes no sense are left out, unless all are."""

    def __init__(self, rows: Sequence[int], values: dict[str, float]) -> None:
        super().__init__()
        self._rows, self._values = rows, values
        self.rows: list[int] = []

    def enter(self, turn: Turn, daemon: Daemon) -> None:
        """One Command per job and verb."""
        phases = turn.kernel.jobs.phase
        self.rows = [
            row
            for row in self._rows
            if all(self._fits(turn, row, verb) for verb in self._values)
            and not ("suspend" in self._values and turn.kernel.jobs.kind[row] == Kind.TUNE)
        ]
        if not self.rows:
            verb, first = next(iter(self._values)), self._rows[0]
            state = state_of(Phase(phases[first]), daemon.ends.get(first, ""))[0].lower()
            raise BadInput(f"job {first + 1} is {state}: {verb} does not apply to it")
        for row in self.rows:
            for verb, value in self._values.items():
                self._say(turn, daemon, row, verb, value)

    @staticmethod
    def _fits(turn: Turn, row: int, verb: str) -> bool:
        """Whether the verb makes sense of the job now; of one that sleeps until it is resumed,
        people may say that it stays suspended."""
        kernel = turn.kernel
        if verb == "suspend" and (row in kernel.view.resumable or row in kernel.resuming):
            return True
        return kernel.jobs.phase[row] in _FITS.get(verb, _FITS["cancel"])

    def _say(self, turn: Turn, daemon: Daemon, row: int, verb: str, value: float) -> None:
        if verb == "release":
            if row not in daemon.gates.held:
                raise BadInput(f"job {row + 1} is not held")
            turn.held[row] = False  # its command follows when no other gate is closed
            return
        turn.events.append(Command(row, verb, value))
        if verb == "hold":
            turn.held[row] = True
        elif verb == "limit":
            facts = turn.changed.get(row) or daemon.journal.facts(row)
            launch = msgspec.structs.replace(facts.launch, limit=DECLARES["limit"](value))
            turn.changed[row] = msgspec.structs.replace(facts, launch=launch)

    def commands(self, daemon: Daemon) -> list[Command]:
        """What it would order now, `release` included where no other gate is closed. Raises
        BadInput. Wants the daemon's lock."""
        turn = Turn(daemon.now(), daemon.kernel)
        self.enter(turn, daemon)
        commands = [event for event in turn.events if isinstance(event, Command)]
        return commands + [
            Command(row, "release")
            for row, held in turn.held.items()
            if not held and not daemon.gates.besides_people(row)
        ]

    def answer(self) -> list[int]:
        """The jobs' rows."""
        return self.rows


class Finish(Ask):
    """End a search whose children are all over, and whose recipe asks for no more."""

    own = True

    def __init__(self, parent: int) -> None:
        super().__init__()
        self._parent = parent

    def enter(self, turn: Turn, daemon: Daemon) -> None:
        """A Command, unless another child came meanwhile."""
        jobs = turn.kernel.jobs
        over = jobs.phase[children_of(jobs, self._parent)] >= Phase.FINISHED
        if over.all() and self._parent not in turn.born:
            turn.events.append(Command(self._parent, "finish"))


class SetCeiling(Ask):
    """Let no more than `most` of a group in from now on, or with None any number. What is let in
    already stays; what waits in the queue is counted first."""

    def __init__(self, group: Group, most: int | None) -> None:
        super().__init__()
        self._group, self._most = group, most

    def enter(self, turn: Turn, daemon: Daemon) -> None:
        """Jobs that were not counted and do not run go on hold until there is room."""
        kind, name = self._group
        turn.ceilings[self._group] = self._most
        if self._most is None or self._group in daemon.gates.ceilings.most:
            return
        jobs = turn.kernel.jobs
        if kind == "tenant":
            column, code = jobs.tenant, jobs.tenants.find(name)
        else:
            column, code = jobs.array, int(jobs.array[int(name)])
        waits = (jobs.phase[: jobs.n] < Phase.STARTING) & (column[: jobs.n] == code)
        turn.events += [
            Command(row, "hold")
            for row in np.flatnonzero(waits).tolist()
            if row not in turn.kernel.on_hold
        ]


class SetTenant(SetCeiling):
    """What a tenant may have: `limit` in thousandths of a GPU as `SetCeiling` has it, for recipes
    that know quotas and weights its `quota` and `weight`, and under any recipe its `budget` in USD
    (-1: none) and what follows `beyond` it; None leaves one as it is. With `forget` the tenant is
    like all that were never named."""

    def __init__(
        self,
        tenant: str,
        limit: int | None = None,
        quota: int | None = None,
        weight: float | None = None,
        *,
        budget: float | None = None,
        beyond: str | None = None,
        set_limit: bool = False,
        forget: bool = False,
    ) -> None:
        super().__init__(("tenant", tenant), None if forget else limit)
        stated = {"quota": quota, "weight": weight, "budget": budget, "beyond": beyond}
        self._tenant = tenant
        self._stated = {name: value for name, value in stated.items() if value is not None}
        self._limited, self._forget = set_limit or forget, forget

    def enter(self, turn: Turn, daemon: Daemon) -> None:
        """A new segment where the recipe sees something else; a ceiling beside it."""
        before = daemon.header.cluster.tenants
        others = tuple(one for one in before if one.name != self._tenant)
        mine = next((one for one in before if one.name == self._tenant), TenantSpec(self._tenant))
        mine = msgspec.structs.replace(mine, **self._stated)
        plain = TenantSpec(self._tenant)
        after = others if self._forget or mine == plain else (*others, mine)
        if sorted(after, key=lambda one: one.name) != sorted(before, key=lambda one: one.name):
            daemon.change_tenants(after)
            turn.kernel = daemon.kernel
        if self._limited:
            super().enter(turn, daemon)


class NodeOrder(Ask):
    """`drain` or `resume` nodes."""

    def __init__(self, nodes: Sequence[int], verb: str) -> None:
        super().__init__()
        self._nodes, self._verb = nodes, verb

    def enter(self, turn: Turn, daemon: Daemon) -> None:
        """One NodeCommand each."""
        turn.events += [NodeCommand(node, self._verb) for node in self._nodes]


class Keep(Ask):
    """Keep a setting."""

    def __init__(self, name: str, value: str) -> None:
        super().__init__()
        self._name, self._value = name, value

    def enter(self, turn: Turn, daemon: Daemon) -> None:
        """Written with the batch."""
        turn.settings[self._name] = self._value


class SkipNumbers(Ask):
    """Give no number below `until` to a new job: those were given out before a restore, and what
    they name may still run."""

    def __init__(self, until: int) -> None:
        super().__init__()
        self._until = until

    def enter(self, turn: Turn, daemon: Daemon) -> None:
        """Jobs that ask for nothing and are cancelled at once."""
        for row in range(turn.next_row, self._until):
            turn.jobs.append((row, JobFacts(name="lost", launch=Launch(command=("true",)))))
            turn.events.append(Accepted(row, JobSpec(name=str(row + 1), submitted=turn.at)))
            turn.events.append(Command(row, "cancel"))


def skipped_numbers(journal: Journal, kernel: Kernel) -> list[Ask]:
    """What must come before all else after a restore."""
    given = int(journal.setting(NUMBERS_FROM) or 0)
    return [SkipNumbers(given)] if given > kernel.jobs.n else []


class SetPolicy(Ask):
    """Go on under another recipe, and those of `planes` (`inner`, `serving`): a new segment."""

    def __init__(self, policy: str, knows: str, **planes: str) -> None:
        super().__init__()
        self._policy, self._knows, self._planes = policy, knows, planes

    def enter(self, turn: Turn, daemon: Daemon) -> None:
        """Changed at once: the batch of this turn is the first that the new policy sees."""
        daemon.change_policy(self._policy, self._knows, **self._planes)
        turn.kernel = daemon.kernel
