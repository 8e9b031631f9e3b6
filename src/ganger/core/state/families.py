"""Events and actions of searches and services: what they report, and what policies set for them."""

from __future__ import annotations

import math

from ganger.core.errors import InvariantError
from ganger.core.events import EVALUATED, PROGRESSED, ROUTED, SERVED, Evaluated, Served, Unable
from ganger.core.plan import SPAWNED_MAX, AskAt, Lend, Retire, Route, Spawn, Tune
from ganger.core.spec import JobSpec
from ganger.core.state.cluster import Nodes
from ganger.core.state.jobs import Declared, Phase, refuse_unfit_child
from ganger.core.state.reducer import Reducer
from ganger.core.state.transitions import BLOCKED, FINISHED, PENDING, RUNNING, STOPPING


class Families(Reducer):
    """The reducer of jobs, and beside it that of searches, services and their children."""

    def __init__(self, nodes: Nodes, declared: Declared) -> None:
        super().__init__(nodes, declared)
        self._fits: dict[int, JobSpec] = {}
        """By parent that is not over the last child that was asked for, which it can hold."""
        self._on |= {Evaluated: self._evaluated, Served: self._served_window, Unable: self._unable}
        self._do |= {
            Tune: self._tune,
            Spawn: self._spawn,
            Retire: self._retire,
            AskAt: self._ask_at,
            Route: self._route,
            Lend: self._lend,
        }

    # ------------------------------------------------------------------ events

    def _evaluated(self, event: Evaluated) -> int:
        """The same, of how long the job takes: policies that order by that look at it again. What
        is reported is kept."""
        job = event.job
        if event.attempt != self._attempt[job]:
            return PROGRESSED
        if self._phase[job] < FINISHED:
            self.facts.evaluated(event)
            early = event.epoch < self._asks_at[job] and not event.final
            if self._within[job] >= 0 and early and event.value is not None:
                return 0
        if self._phase[job] == RUNNING:
            self._scope_of(job).heard_of(job)
        return PROGRESSED | EVALUATED

    def _served_window(self, event: Served) -> int:
        """Windows of services are kept, of those that are not over."""
        for at, service in enumerate(event.services):
            if self._phase[service] < FINISHED:
                self.facts.served(event, at, self.now)
                self._scope_of(service).heard_of(service)
        return SERVED

    def _unable(self, event: Unable) -> int:
        """What was asked for and cannot be is taken back."""
        if event.action == Spawn.__name__:
            self.settings.came(event.job, event.n)
        elif event.action == Tune.__name__:
            self.settings.knobs.pop(event.job, None)
        elif event.action == Route.__name__:
            self.settings.routes.pop(event.job, None)
        return 0

    # ------------------------------------------------------------------ actions

    def _tune(self, action: Tune) -> None:
        self.settings.knobs.setdefault(action.job, {}).update(action.knobs)
        self.settings.inherited.pop(action.job, None)

    def _spawn(self, action: Spawn) -> None:
        parent, spawning = action.parent, self.settings.spawning
        if not 0 <= parent < self.jobs.n or self._phase[parent] >= FINISHED:
            raise InvariantError(f"there is no live job {parent} to have children")
        if action.spec.parent != self.jobs.name(parent):
            raise InvariantError(f"a child of job {parent} names {action.spec.parent!r} as parent")
        if self._fits.get(parent) is not action.spec:  # else it was looked at before
            refuse_unfit_child(action.spec, self.jobs.spec(parent))
            self._fits[parent] = action.spec
        if action.copies is not None:
            copied, epoch = action.copies
            if not 0 <= copied < self.jobs.n or self.jobs.parent[copied] != parent:
                raise InvariantError(
                    f"job {copied} is copied, and it is not a child of job {parent}"
                )
            if not 0 <= epoch < math.inf:
                raise InvariantError(f"job {copied} is copied after {epoch:g} epochs")
        asked = spawning.get(parent, 0) + action.n
        if not 0 < action.n <= asked <= SPAWNED_MAX:
            raise InvariantError(f"{asked} children of job {parent} are asked for at once")
        spawning[parent] = asked

    def _forget_family(self, parent: int) -> None:
        super()._forget_family(parent)
        self._fits.pop(parent, None)

    def _retire(self, action: Retire) -> None:
        job, phase = action.job, self._phase[action.job]
        if phase == STOPPING:
            self._retiring.add(job)
            return
        if phase not in (PENDING, BLOCKED):
            raise InvariantError(f"{action} on a job that is {Phase(phase).name}")
        self._leave_the_line(job)
        self.changes |= self._end(job, FINISHED)

    def _ask_at(self, action: AskAt) -> None:
        self._asks_at[action.job] = action.epoch

    def _route(self, action: Route) -> None:
        self.settings.routes[action.service] = dict(action.weights)
        self.changes |= ROUTED

    def _lend(self, action: Lend) -> None:
        for node in action.nodes:
            if not 0 <= node < self.nodes.n:
                raise InvariantError(f"there is no node {node} to lend")
            if action.pool:
                self.settings.lent[node] = action.pool
            else:
                self.settings.lent.pop(node, None)
