"""The simulator: an engine whose clock jumps from one event to the next."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from heapq import heapify, heappop, heappush
from math import ceil
from operator import attrgetter
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from ganger.core.errors import BadInput
from ganger.core.events import (
    Accepted,
    AnyEvent,
    Batch,
    Failed,
    Finished,
    NodeDown,
    NodeUp,
    Progressed,
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
from ganger.sim.children import AsStated, Searcher, born
from ganger.sim.evaluation import Evaluations
from ganger.sim.pace import Pace
from ganger.sim.physics import Physics
from ganger.sim.rows import Children, Outage, Rows, kept_run_time

_FINISH, _FAIL, _RELEASE, _DOWN, _UP, _START, _PACE = (
    kind.rank for kind in (Finished, Failed, Released, NodeDown, NodeUp, Started, Progressed)
)
_TELL = Submitted.rank
"""An evaluation; arrivals are not in the heap."""
SUSPENSION = 1 << 20
"""Attempts count below this; the suspensions of an attempt count in multiples of it."""
_KILL = int(OnPreempt.KILL)
_rank = attrgetter("rank")
SLACK = 1000
"""The heap is swept when more than half of it, and so many entries, may be void."""
IDLE_WAKES = 10_000
"""After so many wakes with no event and no action between them, nothing will ever happen."""


class Simulator:
    """Runs declared jobs for their true `duration` (microseconds on the reference).

    A job's time limit counts its computing time, over all attempts whose work is kept. An attempt
    that begins from nothing begins its limit anew, as one that Slurm requeues does.

    The heap holds one entry per thing that is going to happen, (time, rank, job or node, attempt);
    an entry whose attempt (with its suspensions) is no longer the job's present one is void.
    """

    whole: ClassVar[bool] = True
    """Whether nobody may share devices with another who has whole ones."""

    def __init__(
        self, declared: Declared, duration: NDArray[np.int64], physics: Physics,
        outages: Iterable[Outage] = (),
    ) -> None:  # fmt: skip
        self.now = self._next = self.idle_wakes = 0
        self._n = n = declared.n
        self._arrivals = cells(declared.submitted[:n])
        self._arrives: int = self._arrivals[0] if n else NEVER
        self._physics, self._uniform, self._costs = physics, physics.uniform, physics.costs
        self._loading, self._leaving = physics.costs.load, physics.costs.finish
        self._rows = Rows()
        self._rows.extend(n, total=duration[:n])
        self.searcher: Searcher = AsStated()
        """What children truly are that policies ask for."""
        self.late: Callable[[int], object] = int
        """Is told the true duration of each job that comes late, in order of rows."""
        self._evaluations = Evaluations(declared, physics.profiles)
        self._look(declared)
        self._heap: list[tuple[int, int, int, int]] = []
        self._void = 0
        """How many attempts were stopped since the heap was swept: so many ends are void."""
        self._instant: list[AnyEvent] = []
        self._kept: dict[tuple[int, int], float] = {}
        self._free_at: dict[int, int] = {}
        self._outages = sorted(outages)
        self._on_node: dict[int, set[int]] | None = {} if self._outages else None
        self._where: dict[int, Placement] = {}
        for outage in self._outages:
            self._heap += (outage.down, _DOWN, outage.node, 0), (outage.up, _UP, outage.node, 0)
        heapify(self._heap)
        self._counted: dict[int, int] = {}
        """By job with a limit: the computing time of earlier attempts that the limit counts."""
        self._children = Children(declared)
        self._paced: dict[int, tuple[Pace, NDArray[np.float64]]] = {}
        """Running jobs whose speed changes with progress, and their speed from each start on."""

    def _look(self, declared: Declared) -> None:
        """Take hold of what the jobs declare and of their rows; again whenever they grew."""
        self._declared, cells = declared, declared.cells
        self._gpus, self._on_preempt, self._parent = map(cells, ("gpus", "on_preempt", "parent"))
        self._checkpoint, self._restore = cells("checkpoint"), cells("restore")
        limited = (declared.limit[: declared.n] < NEVER).any()
        self._limit = cells("limit") if limited else None
        cells = self._rows.cells
        self._did, self._total, self._alive = cells("did"), cells("total"), cells("alive")
        self._began, self._rate = cells("began"), cells("rate")
        self._evaluations.look(declared)
        self._evaluates = bool(self._evaluations)

    def adopt(
        self, jobs: Jobs, placements: Mapping[int, Placement],
        letting_go: Iterable[tuple[int, int]], now: int, arriving: int = -1,
    ) -> None:  # fmt: skip
        """Go on from the middle of a run: what `jobs` says has happened, has. Only the jobs from
        row `arriving` on (-1: nobody) arrive yet, in order of rows, and the attempts of
        `letting_go` (job, attempt) let go at once."""
        self.now, self._next = now, arriving if arriving >= 0 else self._n
        self._arrives = self._arrivals[self._next] if self._next < self._n else NEVER
        phase = jobs.phase[: jobs.n]
        lasting = (now - jobs.since[: jobs.n]) * (phase == Phase.RUNNING)
        done = jobs.work[: jobs.n] + lasting * jobs.rate[: jobs.n]
        ran = kept_run_time(jobs, lasting, done)
        for job in np.flatnonzero(phase < Phase.FINISHED).tolist():
            self._did[job] = min(float(done[job]), float(self._total[job]))
            if self._limit is not None and ran[job]:
                self._counted[job] = int(ran[job])
        for job in np.flatnonzero((phase >= Phase.STARTING) & (phase < Phase.STOPPING)).tolist():
            attempt = int(jobs.attempt[job])
            self._alive[job] = attempt
            rate = float(jobs.rate[job]) or self._physics.rate(jobs, job, placements[job])
            self._rate[job] = rate
            if phase[job] == Phase.SUSPENDED:
                self._began[job] = NEVER
                self._alive[job] += SUSPENSION
                continue
            if phase[job] == Phase.STARTING:
                self._instant.append(Started(job, attempt, rate))
            self._go(job, now)
        for job, attempt in letting_go:
            self._instant.append(Released(job, attempt, self._done(job)))

    # ------------------------------------------------------------------ Engine

    def poll(self, until: int) -> Batch | None:
        """The next instant at which something happens, or a Woke at `until`."""
        events = self._instant
        if events:
            self._instant = []
            self.idle_wakes = 0
            return Batch(self.now, events) if len(events) == 1 else _sorted(self.now, events)
        heap, alive, events = self._heap, self._alive, []
        while not events:  # an instant at which all that was filed is void did not happen
            at = heap[0][0] if heap else NEVER
            if self._arrives < at:
                at = self._arrives
            if until < at or at == NEVER:
                return self._wake(until)
            self.now = at
            while heap and heap[0][0] == at:
                _, rank, subject, token = heappop(heap)
                if rank != _FINISH:
                    self._happen(rank, subject, token, events)
                elif alive[subject] == token:
                    self._end(subject, token % SUSPENSION, events)
            if self._arrives == at:
                self._submit(at, events)
            if until == at:
                events.append(Woke())
        self.idle_wakes = 0
        return Batch(at, events) if len(events) == 1 else _sorted(at, events)

    def apply(self, plan: Plan, now: int) -> None:
        """Set the actions going."""
        for action in plan.actions:
            if type(action) is Start:
                self._start(action.job, action.attempt, action.placement, action.waits)
            elif type(action) is Stop:
                self._stop(action.job, action.attempt, over=action.why == RETIRED)
            elif type(action) is Resize:
                self._resize(action)
            elif type(action) is Suspend:
                self._halt(action.job)
                self._began[action.job] = NEVER
                self._alive[action.job] += SUSPENSION  # what was filed for it is void
            elif type(action) is Resume:
                self._go(action.job, self.now)
            elif type(action) is Provision:
                self._provision(action.node, action.verb)
            elif type(action) is Tune:
                self._tune(action)
            elif type(action) is Spawn:
                self._spawn(action)
            elif type(action) is Retire and self._free_at.get(action.job, 0) > self.now:
                self._children.retired.add(action.job)
            elif type(action) is Retire:
                self._over(action.job, self._instant)

    def _tune(self, action: Tune) -> None:
        """Knobs turn nothing here."""

    def _resize(self, action: Resize) -> None:
        """Stop, save, and restart."""
        self._stop(action.job, action.attempt - 1)
        self._start(action.job, action.attempt, action.placement, (*action.waits, action.job))

    def _wake(self, until: int) -> Batch | None:
        self.idle_wakes += not self._heap and self._next == self._n
        if until == NEVER or self.idle_wakes > IDLE_WAKES:
            return None
        self.now = until
        return Batch(until, [Woke()])

    # ------------------------------------------------------------------ what happens

    def _submit(self, at: int, events: list[AnyEvent]) -> None:
        job, arrivals, n = self._next, self._arrivals, self._n
        while job < n and arrivals[job] == at:
            events.append(Submitted(job))
            job += 1
        self._next, self._arrives = job, arrivals[job] if job < n else NEVER

    def _happen(self, rank: int, subject: int, token: int, events: list[AnyEvent]) -> None:
        attempt = token % SUSPENSION
        if rank == _START:
            if self._alive[subject] == token:
                events.append(Started(subject, attempt, self._rate[subject]))
        elif rank == _RELEASE:
            if self._free_at.get(subject) == self.now:  # else a later attempt is letting go, too
                del self._free_at[subject]
            events.append(Released(subject, attempt, self._kept.pop((subject, attempt))))
            if subject in self._children.retired:
                self._over(subject, events)
        elif rank in (_FAIL, _PACE):
            if self._alive[subject] == token and rank == _FAIL:
                self._fail(subject, attempt, events, why="TimeLimit", final=True)
            elif self._alive[subject] == token:
                self._change_pace(subject, attempt, events)
        elif rank == _TELL:
            if self._alive[subject] == token and self._evaluations.at.get(subject) == self.now:
                share = self._done_by_now(subject) / max(self._total[subject], 1)
                events.append(self._evaluations.tell(subject, attempt, share))
                self._file_evaluation(subject)
        elif rank == _DOWN:
            self._node_down(subject, events)
        else:
            events.append(NodeUp(subject))

    def _end(self, job: int, attempt: int, events: list[AnyEvent]) -> None:
        self._alive[job] = 0
        self._did[job] = float(self._total[job])
        if self._on_node is not None:
            self._forget(job)
        events.append(Finished(job, attempt))
        if self._children.left:
            self._over(job, events)

    def _over(self, job: int, events: list[AnyEvent]) -> None:
        """The job is over; a search is with its last child."""
        parent: int = self._parent[job]
        if self._children.over(job, parent) and self._alive[parent]:
            self._end(parent, self._alive[parent] % SUSPENSION, events)

    def _start(self, job: int, attempt: int, placement: Placement, waits: tuple[int, ...]) -> None:
        if self.whole and placement and placement[0].share:
            raise BadInput(
                "jobs share whole GPUs, and no profile says what that costs",
                where=self._declared.name(job), mend="give a table with throughputs of pairs",
            )  # fmt: skip
        cost = self._start_cost(job, attempt)
        at = self.now + cost
        if waits and self._free_at:
            at += max(0, *(self._free_at.get(other, 0) - self.now for other in waits))
        if self._uniform and len(placement) == 1 and placement[0].workers == self._gpus[job]:
            rate = 1.0  # nearly always, so it is not asked for
        elif self._physics.paces:
            rate = self._pace(job, placement)
        else:
            rate = self._physics.rate(self._declared, job, placement)
        self._rate[job] = rate
        self._alive[job] = attempt
        if self._on_node is not None:
            self._where[job] = placement
            for slot in placement:
                self._on_node.setdefault(slot.node, set()).add(job)
        launched = at - (min(cost, self._loading) if cost else 0)
        if launched == self.now:
            self._instant.append(Started(job, attempt, rate))
        else:
            heappush(self._heap, (launched, _START, job, attempt))
        self._go(job, at)

    def _start_cost(self, job: int, attempt: int) -> int:
        if attempt == 1:
            return self._costs.start + self._costs.profiling
        own: int = self._restore[job]
        return own if own >= 0 else self._costs.restore

    def _go(self, job: int, at: int) -> None:
        """The attempt computes from `at` on: file its end."""
        self._began[job] = at
        total = self._total[job]
        if total < NEVER:
            if job in self._paced:
                self._file_pace(job, at)
            else:
                rate = self._rate[job]
                left = total - self._did[job]
                takes = left if rate == 1.0 else left / rate
                ends = at + ceil(takes) + self._leaving
                heappush(self._heap, (ends, _FINISH, job, self._alive[job]))
            if self._evaluates:
                self._file_evaluation(job)
        if self._limit is not None and self._limit[job] < NEVER:
            heappush(self._heap, (self._limit_at(job, at), _FAIL, job, self._alive[job]))

    def _limit_at(self, job: int, at: int) -> int:
        """When the job reaches its limit if it computes from `at` on."""
        assert self._limit is not None
        left: int = self._limit[job] - self._counted.get(job, 0)
        return at + max(left, 0)

    def _halt(self, job: int) -> None:
        """The attempt stops computing: book what it did, and for how long."""
        ran = self.now - self._began[job]
        if ran > 0:
            did, total = self._did[job] + ran * self._rate[job], self._total[job]
            self._did[job] = did if did < total else float(total)
            if self._limit is not None:
                self._counted[job] = self._counted.get(job, 0) + ran

    def _stop(self, job: int, attempt: int, *, over: bool = False) -> None:
        if self._alive[job] % SUSPENSION != attempt:
            return
        killed = self._on_preempt[job] == _KILL
        if killed:
            self._did[job] = 0.0
            self._counted.pop(job, None)
        else:
            self._halt(job)
        self._alive[job] = 0
        if self._on_node is not None:
            self._forget(job)
        own = self._checkpoint[job]
        cost = 0 if killed else own if own >= 0 else self._costs.checkpoint
        if cost:
            self._kept[job, attempt] = self._done(job)
            self._free_at[job] = self.now + cost
            heappush(self._heap, (self.now + cost, _RELEASE, job, attempt))
            self._children.retired |= {job} if over else set()
        else:
            self._instant.append(Released(job, attempt, self._done(job)))
            if over:
                self._over(job, self._instant)
        self._void += 1
        if self._void > len(self._heap) // 2 + SLACK:
            self._sweep()

    def _sweep(self) -> None:
        """Forget the ends of attempts that will not come."""
        alive, heap = self._alive, self._heap
        ends = _FINISH, _TELL
        heap[:] = [each for each in heap if each[1] not in ends or alive[each[2]] == each[3]]
        heapify(heap)
        self._void = 0

    def _done(self, job: int) -> float:
        return self._did[job] if self._total[job] < NEVER else float(NEVER)

    # ------------------------------------------------------------------ jobs that come late

    def _spawn(self, action: Spawn) -> None:
        """Answer with as many children, which ask to run at once."""
        self._children.asked_for(action.parent)
        if self._declared.n == self._n:  # the caller's own table stays as it is
            self._declared = self._declared.twin()
        for spec, duration in born(action, self._declared, self.searcher, self.now):
            self._instant.append(Accepted(self._rows.n, spec, spawned=True))
            self._rows.extend(1, total=duration)
            self.late(duration)
        self._look(self._declared)

    # ------------------------------------------------------------------ what training tells

    def _file_evaluation(self, job: int) -> None:
        """File the job's next evaluation at the speed that it has."""
        share = self._done_by_now(job) / max(self._total[job], 1)
        own = self._total[job], self._did[job], self._rate[job], self._began[job]
        at = self._evaluations.file(job, share, *own)
        if at < NEVER:
            heappush(self._heap, (at, _TELL, job, self._alive[job]))

    def _done_by_now(self, job: int) -> float:
        """Work done, with what the attempt has not booked yet."""
        computed = max(self.now - self._began[job], 0) * self._rate[job]
        return self._did[job] + computed  # type: ignore[no-any-return]

    # ------------------------------------------------------------------ changing speed

    def _pace(self, job: int, placement: Placement) -> float:
        """The speed on `placement` now, of a job whose speed may change with progress."""
        declared, physics = self._declared, self._physics
        paced = physics.pace(declared, job, placement)
        if paced is None or self._total[job] >= NEVER:
            return physics.rate(declared, job, placement)
        self._paced[job] = paced
        pace, speeds = paced
        return float(speeds[pace.at(self._share(job))])

    def _share(self, job: int) -> float:
        return self._did[job] / max(self._total[job], 1)  # type: ignore[no-any-return]

    def _file_pace(self, job: int, at: int) -> None:
        """File the end, or the next change of speed if that comes first."""
        pace, speeds = self._paced[job]
        now = pace.at(self._share(job))
        left, rank = self._total[job] - self._did[job], _FINISH
        if now + 1 < len(pace.starts):
            left, rank = left - float(1.0 - pace.starts[now + 1]) * self._total[job], _PACE
        takes = max(ceil(left / float(speeds[now])), rank == _PACE)
        takes += self._leaving if rank == _FINISH else 0
        heappush(self._heap, (at + takes, rank, job, self._alive[job]))

    def _change_pace(self, job: int, attempt: int, events: list[AnyEvent]) -> None:
        self._halt(job)
        self._began[job] = self.now
        pace, speeds = self._paced[job]
        self._rate[job] = float(speeds[pace.at(self._share(job))])
        events.append(Progressed(job, attempt, self._done(job), self._rate[job]))
        self._file_pace(job, self.now)
        if self._evaluates:
            self._file_evaluation(job)

    # ------------------------------------------------------------------ power, failures

    def _provision(self, node: int, verb: str) -> None:
        """A node is switched off at once (the policy sees to it that it is idle), on after boot."""
        if verb == "on":
            heappush(self._heap, (self.now + self._physics.costs.boot, _UP, node, 0))
        elif verb == "off":
            self._instant.append(NodeDown(node))

    def _node_down(self, node: int, events: list[AnyEvent]) -> None:
        assert self._on_node is not None
        victims = self._on_node.get(node, set())
        # Children before their parents: a grant closes only when nothing runs on it.
        parents = self._declared.parent
        for job in sorted(victims, key=lambda job: (parents[job] < 0, job)):
            self._fail(job, self._alive[job] % SUSPENSION, events, why="NodeFail", final=False)
        events.append(NodeDown(node))

    def _fail(
        self, job: int, attempt: int, events: list[AnyEvent], *, why: str, final: bool
    ) -> None:
        """The attempt breaks now; what it did since its last checkpoint is lost."""
        before, counted = self._done(job), self._counted.get(job, 0)
        self._halt(job)
        did = self._done(job) - before
        every = self._physics.costs.checkpoint_every
        kept = before + (did // every * every if every and did > 0 else 0.0)
        if self._total[job] < NEVER:
            self._did[job] = kept
            if kept == before and self._limit is not None:
                self._counted[job] = counted if kept else 0
        self._alive[job] = 0
        if self._on_node is not None:
            self._forget(job)
        events.append(Failed(job, attempt, kept, why, final))
        if final:
            self._over(job, events)

    def _forget(self, job: int) -> None:
        assert self._on_node is not None
        for slot in self._where.pop(job, ()):
            self._on_node[slot.node].discard(job)


def _sorted(at: int, events: list[AnyEvent]) -> Batch:
    """The batch of these events, in order of rank."""
    events.sort(key=_rank)
    return Batch(at, events)
