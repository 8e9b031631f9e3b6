"""What every engine must do, as tests. An engine's own test file makes a `Bench` and inherits
`Conformance`; what an engine cannot do it says in `Bench.lacks`, and those tests skip.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from enum import Enum, auto
from itertools import count
from typing import TypeVar

import pytest

from ganger.core.events import (
    AnyEvent,
    Batch,
    Command,
    Failed,
    Finished,
    NodeDown,
    NodeUp,
    Progressed,
    Refused,
    Released,
    Started,
    Woke,
)
from ganger.core.plan import AnyAction, Placement, Plan, Resize, Resume, Slot, Start, Stop, Suspend
from ganger.core.protocols import Engine
from ganger.core.units import NEVER

SECOND = 1_000_000
_E = TypeVar("_E", bound=AnyEvent)
_numbers = count(1)
PATIENCE_SECONDS = 40.0


class Does(Enum):
    """What a job of the suite does."""

    FINISHES = auto()
    """Ends well, at once."""
    FAILS = auto()
    """Exits with code 3; no attempt is forgiven."""
    STUMBLES = auto()
    """Exits with code 3; attempts are forgiven."""
    RUNS = auto()
    """Runs until it is told to go, and goes without saving."""
    SAVES = auto()
    """Runs until it is asked to leave, saves step 7 of 100, of 1000 microseconds each, leaves."""
    DEAF = auto()
    """Ignores every signal that can be ignored."""
    FORKS = auto()
    """Leaves processes behind in sessions of their own, and runs."""
    ABSENT = auto()
    """Names a program that does not exist."""


class Bench(ABC):
    """One engine under test, with two nodes (0 and 1) of four GPUs each."""

    lacks: frozenset[str] = frozenset()
    """Of `processes suspend restart agents refusal`."""
    engine: Engine

    @abstractmethod
    def declare(self, job: int, does: Does) -> None:
        """The job of that number will do this."""

    @abstractmethod
    def reconnect(self, holds: Iterable[tuple[int, int, str, Placement]]) -> None:
        """Another engine takes over: (job, attempt, phase, placement) is what its owner knows."""

    @abstractmethod
    def alive(self, job: int) -> int:
        """How many processes of the job there are."""

    @abstractmethod
    def kill_agent(self, node: int) -> None:
        """SIGKILL what runs the node's jobs, not the jobs; it comes back."""

    @abstractmethod
    def refuse(self, job: int) -> None:
        """The next start of the job will be refused."""

    @abstractmethod
    def starts(self, job: int) -> int:
        """How often the job's program was started."""

    @abstractmethod
    def post(self, *events: AnyEvent) -> None:
        """Post events."""

    @abstractmethod
    def now(self) -> int:
        """The engine's time."""


def on(node: int, *devices: int) -> Slot:
    """Workers on these devices of a node."""
    return Slot(node, sum(1 << device for device in devices), len(devices))


class Play:
    """Drives the engine and keeps what it told."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self.events: list[AnyEvent] = []
        self.times: list[int] = []

    @staticmethod
    def number() -> int:
        """The number of a new job."""
        return next(_numbers)

    def job(self, does: Does) -> int:
        """A new job."""
        number = self.number()
        self.bench.declare(number, does)
        return number

    def apply(self, *actions: AnyAction) -> None:
        """Order."""
        self.bench.engine.apply(Plan(list(actions)), self.bench.now())

    def poll(self, seconds: float) -> Batch | None:
        """One batch."""
        batch = self.bench.engine.poll(self.bench.now() + int(seconds * SECOND))
        if batch is not None:
            self.times.append(batch.at)
            self.events += [event for event in batch.events if not isinstance(event, Woke)]
        return batch

    def find(self, kind: type[_E], job: int, attempt: int = 1) -> list[_E]:
        """The events of a kind about an attempt, so far."""
        return [
            event
            for event in self.events
            if isinstance(event, kind)
            and getattr(event, "job", -1) == job
            and getattr(event, "attempt", -1) == attempt
        ]

    def until(self, kind: type[_E], job: int, attempt: int = 1) -> _E:
        """Poll until that event comes."""
        self.wait(lambda: bool(self.find(kind, job, attempt)), f"{kind.__name__} of job {job}")
        return self.find(kind, job, attempt)[0]

    def wait(self, happened: Callable[[], bool], what: str) -> None:
        """Poll until it is so."""
        late = time.monotonic() + PATIENCE_SECONDS
        while not happened():
            assert time.monotonic() < late, f"no {what}; there were {self.events}"
            self.poll(0.2)

    def at_work(self, job: int, attempt: int = 1) -> None:
        """Poll until the job itself has spoken."""
        if "processes" not in self.bench.lacks:
            self.until(Progressed, job, attempt)

    def quiet(self, seconds: float = 0.3) -> None:
        """Poll for some time: nothing more may be told about ended attempts."""
        end = self.bench.now() + int(seconds * SECOND)
        while self.bench.now() < end:
            self.poll((end - self.bench.now()) / SECOND)

    def started_times(self, job: int, times: int) -> None:
        """The job's program was started so often, and is not started again."""
        self.wait(lambda: self.bench.starts(job) >= times, f"{times} starts of job {job}")
        self.quiet(0.1)
        assert self.bench.starts(job) == times

    def running(self, does: Does, *slots: Slot) -> int:
        """A new job, started."""
        job = self.job(does)
        self.apply(Start(job, 1, slots or (on(0, 0),)))
        self.until(Started, job)
        return job


def need(bench: Bench, *abilities: str) -> None:
    """Skip where the engine cannot."""
    missing = bench.lacks.intersection(abilities)
    if missing:
        pytest.skip(f"this engine lacks {', '.join(sorted(missing))}")


class Conformance:
    """The suite. Subclasses only provide the fixture `bench`."""

    def test_a_job_starts_and_finishes_in_this_order(self, play: Play) -> None:
        job = play.job(Does.FINISHES)
        play.apply(Start(job, 1, (on(0, 0),)))
        play.until(Finished, job)
        told = [type(event) for event in play.events if getattr(event, "job", -1) == job]
        assert told == [Started, Finished]

    def test_it_is_an_engine(self, bench: Bench) -> None:
        assert isinstance(bench.engine, Engine)

    def test_apply_returns_at_once(self, play: Play) -> None:
        jobs = [play.job(Does.FINISHES) for _ in range(4)]
        began = time.monotonic()
        play.apply(*(Start(job, 1, (on(0, i),)) for i, job in enumerate(jobs)))
        assert time.monotonic() - began < 0.3
        for job in jobs:
            play.until(Finished, job)

    def test_time_passes_in_poll_and_never_runs_back(self, play: Play) -> None:
        until = play.bench.now() + 50_000
        batch = play.bench.engine.poll(until)
        assert batch is not None
        assert batch.events == [Woke()]
        assert batch.at >= until
        job = play.running(Does.FINISHES)
        play.until(Finished, job)
        assert batch.at <= play.times[0]
        assert play.times == sorted(play.times)

    def test_what_is_posted_comes_with_the_next_batch(self, play: Play) -> None:
        play.bench.post(Command(0, "hold"))
        batch = play.bench.engine.poll(NEVER)
        assert batch is not None
        assert Command(0, "hold") in batch.events

    def test_a_failure_tells_its_exit_code_and_is_final(self, play: Play) -> None:
        job = play.job(Does.FAILS)
        play.apply(Start(job, 1, (on(0, 0),)))
        failed = play.until(Failed, job)
        assert failed.final
        assert "3" in failed.why

    def test_a_failure_that_is_forgiven_is_not_final_and_a_new_attempt_runs(
        self, play: Play
    ) -> None:
        job = play.job(Does.STUMBLES)
        play.apply(Start(job, 1, (on(0, 0),)))
        assert not play.until(Failed, job).final
        play.apply(Start(job, 2, (on(0, 0),)))
        play.until(Failed, job, 2)

    def test_a_program_that_does_not_exist_fails_for_good(self, play: Play) -> None:
        job = play.job(Does.ABSENT)
        play.apply(Start(job, 1, (on(0, 0),)))
        assert play.until(Failed, job).final

    def test_stopping_saves(self, play: Play) -> None:
        job = play.running(Does.SAVES)
        play.at_work(job)
        play.apply(Stop(job, 1))
        assert play.until(Released, job).kept == pytest.approx(7000)

    def test_a_stopped_job_starts_again_as_a_new_attempt(self, play: Play) -> None:
        job = play.running(Does.SAVES)
        play.apply(Stop(job, 1))
        play.until(Released, job)
        play.apply(Start(job, 2, (on(0, 1),)))
        play.until(Started, job, 2)
        play.apply(Stop(job, 2))
        play.until(Released, job, 2)

    def test_a_job_that_ignores_signals_is_killed(self, play: Play) -> None:
        job = play.running(Does.DEAF)
        play.apply(Stop(job, 1))
        assert play.until(Released, job).kept == 0.0
        assert play.bench.alive(job) == 0

    def test_a_cancelled_job_goes_without_saving(self, play: Play) -> None:
        job = play.running(Does.RUNS)
        play.apply(Stop(job, 1, "cancelled"))
        play.until(Released, job)
        assert play.bench.alive(job) == 0

    def test_children_that_fled_die_with_their_job(self, play: Play) -> None:
        need(play.bench, "processes")
        job = play.running(Does.FORKS)
        play.wait(lambda: play.bench.alive(job) >= 3, "children")
        play.apply(Stop(job, 1))
        play.until(Released, job)
        assert play.bench.alive(job) == 0

    def test_one_attempt_starts_once_however_often_it_is_ordered(self, play: Play) -> None:
        job = play.job(Does.RUNS)
        start = Start(job, 1, (on(0, 0),))
        play.apply(start)
        play.apply(start)
        play.until(Started, job)
        play.apply(start)
        play.quiet()
        assert len(play.find(Started, job)) == 1
        play.started_times(job, 1)
        play.apply(Stop(job, 1))
        play.until(Released, job)
        play.apply(start)
        play.quiet()
        assert play.bench.starts(job) == 1

    def test_stopping_twice_releases_once(self, play: Play) -> None:
        job = play.running(Does.RUNS)
        play.apply(Stop(job, 1))
        play.apply(Stop(job, 1))
        play.until(Released, job)
        play.apply(Stop(job, 1))
        play.quiet()
        assert len(play.find(Released, job)) == 1

    def test_a_start_waits_for_who_leaves(self, play: Play) -> None:
        first = play.running(Does.SAVES)
        second = play.job(Does.FINISHES)
        play.apply(Start(second, 1, (on(0, 0),), waits=(first,)), Stop(first, 1))
        play.until(Started, second)
        order = [type(e) for e in play.events if isinstance(e, Released | Started)]
        assert order == [Started, Released, Started]

    def test_a_start_that_waits_can_be_stopped(self, play: Play) -> None:
        first, second = play.running(Does.SAVES), play.job(Does.FINISHES)
        play.apply(Stop(first, 1), Start(second, 1, (on(0, 0),), waits=(first,)))
        play.apply(Stop(second, 1))
        play.until(Released, second)
        play.until(Released, first)
        play.quiet()
        assert play.bench.starts(second) == 0

    def test_a_resize_is_a_new_attempt_after_the_old_one_has_saved(self, play: Play) -> None:
        job = play.running(Does.SAVES)
        play.apply(Resize(job, 2, (on(0, 0, 1),)))
        play.until(Started, job, 2)
        assert play.find(Released, job)
        play.apply(Resize(job, 3, (on(1, 2),)))
        play.until(Started, job, 3)
        play.apply(Stop(job, 3))
        play.until(Released, job, 3)

    def test_a_suspended_job_stands_still_and_goes_on(self, play: Play) -> None:
        need(play.bench, "suspend")
        job = play.running(Does.SAVES)
        play.at_work(job)
        play.apply(Suspend(job, 1))
        play.quiet(0.1)
        play.apply(Resume(job, 1))
        play.quiet(0.1)
        play.apply(Suspend(job, 1))
        play.apply(Stop(job, 1))
        assert play.until(Released, job).kept == pytest.approx(7000)

    def test_a_gang_on_two_nodes_runs_whole(self, play: Play) -> None:
        job = play.running(Does.SAVES, on(0, 0, 1), on(1, 3))
        play.started_times(job, 1 if "processes" in play.bench.lacks else 3)
        play.apply(Stop(job, 1))
        play.until(Released, job)
        assert play.bench.alive(job) == 0

    def test_a_refusal_is_an_event_and_leaves_nothing(self, play: Play) -> None:
        need(play.bench, "refusal")
        job = play.job(Does.FINISHES)
        play.bench.refuse(job)
        play.apply(Start(job, 1, (on(0, 0), on(1, 0))))
        play.until(Refused, job)
        assert not play.find(Started, job)
        assert play.bench.alive(job) == 0
        play.apply(Start(job, 2, (on(0, 0), on(1, 0))))
        play.until(Finished, job, 2)

    def test_an_owner_that_comes_back_finds_what_runs_and_what_ended(self, play: Play) -> None:
        need(play.bench, "restart")
        runs, ends = play.running(Does.SAVES), play.job(Does.FINISHES)
        never, leaves = play.job(Does.FINISHES), play.running(Does.SAVES, on(0, 2))
        unknown = play.running(Does.RUNS, on(1, 2))
        play.apply(Start(ends, 1, (on(0, 1),)))
        play.bench.reconnect(
            [
                (runs, 1, "RUNNING", (on(0, 0),)),
                (ends, 1, "STARTING", (on(0, 1),)),  # journalled and applied
                (never, 1, "STARTING", (on(0, 3),)),  # journalled, not applied
                (leaves, 1, "STOPPING", (on(0, 2),)),  # journalled, not applied
            ]
        )
        play.until(Finished, ends)
        play.until(Finished, never)
        play.until(Released, leaves)
        play.wait(lambda: not play.bench.alive(unknown), "end of the unknown job")
        for job in (runs, ends, never):
            play.started_times(job, 1)
        assert play.bench.alive(runs)
        play.at_work(runs)
        play.apply(Stop(runs, 1))
        assert play.until(Released, runs).kept == pytest.approx(7000)

    def test_a_gang_that_was_being_started_when_its_owner_died_starts_once(
        self, play: Play
    ) -> None:
        need(play.bench, "restart")
        job, gang = play.job(Does.SAVES), (on(0, 0), on(1, 0))
        play.apply(Start(job, 1, gang))
        play.bench.reconnect([(job, 1, "STARTING", gang)])
        play.until(Started, job)
        play.started_times(job, 2)  # one a worker
        play.apply(Stop(job, 1))
        play.until(Released, job)

    def test_an_agent_killed_and_back_has_lost_nothing(self, play: Play) -> None:
        need(play.bench, "agents")
        runs, ends = play.running(Does.SAVES), play.running(Does.RUNS, on(0, 1))
        gang = play.running(Does.SAVES, on(0, 2), on(1, 1))
        play.bench.kill_agent(0)
        play.apply(Stop(ends, 1))  # while nobody is there
        play.until(Released, ends)
        assert play.bench.alive(runs) and play.bench.alive(gang)  # noqa: PT018
        play.apply(Stop(runs, 1), Stop(gang, 1))
        play.until(Released, runs)
        play.until(Released, gang)
        assert play.bench.starts(runs) == 1
        assert not [event for event in play.events if isinstance(event, Failed | NodeDown | NodeUp)]
