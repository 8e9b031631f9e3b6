"""The simulator: an engine whose clock jumps from one event to the next."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from heapq import heapify, heappop, heappush
from operator import attrgetter

import numpy as np
from numpy.typing import NDArray

from ganger.core.books.mig import KNOB, Instances, read
from ganger.core.errors import BadInput
from ganger.core.events import (
    Accepted,
    AnyEvent,
    Batch,
    Failed,
    Finished,
    NodeDown,
    NodeUp,
    Released,
    Started,
    Submitted,
    Woke,
)
from ganger.core.plan import (
    RETIRED,
    Placement,
    Plan,
    Provision,
    Resize,
    Resume,
    Retire,
    Spawn,
    Start,
    Stop,
    Suspend,
    Tune,
)
from ganger.core.spec import OnPreempt
from ganger.core.state.jobs import Declared, Jobs, Phase
from ganger.core.state.table import cells
from ganger.core.units import NEVER
from ganger.sim.attempts import FAIL, FINISH, PACE, SUSPENSION, TELL, Attempts
from ganger.sim.children import AsStated, Searcher, born
from ganger.sim.evaluation import Evaluates
from ganger.sim.physics import Physics
from ganger.sim.rows import Children, Outage, kept_run_time
from ganger.sim.speeds import Speeds

_RELEASE, _DOWN, _UP, _START = (kind.rank for kind in (Released, NodeDown, NodeUp, Started))
_KILL = int(OnPreempt.KILL)
_rank = attrgetter("rank")
IDLE_WAKES = 10_000
"""After so many wakes with no event and no action between them, nothing will ever happen."""


class Simulator:
    """Runs declared jobs for their true `duration` (microseconds on the reference).

    What computes, and at what speed, is in `attempts`; where speeds change with more than a job's
    own progress, `speeds` changes them. `evaluations`: what they report when, if their profiles do
    not say it.
    """

    def __init__(
        self,
        declared: Declared,
        duration: NDArray[np.int64],
        physics: Physics,
        outages: Iterable[Outage] = (),
        evaluations: Evaluates | None = None,
    ) -> None:
        self.now = self._next = self.idle_wakes = 0
        self._n = n = declared.n
        self._arrivals = cells(declared.submitted[:n])
        self._arrives: int = self._arrivals[0] if n else NEVER
        outages = sorted(outages)
        self._by_node = bool(outages) or physics.changing
        """Whether anything asks which jobs are on a node."""
        self._attempts = Attempts(declared, duration, physics, evaluations)
        self._speeds = Speeds(self._attempts) if physics.changing else None
        self._physics, self._costs, self._loading = physics, physics.costs, physics.costs.load
        self._first_cost = self._costs.start + self._costs.profiling
        self._uniform = physics.uniform and not physics.changing
        self.searcher: Searcher = AsStated()
        """What children truly are that policies ask for."""
        self.late: Callable[[int], object] = int
        """Is told the true duration of each job that comes late, in order of rows."""
        self._look(declared)
        self._instances, self._slices = Instances(), dict[int, object]()
        """MIG: the slices that exist, and those that jobs of the present plan need."""
        self._kept: dict[tuple[int, int], float] = {}
        self._free_at: dict[int, int] = {}
        self._heap += [(outage.down, _DOWN, outage.node, 0) for outage in outages]
        self._heap += [(outage.up, _UP, outage.node, 0) for outage in outages]
        self._heap += [
            (max(outage.down - outage.notice, 0), _DOWN, outage.node, outage.down)
            for outage in outages
            if outage.notice and outage.down
        ]
        self._off, self._gone = set(physics.nodes.rentable), set[int]()
        """Nodes for rent: those that are switched off, and those that cannot be had."""
        self._rented = frozenset(self._off)
        self._attempts.instant += [NodeDown(node) for node in sorted(self._off)]
        heapify(self._heap)
        self._children = Children(declared)

    def _look(self, declared: Declared) -> None:
        """Take hold of what the jobs declare and of their rows; again whenever they grew."""
        attempts, cells = self._attempts, declared.cells
        attempts.look(declared)
        self._declared = declared
        self._gpus, self._on_preempt, self._parent = map(cells, ("gpus", "on_preempt", "parent"))
        self._checkpoint, self._restore = cells("checkpoint"), cells("restore")
        self._did, self._total, self._alive = attempts.did, attempts.total, attempts.alive
        self._began, self._rate, self._heap = attempts.began, attempts.rate, attempts.heap

    def adopt(
        self,
        jobs: Jobs,
        placements: Mapping[int, Placement],
        letting_go: Iterable[tuple[int, int]],
        now: int,
        arriving: int = -1,
        knobs: Mapping[int, Mapping[str, float | bool | str]] | None = None,
    ) -> None:
        """Go on from the middle of a run: what `jobs` says has happened, has. Only the jobs from
        row `arriving` on (-1: nobody) arrive yet, in order of rows, and the attempts of
        `letting_go` (job, attempt) let go at once. `knobs`: what was turned of jobs."""
        attempts = self._attempts
        attempts.instant.clear()  # of nodes for rent the state says which are off
        self._off.clear()
        self.now = attempts.now = now
        self._next = arriving if arriving >= 0 else self._n
        self._arrives = self._arrivals[self._next] if self._next < self._n else NEVER
        phase = jobs.phase[: jobs.n]
        lasting = (now - jobs.since[: jobs.n]) * (phase == Phase.RUNNING)
        done = jobs.work[: jobs.n] + lasting * jobs.rate[: jobs.n]
        ran = kept_run_time(jobs, lasting, done)
        for job in np.flatnonzero(phase < Phase.FINISHED).tolist():
            self._did[job] = min(float(done[job]), float(self._total[job]))
            if attempts.limit is not None and ran[job]:
                attempts.counted[job] = int(ran[job])
        present = np.flatnonzero((phase >= Phase.STARTING) & (phase < Phase.STOPPING)).tolist()
        for job in present:
            attempt = int(jobs.attempt[job])
            self._alive[job] = attempt
            rate = float(jobs.rate[job]) or self._physics.rate(jobs, job, placements[job])
            self._rate[job] = rate
            if phase[job] == Phase.SUSPENDED:
                self._began[job] = NEVER
                self._alive[job] += SUSPENSION
                continue
            if phase[job] == Phase.STARTING:
                self._attempts.instant.append(Started(job, attempt, rate))
            self._attempts.go(job, now)
        held = {job: placements[job] for job in present}
        if self._by_node:
            for job, placement in held.items():
                attempts.place(job, placement)
        if self._speeds is not None:
            self._speeds.adopt(held, knobs or {})
        for job, attempt in letting_go:
            self._attempts.instant.append(Released(job, attempt, self._attempts.done(job)))

    # ------------------------------------------------------------------ Engine

    def poll(self, until: int) -> Batch | None:
        """The next instant at which something happens, or a Woke at `until`."""
        attempts = self._attempts
        events = attempts.instant
        if events:
            attempts.instant = []
            self.idle_wakes = 0
            return Batch(self.now, events) if len(events) == 1 else _sorted(self.now, events)
        heap, alive, events = self._heap, self._alive, []
        while not events:  # an instant at which all that was filed is void did not happen
            at = heap[0][0] if heap else NEVER
            if self._arrives < at:
                at = self._arrives
            if until < at or at == NEVER:
                return self._wake(until)
            self.now = attempts.now = at
            while heap and heap[0][0] == at:
                _, rank, subject, token = heappop(heap)
                if rank != FINISH:
                    self._happen(rank, subject, token, events)
                elif alive[subject] == token:
                    self._end(subject, token % SUSPENSION, events)
            if self._speeds is not None:
                self._speeds.settle(events)
            if self._arrives == at:
                self._submit(at, events)
            if until == at:
                events.append(Woke())
        self.idle_wakes = 0
        return Batch(at, events) if len(events) == 1 else _sorted(at, events)

    def apply(self, plan: Plan, now: int) -> None:
        """Set the actions going."""
        if self._speeds is not None:
            self._speeds.look_ahead(plan.actions)
        if self._costs.slicing:
            tunes = [action for action in plan.actions if type(action) is Tune]
            self._slices = {tune.job: tune.knobs.get(KNOB) for tune in tunes}
        for action in plan.actions:
            if type(action) is Start:
                self._start(action.job, action.attempt, action.placement, action.waits)
            elif type(action) is Stop:
                self._stop(action.job, action.attempt, over=action.why == RETIRED)
            elif type(action) is Resize:
                self._resize(action)
            elif type(action) is Suspend:
                self._attempts.halt(action.job)
                self._began[action.job] = NEVER
                self._alive[action.job] += SUSPENSION  # what was filed for it is void
                self._disturbed_by(action.job)
            elif type(action) is Resume:
                self._attempts.go(action.job, self.now)
                self._disturbed_by(action.job)
            elif type(action) is Provision:
                self._provision(action.node, action.verb)
            elif type(action) is Tune:
                if self._speeds is not None:
                    self._speeds.tune(action)
            elif type(action) is Spawn:
                self._spawn(action)
            elif type(action) is Retire and self._free_at.get(action.job, 0) > self.now:
                self._children.retired.add(action.job)
            elif type(action) is Retire:
                self._over(action.job, self._attempts.instant)
        if self._speeds is not None:
            self._speeds.carried_out(self._attempts.instant)

    def _disturbed_by(self, job: int) -> None:
        """The speeds of a job that began or ceased to compute, and of those near it."""
        speeds, where = self._speeds, self._attempts.where.get(job)
        if speeds is None:
            return
        if speeds.mixed or job in speeds.terms or (where and where[0].share):
            speeds.refresh([job, *speeds.leaving(job)], self._attempts.instant)

    def _resize(self, action: Resize) -> None:
        """By the rescale protocol, where there is one for it; else stop, save, and restart."""
        job, attempt, placement = action.job, action.attempt, action.placement
        before = self._speeds.hand_over(action) if self._speeds is not None else None
        if before is None:
            self._stop(job, attempt - 1)
            self._start(job, attempt, placement, (*action.waits, job))
        else:
            self._start(job, attempt, placement, action.waits, before)

    def _wake(self, until: int) -> Batch | None:
        self.idle_wakes += not self._heap and self._next == self._n
        if until == NEVER or self.idle_wakes > IDLE_WAKES:
            return None
        self.now = self._attempts.now = until
        return Batch(until, [Woke()])

    # ------------------------------------------------------------------ what happens

    def _submit(self, at: int, events: list[AnyEvent]) -> None:
        job = self._next
        while self._arrives == at:
            events.append(Submitted(job))
            job += 1
            self._arrives = self._arrivals[job] if job < self._n else NEVER
        self._next = job

    def _happen(self, rank: int, subject: int, token: int, events: list[AnyEvent]) -> None:
        attempt = token % SUSPENSION
        if rank == _START:
            if self._alive[subject] == token:
                if self._speeds is not None:
                    self._speeds.awaited.discard(subject)
                events.append(Started(subject, attempt, self._rate[subject]))
        elif rank == _RELEASE:
            if self._free_at.get(subject) == self.now:  # else a later attempt is letting go, too
                del self._free_at[subject]
            events.append(Released(subject, attempt, self._kept.pop((subject, attempt))))
            if subject in self._children.retired:
                self._over(subject, events)
        elif rank == FAIL:
            if self._alive[subject] == token:
                self._fail(subject, attempt, events, why="TimeLimit", final=True)
        elif rank == PACE:
            if self._alive[subject] == token:
                self._attempts.change_pace(subject, attempt, events)
            elif self._speeds is not None:
                self._speeds.grow_up(subject, token, events)
        elif rank == TELL:
            if self._alive[subject] == token:
                self._attempts.evaluate(subject, attempt, events)
        elif rank == _DOWN:
            self._node_down(subject, token, events)
        else:
            self._node_up(subject, events, booted=token > 0)

    def _end(self, job: int, attempt: int, events: list[AnyEvent]) -> None:
        near = self._speeds.leaving(job) if self._speeds is not None else ()
        self._alive[job] = 0
        self._did[job] = self._total[job]
        if self._by_node:
            self._attempts.forget(job)
        events.append(Finished(job, attempt))
        if self._children.left:
            self._over(job, events)
        if near and self._speeds is not None:
            self._speeds.refresh(near, events)

    def _over(self, job: int, events: list[AnyEvent]) -> None:
        """The job is over; a search is with its last child."""
        parent: int = self._parent[job]
        if self._children.over(job, parent) and self._alive[parent]:
            self._end(parent, self._alive[parent] % SUSPENSION, events)

    def _start(
        self,
        job: int,
        attempt: int,
        placement: Placement,
        waits: tuple[int, ...],
        before: float | None = None,
    ) -> None:
        """An attempt begins. `before`: the speed of the one that hands over to it."""
        if self._speeds is None and placement and placement[0].share:
            raise BadInput(
                "jobs share whole GPUs, and no profile says what that costs",
                where=self._declared.name(job),
                mend="give a table with throughputs of pairs",
            )
        if attempt == 1 and before is None:
            cost = self._first_cost
        else:
            cost = self._next_cost(job, handed_over=before is not None)
        if self._slices and self._slice(job):
            cost += self._costs.slicing
        at = self.now + cost
        if waits and self._free_at:
            at += max(0, *(self._free_at.get(other, 0) - self.now for other in waits))
        if self._uniform and len(placement) == 1 and placement[0].workers == self._gpus[job]:
            rate = 1.0  # nearly always, so it is not asked for
        elif self._physics.paces:
            rate = self._attempts.speed_on(job, placement)
        else:
            rate = self._physics.rate(self._declared, job, placement)
        self._rate[job] = rate
        self._alive[job] = attempt
        if self._by_node:
            self._attempts.place(job, placement)
        launched = at - (min(cost, self._loading) if cost else 0)
        if launched == self.now:
            self._attempts.instant.append(Started(job, attempt, rate))
        else:
            heappush(self._heap, (launched, _START, job, attempt))
        self._attempts.go(job, at)
        if self._speeds is not None:
            self._speeds.started(job, placement, before or 0.0)

    def _slice(self, job: int) -> bool:
        """See to it that the slices which the job needs exist; whether some had to be made."""
        slices = read(self._slices.get(job)).items()
        made = [self._instances.need(device, at, size) for device, (at, size) in slices]
        return any(made)

    def _next_cost(self, job: int, *, handed_over: bool) -> int:
        """What the start of an attempt costs that is not the first, microseconds."""
        if handed_over:
            return self._physics.protocol.pause or 0
        own: int = self._restore[job]
        return own if own >= 0 else self._costs.restore

    def _stop(self, job: int, attempt: int, *, over: bool = False) -> None:
        if self._alive[job] % SUSPENSION != attempt:
            return
        near = self._speeds.leaving(job) if self._speeds is not None else ()
        killed = self._on_preempt[job] == _KILL
        if killed:
            self._did[job] = 0.0
            self._attempts.counted.pop(job, None)
        else:
            self._attempts.halt(job)
        self._alive[job] = 0
        if self._by_node:
            self._attempts.forget(job)
        own = self._checkpoint[job]
        cost = 0 if killed else own if own >= 0 else self._costs.checkpoint
        if cost:
            self._kept[job, attempt] = self._attempts.done(job)
            self._free_at[job] = self.now + cost
            heappush(self._heap, (self.now + cost, _RELEASE, job, attempt))
            self._children.retired |= {job} if over else set()
        else:
            self._attempts.instant.append(Released(job, attempt, self._attempts.done(job)))
            if over:
                self._over(job, self._attempts.instant)
        self._attempts.stopped()
        if near and self._speeds is not None:
            self._speeds.refresh(near, self._attempts.instant)

    # ------------------------------------------------------------------ jobs that come late

    def _spawn(self, action: Spawn) -> None:
        """Answer with as many children, which ask to run at once."""
        self._children.asked_for(action.parent)
        if self._declared.n == self._n:  # the caller's own table stays as it is
            self._declared = self._declared.twin()
        for spec, duration in born(action, self._declared, self.searcher, self.now):
            self._attempts.instant.append(Accepted(self._attempts.rows.n, spec, spawned=True))
            self._attempts.rows.extend(1, total=duration)
            self.late(duration)
        self._look(self._declared)

    # ------------------------------------------------------------------ power, failures

    def _provision(self, node: int, verb: str) -> None:
        """A node is switched off at once (the policy sees to it that it is idle), on after boot; a
        node for rent that cannot be had, as soon as it can."""
        if verb == "on":
            self._off.discard(node)
            if node not in self._gone:
                heappush(self._heap, (self.now + self._physics.costs.boot, _UP, node, 1))
        elif verb == "off":
            if node in self._rented:
                self._off.add(node)
            self._attempts.instant.append(NodeDown(node))

    def _node_up(self, node: int, events: list[AnyEvent], *, booted: bool) -> None:
        """An outage is over, or a node has booted: then only if it can still be had."""
        if not booted:
            self._gone.discard(node)
        if node not in self._off and node not in self._gone:
            events.append(NodeUp(node))

    def _node_down(self, node: int, by: int, events: list[AnyEvent]) -> None:
        """A node goes, or (`by`) will."""
        if node in self._rented and not by:
            self._gone.add(node)
        if node in self._off:
            return
        if by:
            events.append(NodeDown(node, by))
            return
        victims = self._attempts.on_node.get(node, set())
        # Children before their parents: a grant closes only when nothing runs on it.
        parents = self._declared.parent
        for job in sorted(victims, key=lambda job: (parents[job] < 0, job)):
            self._fail(job, self._alive[job] % SUSPENSION, events, why="NodeFail", final=False)
        events.append(NodeDown(node))

    def _fail(
        self, job: int, attempt: int, events: list[AnyEvent], *, why: str, final: bool
    ) -> None:
        """The attempt breaks now; what it did since its last checkpoint is lost."""
        near = self._speeds.leaving(job) if self._speeds is not None else ()
        attempts = self._attempts
        before, counted = attempts.done(job), attempts.counted.get(job, 0)
        attempts.halt(job)
        did = attempts.done(job) - before
        every = self._physics.costs.checkpoint_every
        kept = before + (did // every * every if every and did > 0 else 0.0)
        if self._total[job] < NEVER:
            self._did[job] = kept
            if kept == before and attempts.limit is not None:
                attempts.counted[job] = counted if kept else 0
        self._alive[job] = 0
        if self._by_node:
            self._attempts.forget(job)
        events.append(Failed(job, attempt, kept, why, final))
        if final:
            self._over(job, events)
        if near and self._speeds is not None:
            self._speeds.refresh(near, events)


def _sorted(at: int, events: list[AnyEvent]) -> Batch:
    """The batch of these events, in order of rank."""
    events.sort(key=_rank)
    return Batch(at, events)
