"""Agents are killed and owners forget at random moments: no attempt starts twice, none is lost."""

from __future__ import annotations

import contextlib
import random
from pathlib import Path

import pytest

from engines.conformance import Does, Play, on
from engines.rig import Agents, LocalBench
from ganger.core.events import AnyEvent, Failed, Finished, Refused, Released, Started
from ganger.core.plan import AnyAction, Placement, Plan, Resize, Start, Stop
from soaking import many

KINDS = (Does.FINISHES, Does.STUMBLES, Does.SAVES, Does.RUNS, Does.FORKS, Does.DEAF)


class Job:
    """What the owner's journal says of one job."""

    def __init__(self, does: Does) -> None:
        self.does = does
        self.attempt = 0
        self.phase = "PENDING"
        self.placement: Placement = ()
        self.leaving: dict[int, Placement] = {}
        self.over: list[int] = []

    @property
    def done(self) -> bool:
        """Whether nothing of it is left to wait for."""
        return self.phase in ("PENDING", "OVER") and not self.leaving


class Owner:
    """Keeps a journal in memory, and loses what it had not written yet when it 'dies'."""

    def __init__(self, bench: LocalBench, dice: random.Random) -> None:
        self.bench, self.dice = bench, dice
        self.jobs: dict[int, Job] = {}

    def submit(self, does: Does) -> None:
        """A new job."""
        number = Play.number()
        self.bench.declare(number, does)
        self.jobs[number] = Job(does)

    def decide(self) -> list[AnyAction]:
        """Start, stop or resize at random; in the journal before it is applied."""
        actions: list[AnyAction] = []
        for number, job in self.jobs.items():
            roll = self.dice.random()
            place = (on(0, number % 4),) if roll < 0.7 else (on(0, number % 4), on(1, number % 4))
            if job.phase == "PENDING" and not job.over[2:]:
                job.attempt, job.phase, job.placement = job.attempt + 1, "STARTING", place
                actions.append(Start(number, job.attempt, place, waits=(number,)))
            elif job.phase in ("STARTING", "RUNNING") and roll < 0.15:
                job.phase = "STOPPING"
                actions.append(Stop(number, job.attempt))
            elif job.phase in ("STARTING", "RUNNING") and roll < 0.25:
                job.leaving[job.attempt] = job.placement
                job.attempt, job.phase, job.placement = job.attempt + 1, "STARTING", place
                actions.append(Resize(number, job.attempt, place))
        return actions

    def learn(self, event: AnyEvent) -> None:
        """Write an event down."""
        if not isinstance(event, Started | Finished | Failed | Released | Refused):
            return
        job = self.jobs.get(event.job)
        if job is None:
            return
        if event.attempt != job.attempt:
            assert event.attempt in job.leaving, event
            if isinstance(event, Started):
                return  # it was told to go before it had begun
            assert isinstance(event, Released | Failed | Finished), event
            del job.leaving[event.attempt]
            job.over.append(event.attempt)
            if isinstance(event, Finished):  # what was to replace it is over, and forgotten
                assert job.phase in ("PENDING", "OVER"), event
                job.phase = "OVER"
        elif isinstance(event, Started):
            assert job.phase in ("STARTING", "STOPPING"), event
            job.phase = "RUNNING" if job.phase == "STARTING" else job.phase
        else:
            assert event.attempt not in job.over, event
            job.over.append(event.attempt)
            over = isinstance(event, Finished) or (isinstance(event, Failed) and event.final)
            job.phase = "OVER" if over or len(job.over) > 3 else "PENDING"

    def die(self) -> None:
        """Another owner takes over from the journal."""
        holds = [
            (number, attempt, "STOPPING", placement)
            for number, job in self.jobs.items()
            for attempt, placement in job.leaving.items()
        ]
        holds += [
            (number, job.attempt, job.phase, job.placement)
            for number, job in self.jobs.items()
            if job.phase not in ("PENDING", "OVER")
        ]
        self.bench.reconnect(holds)

    def turn(self) -> None:
        """One round of the loop, in which it may die at any of three moments."""
        moment = self.dice.random()
        batch = self.bench.engine.poll(self.bench.now() + 30_000)
        assert batch is not None
        if moment < 0.04:
            self.die()  # before it wrote the batch
            return
        for event in batch.events:
            self.learn(event)
        actions = self.decide() if len(self.jobs) and self.dice.random() < 0.5 else []
        if moment < 0.08:
            self.die()  # before it applied the plan
            return
        self.bench.engine.apply(Plan(actions), batch.at)
        if moment < 0.12:
            self.die()


@pytest.mark.parametrize("seed", range(1, 3))
def test_kills_at_random_moments(tmp_path: Path, seed: int) -> None:
    play_chaos(tmp_path, seed)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(100, 100 + many(50)))
def test_kills_at_many_random_moments(tmp_path: Path, seed: int) -> None:
    play_chaos(tmp_path, seed)


def play_chaos(tmp_path: Path, seed: int) -> None:
    """150 rounds of jobs, orders, kills and deaths; then everybody must have ended, once."""
    dice = random.Random(seed)
    bench = LocalBench(Agents(tmp_path, ["a", "b"]))
    owner, kills = Owner(bench, dice), 0
    try:
        bench.settle()
        for turn in range(150):
            if turn % 8 == 0:
                owner.submit(dice.choice(KINDS))
            if dice.random() < 0.1:
                with contextlib.suppress(OSError, ValueError):  # it is just starting
                    bench.kill_agent(dice.randrange(2))
                    kills += 1
            owner.turn()
        for number, job in owner.jobs.items():  # the end: everybody must go
            if job.phase in ("STARTING", "RUNNING"):
                job.phase = "STOPPING"
                bench.engine.apply(Plan([Stop(number, job.attempt)]), bench.now())
        for _ in range(400):
            if all(job.done for job in owner.jobs.values()):
                break
            batch = bench.engine.poll(bench.now() + 50_000)
            assert batch is not None
            for event in batch.events:
                owner.learn(event)
        left = {n: (j.phase, j.attempt, j.leaving) for n, j in owner.jobs.items() if not j.done}
        assert not left
        assert kills > 3
        for number in owner.jobs:
            assert bench.alive(number) == 0
            for file in bench.start_files(number):
                assert file.read_text().count("started\n") <= 1, file
    finally:
        bench.engine.close()
        bench.agents.close()
