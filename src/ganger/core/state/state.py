"""What a kernel knows: the tables and the books, to be read, and as plain data.

`transitions` is the module that changes them.
"""

from __future__ import annotations

from collections.abc import Mapping, Set

import msgspec
import numpy as np

from ganger.core.books.ledger import Ledger
from ganger.core.plan import AnyAction, Placement
from ganger.core.spec import Kind
from ganger.core.state.cluster import Nodes
from ganger.core.state.facts import Facts, KeptCurve, Settings, Window
from ganger.core.state.grants import Grants
from ganger.core.state.jobs import Declared, Jobs, Phase
from ganger.core.state.usable import Usable
from ganger.core.view import Scope


class Standing(msgspec.Struct, kw_only=True):
    """All that stands between two steps beside the jobs table, as plain data."""

    holds: list[tuple[int, Placement]]
    letting_go: list[tuple[int, int, Placement]]
    blockers: dict[int, int]
    on_hold: list[int]
    cancelling: list[int]
    down: list[int]
    drained: list[int]
    changed: dict[int, list[int]]
    withheld: dict[int, tuple[int, int]] = {}
    """Node to (GPUs that are used outside Ganger, the devices that are out of the books)."""
    retiring: list[int] = []
    pausing: list[int] = []
    paused: list[int] = []
    trials: dict[int, KeptCurve] = {}
    services: dict[int, list[Window]] = {}
    settings: Settings = msgspec.field(default_factory=Settings)
    asleep: list[int] = []
    """Those of `holds` that hold memory only."""
    resuming: list[int] = []
    resumable: list[int] = []


class State:
    """The jobs table, the books and the jobs that compete for them, and what is known of nodes,
    trials and services."""

    def __init__(self, nodes: Nodes, declared: Declared) -> None:
        self.nodes = nodes
        self.jobs = Jobs.of(declared)
        self.now = 0
        self.ledger = Ledger(nodes)
        self.grants = Grants(nodes, self.ledger)
        self._inner, self._scopes = self.grants.inner, self.grants.scopes
        self._top = self.grants.top
        self._freed: dict[int, Placement] = {}
        """What each job held that is being stopped or resized."""
        self._letting_go: dict[tuple[int, int], Placement] = {}
        self._blockers: dict[int, int] = {}
        self._on_hold: set[int] = set()
        self._cancelling: set[int] = set()
        self._retiring: set[int] = set()
        """Jobs that are over as soon as their attempt has let go."""
        self._pausing: set[int] = set()
        """Jobs that are set aside as soon as their attempt has let go."""
        self._paused: set[int] = set()
        self._resuming: set[int] = set()
        """Jobs that people want to go on, and whose compute others have."""
        self._resumable: set[int] = set()
        """Jobs that have yielded their compute and that the policy may resume."""
        self.facts = Facts()
        self.settings = Settings()
        self.usable = Usable(self.ledger)
        self._owing = self.usable.owing
        self.changes = 0
        """Kinds of change since the policy was last asked."""
        self._orders: list[AnyAction] = []
        """What people ordered in this step and the engine has to do, whatever the policy says."""
        self._rows: dict[str, int] = {}
        self._after = self.jobs.after
        self._followers: dict[int, list[int]] = {}
        for job, befores in self._after.items():
            for before in befores:
                self._followers.setdefault(before, []).append(job)

    def _bind(self) -> None:
        """Take hold of the columns' cells; again whenever the table grew."""
        cells = self.jobs.cells
        self._phase, self._attempt, self._size = cells("phase"), cells("attempt"), cells("size")
        self._rate, self._since, self._ran = cells("rate"), cells("since"), cells("ran")
        self._began = cells("began")
        self._served, self._work, self._held = cells("served"), cells("work"), cells("held")
        self._held_since, self._first = cells("held_since"), cells("first_start")
        self._pending_since, self._pended = cells("pending_since"), cells("pended")
        self._done_at, self._preempted = cells("finished"), cells("preemptions")
        self._restarts, self._lost = cells("restarts"), cells("lost")
        self._within, self._kind = cells("within"), cells("kind")
        self._parent, self._asks_at = cells("parent"), cells("asks_at")

    # ------------------------------------------------------------------ to be read

    @property
    def on_hold(self) -> Set[int]:
        """Jobs that a person put on hold."""
        return self._on_hold

    @property
    def blockers(self) -> Mapping[int, int]:
        """How many jobs each blocked job still waits for."""
        return self._blockers

    @property
    def letting_go(self) -> Mapping[tuple[int, int], Placement]:
        """What attempts (job, attempt) still hold that are stopping."""
        return self._letting_go

    def placements(self) -> dict[int, Placement]:
        """What each job holds."""
        return {
            job: placement
            for scope in self._scopes.values()
            for job, (_, placement) in scope.ledger.holds.items()
        }

    @property
    def paused(self) -> Set[int]:
        """Jobs that a policy has set aside; they keep their work and hold nothing."""
        return self._paused

    @property
    def resuming(self) -> Set[int]:
        """Suspended jobs that a person resumed, and whose compute other jobs still have."""
        return self._resuming

    def barred(self, node: int) -> str:
        """Why nothing starts on a node: `down`, `drained`, or ""."""
        return self.usable.barred(node)

    def withheld(self, node: int) -> int:
        """How many GPUs of a node are used outside Ganger."""
        return self.usable.withheld.get(node, 0)

    def row_named(self, name: str) -> int:
        """The row of the job of that name, -1 if there is none."""
        jobs, rows = self.jobs, self._rows
        for row in range(len(rows), jobs.n):
            rows[jobs.name(row)] = row
        return rows.get(name, -1)

    def _scope_of(self, job: int) -> Scope:
        within = self._within[job]
        return self._top if within < 0 else self.grants.scope(within)

    # ------------------------------------------------------------------ as plain data

    def standing(self) -> Standing:
        """What stands beside the jobs table, between two steps."""
        trials, services = self.facts.kept()
        return Standing(
            holds=sorted(self.placements().items()),
            letting_go=[(*key, placement) for key, placement in self._letting_go.items()],
            blockers=self._blockers,
            on_hold=sorted(self._on_hold),
            cancelling=sorted(self._cancelling),
            down=sorted(self.usable.down),
            drained=sorted(self.usable.drained),
            changed={parent: list(scope.changed) for parent, scope in self._scopes.items()},
            withheld={
                node: (gpus, self.ledger.withheld(node))
                for node, gpus in self.usable.withheld.items()
            },
            retiring=sorted(self._retiring),
            pausing=sorted(self._pausing),
            resuming=sorted(self._resuming),
            resumable=sorted(self._resumable),
            paused=sorted(self._paused),
            trials=trials,
            services=services,
            settings=self.settings,
            asleep=sorted(job for scope in self._scopes.values() for job in scope.ledger.asleep),
        )

    def put_back(self, standing: Standing) -> None:
        """What `standing` gave, in a state that is new but for its jobs table."""
        self._put_books_back(standing)
        jobs = self.jobs
        phase = jobs.phase[: jobs.n]
        for job in np.flatnonzero(phase == Phase.PENDING).tolist():
            self._scope_of(job).pending.add(job)
        for job in np.flatnonzero((phase >= Phase.STARTING) & (phase <= Phase.STOPPING)).tolist():
            self._scope_of(job).active.add(job)
        self._blockers.update(standing.blockers)
        self._on_hold.update(standing.on_hold)
        self._cancelling.update(standing.cancelling)
        self.usable.put_back(standing.down, standing.drained, standing.withheld)
        self._retiring.update(standing.retiring)
        self._pausing.update(standing.pausing)
        self._resuming.update(standing.resuming)
        self._resumable.update(standing.resumable)
        self._paused.update(standing.paused)
        for job in standing.paused:
            if job not in self._on_hold:
                self._scope_of(job).paused.add(job)
        self.facts.put_back(standing.trials, standing.services)
        self.settings.put_back(standing.settings)
        for parent, changed in standing.changed.items():
            self.grants.scope(parent).changed.extend(changed)
        for scope in self._scopes.values():
            scope.ledger.settle()

    def _put_books_back(self, standing: Standing) -> None:
        jobs, held = self.jobs, dict(standing.holds)
        # Parents stand before their children: a grant must be open before anything is placed in it.
        # In each, who is asleep comes first: others may lie over its memory.
        asleep = set(standing.asleep)
        for job in sorted(held, key=lambda job: (jobs.within[job] >= 0, job not in asleep, job)):
            shape, ledger = jobs.shapes[jobs.shape[job]], self._scope_of(job).ledger
            if job in asleep:
                ledger.lay_down(job, shape, held[job])
            else:
                ledger.take(job, shape, held[job])
            if self._kind[job] == Kind.TUNE:
                self.grants.open(job, shape, held[job])
        for job, attempt, placement in standing.letting_go:
            self._letting_go[job, attempt] = placement
            # What was inside a grant that is closed is waited for in the cluster.
            books = self._inner.get(int(jobs.within[job]), self.ledger)
            books.leave(job, jobs.shapes[jobs.shape[job]], placement)
