"""Looking ahead: the present queue played to its end, under the policy in force or another one.

What jobs take is only believed: the oracle's expectation, never less than what a job has done
already. Intervals come from playing it several times, each time with run times drawn from what is
known of jobs alike, and with jobs that arrive meanwhile as jobs did before.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Final, TypeAlias

import msgspec
import numpy as np
from numpy.typing import NDArray

from ganger.core.events import Batch, Command, Started, Woke
from ganger.core.kernel import Kernel
from ganger.core.plan import Spawn
from ganger.core.profiles import Profile, Profiles
from ganger.core.spec import JobSpec, Kind
from ganger.core.state.jobs import Jobs, Phase
from ganger.core.units import DAY, HOUR, NEVER, SECOND
from ganger.estimate.lifetimes import Lifetimes
from ganger.sim.children import AsStated
from ganger.sim.engine import Simulator
from ganger.sim.physics import Physics
from ganger.workloads.trace import Trace

Floats: TypeAlias = NDArray[np.float64]
STEPS_MAX: Final = 200_000
"""A look ahead ends here; what has not started by then has no expected start."""
SPREAD: Final = 0.6
"""Of log run times around what is believed, where too few jobs are over to draw from."""
ENOUGH: Final = 8
"""So many jobs must be over for run times to be drawn from theirs."""
PAST_MAX: Final = 2000
"""Jobs to come are like these, the last that came."""
FORESEEN_MAX: Final = 1000
FORESEEN_BLOCKS_MAX: Final = 60
"""At most so many jobs are foreseen, and so many blocks of time."""
_LONGEST = 1e17
_OVERDUE = 1.2
"""A job that has run longer than was believed is believed to take this much of it in all."""


class Outlook(msgspec.Struct, frozen=True):
    """When a job is expected to start: microseconds, with the 10 % and 90 % points."""

    expected: int
    low: int
    high: int


class Future(msgspec.Struct, frozen=True):
    """What a policy would make of the present queue. Times in seconds from now: of those that wait
    the mean time to their start, of all jobs the mean time to their end, and the last end.
    `unstarted` of `waiting` jobs never start; their part is missing in the means."""

    recipe: str
    waiting: int
    unstarted: int
    wait_mean_seconds: float
    end_mean_seconds: float
    last_end_seconds: float
    preemptions: int


def believed(kernel: Kernel) -> NDArray[np.int64]:
    """What each job is believed to take in all, microseconds on the reference; NEVER for what
    runs until stopped."""
    ids = _present(kernel)
    told, done = _told(kernel, ids)
    told = np.where(told <= done, done * _OVERDUE + SECOND, told)
    return _totals(kernel, ids, told)


def drawn(kernel: Kernel, luck: np.random.Generator, arriving: int = -1) -> NDArray[np.int64]:
    """What each job may take, as `believed`: drawn from what is known of jobs over and running
    (`estimate/lifetimes`), of the same user, size, model and name if there are such. Where fewer
    than ENOUGH are over, around what is believed. With `arriving`, also the jobs from that row on.
    """
    ids, jobs, n = _present(kernel, arriving), kernel.jobs, kernel.jobs.n
    work = np.asarray(kernel.view.work(np.arange(n)), np.float64)
    over = jobs.phase[:n] >= Phase.FINISHED
    work += np.where(over & (jobs.phase[:n] > Phase.FINISHED), jobs.lost[:n], 0.0)
    past = np.flatnonzero((work > 0) & (jobs.phase[:n] >= Phase.PENDING))
    done = work[ids]
    if np.count_nonzero(over[past]) < ENOUGH:
        from scipy.special import ndtr, ndtri  # slow to import, and a daemon starts without

        told, _ = _told(kernel, ids)
        least = ndtr(np.log(np.maximum(done, 1.0) / told) / SPREAD)
        at = np.clip(least + (1 - least) * luck.random(len(ids)), 1e-9, 1 - 1e-9)
        told *= np.exp(SPREAD * ndtri(at))
    else:
        groups = _groups(jobs, n)
        lives = Lifetimes(work[past], over[past], [level[past] for level in groups], luck)
        own = np.stack([level[ids] for level in groups], axis=1).tolist()
        told = np.array([lives.draw(*one) for one in zip(own, done.tolist(), strict=True)])
    told = np.where(told <= done, done * _OVERDUE + SECOND, told)
    return _totals(kernel, ids, told)


def _groups(jobs: Jobs, n: int) -> list[NDArray[np.int64]]:
    """The groups of jobs alike, from the widest: all, by size, user, model and name."""
    found, number = [np.zeros(n, np.int64)], np.zeros(n, np.int64)
    for columns in (("gpus",), ("user",), ("model", "group")):
        for column in columns:
            value = getattr(jobs, column)[:n].astype(np.int64)
            number = np.unique(
                number * (int(value.max(initial=0)) + 1) + value, return_inverse=True
            )[1]
        found.append(number)
    return found


def _present(kernel: Kernel, arriving: int = -1) -> NDArray[np.int64]:
    """The jobs that are there and not over; with `arriving`, also the rows from there on."""
    jobs, n, view = kernel.jobs, kernel.jobs.n, kernel.view
    view.now, view.revision = kernel.now, kernel.revision
    wanted = (jobs.phase[:n] < Phase.FINISHED) & (jobs.phase[:n] > Phase.DECLARED)
    if arriving >= 0:
        wanted[arriving:] = True
    return np.flatnonzero(wanted)


def _told(kernel: Kernel, ids: NDArray[np.int64]) -> tuple[Floats, Floats]:
    """What jobs are believed to take, and what they have done."""
    jobs, view = kernel.jobs, kernel.view
    told = np.array(kernel.oracle.duration(view, ids), np.float64)
    stated = np.where(jobs.estimate[ids] < NEVER, jobs.estimate[ids], jobs.limit[ids])
    told = np.where(np.isnan(told), np.where(stated < NEVER, stated, HOUR), told)
    return told, np.asarray(view.work(ids), np.float64)


def _totals(kernel: Kernel, ids: NDArray[np.int64], told: Floats) -> NDArray[np.int64]:
    jobs = kernel.jobs
    total = np.zeros(jobs.n, np.int64)
    told = np.minimum(np.minimum(told, jobs.limit[ids]), _LONGEST)
    total[ids] = np.where(jobs.kind[ids] == Kind.SERVE, NEVER, np.ceil(told)).astype(np.int64)
    return total


def foresee(kernel: Kernel, luck: np.random.Generator) -> int:
    """Declare jobs that may come yet, like those that came: the last days (or with less than two
    days of past, all of it) are put one after the other in random order, at their own time of day
    (a block bootstrap; Kuensch, Ann. Statist. 1989). The first of their rows."""
    jobs, n, now = kernel.jobs, kernel.jobs.n, kernel.now
    came = (
        (jobs.phase[:n] > Phase.DECLARED)
        & (jobs.parent[:n] < 0)
        & ((jobs.kind[:n] == Kind.TRAIN) | (jobs.kind[:n] == Kind.TASK))
    )
    rows = np.flatnonzero(came)[-PAST_MAX:]
    if not len(rows) or jobs.submitted[rows[0]] >= now:
        return n
    at, span = jobs.submitted[rows], now - int(jobs.submitted[rows[0]])
    block = DAY if span >= 2 * DAY else span
    specs: list[JobSpec] = []
    begins = now
    while len(specs) < FORESEEN_MAX and begins < now + FORESEEN_BLOCKS_MAX * block:
        back = int(luck.integers(1, span // block + 1)) * block
        for row in rows[(at > now - back) & (at <= now - back + block)].tolist():
            came_at = int(jobs.submitted[row])
            shift = begins - (now - back)
            specs.append(_again(jobs.spec(row), came_at + shift, f"foreseen-{len(specs)}"))
        begins += block
    kernel.declare(specs[:FORESEEN_MAX])
    return n


def _again(spec: JobSpec, submitted: int, name: str) -> JobSpec:
    """The same job, later."""
    deadline = spec.deadline
    if deadline < NEVER:
        deadline += submitted - spec.submitted
    return msgspec.structs.replace(
        spec, name=name, submitted=submitted, deadline=deadline, after=(), array=""
    )


class _SomeTrials(AsStated):
    """Trials that a search will yet ask for are believed to take an hour each."""

    def child(self, action: Spawn, kind: Kind, name: str) -> tuple[JobSpec, int]:
        """As the policy wants it."""
        if kind is Kind.TUNE and action.spec.estimate >= NEVER:
            return msgspec.structs.replace(action.spec, name=name), HOUR
        return super().child(action, kind, name)


def _physics(kernel: Kernel) -> Physics:
    """Every job at the speed that it asked for; where jobs share GPUs, slowed as is believed of
    their models. A model of which nothing is known is taken to need the whole GPU."""
    beliefs = {model: kernel.oracle.profile(model) for model in kernel.jobs.models.values}
    known = {
        model: Profile(measured=each.measured, stages=each.stages, utilisation=each.utilisation)
        for model, each in beliefs.items()
        if each.shares
    }
    shared = (placement and placement[0].share for placement in kernel.placements().values())
    if not known and not any(shared):
        return Physics(kernel.nodes)
    return Physics(kernel.nodes, Profiles(known, Profile(utilisation={"gpu": 1.0})))


def play(
    kernel: Kernel,
    duration: NDArray[np.int64],
    wanted: Iterable[int],
    arriving: int = -1,
    *,
    orders: Sequence[Command] = (),
    enough: Callable[[], bool] = lambda: False,
) -> dict[int, int]:
    """Run `kernel` on until every job of `wanted` has started, nothing happens any more, or it is
    `enough`, which is asked before each step. With `arriving`, the jobs from that row on arrive
    meanwhile. `orders` are given first.

    When each started, microseconds. `kernel` is used up by this: give a copy.
    """
    engine = Simulator(kernel.jobs, duration, _physics(kernel))
    engine.searcher = _SomeTrials()
    letting_go, knobs = list(kernel.letting_go), kernel.settings.knobs
    engine.adopt(kernel.jobs, kernel.placements(), letting_go, kernel.now, arriving, knobs)
    left, starts = set(wanted), dict[int, int]()
    batch: Batch | None = Batch(kernel.now, [*orders, Woke()])
    for _ in range(STEPS_MAX):
        if batch is None or not left or enough():
            break
        for event in batch.events:
            if type(event) is Started and event.job in left:
                left.remove(event.job)
                starts[event.job] = batch.at
        plan = kernel.step(batch)
        if plan is not None and plan.actions:
            engine.apply(plan, batch.at)
        batch = engine.poll(kernel.wake)
    return starts


def expected_starts(
    copy: Callable[[], Kernel],
    rows: Sequence[int],
    *,
    samples: int = 19,
    seed: int = 0,
    enough: Callable[[], bool] = lambda: False,
) -> dict[int, Outlook]:
    """When waiting jobs are expected to start: the median of `samples` looks ahead, or with none
    the one that believes the oracle. A job that does not start in half of them is left out. Where
    it is `enough`, there are fewer looks, or a first one that is cut short.

    `copy` makes a kernel in the present state; it is called once for each look. Each look draws
    run times and jobs to come anew, so that the points are quantiles of what is foreseen.
    """
    luck = np.random.default_rng(seed)
    seen: dict[int, list[int]] = {row: [] for row in rows}
    for _ in range(max(samples, 1)):
        kernel = copy()
        arriving = foresee(kernel, luck) if samples else -1
        lasting = drawn(kernel, luck, arriving) if samples else believed(kernel)
        starts = play(kernel, lasting, rows, arriving, enough=enough)
        if any(seen.values()) and enough():
            break  # this look was cut short; those before count
        for row in rows:
            seen[row].append(starts.get(row, NEVER))
    found = {}
    for row, times in seen.items():
        times.sort()
        middle = times[len(times) // 2]
        if middle < NEVER:
            low, high = math.floor(0.1 * (len(times) - 1)), math.ceil(0.9 * (len(times) - 1))
            found[row] = Outlook(middle, times[low], times[high])
    return found


def future(kernel: Kernel, recipe: str) -> Future:
    """What `kernel`'s policy would make of the present queue. `kernel` is used up."""
    now, jobs = kernel.now, kernel.jobs
    phase = jobs.phase[: jobs.n]
    waiting = np.flatnonzero((phase == Phase.PENDING) | (phase == Phase.BLOCKED)).tolist()
    present = np.flatnonzero(phase < Phase.FINISHED)
    before = int(jobs.preemptions[: jobs.n].sum())
    engine_wants = [*waiting, -1]  # never satisfied: it is played to its end
    starts = play(kernel, believed(kernel), engine_wants)
    jobs = kernel.jobs
    ended = jobs.finished[present]
    ends = (ended[ended >= now] - now) / SECOND
    waits = [(at - now) / SECOND for at in starts.values()]
    return Future(
        recipe,
        len(waiting),
        len(waiting) - len(starts),
        _mean(waits),
        _mean(ends.tolist()),
        float(ends.max()) if len(ends) else 0.0,
        int(jobs.preemptions[: jobs.n].sum()) - before,
    )


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0


def past(kernel: Kernel, since: int, jobs_max: int = 1 << 60) -> Trace:
    """The jobs that finished since `since` (microseconds) as a trace, with what they truly took, of
    more than `jobs_max` the last; without searches, services and their children, which take what
    they are given."""
    jobs, n = kernel.jobs, kernel.jobs.n
    rows = np.flatnonzero((jobs.phase[:n] == Phase.FINISHED) & (jobs.finished[:n] >= since))
    rows = rows[_alone(jobs, rows) & (jobs.work[rows] > 0)][-jobs_max:]
    lasts = np.ceil(jobs.work[rows]).astype(np.int64)
    return _trace(jobs, rows, lasts, "history")


def _alone(jobs: Jobs, rows: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Which of them are jobs that run by themselves for as long as they take."""
    return (jobs.parent[rows] < 0) & ~np.isin(jobs.kind[rows], [Kind.TUNE, Kind.SERVE])


def _trace(jobs: Jobs, rows: NDArray[np.int64], lasts: NDArray[np.int64], name: str) -> Trace:
    declared = jobs.take(rows)
    declared.names, declared.after = None, {}
    declared.parent[:] = -1
    declared.submitted -= declared.submitted.min() if len(rows) else 0
    return Trace(declared, lasts, name, "this cluster")


def present(kernel: Kernel, luck: np.random.Generator | None, jobs_max: int) -> Trace:
    """The jobs that run and wait as a trace in which all are submitted at once: those that run come
    first, with what is left of them, then those that wait, by priority; of more than
    `jobs_max` the first. Run times are drawn from what is known of jobs alike, or without `luck` as
    believed. Searches, services and their children are left out."""
    lasting = believed(kernel) if luck is None else drawn(kernel, luck)
    jobs, n = kernel.jobs, kernel.jobs.n
    phase = jobs.phase[:n]
    rows = np.flatnonzero((phase >= Phase.PENDING) & (phase < Phase.STOPPING))
    rows = rows[_alone(jobs, rows)]
    waits = phase[rows] == Phase.PENDING
    first = np.where(waits, -jobs.priority[rows].astype(np.int64), 0)
    rows = rows[np.lexsort((rows, first, waits))][:jobs_max]
    done = np.asarray(kernel.view.work(rows), np.float64)
    lasts = np.maximum(lasting[rows] - done, SECOND).astype(np.int64)
    queue = _trace(jobs, rows, lasts, "queue")
    due = queue.declared.deadline < NEVER
    queue.declared.submitted[:] = 0
    queue.declared.deadline[due] = np.maximum(queue.declared.deadline[due] - kernel.now, 0)
    return queue
