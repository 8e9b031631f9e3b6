"""What a policy sees: the tables, read-only, at one instant."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from typing import TYPE_CHECKING, Any, ClassVar, ParamSpec, TypeAlias, TypeVar, overload

import msgspec
import numpy as np
from numpy.typing import NDArray

from ganger.core.books.ledger import Ledger
from ganger.core.plan import Placement
from ganger.core.spec import JobSpec, Kind
from ganger.core.state.cluster import Nodes
from ganger.core.state.facts import Curve, Facts, Settings, Window
from ganger.core.state.jobs import IdSet, JobCells, Jobs, Phase
from ganger.core.state.table import Ids

if TYPE_CHECKING:
    from ganger.core.books.draft import Draft
    from ganger.core.events import AnyEvent
    from ganger.core.protocols import Oracle

_STARTING, _RUNNING = int(Phase.STARTING), int(Phase.RUNNING)
_Key: TypeAlias = tuple[tuple[str, frozenset[int]], ...]
"""The columns of the jobs table, and what those of a part of a part of ... a scope have there."""
_Parts: TypeAlias = "dict[_Key, Part]"
T = TypeVar("T")
P = ParamSpec("P")


class _Rows:
    """The rows of one set of a scope that are of a part, worked out anew when that changes."""

    __slots__ = ("_among", "_every", "_found", "_part")

    def __init__(self, part: Part, among: IdSet | _Rows) -> None:
        self._part, self._among = part, among
        self._every: Ids | None = None
        self._found: Ids = np.empty(0, np.int64)

    @property
    def ids(self) -> Ids:
        """The rows, ascending."""
        every = self._among.ids
        if every is not self._every:
            self._every = every
            self._found = every[self._part.has.take(self._part.cells[every], mode="clip")]
        return self._found


class Part:
    """Those jobs of a scope, or of a part of it, that have some `values` in a column of the jobs
    table, on the same books, with caches of their own."""

    def __init__(self, scope: Scope | Part, column: str, values: frozenset[int]) -> None:
        self._scope = scope
        self.key: _Key = (*scope.key, (column, values))
        self.column, self.values = column, values
        self.has = np.zeros(max(values, default=0) + 2, np.bool_)
        """By value, 0 or more, whether it is one of theirs; larger ones are as the last, which is
        none."""
        self.has[list(values)] = True
        self.cells: NDArray[Any] = np.empty(0, np.int8)
        """The column; it moves when the table grows."""
        self.within: int = scope.within
        self.parts: _Parts = scope.parts
        self.pending: IdSet | _Rows = _Rows(self, scope.pending)
        self.active: IdSet | _Rows = _Rows(self, scope.active)
        self.paused: IdSet | _Rows = _Rows(self, scope.paused)
        self.scratch: dict[Any, Any] = {}

    @property
    def ledger(self) -> Ledger:
        """The books of the scope."""
        return self._scope.ledger

    @property
    def changed(self) -> list[int]:
        """Those of them that changed."""
        values, cells = self.values, self.cells
        return [job for job in self._scope.changed if int(cells[job]) in values]

    def is_active(self, job: int) -> bool:
        """Whether `job` is one of them and holds devices."""
        return self._scope.is_active(job) and int(self.cells[job]) in self.values


class Scope:
    """The jobs that compete for one set of books: the cluster's, or one parent's grant (`within`;
    -1: the cluster)."""

    key: ClassVar[_Key] = ()

    __slots__ = (
        "active",
        "changed",
        "ledger",
        "parts",
        "paused",
        "pending",
        "reported",
        "scratch",
        "within",
    )

    def __init__(self, ledger: Ledger, within: int = -1) -> None:
        self.ledger = ledger
        self.within = within
        self.pending = IdSet()
        self.active = IdSet()
        self.paused = IdSet()
        self.parts: _Parts = {}
        """All parts of it, and parts of these, by what their jobs have in which columns."""
        self.changed: list[int] = []
        self.reported: set[int] = set()
        """Those of `changed` that reported: each stands there once, however often it reports."""
        self.scratch: dict[Any, Any] = {}

    def is_active(self, job: int) -> bool:
        """Whether `job` holds devices here."""
        return job in self.active.rows

    def heard_of(self, job: int) -> None:
        """The job reported its progress, or evaluated its model."""
        if job not in self.reported:
            self.reported.add(job)
            self.changed.append(job)

    def forget_changes(self) -> None:
        """The policy was asked."""
        self.changed.clear()
        self.reported.clear()

    def drop_caches(self) -> None:
        """Empty all caches, also those of parts."""
        self.scratch.clear()
        for part in self.parts.values():
            part.scratch.clear()


class JobRow(msgspec.Struct, frozen=True):
    """One job as people see it. Times in microseconds."""

    id: int
    spec: JobSpec
    phase: Phase
    attempt: int
    gpus: int
    placement: Placement | None
    attained_service: int
    work: float
    first_start: int
    finished: int
    preemptions: int


class View:
    """The state at `now`. Policies read columns (`view.jobs.gpus[ids]`) and never loop over rows;
    what a queue must ask about one job at a time it reads from `view.at` (`view.at.gpus[job]`).

    `events`: what caused this decision. `changed`: jobs whose phase changed, or that evaluated
    their model, since the last one, in order. `cached` and `scratch`: places for caches; they may
    be emptied at any time and nothing that is kept there may change a plan. `draft`: where plans
    are drawn.
    """

    def __init__(
        self,
        nodes: Nodes,
        scopes: dict[int, Scope],
        draft: Draft,
        oracle: Oracle,
        seed: int,
        facts: Facts,
        settings: Settings,
    ) -> None:
        self.now = 0
        self.revision = 0
        self.events: list[AnyEvent] = []
        self.nodes = nodes
        self.draft = draft
        self.oracle = oracle
        self.seed = seed
        self.trials: Mapping[int, Curve] = facts.trials
        """What the live trials have reported, by row."""
        self.services: Mapping[int, Sequence[Window]] = facts.services
        """How services did in their last windows, by row, the latest last."""
        self.knobs: Mapping[int, Mapping[str, float | bool | str]] = settings.knobs
        self.inherited: Set[int] = settings.inherited.keys()
        """The jobs that share GPUs on terms of a policy before this one. What this decision does
        not tune is withdrawn."""
        self.routes: Mapping[int, Mapping[int, float]] = settings.routes
        self.lent: Mapping[int, str] = settings.lent
        """By node that is lent: to whom (`Lend`)."""
        self.spawning: Mapping[int, int] = settings.spawning
        """By parent: children that were asked for and are not there yet."""
        self.resumable: Set[int] = frozenset()
        """Suspended jobs that have yielded their compute and that a policy may resume: it suspended
        them itself, or people want them to go on. Those that people suspended are none."""
        self._scopes = scopes
        self._see(scopes[-1])

    def bind(self, jobs: Jobs) -> None:
        """Look at `jobs` from now on: its columns moved when it grew."""
        self.jobs = jobs
        self.at = JobCells(jobs)

    def inside(self, parent: int) -> View | None:
        """The same instant for the children of `parent`: their jobs, their grant. None unless
        `parent` runs, so that all that it was given is there."""
        scope = self._scopes.get(parent)
        if scope is None or self.at.phase[parent] != _RUNNING:
            return None
        return self._like(scope)

    def part(self, kinds: Iterable[Kind]) -> View:
        """The same instant for the jobs of some kinds: their own pending, active, paused, changed
        and caches, on the same books and in the same draft."""
        return self._part("kind", frozenset(map(int, kinds)))

    def shaped(self, codes: Iterable[int]) -> View:
        """As `part`, for the jobs whose shapes have these numbers."""
        return self._part("shape", frozenset(codes))

    def of_tenants(self, codes: Iterable[int]) -> View:
        """As `part`, for the jobs of the tenants with these numbers."""
        return self._part("tenant", frozenset(codes))

    def _part(self, column: str, values: frozenset[int]) -> View:
        scope = self._scope
        key = (*scope.key, (column, values))
        part = scope.parts.get(key)
        if part is None:
            part = scope.parts[key] = Part(scope, column, values)
        part.cells = getattr(self.jobs, column)
        return self._like(part)

    def _like(self, scope: Scope | Part) -> View:
        view = View.__new__(View)
        view.__dict__.update(self.__dict__)
        view._see(scope)
        return view

    def _see(self, scope: Scope | Part) -> None:
        self._scope: Scope | Part = scope
        self.ledger: Ledger = scope.ledger
        """The books of free and held devices."""
        self.scratch: dict[Any, Any] = scope.scratch
        """Caches, droppable at any time: a policy's own under its own keys, and those of `cached`
        under their kinds."""

    @property
    def within(self) -> int:
        """The parent inside whose grant these jobs are; -1 for the cluster."""
        return self._scope.within

    @property
    def parents(self) -> list[int]:
        """The jobs whose grant is divided among children now."""
        phase = self.at.phase
        return sorted(
            parent for parent in self._scopes if parent >= 0 and phase[parent] == _RUNNING
        )

    @property
    def opening(self) -> bool:
        """Whether some job is starting whose grant will be divided among children."""
        phase = self.at.phase
        return any(parent >= 0 and phase[parent] == _STARTING for parent in self._scopes)

    @property
    def has_families(self) -> bool:
        """Whether there are jobs that are placed inside what another holds, or will be."""
        return len(self._scopes) > 1

    @property
    def pending(self) -> Ids:
        """Jobs that could be started, ascending."""
        return self._scope.pending.ids

    @property
    def paused(self) -> Ids:
        """Jobs that a policy has set aside, ascending; it may start them."""
        return self._scope.paused.ids

    def is_paused(self, job: int) -> bool:
        """Whether `job` is one of `paused`."""
        return job in self._scopes[self._scope.within].paused.rows

    @property
    def active(self) -> Ids:
        """Jobs that hold devices (starting, running, suspended, stopping), ascending."""
        return self._scope.active.ids

    @property
    def present(self) -> int:
        """How many jobs wait, hold devices, or were set aside."""
        scope = self._scopes[self._scope.within]
        return len(scope.pending.rows) + len(scope.active.rows) + len(scope.paused.rows)

    def is_active(self, job: int) -> bool:
        """Whether `job` is one of `active`."""
        return self._scope.is_active(job)

    @property
    def changed(self) -> list[int]:
        """Jobs whose phase changed, or that reported their progress or evaluated their model, since
        this policy was last asked, oldest change first."""
        return self._scope.changed

    def forget(self) -> None:
        """Empty all caches of these jobs: for a policy that does not pass on what changed, and for
        an oracle that has learnt something else of a model."""
        self.scratch.clear()
        for part in self._scope.parts.values():
            part.scratch.clear()

    def cached(self, kind: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """The one cache of this kind (a class) among these jobs: made with the arguments when it is
        first asked for, and made anew after `scratch` was emptied."""
        scratch = self.scratch
        found: T | None = scratch.get(kind)
        if found is None:
            found = scratch[kind] = kind(*args, **kwargs)
        return found

    def _lasting(self, ids: Any) -> Any:
        """Microseconds for which each job has been executing since its `since`."""
        return (self.now - self.jobs.since[ids]) * (self.jobs.phase[ids] == _RUNNING)

    @overload
    def ran(self, ids: int) -> int: ...
    @overload
    def ran(self, ids: Ids) -> NDArray[np.int64]: ...
    def ran(self, ids: Any) -> Any:
        """Executed time so far, microseconds."""
        if type(ids) is int:
            at = self.at
            ran = at.ran[ids]
            return ran + self.now - at.since[ids] if at.phase[ids] == _RUNNING else ran
        return self.jobs.ran[ids] + self._lasting(ids)

    @overload
    def attained(self, ids: int) -> int: ...
    @overload
    def attained(self, ids: Ids) -> NDArray[np.int64]: ...
    def attained(self, ids: Any) -> Any:
        """Attained service: executed time x GPUs, microseconds."""
        if type(ids) is int:
            at = self.at
            if at.phase[ids] != _RUNNING:
                return at.served[ids]
            return at.served[ids] + (self.now - at.since[ids]) * at.size[ids]
        return self.jobs.served[ids] + self._lasting(ids) * self.jobs.size[ids]

    @overload
    def work(self, ids: int) -> float: ...
    @overload
    def work(self, ids: Ids) -> NDArray[np.float64]: ...
    def work(self, ids: Any) -> Any:
        """Work done, in microseconds at the size asked for on the reference type."""
        if type(ids) is int:
            at = self.at
            if at.phase[ids] != _RUNNING:
                return at.work[ids]
            return at.work[ids] + (self.now - at.since[ids]) * at.rate[ids]
        return self.jobs.work[ids] + self._lasting(ids) * self.jobs.rate[ids]

    @overload
    def remaining(self, ids: int) -> float: ...
    @overload
    def remaining(self, ids: Ids) -> NDArray[np.float64]: ...
    def remaining(self, ids: Any) -> Any:
        """What the oracle expects to be left to run, microseconds, never negative."""
        told = self.oracle.duration(self, ids)
        if type(ids) is not int:
            return np.maximum(told - self.work(ids), 0.0)
        at = self.at
        work = at.work[ids]
        if at.phase[ids] == _RUNNING:
            work += (self.now - at.since[ids]) * at.rate[ids]
        left = told - work
        return 0.0 if left < 0.0 else left  # noqa: FURB136 - max() takes thrice as long

    def rng(self, name: str) -> np.random.Generator:
        """A random stream of this decision's own: the same for the same seed, revision, name."""
        return np.random.default_rng([self.seed, self.revision, zlib.crc32(name.encode())])

    def job(self, job: int) -> JobRow:
        """One job as a frozen row, for people; not for policies' loops."""
        jobs = self.jobs
        held = self.ledger.holds.get(job)
        return JobRow(
            id=job,
            spec=jobs.spec(job),
            phase=Phase(jobs.phase[job]),
            attempt=int(jobs.attempt[job]),
            gpus=int(jobs.size[job]),
            placement=held[1] if held else None,
            attained_service=int(self.attained(job)),
            work=float(self.work(job)),
            first_start=int(jobs.first_start[job]),
            finished=int(jobs.finished[job]),
            preemptions=int(jobs.preemptions[job]),
        )
