"""Looking ahead: the present queue played to its end, under the policy in force or another one.

What jobs take is only believed: the oracle's expectation, never less than what a job has done
already. Intervals come from playing it several times, each time with run times drawn from those of
past jobs that were alike.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Final, TypeAlias

import msgspec
import numpy as np
from numpy.typing import NDArray

from ganger.core.events import Batch, Started, Woke
from ganger.core.jobs import Phase
from ganger.core.kernel import Kernel
from ganger.core.spec import Kind
from ganger.core.units import HOUR, NEVER, SECOND
from ganger.sim.engine import Simulator
from ganger.sim.physics import Physics
from ganger.workloads.trace import Trace

Floats: TypeAlias = NDArray[np.float64]
STEPS_MAX: Final = 200_000
"""A look ahead ends here; what has not started by then has no expected start."""
SPREAD: Final = 0.6
"""Of log run times around what is believed, where too few jobs alike are over to draw from."""
ALIKE: Final = 8
"""So many jobs alike must be over, that have run for longer than the job in question has."""
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
    ids, told, done = _present(kernel)
    return _totals(kernel, ids, told, done)


def drawn(kernel: Kernel, luck: np.random.Generator) -> NDArray[np.int64]:
    """What each job may take: the run time of a past job, drawn from those of the same user, name
    and size; of the same user and size; of the same size; of all (the first kind of which enough
    have run for longer than this one already has). What is drawn from is itself a sample, so each
    past job first gets a random weight (the Bayesian bootstrap; Rubin, Ann. Statist. 1981)."""
    ids, told, done = _present(kernel)
    jobs, n = kernel.jobs, kernel.jobs.n
    over = np.flatnonzero((jobs.phase[:n] == Phase.FINISHED) & (jobs.work[:n] > 0))
    took, weight = jobs.work[over], luck.exponential(size=len(over))
    noise = np.exp(luck.normal(0.0, SPREAD, len(ids)))
    keys = (("user", "group", "gpus"), ("user", "gpus"), ("gpus",), ())
    pools: dict[tuple[int, ...], NDArray[np.int64]] = {}
    for at, job in enumerate(ids.tolist()):
        for level, columns in enumerate(keys):
            key = (level, *(int(getattr(jobs, column)[job]) for column in columns))
            if key not in pools:
                same = np.ones(len(over), bool)
                for column, value in zip(columns, key[1:], strict=True):
                    same &= getattr(jobs, column)[over] == value
                pools[key] = np.flatnonzero(same)
            pool = pools[key][took[pools[key]] > done[at]]
            if len(pool) >= ALIKE:
                chances = np.cumsum(weight[pool])
                told[at] = took[pool[np.searchsorted(chances, luck.random() * chances[-1])]]
                break
        else:
            told[at] *= noise[at]
    return _totals(kernel, ids, told, done)


def _present(kernel: Kernel) -> tuple[NDArray[np.int64], Floats, Floats]:
    """The jobs that are not over, what they are believed to take, and what they have done."""
    jobs, n, view = kernel.jobs, kernel.jobs.n, kernel.view
    view.now, view.revision = kernel.now, kernel.revision
    ids = np.flatnonzero(jobs.phase[:n] < Phase.FINISHED)
    told = np.array(kernel.oracle.duration(view, ids), np.float64)
    stated = np.where(jobs.estimate[ids] < NEVER, jobs.estimate[ids], jobs.limit[ids])
    told = np.where(np.isnan(told), np.where(stated < NEVER, stated, HOUR), told)
    return ids, told, np.asarray(view.work(ids), np.float64)


def _totals(
    kernel: Kernel, ids: NDArray[np.int64], told: Floats, done: Floats
) -> NDArray[np.int64]:
    jobs = kernel.jobs
    total = np.zeros(jobs.n, np.int64)
    told = np.minimum(told, jobs.limit[ids])
    told = np.where(told <= done, done * _OVERDUE + SECOND, told)
    total[ids] = np.where(jobs.kind[ids] == Kind.SERVE, NEVER, np.ceil(told)).astype(np.int64)
    return total


def play(kernel: Kernel, duration: NDArray[np.int64], wanted: Iterable[int]) -> dict[int, int]:
    """Run `kernel` on until every job of `wanted` has started, or nothing happens any more.

    When each started, microseconds. `kernel` is used up by this: give a copy.
    """
    engine = Simulator(kernel.jobs, duration, Physics(kernel.nodes))
    engine.adopt(kernel.jobs, kernel.placements(), list(kernel.letting_go), kernel.now)
    left, starts = set(wanted), dict[int, int]()
    batch: Batch | None = Batch(kernel.now, [Woke()])
    for _ in range(STEPS_MAX):
        if batch is None or not left:
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
    copy: Callable[[], Kernel], rows: Sequence[int], *, samples: int = 19, seed: int = 0
) -> dict[int, Outlook]:
    """When waiting jobs are expected to start: the median of `samples` looks ahead, or with none
    the one that believes the oracle. A job that does not start in half of them is left out.

    `copy` makes a kernel in the present state; it is called once for each look.
    """
    luck = np.random.default_rng(seed)
    seen: dict[int, list[int]] = {row: [] for row in rows}
    for _ in range(max(samples, 1)):
        kernel = copy()
        lasting = drawn(kernel, luck) if samples else believed(kernel)
        starts = play(kernel, lasting, rows)
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
        recipe, len(waiting), len(waiting) - len(starts), _mean(waits), _mean(ends.tolist()),
        float(ends.max()) if len(ends) else 0.0,
        int(jobs.preemptions[: jobs.n].sum()) - before,
    )  # fmt: skip


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0


def past(kernel: Kernel, since: int) -> Trace:
    """The jobs that finished since `since` (microseconds) as a trace, with what they truly took."""
    jobs, n = kernel.jobs, kernel.jobs.n
    rows = np.flatnonzero((jobs.phase[:n] == Phase.FINISHED) & (jobs.finished[:n] >= since))
    rows = rows[jobs.work[rows] > 0]
    declared = jobs.take(rows)
    declared.names, declared.after = None, {}
    declared.parent[:] = -1
    declared.submitted -= declared.submitted.min() if len(rows) else 0
    return Trace(declared, np.ceil(jobs.work[rows]).astype(np.int64), "history", "this cluster")
