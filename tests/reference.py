"""The ordered queue as its rule says it, in plain objects: no columns, no heaps, no caches.

The readable specification that the core is kept equal to. Take waiting jobs in order of key. One
that fits starts on the lowest free GPUs. If it does not and the rule preempts, running jobs that
come after it are evicted, the last one first, until it fits; those evicted then go on where they
were, the first one first, if their GPUs are still free, and otherwise stand in line again. If it
still does not fit, nothing is evicted; a strict walk ends there, a skipping one goes on. Starting
and stopping take no time; after each decision that did something, the rule decides again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

Key = tuple[float, ...]


@dataclass
class Job:
    """One job. Times in microseconds."""

    id: int
    submitted: int
    size: int
    duration: int
    priority: int = 0
    ran: int = 0
    gpus: frozenset[int] = frozenset()
    first_start: int = -1
    finished: int = -1
    preemptions: int = 0

    @property
    def left(self) -> int:
        """What it has still to run."""
        return self.duration - self.ran


@dataclass(frozen=True)
class Rule:
    """A discipline: who goes first, how the queue is walked, and when a running job's key jumps."""

    key: Callable[[Job], Key]
    preempt: bool = False
    strict: bool = False
    jump: Callable[[Job], int | None] = lambda job: None
    """How long a running job goes on before its key jumps; None if it does not."""


@dataclass
class Cluster:
    """So many GPUs, all alike, and what is going on there."""

    total: int
    rule: Rule
    now: int = 0
    running: list[Job] = field(default_factory=list)
    waiting: list[Job] = field(default_factory=list)

    def run(self, jobs: list[Job]) -> None:
        """Play until every job is finished."""
        to_come = sorted(jobs, key=lambda job: (job.submitted, job.id))
        while to_come or self.running:
            moments = [job.submitted for job in to_come[:1]]
            moments += [self.now + job.left for job in self.running]
            if self.waiting:
                jumps = (self.rule.jump(job) for job in self.running)
                moments += [self.now + after for after in jumps if after is not None]
            self._pass_time(min(moments))
            for job in [job for job in self.running if not job.left]:
                self.running.remove(job)
                job.gpus, job.finished = frozenset(), self.now
            while to_come and to_come[0].submitted == self.now:
                self.waiting.append(to_come.pop(0))
            while self._decide():
                pass

    def _pass_time(self, until: int) -> None:
        for job in self.running:
            job.ran += until - self.now
        self.now = until

    def _in_order(self, jobs: list[Job]) -> list[Job]:
        return sorted(jobs, key=lambda job: (self.rule.key(job), job.id))

    def _decide(self) -> bool:
        """One walk down the queue; whether it did anything."""
        before = {job.id: job.gpus for job in self.running}
        old = list(self.running)
        line, again = self._in_order(self.waiting), list[Job]()
        while line:
            job = line.pop(0)
            if self._fits(job) or (self.rule.preempt and self._make_room(job, old, again)):
                self._start(job)
                self._put_back(again, old)
                line = self._in_order([*line, *again])
                again.clear()
            elif self.rule.strict and job.id not in before:
                break
        for job in self.waiting:
            job.preemptions += job.id in before
        return before != {job.id: job.gpus for job in self.running}

    def _free(self) -> list[int]:
        held = {gpu for job in self.running for gpu in job.gpus}
        return [gpu for gpu in range(self.total) if gpu not in held]

    def _fits(self, job: Job) -> bool:
        return job.size <= len(self._free())

    def _start(self, job: Job) -> None:
        job.gpus = frozenset(self._free()[: job.size])
        if job.first_start < 0:
            job.first_start = self.now
        self.waiting.remove(job)
        self.running.append(job)

    def _make_room(self, job: Job, old: list[Job], gone: list[Job]) -> bool:
        """Evict those of `old` that come after `job` until it fits; all or nothing."""
        after = self._in_order([*old, job])
        for victim in reversed(after[after.index(job) + 1 :]):
            for place in (old, self.running):
                place.remove(victim)
            gone.append(victim)
            if self._fits(job):
                self.waiting += gone
                return True
        for place in (old, self.running):
            place += gone
        gone.clear()
        return False

    def _put_back(self, gone: list[Job], old: list[Job]) -> None:
        """Let those go on whose GPUs are still free; the others remain in `gone`."""
        for job in self._in_order(gone):
            if job.gpus <= set(self._free()):
                self.waiting.remove(job)
                self.running.append(job)
                old.append(job)
                gone.remove(job)


# ---------------------------------------------------------------------- the orders


def las(quantum: int, preempt: bool = True) -> Rule:
    """Least attained service, in quanta of GPU-time."""
    return Rule(
        lambda job: (job.ran * job.size // quantum,),
        preempt,
        jump=lambda job: -(-(quantum - job.ran * job.size % quantum) // job.size),
    )


def levels(*thresholds: int) -> Rule:
    """A multi-level feedback queue on executed time."""

    def jump(job: Job) -> int | None:
        return min((t - job.ran for t in thresholds if t > job.ran), default=None)

    return Rule(lambda job: (sum(job.ran >= t for t in thresholds),), True, jump=jump)


def tiresias(*thresholds: int) -> Rule:
    """A multi-level feedback queue on GPU-time; by first start inside a level."""

    def jump(job: Job) -> int | None:
        have = job.ran * job.size
        return min((-(-(t - have) // job.size) for t in thresholds if t > have), default=None)

    def key(job: Job) -> Key:
        level = sum(job.ran * job.size >= t for t in thresholds)
        return level, job.first_start if job.first_start >= 0 else float("inf")

    return Rule(key, True, jump=jump)


def first_come(job: Job) -> Key:
    """The order of submission, which is that of the numbers."""
    return ()


def shortest(job: Job) -> Key:
    """The true duration."""
    return (job.duration,)


def shortest_remaining(job: Job) -> Key:
    """What is left to run."""
    return (job.left,)


def smallest_remaining_service(job: Job) -> Key:
    """What is left to run, times GPUs."""
    return (job.left * job.size,)


def highest_priority(job: Job) -> Key:
    """Largest number first."""
    return (-job.priority,)
